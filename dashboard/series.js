// Charts of what executions did over time, from the figures that the server keeps.

import { html, useMemo } from './lib.js';
import { get } from './api.js';
import { now } from './state.js';
import { params, setParams } from './router.js';
import { Card, Segmented, useRead } from './ui.js';
import { Chart } from './chart.js';
import { count, span, zoneFor } from './time.js';

const HOUR = 3600_000;
/** @type {[id: string, text: string, ms: number][]} */
const RANGES = [['1h', '1 h', HOUR], ['3h', '3 h', 3 * HOUR], ['1d', '1 d', 24 * HOUR], ['7d', '7 d', 168 * HOUR], ['30d', '30 d', 720 * HOUR]];
const DEFAULT = '3h';
const READ_EVERY_MS = 30000;

/**
 * The columns of one series, or undefined while they are read; null if the server keeps no figures.
 * @param {{metric: string, by: string, name?: string, owner?: string}} of
 */
function useSeries({ metric, by, name, owner }) {
  const range = params().get('range') ?? DEFAULT;
  const ms = RANGES.find(([id]) => id === range)?.[2] ?? 3 * HOUR;
  const { data } = useRead([metric, by, name, range], async (abort) => {
    try {
      return await get('series', { metric, by, name, limit: name ? 20 : 1, since: new Date(now.peek() - ms).toISOString() }, abort);
    } catch (error) {
      if (error.status === 404 || error.status === 403) return null;
      throw error;
    }
  }, { every: READ_EVERY_MS });
  return useMemo(() => {
    if (!data) return data === null ? null : undefined;
    const found = by === 'all' ? data.series[0] : data.series.find((one) => one.name === name && (!owner || one.owner_id === owner));
    const times = data.times.map((at) => Date.parse(at) / 1000);
    return { times, columns: found?.columns ?? {}, step: Number(data.step_secs), total: found?.executions ?? 0, pending: data.pending_executions };
  }, [data]);
}

const sum = (columns, names, length) => Array.from({ length }, (_, index) => names.reduce((all, name) => all + Number(columns[name]?.[index] ?? 0), 0));
const stepName = (seconds) => span(seconds * 1000).replace(/ \d+ s$/, '');

export const RangeChoice = () => html`<${Segmented} label="Time shown" options=${RANGES} value=${params().get('range') ?? DEFAULT} onChange=${(range) => setParams({ range: range === DEFAULT ? null : range })}/>`;

/** How many executions ended, by outcome. */
export function ExecutionsOverTime({ by, name, owner, title = 'Executions' }) {
  const found = useSeries({ metric: 'executions', by, name, owner });
  const data = useMemo(() => {
    if (!found) return null;
    const { times, columns } = found;
    return [times, sum(columns, ['succeeded'], times.length), sum(columns, ['failed', 'timed_out', 'lost'], times.length), sum(columns, ['skipped', 'expired', 'cancelled'], times.length)];
  }, [found]);
  if (found === null) return null;
  return html`<${Card} title=${title} extra=${html`<span class="muted small">${found ? `${count(found.total)} ended, in steps of ${stepName(found.step)}` : ''}</span><${RangeChoice}/>`}>
    ${data && found.total === 0 ? html`<p class="muted">No execution ended in this time.</p>` : data ? html`<${Chart} label=${`${title} that ended in each step of time`} zone=${zoneFor()} data=${data} height=${170} least=${4} axis=${(value) => Number.isInteger(value) ? count(value) : ''} series=${[{ label: 'succeeded', color: 'ok', kind: 'bars' }, { label: 'failed', color: 'bad', kind: 'bars' }, { label: 'did not run', color: 'off' }]}/>` : html`<p class="muted">Reading…</p>`}
  </${Card}>`;
}

/** How late executions started, or how long they ran: the median, and what 95 % stay below. */
export function SpansOverTime({ by, name, owner, metric, title }) {
  const found = useSeries({ metric, by, name, owner });
  const data = useMemo(() => {
    if (!found) return null;
    const all = (column) => found.columns[column] ?? found.times.map(() => null);
    return [found.times, all('p50_secs'), all('p95_secs')];
  }, [found]);
  if (found === null) return null;
  const words = (seconds) => span(seconds * 1000);
  const isEmpty = data && !data[1].some((one) => one !== null);
  return html`<${Card} title=${title} extra=${html`<span class="muted small">median, and what 95 % stay below</span>`}>
    ${!data ? html`<p class="muted">Reading…</p>` : isEmpty ? html`<p class="muted">No execution ended in this time.</p>` : html`<${Chart} label=${title} zone=${zoneFor()} data=${data} height=${150} least=${0.01} axis=${words} series=${[{ label: 'median', color: 'run', kind: 'dots', value: words }, { label: '95 %', color: 'warn', kind: 'dots', value: words }]}/>`}
  </${Card}>`;
}
