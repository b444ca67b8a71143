// The parts that pages are made of.

import { cloneElement, Component, Fragment, html, useEffect, useId, useLayoutEffect, useMemo, useRef, useState } from './lib.js';
import { ExactNumber, get, isPlainObject, written } from './api.js';
import { asked, clock, dismiss, messages, now, zoneChoice } from './state.js';
import { full, offsetName, parts, relative, short, zoneFor } from './time.js';

const ICONS = new URL('./icons.svg', import.meta.url).href;
/** Rows of long lists have the dots of a menu: a copy of a drawing in each of them makes scrolling slow. */
export const Icon = ({ name }) => name === 'more' ? html`<span class="icon dots" aria-hidden="true"></span>` : html`<svg class="icon" aria-hidden="true"><use href=${`${ICONS}#${name}`}/></svg>`;

export function Button({ icon, children, kind = '', small, label, ...rest }) {
  const classes = `button ${kind} ${small ? 'small' : ''} ${children === undefined || children === null ? 'icon-only' : ''}`;
  const inside = html`${icon && html`<${Icon} name=${icon}/>`}${children}`;
  if (rest.href) return html`<a class=${classes} aria-label=${label} title=${label} ...${rest}>${inside}</a>`;
  return html`<button type="button" class=${classes} aria-label=${label} title=${label} ...${rest}>${inside}</button>`;
}

/** A name that somebody chose: shown as text, and unable to turn the text around it. */
export const Name = ({ children }) => html`<bdi class="name">${children}</bdi>`;

export function Head({ title, about, crumbs, badge, children }) {
  useEffect(() => { document.title = `${title} · Punctual`; }, [title]);
  return html`<div class="head"><div class="titles">
    ${crumbs && html`<nav class="crumbs" aria-label="Breadcrumb">${crumbs}</nav>`}
    <div class="row"><h1><${Name}>${title}</${Name}></h1>${badge}</div>
    ${about && html`<p>${about}</p>`}
  </div><div class="row">${children}</div></div>`;
}

export const Card = ({ title, extra, children, flush, foot, class: more = '' }) => html`<section class=${`card ${more}`}>
  ${title && html`<header><h2>${title}</h2><span class="spring"></span>${extra}</header>`}
  ${flush ? children : html`<div class="body">${children}</div>`}
  ${foot && html`<footer>${foot}</footer>`}
</section>`;

export const Tile = ({ label, value, note, kind = '', href }) => {
  const inside = html`<span class="label">${label}</span><span class="value">${value}</span>${note && html`<span class="note">${note}</span>`}`;
  return href ? html`<a class=${`tile ${kind}`} href=${href}>${inside}</a>` : html`<div class=${`tile ${kind}`}>${inside}</div>`;
};

export const Empty = ({ icon = 'info', title, children }) => html`<div class="empty"><${Icon} name=${icon}/><strong>${title}</strong>${children && html`<p>${children}</p>`}</div>`;

export const Notice = ({ kind = 'info', children }) => html`<div class=${`notice ${kind}`} role=${kind === 'bad' ? 'alert' : undefined}><${Icon} name=${kind === 'info' ? 'info' : 'warn'}/><div class="text">${children}</div></div>`;

export const Failure = ({ error, retry }) => html`<${Notice} kind="bad"><strong>${error.status === 403 ? 'Not permitted' : error.status === 404 ? 'Not found' : 'This did not work'}.</strong> ${error.message} ${retry && html`<${Button} small onClick=${retry}>Try again</${Button}>`}</${Notice}>`;

const KINDS = {
  ACTIVE: 'ok', PAUSED: 'warn', COMPLETED: '', FAILED: 'bad', CANCELLED: '', WAITING: 'wait', QUEUED: 'warn', RUNNING: 'run', SUCCEEDED: 'ok', TIMED_OUT: 'bad', LOST: 'bad', SKIPPED: '', EXPIRED: 'warn', SNOOZED: 'wait', OPEN: 'ok', DRAINING: 'warn',
};
export const kindOf = (status) => KINDS[status] ?? '';
export const wordOf = (status) => (status ?? '').toLowerCase().replaceAll('_', ' ');
export const Status = ({ of, title }) => html`<span class=${`status ${kindOf(of)}`} title=${title}>${wordOf(of)}</span>`;

