// What a schedule would do, around any date; what all jobs will do; and the clock of a server that lets you drive it.

import { html, useMemo, useState } from '../lib.js';
import { get, post } from '../api.js';
import { attempt, can, clock, isLimited, isManual, now, readClock } from '../state.js';
import { params, setParams } from '../router.js';
import { Button, Card, Empty, Failure, Field, Head, Name, Notice, Segmented, Select, Tabs, Tile, useRead, wordOf } from '../ui.js';
import { BROWSER_ZONE, clockTime, count, dayKey, full, offsetName, parts, startOfDay, zoneFor } from '../time.js';
import { Fires } from './job.js';
import { readFires } from '../calendar-data.js';

/** The next changes of a zone's offset. */
function changes(zone, from, most = 4) {
  const found = [];
  let before = parts(from, zone).offset;
  for (let day = from; day < from + 900 * 86400_000 && found.length < most; day += 86400_000) {
    const offset = parts(day, zone).offset;
    if (offset === before) continue;
    // The first minute with the new offset.
    let [low, high] = [day - 86400_000, day];
    while (high - low > 60000) { const middle = low + Math.floor((high - low) / 120000) * 60000; if (parts(middle, zone).offset === before) low = middle; else high = middle; }
    found.push({ at: high, from: before, to: offset });
    before = offset;
  }
  return found;
}

function Drive() {
  const [amount, setAmount] = useState('1h');
  const [isBusy, setBusy] = useState(false);
  const move = (how) => async () => {
    setBusy(true);
    await attempt(() => post(`clock/${how}`, { by: amount }), (answer) => `It is ${full(answer.now, zoneFor())}: ${answer.fired} fired, ${answer.skipped} skipped${answer.more ? '; a limit was reached, repeat to continue' : ''}`);
    await readClock().catch(() => {});
    setBusy(false);
  };
  return html`<${Card} title="The clock of this server"><div class="stack tight"><p>It is <strong>${full(clock.value.at, zoneFor())}</strong>.</p>
    <div class="row"><input style=${{ width: '120px' }} aria-label="How far" value=${amount} onInput=${(event) => setAmount(event.target.value)}/>${['1m', '1h', '1d', '7d'].map((one) => html`<${Button} small key=${one} onClick=${() => setAmount(one)}>${one}</${Button}>`)}<${Button} kind="primary" disabled=${isBusy} onClick=${move('advance')}>Advance</${Button}><${Button} disabled=${isBusy} onClick=${move('jump')}>Jump</${Button}></div>
    <p class="muted small">Advance runs everything that falls due on the way. Jump skips ahead, as an outage would: the misfire policies apply.</p></div></${Card}><br/>`;
}

const DAY = 86400_000;
const AFFECTED_SHOWN = 200;
/** Pages of 1,000 jobs whose zones are read. */
const ZONE_PAGES_MAX = 10;
const MARKS = { RUN_AFTER_GAP: 'moved: clocks skip its time', OVERLAP_FIRST: 'first of a repeated time', OVERLAP_SECOND: 'second of a repeated time' };

/** The coming clock changes of the zones that recurring jobs use. */
async function readChanges(abort) {
  const zones = new Map();
  let cursor;
  for (let number = 0; number < ZONE_PAGES_MAX; number += 1) {
    const page = await get('jobs', { schedule_type: 'RECURRING', status: 'ACTIVE', limit: 1000, cursor }, abort);
    for (const job of page.items) zones.set(job.timezone ?? 'UTC', (zones.get(job.timezone ?? 'UTC') ?? 0) + 1);
    cursor = page.next_cursor ?? undefined;
    if (!cursor) break;
  }
  const found = new Map();
  for (const [zone, jobs] of zones) {
    for (const change of changes(zone, startOfDay(now.peek(), 'UTC'), 3)) {
      const key = dayKey(change.at, zone);
      const known = found.get(key) ?? { day: key, at: change.at, zones: [], jobs: 0 };
      known.zones.push(`${zone}, ${offsetName(change.from)} to ${offsetName(change.to)}`);
      known.jobs += jobs;
      found.set(key, known);
    }
  }
  return { days: [...found.values()].sort((a, b) => a.at - b.at).slice(0, 12), isAll: !cursor };
}

