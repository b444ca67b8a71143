// Starts the dashboard: login, layout, keyboard, and the page that the address names.

import { Fragment, html, render, useEffect, useErrorBoundary, useRef, useState } from './lib.js';
import { get, lastAnswer, logIn, logOut, online, part, ROOT, SERVER, session } from './api.js';
import { can, clock, isLimited, isManual, me, now, readClock, readMe, say, theme, zoneChoice } from './state.js';
import { go, place, segments } from './router.js';
import { heardAt, listen, restart, stream } from './live.js';
import { Button, Dialog, Empty, Failure, Head, Icon, Menu, Messages, Name, Notice, Question } from './ui.js';
import { BROWSER_ZONE, full, relative, zoneFor, zoneLabel, zoneShort } from './time.js';

document.querySelector('base').href = ROOT;

/** All pages: the first part of their path, their name, and what they need. Loaded when first shown. */
const PAGES = [
  { path: '', text: 'Overview', icon: 'overview', key: 'o', needs: 'server:read', load: () => import('./pages/overview.js') },
  { path: 'jobs', text: 'Jobs', icon: 'jobs', key: 'j', needs: 'jobs:read', load: () => import('./pages/jobs.js') },
  { path: 'executions', text: 'Executions', icon: 'executions', key: 'e', needs: 'jobs:read', load: () => import('./pages/executions.js') },
  { path: 'dead-letters', text: 'Dead letters', icon: 'dead', key: 'd', needs: 'jobs:read', load: () => import('./pages/dead-letters.js') },
  { path: 'alerts', text: 'Alerts', icon: 'bell', key: 'l', needs: 'notifications:read', whole: true, load: () => import('./pages/alerts.js') },
  { path: 'operations', text: 'Operations', icon: 'ops', key: 'b', needs: 'jobs:read', load: () => import('./pages/operations.js') },
  { group: 'Time' },
  { path: 'calendar', text: 'Calendar', icon: 'calendar', key: 'c', needs: 'jobs:read', load: () => import('./pages/calendar.js') },
  { path: 'punctuality', text: 'Punctuality', icon: 'punctuality', key: 'p', needs: 'jobs:read', load: () => import('./pages/punctuality.js') },
  { path: 'simulator', text: 'Simulator', icon: 'simulator', key: 'm', needs: 'jobs:read', load: () => import('./pages/simulator.js') },
  { group: 'Capacity' },
  { path: 'queues', text: 'Queues and limits', icon: 'queues', key: 'q', needs: 'server:read', load: () => import('./pages/queues.js') },
  { path: 'workers', text: 'Workers and nodes', icon: 'workers', key: 'w', needs: 'server:read', load: () => import('./pages/workers.js') },
  { group: 'Administration' },
  { path: 'secrets', text: 'Secrets', icon: 'secrets', key: 's', needs: 'secrets:read', load: () => import('./pages/secrets.js') },
  { path: 'access', text: 'Access', icon: 'access', key: 'a', needs: 'access:read', whole: true, load: () => import('./pages/access.js') },
  { path: 'audit', text: 'Audit log', icon: 'audit', key: 'u', needs: 'audit:read', whole: true, load: () => import('./pages/audit.js') },
  { path: 'settings', text: 'Settings', icon: 'settings', key: 't', load: () => import('./pages/settings.js') },
];
const offered = (page) => page.group || ((!page.needs || can(page.needs)) && !(page.whole && isLimited()));
const shownPages = () => PAGES.filter(offered).filter((page, index, all) => !page.group || (all[index + 1] && !all[index + 1].group));

function Sidebar({ isOpen, close }) {
  const [first = ''] = segments();
  return html`${isOpen && html`<button class="scrim" aria-label="Close the menu" onClick=${close}></button>`}
    <nav class=${`side ${isOpen ? 'open' : ''}`} aria-label="Pages" onClick=${close}>
      <a class="brand" href="."><img src=${new URL('./logo.svg', import.meta.url).href} alt=""/>Punctual</a>
      ${shownPages().map((page) => page.group ? html`<h2 key=${page.group}>${page.group}</h2>`
        : html`<a key=${page.path} class="nav" href=${page.path || '.'} aria-current=${page.path === first ? 'page' : undefined}><${Icon} name=${page.icon}/>${page.text}</a>`)}
    </nav>`;
}

const STREAMS = { live: ['ok', 'Live'], connecting: ['warn', 'Connecting'], broken: ['bad', 'Reconnecting'] };
function LiveState() {
  const [kind, text] = online.value ? STREAMS[stream.value] : STREAMS.broken;
  const at = Math.max(heardAt.value, lastAnswer.value);
  const ago = at ? relative(new Date(at + (now.value - Date.now())).toISOString()) : 'never';
  return html`<span class="row tight small muted" title="When the server was last heard"><span class=${`dot ${kind}`}></span><span>${text}</span><span class="hide-small">${isManual.value ? '' : `· updated ${ago}`}</span></span>`;
}

