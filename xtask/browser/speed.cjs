// Measures how fast the dashboard of a running server is, in a browser: `cargo xtask dashboard-speed`. The server should hold as
// much as `punctual bench fill` writes. This script adds jobs until there are as many as asked for, and jobs that run.
// It prints what it finds and decides nothing: docs/performance.md has the goals.

const { chromium } = require('playwright-core');
const { parseArgs } = require('node:util');
const fs = require('node:fs');

const { values: options } = parseArgs({ options: {
  server: { type: 'string', default: 'http://127.0.0.1:7070' },
  'token-file': { type: 'string', default: 'punctual-data/admin.token' },
  // Jobs with a next run that the server holds in the end.
  jobs: { type: 'string', default: '0' },
  // How long events arrive while the memory of a tab is watched, and how many each second.
  minutes: { type: 'string', default: '0' },
  events: { type: 'string', default: '50' },
  // Parts to measure.
  only: { type: 'string', default: 'api,first,lists,scroll,log,memory' },
  // Files of the dashboard to use instead of those of the server.
  files: { type: 'string' },
} });
const [JOBS, MINUTES, EVENTS] = [options.jobs, options.minutes, options.events].map(Number);
const TOKEN = fs.readFileSync(options['token-file'], 'utf8').trim();
const parts = new Set(options.only.split(','));

const WORDS = ['invoice', 'backup', 'report', 'digest', 'import', 'export', 'cleanup', 'sync', 'index', 'mail'];
const QUEUES = ['default', 'mail', 'reports', 'imports', 'billing', 'search', 'media', 'slow'];
const DAY_MS = 86_400_000;

/** Lists as the pages ask for them. */
const LISTS = [
  'jobs?limit=100',
  ...['ACTIVE', 'PAUSED', 'COMPLETED', 'FAILED'].map((status) => `jobs?limit=100&status=${status}`),
  'jobs?limit=100&failing=true',
  'jobs?limit=100&tag=region-7',
  'jobs?limit=100&tag=region-7&tag=tier-1',
  'jobs?limit=100&tag=none',
  'jobs?limit=100&q=invoice',
  'jobs?limit=100&q=found-nowhere',
  'jobs?limit=100&name=invoice-7',
  'jobs?limit=100&owner=team-7',
  'jobs?limit=100&owner=none',
  'jobs?limit=100&queue=mail',
  'jobs?limit=100&queue=none',
  'jobs?limit=100&job_type=noop',
  'jobs?limit=100&priority=7',
  'jobs?limit=100&schedule_type=RECURRING',
  'jobs?limit=100&payload.customer=42',
  'jobs?limit=100&not_status=ACTIVE',
  'jobs?limit=100&not_tag=tier-1&not_owner=team-7',
  ...['next_run', 'name', 'priority', 'last_run', 'lateness'].flatMap((sort) => [`jobs?limit=100&sort=${sort}`, `jobs?limit=100&sort=${sort}&tag=region-7`]),
  ...['RUNNING', 'QUEUED', 'WAITING', 'SUCCEEDED', 'FAILED', 'TIMED_OUT'].map((status) => `executions?limit=100&status=${status}`),
  'executions?limit=100&status=SUCCEEDED&queue=mail',
  'dead-letters?limit=100',
  'queues', 'workers', 'stats', 'audit?limit=100', 'bulk?limit=100',
];
/** Pages with lists, as links of the dashboard. */
const PAGES = ['', 'jobs', 'jobs?status=ACTIVE', 'jobs?failing=true', 'jobs?tag=region-7', 'jobs?q=invoice', 'jobs?owner=team-7', 'jobs?sort=next_run', 'jobs?sort=name', 'jobs?sort=priority', 'executions', 'executions?status=SUCCEEDED', 'executions?status=FAILED', 'dead-letters', 'calendar', 'punctuality', 'queues', 'workers', 'alerts', 'operations', 'audit', 'access', 'settings'];

async function api(method, path, body) {
  const answer = await fetch(`${options.server}/api/v1/${path}`, { method, headers: { authorization: `Bearer ${TOKEN}`, 'content-type': 'application/json' }, body: body && JSON.stringify(body) });
  const text = await answer.text();
  if (!answer.ok) throw new Error(`${method} ${path}: ${answer.status} ${text.slice(0, 300)}`);
  return text ? JSON.parse(text) : null;
}
const pause = (ms) => new Promise((resolve) => { setTimeout(resolve, ms); });
const round = (number) => Math.round(number * 10) / 10;
const print = (title, rows) => { console.log(`\n${title}`); console.table(rows); };