/** What the jobs of this server will do in a week, compared with the week after it. */
function WhatIf() {
  const search = params();
  const zone = zoneFor();
  const { data: known } = useRead([], readChanges);
  const week = search.get('week') ?? (known?.days[0] ? dayKey(known.days[0].at - 3 * DAY, 'UTC') : undefined);
  const tag = search.get('tag') ?? '';
  const from = week ? Date.parse(`${week}T00:00:00Z`) : NaN;
  const range = (start) => ({ from: new Date(start).toISOString(), until: new Date(start + 7 * DAY).toISOString(), per_job: 500, tag: tag || undefined });
  const { data, error } = useRead([week, tag], async (abort) => {
    if (Number.isNaN(from)) return null;
    const [own, after] = await Promise.all([readFires(range(from), abort), readFires({ ...range(from + 7 * DAY), per_job: 1 }, abort)]);
    return { own, after };
  });
  const rows = useMemo(() => {
    const later = new Map((data?.after.jobs ?? []).map((job) => [job.job_id, Number(job.count)]));
    return (data?.own.jobs ?? []).map((job) => {
      const marked = job.fires.filter((fire) => fire.dst);
      const usual = later.get(job.job_id) ?? 0;
      return { ...job, marked, usual, number: Number(job.count), excluded: job.fires.filter((fire) => fire.excluded_by).length };
    }).sort((a, b) => b.marked.length - a.marked.length || Math.abs(b.number - b.usual) - Math.abs(a.number - a.usual));
  }, [data]);
  const affected = rows.filter((job) => job.marked.length || job.number !== job.usual);
  const total = (field) => rows.reduce((sum, job) => sum + job[field], 0);
  const shown = (job) => job.marked.length ? job.marked.slice(0, 3).map((fire) => html`<div key=${fire.scheduled_time}><span class="mono nowrap">${full(fire.scheduled_time, job.timezone ?? zone)}</span> <span class="status warn">${MARKS[fire.dst] ?? wordOf(fire.dst)}</span></div>`)
    : html`<span class="muted">${job.number < job.usual ? `${count(job.usual - job.number)} fewer than in the week after` : `${count(job.number - job.usual)} more than in the week after`}</span>`;
  return html`<div class="grid"><div class="span-4 stack">
      <${Card} title="Week"><div class="stack">
        <${Field} label="Beginning"><input type="date" value=${week ?? ''} onChange=${(event) => setParams({ week: event.target.value })}/></${Field}>
        <${Field} label="Only jobs with this tag"><input value=${tag} onChange=${(event) => setParams({ tag: event.target.value })}/></${Field}>
        ${week && html`<${Button} icon="calendar" href=${`calendar?day=${week}&zone=${encodeURIComponent(zone)}`}>Show it in the calendar</${Button}>`}
      </div></${Card}>
      <${Card} title="Clock changes ahead" flush extra=${html`<span class="muted small">in zones of active jobs</span>`}>${known?.days.length ? html`<ul class="list">${known.days.map((one) => html`<li key=${one.day}><div class="grow"><strong>${one.day}</strong><div class="muted small">${one.zones.slice(0, 3).map((text) => html`<div key=${text}>${text}</div>`)}${one.zones.length > 3 && html`<div>and ${one.zones.length - 3} more zones</div>`}<div>${known.isAll ? '' : 'at least '}${count(one.jobs)} ${one.jobs === 1 ? 'job' : 'jobs'}</div></div></div><${Button} small onClick=${() => setParams({ week: dayKey(one.at - 3 * DAY, 'UTC') })}>Show the week</${Button}></li>`)}</ul>` : html`<${Empty} icon="clock" title=${known ? 'No clock change ahead' : 'Reading…'}>${known ? 'No active recurring job has a time zone whose clocks change. Choose any week above.' : ''}</${Empty}>`}</${Card}>
    </div><div class="span-8 stack">
      ${error && html`<${Failure} error=${error}/>`}
      ${!week ? html`<${Empty} icon="calendar" title="Choose a week"/>` : !data ? html`<p class="muted" role="status">Computing…</p>` : html`
        <div class="tiles"><${Tile} label="Jobs that fire" value=${count(rows.length)} note=${data.own.isAll ? 'in this week' : 'the latest ones only'}/><${Tile} label="Fires" value=${count(total('number'))} note=${`${count(total('usual'))} in the week after`}/><${Tile} label="Moved or repeated" value=${count(rows.reduce((sum, job) => sum + job.marked.length, 0))} kind=${rows.some((job) => job.marked.length) ? 'warn' : ''} note="by a clock change"/><${Tile} label="Excluded" value=${count(total('excluded'))} note="by calendars"/></div>
        <${Card} title="Jobs whose week differs" flush>${affected.length ? html`<div class="scroll" tabindex="0" role="region" aria-label="Jobs whose week differs"><table aria-label="Jobs whose week differs"><thead><tr><th>Job</th><th class="num">Fires</th><th class="num">Week after</th><th>What happens</th></tr></thead><tbody>
          ${affected.slice(0, AFFECTED_SHOWN).map((job) => html`<tr key=${job.job_id}><td class="tall"><a class="main cut" href=${`jobs/${job.job_id}`}><${Name}>${job.name}</${Name}></a><span class="cut muted small" title=${job.schedule_description}>${job.schedule_description ?? ''}</span></td><td class="num">${count(job.number)}</td><td class="num">${count(job.usual)}</td><td class="tall happens">${shown(job)}</td></tr>`)}
        </tbody></table></div>${affected.length > AFFECTED_SHOWN && html`<p class="body muted small">and ${count(affected.length - AFFECTED_SHOWN)} more</p>`}` : html`<${Empty} icon="check" title="Every job fires as usual">No fire of this week is moved, repeated or missing.</${Empty}>`}</${Card}>`}
    </div></div>`;
}

