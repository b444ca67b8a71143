// Secrets: their names and rules. Values are never shown.

import { html } from '../lib.js';
import { part, put } from '../api.js';
import { ask, attempt, can, removeUnused } from '../state.js';
import { Button, Card, Empty, Field, Head, Menu, Name, Table, Time, usePages } from '../ui.js';

const list = (text) => text.split(',').map((one) => one.trim()).filter(Boolean);

export default function Secrets() {
  const pages = usePages('secrets', {}, { limit: 200 });
  const set = async (secret) => {
    const answer = await ask({
      title: secret ? `New value of ${secret.name}` : 'New secret', action: 'Save',
      body: html`<p class="muted">The value is encrypted. Nobody can read it here again; only workers get it, for jobs that the rules allow.</p>
        ${!secret && html`<${Field} label="Name"><input name="name" required autocomplete="off"/></${Field}>`}
        <${Field} label="Value"><textarea name="value" required rows="3" autocomplete="off" spellcheck=${false}></textarea></${Field}>
        <div class="form">${['owners', 'queues', 'job_types'].map((rule) => html`<${Field} key=${rule} label=${`Only for these ${rule.replace('_', ' ')}`} hint="Separated by commas; empty for all"><input name=${rule} value=${(secret?.[rule] ?? []).join(', ')}/></${Field}>`)}</div>`,
    });
    if (!answer) return;
    const name = secret?.name ?? answer.name.trim();
    if (await attempt(() => put(`secrets/${part(name)}`, { value: answer.value, owners: list(answer.owners), queues: list(answer.queues), job_types: list(answer.job_types) }), `Saved secret ${name}`) !== undefined) pages.reload();
  };
  const drop = async (secret) => {
    const answer = await ask({ title: `Remove secret ${secret.name}?`, danger: true, action: 'Remove', body: html`<p class="muted">Jobs that refer to it fail until it is set again.</p>` });
    if (answer !== undefined && await removeUnused(`secrets/${part(secret.name)}`, secret.name)) pages.reload();
  };
  const rule = (values) => values.length ? html`<span class="cut" title=${values.join(', ')}>${values.join(', ')}</span>` : html`<span class="muted">all</span>`;
  const columns = [
    { id: 'name', label: 'Name', cell: (secret) => html`<strong class="cut" title=${secret.name}><${Name}>${secret.name}</${Name}></strong>` },
    { id: 'readable', label: 'State', cell: (secret) => secret.readable ? html`<span class="status ok">readable</span>` : html`<span class="status bad">key missing</span>` },
    { id: 'owners', label: 'Owners', cell: (secret) => rule(secret.owners) }, { id: 'queues', label: 'Queues', cell: (secret) => rule(secret.queues) }, { id: 'types', label: 'Job types', cell: (secret) => rule(secret.job_types) },
    { id: 'version', label: 'Version', num: true, cell: (secret) => secret.version },
    { id: 'set', label: 'Set', cell: (secret) => html`<span class="cut"><${Time} at=${secret.set_at}/> <span class="muted">by <${Name}>${secret.set_by}</${Name}></span></span>` },
    { id: 'actions', label: '', cell: (secret) => can('secrets:write') && html`<${Menu} small kind="plain" label=${`Actions on ${secret.name}`} items=${[{ text: 'New value', icon: 'edit', run: () => set(secret) }, { text: 'Remove', icon: 'trash', danger: true, run: () => drop(secret) }]}/>` },
  ];
  return html`<${Head} title="Secrets" about=${html`Payloads refer to them with <code>{"$secret": "name"}</code>.`}>${can('secrets:write') && html`<${Button} kind="primary" icon="plus" onClick=${() => set()}>New secret</${Button}>`}</${Head}>
    <${Card} flush><${Table} label="Secrets" columns=${columns} items=${pages.items} pages=${pages} keyOf=${(secret) => secret.name} empty=${html`<${Empty} icon="secrets" title="There are no secrets">Keep passwords and keys here instead of in payloads.</${Empty}>`}/></${Card}>`;
}