/** A time: short, with all of it as a tooltip. `zone` is that of its job. */
export function Time({ at, zone, style = 'short' }) {
  if (!at) return html`<span class="muted">–</span>`;
  const shown = zoneFor(zone);
  const text = style === 'relative' ? relative(at) : style === 'full' ? full(at, shown) : `${short(at, shown)}${zoneChoice.value === 'job' ? ` ${offsetName(parts(Date.parse(at), shown).offset)}` : ''}`;
  // The tooltip is made when it is needed: lists have hundreds of times.
  const about = (event) => { event.currentTarget.title = `${full(at, shown)} (${shown}), ${relative(at)}`; };
  return html`<time datetime=${at} onPointerEnter=${about}>${text}</time>`;
}

/** A sentence of the server, with its times in the zone of the reader. */
export function Sentence({ text, zone }) {
  return (text ?? '').split(/(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d))/).map((piece, index) => index % 2 ? html`<${Time} key=${index} at=${piece} zone=${zone} style="full"/>` : piece);
}

/** A document as text, with numbers as they were written. */
export const pretty = (value) => {
  const write = (item, indent) => {
    if (item instanceof ExactNumber) return item.source;
    if (!isPlainObject(item)) return written(item);
    const inner = `${indent}  `;
    if (Array.isArray(item)) return item.length ? `[\n${item.map((one) => inner + write(one, inner)).join(',\n')}\n${indent}]` : '[]';
    const pairs = Object.entries(item);
    return pairs.length ? `{\n${pairs.map(([key, one]) => `${inner}${written(key)}: ${write(one, inner)}`).join(',\n')}\n${indent}}` : '{}';
  };
  return write(value, '');
};

/** `text` may be a function, so that a long text is made only when it is copied. */
export function Copy({ text: source, label = 'Copy' }) {
  const [done, setDone] = useState(false);
  const copy = async () => {
    const text = typeof source === 'function' ? source() : source;
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      const area = Object.assign(document.createElement('textarea'), { value: text });
      document.body.append(area);
      area.select();
      document.execCommand('copy');
      area.remove();
    }
    setDone(true);
    setTimeout(() => setDone(false), 1500);
  };
  return html`<${Button} small kind="plain" icon=${done ? 'check' : 'copy'} label=${done ? 'Copied' : label} onClick=${copy}/>`;
}

/** Text that comes from a job, at most as much of it as a page can bear. */
const SHOWN_MAX = 200_000;
export function TextBlock({ text, kind = '', label }) {
  const isCut = text.length > SHOWN_MAX;
  return html`<div class="copy-box"><pre class=${`text-block ${kind}`} tabindex="0" role="region" aria-label=${label ?? 'Text'}>${isCut ? text.slice(0, SHOWN_MAX) : text}${isCut && html`\n… ${(text.length - SHOWN_MAX).toLocaleString('en')} more characters; copy to get all`}</pre><${Copy} text=${text}/></div>`;
}
export const Document = ({ value, label }) => html`<${TextBlock} text=${pretty(value)} label=${label}/>`;

export function Field({ label, hint, wrong, wide, children }) {
  const id = useId();
  const control = Array.isArray(children) ? children : [children];
  const [first, ...rest] = control;
  const described = wrong || hint ? `${id}-about` : undefined;
  const named = cloneElement(first, { id, 'aria-describedby': described, 'aria-invalid': wrong ? 'true' : undefined });
  return html`<div class=${`field ${wide ? 'wide' : ''}`}><label for=${id}>${label}</label>${named}${rest}${described && html`<span id=${described} class=${wrong ? 'wrong' : 'hint'}>${wrong || hint}</span>`}</div>`;
}

export function Select({ options, value, onChange, ...rest }) {
  return html`<select value=${value} onChange=${(event) => onChange(event.target.value)} ...${rest}>
    ${options.map(([key, label]) => html`<option value=${key} selected=${key === value}>${label}</option>`)}
  </select>`;
}

