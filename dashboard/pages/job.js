// One job: when it runs, what happened, why, and how it is described.

import { html, useEffect, useMemo, useState } from '../lib.js';
import { get, part } from '../api.js';
import { attempt, can, now } from '../state.js';
import { onExecutions } from '../live.js';
import { params } from '../router.js';
import { Button, Card, Document, Empty, Failure, Head, Icon, Menu, Name, Notice, Segmented, Sentence, Status, Table, Tabs, TextBlock, Time, pretty, usePages, useRead, wordOf } from '../ui.js';
import { adviceFor, verbsFor } from '../actions.js';
import { Chart } from '../chart.js';
import { clockTime, dayKey, full, offsetName, parts, span, zoneFor } from '../time.js';
import { definition, manifest } from '../definition.js';
import { Logs } from '../logs.js';
import { ExecutionsOverTime, SpansOverTime } from '../series.js';

const DST = { RUN_AFTER_GAP: 'moved: clocks skip this time', OVERLAP_FIRST: 'clocks repeat this time: the first', OVERLAP_SECOND: 'clocks repeat this time: the second' };
const REASONS = { overlap: 'the previous one was still open', misfire: 'missed: no scheduler was running at that time', paused: 'the job was paused', calendar: 'excluded by a calendar', dependency: 'a job that it depends on did not succeed', backlog: 'too many occurrences were open', requested: 'somebody asked to skip it' };
export const reasonOf = (word) => REASONS[word] ?? word;

/** Fires in the zone of the reader, and in that of the job or in UTC if it differs. Changes of the job's offset are marked. */
export function Fires({ occurrences, zone, jobZone = zone, others, label = 'Fires' }) {
  const set = others && new Set(others.map((one) => one.scheduled_time));
  const second = jobZone !== zone ? jobZone : zone !== 'UTC' ? 'UTC' : null;
  let before;
  return html`<div class="scroll" tabindex="0" role="region" aria-label=${label}><table class="fires" aria-label=${label}><thead><tr><th scope="col">Time in ${zone}</th>${second && html`<th scope="col">${second}</th>`}</tr></thead><tbody>
    ${occurrences.map((one) => {
      const at = Date.parse(one.scheduled_time);
      const { offset } = parts(at, jobZone);
      const isChanged = before !== undefined && before !== offset;
      before = offset;
      const isNew = set && !set.has(one.scheduled_time);
      const notes = [
        isNew && html`<span class="new">new</span>`,
        isChanged && html`<span class="status warn">now ${offsetName(offset)}</span>`,
        one.dst && html`<span class="status warn">${DST[one.dst] ?? one.dst}</span>`,
        one.excluded_by && html`<span class="status">excluded by ${one.excluded_by}</span>`,
        one.due_at && html`<span class="muted small">starts ${span(Date.parse(one.due_at) - at)} later (jitter)</span>`,
      ].filter(Boolean);
      return html`<tr key=${one.scheduled_time}><td class=${`mono ${isNew ? 'new' : ''}`}><span class="nowrap">${full(at, zone)}</span>${notes.length > 0 && html`<div class="row tight notes">${notes}</div>`}</td>${second && html`<td class="nowrap mono muted">${dayKey(at, second) === dayKey(at, zone) ? `${clockTime(at, second)} ${offsetName(parts(at, second).offset)}` : full(at, second)}</td>`}</tr>`;
    })}
  </tbody></table></div>`;
}

function Summary({ job, explained, after, isWhy }) {
  const advice = (explained?.advice ?? []).map((one) => adviceFor(one, after)).filter(Boolean);
  return html`<${Card} title="What is going on" extra=${!isWhy && html`<a class="small" href=${`jobs/${job.job_id}?tab=why`}>Why?</a>`}>
    <div class="stack tight"><p>${explained ? html`<${Sentence} text=${explained.summary} zone=${job.timezone}/>` : '…'}</p>
    ${job.progress && html`<div><progress max="100" value=${Number(job.progress.percent ?? 0)} aria-label="Progress"></progress><span class="muted small">${job.progress.percent !== null ? `${job.progress.percent} %` : ''} ${job.progress.message ?? ''}</span></div>`}
    ${advice.length > 0 && html`<div class="row">${advice.map((one) => one.href ? html`<${Button} small href=${one.href}>${one.text}</${Button}>` : html`<${Button} small kind=${one.danger ? 'danger' : 'primary'} onClick=${one.run}>${one.text}</${Button}>`)}</div>`}</div>
  </${Card}>`;
}