function Top({ openMenu, openPalette, openKeys }) {
  return html`<header class="top">
    <${Button} kind="plain hamburger" icon="menu" label="Menu" onClick=${openMenu}/>
    <button type="button" class="search" onClick=${openPalette}><${Icon} name="search"/><span class="cut grow">Search or jump to…</span><kbd class="hide-small">Ctrl K</kbd></button>
    <span class="spring"></span>
    <${LiveState}/>
    <${Menu} label=${`Time zone: ${zoneLabel.value}`} icon="globe" kind="plain" text=${html`<span class="hide-small">${zoneLabel.value}</span><span class="small only-narrow">${zoneShort.value}</span>`} items=${[
      { about: 'Times are shown in' },
      { text: `This browser: ${BROWSER_ZONE}`, on: zoneChoice.value === 'browser', run: () => { zoneChoice.value = 'browser'; } },
      { text: "The job's time zone", on: zoneChoice.value === 'job', run: () => { zoneChoice.value = 'job'; } },
      { text: 'UTC', on: zoneChoice.value === 'UTC', run: () => { zoneChoice.value = 'UTC'; } },
    ]}/>
    <${Menu} label="Theme" kind="plain" icon=${{ auto: 'sun', light: 'sun', dark: 'moon', contrast: 'contrast' }[theme.value]} items=${[['auto', 'As the system', 'settings'], ['light', 'Light', 'sun'], ['dark', 'Dark', 'moon'], ['contrast', 'High contrast', 'contrast']].map(([id, text, icon]) => ({ text, icon, on: theme.value === id, run: () => { theme.value = id; } }))}/>
    <${Menu} label="Account" kind="plain" icon="user" items=${[
      { about: html`<strong><${Name}>${me.value.name}</${Name}></strong><br/>${me.value.role}${isLimited() ? ', limited scope' : ''}` },
      '-',
      { text: 'Keyboard shortcuts', icon: 'keyboard', run: openKeys },
      { text: 'Settings', icon: 'settings', href: 'settings' },
      { text: 'API documentation', icon: 'book', run: () => open(`${SERVER}docs`, '_blank', 'noopener') },
      { text: 'Log out', icon: 'logout', run: logOut },
    ]}/>
  </header>`;
}

function Palette({ close }) {
  const [text, setText] = useState('');
  const [found, setFound] = useState([]);
  const [place_, setPlace] = useState(0);
  const typed = text.trim().toLowerCase();
  useEffect(() => {
    const abort = new AbortController();
    if (typed.length < 2 || !can('jobs:read')) { setFound([]); return undefined; }
    const timer = setTimeout(async () => {
      try {
        const { items } = await get('jobs', { q: typed, limit: 8 }, abort.signal);
        setFound(items);
      } catch { /* The list stays as it is. */ }
    }, 150);
    return () => { clearTimeout(timer); abort.abort(); };
  }, [typed]);
  const execution = /^[0-9a-f-]{36}\.\d+\.\d+$/.test(typed) ? [{ id: 'x', icon: 'executions', text: 'Open this execution', run: () => go(`executions/${part(typed)}`) }] : [];
  /** @type {{id: string, icon: string, text: any, hint?: any, words?: string, run: () => void}[]} */
  const all = [
    ...execution,
    ...found.map((job) => ({ id: job.job_id, icon: 'jobs', text: html`<${Name}>${job.name}</${Name}>`, hint: job.status.toLowerCase(), run: () => go(`jobs/${job.job_id}`) })),
    ...PAGES.filter((page) => !page.group && offered(page)).map((page) => ({ id: page.path, icon: page.icon, text: page.text, hint: html`<kbd>g ${page.key}</kbd>`, words: page.text, run: () => go(page.path || '.') })),
    can('jobs:write') && { id: 'new', icon: 'plus', text: 'New job', words: 'new job create submit', hint: html`<kbd>n</kbd>`, run: () => go('jobs/new') },
    can('jobs:read') && { id: 'failing', icon: 'warn', text: 'Failing jobs', words: 'failing failed jobs errors', run: () => go('jobs?failing=true') },
    can('jobs:read') && { id: 'running', icon: 'play', text: 'Running executions', words: 'running executions', run: () => go('executions?status=RUNNING') },
    ...['light', 'dark', 'contrast', 'auto'].map((id) => ({ id, icon: 'contrast', text: `Theme: ${id}`, words: `theme ${id}`, run: () => { theme.value = id; } })),
    ...['browser', 'job', 'UTC'].map((id) => ({ id, icon: 'globe', text: `Time zone: ${id}`, words: `time zone ${id}`, run: () => { zoneChoice.value = id; } })),
  ].filter(Boolean);
  const actions = all.filter((item) => !item.words || !typed || typed.split(/\s+/).every((word) => item.words.toLowerCase().includes(word))).slice(0, 30);
  const chosen = Math.min(place_, actions.length - 1);
  const run = (item) => { close(); item?.run(); };
  const key = (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) { event.preventDefault(); setPlace((chosen + step + actions.length) % actions.length); }
    if (event.key === 'Enter') { event.preventDefault(); run(actions[chosen]); }
  };
  const box = useRef(null);
  useEffect(() => { box.current?.querySelector('[aria-selected="true"]')?.scrollIntoView({ block: 'nearest' }); }, [chosen]);
  return html`<${Dialog} title="Search" class="palette" onClose=${close}>
    <input autofocus aria-label="Search or jump to" role="combobox" aria-expanded="true" aria-controls="palette-list" aria-activedescendant=${`palette-${chosen}`} placeholder="Job name, id, tag, page or command" value=${text} onInput=${(event) => { setText(event.target.value); setPlace(0); }} onKeyDown=${key}/>
    <ul id="palette-list" role="listbox" aria-label="Results" ref=${box}>${actions.map((item, index) => html`<li key=${item.id} id=${`palette-${index}`} role="option" aria-selected=${String(index === chosen)} onClick=${() => run(item)} onPointerMove=${() => setPlace(index)}><${Icon} name=${item.icon}/><span class="cut">${item.text}</span>${item.hint && html`<span class="hint">${item.hint}</span>`}</li>`)}
    ${!actions.length && html`<li role="option" aria-selected="false" aria-disabled="true" class="muted">Nothing found</li>`}</ul>
  </${Dialog}>`;
}