/** A button with a list of actions. */
export function Menu({ label, icon = 'more', text, items, small, kind = '' }) {
  const [isOpen, setOpen] = useState(false);
  const [place, setPlace] = useState(undefined);
  const box = useRef(null);
  useEffect(() => {
    if (!isOpen) return undefined;
    const close = (event) => {
      if (event.type === 'keydown' && event.key !== 'Escape') return;
      if (event.type === 'pointerdown' && box.current?.contains(event.target)) return;
      setOpen(false);
      if (event.type === 'keydown') box.current?.querySelector('button')?.focus();
    };
    addEventListener('pointerdown', close);
    addEventListener('keydown', close);
    if (place) addEventListener('scroll', close, true);
    box.current?.querySelector('.item')?.focus({ preventScroll: true });
    return () => { removeEventListener('pointerdown', close); removeEventListener('keydown', close); removeEventListener('scroll', close, true); };
  }, [isOpen]);
  const toggle = () => {
    // A table that scrolls would cut the list off: it floats above the page, where there is room.
    const { top, bottom, right } = box.current.getBoundingClientRect();
    const isBelow = innerHeight - bottom > 48 + 36 * items.length;
    if (box.current.closest('.scroll')) setPlace({ position: 'fixed', right: `${document.documentElement.clientWidth - right}px`, top: isBelow ? `${bottom + 4}px` : 'auto', bottom: isBelow ? 'auto' : `${innerHeight - top + 4}px` });
    setOpen(!isOpen);
  };
  const move = (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const all = [...box.current.querySelectorAll('.item')];
    all[(all.indexOf(document.activeElement) + step + all.length) % all.length]?.focus();
  };
  return html`<div class="menu" ref=${box} onKeyDown=${move}>
    <${Button} icon=${icon} label=${label} small=${small} kind=${kind} aria-haspopup="true" aria-expanded=${String(isOpen)} onClick=${toggle}>${text}</${Button}>
    ${isOpen && html`<div class="popup" style=${place}>${items.filter(Boolean).map((item) => item === '-' ? html`<hr/>` : item.about ? html`<div class="about">${item.about}</div>`
      : item.href ? html`<a class="item" href=${item.href} onClick=${() => setOpen(false)}>${item.icon && html`<${Icon} name=${item.icon}/>`}${item.text}</a>`
      : html`<button type="button" class=${`item ${item.danger ? 'danger' : ''}`} aria-pressed=${item.on === undefined ? undefined : String(item.on)} onClick=${() => { if (!item.stays) setOpen(false); item.run(); }}>${item.icon && html`<${Icon} name=${item.icon}/>`}${item.text}${item.on && html`<span class="spring"></span><${Icon} name="check"/>`}</button>`)}</div>`}
  </div>`;
}

export function Dialog({ title, onClose, wide, children, class: more = '' }) {
  const box = useRef(null);
  useEffect(() => {
    const before = document.activeElement;
    box.current?.showModal();
    return () => { if (before instanceof HTMLElement) before.focus(); };
  }, []);
  return html`<dialog ref=${box} class=${`${wide ? 'wide' : ''} ${more}`} aria-label=${title} onCancel=${(event) => { event.preventDefault(); onClose(); }} onClick=${(event) => { if (event.target === box.current) onClose(); }}>${children}</dialog>`;
}

/** The question that `ask` waits for. Its fields become the answer. */
export function Question() {
  const question = asked.value;
  const form = useRef(null);
  if (!question) return null;
  const answer = (value) => { asked.value = null; question.resolve(value); };
  const submit = (event) => {
    event.preventDefault();
    answer(Object.fromEntries(new FormData(form.current)));
  };
  return html`<${Dialog} key=${question} title=${question.title} wide=${question.wide} onClose=${() => answer(undefined)}>
    <form ref=${form} onSubmit=${submit}>
      <header><h2>${question.title}</h2></header>
      <div class="body">${question.body}</div>
      <footer>
        ${!question.isNews && html`<${Button} onClick=${() => answer(undefined)}>Cancel</${Button}>`}
        <button class=${`button primary ${question.danger ? 'danger' : ''}`}>${question.action ?? 'OK'}</button>
      </footer>
    </form>
  </${Dialog}>`;
}

