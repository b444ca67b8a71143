// Executions of all jobs, and one of them.

import { html, useEffect, useState } from '../lib.js';
import { API, get, part, post } from '../api.js';
import { ask, attempt, can, now } from '../state.js';
import { onExecutions } from '../live.js';
import { go, params, setParams, typed } from '../router.js';
import { Button, Card, Document, Empty, Failure, Head, Icon, Name, Notice, SearchField, Select, Status, Table, TextBlock, Time, kindOf, usePages, useRead, wordOf } from '../ui.js';
import { Views, actOnMatching, useColumns } from '../views.js';
import { executionColumns, reasonOf } from './job.js';
import { payloadField, withPayload } from '../actions.js';
import { Logs } from '../logs.js';
import { bytes, clockTime, count, full, span, zoneFor } from '../time.js';

const ENDED = { SUCCEEDED: 'succeeded', FAILED: 'failed', TIMED_OUT: 'timed out', LOST: 'was lost', CANCELLED: 'was cancelled', SKIPPED: 'was skipped', EXPIRED: 'expired', SNOOZED: 'was snoozed' };
const STATUSES = ['RUNNING', 'QUEUED', 'WAITING', 'SUCCEEDED', 'FAILED', 'TIMED_OUT', 'LOST', 'CANCELLED', 'SKIPPED', 'EXPIRED', 'SNOOZED'];

const OPEN = ['RUNNING', 'QUEUED', 'WAITING'];
/** Executions of a time that are read at first. */
const SHOWN_AT_ONCE = 100;

function ExecutionsList() {
  const search = params();
  const [isUnfolded, setUnfolded] = useState(false);
  const filter = { status: search.get('status') ?? 'RUNNING' };
  for (const name of ['queue', 'job_type', 'owner', 'worker']) if (search.get(name)) filter[name] = search.get(name);
  const range = { from: Date.parse(search.get('from') ?? ''), until: Date.parse(search.get('until') ?? '') };
  const isRange = !Number.isNaN(range.from) && !Number.isNaN(range.until) && !OPEN.includes(filter.status);
  const wanted = isRange ? { ...filter, ended_from: new Date(range.from).toISOString(), ended_until: new Date(range.until).toISOString() } : filter;
  const pages = usePages('executions', wanted, { limit: 100, every: isRange ? undefined : 3000, keyOf: (one) => one.execution_id });
  // A page may be short although more follows: other executions ended at the same time.
  const isShort = isRange && pages.next && pages.items.length < SHOWN_AT_ONCE;
  useEffect(() => { if (isShort && !pages.isLoading) pages.more(); }, [isShort, pages.isLoading, pages.next]);
  useEffect(() => onExecutions((batch) => {
    const fresh = new Map(batch.map((one) => [one.execution_id, one]));
    pages.change((items) => items.map((item) => fresh.has(item.execution_id) ? { ...item, ...fresh.get(item.execution_id) } : item));
  }), []);
  // What has left this status moves on to another list.
  const items = pages.items.filter((one) => one.status === filter.status);
  const zone = zoneFor();
  const set = (name) => (value) => setParams({ [name]: value });
  const { columns, menu } = useColumns('executions', executionColumns({ withName: true }), [], []);
  const isOpen = OPEN.includes(filter.status);
  return html`<${Head} title="Executions" about="Attempts to run an occurrence of a job, in one status at a time.">
      ${can('jobs:write') && isOpen && items.length > 0 && html`<${Button} icon="ban" kind="danger" onClick=${() => actOnMatching('cancel', { target: 'executions', filter })}>Cancel all that match…</${Button}>`}
      ${menu}
    </${Head}>
    <${Card} flush><div class=${`filters ${isUnfolded ? 'open' : ''}`}>
      <${Select} aria-label="Status" value=${filter.status} onChange=${set('status')} options=${STATUSES.map((word) => [word, wordOf(word)])}/>
      <${Button} small kind="only-small" icon="filter" aria-expanded=${String(isUnfolded)} onClick=${() => setUnfolded(!isUnfolded)}>Filters</${Button}>
      <${SearchField} class="fold" label="Queue" placeholder="Queue" value=${search.get('queue') ?? ''} onChange=${typed('queue')}/>
      <${SearchField} class="fold" label="Job type" placeholder="Job type" value=${search.get('job_type') ?? ''} onChange=${typed('job_type')}/>
      <${SearchField} class="fold" label="Worker" placeholder="Worker" value=${search.get('worker') ?? ''} onChange=${typed('worker')}/>
      <${Views} page="executions"/>
      ${isRange && html`<button type="button" class="chip" title="Remove this filter" onClick=${() => setParams({ from: null, until: null })}><span class="muted">ended</span> ${full(range.from, zone)} to ${clockTime(range.until, zone, false)} <${Icon} name="x"/><span class="sr">remove</span></button>
        <span class="muted small" role="status">${pages.isLoading || isShort ? 'reading…' : `${count(items.length)}${pages.next ? ' or more' : ''} found`}</span>`}
    </div>
    <${Table} label="Executions" columns=${columns} items=${items} pages=${isShort ? { ...pages, isLoading: true } : pages} keyOf=${(one) => one.execution_id} empty=${html`<${Empty} icon="executions" title=${isRange ? `No execution of this time ${ENDED[filter.status] ?? `is ${wordOf(filter.status)}`}` : ENDED[filter.status] ? `No execution ${ENDED[filter.status]}` : `Nothing is ${wordOf(filter.status)}`}/>`}/></${Card}>`;
}

