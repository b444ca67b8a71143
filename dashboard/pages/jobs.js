// The list of jobs, and the way to one of them.

import { html, useEffect, useRef, useState } from '../lib.js';
import { get, part } from '../api.js';
import { can } from '../state.js';
import { onExecutions } from '../live.js';
import { params, setParams, typed } from '../router.js';
import { Button, Card, Empty, Head, Icon, Menu, Name, SearchField, Select, Sentence, Status, Table, Time, usePages, wordOf } from '../ui.js';
import { actOnAll, VERBS, verbsFor } from '../actions.js';
import { Views, actOnMatching, useColumns } from '../views.js';
import { count, full, instantOf, zoneFor } from '../time.js';
import { Job } from './job.js';
import { JobForm } from './job-form.js';

/** Filters that a value is added to by hand: what the list calls them, and whether they can be excluded. */
/** @type {[name: string, words: string, excludes?: boolean][]} */
const FIELDS = [
  ['tag', 'tag', true], ['queue', 'queue', true], ['job_type', 'type', true], ['owner', 'owner', true], ['name', 'exact name', true], ['priority', 'priority'], ['payload', 'payload field'], ['payload_has', 'payload has'],
  ['created_after', 'created after'], ['created_before', 'created before'], ['next_run_after', 'next run after'], ['next_run_before', 'next run before'], ['last_run_after', 'last run after'], ['last_run_before', 'last run before'],
];
const MANY = new Set(['tag', 'payload_has', 'not_status']);
const isTime = (name) => /_(after|before)$/.test(name);
const PLAIN = ['q', 'status', 'schedule_type', 'failing'];
const FILTERS = [...PLAIN, 'not_status', ...FIELDS.flatMap(([name, , excludes]) => excludes ? [name, `not_${name}`] : [name])];
const ORDERS = [['', 'Newest first'], ['next_run', 'By next run'], ['name', 'By name'], ['priority', 'By priority'], ['last_run', 'By last run'], ['lateness', 'By lateness']];
/** Jobs that a sorted list shows at first, and when its reader gets to their end: it has one page. */
const SORTED_FIRST = 200;
const SORTED_MAX = 1000;
/** How often executions refresh the jobs on screen, and how many of them. */
const REFRESH_MS = 1000;
const REFRESHED_MAX = 5;

const schedule = (job) => job.schedule_type === 'RECURRING' ? job.schedule_description ?? job.cron_expression ?? job.interval : job.schedule_type === 'ONE_TIME' ? 'Once' : 'At once';

export const lastRun = (job) => job.last_execution ? html`<a href=${`executions/${job.last_execution.execution_id}`}><${Status} of=${job.last_execution.status} title=${job.last_error}/></a>` : html`<span class="muted">–</span>`;

const wordsOf = (name) => {
  const [, words] = FIELDS.find(([field]) => field === name.replace(/^not_/, '')) ?? [name, name.replace(/^not_/, '')];
  return name.startsWith('not_') ? `not ${words}` : words;
};