export const Messages = () => html`<div class="messages" role="status" aria-live="polite">${messages.value.map(({ id, text, kind }) => html`<div key=${id} class=${`message ${kind}`}><span>${text}</span><${Button} kind="plain" small icon="x" label="Dismiss" onClick=${() => dismiss(id)}/></div>`)}</div>`;

/**
 * Reads something and keeps it while it is read again, so that pages do not flicker.
 * @template T
 * @param {unknown[]} keys what it depends on
 * @param {(abort: AbortSignal) => Promise<T>} read
 * @param {{every?: number}} [options] how often to read again while the page is visible, in milliseconds
 */
export function useRead(keys, read, { every } = {}) {
  const [state, setState] = useState(/** @type {{data: T | undefined, error: any}} */ ({ data: undefined, error: null }));
  const again = useRef(() => {});
  useEffect(() => {
    const abort = new AbortController();
    let timer = 0;
    let isReading = false;
    const load = async () => {
      if (isReading) return;
      isReading = true;
      try {
        const data = await read(abort.signal);
        if (!abort.signal.aborted) setState({ data, error: null });
      } catch (error) {
        if (!abort.signal.aborted) setState((last) => ({ data: error.status === 404 ? undefined : last.data, error }));
      } finally {
        isReading = false;
      }
    };
    const tick = () => { if (document.visibilityState === 'visible') load(); };
    again.current = load;
    setState((last) => ({ data: last.data, error: null }));
    load();
    if (every) timer = setInterval(tick, every);
    const wake = () => { if (every) tick(); };
    document.addEventListener('visibilitychange', wake);
    return () => { abort.abort(); clearInterval(timer); document.removeEventListener('visibilitychange', wake); };
  }, keys);
  return { ...state, reload: () => again.current() };
}

/** A reader who has scrolled by more than this looks at the rows below. */
const SCROLLED_PX = 200;
/** A list that is read again begins with its first page when it has this many items more than that. */
const LIVE_MAX = 500;

/**
 * Reads a list page by page.
 * @template {string} P
 * @param {P} path @param {object} params
 * @param {{limit?: number, every?: number, keyOf?: (item: any) => string}} [options]
 */
export function usePages(path, params, { limit = 100, every, keyOf } = {}) {
  /** @typedef {import('punctual-api').Answer<'get', P> extends {items: (infer I)[]} ? I : never} Item */
  const [state, setState] = useState(/** @type {{items: Item[], next: string | undefined, error: any, isLoading: boolean, extra: any}} */ ({ items: [], next: undefined, error: null, isLoading: true, extra: null }));
  const latest = useRef({ state, limit });
  latest.current = { state, limit };
  const key = JSON.stringify([path, params]);
  const abort = useRef(null);
  const load = async (cursor, { merge = false } = {}) => {
    const own = abort.current;
    if (!merge) setState((last) => ({ ...last, isLoading: true }));
    try {
      /** @type {any} */
      const page = await get(path, { ...params, limit: latest.current.limit, cursor }, own.signal);
      if (own.signal.aborted) return;
      setState((last) => {
        if (page.compared) return { items: page.items, next: undefined, error: null, isLoading: false, extra: page };
        if (merge && cursor === undefined) {
          // Known items are replaced where they are. New ones come first, unless the reader has scrolled: nothing jumps.
          const fresh = new Map(page.items.map((item) => [keyOf(item), item]));
          const kept = last.items.map((item) => { const found = fresh.get(keyOf(item)); fresh.delete(keyOf(item)); return found ?? item; });
          if (scrollY > SCROLLED_PX) return { ...last, items: kept, error: null, extra: page };
          // Without a known item between them, others are missing; and a list that only grew would fill the memory.
          const begins = last.items.length > 0 && fresh.size === page.items.length;
          if (begins || kept.length + fresh.size > LIVE_MAX + limit) return { ...last, items: page.items, next: page.next_cursor, error: null, extra: page };
          return { ...last, items: [...fresh.values(), ...kept], error: null, extra: page };
        }
        const items = cursor === undefined ? page.items : [...last.items, ...page.items];
        return { items, next: page.next_cursor, error: null, isLoading: false, extra: cursor === undefined ? page : last.extra };
      });
    } catch (error) {
      if (!own.signal.aborted) setState((last) => ({ ...last, error, isLoading: false }));
    }
  };
  useEffect(() => {
    abort.current = new AbortController();
    setState({ items: [], next: undefined, error: null, isLoading: true, extra: null });
    load();
    const timer = every && keyOf ? setInterval(() => { if (document.visibilityState === 'visible' && !latest.current.state.isLoading) load(undefined, { merge: true }); }, every) : 0;
    return () => { abort.current.abort(); clearInterval(timer); };
  }, [key]);
  return {
    ...state,
    more: () => { if (state.next && !latest.current.state.isLoading) load(state.next); },
    reload: () => load(),
    change: (make) => setState((last) => ({ ...last, items: make(last.items) })),
  };
}

