// A log that is followed: begins at the end, stays there while lines arrive, and draws only the lines on screen.

import { html, useEffect, useMemo, useRef, useState } from './lib.js';
import { API, get } from './api.js';
import { Button, Card, Copy, Empty, Segmented } from './ui.js';
import { clockTime, zoneFor } from './time.js';

const LINES_MAX = 100_000;
const LINE_PX = 20;
const TAIL = 1000;
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

/** @returns {[any[], {version: number, status: string, dropped: number}]} */
function useLines(path) {
  const lines = useRef([]);
  const [state, setState] = useState({ version: 0, status: 'connecting', dropped: 0 });
  useEffect(() => {
    lines.current = [];
    let dropped = 0;
    let frame = 0;
    const show = (status) => { frame ||= requestAnimationFrame(() => { frame = 0; setState((last) => ({ version: last.version + 1, status: status ?? last.status, dropped })); }); };
    const source = new EventSource(`${API}${path}?follow=true&tail=${TAIL}`);
    source.onopen = () => setState((last) => ({ ...last, status: 'live' }));
    source.addEventListener('line', (event) => {
      try { lines.current.push(JSON.parse(event.data)); } catch { return; }
      if (lines.current.length > LINES_MAX) { dropped += 10_000; lines.current = lines.current.slice(10_000); }
      show();
    });
    source.addEventListener('end', () => { source.close(); setState((last) => ({ ...last, version: last.version + 1, status: 'ended' })); });
    source.onerror = () => setState((last) => ({ ...last, status: source.readyState === EventSource.CLOSED ? 'closed' : 'connecting' }));
    setState({ version: 0, status: 'connecting', dropped: 0 });
    return () => { source.close(); cancelAnimationFrame(frame); };
  }, [path]);
  return [lines.current, state];
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
  const [lines, state] = useLines(path);
  const [search, setSearch] = useState('');
  const [stream, setStream] = useState('');
  const [isStuck, setStuck] = useState(true);
  const [view, setView] = useState({ top: 0, height: 600 });
  const box = useRef(null);
  const typed = search.toLowerCase();
  const all = useSearchOfAll(path, typed);
  const source = all.found ? all.found.lines : lines;
  const shown = useMemo(() => typed || stream ? source.filter((line) => (!stream || line.stream === stream) && (!typed || line.message.toLowerCase().includes(typed))) : source, [all.found ?? state.version, typed, stream]);
  useEffect(() => {
    if (isStuck && box.current) box.current.scrollTop = box.current.scrollHeight;
  }, [state.version, isStuck, shown.length]);
  const scroll = () => {
    const { scrollTop, clientHeight, scrollHeight } = box.current;
    setView({ top: scrollTop, height: clientHeight });
    setStuck(scrollHeight - scrollTop - clientHeight < LINE_PX * 2);
  };
  const first = Math.max(0, Math.floor(view.top / LINE_PX) - 10);
  const last = Math.min(shown.length, first + Math.ceil(view.height / LINE_PX) + 20);
  const zone = zoneFor();
  const said = { connecting: 'connecting', live: 'following', ended: 'complete', closed: 'not available' }[state.status];
  return html`<${Card} title="Log" flush extra=${html`<span class="row tight small muted"><span class=${`dot ${{ live: 'run', ended: '', connecting: 'warn', closed: 'bad' }[state.status]}`}></span>${said}, ${lines.length.toLocaleString('en')} lines${state.dropped ? ` (older ones dropped)` : ''}</span>`}>
    <div class="filters"><input style=${{ flex: '1 1 160px' }} type="search" aria-label="Search in the log" placeholder="Search in the log" value=${search} onInput=${(event) => setSearch(event.target.value)}/>
      <${Segmented} label="Stream" options=${[['', 'All'], ['stdout', 'stdout'], ['stderr', 'stderr'], ['log', 'log']]} value=${stream} onChange=${setStream}/>
      ${all.found ? html`<span class="muted small" role="status">${shown.length.toLocaleString('en')} of all ${all.found.scanned.toLocaleString('en')} lines${all.found.isDone ? '' : ' so far'}${all.found.failure ? `: ${all.found.failure}` : all.found.lines.length >= FOUND_MAX ? ', and perhaps more' : ''}</span>`
        : (typed || stream) && html`<span class="muted small">${shown.length.toLocaleString('en')} of the latest ${lines.length.toLocaleString('en')}</span>`}
      ${typed && !all.found && lines.length >= TAIL && html`<${Button} small icon="search" onClick=${all.start}>Search all lines</${Button}>`}
      ${all.found && !all.found.isDone && html`<${Button} small onClick=${all.stop}>Stop</${Button}>`}
      <span class="spring"></span>
      ${!isStuck && html`<${Button} small icon="chevron-down" onClick=${() => setStuck(true)}>To the end</${Button}>`}
      <${Copy} label="Copy all lines" text=${() => shown.map((line) => line.message).join('\n')}/></div>
    ${lines.length === 0 ? html`<${Empty} icon="terminal" title=${state.status === 'ended' || state.status === 'closed' ? 'It wrote nothing' : 'Waiting for output'}/>`
      : html`<div class="log" ref=${box} onScroll=${scroll} tabindex="0" role="log" aria-label="Log lines" aria-live="off"><div class="all" style=${{ height: `${shown.length * LINE_PX}px` }}>
        ${shown.slice(first, last).map((line, index) => html`<div class="line" key=${first + index} style=${{ top: `${(first + index) * LINE_PX}px` }}><time datetime=${line.timestamp}>${clockTime(Date.parse(line.timestamp), zone)}</time><span class=${line.stream === 'stderr' ? 'stderr' : line.stream === 'log' ? 'log-own' : ''}><${Marked} text=${line.message} search=${typed}/></span></div>`)}
      </div></div>`}
  </${Card}>`;
}