function Filters({ search }) {
  const set = (name) => (value) => setParams({ [name]: value });
  const chips = [...search].filter(([name]) => (FILTERS.includes(name) && !PLAIN.includes(name)) || name.startsWith('payload.'));
  const [field, setField] = useState('tag');
  const [isNot, setNot] = useState('');
  const [value, setValue] = useState('');
  const zone = zoneFor();
  const [, , excludes] = FIELDS.find(([name]) => name === field);
  const add = (event) => {
    event.preventDefault();
    const wanted = value.trim();
    if (!wanted) return;
    let [name, text] = [excludes && isNot ? `not_${field}` : field, wanted];
    if (field === 'payload') [name, text] = [`payload.${wanted.split('=')[0].trim()}`, wanted.split('=').slice(1).join('=').trim()];
    if (isTime(field)) {
      const [, year, month, day, hour, minute] = /^(\d+)-(\d+)-(\d+)T(\d+):(\d+)/.exec(wanted).map(Number);
      text = new Date(instantOf({ year, month, day, hour, minute }, zone)).toISOString();
    }
    setParams({ [name]: MANY.has(name) || name.startsWith('not_') ? [...search.getAll(name).filter((one) => one !== text), text] : text });
    setValue('');
  };
  const [status, notStatus] = [search.get('status') ?? '', search.getAll('not_status')];
  const words = ['ACTIVE', 'PAUSED', 'COMPLETED', 'FAILED', 'CANCELLED'];
  const setStatus = (word) => setParams(word.startsWith('!') ? { status: null, not_status: [...new Set([...notStatus, word.slice(1)])] } : { status: word, not_status: null });
  const [isOpen, setOpen] = useState(false);
  return html`<div class=${`filters ${isOpen ? 'open' : ''}`}>
    <${SearchField} label="Search jobs" placeholder="Name, type, tag or id" value=${search.get('q') ?? ''} onChange=${typed('q')}/>
    <${Button} small kind="only-small" icon="filter" aria-expanded=${String(isOpen)} onClick=${() => setOpen(!isOpen)}>Filters</${Button}>
    <${Select} class="fold" aria-label="Status" value=${status} onChange=${setStatus} options=${[['', 'Any status'], ...words.map((word) => [word, wordOf(word)]), ...words.map((word) => [`!${word}`, `not ${wordOf(word)}`])]}/>
    <${Select} class="fold" aria-label="Schedule" value=${search.get('schedule_type') ?? ''} onChange=${set('schedule_type')} options=${[['', 'Any schedule'], ['RECURRING', 'recurring'], ['ONE_TIME', 'one time'], ['IMMEDIATE', 'immediate']]}/>
    <${Select} class="fold" aria-label="Outcome" value=${search.get('failing') ?? ''} onChange=${set('failing')} options=${[['', 'Any outcome'], ['true', 'failing'], ['false', 'not failing']]}/>
    <form class="row tight fold" onSubmit=${add}>
      <${Select} aria-label="Filter by" value=${field} onChange=${(name) => { setField(name); setValue(''); }} options=${FIELDS.filter(([name]) => !name.startsWith('payload') || can('payload:read'))}/>
      ${excludes && html`<${Select} aria-label="Include or exclude" value=${isNot} onChange=${setNot} options=${[['', 'is'], ['not', 'is not']]}/>`}
      <input aria-label=${isTime(field) ? `Value, in ${zone}` : 'Value'} title=${isTime(field) ? `in ${zone}` : undefined} type=${isTime(field) ? 'datetime-local' : 'text'} placeholder=${{ payload: 'customer=42', payload_has: 'order.id' }[field] ?? 'value'} size="12" value=${value} onInput=${(event) => setValue(event.target.value)}/>
      <button class="button small" aria-label="Add filter" title="Add filter"><${Icon} name="plus"/></button>
    </form>
    <${Views} page="jobs"/>
    ${chips.map(([name, text]) => html`<button type="button" class="chip" key=${name + text} title="Remove this filter" onClick=${() => setParams({ [name]: search.getAll(name).filter((one) => one !== text) })}><span class="muted">${wordsOf(name)}</span> <${Name}>${isTime(name) ? full(text, zone) : name === 'not_status' ? wordOf(text) : text}</${Name}> <${Icon} name="x"/><span class="sr">remove</span></button>`)}
  </div>`;
}

