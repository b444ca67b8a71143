// A log that is followed: begins at the end, stays there while lines arrive, and draws only the lines on screen.

import { html, useEffect, useLayoutEffect, useMemo, useRef, useState } from './lib.js';
import { API, get } from './api.js';
import { Button, Card, Copy, Empty, Segmented } from './ui.js';
import { clockTime, count, full, zoneFor } from './time.js';

const LINES_MAX = 100_000;
const LINE_PX = 20;
const TAIL = 1000;
/** Older lines are read when the reader is this close to the first one, so many at once. */
const OLDER = 1000;
const NEAR_START_PX = 400;
/** Longer lines are cut on screen; copying gets all of it. */
const SHOWN_MAX = 4000;
/** A search through the whole log ends after so many lines that match. */
const FOUND_MAX = 5000;

/** Searches all lines of a log, from its beginning, page by page. */
function useSearchOfAll(path, typed) {
  const [found, setFound] = useState(null);
  const abort = useRef(null);
  const stop = () => { abort.current?.abort(); setFound((last) => last && { ...last, isDone: true }); };
  useEffect(() => { setFound(null); return () => abort.current?.abort(); }, [path, typed]);
  const start = async () => {
    const own = new AbortController();
    abort.current = own;
    let [lines, scanned, cursor] = [[], 0, undefined];
    setFound({ lines, scanned, isDone: false });
    try {
      do {
        /** @type {import('punctual-api').Of<'LogPage'>} */
        const page = await get(/** @type {`executions/${string}/logs`} */ (path), { limit: 1000, cursor }, own.signal);
        if (own.signal.aborted) return;
        lines = [...lines, ...page.items.filter((line) => line.message.toLowerCase().includes(typed))].slice(0, FOUND_MAX);
        scanned += page.items.length;
        cursor = page.next_cursor;
        setFound({ lines, scanned, isDone: !cursor || lines.length >= FOUND_MAX });
      } while (cursor && lines.length < FOUND_MAX);
    } catch (error) {
      if (!own.signal.aborted) setFound({ lines, scanned, isDone: true, failure: error.message });
    }
  };
  return { found, start, stop };
}

/** Whether no line is before this one. Lines of a job continue those of earlier attempts. */
const isFirst = (line) => Number(line.number) <= 1 && line.execution_id.endsWith('.1');
const RETRY_MS = [1000, 2000, 5000, 10000];

/**
 * The lines of a log: its end, which grows, and older ones as far as they are asked for.
 * @returns {{lines: any[], state: {version: number, status: string, isStart: boolean, isFull: boolean}, grown: {current: number}, loadOlder: () => Promise<void>}}
 */
function useLines(path) {
  const lines = useRef(/** @type {any[]} */ ([]));
  const before = useRef(/** @type {string | null | undefined} */ (undefined));
  const isReading = useRef(false);
  // Lines that were added before the others since the page was last drawn.
  const grown = useRef(0);
  const [state, setState] = useState({ version: 0, status: 'connecting', isStart: false, isFull: false });
  const change = (fields) => setState((last) => ({ ...last, ...fields, version: last.version + 1 }));
  useEffect(() => {
    lines.current = [];
    before.current = undefined;
    let [frame, timer, failures, lastId] = [0, 0, 0, ''];
    let source = /** @type {EventSource | null} */ (null);
    const show = () => { frame ||= requestAnimationFrame(() => { frame = 0; change({}); }); };
    const open = () => {
      source = new EventSource(`${API}${path}?follow=true&${lastId ? `cursor=${encodeURIComponent(lastId)}` : `tail=${TAIL}`}`);
      source.onopen = () => { failures = 0; change({ status: 'live' }); };
      source.addEventListener('line', (event) => {
        try { lines.current.push(JSON.parse(event.data)); } catch { return; }
        lastId = event.lastEventId;
        if (before.current === undefined) { before.current = lastId; if (isFirst(lines.current[0])) { before.current = null; change({ isStart: true }); } }
        if (lines.current.length > LINES_MAX) { lines.current = lines.current.slice(10_000); before.current = null; change({ isStart: false, isFull: true }); }
        show();
      });
      source.addEventListener('end', () => { source.close(); change({ status: 'ended' }); });
      source.onerror = () => {
        // The browser gives up when a proxy answers with an error.
        if (source.readyState !== EventSource.CLOSED) { change({ status: 'connecting' }); return; }
        change({ status: failures > RETRY_MS.length ? 'closed' : 'connecting' });
        timer = setTimeout(open, RETRY_MS[Math.min(failures++, RETRY_MS.length - 1)]);
      };
    };
    setState({ version: 0, status: 'connecting', isStart: false, isFull: false });
    open();
    return () => { source.close(); clearTimeout(timer); cancelAnimationFrame(frame); };
  }, [path]);
  /** Reads the lines before the first one. */
  const loadOlder = async () => {
    const cursor = before.current;
    if (!cursor || isReading.current) return;
    isReading.current = true;
    try {
      /** @type {import('punctual-api').Of<'LogPage'>} */
      const page = await get(/** @type {`executions/${string}/logs`} */ (path), { before: cursor, limit: OLDER });
      if (cursor !== before.current) return;
      grown.current += page.items.length;
      lines.current = [...page.items, ...lines.current];
      const isFull = lines.current.length >= LINES_MAX;
      before.current = isFull ? null : page.previous_cursor;
      change({ isStart: !page.previous_cursor, isFull });
    } catch { /* The reader scrolls again. */ } finally { isReading.current = false; }
  };
  return { lines: lines.current, state, grown, loadOlder };
}