const ROW_PX = 38;
/** Rows beyond the screen, and by how many the range moves: scrolling by less than that draws nothing. */
const AROUND = 8;
const STEP = 8;
const COLUMN_MIN_PX = 140;
/** Widths of columns that fit into a width if possible: the widest ones give way. */
function fitted(px, room) {
  for (let excess = px.reduce((sum, one) => sum + one, 0) - room; excess > 0;) {
    const widest = Math.max(...px);
    const next = Math.max(COLUMN_MIN_PX, ...px.filter((one) => one < widest));
    if (widest <= COLUMN_MIN_PX) break;
    const all = px.filter((one) => one === widest).length;
    const less = Math.min(widest - next, excess / all);
    for (const [index, one] of px.entries()) if (one === widest) px[index] = widest - less;
    excess -= less * all;
  }
  return px;
}

/** A row, which is drawn again if something of it has changed. */
class Row extends Component {
  shouldComponentUpdate(next, state) {
    // A signal that a cell reads sets the state.
    return state !== this.state || ['item', 'shown', 'place', 'picked', 'isPicked'].some((name) => next[name] !== this.props[name]);
  }

  render({ id, item, shown, place, picked, isPicked, onPick }) {
    const pick = () => { const next = new Set(picked); if (!next.delete(id)) next.add(id); onPick(next); };
    return html`<tr aria-rowindex=${place} class=${isPicked ? 'picked' : ''}>
      ${picked && html`<td><input type="checkbox" aria-label="Select" checked=${isPicked} onChange=${pick}/></td>`}
      ${shown.map((column) => html`<td key=${column.id} class=${column.num ? 'num nowrap' : column.id === 'actions' ? 'actions' : ''}>${column.cell(item)}</td>`)}
    </tr>`;
  }
}

/**
 * A table of any length: only the rows on screen exist, and the end of the list loads more.
 * Columns: {id, label, cell(item), num?, hide?}
 */