function OneSchedule() {
  const search = params();
  const cron = search.get('cron') ?? '30 2 * * *';
  const interval = search.get('interval') ?? '';
  const kind = search.get('kind') ?? 'cron';
  const zone = search.get('zone') ?? (BROWSER_ZONE === 'UTC' ? 'Europe/Berlin' : BROWSER_ZONE);
  const day = search.get('from') ?? '';
  const gap = search.get('gap') ?? '';
  const overlap = search.get('overlap') ?? '';
  const set = (name) => (event) => setParams({ [name]: event?.target ? event.target.value : event });
  const body = { ...(kind === 'cron' ? { cron_expression: cron } : { interval: interval || '1h', ...(day ? { start_at: `${day}T00:00:00Z` } : {}) }), timezone: zone, count: 40, ...(day ? { after: `${day}T00:00:00Z` } : {}), ...(gap ? { dst_gap: gap } : {}), ...(overlap ? { dst_overlap: overlap } : {}) };
  const { data, error } = useRead([JSON.stringify(body)], (abort) => post('schedules/preview', body, { signal: abort }));
  let coming = [];
  try { coming = changes(zone, startOfDay(now.value, 'UTC')); } catch { /* Not a zone yet. */ }
  return html`<div class="grid"><div class="span-5 stack"><${Card} title="Schedule"><div class="stack">
      <${Segmented} label="Kind" options=${[['cron', 'Cron'], ['interval', 'Interval']]} value=${kind} onChange=${(value) => setParams({ kind: value === 'cron' ? null : value })}/>
      ${kind === 'cron' ? html`<${Field} label="Cron expression" hint="minute hour day month weekday, or with seconds first"><input class="mono" value=${cron} onChange=${set('cron')}/></${Field}>` : html`<${Field} label="Interval" hint="90s, PT3H, P1D, monthly"><input value=${interval || '1h'} onChange=${set('interval')}/></${Field}>`}
      <${Field} label="Time zone"><input value=${zone} onChange=${set('zone')}/></${Field}>
      <${Field} label="From" hint="Now if empty"><input type="date" value=${day} onChange=${set('from')}/></${Field}>
      <div class="form"><${Field} label="If clocks skip the time"><${Select} value=${gap} onChange=${set('gap')} options=${[['', 'default'], ['SKIP', 'skip it'], ['RUN_AFTER', 'run right after']]}/></${Field}><${Field} label="If clocks repeat the time"><${Select} value=${overlap} onChange=${set('overlap')} options=${[['', 'default'], ['FIRST', 'the first'], ['SECOND', 'the second'], ['BOTH', 'both']]}/></${Field}></div>
    </div></${Card}>
    <${Card} title="Clock changes" flush>${coming.length ? html`<ul class="list">${coming.map((one) => html`<li key=${one.at}><span class="grow">${dayKey(one.at, zone)} ${clockTime(one.at, zone, false)}: ${offsetName(one.from)} to ${offsetName(one.to)}</span><${Button} small onClick=${() => setParams({ from: dayKey(one.at - 3 * 86400_000, 'UTC') })}>Show the week</${Button}><${Button} small href=${`simulator?mode=jobs&week=${dayKey(one.at - 3 * 86400_000, 'UTC')}`}>All jobs</${Button}></li>`)}</ul>` : html`<${Empty} icon="clock" title="No clock change in this zone"/>`}</${Card}></div>
    <div class="span-7"><${Card} flush title=${data?.description ?? 'Fires'}>${error ? html`<div class="body"><${Notice} kind="bad">${error.errors?.length ? error.errors.map(({ field, detail }) => `${field} ${detail}`).join('; ') : error.message}</${Notice}></div>` : data ? html`<${Fires} occurrences=${data.occurrences} zone=${zone}/>` : html`<div class="body muted">…</div>`}</${Card}></div></div>`;
}

export default function Simulator() {
  const search = params();
  const mode = search.get('mode') ?? 'schedule';
  const cron = search.get('cron') ?? '30 2 * * *';
  const fields = search.get('kind') === 'interval' ? `interval=${encodeURIComponent(search.get('interval') || '1h')}` : `cron_expression=${encodeURIComponent(cron)}`;
  const zone = search.get('zone') ?? (BROWSER_ZONE === 'UTC' ? 'Europe/Berlin' : BROWSER_ZONE);
  return html`<${Head} title="Simulator" about=${mode === 'jobs' ? 'What the jobs of this server will do in any week, such as that of a clock change. Nothing is changed.' : 'What a schedule does on any date, also when clocks change. Nothing is stored.'}>
      ${mode === 'schedule' && can('jobs:write') && html`<${Button} icon="plus" href=${`jobs/new?${fields}&timezone=${encodeURIComponent(zone)}`}>Make a job of it</${Button}>`}
    </${Head}>
    ${isManual.value && can('clock:write') && !isLimited() && html`<${Drive}/>`}
    <${Tabs} label="What to look at" current=${mode} hrefOf=${(one) => `simulator${one === 'schedule' ? '' : `?mode=${one}`}`} items=${[['schedule', 'A schedule'], ['jobs', 'The jobs of this server']]}/>
    ${mode === 'jobs' ? html`<${WhatIf}/>` : html`<${OneSchedule}/>`}`;
}