function Marked({ text, search }) {
  const shown = text.length > SHOWN_MAX ? `${text.slice(0, SHOWN_MAX)}…` : text;
  if (!search) return shown;
  const pieces = [];
  const lower = shown.toLowerCase();
  let from = 0;
  for (let at = lower.indexOf(search); at >= 0 && pieces.length < 100; at = lower.indexOf(search, from)) {
    pieces.push(shown.slice(from, at), html`<mark>${shown.slice(at, at + search.length)}</mark>`);
    from = at + search.length;
  }
  return [...pieces, shown.slice(from)];
}

export function Logs({ path }) {
  const { lines, state, grown, loadOlder } = useLines(path);
  const [search, setSearch] = useState('');
  const [stream, setStream] = useState('');
  // Also a reference: lines that arrive while somebody scrolls must not move the page back to the end.
  const stuck = useRef(true);
  const [isStuck, showStuck] = useState(true);
  const setStuck = (value) => { stuck.current = value; showStuck(value); };
  const [view, setView] = useState({ top: 0, height: 600 });
  const box = useRef(null);
  const typed = search.toLowerCase();
  const isFiltered = Boolean(typed || stream);
  const all = useSearchOfAll(path, typed);
  const source = all.found ? all.found.lines : lines;
  const shown = useMemo(() => typed || stream ? source.filter((line) => (!stream || line.stream === stream) && (!typed || line.message.toLowerCase().includes(typed))) : source, [all.found ?? state.version, typed, stream]);
  useLayoutEffect(() => {
    if (stuck.current && box.current) box.current.scrollTop = box.current.scrollHeight;
  }, [state.version, isStuck, shown.length]);
  const scroll = () => {
    const { scrollTop, clientHeight, scrollHeight } = box.current;
    setView({ top: scrollTop, height: clientHeight });
    setStuck(scrollHeight - scrollTop - clientHeight < LINE_PX * 2);
    if (!stuck.current && scrollTop < NEAR_START_PX && scrollHeight > clientHeight && !all.found && !isFiltered) loadOlder();
  };
  // The lines that a reader looks at stay where they are.
  useLayoutEffect(() => {
    if (grown.current && box.current) box.current.scrollTop += grown.current * LINE_PX;
    grown.current = 0;
  }, [state.version]);
  const first = Math.max(0, Math.floor(view.top / LINE_PX) - 10);
  const last = Math.min(shown.length, first + Math.ceil(view.height / LINE_PX) + 20);
  const zone = zoneFor();
  // Lines of one execution are numbered; those of a job begin again with each attempt.
  const [newest, oldest] = [lines.at(-1), lines[0]];
  const total = newest && oldest.execution_id === newest.execution_id ? Number(newest.number) : 0;
  const extent = state.isStart ? `all ${count(lines.length)} lines` : total > lines.length ? `lines ${count(oldest.number)} to ${count(total)} of ${count(total)}` : `the latest ${count(lines.length)} lines`;
  const said = { connecting: 'connecting', live: 'following', ended: 'complete', closed: 'not available' }[state.status];
  return html`<${Card} title="Log" flush extra=${html`<span class="row tight small muted"><span class=${`dot ${{ live: 'run', ended: '', connecting: 'warn', closed: 'bad' }[state.status]}`}></span>${said}${lines.length ? `, ${extent}` : ''}</span>`}>
    <div class="filters"><input style=${{ flex: '1 1 160px' }} type="search" aria-label="Search in the log" placeholder="Search in the log" value=${search} onInput=${(event) => setSearch(event.target.value)}/>
      <${Segmented} label="Stream" options=${[['', 'All'], ['stdout', 'stdout'], ['stderr', 'stderr'], ['log', 'log']]} value=${stream} onChange=${setStream}/>
      ${all.found ? html`<span class="muted small" role="status">${shown.length.toLocaleString('en')} of all ${all.found.scanned.toLocaleString('en')} lines${all.found.isDone ? '' : ' so far'}${all.found.failure ? `: ${all.found.failure}` : all.found.lines.length >= FOUND_MAX ? ', and perhaps more' : ''}</span>`
        : (typed || stream) && html`<span class="muted small">${shown.length.toLocaleString('en')} of the latest ${lines.length.toLocaleString('en')}</span>`}
      ${typed && !all.found && !state.isStart && html`<${Button} small icon="search" onClick=${all.start}>Search all lines</${Button}>`}
      ${all.found && !all.found.isDone && html`<${Button} small onClick=${all.stop}>Stop</${Button}>`}
      <span class="spring"></span>
      ${!isStuck && html`<${Button} small icon="chevron-down" onClick=${() => setStuck(true)}>To the end</${Button}>`}
      <${Copy} label="Copy all lines" text=${() => shown.map((line) => line.message).join('\n')}/></div>
    ${lines.length === 0 ? html`<${Empty} icon="terminal" title=${state.status === 'ended' || state.status === 'closed' ? 'It wrote nothing' : 'Waiting for output'}/>`
      : html`${state.isFull && html`<div class="filters muted small">The page keeps ${count(LINES_MAX)} lines. Search all lines, or read the log with <code>punctual job logs</code>.</div>`}<div class="log" ref=${box} onScroll=${scroll} tabindex="0" role="log" aria-label="Log lines" aria-live="off"><div class="all" style=${{ height: `${shown.length * LINE_PX}px` }}>
        ${shown.slice(first, last).map((line, index) => html`<div class="line" key=${first + index} style=${{ top: `${(first + index) * LINE_PX}px` }}><time datetime=${line.timestamp} title=${full(line.timestamp, zone)}>${clockTime(Date.parse(line.timestamp), zone)}</time><span class=${line.stream === 'stderr' ? 'stderr' : line.stream === 'log' ? 'log-own' : ''}><${Marked} text=${line.message} search=${typed}/></span></div>`)}
      </div></div>`}
  </${Card}>`;
}