export function Table({ columns, items, keyOf, pages, label, empty, picked, onPick }) {
  const body = useRef(null);
  const [range, setRange] = useState([0, 64]);
  const isLong = items.length > 80;
  useLayoutEffect(() => {
    const look = () => {
      const top = body.current?.getBoundingClientRect().top ?? 0;
      const first = Math.max(0, Math.floor((-top / ROW_PX - AROUND) / STEP) * STEP);
      const last = first + Math.ceil(innerHeight / ROW_PX / STEP) * STEP + 2 * AROUND + STEP;
      setRange((old) => old[0] === first && old[1] === last ? old : [first, last]);
      if (pages?.next && items.length - last < 20) pages.more();
    };
    look();
    addEventListener('scroll', look, { passive: true });
    addEventListener('resize', look);
    return () => { removeEventListener('scroll', look); removeEventListener('resize', look); };
  }, [items.length, pages?.next, pages?.isLoading]);
  const shown = useMemo(() => columns.filter((column) => !column.hide), [columns]);
  const chosen = shown.map((column) => column.id).join(' ');
  // Widths of columns are measured once: a browser that measures every row again makes scrolling slow, and columns jump.
  const head = useRef(null);
  const [widths, setWidths] = useState(null);
  const isMeasured = isLong && widths?.chosen === chosen;
  useLayoutEffect(() => {
    if (!isLong || widths?.chosen === chosen || !head.current) return;
    const px = [...head.current.cells].map((cell) => cell.getBoundingClientRect().width);
    setWidths({ chosen, px: fitted(px, head.current.closest('.scroll').clientWidth) });
  }, [isLong, chosen, widths]);
  useEffect(() => {
    const again = () => setWidths(null);
    addEventListener('resize', again);
    return () => removeEventListener('resize', again);
  }, []);
  const [first, last] = isLong ? range : [0, items.length];
  const width = shown.length + (picked ? 1 : 0);
  const rows = items.slice(first, last);
  const isAll = picked && items.length > 0 && items.every((item) => picked.has(keyOf(item)));
  if (!items.length && pages?.error) return html`<div class="body"><${Failure} error=${pages.error} retry=${pages.reload}/></div>`;
  if (!items.length && !(pages?.isLoading || pages?.next)) return empty ?? html`<${Empty} title="Nothing here"/>`;
  return html`<div class="scroll" tabindex="0" role="region" aria-label=${label}><table class=${isMeasured ? 'measured' : ''} aria-label=${label} aria-rowcount=${pages?.next ? -1 : items.length + 1}>
    ${isMeasured && html`<colgroup>${widths.px.map((px, index) => html`<col key=${index} style=${{ width: `${px}px` }}/>`)}</colgroup>`}
    <thead><tr ref=${head}>
      ${picked && html`<th><input type="checkbox" aria-label="Select all shown" checked=${isAll} onChange=${() => onPick(isAll ? new Set() : new Set(items.map(keyOf)))}/></th>`}
      ${shown.map((column) => html`<th key=${column.id} scope="col" class=${column.num ? 'num' : column.id === 'actions' ? 'actions' : ''}>${column.label || html`<span class="sr">Actions</span>`}</th>`)}
    </tr></thead>
    <tbody ref=${body}>
      ${isLong && first > 0 && html`<tr aria-hidden="true"><td class="spacer" colspan=${width} style=${{ height: `${first * ROW_PX}px` }}></td></tr>`}
      ${rows.map((item, index) => { const key = keyOf(item); return html`<${Row} key=${key} id=${key} item=${item} shown=${shown} place=${first + index + 2} picked=${picked} isPicked=${picked?.has(key)} onPick=${onPick}/>`; })}
      ${isLong && last < items.length && html`<tr aria-hidden="true"><td class="spacer" colspan=${width} style=${{ height: `${(items.length - last) * ROW_PX}px` }}></td></tr>`}
    </tbody>
  </table></div>
  ${pages?.error && html`<div class="body"><${Failure} error=${pages.error} retry=${pages.reload}/></div>`}
  ${(pages?.next || pages?.isLoading) && html`<div class="row" style=${{ padding: '10px 14px' }}>${pages.isLoading ? html`<span class="muted">Loading…</span>` : html`<${Button} small onClick=${pages.more}>Load more</${Button}>`}</div>`}`;
}

export const Tabs = ({ items, current, hrefOf, label }) => html`<nav class="tabs" aria-label=${label}>${items.filter(Boolean).map(([id, text]) => html`<a key=${id} href=${hrefOf(id)} aria-current=${id === current ? 'page' : undefined}>${text}</a>`)}</nav>`;

/** Choices of which one is on. */
export const Segmented = ({ options, value, onChange, label }) => html`<div class="segmented" role="group" aria-label=${label}>${options.map(([id, text]) => html`<${Button} key=${id} small aria-current=${String(id === value)} onClick=${() => onChange(id)}>${text}</${Button}>`)}</div>`;

/** A text field whose value takes effect a moment after the last key. */
export function SearchField({ value, onChange, label, placeholder, class: more = '' }) {
  const [text, setText] = useState(value);
  const timer = useRef(0);
  useEffect(() => setText(value), [value]);
  const type = (event) => {
    const typed = event.target.value;
    setText(typed);
    clearTimeout(timer.current);
    timer.current = setTimeout(() => onChange(typed), 300);
  };
  return html`<div class=${`search-field ${more}`}><${Icon} name="search"/><input type="search" data-search value=${text} aria-label=${label} placeholder=${placeholder} onInput=${type} onKeyDown=${(event) => { if (event.key === 'Enter') { clearTimeout(timer.current); onChange(event.target.value); } }}/></div>`;
}

export const List = ({ children }) => html`<ul class="list">${children}</ul>`;
export { Fragment, clock, now };