function JobsList() {
  const search = params();
  const filter = {};
  for (const name of search.keys()) if (FILTERS.includes(name) || name.startsWith('payload.')) filter[name] = search.getAll(name);
  const sort = search.get('sort') ?? '';
  const [deep, setDeep] = useState('');
  const isDeep = deep === `${sort} ${JSON.stringify(filter)}`;
  const pages = usePages('jobs', sort ? { ...filter, sort } : filter, { limit: !sort ? 100 : isDeep ? SORTED_MAX : SORTED_FIRST, every: 5000, keyOf: (job) => job.job_id });
  useEffect(() => { if (isDeep) pages.reload(); }, [isDeep]);
  const listed = sort && !isDeep && pages.items.length === SORTED_FIRST ? { ...pages, next: 'more', more: () => setDeep(`${sort} ${JSON.stringify(filter)}`) } : pages;
  const [picked, setPicked] = useState(new Set());
  // Whether the selection is everything that matches, also beyond what is loaded.
  const [isMatching, setMatching] = useState(false);
  const pick = (next) => { setPicked(next); setMatching(false); };
  useEffect(() => pick(new Set()), [JSON.stringify(filter)]);
  const known = useRef(new Set());
  known.current = new Set(pages.items.map((job) => job.job_id));
  // Executions that end refresh their jobs on screen: a few, and not more often than a reader can follow.
  useEffect(() => {
    let [timer, ids] = [0, new Set()];
    const refresh = () => {
      timer = 0;
      for (const id of [...ids].slice(0, REFRESHED_MAX)) {
        get(`jobs/${id}`).then((fresh) => pages.change((items) => items.map((job) => job.job_id === id ? fresh : job)), (error) => {
          if (error.status === 404) pages.change((items) => items.filter((job) => job.job_id !== id));
        });
      }
      ids = new Set();
    };
    const stop = onExecutions((batch) => {
      for (const one of batch) if (one.completed_at && known.current.has(one.job_id)) ids.add(one.job_id);
      if (ids.size) timer ||= setTimeout(refresh, REFRESH_MS);
    });
    return () => { clearTimeout(timer); stop(); };
  }, []);
  const { columns, menu } = useColumns('jobs', [
    { id: 'name', label: 'Name', cell: (job) => html`<a class="main cut" href=${`jobs/${job.job_id}`}><${Name}>${job.name}</${Name}></a>` },
    { id: 'status', label: 'Status', cell: (job) => html`<${Status} of=${job.status} title=${job.status_reason}/>` },
    { id: 'last', label: 'Last run', cell: lastRun },
    { id: 'next', label: 'Next run', cell: (job) => html`<span class="nowrap"><${Time} at=${job.next_retry_time ?? job.next_run_time} zone=${job.timezone}/>${job.next_run_time && html` <span class="muted small"><${Time} at=${job.next_retry_time ?? job.next_run_time} style="relative"/></span>`}</span>` },
    { id: 'schedule', label: 'Schedule', cell: (job) => html`<span class="cut muted" title=${schedule(job)}><${Sentence} text=${schedule(job)} zone=${job.timezone}/></span>` },
    { id: 'type', label: 'Type', cell: (job) => html`<span class="cut"><${Name}>${job.job_type}</${Name}></span>` },
    { id: 'queue', label: 'Queue', cell: (job) => html`<a class="cut" href=${`jobs?queue=${part(job.queue)}`}><${Name}>${job.queue}</${Name}></a>` },
    { id: 'owner', label: 'Owner', cell: (job) => html`<span class="cut"><${Name}>${job.owner_id}</${Name}></span>` },
    { id: 'priority', label: 'Priority', num: true, cell: (job) => job.priority },
    { id: 'tags', label: 'Tags', cell: (job) => html`<span class="row tight" style=${{ flexWrap: 'nowrap', overflow: 'hidden' }}>${job.tags.slice(0, 3).map((tag) => html`<a class="chip cut" href=${`jobs?tag=${part(tag)}`}><${Name}>${tag}</${Name}></a>`)}</span>` },
    { id: 'created', label: 'Created', cell: (job) => html`<${Time} at=${job.created_at}/>` },
    { id: 'actions', label: '', cell: (job) => { const items = verbsFor(job, pages.reload); return items.length > 0 && html`<${Menu} small kind="plain" label=${`Actions on ${job.name}`} items=${items}/>`; } },
  ], ['owner', 'priority', 'created'], [sort, JSON.stringify(filter)]);
  const chosen = pages.items.filter((job) => picked.has(job.job_id));
  const compared = pages.extra?.compared;
  const act = (id) => isMatching ? actOnMatching(id, { target: 'jobs', filter }) : actOnAll(id, chosen, () => { pick(new Set()); pages.reload(); });
  const order = ORDERS.find(([id]) => id === sort)?.[1].toLowerCase() ?? 'newest first';
  return html`<${Head} title="Jobs" about=${`Every job that you may see, ${order}.`}>
      <${Select} class="order" aria-label="Order" value=${sort} onChange=${(order) => setParams({ sort: order })} options=${ORDERS}/>
      ${menu}
      ${can('jobs:write') && html`<${Button} kind="primary" icon="plus" href="jobs/new">New job</${Button}>`}
    </${Head}>
    <${Card} flush>
      <${Filters} search=${search}/>
      ${chosen.length > 0 && html`<div class="filters" role="region" aria-label="Selected jobs"><strong>${isMatching ? 'Everything that matches is selected' : `${chosen.length} selected`}</strong>
        ${!isMatching && chosen.length === pages.items.length && html`<${Button} small kind="plain" onClick=${() => setMatching(true)}>Select everything that matches</${Button}>`}
        ${Object.entries(VERBS).map(([id, verb]) => html`<${Button} key=${id} small icon=${verb.icon} kind=${verb.danger ? 'danger' : ''} onClick=${() => act(id)}>${verb.text}${isMatching ? '…' : ''}</${Button}>`)}<span class="spring"></span><${Button} small kind="plain" onClick=${() => pick(new Set())}>Clear</${Button}></div>`}
      ${compared && !compared.complete && html`<div class="filters muted small">In order among the latest ${count(compared.jobs)} jobs that match. Narrow the filters to compare all of them.</div>`}
      <${Table} label="Jobs" columns=${columns} items=${pages.items} pages=${listed} keyOf=${(job) => job.job_id} picked=${can('jobs:write') ? picked : undefined} onPick=${pick}
        empty=${html`<${Empty} icon="jobs" title=${Object.keys(filter).length ? 'No job matches these filters' : 'There are no jobs yet'}>${Object.keys(filter).length ? html`<a href="jobs">Remove the filters</a>` : can('jobs:write') ? html`<a href="jobs/new">Create the first one</a>, or submit one with the command line.` : 'Jobs appear here when somebody submits them.'}</${Empty}>`}/>
    </${Card}>`;
}

export default function Jobs({ rest }) {
  const [id, what] = rest;
  if (id === 'new') return html`<${JobForm}/>`;
  if (id && what === 'edit') return html`<${JobForm} id=${id}/>`;
  if (id) return html`<${Job} id=${id}/>`;
  return html`<${JobsList}/>`;
}