function Keys({ close }) {
  return html`<${Dialog} title="Keyboard shortcuts" onClose=${close}>
    <header><h2>Keyboard shortcuts</h2></header>
    <div class="body"><div class="keys">
      <kbd>Ctrl K</kbd><span>Search, jump, run a command</span>
      <kbd>/</kbd><span>Search in this list</span>
      <kbd>n</kbd><span>New job</span>
      <kbd>?</kbd><span>This list</span>
      <kbd>Esc</kbd><span>Close</span>
      ${PAGES.filter((page) => !page.group && offered(page)).map((page) => html`<${Fragment} key=${page.path}><kbd>g ${page.key}</kbd><span>${page.text}</span></${Fragment}>`)}
    </div></div>
    <footer><${Button} onClick=${close}>Close</${Button}></footer>
  </${Dialog}>`;
}

function useKeyboard({ openPalette, openKeys }) {
  useEffect(() => {
    let waits = 0;
    const press = (event) => {
      const isTyping = /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName) && event.target.type !== 'checkbox';
      if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === 'k') { event.preventDefault(); openPalette(); return; }
      if (isTyping || event.ctrlKey || event.metaKey || event.altKey || document.querySelector('dialog[open]')) return;
      if (Date.now() - waits < 1200) {
        waits = 0;
        const page = PAGES.find((one) => one.key === event.key && offered(one));
        if (page) { event.preventDefault(); go(page.path || '.'); }
        return;
      }
      if (event.key === 'g') waits = Date.now();
      else if (event.key === '?') openKeys();
      else if (event.key === 'n' && can('jobs:write')) go('jobs/new');
      else if (event.key === '/') { event.preventDefault(); const field = document.querySelector('[data-search]'); if (field instanceof HTMLElement) field.focus(); else openPalette(); }
    };
    addEventListener('keydown', press);
    return () => removeEventListener('keydown', press);
  }, []);
}

function Page() {
  const [first = '', ...rest] = segments();
  const page = PAGES.find((one) => one.path === first);
  const [loaded, setLoaded] = useState(/** @type {{path?: string, View?: any}} */ ({}));
  const [error, reset] = useErrorBoundary((failure) => console.error(failure));
  useEffect(() => { reset?.(); }, [first]);
  useEffect(() => {
    if (!page) return;
    page.load().then((module) => setLoaded({ path: page.path, View: module.default }), () => say('A part of the dashboard could not be loaded. Reload the page.', 'error'));
  }, [page]);
  if (!page) return html`<${Head} title="Not found"/><${Empty} icon="help" title="There is no such page"><a href=".">Go to the overview</a></${Empty}>`;
  if (!offered(page)) return html`<${Head} title=${page.text}/><${Empty} icon="ban" title="Not permitted">Your role does not include ${page.needs}.</${Empty}>`;
  if (error) return html`<${Head} title=${page.text}/><${Failure} error=${error} retry=${() => reset()}/>`;
  const { View } = loaded;
  return loaded.path === page.path ? html`<${View} key=${[first, ...rest].join('/')} rest=${rest}/>` : html`<div class="muted" role="status">Loading…</div>`;
}

