// Times, durations and numbers for people. The zone of every time is labelled.

import { computed } from './lib.js';
import { now, zoneChoice } from './state.js';

export const BROWSER_ZONE = Intl.DateTimeFormat().resolvedOptions().timeZone || 'UTC';

/** The zone of a time: that of its job if the user prefers it. */
export function zoneFor(jobZone) {
  if (zoneChoice.value === 'UTC') return 'UTC';
  if (zoneChoice.value === 'job' && jobZone) return jobZone;
  return zoneChoice.value === 'job' ? 'UTC' : BROWSER_ZONE;
}
export const zoneLabel = computed(() => ({ UTC: 'UTC', job: "job's zone", browser: BROWSER_ZONE })[zoneChoice.value]);

/** For narrow screens. */
export const zoneShort = computed(() => zoneChoice.value === 'job' ? 'job' : offsetName(parts(minute.value * 60000, zoneFor()).offset));

/** Times that only depend on the day are drawn again once a minute at most. */
const minute = computed(() => Math.floor(now.value / 60000));

const formats = new Map();
function format(zone) {
  let found = formats.get(zone);
  if (!found) {
    /** @type {Intl.DateTimeFormatOptions} */
    const options = { timeZone: zone, hourCycle: 'h23', year: 'numeric', month: '2-digit', day: '2-digit', hour: '2-digit', minute: '2-digit', second: '2-digit', timeZoneName: 'longOffset', weekday: 'short' };
    try {
      found = new Intl.DateTimeFormat('en-GB', options);
    } catch {
      found = new Intl.DateTimeFormat('en-GB', { ...options, timeZone: 'UTC' });
    }
    formats.set(zone, found);
  }
  return found;
}

const PARTS_MAX = 5000;
let known = new Map();
/** The parts of an instant in a zone. `offset` is in minutes. Lists ask for the same ones again and again. */
export function parts(at, zone) {
  const key = `${Number(at)} ${zone}`;
  const before = known.get(key);
  if (before) return before;
  const found = {};
  for (const { type, value } of format(zone).formatToParts(at)) found[type] = value;
  const [, sign, hours, minutes] = /GMT(?:([+-])(\d{2}):(\d{2}))?/.exec(found.timeZoneName) ?? [];
  const offset = hours ? (sign === '-' ? -1 : 1) * (Number(hours) * 60 + Number(minutes)) : 0;
  const made = { year: Number(found.year), month: Number(found.month), day: Number(found.day), hour: Number(found.hour), minute: Number(found.minute), second: Number(found.second), weekday: found.weekday, offset };
  if (known.size >= PARTS_MAX) known = new Map();
  known.set(key, made);
  return made;
}

const two = (number) => String(number).padStart(2, '0');
export const MONTHS = ['January', 'February', 'March', 'April', 'May', 'June', 'July', 'August', 'September', 'October', 'November', 'December'];
export const dayKey = (at, zone) => { const p = parts(at, zone); return `${p.year}-${two(p.month)}-${two(p.day)}`; };
export const clockTime = (at, zone, seconds = true) => { const p = parts(at, zone); return `${two(p.hour)}:${two(p.minute)}${seconds ? `:${two(p.second)}` : ''}`; };
export function offsetName(minutes) {
  if (!minutes) return 'UTC';
  const size = Math.abs(minutes);
  return `UTC${minutes < 0 ? '−' : '+'}${Math.floor(size / 60)}${size % 60 ? `:${two(size % 60)}` : ''}`;
}

/** 2026-11-18 09:30:12 UTC+1 */
export function full(at, zone) {
  const time = typeof at === 'string' ? Date.parse(at) : Number(at);
  if (Number.isNaN(time)) return '';
  return `${dayKey(time, zone)} ${clockTime(time, zone)} ${offsetName(parts(time, zone).offset)}`;
}

/** As short as it can be without being wrong: no day if it is today. */
export function short(at, zone) {
  const time = Date.parse(at);
  const p = parts(time, zone);
  const today = minute.value * 60000;
  if (dayKey(time, zone) === dayKey(today, zone)) return `${two(p.hour)}:${two(p.minute)}:${two(p.second)}`;
  const year = p.year === parts(today, zone).year ? '' : ` ${p.year}`;
  return `${p.day} ${MONTHS[p.month - 1].slice(0, 3)}${year} ${two(p.hour)}:${two(p.minute)}`;
}

/** A length of time in milliseconds: 850 ms, 12 s, 3 m 20 s, 5 h 2 m, 3 d. */
export function span(ms) {
  const size = Math.abs(ms);
  const sign = ms < 0 ? '−' : '';
  if (size < 1) return '0 ms';
  if (size < 1000) return `${sign}${Math.round(size)} ms`;
  if (size < 10000) return `${sign}${(size / 1000).toFixed(1).replace(/\.0$/, '')} s`;
  const seconds = Math.round(size / 1000);
  if (seconds < 60) return `${sign}${seconds} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${sign}${minutes} m${seconds % 60 ? ` ${seconds % 60} s` : ''}`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return `${sign}${hours} h${minutes % 60 ? ` ${minutes % 60} m` : ''}`;
  const days = Math.floor(hours / 24);
  return days < 14 && hours % 24 ? `${sign}${days} d ${hours % 24} h` : `${sign}${days.toLocaleString('en')} d`;
}

/** In 3 m, or 12 s ago. */
export function relative(at) {
  const distance = Date.parse(at) - now.value;
  if (Math.abs(distance) < 1000) return 'now';
  const seconds = Math.round(Math.abs(distance) / 1000);
  const size = seconds < 60 ? `${seconds} s` : seconds < 3600 ? `${Math.floor(seconds / 60)} m` : seconds < 172800 ? `${Math.floor(seconds / 3600)} h` : `${Math.floor(seconds / 86400)} d`;
  return distance > 0 ? `in ${size}` : `${size} ago`;
}

const thousands = new Intl.NumberFormat('en');
/** 12,345; 1.2 M */
export function count(number) {
  const size = Number(number ?? 0);
  if (size >= 10_000_000) return `${(size / 1e6).toFixed(1)} M`;
  return thousands.format(size);
}
export function bytes(size) {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let value = Number(size);
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) { value /= 1024; unit += 1; }
  return `${value < 10 && unit ? value.toFixed(1) : Math.round(value)} ${units[unit]}`;
}

/** The instant at which a day begins in a zone. */
export function startOfDay(at, zone) {
  const p = parts(at, zone);
  return instantOf({ ...p, hour: 0, minute: 0, second: 0 }, zone);
}

/** The first instant with this local time in a zone, or the first one after it. */
export function instantOf({ year, month, day, hour = 0, minute = 0, second = 0 }, zone) {
  const asUtc = Date.UTC(year, month - 1, day, hour, minute, second);
  const guess = asUtc - parts(asUtc, zone).offset * 60000;
  const better = asUtc - parts(guess, zone).offset * 60000;
  const earlier = asUtc - parts(better - 3 * 3600000, zone).offset * 60000;
  const fits = (at) => { const p = parts(at, zone); return p.day === parts(asUtc, 'UTC').day && p.hour === hour && p.minute === minute; };
  return [earlier, better, guess].find(fits) ?? better;
}

export const addDays = (at, days, zone) => {
  const p = parts(at, zone);
  const moved = new Date(Date.UTC(p.year, p.month - 1, p.day + days));
  return instantOf({ year: moved.getUTCFullYear(), month: moved.getUTCMonth() + 1, day: moved.getUTCDate() }, zone);
};
