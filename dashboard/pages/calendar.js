// The calendar of all jobs: by month, week, day, or as an agenda, in any zone. Days of 23 and 25 hours are drawn as such.

import { html, useEffect, useMemo, useRef, useState } from '../lib.js';
import { HOUR, LISTED_MAX, happenedIn, loads, readDays, readFires, readHappened, readPast } from '../calendar-data.js';
import { now } from '../state.js';
import { params, setParams, typed } from '../router.js';
import { Button, Card, Empty, Failure, Head, Name, SearchField, Segmented, Status, useRead } from '../ui.js';
import { addDays, clockTime, count, dayKey, full, instantOf, MONTHS, offsetName, parts, startOfDay, zoneFor } from '../time.js';

/** The hours of a day as instants: 23, 24 or 25 of them. */
function hoursOf(day, zone) {
  const next = addDays(day, 1, zone);
  const slots = [];
  for (let at = day; at < next; at += HOUR) slots.push(at);
  return { slots, next };
}

function daysOf(view, day, zone) {
  const p = parts(day, zone);
  const weekday = (new Date(Date.UTC(p.year, p.month - 1, p.day)).getUTCDay() + 6) % 7;
  if (view === 'day') return [day];
  if (view === 'agenda') return Array.from({ length: 7 }, (_, index) => addDays(day, index, zone));
  if (view === 'week') return Array.from({ length: 7 }, (_, index) => addDays(day, index - weekday, zone));
  const first = instantOf({ year: p.year, month: p.month, day: 1 }, zone);
  const lead = (new Date(Date.UTC(p.year, p.month - 1, 1)).getUTCDay() + 6) % 7;
  const length = new Date(Date.UTC(p.year, p.month, 0)).getUTCDate();
  return Array.from({ length: Math.ceil((lead + length) / 7) * 7 }, (_, index) => addDays(first, index - lead, zone));
}

const WEEKDAYS = ['Mon', 'Tue', 'Wed', 'Thu', 'Fri', 'Sat', 'Sun'];
/** A note on a day on which clocks change. */
function changeOf(day, zone) {
  const { slots, next } = hoursOf(day, zone);
  const hours = Math.round((next - day) / HOUR * 10) / 10;
  return hours === 24 ? null : { hours, text: `${hours} hours: clocks go ${hours < 24 ? 'forward' : 'back'}, ${offsetName(parts(slots[0], zone).offset)} to ${offsetName(parts(next, zone).offset)}` };
}

/** Fewer fires in an hour than this are drawn lightly. */
const HEAT_MIN = 12;
/** Hours of a day without anything that are drawn as one line. */
const QUIET_MIN = 3;
/** Fires that an agenda lists. */
const AGENDA_MAX = 500;
/** Fires of one hour that are listed. */
const LISTED_IN_HOUR = 100;
/** Frequent jobs that are named. */
const FREQUENT_SHOWN = 8;
/** Planned against what happened, in words. */
const pastWords = ({ ok, bad, not, all }) => [`${count(ok + bad)} of ${count(all)} ran`, bad && `${count(bad)} failed`, not && `${count(not)} did not run`].filter(Boolean).join(', ');
const Past = ({ of }) => html`<span aria-hidden="true">${count(of.ok + of.bad)}${of.bad > 0 && html` <b class="bad">✗${count(of.bad)}</b>`}${of.not > 0 && html` <b class="warn">−${count(of.not)}</b>`}</span>`;

/** One hour: what happened, what failed, what is planned, and what fires often. */
function Cell({ at, end, zone, queue, past, fires, often, close }) {
  // Successes are only counted if their number is known.
  const listed = fires.filter((fire) => !past.all || fire.execution?.status !== 'SUCCEEDED').slice(0, LISTED_IN_HOUR);
  const link = (status) => `executions?status=${status}${queue ? `&queue=${encodeURIComponent(queue)}` : ''}&from=${new Date(at).toISOString()}&until=${new Date(end).toISOString()}`;
  return html`<${Card} flush title=${`${full(at, zone)}, one hour`} extra=${html`<${Button} small kind="plain" icon="x" label="Close" onClick=${close}/>`}><ul class="list">
    ${past.all > 0 && html`<li><strong class="grow">${pastWords(past)}</strong>${past.bad > 0 && html`<a class="small" href=${link('FAILED')}>Failed executions</a>`}${past.ok > 0 && html`<a class="small" href=${link('SUCCEEDED')}>Succeeded executions</a>`}</li>`}
    ${listed.map((fire, index) => html`<li key=${index}><span class="mono nowrap">${clockTime(fire.at, zone)}</span>${fire.execution ? html`<${Status} of=${fire.execution.status}/>` : html`<span class="status">${fire.at < now.value ? 'due' : 'planned'}</span>`}<a class="main cut grow" href=${fire.execution ? `executions/${fire.execution.execution_id}` : `jobs/${fire.job.job_id}`}><${Name}>${fire.job.name}</${Name}></a><span class="muted small cut"><${Name}>${fire.job.queue}</${Name}></span></li>`)}
    ${often.slice(0, LISTED_IN_HOUR).map(({ job, number }) => html`<li key=${job.job_id}><span class="often nowrap">about ${count(number)}×</span><a class="main cut grow" href=${`jobs/${job.job_id}`}><${Name}>${job.name}</${Name}></a><span class="muted small cut">${job.schedule_description}</span></li>`)}
  </ul></${Card}>`;
}