/** A job that is not due while this script runs. */
function futureJob(number) {
  const at = new Date(Date.now() + DAY_MS + (number * 7919 % 30) * DAY_MS + number % 86_400 * 1000).toISOString();
  const kind = number % 10 < 6 ? { interval: '30d', start_at: at } : { execute_at: at };
  return {
    name: `${WORDS[number % WORDS.length]}-${number}`, job_type: 'noop', queue: QUEUES[number % QUEUES.length], owner_id: `team-${number % 100}`, priority: 1 + number % 10,
    tags: [`region-${number % 20}`, `tier-${number % 3}`], payload: { customer: number % 100_000, text: 'x'.repeat(40) }, ...kind,
  };
}

async function fill() {
  const { jobs } = await api('GET', 'stats');
  const held = jobs.active ?? 0;
  let next = held;
  const begun = Date.now();
  const submit = async () => {
    while (next < JOBS) {
      const first = next;
      next += 1000;
      await api('POST', 'jobs/batch', { jobs: Array.from({ length: Math.min(1000, JOBS - first) }, (_, index) => futureJob(first + index)) });
    }
  };
  await Promise.all([submit(), submit(), submit(), submit()]);
  if (held < JOBS) {
    console.log(`submitted ${JOBS - held} jobs in ${round((Date.now() - begun) / 1000)} s`);
    // 200 failures at once.
    await api('POST', 'jobs/batch', { jobs: Array.from({ length: 200 }, (_, number) => ({ name: `broken-${number}`, job_type: 'sleep', payload: { minutes: 1 }, max_retries: 0, tags: ['broken'] })) });
  }
  console.log('holds', JSON.stringify((await api('GET', 'stats')).jobs));
}

async function measureApi() {
  const rows = [];
  for (const path of LISTS) {
    const times = [];
    let page;
    for (let round_ = 0; round_ < 7; round_ += 1) {
      const begun = performance.now();
      page = await api('GET', path);
      times.push(performance.now() - begun);
    }
    const [first] = times;
    times.sort((a, b) => a - b);
    rows.push({ path, items: page.items?.length, more: Boolean(page.next_cursor), compared: page.compared && `${page.compared.jobs}${page.compared.complete ? '' : ' of more'}`, 'first ms': round(first), 'median ms': round(times[3]), 'max ms': round(times[6]) });
  }
  print('Lists over HTTP', rows);
}

/** In the page: notes long tasks, and when the page shows what it is about. */
function watch() {
  const noted = { tasks: [], frames: 0, slowFrames: 0, shownAt: 0 };
  globalThis.noted = noted;
  new PerformanceObserver((list) => { for (const task of list.getEntries()) noted.tasks.push({ at: task.startTime, ms: task.duration }); }).observe({ type: 'longtask', buffered: true });
  globalThis.isShown = () => {
    const main = document.querySelector('main');
    if (!main?.querySelector('h1')) return false;
    return ![...main.querySelectorAll('.muted')].some((one) => one.textContent.startsWith('Loading…'));
  };
  const look = () => {
    if (!noted.shownAt && globalThis.isShown()) noted.shownAt = performance.now();
    if (!noted.shownAt) requestAnimationFrame(look);
  };
  requestAnimationFrame(look);
}

async function newPage(browser, state) {
  const context = await browser.newContext({ viewport: { width: 1440, height: 900 }, storageState: state });
  await context.addInitScript(watch);
  if (options.files) {
    const types = { js: 'text/javascript', css: 'text/css', svg: 'image/svg+xml' };
    await context.route(/\/ui\/a\/[^/]+\//, (route) => {
      const path = new URL(route.request().url()).pathname.replace(/^\/ui\/a\/[^/]+\//, '');
      return route.fulfill({ path: `${options.files}/${path}`, contentType: types[path.split('.').pop()] });
    });
  }
  return context.newPage();
}

async function logIn(browser) {
  const page = await newPage(browser);
  await page.goto(`${options.server}/ui/`);
  await page.fill('#token', TOKEN);
  await page.click('form button');
  await page.waitForSelector('header.top');
  const state = await page.context().storageState();
  await page.context().close();
  return state;
}

