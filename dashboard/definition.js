// A job as it was submitted: the fields that a person may write, without what the server adds, as JSON and as YAML.

import { ExactNumber, isPlainObject, written } from './api.js';

/** The fields of POST /jobs, in the order in which people read them, with their defaults. */
export const FIELDS = {
  name: undefined, job_type: undefined, owner_id: 'default', queue: 'default', priority: 5, schedule_type: undefined, execute_at: undefined, cron_expression: undefined, interval: undefined, rrule: undefined, schedules: undefined, timezone: 'UTC', calendars: undefined, start_at: undefined, end_at: undefined, max_runs: undefined, jitter: undefined, dst_gap: undefined, dst_overlap: undefined, misfire_policy: 'SKIP_MISSED', misfire_grace: '1m', misfire_limit: undefined, max_lateness: undefined, replay_rate: undefined, overlap_policy: 'SKIP', overlap_limit: undefined, max_open: 1000, max_retries: 3, retry: undefined, timeout_secs: 3600, result_overflow: 'truncate', expires_at: undefined, expires_after: undefined, idempotency_key: undefined, unique_key: undefined, concurrency_key: undefined, depends_on: undefined, tags: undefined, notify: undefined, payload: null,
};

const same = (a, b) => JSON.stringify(a) === JSON.stringify(b);
const isEmpty = (value) => value === null || value === undefined || (Array.isArray(value) && !value.length);

/** The description of a job that `punctual apply` accepts, without defaults. */
export function definition(job) {
  const found = {};
  for (const [name, otherwise] of Object.entries(FIELDS)) {
    const value = job[name];
    if (name === 'payload' ? value === null || value === undefined : isEmpty(value) || same(value, otherwise)) continue;
    if (name === 'schedule_type' && value !== 'IMMEDIATE') continue;
    if (name === 'misfire_grace' && ['60s', '1m', 'PT1M'].includes(value)) continue;
    if (name === 'timeout_secs' && Number(value) === 3600) continue;
    if (name === 'retry' && same(value, { strategy: 'exponential', delay: '1m', max_delay: '1h' })) continue;
    found[name] = value;
  }
  return found;
}

/** Words that YAML would read as something else than a text. */
const PLAIN = /^[A-Za-z_][A-Za-z0-9_ ./+-]*$/;
const SPECIAL = /^(true|false|null|yes|no|on|off|y|n|nan|inf)$/i;
const scalar = (value) => {
  if (value instanceof ExactNumber) return value.source;
  return typeof value === 'string' && PLAIN.test(value) && !SPECIAL.test(value) && !value.endsWith(' ') ? value : written(value);
};
const key = (name) => PLAIN.test(name) && !SPECIAL.test(name) && !name.includes(' ') ? name : written(name);

export function yaml(value, indent = '') {
  if (!isPlainObject(value)) return scalar(value);
  const isList = Array.isArray(value);
  const pairs = Object.entries(value);
  if (!pairs.length) return isList ? '[]' : '{}';
  const lines = pairs.map(([name, one]) => {
    const head = isList ? '- ' : `${key(name)}:`;
    const inner = `${indent}  `;
    if (!isPlainObject(one) || !Object.keys(one).length) return `${indent}${head}${isList ? '' : ' '}${yaml(one)}`;
    if (isList) return `${indent}- ${yaml(one, inner).trimStart()}`;
    return `${indent}${head}\n${yaml(one, inner)}`;
  });
  return lines.join('\n');
}

export const manifest = (job) => `jobs:\n- ${yaml(definition(job), '  ').trimStart()}\n`;
