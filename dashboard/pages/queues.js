// Queues: how much waits, for how long, and what limits them.

import { html, useEffect } from '../lib.js';
import { get, part, post, put } from '../api.js';
import { ask, attempt, can, now } from '../state.js';
import { params, setParams } from '../router.js';
import { Button, Card, Empty, Failure, Field, Head, Menu, Name, Notice, Status, Table, Tile, useRead } from '../ui.js';
import { ExecutionsOverTime, SpansOverTime } from '../series.js';
import { PauseNotice } from '../pause.js';
import { count, span } from '../time.js';

/** @type {[field: string, label: string, hint: string, as: (text: string) => unknown][]} */
const LIMITS = [
  ['max_depth', 'Depth', 'Waiting and queued executions before new jobs are rejected', Number],
  ['concurrency', 'Concurrency', 'Executions that run at once', Number],
  ['rate', 'Rate', 'Starts within a time span, such as 100/1m', String],
  ['key_concurrency', 'Concurrency per key', 'Executions with the same concurrency_key that run at once', Number],
  ['key_rate', 'Rate per key', 'Starts with the same concurrency_key, such as 5/1s', String],
];
/** Executions of each kind that the page of a queue shows. */
const SHOWN = 12;
const limitsOf = (queue) => LIMITS.filter(([name]) => queue[name] !== null).map(([name, label]) => `${label.toLowerCase()} ${queue[name]}`).concat(Object.entries(queue.weights ?? {}).map(([owner, weight]) => `${owner} ×${weight}`)).join(', ');

async function edit(name, after) {
  const queue = await attempt(() => get(`queues/${part(name)}`));
  if (!queue) return;
  const weights = Object.entries(queue.weights ?? {}).map(([owner, weight]) => `${owner}=${weight}`).join(', ');
  const answer = await ask({
    title: `Limits of ${name}`, action: 'Save',
    body: html`<p class="muted">An empty field means no limit. Changes apply at once; executions that run are not stopped.</p>
      <div class="form">${LIMITS.map(([field, label, hint]) => html`<${Field} key=${field} label=${label} hint=${hint}><input name=${field} value=${queue[field] ?? ''}/></${Field}>`)}
      <${Field} label="Shares of owners" hint="ann=3, bob=1; others have 1"><input name="weights" value=${weights}/></${Field}></div>`,
  });
  if (!answer) return;
  const body = {};
  for (const [field, , , as] of LIMITS) if (answer[field].trim()) body[field] = as(answer[field].trim());
  const pairs = answer.weights.split(',').map((pair) => pair.split('=').map((text) => text.trim())).filter(([owner]) => owner);
  if (pairs.length) body.weights = Object.fromEntries(pairs.map(([owner, weight]) => [owner, Number(weight)]));
  if (await attempt(() => put(`queues/${part(name)}`, body), `Saved the limits of ${name}`) !== undefined) after();
}

async function hold(queue, after) {
  const verb = queue.paused ? 'resume' : 'pause';
  const answer = await ask({ title: `${queue.paused ? 'Resume' : 'Pause'} queue ${queue.queue}?`, action: queue.paused ? 'Resume' : 'Pause', body: html`<p class="muted">${queue.paused ? `${count(queue.queued)} queued executions can start again at once.` : 'Executions that run continue. Everything else in this queue waits until you resume it; new jobs are still accepted.'}</p>` });
  if (answer !== undefined && await attempt(() => post(`queues/${part(queue.queue)}/${verb}`), `${queue.paused ? 'Resumed' : 'Paused'} ${queue.queue}`) !== undefined) after();
}