function RunsChart({ executions, zone }) {
  const data = useMemo(() => {
    const runs = executions.filter((one) => one.started_at).slice(0, 200).sort((a, b) => Date.parse(a.started_at) - Date.parse(b.started_at));
    const seconds = (from, to) => to ? Math.max(0, (Date.parse(to) - Date.parse(from)) / 1000) : null;
    const isOk = (one) => one.status === 'SUCCEEDED' || one.status === 'RUNNING';
    return [runs.map((one) => Date.parse(one.started_at) / 1000),
      runs.map((one) => isOk(one) ? seconds(one.started_at, one.completed_at) : null),
      runs.map((one) => isOk(one) ? null : seconds(one.started_at, one.completed_at)),
      runs.map((one) => seconds(one.available_at, one.started_at))];
  }, [executions]);
  if (data[0].length < 2) return html`<p class="muted">A chart appears after two runs.</p>`;
  const value = (seconds) => span(seconds * 1000);
  return html`<${Chart} label="Duration and lateness of the latest runs" zone=${zone} data=${data} height=${190} axis=${value} series=${[{ label: 'duration, succeeded', color: 'ok', kind: 'points', value }, { label: 'duration, failed', color: 'bad', kind: 'points', value }, { label: 'late by', color: 'warn', value }]}/>`;
}

/** How long an execution has been running: counts up by itself. */
const RunningFor = ({ since }) => html`<span class="running">running for ${span(Math.max(0, now.value - Date.parse(since)))}</span>`;

/** @param {{withName?: boolean, zone?: string}} of */
export const executionColumns = ({ withName, zone }) => [
  withName && { id: 'name', label: 'Job', cell: (one) => html`<a class="main cut" href=${`jobs/${one.job_id}`}><${Name}>${one.name ?? one.job_id}</${Name}></a>` },
  { id: 'run', label: 'Run', cell: (one) => { const [, occurrence, attempt] = one.execution_id.split('.'); return html`<a class="nowrap" href=${`executions/${one.execution_id}`}>#${occurrence}${attempt !== '1' ? html` <span class="muted">attempt ${attempt}</span>` : ''}</a>`; } },
  { id: 'status', label: 'Status', cell: (one) => html`<${Status} of=${one.status} title=${one.error_message ?? one.reason}/>${one.cancel_requested && html` <span class="muted small">stopping</span>`}` },
  { id: 'scheduled', label: 'Scheduled', cell: (one) => html`<span class="nowrap"><${Time} at=${one.scheduled_time} zone=${zone}/></span>` },
  { id: 'late', label: 'Late by', num: true, cell: (one) => one.started_at ? span(Math.max(0, Date.parse(one.started_at) - Date.parse(one.available_at))) : html`<span class="muted">–</span>` },
  { id: 'took', label: 'Took', num: true, cell: (one) => one.started_at && one.completed_at ? span(Date.parse(one.completed_at) - Date.parse(one.started_at)) : one.started_at ? html`<${RunningFor} since=${one.started_at}/>` : html`<span class="muted">–</span>` },
  withName && { id: 'queue', label: 'Queue', cell: (one) => html`<span class="cut"><${Name}>${one.queue}</${Name}></span>` },
  { id: 'worker', label: 'Worker', cell: (one) => html`<span class="cut muted"><${Name}>${one.worker_id ?? '–'}</${Name}></span>` },
  { id: 'note', label: 'Note', cell: (one) => html`<span class=${`cut ${one.error_message ? '' : 'muted'}`} title=${one.error_message}>${one.error_message ?? (one.reason ? reasonOf(one.reason) : one.gates?.length ? `waits: ${one.gates.join(', ')}` : one.origin === 'trigger' ? 'run by hand' : one.progress?.message ?? '')}</span>` },
].filter(Boolean);

/** Ranges of skipped occurrences that come with a page of executions, and at most. */
const SKIPPED_FIRST = 100;
const SKIPPED_MAX = 1000;