function Login() {
  const [wrong, setWrong] = useState('');
  const provider = document.querySelector('meta[name=punctual-provider]').getAttribute('content');
  const submit = async (event) => {
    event.preventDefault();
    const token = String(new FormData(event.target).get('token')).trim();
    setWrong('');
    try {
      if (await logIn(token)) await readMe();
      else setWrong('The server does not accept this token.');
    } catch (error) {
      setWrong(error.message);
    }
  };
  useEffect(() => { document.title = 'Log in · Punctual'; }, []);
  return html`<main class="login"><div class="card"><div class="body">
    <h1 class="brand"><img src=${new URL('./logo.svg', import.meta.url).href} alt=""/>Punctual</h1>
    ${provider && html`<a class="button primary" href=${`${SERVER}login/oidc?next=${encodeURIComponent(location.pathname + location.search)}`}>Log in with ${provider}</a>`}
    <form class="stack" onSubmit=${submit}>
      <div class="field"><label for="token">Token</label><input id="token" name="token" type="password" autocomplete="off" required autofocus aria-invalid=${wrong ? 'true' : undefined} aria-describedby="token-about"/>
      <span id="token-about" class=${wrong ? 'wrong' : 'hint'} role=${wrong ? 'alert' : undefined}>${wrong || html`On a new server, the admin token is in <code>punctual-data/admin.token</code>.`}</span></div>
      <button class=${`button ${provider ? '' : 'primary'}`}>Log in</button>
    </form>
  </div></div></main>`;
}

function App() {
  const [menu, setMenu] = useState(false);
  const [palette, setPalette] = useState(false);
  const [keys, setKeys] = useState(false);
  useKeyboard({ openPalette: () => setPalette(true), openKeys: () => setKeys(true) });
  if (session.value === 'out') return html`<${Login}/>`;
  if (!me.value) return html`<main class="login">${online.value ? html`<span class="muted" role="status">Loading…</span>` : html`<${Notice} kind="bad">The server cannot be reached. The page retries by itself.</${Notice}>`}</main>`;
  place.value;
  return html`<a class="skip" href="#main" onClick=${(event) => { event.preventDefault(); document.querySelector('main').focus(); }}>Skip to the content</a>
    <div class="app"><${Sidebar} isOpen=${menu} close=${() => setMenu(false)}/>
    <div class="column-main">
      <${Top} openMenu=${() => setMenu(true)} openPalette=${() => setPalette(true)} openKeys=${() => setKeys(true)}/>
      <main id="main" tabindex="-1">
        ${!online.value && html`<${Notice} kind="bad">The server cannot be reached. What you see is from ${full(lastAnswer.value, zoneFor())}. The page retries by itself.</${Notice}>`}
        ${isManual.value && html`<${Notice} kind="info">This server has a manual clock. It is ${full(clock.value.at, zoneFor())} until somebody moves it in the <a href="simulator">simulator</a>.</${Notice}>`}
        <${Page}/>
      </main>
    </div></div>
    ${palette && html`<${Palette} close=${() => setPalette(false)}/>`}
    ${keys && html`<${Keys} close=${() => setKeys(false)}/>`}
    <${Question}/><${Messages}/>`;
}

async function start() {
  // The link that a new server prints: its code logs in once, and disappears from the address.
  const code = /^#login=(\w+)$/.exec(location.hash)?.[1];
  if (code) {
    history.replaceState(null, '', location.pathname + location.search);
    if (!await logIn(code).catch(() => false)) say('This login link was used before or is too old. Log in with a token.', 'error');
  }
  for (let wait = 500; ; wait = Math.min(wait * 2, 5000)) {
    try {
      await readMe();
      break;
    } catch (error) {
      if (error.status === 401) break;
      await new Promise((resolve) => { setTimeout(resolve, wait); });
    }
  }
  listen();
}

let before = session.peek();
session.subscribe((value) => {
  if (value === 'in' && before !== 'in') restart();
  if (value === 'out') me.value = null;
  before = value;
});
setInterval(() => { if (session.peek() === 'in') readClock().catch(() => {}); }, 30000);

render(html`<${App}/>`, document.getElementById('app'));
start();
