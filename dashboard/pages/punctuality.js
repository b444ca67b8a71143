// How late executions started: by hour and queue.

import { html, useMemo } from '../lib.js';
import { get, part } from '../api.js';
import { go, params, setParams } from '../router.js';
import { Card, Empty, Failure, Head, Name, Segmented, Tile, useRead } from '../ui.js';
import { clockTime, count, dayKey, span, zoneFor } from '../time.js';

const HOUR = 3600_000;
const PAGES_MAX = 5;

async function readRuns(abort) {
  const all = [];
  await Promise.all(['SUCCEEDED', 'FAILED', 'TIMED_OUT', 'RUNNING'].map(async (status) => {
    let cursor;
    for (let page = 0; page < PAGES_MAX; page += 1) {
      const answer = await get('executions', { status, limit: 1000, cursor }, abort);
      for (const one of answer.items) if (one.started_at) all.push({ at: Date.parse(one.started_at), queue: one.queue, late: Math.max(0, Date.parse(one.started_at) - Date.parse(one.available_at)) });
      cursor = answer.next_cursor;
      if (!cursor) break;
    }
  }));
  return all;
}
const quantile = (sorted, share) => sorted.length ? sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))] : 0;

export default function Punctuality() {
  const { data, error, reload } = useRead([], readRuns, { every: 15000 });
  const measure = params().get('measure') ?? '0.95';
  const zone = zoneFor();
  const table = useMemo(() => {
    const cells = new Map();
    const queues = new Map();
    let [first, last] = [Infinity, 0];
    for (const { at, queue, late } of data ?? []) {
      const hour = Math.floor(at / HOUR) * HOUR;
      [first, last] = [Math.min(first, hour), Math.max(last, hour)];
      const key = `${queue}\n${hour}`;
      if (!cells.has(key)) cells.set(key, []);
      cells.get(key).push(late);
      queues.set(queue, (queues.get(queue) ?? 0) + 1);
    }
    for (const values of cells.values()) values.sort((a, b) => a - b);
    const hours = [];
    for (let hour = Math.max(first, last - 47 * HOUR); hour <= last; hour += HOUR) hours.push(hour);
    return { cells, queues: [...queues].sort((a, b) => b[1] - a[1]).slice(0, 40).map(([queue]) => queue), hours, all: (data ?? []).map((one) => one.late).sort((a, b) => a - b) };
  }, [data]);
  if (error && !data) return html`<${Head} title="Punctuality"/><${Failure} error=${error} retry=${reload}/>`;
  const value = (values) => measure === 'max' ? values.at(-1) : quantile(values, Number(measure));
  const heat = (late) => Math.min(1, Math.log10(1 + late / 10) / 4);
  return html`<${Head} title="Punctuality" about=${`How long executions waited from the time they were ready until they started. Times in ${zone}.`}><${Segmented} label="Measure" options=${[['0.5', 'Median'], ['0.95', '95 %'], ['0.99', '99 %'], ['max', 'Worst']]} value=${measure} onChange=${(one) => setParams({ measure: one === '0.95' ? null : one })}/></${Head}>
    ${data && html`<div class="tiles"><${Tile} label="Executions" value=${count(table.all.length)} note="the latest of each outcome"/><${Tile} label="Median" value=${span(quantile(table.all, 0.5))}/><${Tile} label="95 %" value=${span(quantile(table.all, 0.95))}/><${Tile} label="99 %" value=${span(quantile(table.all, 0.99))}/><${Tile} label="Worst" value=${span(table.all.at(-1) ?? 0)} kind=${(table.all.at(-1) ?? 0) > 5000 ? 'bad' : ''}/></div>`}
    <${Card} title="Lateness by hour and queue" extra=${html`<span class="muted small">click a cell for its executions</span>`}>
      ${!data ? html`<p class="muted">Loading…</p>` : !table.queues.length ? html`<${Empty} icon="punctuality" title="Nothing has run yet"/>` : html`<div class="scroll" tabindex="0" role="region" aria-label="Lateness by hour and queue"><table class="heat" aria-label="Lateness by hour and queue"><thead><tr><th scope="col">Queue</th>${table.hours.map((hour, index) => html`<th scope="col" title=${`${dayKey(hour, zone)} ${clockTime(hour, zone, false)}`}>${table.hours.length <= 12 || index % 3 === 0 ? clockTime(hour, zone, false).slice(0, 2) : html`<span class="sr">${clockTime(hour, zone, false)}</span>`}</th>`)}</tr></thead><tbody>
        ${table.queues.map((queue) => html`<tr key=${queue}><th scope="row"><${Name}>${queue}</${Name}></th>${table.hours.map((hour) => {
          const values = table.cells.get(`${queue}\n${hour}`);
          const late = values ? value(values) : 0;
          return html`<td key=${hour}>${values ? html`<button type="button" class="cell late" style=${{ '--heat': heat(late) }} title=${`${clockTime(hour, zone, false)}: ${span(late)}, ${values.length} executions`} onClick=${() => go(`executions?status=SUCCEEDED&queue=${part(queue)}`)}>${table.hours.length <= 14 ? span(late) : html`<span class="sr">${span(late)}</span>`}</button>` : ''}</td>`;
        })}</tr>`)}
      </tbody></table></div>`}
    </${Card}>`;
}