function Executions({ job, pages }) {
  const [older, setOlder] = useState(/** @type {any[]} */ ([]));
  const latest = pages.extra?.skipped ?? [];
  const known = new Set(latest.map((range) => range.first));
  const skipped = [...latest, ...older.filter((range) => !known.has(range.first))];
  const more = async () => { const page = await attempt(() => get(`jobs/${part(job.job_id)}/executions`, { limit: SKIPPED_MAX })); if (page) setOlder(page.skipped); };
  const columns = useMemo(() => executionColumns({ zone: job.timezone }), [job.timezone]);
  return html`<${Card} flush>
    <${Table} label="Executions" columns=${columns} items=${pages.items} pages=${pages} keyOf=${(one) => one.execution_id} empty=${html`<${Empty} icon="executions" title="It has not run yet">${job.next_run_time ? html`The next run is <${Time} at=${job.next_run_time} style="relative"/>.` : ''}</${Empty}>`}/>
  </${Card}>
  ${skipped.length > 0 && html`<${Card} title="Did not run" flush extra=${html`<span class="muted small">occurrences that were skipped, and why</span>`}>
    <div class="scroll" tabindex="0" role="region" aria-label="Skipped occurrences"><table aria-label="Skipped occurrences"><thead><tr><th>From</th><th>To</th><th class="num">Occurrences</th><th>Reason</th></tr></thead><tbody>
    ${skipped.map((range) => html`<tr key=${range.first}><td class="nowrap"><${Time} at=${range.first} zone=${job.timezone}/></td><td class="nowrap"><${Time} at=${range.last} zone=${job.timezone}/></td><td class="num">${range.count}</td><td>${reasonOf(range.reason)}</td></tr>`)}
    </tbody></table></div>
    ${!older.length && latest.length >= SKIPPED_FIRST ? html`<div class="body"><${Button} small onClick=${more}>Show older ones</${Button}></div>` : older.length >= SKIPPED_MAX && html`<p class="body muted small">The latest ${SKIPPED_MAX.toLocaleString('en')} ranges.</p>`}
  </${Card}>`}`;
}

function Why({ job, explained, after }) {
  if (!explained) return html`<p class="muted">…</p>`;
  return html`<div class="stack"><${Summary} job=${job} explained=${explained} after=${after} isWhy/>
    ${explained.sentences.some((text) => text !== explained.summary) && html`<${Card} title="In detail"><ul class="stack tight">${explained.sentences.map((text) => html`<li><${Sentence} text=${text} zone=${job.timezone}/></li>`)}</ul></${Card}>`}
    ${explained.executions.length > 0 && html`<${Card} title="Open executions" flush><ul class="list">${explained.executions.map((one) => html`<li><${Status} of=${one.status}/><div class="grow"><a href=${`executions/${one.execution_id}`}>#${one.execution_id.split('.')[1]}</a> ${one.sentences.map((text) => html`<div><${Sentence} text=${text} zone=${job.timezone}/></div>`)}</div></li>`)}</ul></${Card}>`}
    ${explained.recent.length > 0 && html`<${Card} title="Latest occurrences" flush><ul class="list">${explained.recent.map((one) => html`<li><${Status} of=${one.status}/><span class="grow"><${Time} at=${one.scheduled_time} zone=${job.timezone} style="full"/></span><span class="muted small">${one.reason ? reasonOf(one.reason) : one.late_by ? `late by ${one.late_by}` : ''}${one.attempts > 1 ? `, ${one.attempts} attempts` : ''}</span></li>`)}</ul></${Card}>`}
  </div>`;
}

function Definition({ job }) {
  const [form, setForm] = useState('yaml');
  const text = form === 'yaml' ? manifest(job) : `${pretty(definition(job))}\n`;
  return html`<${Card} title=${form === 'yaml' ? 'For punctual apply -f' : 'For POST /api/v1/jobs'} extra=${html`<${Segmented} label="Format" options=${[['yaml', 'YAML'], ['json', 'JSON']]} value=${form} onChange=${setForm}/>`}><${TextBlock} text=${text} label="Definition"/></${Card}>`;
}

