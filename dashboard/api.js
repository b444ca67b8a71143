// Requests to the public API. Everything that the dashboard shows comes through here.

import { signal } from './lib.js';

/** The root of the dashboard as the browser knows it, whatever path a proxy adds. */
export const ROOT = new URL('.', document.baseURI).href;
export const SERVER = new URL('..', ROOT).href;
export const API = new URL('api/v1/', SERVER).href;

/** 'unknown' until the first answer, then 'in' or 'out'. */
export const session = signal('unknown');
/** Whether the last request reached the server. */
export const online = signal(true);
/** When the server last answered, in milliseconds of this browser. */
export const lastAnswer = signal(0);

/** Whether this browser keeps the text of numbers in JSON. Others read and write it with this mark, as a text. */
const keepsNumbers = 'rawJSON' in JSON;
const MARK = `number ${Math.random()}:`;

/** A number whose text in JSON would not survive a conversion to a double. */
export class ExactNumber {
  constructor(source) { this.source = source; }
  valueOf() { return Number(this.source); }
  toString() { return this.source; }
  toJSON() { return keepsNumbers ? /** @type {any} */ (JSON).rawJSON(this.source) : MARK + this.source; }
}

/** Like JSON.parse, but numbers keep their text if a double cannot represent it. */
export function parseExact(text) {
  if (keepsNumbers) {
    return JSON.parse(text, (_key, value, context) => {
      const source = context?.source;
      return typeof value === 'number' && source !== undefined && String(value) !== source ? new ExactNumber(source) : value;
    });
  }
  const marked = text.replace(/"(?:[^"\\]|\\.)*"|-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?/g, (found) => found.startsWith('"') || String(Number(found)) === found ? found : JSON.stringify(MARK + found));
  return JSON.parse(marked, (_key, value) => typeof value === 'string' && value.startsWith(MARK) ? new ExactNumber(value.slice(MARK.length)) : value);
}

function stringifyExact(value) {
  const text = JSON.stringify(value);
  return keepsNumbers ? text : text.replace(new RegExp(`"${MARK}([^"]*)"`, 'g'), '$1');
}

/** Characters that turn the text after them around are escaped, so that a document looks like what it is. */
export const written = (value) => (JSON.stringify(value) ?? 'null').replace(/[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g, (mark) => `\\u${mark.charCodeAt(0).toString(16).padStart(4, '0')}`);

export const isPlainObject = (value) => value !== null && typeof value === 'object' && !(value instanceof ExactNumber);

/** An answer that is not a success: problem details, or no connection. */
export class ApiProblem extends Error {
  constructor(status, problem) {
    super(problem.detail || problem.title || `the server answered ${status}`);
    this.status = status;
    this.problem = problem;
    this.errors = problem.errors ?? [];
    this.advice = problem.advice ?? [];
  }
}

export function query(params) {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(params ?? {})) {
    for (const one of Array.isArray(value) ? value : [value]) {
      if (one !== undefined && one !== null && one !== '') search.append(name, String(one));
    }
  }
  const text = search.toString();
  return text ? `?${text}` : '';
}

/** A read without an answer for so long is given up: its connection may be gone without an error. */
const READ_MS_MAX = 30_000;

/**
 * @param {string} method
 * @param {string} path below /api/v1
 * @param {{params?: object, body?: unknown, headers?: Record<string, string>, signal?: AbortSignal}} [options]
 */
export async function request(method, path, { params, body, headers, signal: abort } = {}) {
  let answer;
  try {
    answer = await fetch(API + path + query(params), {
      method,
      signal: method === 'GET' ? AbortSignal.any([AbortSignal.timeout(READ_MS_MAX), ...(abort ? [abort] : [])]) : abort,
      headers: { ...(body === undefined ? {} : { 'content-type': 'application/json' }), ...headers },
      body: body === undefined ? undefined : stringifyExact(body),
    });
  } catch (error) {
    if (error.name === 'AbortError') throw error;
    online.value = false;
    throw new ApiProblem(0, { title: 'the server cannot be reached', detail: 'The server cannot be reached. The page retries by itself.' });
  }
  online.value = true;
  lastAnswer.value = Date.now();
  const text = await answer.text();
  let value = null;
  try {
    value = text ? parseExact(text) : null;
  } catch {
    value = { title: answer.statusText || 'the answer is not JSON', detail: text.slice(0, 300) };
  }
  if (answer.ok) return value;
  if (answer.status === 401) session.value = 'out';
  throw new ApiProblem(answer.status, value ?? { title: answer.statusText });
}

/**
 * @template {string} P
 * @param {P} path @param {object} [params] @param {AbortSignal} [abort]
 * @returns {Promise<import('punctual-api').Answer<'get', P>>}
 */
export const get = (path, params, abort) => request('GET', path, { params, signal: abort });
/**
 * @template {string} P
 * @param {P} path @param {unknown} [body] @param {{headers?: Record<string, string>, signal?: AbortSignal}} [more]
 * @returns {Promise<import('punctual-api').Answer<'post', P>>}
 */
export const post = (path, body = {}, more = {}) => request('POST', path, { body, ...more });
/**
 * @template {string} P
 * @param {P} path @param {unknown} body @param {{headers?: Record<string, string>}} [more]
 * @returns {Promise<import('punctual-api').Answer<'put', P>>}
 */
export const put = (path, body, more = {}) => request('PUT', path, { body, ...more });
/**
 * @template {string} P
 * @param {P} path @param {unknown} body @param {{headers?: Record<string, string>}} [more]
 * @returns {Promise<import('punctual-api').Answer<'patch', P>>}
 */
export const patch = (path, body, more = {}) => request('PATCH', path, { body, ...more });
export const remove = (path) => request('DELETE', path);

/**
 * Reads a list until enough is found, it ends, or a number of pages has been read: a filter may leave pages empty.
 * @template {string} P
 * @param {P} path @param {object} params @param {{enough: number, pagesMax?: number, abort?: AbortSignal}} how
 * @returns {Promise<{items: any[], isAll: boolean}>}
 */
export async function readUntil(path, params, { enough, pagesMax = 20, abort }) {
  const items = [];
  let cursor;
  for (let pages = 0; pages < pagesMax && items.length < enough && cursor !== null; pages += 1) {
    /** @type {any} */
    const page = await get(path, { ...params, cursor }, abort);
    items.push(...page.items);
    cursor = page.next_cursor;
  }
  return { items, isAll: cursor === null };
}

/** A part of a path. */
export const part = encodeURIComponent;

/** Logs in with a token, or with the code of a login link. Returns whether it worked. */
export async function logIn(token) {
  const answer = await fetch(`${SERVER}login`, {
    method: 'POST',
    redirect: 'manual',
    headers: { 'content-type': 'application/x-www-form-urlencoded' },
    body: new URLSearchParams({ token, next: '/ui/' }),
  });
  return answer.type === 'opaqueredirect' || answer.ok;
}

export async function logOut() {
  await fetch(`${SERVER}logout`, { method: 'POST', redirect: 'manual' });
  session.value = 'out';
}
