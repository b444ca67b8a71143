// Addresses. The path names the page, the query its filters, so that every view can be shared and the back button works.

import { signal } from './lib.js';
import { ROOT } from './api.js';

const read = () => ({ path: location.href.startsWith(ROOT) ? location.pathname.slice(new URL(ROOT).pathname.length) : '', search: location.search });
export const place = signal(read());
/** The parts of the path. */
export const segments = () => place.value.path.split('/').filter(Boolean).map((text) => { try { return decodeURIComponent(text); } catch { return text; } });

addEventListener('popstate', () => { place.value = read(); });

/** Goes to an address of the dashboard, relative to its root. */
export function go(to, { replace = false } = {}) {
  const url = new URL(to, ROOT);
  if (url.href !== location.href) history[replace ? 'replaceState' : 'pushState'](null, '', url);
  const before = place.peek().path;
  place.value = read();
  if (!replace && place.value.path !== before) {
    scrollTo(0, 0);
    requestAnimationFrame(() => document.querySelector('main')?.focus({ preventScroll: true }));
  }
}

// Plain links work in new tabs; a plain click stays on this page.
addEventListener('click', (event) => {
  const link = event.target instanceof Element && event.target.closest('a[href]');
  if (!(link instanceof HTMLAnchorElement) || event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey || link.target || link.download) return;
  if (!link.href.startsWith(ROOT) || link.getAttribute('href').startsWith('#')) return;
  event.preventDefault();
  go(link.href);
});

export const params = () => new URLSearchParams(place.value.search);

/** Changes some parameters of this address; null removes one. The back button undoes it, unless `replace` is set: for text, letter by letter. */
export function setParams(changes, { replace = false } = {}) {
  const search = params();
  for (const [name, value] of Object.entries(changes)) {
    search.delete(name);
    for (const one of Array.isArray(value) ? value : [value]) if (one !== null && one !== undefined && one !== '') search.append(name, one);
  }
  const text = search.toString();
  go(place.peek().path + (text ? `?${text}` : ''), { replace });
}
/** For the `onChange` of a text field. */
export const typed = (name) => (value) => setParams({ [name]: value }, { replace: true });