/** One queue: what runs, what is next, and what holds the rest back. */
function Queue({ name }) {
  const { data: queue, error, reload } = useRead([name], (abort) => get(`queues/${part(name)}`, undefined, abort), { every: 2000 });
  const scaling = useRead([name], (abort) => get(`autoscaling/${part(name)}`, undefined, abort).catch(() => null), { every: 5000 });
  const of = (status) => useRead([name, status], (abort) => can('jobs:read') ? get('executions', { status, queue: name, limit: SHOWN }, abort) : Promise.resolve(null), { every: 3000 });
  const cluster = useCapacities();
  const [running, waiting] = [of('RUNNING'), of('WAITING')];
  const queued = useRead([name], (abort) => can('jobs:read') ? get('executions', { status: 'QUEUED', queue: name, order: 'claim', limit: SHOWN }, abort) : Promise.resolve(null), { every: 3000 });
  if (error && !queue) return html`<${Head} title=${name} crumbs=${html`<a href="queues">Queues</a>`}/><${Failure} error=${error} retry=${reload}/>`;
  if (!queue) return html`<p class="muted" role="status">Loading…</p>`;
  const need = scaling.data;
  const able = cluster.data?.able?.get(name);
  const slots = able?.slots ?? need?.slots;
  const age = queue.oldest_queued_at ? Math.max(0, now.value - Date.parse(queue.oldest_queued_at)) : 0;
  const next = queued.data?.items ?? [];
  const overtakes = (one) => next.slice(next.indexOf(one) + 1).some((other) => Date.parse(other.available_at) < Date.parse(one.available_at));
  const list = (title, about, status, items, note) => html`<${Card} title=${title} flush extra=${html`<span class="muted small">${about}</span> <a class="small" href=${`executions?status=${status}&queue=${part(name)}`}>All</a>`}>
    ${items.length ? html`<ul class="list">${items.slice(0, SHOWN).map((one) => html`<li key=${one.execution_id}><a class="main cut grow" href=${`executions/${one.execution_id}`}><${Name}>${one.name ?? one.job_id}</${Name}></a>${note(one)}</li>`)}</ul>` : html`<p class="body muted">None.</p>`}</${Card}>`;
  const since = (at) => html`<span class="muted small nowrap">${at ? span(Math.max(0, now.value - Date.parse(at))) : ''}</span>`;
  return html`<${Head} title=${name} badge=${html`<${Status} of=${queue.paused ? 'PAUSED' : 'ACTIVE'}/>`} crumbs=${html`<a href="queues">Queues</a>`} about=${limitsOf(queue) ? `Limits: ${limitsOf(queue)}` : 'This queue has no limits.'}>
      ${can('queues:write') && html`<${Button} icon=${queue.paused ? 'play' : 'pause'} onClick=${() => hold(queue, reload)}>${queue.paused ? 'Resume' : 'Pause'}</${Button}><${Button} icon="edit" onClick=${() => edit(name, reload)}>Change limits</${Button}>`}
    </${Head}>
    <${PauseNotice} pause=${cluster.data?.pause} after=${cluster.reload}/>
    ${able?.missing.length > 0 && html`<${Notice} kind="bad">No connected worker runs <strong><${Name}>${able.missing.join(', ')}</${Name}></strong> in this queue. Start one, or <a href="workers">look at the workers</a>.</${Notice}>`}
    <div class="tiles"><${Tile} label="Running" value=${count(queue.running)} note=${queue.concurrency ? `at most ${queue.concurrency}` : need ? `of ${count(slots)} slots` : ''}/><${Tile} label="Queued" value=${count(queue.queued)} note=${queue.max_depth ? `at most ${count(queue.max_depth)}` : 'ready to start'}/><${Tile} label="Oldest" value=${queue.oldest_queued_at ? span(age) : 'none'} kind=${age > LATE_MS ? 'bad' : ''} note="waits to start"/><${Tile} label="Waiting" value=${count(queue.waiting)} note="behind a gate"/><${Tile} label="In wait lists" value=${count(queue.in_line)} note="for a limit"/>${need && html`<${Tile} label="Slots needed" value=${count(need.desired_slots)} kind=${Number(need.desired_slots) > Number(slots) ? 'warn' : ''} note=${`${count(slots)} there`}/>`}</div>
    <div class="grid"><div class="span-8 stack">
      ${list('Next to start', 'in the order in which workers take them', 'QUEUED', next, (one) => html`${overtakes(one) && html`<span class="chip" title="It became ready later than others below it, but its priority or the share of its owner puts it first">priority or share</span>`}<span class="muted small">${one.job_type}</span>${since(one.available_at)}`)}
      ${list('Held back', 'and by what', 'WAITING', waiting.data?.items ?? [], (one) => html`<span class="muted small cut">${one.gates?.join(', ')}</span><a class="small nowrap" href=${`jobs/${one.job_id}?tab=why`}>why?</a>`)}
      <${ExecutionsOverTime} by="queue" name=${name}/><${SpansOverTime} by="queue" name=${name} metric="waiting" title="Waited for a worker"/>
    </div><div class="span-4 stack">
      ${list('Running', 'for how long', 'RUNNING', running.data?.items ?? [], (one) => since(one.started_at))}
      ${Object.keys(queue.weights ?? {}).length > 0 && html`<${Card} title="Shares of owners" flush><ul class="list">${Object.entries(queue.weights).map(([owner, weight]) => html`<li key=${owner}><span class="grow cut"><${Name}>${owner}</${Name}></span><span>×${weight}</span></li>`)}</ul></${Card}>`}
    </div></div>`;
}

