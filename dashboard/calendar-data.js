// What the calendar draws: the fires to come, how often frequent jobs fire, and what has already happened.

import { get } from './api.js';

export const HOUR = 3600_000;
const QUARTER = HOUR / 4;
const PAGES_MAX = 20;
/** Fires of each job that one request lists; a job with more of them in the range is a frequent one. */
export const LISTED_MAX = 1000;
/** Days that are read at the same time. */
const DAYS_AT_ONCE = 4;

/** All jobs that fire within the range: up to so many pages. */
export async function readFires(filter, abort) {
  const jobs = [];
  let cursor;
  let rounds = 0;
  do {
    const page = await get('fires', { ...filter, limit: 500, cursor }, abort);
    jobs.push(...page.items);
    cursor = page.next_cursor;
    rounds += 1;
  } while (cursor && rounds < PAGES_MAX);
  return { jobs, isAll: !cursor, rounds };
}

/**
 * How often jobs fire on each day: a frequent job has too many fires for one list of the whole range.
 * @param {{from: number, until: number}[]} days
 */
export async function readDays(days, filter, abort) {
  const found = [];
  for (let first = 0; first < days.length; first += DAYS_AT_ONCE) {
    found.push(...await Promise.all(days.slice(first, first + DAYS_AT_ONCE).map(async ({ from, until }) => ({ from, until, jobs: (await get('fires', { ...filter, limit: 500, from: new Date(from).toISOString(), until: new Date(until).toISOString() }, abort)).items }))));
  }
  return found;
}

const ENDED = ['SUCCEEDED', 'FAILED', 'TIMED_OUT', 'LOST'];
/** Executions of the range, also those that ended up to an hour after it: as many as a bounded number of reads finds. */
export async function readPast(from, until, { queue }, abort) {
  const pages = await Promise.all(ENDED.map((status) => get('executions', { status, queue, limit: 1000, ended_from: new Date(from).toISOString(), ended_until: new Date(until + HOUR).toISOString() }, abort).catch(() => ({ items: [] }))));
  return pages.flatMap((page) => page.items).filter((one) => Date.parse(one.scheduled_time) >= from && Date.parse(one.scheduled_time) < until);
}

/** How many executions of the range succeeded, failed and did not run, in small steps; null if the server does not know. */
export async function readHappened(from, until, { queue }, abort) {
  const step = until - from > 10 * 24 * HOUR ? '60m' : '15m';
  try {
    const page = await get('series', { metric: 'executions', by: queue ? 'queue' : 'all', name: queue, step, since: new Date(from).toISOString(), until: new Date(until).toISOString(), limit: 1 }, abort);
    const columns = page.series.find((one) => !queue || one.name === queue)?.columns ?? {};
    const sum = (names, index) => names.reduce((all, name) => all + Number(columns[name]?.[index] ?? 0), 0);
    return page.times.map((at, index) => ({ at: Date.parse(at), ok: sum(['succeeded'], index), bad: sum(['failed', 'timed_out', 'lost'], index), not: sum(['skipped', 'expired', 'cancelled'], index) }));
  } catch (error) {
    if (error.status === 404 || error.status === 403) return null;
    throw error;
  }
}

/** What happened between two times. */
export function happenedIn(happened, start, end) {
  const sum = { ok: 0, bad: 0, not: 0, all: 0 };
  for (const one of happened ?? []) if (one.at >= start && one.at < end) { sum.ok += one.ok; sum.bad += one.bad; sum.not += one.not; }
  sum.all = sum.ok + sum.bad + sum.not;
  return sum;
}

/** How many of some fires, each list spread evenly over its time, fall between two times. */
function evenly(tails) {
  const steps = tails.flatMap(({ from, until, number }) => [[from, number / (until - from)], [until, -number / (until - from)]]).sort((a, b) => a[0] - b[0]);
  const [at, rates, totals] = [[], [], []];
  let [rate, total] = [0, 0];
  for (const [time, change] of steps) {
    total += at.length ? rate * (time - at.at(-1)) : 0;
    rate += change;
    at.push(time); rates.push(rate); totals.push(total);
  }
  const before = (time) => {
    let [low, high] = [0, at.length];
    while (low < high) { const middle = (low + high) >> 1; if (at[middle] <= time) low = middle + 1; else high = middle; }
    return low ? totals[low - 1] + rates[low - 1] * (time - at[low - 1]) : 0;
  };
  return (start, end) => before(end) - before(start);
}

/** The fires of one job in one answer: those that are listed, and the rest, of which only the number is known. */
function partsOf(job, until) {
  const times = job.fires.filter((fire) => !fire.excluded_by).map((fire) => Date.parse(fire.scheduled_time));
  const rest = Number(job.count) - job.fires.length;
  const last = Date.parse(job.fires.at(-1)?.scheduled_time ?? '');
  return { job, times, tail: rest > 0 && last < until ? { from: last, until, number: rest } : null };
}

/**
 * How often frequent jobs fire, at any time of the range. Exact where fires are listed, spread evenly where only their number is known.
 * @param {{jobs: any[], until: number, days: {from: number, until: number, jobs: any[]}[] | null}} of
 */
export function loads({ jobs, until, days }) {
  const ids = new Set(jobs.map((job) => job.job_id));
  const all = days ? days.flatMap((day) => day.jobs.filter((job) => ids.has(job.job_id)).map((job) => partsOf(job, day.until))) : jobs.map((job) => partsOf(job, until));
  const quarters = new Map();
  for (const { times } of all) for (const at of times) { const key = Math.floor(at / QUARTER); quarters.set(key, (quarters.get(key) ?? 0) + 1); }
  const rest = evenly(all.flatMap(({ tail }) => tail ?? []));
  return {
    within(start, end) {
      let listed = 0;
      for (let key = Math.ceil(start / QUARTER); key * QUARTER < end; key += 1) listed += quarters.get(key) ?? 0;
      return Math.round(listed + rest(start, end));
    },
    /** The same for each of the jobs. */
    byJob(start, end) {
      const found = new Map();
      for (const { job, times, tail } of all) {
        const number = times.filter((at) => at >= start && at < end).length + (tail ? evenly([tail])(start, end) : 0);
        if (number >= 0.5) found.set(job.job_id, { job, number: Math.round((found.get(job.job_id)?.number ?? 0) + number) });
      }
      return [...found.values()].sort((a, b) => b.number - a.number);
    },
  };
}
