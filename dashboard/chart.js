// Charts over time, with a table for those who cannot see them.

import { html, useEffect, useRef } from './lib.js';
import uPlot from './vendor/uplot.js';
import { theme } from './state.js';
import { clockTime, MONTHS, parts } from './time.js';

const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
/** Colours of a canvas cannot be `light-dark(…)`: the browser computes them on an element. */
function resolved(name) {
  const probe = document.createElement('i');
  probe.style.color = `var(--${name})`;
  document.body.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found || color(name);
}

/**
 * @param {{label: string, data: any[][], series: {label: string, color: string, kind?: 'line'|'points'|'bars'|'dots', value?: (n: number) => string, dash?: number[]}[], height?: number, least?: number, axis?: (n: number) => string, zone?: string, log?: boolean, onPick?: (index: number) => void}} props
 * data: seconds, then one list per series. least: the axis goes at least this far.
 */
export function Chart({ label, data, series, height = 180, least = 1e-9, axis, zone, log, onPick }) {
  const box = useRef(null);
  const plot = useRef(null);
  const shape = JSON.stringify([series.map(({ label: text, color: tint, kind }) => [text, tint, kind]), height, zone, log, theme.value]);
  useEffect(() => {
    const line = resolved('line');
    const text = resolved('muted');
    const font = '11px system-ui, sans-serif';
    const tick = { stroke: text, font, grid: { stroke: line, width: 1 }, ticks: { show: false } };
    const options = {
      width: box.current.clientWidth, height,
      tzDate: zone ? (at) => uPlot.tzDate(new Date(at * 1000), zone) : undefined,
      cursor: { points: { size: 6 }, y: false },
      legend: { live: true },
      scales: { x: { time: true }, y: log ? { distr: 3, log: 10 } : { range: (_plot, _min, max) => [0, Math.max(max ?? 0, least) * 1.1] } },
      axes: [{ ...tick, space: 70, size: 28, values: (drawn, splits) => { const days = drawn.scales.x.max - drawn.scales.x.min > 172800; const minutes = drawn.scales.x.max - drawn.scales.x.min > 600; return splits.map((at) => { const p = parts(at * 1000, zone ?? 'UTC'); return days ? `${p.day} ${MONTHS[p.month - 1].slice(0, 3)} ${clockTime(at * 1000, zone ?? 'UTC', false)}` : clockTime(at * 1000, zone ?? 'UTC', !minutes); }); } }, { ...tick, size: 58, values: (_plot, values) => values.map((value) => value === null ? '' : axis ? axis(value) : value) }],
      series: [{ value: (_plot, at) => at === null || at === undefined ? '' : new Intl.DateTimeFormat('en-GB', { timeZone: zone, dateStyle: 'medium', timeStyle: 'medium' }).format(at * 1000) },
        ...series.map(({ label: name, color: tint, kind = 'line', value }) => {
          const stroke = resolved(tint);
          return {
            label: name, stroke, width: kind === 'points' ? 0 : 1.5, spanGaps: false,
            value: (_plot, number) => number === null || number === undefined ? '' : value ? value(number) : number,
            ...(kind === 'bars' ? { paths: uPlot.paths.bars({ size: [0.8, 24] }), fill: stroke, points: { show: false } } : {}),
            ...(kind === 'points' ? { paths: () => null, points: { show: true, size: 6, fill: stroke, stroke } } : {}),
            ...(kind === 'line' ? { points: { show: false } } : {}),
            ...(kind === 'dots' ? { points: { show: true, size: 4, fill: stroke, stroke } } : {}),
          };
        })],
      hooks: onPick ? { ready: [(drawn) => drawn.over.addEventListener('click', () => { if (drawn.cursor.idx !== null) onPick(drawn.cursor.idx); })] } : {},
    };
    plot.current = new uPlot(options, data, box.current);
    const watch = new ResizeObserver(() => box.current && plot.current?.setSize({ width: box.current.clientWidth, height }));
    watch.observe(box.current);
    return () => { watch.disconnect(); plot.current.destroy(); plot.current = null; };
  }, [shape]);
  useEffect(() => { plot.current?.setData(data); }, [data]);
  const last = Math.max(0, data[0].length - 20);
  return html`<figure class="chart"><div ref=${box} aria-hidden="true"></div>
    <figcaption class="sr">${label}<table><thead><tr><th>Time</th>${series.map((one) => html`<th>${one.label}</th>`)}</tr></thead><tbody>
      ${data[0].slice(last).map((at, index) => html`<tr><td>${new Date(at * 1000).toISOString()}</td>${series.map((one, number) => { const found = data[number + 1][last + index]; return html`<td>${found === null || found === undefined ? '–' : one.value ? one.value(found) : found}</td>`; })}</tr>`)}
    </tbody></table></figcaption></figure>`;
}
