// How late executions started: by hour and queue, from the figures that the server keeps.

import { html, useLayoutEffect, useMemo, useRef } from '../lib.js';
import { get, part } from '../api.js';
import { now } from '../state.js';
import { go, params, setParams } from '../router.js';
import { Card, Empty, Failure, Head, Name, Segmented, Tile, useRead } from '../ui.js';
import { clockTime, count, dayKey, parts, span, zoneFor } from '../time.js';

const HOUR = 3600_000;
/** Starts later than this are late. */
const LATE_SECS = 5;
const QUEUES_MAX = 40;
/** @type {[id: string, text: string, days: number][]} */
const RANGES = [['1d', '1 d', 1], ['7d', '7 d', 7]];
const MEASURES = [['p50_secs', 'Median'], ['p95_secs', '95 %'], ['mean_secs', 'Mean']];

/** The figures, or null if this server keeps none. */
async function readLateness(days, abort) {
  try {
    return await get('series', { metric: 'lateness', by: 'queue', step: '60m', limit: QUEUES_MAX, since: new Date(now.peek() - days * 24 * HOUR).toISOString() }, abort);
  } catch (error) {
    if (error.status === 404) return null;
    throw error;
  }
}

/** One row of cells for each queue, or for each queue and day. */
function rowsOf(data, zone, isWeek) {
  const times = data.times.map((at) => Date.parse(at));
  return data.series.map((series) => {
    const cells = times.map((at, index) => ({ at, count: Number(series.columns.count?.[index] ?? 0), ...Object.fromEntries(MEASURES.map(([id]) => [id, series.columns[id]?.[index] ?? null])) }));
    const days = new Map();
    for (const cell of cells) { const day = isWeek ? dayKey(cell.at, zone) : ''; if (!days.has(day)) days.set(day, []); days.get(day).push(cell); }
    const rows = [...days].map(([day, own]) => ({ day, cells: own })).filter((row) => row.cells.some((cell) => cell.count));
    return { queue: series.name, executions: Number(series.executions), rows };
  }).filter((one) => one.rows.length);
}

function Cell({ cell, queue, measure, zone }) {
  if (!cell?.count) return html`<td></td>`;
  const late = cell[measure] ?? 0;
  const about = `${dayKey(cell.at, zone)} ${clockTime(cell.at, zone, false)}: ${span(late * 1000)}, ${count(cell.count)} ${cell.count === 1 ? 'execution' : 'executions'}`;
  const heat = Math.min(1, Math.log10(1 + late * 100) / 4);
  const open = () => go(`executions?status=SUCCEEDED&queue=${part(queue)}&from=${new Date(cell.at).toISOString()}&until=${new Date(cell.at + HOUR).toISOString()}`);
  return html`<td>${queue === null ? html`<span class="cell late" style=${{ '--heat': heat }} title=${about}></span>` : html`<button type="button" class="cell late" style=${{ '--heat': heat }} title=${about} aria-label=${about} onClick=${open}>${late * 1000 >= 1 ? span(late * 1000).split(' ').slice(0, 2).join(' ') : '0'}</button>`}</td>`;
}

