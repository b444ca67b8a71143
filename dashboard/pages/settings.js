// Preferences of this browser, who is logged in, and the server.

import { html, useMemo } from '../lib.js';
import { SERVER, get } from '../api.js';
import { can, isLimited, me, theme, zoneChoice } from '../state.js';
import { params, setParams, typed } from '../router.js';
import { Card, Empty, Failure, Head, Name, SearchField, Segmented, Tabs, Time, pretty, useRead } from '../ui.js';
import { BROWSER_ZONE } from '../time.js';

const FROM = { flag: ['run', 'flag'], variable: ['run', 'variable'], file: ['run', 'file'], default: ['', 'default'] };

/** Every setting of the server, its value, and where the value comes from. */
function Effective() {
  const { data, error, reload } = useRead([], (abort) => get('settings', undefined, abort));
  const search = params();
  const wanted = (search.get('q') ?? '').toLowerCase();
  const which = search.get('from') ?? '';
  const rows = useMemo(() => (data?.items ?? []).filter((one) => (!which || one.from !== 'default') && (!wanted || `${one.key} ${one.about}`.toLowerCase().includes(wanted))), [data, wanted, which]);
  if (error && !data) return html`<${Failure} error=${error} retry=${reload}/>`;
  if (!data) return html`<p class="muted" role="status">Loading…</p>`;
  return html`<${Card} flush foot=${data.file ? html`Configuration file: <code>${data.file}</code>. A flag takes precedence over a variable, and that over the file.` : 'There is no configuration file: punctual config template prints one.'}>
    <div class="filters"><${SearchField} label="Search settings" placeholder="Name or purpose" value=${search.get('q') ?? ''} onChange=${typed('q')}/><${Segmented} label="Which settings" options=${[['', 'All'], ['set', 'Only those that are set']]} value=${which} onChange=${(from) => setParams({ from })}/><span class="spring"></span><span class="muted small">${rows.length} of ${data.items.length}</span></div>
    ${rows.length ? html`<div class="scroll" tabindex="0" role="region" aria-label="Settings of the server"><table class="settings" aria-label="Settings of the server"><thead><tr><th scope="col">Setting</th><th scope="col">Value</th><th scope="col">From</th></tr></thead><tbody>
      ${rows.map((one) => html`<tr key=${one.key}><td class="tall"><code>${one.key}</code><div class="muted small">${one.about}</div></td><td class="tall"><code>${one.hidden ? html`<span class="muted">set, not shown</span>` : one.value === null || (Array.isArray(one.value) && !one.value.length) ? html`<span class="muted">–</span>` : typeof one.value === 'string' ? one.value : pretty(one.value)}</code></td><td class="tall"><span class=${`status ${FROM[one.from]?.[0] ?? ''}`}>${FROM[one.from]?.[1] ?? one.from}</span>${one.origin && html`<div class="muted small mono">${one.origin}</div>`}</td></tr>`)}
    </tbody></table></div>` : html`<${Empty} icon="settings" title="No setting matches"/>`}
  </${Card}>`;
}

export default function Settings() {
  const tab = params().get('tab') ?? 'own';
  const isOperator = can('audit:read') && !isLimited();
  return html`<${Head} title="Settings" about=${tab === 'server' ? 'The effective settings of the server that answers, as they were when it started. Secrets are not shown.' : ''}/>
    ${isOperator && html`<${Tabs} label="Settings of" current=${tab} hrefOf=${(one) => `settings${one === 'own' ? '' : `?tab=${one}`}`} items=${[['own', 'Yours'], ['server', 'Of the server']]}/>`}
    ${tab === 'server' && isOperator ? html`<${Effective}/>` : html`<${Own}/>`}`;
}

function Own() {
  const nodes = useRead([], (abort) => isLimited() ? Promise.resolve(null) : get('nodes', undefined, abort).catch(() => null));
  const node = nodes.data?.items[0];
  const who = me.value;
  return html`<div class="grid"><div class="span-6 stack">
    <${Card} title="This browser"><div class="stack">
      <div class="field"><span class="label">Theme</span><${Segmented} label="Theme" options=${[['auto', 'As the system'], ['light', 'Light'], ['dark', 'Dark'], ['contrast', 'High contrast']]} value=${theme.value} onChange=${(value) => { theme.value = value; }}/></div>
      <div class="field"><span class="label">Times</span><${Segmented} label="Time zone" options=${[['browser', BROWSER_ZONE], ['job', "The job's zone"], ['UTC', 'UTC']]} value=${zoneChoice.value} onChange=${(value) => { zoneChoice.value = value; }}/><span class="hint">Every time shows its zone when you point at it.</span></div>
    </div></${Card}>
    <${Card} title="You"><dl class="facts"><dt>Name</dt><dd><${Name}>${who.name}</${Name}></dd><dt>Role</dt><dd>${who.role}</dd><dt>Owner</dt><dd><${Name}>${who.owner_id}</${Name}></dd>
      <dt>Scope: owners</dt><dd>${who.all_owners ? 'all' : 'only this one'}</dd><dt>Scope: queues</dt><dd>${who.queues.length ? who.queues.join(', ') : 'all'}</dd><dt>Scope: job types</dt><dd>${who.job_types.length ? who.job_types.join(', ') : 'all'}</dd><dt>Permissions</dt><dd class="row tight">${who.permissions.map((one) => html`<span class="chip">${one}</span>`)}</dd></dl></${Card}>
  </div><div class="span-6 stack">
    ${node && html`<${Card} title="This server"><dl class="facts"><dt>Version</dt><dd>${node.version}</dd><dt>Node</dt><dd>${node.node_id}, ${node.roles.join(', ')}</dd><dt>Host</dt><dd>${node.host}, process ${node.pid}</dd><dt>Address</dt><dd class="mono">${node.address}</dd><dt>Store</dt><dd>${node.store}, schema ${node.schema_version}</dd><dt>Coordination</dt><dd>${node.coordination || 'single node'}</dd><dt>Time zone data</dt><dd>${node.tzdb_version}</dd><dt>Started</dt><dd><${Time} at=${node.started_at} style="full"/></dd></dl></${Card}>`}
    <${Card} title="More"><ul class="stack tight"><li><a href=${`${SERVER}docs`} target="_blank" rel="noopener">API documentation</a></li><li><a href=${`${SERVER}openapi.json`} target="_blank" rel="noopener">OpenAPI document</a></li><li class="muted">Problems and their fixes: <code>punctual doctor</code>.</li></ul></${Card}>
  </div></div>`;
}