async function measureFirst(browser, state) {
  const rows = [];
  for (const path of ['', 'jobs', 'executions']) {
    for (const cache of ['cold', 'cold', 'warm', 'warm']) {
      const page = await newPage(browser, state);
      const open = async () => { await page.goto(`${options.server}/ui/${path}`); await page.waitForFunction(() => noted.shownAt); await pause(1000); };
      if (cache === 'warm') { await open(); await page.goto('about:blank'); }
      const tasks = await traced(browser, page, open);
      rows.push({ page: path || 'overview', cache, ...tasks, ...await page.evaluate(() => {
        const files = performance.getEntriesByType('resource');
        const assets = files.filter((file) => file.name.includes('/ui/a/'));
        const tasks = noted.tasks.map((task) => task.at + task.ms);
        return { 'shown ms': Math.round(noted.shownAt), 'interactive ms': Math.round(Math.max(noted.shownAt, ...tasks)), files: assets.length, 'sent kB': Math.round(assets.reduce((sum, file) => sum + file.transferSize, 0) / 100) / 10, requests: files.length - assets.length };
      }) });
      await page.context().close();
    }
  }
  print('First page', rows);
}

/**
 * Runs something, and says how long the longest tasks of the pages took: on the clock, and on a processor. On a machine that does
 * other things, too, tasks wait for a processor, and only the latter is about the dashboard.
 */
async function traced(browser, page, work) {
  await browser.startTracing(page, { categories: ['toplevel'] });
  const found = await work();
  const { traceEvents } = JSON.parse(await browser.stopTracing());
  const mains = new Set(traceEvents.filter((one) => one.name === 'thread_name' && one.args.name === 'CrRendererMain').map((one) => `${one.pid} ${one.tid}`));
  const tasks = traceEvents.filter((one) => one.ph === 'X' && one.name.endsWith('RunTask') && mains.has(`${one.pid} ${one.tid}`));
  const most = (field) => Math.round(tasks.reduce((max, one) => Math.max(max, one[field] ?? 0), 0) / 1000);
  return { ...found, 'longest task ms': most('dur'), 'its CPU ms': most('tdur'), 'tasks over 50 ms of CPU': tasks.filter((one) => one.tdur > 50_000).length };
}

/** Follows a link within the page, and returns how long it takes until its list is shown. */
async function follow(page, path) {
  return page.evaluate(async (to) => {
    performance.clearResourceTimings();
    noted.tasks.length = 0;
    const link = Object.assign(document.createElement('a'), { href: to || '.' });
    document.querySelector('main').append(link);
    const begun = performance.now();
    link.click();
    link.remove();
    const frame = () => new Promise((resolve) => { requestAnimationFrame(resolve); });
    for (;;) {
      await frame();
      if (performance.now() - begun > 20000) break;
      if (globalThis.isShown()) break;
    }
    const shown = performance.now() - begun;
    await new Promise((resolve) => { setTimeout(resolve, 700); });
    const requests = performance.getEntriesByType('resource').filter((file) => file.name.includes('/api/'));
    return { 'shown ms': Math.round(shown), 'slowest request ms': Math.round(Math.max(0, ...requests.map((one) => one.duration))), requests: requests.length, 'longest task ms': Math.round(Math.max(0, ...noted.tasks.map((task) => task.ms))), rows: document.querySelectorAll('main tbody tr').length };
  }, path);
}

async function measureLists(browser, state) {
  const page = await newPage(browser, state);
  await page.goto(`${options.server}/ui/settings`);
  await page.waitForFunction(() => noted.shownAt);
  const rows = [];
  // The first round loads the code of each page.
  for (const path of PAGES) await follow(page, path);
  for (const path of PAGES) {
    await follow(page, 'settings');
    rows.push({ page: path || 'overview', ...await follow(page, path) });
  }
  print('Pages within the dashboard', rows);
  await page.context().close();
}

async function measureScroll(browser, state) {
  const page = await newPage(browser, state);
  const rows = [];
  for (const path of ['jobs', 'jobs?sort=name', 'executions?status=SUCCEEDED']) {
    await page.goto(`${options.server}/ui/${path}`);
    await page.waitForFunction(() => noted.shownAt);
    await pause(1000);
    rows.push({ page: path, ...await traced(browser, page, () => page.evaluate(async () => {
      const frame = () => new Promise((resolve) => { requestAnimationFrame(resolve); });
      const [gaps, begun] = [[], performance.now()];
      let [before, rowsMax] = [begun, 0];
      while (performance.now() - begun < 15000) {
        scrollBy(0, 120);
        const at = await frame();
        gaps.push(at - before);
        before = at;
        rowsMax = Math.max(rowsMax, document.querySelectorAll('main tbody tr').length);
      }
      gaps.sort((a, b) => a - b);
      return { 'scrolled px': Math.round(scrollY), frames: gaps.length, 'p99 frame ms': Math.round(gaps[Math.floor(gaps.length * 0.99)]), 'rows in the page': rowsMax };
    })) });
  }
  print('Scrolling for 15 s', rows);
  await page.context().close();
}

