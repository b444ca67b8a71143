// Who did what.

import { html, useState } from '../lib.js';
import { get } from '../api.js';
import { attempt } from '../state.js';
import { params, setParams, typed } from '../router.js';
import { Button, Card, Document, Empty, Head, Icon, Name, Notice, SearchField, Table, Time, usePages } from '../ui.js';
import { count } from '../time.js';

export default function Audit() {
  const search = params();
  const filter = Object.fromEntries(['action', 'object', 'token_id', 'user_id', 'outcome', 'from', 'until'].map((name) => [name, search.get(name)]).filter(([, value]) => value));
  const pages = usePages('audit', filter, { limit: 100, every: 10000, keyOf: (entry) => entry.entry_id });
  const [shown, setShown] = useState(null);
  const [verdict, setVerdict] = useState(null);
  const verify = () => attempt(async () => {
    let after;
    let checked = 0;
    for (let round = 0; round < 1000; round += 1) {
      const result = await get('audit/verify', { after });
      checked += Number(result.checked);
      if (result.broken) { setVerdict({ isBroken: true, text: `Entry ${result.broken.number}: ${result.broken.problem}` }); return; }
      if (result.next === null) { setVerdict({ text: `${count(checked)} entries are unchanged. The last hash is ${result.last_hash}.${Number(result.unsealed) ? ` Newest entries that are not sealed yet: ${count(Number(result.unsealed))}.` : ''}` }); return; }
      after = result.next;
    }
  });
  const columns = [
    { id: 'at', label: 'When', cell: (entry) => html`<span class="nowrap"><${Time} at=${entry.at}/></span>` },
    { id: 'who', label: 'Who', cell: (entry) => html`<button type="button" class="chip cut" title=${entry.token_id} onClick=${() => setParams({ token_id: entry.token_id })}><${Name}>${entry.name}</${Name}></button>` },
    { id: 'action', label: 'Action', cell: (entry) => html`<button type="button" class="chip" onClick=${() => setParams({ action: entry.action })}>${entry.action}</button>` },
    { id: 'object', label: 'Object', cell: (entry) => { const job = /^job ([0-9a-f-]{36})$/.exec(entry.object)?.[1]; return job ? html`<a class="cut mono" href=${`jobs/${job}`}>${entry.object}</a>` : html`<span class="cut"><${Name}>${entry.object}</${Name}></span>`; } },
    { id: 'outcome', label: 'Outcome', cell: (entry) => html`<span class=${`status ${entry.outcome === 'done' || entry.outcome === 'ok' || entry.outcome === 'accepted' ? 'ok' : /refus|denied|forbid|fail/.test(entry.outcome) ? 'bad' : ''}`}>${entry.outcome}</span>` },
    { id: 'source', label: 'From', cell: (entry) => html`<span class="cut muted mono">${entry.source ?? '–'}</span>` },
    { id: 'more', label: '', cell: (entry) => html`<${Button} small kind="plain" icon=${shown?.entry_id === entry.entry_id ? 'chevron-down' : 'chevron-right'} label="Details" onClick=${() => setShown(shown?.entry_id === entry.entry_id ? null : entry)}/>` },
  ];
  return html`<${Head} title="Audit log" about="Every change, with its author, in a chain of hashes."><${Button} icon="check" onClick=${verify}>Verify</${Button}></${Head}>
    ${verdict && html`<${Notice} kind=${verdict.isBroken ? 'bad' : 'info'}>${verdict.text}</${Notice}>`}
    ${shown && html`<${Card} title=${`${shown.action} by ${shown.name}`} extra=${html`<${Button} small kind="plain" icon="x" label="Close" onClick=${() => setShown(null)}/>`}><${Document} value=${{ at: shown.at, object: shown.object, token_id: shown.token_id, user_id: shown.user_id, source: shown.source, details: shown.details, number: shown.number, hash: shown.hash }} label="Entry"/></${Card}><br/>`}
    <${Card} flush><div class="filters">
      <${SearchField} label="Action" placeholder="Action, such as job.pause" value=${filter.action ?? ''} onChange=${typed('action')}/>
      <${SearchField} label="Object" placeholder="Object" value=${filter.object ?? ''} onChange=${typed('object')}/>
      ${['token_id', 'user_id'].filter((name) => filter[name]).map((name) => html`<button type="button" class="chip" aria-label=${`Remove filter ${name}`} onClick=${() => setParams({ [name]: null })}><span class="muted">${name}</span> ${filter[name]} <${Icon} name="x"/></button>`)}
    </div><${Table} label="Audit log" columns=${columns} items=${pages.items} pages=${pages} keyOf=${(entry) => entry.entry_id} empty=${html`<${Empty} icon="audit" title="No entries match"/>`}/></${Card}>`;
}