export default function Punctuality() {
  const search = params();
  const [range, , days] = RANGES.find(([id]) => id === search.get('range')) ?? RANGES[0];
  const measure = MEASURES.find(([id]) => id === search.get('measure'))?.[0] ?? 'p95_secs';
  const zone = zoneFor();
  const { data, error, reload } = useRead([range], (abort) => readLateness(days, abort), { every: 30000 });
  const isWeek = days > 1;
  const queues = useMemo(() => data ? rowsOf(data, zone, isWeek) : [], [data, zone, isWeek]);
  const columns = isWeek ? Array.from({ length: 24 }, (_, hour) => hour) : (data?.times ?? []).map((at) => Date.parse(at));
  const cells = queues.flatMap(({ queue, rows }) => rows.flatMap((row) => row.cells.filter((cell) => cell.count).map((cell) => ({ ...cell, queue }))));
  const total = cells.reduce((sum, cell) => sum + cell.count, 0);
  const mean = total ? cells.reduce((sum, cell) => sum + cell.count * (cell.mean_secs ?? 0), 0) / total : 0;
  const worst = cells.reduce((found, cell) => (cell.p95_secs ?? 0) > (found?.p95_secs ?? -1) ? cell : found, null);
  const late = cells.filter((cell) => (cell.p95_secs ?? 0) > LATE_SECS).length;
  const title = 'Lateness by hour and queue';
  // The latest hours are the last ones.
  const box = useRef(null);
  useLayoutEffect(() => { if (box.current && !isWeek) box.current.scrollLeft = box.current.scrollWidth; }, [isWeek, Boolean(data)]);
  // In the week of a clock change, an hour of the day may occur twice or not at all: its cells follow the clock.
  const placed = (row) => isWeek ? columns.map((hour) => row.cells.filter((cell) => parts(cell.at, zone).hour === hour)) : columns.map((at) => row.cells.filter((cell) => cell.at === at));
  return html`<${Head} title="Punctuality" about=${`How late executions started, compared with the time they were due. Times in ${zone}.`}>
      <${Segmented} label="Measure" options=${MEASURES} value=${measure} onChange=${(one) => setParams({ measure: one === 'p95_secs' ? null : one })}/>
      <${Segmented} label="Time shown" options=${RANGES} value=${range} onChange=${(one) => setParams({ range: one === RANGES[0][0] ? null : one })}/>
    </${Head}>
    ${error && !data && html`<${Failure} error=${error} retry=${reload}/>`}
    ${data && total > 0 && html`<div class="tiles"><${Tile} label="Executions" value=${count(total)} note=${data.truncated ? `of the ${QUEUES_MAX} busiest queues` : 'that have ended'}/><${Tile} label="Mean" value=${span(mean * 1000)} note="of all of them"/><${Tile} label="Worst hour" value=${span(worst.p95_secs * 1000)} kind=${worst.p95_secs > LATE_SECS ? 'bad' : ''} note=${html`95 % in <${Name}>${worst.queue ?? 'other queues'}</${Name}>, ${clockTime(worst.at, zone, false)}`}/><${Tile} label="Late hours" value=${count(late)} kind=${late ? 'warn' : 'ok'} note=${`95 % above ${LATE_SECS} s`}/></div>`}
    ${data === null ? html`<${Card}><${Empty} icon="punctuality" title="This server keeps no figures over time">The lateness of single executions is on the page of each job and queue, and in <a href="executions?status=SUCCEEDED">executions</a>.</${Empty}></${Card}>`
      : html`<${Card} title=${title} extra=${html`<span class="muted small">choose a cell to see its executions</span>`}>
      ${!data ? !error && html`<p class="muted" role="status">Loading…</p>` : !queues.length ? html`<${Empty} icon="punctuality" title=${`Nothing has ended in the last ${isWeek ? '7 days' : '24 hours'}`}/>`
        : html`<div class="scroll" ref=${box} tabindex="0" role="region" aria-label=${title}><table class="heat" aria-label=${title}><thead><tr><th scope="col">Queue</th>${isWeek && html`<th scope="col">Day</th>`}${columns.map((at) => html`<th key=${at} scope="col" title=${isWeek ? undefined : dayKey(at, zone)}>${isWeek ? String(at).padStart(2, '0') : clockTime(at, zone, false).slice(0, 2)}</th>`)}</tr></thead>
        ${queues.map(({ queue, rows }) => html`<tbody key=${queue ?? ''}>${rows.map((row, index) => html`<tr key=${row.day}>${index === 0 && html`<th scope="rowgroup" rowspan=${rows.length}>${queue === null ? html`<span class="muted">others</span>` : html`<a class="cut" href=${`queues/${part(queue)}`}><${Name}>${queue}</${Name}></a>`}</th>`}${isWeek && html`<th scope="row" class="muted nowrap">${parts(row.cells[0].at, zone).weekday} ${parts(row.cells[0].at, zone).day}</th>`}
          ${placed(row).map((own, place) => html`<${Cell} key=${place} cell=${own.length > 1 ? own.reduce((a, b) => (a[measure] ?? 0) >= (b[measure] ?? 0) ? a : b) : own[0]} queue=${queue} measure=${measure} zone=${zone}/>`)}</tr>`)}</tbody>`)}
      </table></div>
      <div class="legend heat-legend"><span>on time</span>${[0, 0.25, 0.5, 0.75, 1].map((heat) => html`<i key=${heat} class="cell late" style=${{ '--heat': heat }}></i>`)}<span>late by 100 s or more</span></div>`}
    </${Card}>`}`;
}
