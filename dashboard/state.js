// What all pages share: who is logged in, preferences, the server's time, and messages.

import { computed, effect, html, signal } from './lib.js';
import { get, remove, session } from './api.js';

/** The caller, as GET /me describes it. */
export const me = signal(null);
/** Whether the caller has a permission. What it may not do is not offered. */
export const can = (permission) => Boolean(me.value?.permissions.includes(permission));
/** Whether the caller is limited to some owner, queues or job types. */
export const isLimited = () => Boolean(me.value && (!me.value.all_owners || me.value.queues.length || me.value.job_types.length));

function stored(name, fallback) {
  const key = `punctual.${name}`;
  const value = signal(fallback);
  try {
    value.value = JSON.parse(localStorage.getItem(key)) ?? fallback;
  } catch { /* Unreadable or forbidden: the default applies. */ }
  let isFirst = true;
  effect(() => {
    const text = JSON.stringify(value.value);
    if (isFirst) { isFirst = false; return; }
    try { localStorage.setItem(key, text); } catch { /* Kept for this page only. */ }
  });
  return value;
}

/** 'auto', 'light', 'dark' or 'contrast'. */
export const theme = stored('theme', 'auto');
/** 'browser', 'job' or 'UTC'. */
export const zoneChoice = stored('zone', 'browser');
/** Columns that this browser does not show: {list: [id]}. */
export const hiddenColumns = stored('columns', {});

effect(() => {
  document.documentElement.dataset.theme = theme.value;
});

/** The time that schedules follow, and how far it is from this browser's clock. */
export const clock = signal({ mode: 'system', offset: 0, at: 0 });
/** The server's time in milliseconds; changes once a second. */
export const now = signal(Date.now());
const tell = () => {
  const { mode, offset, at } = clock.peek();
  now.value = mode === 'manual' ? at : Date.now() + offset;
};
setInterval(tell, 1000);

export async function readClock() {
  const before = Date.now();
  const { mode, now: at } = await get('clock');
  const server = Date.parse(at);
  clock.value = { mode, at: server, offset: server - (before + Date.now()) / 2 };
  tell();
}

export async function readMe() {
  me.value = await get('me');
  session.value = 'in';
  await readClock().catch(() => {});
}

/** Short messages about what has just happened. */
export const messages = signal([]);
let messageId = 0;
export function say(text, kind = 'ok') {
  const id = ++messageId;
  messages.value = [...messages.value.slice(-4), { id, text, kind }];
  setTimeout(() => dismiss(id), kind === 'error' ? 12000 : 5000);
}
export const dismiss = (id) => { messages.value = messages.value.filter((message) => message.id !== id); };

/** A dialog that waits for an answer. */
export const asked = signal(null);
export function ask(question) {
  return new Promise((resolve) => { asked.value = { ...question, resolve }; });
}

/** Runs an action, and says how it went. Returns its answer, or undefined if it failed. */
export async function attempt(action, done) {
  try {
    const answer = await action();
    if (done) say(typeof done === 'function' ? done(answer) : done);
    return answer ?? null;
  } catch (error) {
    if (error.name !== 'AbortError') say(error.errors?.length ? error.errors.map(({ field, detail }) => `${field} ${detail}`).join('; ') : error.message, 'error');
    return undefined;
  }
}

/** Removes a thing. If something uses it, asks whether to remove it nevertheless. Returns whether it is gone. */
export async function removeUnused(path, what) {
  const force = async (error) => {
    if (error.status !== 409) throw error;
    const answer = await ask({ title: `Remove ${what} although it is in use?`, danger: true, action: 'Remove', body: html`<p class="muted">${error.message}</p>` });
    if (answer === undefined) throw error;
    return remove(`${path}?force=true`);
  };
  return await attempt(() => remove(path).catch(force), `Removed ${what}`) !== undefined;
}

export const isManual = computed(() => clock.value.mode === 'manual');
