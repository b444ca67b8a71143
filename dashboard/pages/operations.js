// Bulk operations: one action on everything that a filter selected, with its progress.

import { html } from '../lib.js';
import { get, part, post } from '../api.js';
import { ask, attempt, can } from '../state.js';
import { Button, Card, Document, Empty, Failure, Head, Icon, Name, Notice, Table, Time, usePages, useRead, wordOf } from '../ui.js';
import { count } from '../time.js';

const KINDS = { RUNNING: 'run', COMPLETED: 'ok', CANCELLED: '', FAILED: 'bad' };
const State = ({ one }) => html`<span class=${`status ${KINDS[one.status] ?? ''}`}>${one.cancelling && one.status === 'RUNNING' ? 'stopping' : wordOf(one.status)}</span>`;
const share = (one) => Number(one.matched) ? Math.min(100, 100 * (Number(one.done) + Number(one.refused)) / Number(one.matched)) : 0;
const Progress = ({ one }) => html`<span class="row tight" style=${{ flexWrap: 'nowrap' }}><progress max="100" value=${one.status === 'COMPLETED' ? 100 : share(one)} aria-label="Progress" style=${{ width: '120px' }}></progress><span class="small nowrap">${count(one.done)} of ${one.matched_is_exact ? '' : 'at least '}${count(one.matched)}</span></span>`;

async function stop(one, after) {
  const answer = await ask({ title: 'Stop this operation?', danger: true, action: 'Stop', body: html`<p class="muted">It stops after its current step. Changes already made are kept.</p>` });
  if (answer !== undefined && await attempt(() => post(`bulk/${part(one.operation_id)}/cancel`), 'Stopping') !== undefined) after();
}

function Operation({ id }) {
  const { data: one, error, reload } = useRead([id], (abort) => get(`bulk/${part(id)}`, undefined, abort), { every: 1000 });
  if (error && !one) return html`<${Head} title="Operation" crumbs=${html`<a href="operations">Operations</a>`}/><${Failure} error=${error} retry=${reload}/>`;
  if (!one) return html`<p class="muted" role="status">Loading…</p>`;
  return html`<${Head} title=${`${wordOf(one.action)} ${count(one.matched)} ${one.target}`} badge=${html`<${State} one=${one}/>`} crumbs=${html`<a href="operations">Operations</a><${Icon} name="chevron-right"/><span class="mono">${id}</span>`} about=${html`Started <${Time} at=${one.created_at} style="relative"/> by <${Name}>${one.requested_by}</${Name}>`}>
      ${one.status === 'RUNNING' && !one.cancelling && can('jobs:write') && html`<${Button} kind="danger" icon="stop" onClick=${() => stop(one, reload)}>Stop</${Button}>`}
    </${Head}>
    ${one.failure && html`<${Notice} kind="bad">${one.failure}</${Notice}>`}
    <div class="grid"><div class="span-7 stack"><${Card} title="Progress"><${Progress} one=${one}/><p class="muted small">${count(one.done)} done, ${count(one.refused)} refused${one.finished_at ? html`, finished <${Time} at=${one.finished_at} style="full"/>` : ''}</p></${Card}>
      ${one.refusals.length > 0 && html`<${Card} title="Refused" flush><ul class="list">${one.refusals.map((refusal) => html`<li key=${refusal.id}><a class="mono cut" href=${`${one.target === 'executions' ? 'executions' : 'jobs'}/${refusal.id}`}>${refusal.id}</a><span class="grow">${refusal.reason}</span></li>`)}</ul></${Card}>`}</div>
    <div class="span-5 stack"><${Card} title="Filter"><${Document} value=${one.filter} label="Filter"/></${Card}>${one.patch && html`<${Card} title="Change"><${Document} value=${one.patch} label="Change"/></${Card}>`}</div></div>`;
}

function OperationsList() {
  const pages = usePages('bulk', {}, { limit: 100, every: 3000, keyOf: (one) => one.operation_id });
  const columns = [
    { id: 'what', label: 'Operation', cell: (one) => html`<a class="main nowrap" href=${`operations/${part(one.operation_id)}`}>${wordOf(one.action)} ${one.target}</a>` },
    { id: 'status', label: 'Status', cell: (one) => html`<${State} one=${one}/>` },
    { id: 'progress', label: 'Progress', cell: (one) => html`<${Progress} one=${one}/>` },
    { id: 'refused', label: 'Refused', num: true, cell: (one) => count(one.refused) },
    { id: 'who', label: 'By', cell: (one) => html`<span class="cut"><${Name}>${one.requested_by}</${Name}></span>` },
    { id: 'at', label: 'Started', cell: (one) => html`<${Time} at=${one.created_at}/>` },
    { id: 'actions', label: '', cell: (one) => one.status === 'RUNNING' && can('jobs:write') && html`<${Button} small onClick=${() => stop(one, pages.reload)}>Stop</${Button}>` },
  ];
  return html`<${Head} title="Operations" about="Actions on many jobs or executions at once."/><${Card} flush><${Table} label="Operations" columns=${columns} items=${pages.items} pages=${pages} keyOf=${(one) => one.operation_id} empty=${html`<${Empty} icon="ops" title="There were no operations">Start one with <code>punctual job pause --all --tag nightly</code>, or with <code>POST /api/v1/bulk</code>.</${Empty}>`}/></${Card}>`;
}

export default function Operations({ rest }) {
  return rest[0] ? html`<${Operation} id=${rest[0]}/>` : html`<${OperationsList}/>`;
}