/** What an attempt did, from the time it was scheduled to its end. */
function Timeline({ attempts, current }) {
  const at = (text) => text ? Date.parse(text) : null;
  const first = Math.min(...attempts.map((one) => at(one.scheduled_time)));
  const last = Math.max(first + 1, ...attempts.map((one) => at(one.completed_at) ?? Math.max(now.value, at(one.available_at))));
  // Short ones at the end stay visible.
  const place = (from, to) => ({ left: `${Math.min(98.5, 100 * (from - first) / (last - first))}%`, width: `${Math.max(1.5, 100 * (to - from) / (last - first))}%` });
  return html`<div class="stack tight"><div class="timeline">${attempts.map((one, index) => {
    const begin = index === 0 ? at(one.scheduled_time) : at(attempts[index - 1].completed_at) ?? at(one.scheduled_time);
    const ready = Math.max(begin, at(one.available_at));
    const started = at(one.started_at);
    const ended = at(one.completed_at) ?? (started ? now.value : null);
    const waited = started ?? at(one.completed_at) ?? Math.max(now.value, ready);
    return html`<div class="lane" key=${one.execution_id}>
      <a href=${`executions/${one.execution_id}`} aria-current=${one.execution_id === current ? 'true' : undefined}>Attempt ${one.attempt_number}</a>
      <div class="track" role="img" aria-label=${`Attempt ${one.attempt_number}: ${wordOf(one.status)}${started && ended ? `, ran ${span(ended - started)}` : one.gates?.length ? `, waits for ${one.gates.join(', ')}` : ''}`}>
        ${ready > begin && html`<i class="bar gate" style=${place(begin, Math.min(ready, waited))} title=${`waited ${span(ready - begin)}`}></i>`}
        ${waited > ready && html`<i class="bar queued" style=${place(ready, waited)} title=${`queued ${span(waited - ready)}`}></i>`}
        ${started && html`<i class=${`bar ran ${kindOf(one.status)}`} style=${place(started, ended)} title=${`ran ${span(ended - started)}`}></i>`}
      </div><span class="muted small nowrap right">${started && ended ? span(ended - started) : one.gates?.length ? `waits: ${one.gates.join(', ')}` : wordOf(one.status)}</span></div>`;
  })}</div>
  <div class="legend"><span><i class="bar gate"></i>waited</span><span><i class="bar queued"></i>queued</span><span><i class="bar ran"></i>running</span><span><i class="bar ran ok"></i>succeeded</span><span><i class="bar ran bad"></i>failed</span></div></div>`;
}

