// What lists have in common: saved views, columns by choice, and actions on everything that matches.

import { html, signal, useEffect, useMemo } from './lib.js';
import { get, part, post, put, remove } from './api.js';
import { ask, attempt, hiddenColumns, me } from './state.js';
import { go, place } from './router.js';
import { Field, Menu, Name, Notice, Status, wordOf } from './ui.js';
import { VERBS } from './actions.js';
import { count } from './time.js';

/** The saved views of the caller; null until they are read. */
const views = signal(null);
let viewsOf = null;
async function readViews() {
  const who = me.peek()?.token_id;
  if (viewsOf === who) return;
  viewsOf = who;
  try {
    views.value = (await get('views')).items;
  } catch {
    viewsOf = null;
  }
}
/** Filters are saved without what only says how far the page has got. */
const queryOf = () => { const search = new URLSearchParams(place.value.search); search.delete('tab'); return search.toString(); };

/** The saved views of one page. */
export function Views({ page }) {
  useEffect(() => { readViews(); }, []);
  const own = (views.value ?? []).filter((view) => view.page === page);
  const query = queryOf();
  const current = own.find((view) => view.query === query);
  const save = async () => {
    const answer = await ask({
      title: 'Save this view', action: 'Save',
      body: html`<p class="muted">Keeps the filters and the order of this list under a name. Only you see it, in every browser where you log in.</p><${Field} label="Name"><input name="name" required maxlength="80" autofocus value=${current?.name ?? ''}/></${Field}>`,
    });
    const name = answer?.name.trim();
    if (!name) return;
    const saved = await attempt(() => put(`views/${part(name)}`, { page, query }), `Saved: ${name}`);
    if (saved) views.value = [...(views.value ?? []).filter((view) => view.name !== name), saved].sort((a, b) => a.name.localeCompare(b.name));
  };
  const forget = async () => {
    if (await attempt(() => remove(`views/${part(current.name)}`), `Removed: ${current.name}`) === undefined) return;
    views.value = views.value.filter((view) => view !== current);
  };
  return html`<${Menu} label="Saved views" icon="star" small text=${current ? html`<${Name}>${current.name}</${Name}>` : 'Views'} items=${[
    ...own.map((view) => ({ text: html`<${Name}>${view.name}</${Name}>`, on: view === current, run: () => go(page + (view.query ? `?${view.query}` : '')) })),
    own.length ? '-' : { about: 'No view of this list is saved.' },
    { text: 'Save this view', icon: 'plus', run: save },
    current && { text: html`Remove <${Name}>${current.name}</${Name}>`, icon: 'trash', danger: true, run: forget },
  ]}/>`;
}

/** The columns of a list that are shown, and how to choose them. The first one always is. `keys`: what their cells depend on besides an item. */
export function useColumns(list, columns, hiddenAtFirst, keys) {
  const hidden = hiddenColumns.value[list] ?? hiddenAtFirst;
  const set = (next) => { hiddenColumns.value = { ...hiddenColumns.value, [list]: next }; };
  const toggle = (id) => set(hidden.includes(id) ? hidden.filter((one) => one !== id) : [...hidden, id]);
  const choices = columns.filter((column, index) => column.label && index > 0).map((column) => ({ text: column.label, on: !hidden.includes(column.id), stays: true, run: () => toggle(column.id) }));
  return {
    columns: useMemo(() => columns.map((column) => ({ ...column, hide: hidden.includes(column.id) })), [hidden.join(), ...keys]),
    menu: html`<${Menu} label="Columns" icon="columns" text=${html`<span class="hide-small">Columns</span>`} items=${[...choices, '-', { text: 'As at first', icon: 'retry', run: () => set(hiddenAtFirst) }]}/>`,
  };
}

/** A filter of an address as the body of a bulk operation. */
const bodyOf = (filter) => Object.fromEntries(Object.entries(filter).map(([name, value]) => [name, Array.isArray(value) && value.length === 1 ? value[0] : value]));

/**
 * Shows what an action on everything that matches would do, asks, starts it, and goes to its progress.
 * @param {string} action a verb of POST /bulk
 * @param {{target: 'jobs'|'executions', filter: Record<string, any>}} what
 */
export async function actOnMatching(action, { target, filter }) {
  const { text: one_, many: text = one_, about, danger } = VERBS[action];
  const body = { action, target, filter: bodyOf(filter), ...(Object.keys(filter).length ? {} : { all: true }) };
  const tried = await attempt(() => post('bulk', { ...body, dry_run: true }));
  if (!tried) return;
  const number = `${tried.matched_is_exact ? '' : 'at least '}${count(tried.matched)}`;
  if (!Number(tried.matched)) {
    await ask({ title: 'Nothing to do', isNews: true, body: html`<p>Nothing matches these filters that you may change.</p>` });
    return;
  }
  const refused = tried.sample.filter((one) => one.refusal);
  const words = Object.entries(filter).flatMap(([name, value]) => [value].flat().map((one) => `${name} ${one}`));
  const answer = await ask({
    title: `${text} ${number} ${target}?`, danger, wide: true, action: `${text} ${number}`,
    body: html`<p class="muted">${target === 'jobs' ? about : 'Each ends if it has not started. If it runs, its worker is asked to stop it.'}</p>
      <p>${words.length ? html`Everything that matches now: ${words.map((one) => html`<span class="chip" key=${one}>${one}</span> `)}` : html`<strong>Everything, because there is no filter.</strong>`} Whatever is added later is not touched.</p>
      ${refused.length > 0 && html`<${Notice} kind="warn">Of the first ${tried.sample.length}, ${refused.length} would be left unchanged: ${refused[0].refusal}.</${Notice}>`}
      <ul class="list sample" aria-label="The first that match">${tried.sample.slice(0, 8).map((one) => html`<li key=${one.id}><${Status} of=${one.status}/><span class="cut grow"><${Name}>${one.name}</${Name}></span>${one.refusal && html`<span class="muted small">${one.refusal}</span>`}</li>`)}</ul>`,
  });
  if (answer === undefined) return;
  const started = await attempt(() => post('bulk', body, { headers: { 'idempotency-key': crypto.randomUUID?.() ?? String(Math.random()) } }), `Started: ${wordOf(action)} ${number} ${target}`);
  if (started?.operation_id) go(`operations/${part(started.operation_id)}`);
}