const LINES_PER_SECOND = 5000;
async function measureLog(browser, state) {
  const script = `i=0; while [ $i -lt 100 ]; do seq -f "line %.0f of the log that the dashboard follows while it is written" $((i * 1000 + 1)) $((i * 1000 + 1000)); sleep ${0.85 * 1000 / LINES_PER_SECOND}; i=$((i + 1)); done`;
  const job = await api('POST', 'jobs', { name: 'talkative', job_type: 'shell', payload: { script }, timeout_secs: 600 });
  let runs = [];
  while (!runs.length) {
    runs = (await api('GET', `jobs/${job.job_id}/executions`)).items.filter((run) => run.status === 'RUNNING');
    await pause(100);
  }
  const page = await newPage(browser, state);
  await page.goto(`${options.server}/ui/executions/${runs[0].execution_id}`);
  await page.waitForSelector('.log .line');
  const lines = () => page.evaluate(() => Number(/([\d,]+) lines/.exec(document.querySelector('main').innerText)[1].replaceAll(',', '')));
  const row = await traced(browser, page, async () => {
    const [from, begun] = [await lines(), Date.now()];
    await pause(10000);
    return { 'lines/s': Math.round((await lines() - from) * 1000 / (Date.now() - begun)) };
  });
  const seen = await page.evaluate(() => ({ 'lines in the page': document.querySelectorAll('.log .line').length, 'at its end': (() => { const box = document.querySelector('.log'); return box.scrollHeight - box.scrollTop - box.clientHeight < 40; })() }));
  print('A log while it is written', [{ ...row, ...seen }]);
  await page.context().close();
  await api('DELETE', `jobs/${job.job_id}`);
}

async function measureMemory(browser, state) {
  const tags = [`dashboard-speed-${Date.now()}`];
  await api('POST', 'jobs/batch', { jobs: Array.from({ length: EVENTS }, (_, number) => ({ name: `tick-${number}`, job_type: 'noop', interval: '1s', tags })) });
  try {
    const pages = await Promise.all(['', 'jobs', 'executions?status=SUCCEEDED'].map(async (path) => {
      const page = await newPage(browser, state);
      await page.goto(`${options.server}/ui/${path}`);
      await page.waitForFunction(() => noted.shownAt);
      await page.evaluate(() => { globalThis.arrived = 0; });
      return { path, page, tools: await page.context().newCDPSession(page) };
    }));
    const rows = [];
    for (let minute = 0; minute <= MINUTES; minute += 1) {
      if (minute > 0) await pause(60_000);
      // Right after a start, caches fill; then twice for the first minutes, and every fifth.
      if (minute > 3 && minute % 5 && minute !== MINUTES) continue;
      const row = { minute };
      for (const { path, page, tools } of pages) {
        await tools.send('HeapProfiler.collectGarbage');
        const { usedSize } = await tools.send('Runtime.getHeapUsage');
        const { nodes, jsEventListeners } = await tools.send('Memory.getDOMCounters');
        const tasks = await page.evaluate(() => { const longest = Math.max(0, ...noted.tasks.map((task) => task.ms)); noted.tasks.length = 0; return Math.round(longest); });
        Object.assign(row, { [`${path || 'overview'} MB`]: round(usedSize / 1e6), [`nodes ${path || 'overview'}`]: nodes, [`listeners ${path || 'overview'}`]: jsEventListeners, [`task ms ${path || 'overview'}`]: tasks });
      }
      rows.push(row);
      console.log(JSON.stringify(row));
    }
    print(`Memory with ${EVENTS} executions each second`, rows);
    for (const { page } of pages) await page.context().close();
  } finally {
    await api('POST', 'bulk', { action: 'delete', filter: { tag: tags } });
  }
}

async function main() {
  await fill();
  if (parts.has('api')) await measureApi();
  const browser = await chromium.launch({ executablePath: process.env.PUNCTUAL_TEST_CHROMIUM, chromiumSandbox: false, args: ['--disable-gpu', '--no-first-run', '--disable-background-networking', '--disable-component-update'] });
  const state = await logIn(browser);
  for (const [part, measure] of Object.entries({ first: measureFirst, lists: measureLists, scroll: measureScroll, log: measureLog, memory: measureMemory })) {
    if (parts.has(part)) await measure(browser, state);
  }
  await browser.close();
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