const timeIn = (at, zone) => html`<${Time} at=${at} zone=${zone} style="full"/>`;
/** @type {[name: string, label: string, words?: (value: any, zone?: string) => any][]} */
const WORDS = [['timeout_secs', 'Timeout', (value) => span(Number(value) * 1000)], ['max_retries', 'Retries'], ['retry', 'Backoff', (retry) => [retry.strategy, retry.delay && `${retry.strategy === 'fixed' ? '' : 'from '}${retry.delay}`, retry.max_delay && `to ${retry.max_delay}`, retry.steps?.length && retry.steps.join(', ')].filter(Boolean).join(' ')], ['misfire_policy', 'If missed', wordOf], ['overlap_policy', 'If still running', wordOf], ['calendars', 'Calendars', (names) => names.join(', ') || 'none'], ['jitter', 'Jitter'], ['max_runs', 'At most', (value) => `${value} runs`], ['concurrency_key', 'Concurrency key'], ['unique_key', 'Unique key'], ['idempotency_key', 'Idempotency key'], ['expires_after', 'Expires after'], ['start_at', 'Starts', timeIn], ['end_at', 'Ends', timeIn]];

export function Job({ id }) {
  const tab = params().get('tab') ?? 'overview';
  const { data: job, error, reload } = useRead([id], (abort) => get(`jobs/${part(id)}`, undefined, abort), { every: 5000 });
  const explain = useRead([id, job?.status, job?.version], (abort) => get(`jobs/${part(id)}/explain`, undefined, abort), { every: 5000 });
  const isRecurring = job?.schedule_type === 'RECURRING';
  const next = useRead([id, job?.version, isRecurring, job?.next_run_time], (abort) => isRecurring ? get(`jobs/${part(id)}/next`, { count: 20 }, abort) : Promise.resolve(null));
  const pages = usePages(`jobs/${part(id)}/executions`, {}, { limit: 100, every: 4000, keyOf: (one) => one.execution_id });
  const after = () => { reload(); explain.reload(); next.reload(); pages.reload(); };
  useEffect(() => {
    let timer = 0;
    const stop = onExecutions((batch) => { if (batch.some((one) => one.job_id === id)) { clearTimeout(timer); timer = setTimeout(() => { reload(); explain.reload(); }, 300); } });
    return () => { clearTimeout(timer); stop(); };
  }, [id]);
  if (error && !job) return html`<${Head} title="Job" crumbs=${html`<a href="jobs">Jobs</a>`}/><${Failure} error=${error} retry=${reload}/>`;
  if (!job) return html`<p class="muted" role="status">Loading…</p>`;
  const verbs = verbsFor(job, after);
  const main = verbs.filter((verb) => ['pause', 'resume', 'trigger', 'retry'].includes(verb.id));
  const zone = zoneFor(job.timezone);
  const items = [
    can('jobs:write') && job.status !== 'CANCELLED' && can('payload:read') && { text: 'Edit', icon: 'edit', href: `jobs/${id}/edit` },
    can('jobs:write') && can('payload:read') && { text: 'Clone', icon: 'clone', href: `jobs/new?from=${id}` },
    verbs.length > 0 && '-',
    ...verbs.filter((verb) => !main.includes(verb)),
  ].filter(Boolean);
  return html`<${Head} title=${job.name} crumbs=${html`<a href="jobs">Jobs</a><${Icon} name="chevron-right"/><span class="mono">${id}</span>`} badge=${html`<${Status} of=${job.status} title=${job.status_reason}/>`} about=${job.schedule_description ? html`<${Sentence} text=${job.schedule_description} zone=${job.timezone}/>` : (job.execute_at ? `Once, at ${full(job.execute_at, zone)}` : 'Once, as soon as it was submitted')}>
      ${main.map((verb) => html`<${Button} key=${verb.id} icon=${verb.icon} onClick=${verb.run}>${verb.text}</${Button}>`)}
      ${items.length > 0 && html`<${Menu} label="More actions" items=${items}/>`}
    </${Head}>
    ${job.status_reason && html`<${Notice} kind=${job.status === 'FAILED' ? 'bad' : 'warn'}><${Sentence} text=${job.status_reason[0].toUpperCase() + job.status_reason.slice(1)} zone=${job.timezone}/></${Notice}>`}
    <${Tabs} label="Parts of the job" current=${tab} hrefOf=${(one) => `jobs/${id}${one === 'overview' ? '' : `?tab=${one}`}`} items=${[['overview', 'Overview'], ['executions', 'Executions'], ['why', 'Why'], can('payload:read') && ['logs', 'Logs'], ['definition', 'Definition']]}/>
    ${tab === 'overview' && html`<div class="grid">
      <div class="span-8 stack">
        <${Summary} job=${job} explained=${explain.data} after=${after}/>
        <${Card} title="Runs" extra=${html`<span class="muted small">duration and lateness</span>`}><${RunsChart} executions=${pages.items} zone=${zone}/></${Card}>
        ${isRecurring && can('server:read') && html`<${ExecutionsOverTime} by="job" name=${job.name} owner=${job.owner_id} title="History"/><${SpansOverTime} by="job" name=${job.name} owner=${job.owner_id} metric="duration" title="Duration"/>`}
        <${Card} title="Latest executions" flush extra=${html`<a class="small" href=${`jobs/${id}?tab=executions`}>All</a>`}><${Table} label="Latest executions" columns=${executionColumns({ zone: job.timezone })} items=${pages.items.slice(0, 8)} keyOf=${(one) => one.execution_id} empty=${html`<${Empty} icon="executions" title="It has not run yet"/>`}/></${Card}>
        ${can('payload:read') && html`<${Card} title="Payload"><${Document} value=${job.payload} label="Payload"/></${Card}>`}
        ${job.result !== null && job.result !== undefined && can('payload:read') && html`<${Card} title="Result of the last run"><${Document} value=${job.result} label="Result"/></${Card}>`}
      </div>
      <div class="span-4 stack">
        <${Card} title="Details"><dl class="facts">
          <dt>Next run</dt><dd>${job.next_run_time ? html`<${Time} at=${job.next_run_time} zone=${job.timezone} style="full"/> <span class="muted">(<${Time} at=${job.next_run_time} style="relative"/>)</span>` : html`<span class="muted">none</span>`}</dd>
          ${job.next_retry_time && html`<dt>Next retry</dt><dd><${Time} at=${job.next_retry_time} zone=${job.timezone} style="full"/></dd>`}
          <dt>Last run</dt><dd>${job.last_run_time ? html`<${Time} at=${job.last_run_time} zone=${job.timezone} style="full"/>` : html`<span class="muted">never</span>`}</dd>
          <dt>Type</dt><dd><${Name}>${job.job_type}</${Name}></dd><dt>Queue</dt><dd><a href=${`queues/${part(job.queue)}`}><${Name}>${job.queue}</${Name}></a>, priority ${job.priority}</dd><dt>Owner</dt><dd><${Name}>${job.owner_id}</${Name}></dd>
          ${isRecurring && html`<dt>Time zone</dt><dd>${job.timezone ?? 'UTC'}</dd>`}
          ${WORDS.filter(([name]) => job[name] !== undefined && job[name] !== null).map(([name, label, words]) => html`<dt>${label}</dt><dd>${words ? words(job[name], job.timezone) : String(job[name])}</dd>`)}
          ${job.depends_on?.length > 0 && html`<dt>Depends on</dt><dd>${job.depends_on.map((other) => html`<a class="mono cut" href=${`jobs/${other}`}>${other}</a>`)}</dd>`}
          ${job.tags.length > 0 && html`<dt>Tags</dt><dd class="row tight">${job.tags.map((tag) => html`<a class="chip" href=${`jobs?tag=${part(tag)}`}><${Name}>${tag}</${Name}></a>`)}</dd>`}
          <dt>Version</dt><dd>${job.version}, changed <${Time} at=${job.updated_at} style="relative"/></dd><dt>Created</dt><dd><${Time} at=${job.created_at} style="full"/></dd>
        </dl></${Card}>
        ${isRecurring && html`<${Card} title="Next 20 fires" flush>${next.data?.occurrences.length ? html`<${Fires} occurrences=${next.data.occurrences} zone=${zone} jobZone=${job.timezone ?? 'UTC'}/>` : html`<${Empty} icon="calendar" title="Nothing is left to fire"/>`}</${Card}>`}
      </div></div>`}
    ${tab === 'executions' && html`<div class="stack"><${Executions} job=${job} pages=${pages}/></div>`}
    ${tab === 'why' && html`<${Why} job=${job} explained=${explain.data} after=${after}/>`}
    ${tab === 'logs' && can('payload:read') && html`<${Logs} path=${`jobs/${part(id)}/logs`}/>`}
    ${tab === 'definition' && html`<${Definition} job=${job}/>`}`;
}
