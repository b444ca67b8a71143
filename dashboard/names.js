// Names of jobs. Events contain ids only, so the names that a page shows are read one by one, and kept.

import { signal } from './lib.js';
import { get, part } from './api.js';

const KNOWN_MAX = 2000;
/** Names that wait to be read: a page shows only the latest jobs anyway. */
const WAITING_MAX = 20;
const known = signal(/** @type {Map<string, string>} */ (new Map()));
let waiting = [];
let isReading = false;

function keep(pairs) {
  if (!pairs.length) return;
  const all = [...known.peek(), ...pairs];
  known.value = new Map(all.slice(-KNOWN_MAX));
}

/** Remembers the names of jobs or executions that a list contained. */
export const learnNames = (items) => keep(items.filter((one) => one.name && !known.peek().has(one.job_id)).map((one) => [one.job_id, one.name]));

/** The name of the job of an execution, or the beginning of its id until the name is read. */
export const nameOf = (one) => one.name ?? known.value.get(one.job_id) ?? one.job_id.slice(0, 8);

/** Reads the names of these executions that are not known. */
export async function readNames(items) {
  const missing = items.filter((one) => !one.name && !known.peek().has(one.job_id) && !waiting.includes(one.job_id)).map((one) => one.job_id);
  waiting = [...new Set([...missing, ...waiting])].slice(0, WAITING_MAX);
  if (isReading) return;
  isReading = true;
  while (waiting.length) {
    const id = waiting[0];
    // A job that is gone keeps the beginning of its id.
    const name = await get(`jobs/${part(id)}`).then((job) => job.name, (error) => error.status === 404 ? id.slice(0, 8) : null);
    waiting = waiting.filter((one) => one !== id);
    if (name) keep([[id, name]]);
  }
  isReading = false;
}