const ATTEMPTS_MAX = 30;
/** A result that is too large for its execution is a reference. @param {unknown} result */
const blobOf = (result) => /** @type {{$blob?: string, bytes?: number} | null} */ (result);
function Execution({ id }) {
  const [job, occurrence] = id.split('.');
  const { data: one, error, reload } = useRead([id], (abort) => get(`executions/${part(id)}`, undefined, abort), { every: 3000 });
  const owner = useRead([job], (abort) => get(`jobs/${part(job)}`, undefined, abort));
  const number = one?.attempt_number;
  const others = useRead([id, number, one?.status], async (abort) => {
    if (!number) return [];
    const own = `${job}.${occurrence}.`;
    const latest = await get(`jobs/${part(job)}/executions`, { limit: 100 }, abort);
    const all = new Map(latest.items.filter((other) => other.execution_id.startsWith(own)).map((other) => [other.attempt_number, other]));
    const first = Math.max(1, number - ATTEMPTS_MAX);
    const missing = Array.from({ length: number - first }, (_, index) => first + index).filter((other) => !all.has(other));
    for (const other of await Promise.all(missing.map((attempt_) => get(`executions/${own}${attempt_}`, undefined, abort).catch(() => null)))) if (other) all.set(other.attempt_number, other);
    return [...all.values()].sort((a, b) => a.attempt_number - b.attempt_number);
  });
  useEffect(() => onExecutions((batch) => { if (batch.some((other) => other.job_id === job && other.execution_id.startsWith(`${job}.${occurrence}.`))) reload(); }), [id]);
  if (error && !one) return html`<${Head} title="Execution" crumbs=${html`<a href="executions">Executions</a>`}/><${Failure} error=${error} retry=${reload}/>`;
  if (!one) return html`<p class="muted" role="status">Loading…</p>`;
  const zone = owner.data?.timezone;
  const isOpen = !one.completed_at && !['SKIPPED', 'EXPIRED'].includes(one.status);
  const attempts = others.data?.length ? others.data.map((other) => other.execution_id === id ? one : other) : [one];
  const cancel = async () => {
    const answer = await ask({ title: 'Cancel this execution?', danger: true, action: 'Cancel the execution', body: html`<p class="muted">It ends if it has not started. If it runs, its worker is asked to stop it. ${owner.data && owner.data.schedule_type !== 'RECURRING' ? 'This job runs once: it becomes cancelled for good.' : ''}</p>` });
    if (answer !== undefined && await attempt(() => post(`executions/${part(id)}/cancel`), 'Cancel requested') !== undefined) reload();
  };
  const again = async () => {
    const payload = one.payload ?? owner.data?.payload;
    const edits = can('payload:read') && owner.data ? payloadField(payload) : null;
    const answer = await ask({ title: 'Run this again?', action: 'Run again', body: html`<p class="muted">Runs this occurrence once more, as a new one. What has finished does not change.</p>${edits}` });
    if (answer === undefined) return;
    const made = await attempt(() => post(`executions/${part(id)}/rerun`, edits ? withPayload(answer.payload, payload) : {}), 'Started');
    if (made?.execution_id) go(`executions/${part(made.execution_id)}`);
  };
  const name = one.name ?? owner.data?.name ?? job;
  return html`<${Head} title=${name} badge=${html`<${Status} of=${one.status}/>`} crumbs=${html`<a href="jobs">Jobs</a><${Icon} name="chevron-right"/><a href=${`jobs/${job}`}><${Name}>${name}</${Name}></a><${Icon} name="chevron-right"/><span>run #${occurrence}, attempt ${one.attempt_number}</span>`} about=${html`Scheduled <${Time} at=${one.scheduled_time} zone=${zone} style="full"/>${one.origin === 'trigger' ? ', run by hand' : ''}`}>
      ${can('jobs:write') && !isOpen && html`<${Button} icon="retry" onClick=${again}>Run again</${Button}>`}
      ${can('jobs:write') && isOpen && html`<${Button} icon="ban" kind="danger" onClick=${cancel}>Cancel</${Button}>`}
    </${Head}>
    ${one.cancel_requested && isOpen && html`<${Notice} kind="warn">It has been asked to stop.</${Notice}>`}
    ${one.error_message && html`<${Card} title="Error"><${TextBlock} kind="bad" text=${one.error_message} label="Error"/></${Card}><br/>`}
    <div class="grid"><div class="span-8 stack">
      <${Card} title="Attempts"><${Timeline} attempts=${attempts} current=${id}/></${Card}>
      ${can('payload:read') && html`<${Logs} path=${`executions/${part(id)}/logs`}/>`}
    </div><div class="span-4 stack">
      <${Card} title="Details"><dl class="facts">
        <dt>Ready</dt><dd><${Time} at=${one.available_at} zone=${zone} style="full"/></dd>
        <dt>Started</dt><dd>${one.started_at ? html`<${Time} at=${one.started_at} zone=${zone} style="full"/>, late by ${span(Math.max(0, Date.parse(one.started_at) - Date.parse(one.available_at)))}` : html`<span class="muted">not yet</span>`}</dd>
        <dt>Ended</dt><dd>${one.completed_at ? html`<${Time} at=${one.completed_at} zone=${zone} style="full"/>` : html`<span class="muted">–</span>`}</dd>
        ${one.started_at && html`<dt>Took</dt><dd>${one.completed_at ? span(Date.parse(one.completed_at) - Date.parse(one.started_at)) : `running for ${span(Math.max(0, now.value - Date.parse(one.started_at)))}`}</dd>`}
        <dt>Worker</dt><dd><${Name}>${one.worker_id ?? '–'}</${Name}></dd>
        ${one.gates?.length > 0 && html`<dt>Waits for</dt><dd>${one.gates.join(', ')} <a href=${`jobs/${job}?tab=why`}>why?</a></dd>`}
        ${one.reason && html`<dt>Reason</dt><dd>${reasonOf(one.reason)}</dd>`}
        ${one.expires_at && html`<dt>Expires</dt><dd><${Time} at=${one.expires_at} zone=${zone} style="full"/></dd>`}
        ${one.repeats && html`<dt>Repeats</dt><dd><a href=${`executions/${one.repeats}.1`}>run #${String(one.repeats).split('.')[1]}</a></dd>`}
        <dt>Job version</dt><dd>${one.job_version}</dd>
        <dt>Id</dt><dd class="mono small">${one.execution_id}</dd>
      </dl></${Card}>
      ${one.progress && html`<${Card} title="Progress"><progress max="100" value=${Number(one.progress.percent ?? 0)} aria-label="Progress"></progress><p>${one.progress.percent !== null ? `${one.progress.percent} %` : ''} ${one.progress.message ?? ''}</p><p class="muted small">reported <${Time} at=${one.progress.noted_at} style="relative"/></p></${Card}>`}
      ${one.result !== null && one.result !== undefined && html`<${Card} title="Result" extra=${blobOf(one.result)?.$blob && html`<a href=${`${API}executions/${one.execution_id}/result`} download=${`${one.execution_id}.json`}>Download ${bytes(blobOf(one.result)?.bytes ?? 0)}</a>`}><${Document} value=${one.result} label="Result"/></${Card}>`}
      ${one.checkpoint !== null && one.checkpoint !== undefined && html`<${Card} title="Checkpoint" extra=${html`<span class="muted small">${bytes(one.checkpoint_bytes ?? 0)}</span>`}><${Document} value=${one.checkpoint} label="Checkpoint"/></${Card}>`}
      ${owner.data && can('payload:read') && html`<${Card} title=${one.payload === undefined ? 'Payload' : 'Payload of this run'}><${Document} value=${one.payload === undefined ? owner.data.payload : one.payload} label="Payload"/></${Card}>`}
    </div></div>`;
}

export default function Executions({ rest }) {
  return rest[0] ? html`<${Execution} id=${rest[0]}/>` : html`<${ExecutionsList}/>`;
}