/** Queued for longer than this is late. */
const LATE_MS = 5000;
/** Depths below this fill only a part of the bar, so that one queued execution does not look like many. */
const BAR_MIN = 100;
/** From this share of its limit on, a depth is close to it. */
const NEAR = 0.8;

/**
 * The workers that can run what is in each queue. The API counts the slots of all workers of a queue; a worker that lacks a job type
 * does not help the executions of that type.
 * @returns {Map<string, {slots: number, missing: string[]}>}
 */
function capacities(lanes, workers) {
  const found = new Map();
  for (const lane of lanes) {
    const able = workers.filter((worker) => worker.state === 'OPEN' && (!worker.queues.length || worker.queues.includes(lane.queue)) && worker.job_types.includes(lane.job_type));
    const known = found.get(lane.queue) ?? { able: new Set(), missing: [] };
    for (const worker of able) known.able.add(worker);
    if (!able.length) known.missing.push(lane.job_type);
    found.set(lane.queue, known);
  }
  for (const known of found.values()) known.slots = [...known.able].reduce((sum, worker) => sum + Number(worker.slots), 0);
  return found;
}

/** Which workers can run what waits, unless there are too many to know, and whether the cluster is paused. */
const useCapacities = () => useRead([], async (abort) => {
  const [stats, workers] = await Promise.all([get('stats', undefined, abort), get('workers', undefined, abort)]);
  return { pause: stats.pause, able: stats.truncated || workers.next_cursor ? null : capacities(stats.queues, workers.items) };
}, { every: 5000 });

const Missing = ({ types }) => html`<span class="status bad" title=${`No connected worker runs ${types.join(', ')}`}><span class="cut">no worker for <${Name}>${types[0]}</${Name}>${types.length > 1 ? ` and ${types.length - 1} more` : ''}</span></span>`;

function Depth({ queue }) {
  const depth = Number(queue.queued) + Number(queue.waiting);
  const share = queue.max_depth ? depth / Number(queue.max_depth) : null;
  const kind = share === null || share < NEAR ? 'calm' : share < 1 ? 'warn' : 'bad';
  const about = queue.max_depth ? `${count(depth)} of at most ${count(queue.max_depth)}` : `${count(queue.queued)} queued`;
  return html`<div class="meter" role="img" title=${about} aria-label=${about}><i class=${kind} style=${{ width: `${Math.min(100, 100 * (share ?? Number(queue.queued) / queue.most))}%` }}></i></div>`;
}

export default function Queues({ rest }) {
  return rest[0] ? html`<${Queue} name=${rest[0]}/>` : html`<${QueuesList}/>`;
}