export default function Calendar() {
  const search = params();
  const view = search.get('view') ?? 'week';
  const zone = search.get('zone') || zoneFor();
  const today = startOfDay(now.value, zone);
  const asked = /^(\d{4})-(\d{2})-(\d{2})$/.exec(search.get('day') ?? '');
  const day = asked ? instantOf({ year: Number(asked[1]), month: Number(asked[2]), day: Number(asked[3]) }, zone) : today;
  const days = useMemo(() => daysOf(view, day, zone), [view, day, zone]);
  const from = days[0];
  const until = addDays(days.at(-1), 1, zone);
  const filter = Object.fromEntries(['queue', 'tag'].map((name) => [name, search.get(name)]).filter(([, value]) => value));
  const key = JSON.stringify([from, until, filter]);
  // Executions have no filter by tag.
  const hasPast = from < now.peek() && !filter.tag;
  const { data, error, reload } = useRead([key], async (abort) => {
    const end = Math.min(until, now.peek());
    const [fires, past, happened] = await Promise.all([
      until > now.peek() ? readFires({ ...filter, from: new Date(from).toISOString(), until: new Date(until).toISOString(), per_job: LISTED_MAX }, abort) : { jobs: [], isAll: true, rounds: 1 },
      hasPast ? readPast(from, until, filter, abort) : [],
      hasPast ? readHappened(from, end, filter, abort) : null,
    ]);
    return { ...fires, past, happened, key };
  }, { every: 30000 });
  const frequent = useMemo(() => (data?.jobs ?? []).filter((job) => !job.complete), [data]);
  // Single days have room for more fires. Not with very many jobs.
  const isRefined = data?.key === key && frequent.length > 0 && data.rounds === 1 && days.length > 1;
  const refined = useRead([key, view, isRefined], async (abort) => {
    if (!isRefined) return null;
    const coming = days.map((one) => ({ from: one, until: addDays(one, 1, zone) })).filter((one) => one.until > now.peek());
    return { key, days: await readDays(coming, { ...filter, per_job: view === 'month' ? 1 : LISTED_MAX }, abort) };
  });
  const load = useMemo(() => loads({ jobs: frequent, until, days: refined.data?.key === key ? refined.data.days : null }), [frequent, refined.data, key]);
  const [cell, setCell] = useState(null);
  const panel = useRef(null);
  useEffect(() => { if (cell) panel.current?.scrollIntoView({ block: 'start' }); }, [cell]);
  const fires = useMemo(() => [
    ...(data?.past ?? []).map((one) => ({ at: Date.parse(one.scheduled_time), job: { job_id: one.job_id, name: one.name, queue: one.queue }, execution: one })),
    ...(data?.jobs ?? []).filter((job) => job.complete).flatMap((job) => job.fires.filter((fire) => !fire.excluded_by).map((fire) => ({ at: Date.parse(fire.scheduled_time), job, dst: fire.dst }))),
  ].sort((a, b) => a.at - b.at), [data]);
  const byHour = useMemo(() => {
    const found = new Map();
    for (const fire of fires) { const key = Math.floor(fire.at / (HOUR / 4)) ; if (!found.has(key)) found.set(key, []); found.get(key).push(fire); }
    return found;
  }, [fires]);
  const within = (start, end) => { const all = []; for (let key = Math.floor(start / (HOUR / 4)); key * (HOUR / 4) < end; key += 1) for (const fire of byHour.get(key) ?? []) if (fire.at >= start && fire.at < end) all.push(fire); return all; };
  const move = (steps) => {
    const p = parts(day, zone);
    const target = view === 'month' ? instantOf({ year: p.month + steps < 1 ? p.year - 1 : p.month + steps > 12 ? p.year + 1 : p.year, month: (p.month - 1 + steps + 12) % 12 + 1, day: 1 }, zone) : addDays(day, steps * (view === 'day' ? 1 : 7), zone);
    setCell(null);
    setParams({ day: dayKey(target, zone) });
  };
  const p = parts(day, zone);
  const title = view === 'month' ? `${MONTHS[p.month - 1]} ${p.year}` : view === 'day' ? `${p.weekday} ${p.day} ${MONTHS[p.month - 1]} ${p.year}` : (() => { const [a, b] = [parts(days[0], zone), parts(days.at(-1), zone)]; return `${a.day} ${MONTHS[a.month - 1].slice(0, 3)} – ${b.day} ${MONTHS[b.month - 1].slice(0, 3)} ${b.year}`; })();
  const frequentIds = new Set(frequent.map((job) => job.job_id));
  const listed = view === 'agenda' ? fires.filter((fire) => !frequentIds.has(fire.job.job_id)) : [];
  // What has succeeded must not hide what comes.
  const agenda = listed.filter((fire) => fire.execution).length < AGENDA_MAX / 2 ? listed : listed.filter((fire) => fire.execution?.status !== 'SUCCEEDED');
  const ran = (start, end) => data?.happened ? happenedIn(data.happened, start, end) : { ok: 0, bad: 0, not: 0, all: 0 };
  // With figures of the past, single executions are only needed where they are listed.
  const planned = (start, end) => { const all = within(start, end); return data?.happened ? all.filter((fire) => !fire.execution) : all; };
  const heatMost = Math.max(HEAT_MIN, ...(view === 'week' ? days.flatMap((one) => hoursOf(one, zone).slots.map((at) => planned(at, at + HOUR).length)) : [1]));
  const names = (list) => { const found = new Map(); for (const fire of list) found.set(fire.job.job_id, { job: fire.job, number: (found.get(fire.job.job_id)?.number ?? 0) + 1, at: found.get(fire.job.job_id)?.at ?? fire.at }); return [...found.values()]; };
  const changed = days.map((one) => changeOf(one, zone)).filter(Boolean);
  return html`<${Head} title="Calendar" about=${html`When all jobs fire, in ${zone}.`}>
      <${Segmented} label="View" options=${[['month', 'Month'], ['week', 'Week'], ['day', 'Day'], ['agenda', 'Agenda']]} value=${view} onChange=${(value) => { setCell(null); setParams({ view: value === 'week' ? null : value }); }}/>
    </${Head}>
    <${Card} flush>
      <div class="filters">
        <${Button} small icon="chevron-left" label="Earlier" onClick=${() => move(-1)}/><${Button} small onClick=${() => setParams({ day: null })}>Today</${Button}><${Button} small icon="chevron-right" label="Later" onClick=${() => move(1)}/>
        <strong style=${{ minWidth: '150px' }}>${title}</strong>
        ${changed.length > 0 && html`<span class="status warn">${changed[0].text}</span>`}
        <span class="spring"></span>
        <${SearchField} class="narrow" label="Queue" placeholder="Queue" value=${filter.queue ?? ''} onChange=${typed('queue')}/>
        <${SearchField} class="narrow" label="Time zone" placeholder=${`Zone: ${zoneFor()}`} value=${search.get('zone') ?? ''} onChange=${(value) => { try { if (value) parts(0, value) && new Intl.DateTimeFormat('en', { timeZone: value }); setParams({ zone: value }, { replace: true }); } catch { /* Not a zone yet. */ } }}/>
      </div>
      ${frequent.length > 0 && html`<div class="filters small frequent"><span class="muted">${view === 'agenda' ? 'Not listed, because they fire too often:' : `Jobs that fire more than ${count(LISTED_MAX)} times in this ${view}, drawn as `}${view !== 'agenda' && html`<span class="often">+n</span>:`}</span><div class="row tight">${frequent.slice(0, FREQUENT_SHOWN).map((job) => html`<a class="chip" key=${job.job_id} href=${`jobs/${job.job_id}`} title=${job.schedule_description}><${Name}>${job.name}</${Name}> <span class="muted">${count(job.count)}×</span></a>`)}${frequent.length > FREQUENT_SHOWN && html`<span class="muted">and ${count(frequent.length - FREQUENT_SHOWN)} more</span>`}</div></div>`}
      ${data?.isAll === false && html`<div class="filters small"><strong>There are more jobs than this page shows: choose a queue.</strong></div>`}
      ${listed.length > agenda.length && html`<div class="filters muted small">Executions that succeeded are too many to be listed here.</div>`}
      ${view !== 'agenda' && data && !fires.length && !frequent.length && !ran(from, until).all && html`<div class="filters muted small">No job fires in this ${view}, and none has run.</div>`}
      ${view !== 'agenda' && data?.happened?.some((one) => one.ok + one.bad + one.not) && html`<div class="legend cal-legend"><span><i class="cell ran"></i>ran</span><span><i class="cell failed"></i>some failed: <b class="bad">✗n</b></span><span>did not run: <b class="warn">−n</b></span><span><i class="cell" style=${{ '--heat': 0.5 }}></i>planned</span></div>`}
      ${error && !data && html`<div class="body"><${Failure} error=${error} retry=${reload}/></div>`}
      ${view === 'month' && html`<div class="scroll" tabindex="0" role="region" aria-label="Calendar"><div class="cal month">${WEEKDAYS.map((name) => html`<div class="dow">${name}</div>`)}${days.map((one) => {
        const q = parts(one, zone);
        const end = addDays(one, 1, zone);
        const list = planned(one, end);
        const jobs = names(list);
        const [past, often] = [ran(one, end), load.within(one, end)];
        const change = changeOf(one, zone);
        return html`<button type="button" key=${one} class=${`day ${q.month !== p.month ? 'other' : ''} ${one === today ? 'today' : ''}`} onClick=${() => setParams({ view: 'day', day: dayKey(one, zone) })}>
          <span class="date">${q.day}</span>${change && html`<span class="changed">${change.hours} h</span>`}
          ${past.all > 0 && html`<span class="entry"><${Past} of=${past}/> <span class="sr">${pastWords(past)}</span></span>`}
          ${jobs.slice(0, 3).map(({ job, number, at }) => html`<span class="entry"><span>${number > 1 ? `${count(number)}×` : clockTime(at, zone, false)}</span><b class="cut"><${Name}>${job.name}</${Name}></b></span>`)}
          ${jobs.length > 3 && html`<span class="entry">${jobs.length - 3} more ${jobs.length === 4 ? 'job' : 'jobs'}</span>`}${often > 0 && html`<span class="entry often">+${count(often)} frequent</span>`}${list.length > 0 && html`<span class="sr">${list.length} fires</span>`}
        </button>`;
      })}</div></div>`}
      ${view === 'week' && html`<div class="scroll" tabindex="0" role="region" aria-label="Calendar"><div class=${`cal week ${changed.length ? 'changes' : ''}`}><div class="column"><header></header><div class="hours" aria-hidden="true">${Array.from({ length: 24 }, (_, hour) => html`<span key=${hour} class=${days.includes(today) && parts(now.value, zone).hour === hour ? 'now' : ''}>${String(hour).padStart(2, '0')}:00</span>`)}</div></div>
        ${days.map((one) => {
          const q = parts(one, zone);
          const { slots } = hoursOf(one, zone);
          const change = changeOf(one, zone);
          return html`<div class="column" key=${one}><header class=${one === today ? 'today' : ''}>${q.weekday} ${q.day}${one === today && html`<span class="sr">, today</span>`}${change && html`<div class="changed">${change.hours} h</div>`}</header>
            ${slots.map((at, index) => {
              const list = planned(at, at + HOUR);
              const [past, often] = [ran(at, at + HOUR), load.within(at, at + HOUR)];
              const words = [past.all > 0 && pastWords(past), list.length > 0 && `${count(list.length)} planned`, often > 0 && `about ${count(often)} of frequent jobs`].filter(Boolean).join(', ') || 'no fires';
              const isShifted = index > 0 && parts(at, zone).offset !== parts(slots[index - 1], zone).offset;
              return html`<button type="button" key=${at} class=${`cell ${isShifted ? 'shift' : ''} ${past.all ? past.bad ? 'failed' : 'ran' : ''}`} style=${{ '--heat': list.length ? 0.15 + 0.85 * list.length / heatMost : 0 }} disabled=${!list.length && !past.all && !often} onClick=${() => setCell({ at, end: at + HOUR })} title=${`${clockTime(at, zone, false)}${change ? ` ${offsetName(parts(at, zone).offset)}` : ''}: ${words}`}>${change && isShifted ? html`<span class="changed">${clockTime(at, zone, false)}</span> ` : ''}${past.all > 0 && html`<${Past} of=${past}/>`} ${list.length ? html`<b aria-hidden="true">${count(list.length)}</b>` : ''} ${often > 0 && html`<span class="often" aria-hidden="true">+${count(often)}</span>`}<span class="sr">${q.weekday} ${q.day}, ${clockTime(at, zone, false)}: ${words}</span></button>`;
            })}</div>`;
        })}</div></div>`}
      ${view === 'day' && html`<ul class="list">${hoursOf(day, zone).slots.map((at, index, slots) => {
        const list = planned(at, at + HOUR);
        const [past, often] = [ran(at, at + HOUR), load.within(at, at + HOUR)];
        const isShifted = index > 0 && parts(at, zone).offset !== parts(slots[index - 1], zone).offset;
        const isQuiet = (one) => !planned(one, one + HOUR).length && !ran(one, one + HOUR).all && !load.within(one, one + HOUR) && parts(one, zone).offset === parts(slots[0], zone).offset;
        if (isQuiet(at)) {
          let [first, last] = [index, index];
          while (first > 0 && isQuiet(slots[first - 1])) first -= 1;
          while (last + 1 < slots.length && isQuiet(slots[last + 1])) last += 1;
          if (last - first + 1 >= QUIET_MIN) return index === first && html`<li key=${at} class="muted"><span class="mono hour">${clockTime(at, zone, false)} – ${clockTime(slots[last] + HOUR, zone, false)}</span><span class="small">${at < now.value ? 'no executions recorded' : 'nothing fires'}</span></li>`;
        }
        const perMinute = new Map(); for (const fire of list) { const minute = Math.floor(fire.at / 60000); perMinute.set(minute, (perMinute.get(minute) ?? 0) + 1); }
        const peak = Math.max(0, ...perMinute.values());
        return html`<li key=${at}><span class="mono muted hour">${clockTime(at, zone, false)} ${isShifted ? html`<span class="changed">${offsetName(parts(at, zone).offset)}</span>` : ''}</span>
          <span class="row tight grow">${past.all > 0 && html`<button type="button" class=${`chip ${past.bad ? 'failed' : 'ran'}`} onClick=${() => setCell({ at, end: at + HOUR })}>${pastWords(past)}</button>`}${names(list).slice(0, 12).map(({ job, number, at: first }) => html`<a class="chip" href=${`jobs/${job.job_id}`}>${clockTime(first, zone, false)} <${Name}>${job.name}</${Name}>${number > 1 ? html` <span class="muted">${count(number)}×</span>` : ''}</a>`)}${names(list).length > 12 && html`<span class="muted small">${names(list).length - 12} more</span>`}</span>
          ${often > 0 && html`<span class="often small nowrap">about ${count(often)} of frequent jobs</span>`}
          ${peak > 1 && html`<span class="muted small nowrap">up to ${count(peak)} in a minute</span>`}</li>`;
      })}</ul>`}
      ${view === 'agenda' && html`<ul class="list">${agenda.slice(0, AGENDA_MAX).map((fire, index) => html`<li key=${index}><span class="mono nowrap">${full(fire.at, zone)}</span>${fire.execution ? html`<${Status} of=${fire.execution.status}/>` : html`<span class="status">planned</span>`}<a class="main cut grow" href=${fire.execution ? `executions/${fire.execution.execution_id}` : `jobs/${fire.job.job_id}`}><${Name}>${fire.job.name}</${Name}></a><span class="muted small cut"><${Name}>${fire.job.queue}</${Name}></span></li>`)}${data && !agenda.length && html`<${Empty} icon="calendar" title="Nothing fires in this time"/>`}${agenda.length > AGENDA_MAX && html`<li class="muted">and ${count(agenda.length - AGENDA_MAX)} more; narrow it down with a queue</li>`}</ul>`}
      ${!data && !error && html`<div class="body muted" role="status">Loading…</div>`}
    </${Card}>
    ${cell && html`<br/><div ref=${panel} class="panel"><${Cell} at=${cell.at} end=${cell.end} zone=${zone} queue=${filter.queue} past=${ran(cell.at, cell.end)} fires=${within(cell.at, cell.end)} often=${load.byJob(cell.at, cell.end)} close=${() => setCell(null)}/></div>`}`;
}
