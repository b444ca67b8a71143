// The stream of events. Browsers allow few connections to one server, so one tab holds the stream for all tabs.

import { signal } from './lib.js';
import { API, session } from './api.js';

/** How long events are collected before pages see them: many at once cost one update. */
const BATCH_MS = 250;
/** Events of one batch; more than that only say that something has changed. */
const BATCH_MAX = 500;
const RETRY_MS = [1000, 2000, 5000, 10000];

/** 'connecting', 'live' or 'broken'. */
export const stream = signal('connecting');
/** When something was last heard from the server, in milliseconds of this browser. */
export const heardAt = signal(0);

const listeners = new Set();
/** Calls back with lists of executions as they change. Returns how to stop. */
export function onExecutions(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

let pending = [];
let timer = 0;
let lastId = '';
function flush() {
  timer = 0;
  const batch = pending;
  pending = [];
  for (const listener of listeners) listener(batch);
}
function take(execution) {
  if (pending.length < BATCH_MAX) pending.push(execution);
  timer ||= setTimeout(flush, BATCH_MS);
}

const channel = 'BroadcastChannel' in self ? new BroadcastChannel('punctual-events:' + API) : null;
let isLeader = false;
function tell(message) {
  hear(message);
  channel?.postMessage(message);
}
function hear(message) {
  if (message.state) {
    stream.value = message.state;
    if (message.at) heardAt.value = message.at;
  }
  if (message.id) lastId = message.id;
  if (message.execution) {
    heardAt.value = message.at;
    take(message.execution);
  }
}
channel?.addEventListener('message', ({ data }) => {
  if (data.hello) {
    if (isLeader) channel.postMessage({ state: stream.peek(), at: heardAt.peek(), id: lastId });
  } else if (!isLeader) {
    hear(data);
  }
});

let source = null;
let failures = 0;
/** When this tab last heard the stream, or opened it. The server sends a heartbeat after 15 s without events. */
let soundAt = 0;
const SILENT_MS = 45000;
const SILENT_AFTER_SLEEP_MS = 20000;
/** A connection may be gone without an error: behind a proxy, or after the machine has slept. */
function reopenAfter(silence) {
  if (!isLeader || !source || session.peek() !== 'in' || Date.now() - soundAt < silence) return;
  tell({ state: 'broken' });
  open();
}

function open() {
  source?.close();
  soundAt = Date.now();
  if (session.peek() !== 'in') return;
  source = new EventSource(API + 'events' + (lastId ? `?cursor=${encodeURIComponent(lastId)}` : ''));
  source.onopen = () => {
    failures = 0;
    soundAt = Date.now();
    tell({ state: 'live', at: soundAt });
  };
  source.addEventListener('heartbeat', (event) => {
    soundAt = Date.now();
    tell({ state: 'live', at: soundAt, id: event.lastEventId });
  });
  source.addEventListener('execution', (event) => {
    soundAt = Date.now();
    try {
      tell({ execution: JSON.parse(event.data), id: event.lastEventId, at: Date.now() });
    } catch { /* A line that is not JSON tells nothing. */ }
  });
  source.onerror = () => {
    tell({ state: 'broken' });
    source.close();
    // A cursor that the server no longer knows must not keep the stream closed.
    if (failures > 2) lastId = '';
    setTimeout(open, RETRY_MS[Math.min(failures++, RETRY_MS.length - 1)]);
  };
}

/** Begins to listen. Of all tabs, one holds the stream until it is closed; then another one takes over. */
export function listen() {
  channel?.postMessage({ hello: true });
  const lead = () => {
    isLeader = true;
    open();
    return new Promise(() => {});
  };
  if (channel && navigator.locks) navigator.locks.request('punctual-events:' + API, lead);
  else lead();
  // A laptop that wakes up should not wait for the next retry.
  setInterval(() => reopenAfter(SILENT_MS), 5000);
  document.addEventListener('visibilitychange', () => { if (document.visibilityState === 'visible') reopenAfter(SILENT_AFTER_SLEEP_MS); });
  addEventListener('online', () => { if (isLeader && stream.peek() !== 'live') open(); });
}

/** The session has changed: the stream belongs to its caller. */
export function restart() {
  if (isLeader) open();
}