function QueuesList() {
  const { data, error, reload } = useRead([], (abort) => get('queues', undefined, abort), { every: 2000 });
  const scaling = useRead([], (abort) => get('autoscaling', undefined, abort).catch(() => null), { every: 5000 });
  const wanted = params().get('edit');
  useEffect(() => { if (wanted && can('queues:write')) { setParams({ edit: null }, { replace: true }); edit(wanted, reload); } }, [wanted]);
  const cluster = useCapacities();
  const able = cluster.data?.able;
  const needs = new Map((scaling.data?.items ?? []).map((one) => [one.queue, one]));
  const age = (queue) => queue.oldest_queued_at ? Math.max(0, now.value - Date.parse(queue.oldest_queued_at)) : 0;
  const most = Math.max(BAR_MIN, ...(data?.items ?? []).map((queue) => Number(queue.queued)));
  const columns = [
    { id: 'queue', label: 'Queue', cell: (queue) => html`<a class="main cut" href=${`queues/${part(queue.queue)}`}><${Name}>${queue.queue}</${Name}></a>` },
    { id: 'state', label: 'State', cell: (queue) => html`<${Status} of=${queue.paused ? 'PAUSED' : 'ACTIVE'}/>` },
    { id: 'running', label: 'Running', num: true, cell: (queue) => html`<a href=${`executions?status=RUNNING&queue=${part(queue.queue)}`}>${count(queue.running)}</a>` },
    { id: 'queued', label: 'Queued', num: true, cell: (queue) => html`<a href=${`executions?status=QUEUED&queue=${part(queue.queue)}`}>${count(queue.queued)}</a>` },
    { id: 'bar', label: 'Depth', cell: (queue) => html`<${Depth} queue=${{ ...queue, most }}/>` },
    { id: 'age', label: 'Oldest', num: true, cell: (queue) => queue.oldest_queued_at ? html`<span class=${age(queue) > LATE_MS ? 'status bad' : ''}>${span(age(queue))}</span>` : html`<span class="muted">–</span>` },
    { id: 'waiting', label: 'Waiting', num: true, cell: (queue) => html`<a href=${`executions?status=WAITING&queue=${part(queue.queue)}`}>${count(queue.waiting)}</a>` },
    { id: 'line', label: 'For a limit', num: true, cell: (queue) => count(queue.in_line) },
    { id: 'need', label: 'Slots: has / needs', num: true, cell: (queue) => {
      const [one, own] = [needs.get(queue.queue), able?.get(queue.queue)];
      if (own?.missing.length) return html`<${Missing} types=${own.missing}/>`;
      if (!one) return html`<span class="muted">–</span>`;
      const slots = own?.slots ?? one.slots;
      return html`<span class=${one.desired_slots > slots ? 'status warn' : ''}>${slots} / ${one.desired_slots}</span>`;
    } },
    { id: 'limits', label: 'Limits', cell: (queue) => html`<span class="cut muted" title=${limitsOf(queue)}>${queue.unreadable ?? (limitsOf(queue) || 'none')}</span>` },
    { id: 'actions', label: '', cell: (queue) => can('queues:write') && html`<${Menu} small kind="plain" label=${`Actions on ${queue.queue}`} items=${[{ text: queue.paused ? 'Resume' : 'Pause', icon: queue.paused ? 'play' : 'pause', run: () => hold(queue, reload) }, { text: 'Change limits', icon: 'edit', run: () => edit(queue.queue, reload) }]}/>` },
  ];
  const make = async () => {
    const answer = await ask({ title: 'Limits of a queue', action: 'Continue', body: html`<${Field} label="Queue"><input name="queue" required/></${Field}>` });
    if (answer?.queue.trim()) edit(answer.queue.trim(), reload);
  };
  return html`<${Head} title="Queues and limits" about="Every queue that has work, is paused or has limits.">${can('queues:write') && html`<${Button} icon="plus" onClick=${make}>Set limits</${Button}>`}</${Head}>
    <${PauseNotice} pause=${cluster.data?.pause} after=${cluster.reload}/>
    ${error && !data ? html`<${Failure} error=${error} retry=${reload}/>` : html`<${Card} flush><${Table} label="Queues" columns=${columns} items=${data?.items ?? []} pages=${{ isLoading: !data }} keyOf=${(queue) => queue.queue} empty=${html`<${Empty} icon="queues" title="All queues are empty">Nothing waits or runs, and no queue is paused or has limits. A queue exists as soon as a job names it.</${Empty}>`}/></${Card}>`}`;
}
