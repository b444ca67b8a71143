// Creating, cloning and editing a job. A preview shows what the schedule means, before and after.

import { html, useEffect, useState } from '../lib.js';
import { get, parseExact, part, post, put } from '../api.js';
import { can, say } from '../state.js';
import { go, params } from '../router.js';
import { Button, Card, Empty, Failure, Field, Head, Icon, Notice, Segmented, Select, Sentence, pretty, useRead } from '../ui.js';
import { definition } from '../definition.js';
import { BROWSER_ZONE } from '../time.js';
import { Fires } from './job.js';

const ZONES = typeof Intl.supportedValuesOf === 'function' ? ['UTC', ...Intl.supportedValuesOf('timeZone').filter((zone) => zone !== 'UTC')] : ['UTC', BROWSER_ZONE];
const SCHEDULES = [['now', 'At once'], ['at', 'At a time'], ['delay', 'After a delay'], ['cron', 'Cron'], ['interval', 'Interval'], ['rrule', 'Rule'], ['many', 'Several']];
const RECURRING = ['cron', 'interval', 'rrule', 'many'];
/** Which field a kind of schedule is in. */
const FIELD_OF = { cron: 'cron_expression', interval: 'interval', rrule: 'rrule', many: 'schedules' };
/** Fields with an input of their own. All others are in the JSON of "More fields". */
const SHOWN = ['name', 'job_type', 'queue', 'priority', 'payload', 'tags', 'cron_expression', 'interval', 'rrule', 'schedules', 'timezone', 'execute_at', 'delay', 'max_retries', 'timeout_secs', 'schedule_type', 'overlap_policy', 'misfire_policy'];

function formOf(job) {
  const spec = definition(job);
  const kind = spec.schedules ? 'many' : spec.cron_expression ? 'cron' : spec.interval ? 'interval' : spec.rrule ? 'rrule' : spec.execute_at ? 'at' : 'now';
  const more = Object.fromEntries(Object.entries(spec).filter(([name]) => !SHOWN.includes(name)));
  return {
    name: job.name ?? '', job_type: job.job_type ?? '', queue: job.queue ?? 'default', priority: String(job.priority ?? 5), kind,
    execute_at: job.execute_at ?? '', delay: '10m', cron_expression: job.cron_expression ?? '0 9 * * MON-FRI', interval: job.interval ?? '1h', rrule: job.rrule ?? 'FREQ=MONTHLY;BYDAY=-1FR;BYHOUR=9', schedules: pretty(spec.schedules ?? [{ cron_expression: '0 9 * * MON-FRI' }, { cron_expression: '0 11 * * SAT' }]), timezone: job.timezone ?? (job.job_id ? 'UTC' : BROWSER_ZONE),
    overlap_policy: job.overlap_policy ?? 'SKIP', misfire_policy: job.misfire_policy ?? 'SKIP_MISSED',
    payload: job.payload === undefined || job.payload === null ? '' : pretty(job.payload), tags: (job.tags ?? []).join(', '), max_retries: String(job.max_retries ?? 3), timeout_secs: String(job.timeout_secs ?? 3600),
    more: Object.keys(more).length ? pretty(more) : '',
  };
}

const parsed = (form, name, label) => {
  if (!form[name].trim()) return undefined;
  try { return parseExact(form[name]); } catch (error) { throw Object.assign(new Error(`${label} is not JSON: ${error.message}`), { errors: [{ field: name, detail: `is not JSON: ${error.message}` }] }); }
};

function scheduleOf(form) {
  if (form.kind === 'many') return { schedules: parsed(form, 'schedules', 'Schedules') ?? [], timezone: form.timezone };
  return { now: { schedule_type: 'IMMEDIATE' }, at: { execute_at: form.execute_at }, delay: { delay: form.delay }, cron: { cron_expression: form.cron_expression, timezone: form.timezone }, interval: { interval: form.interval, timezone: form.timezone }, rrule: { rrule: form.rrule, timezone: form.timezone } }[form.kind];
}

function jobOf(form) {
  const isRecurring = RECURRING.includes(form.kind);
  return {
    ...parsed(form, 'more', 'More fields'), name: form.name, ...(form.job_type ? { job_type: form.job_type } : {}), queue: form.queue || 'default', priority: Number(form.priority), ...scheduleOf(form),
    ...(isRecurring ? { overlap_policy: form.overlap_policy, misfire_policy: form.misfire_policy } : {}),
    payload: parsed(form, 'payload', 'The payload') ?? null, tags: form.tags.split(',').map((tag) => tag.trim()).filter(Boolean), max_retries: Number(form.max_retries), timeout_secs: Number(form.timeout_secs),
  };
}

function Preview({ form, before, stored }) {
  const isRecurring = RECURRING.includes(form.kind);
  const key = JSON.stringify([form.kind, form.cron_expression, form.interval, form.rrule, form.schedules, form.timezone, form.name]);
  const [settled, setSettled] = useState(key);
  useEffect(() => { const timer = setTimeout(() => setSettled(key), 300); return () => clearTimeout(timer); }, [key]);
  const { data, error } = useRead([settled], async (abort) => isRecurring ? post('schedules/preview', { ...scheduleOf(form), count: 12, ...(form.name.trim() ? { name: form.name.trim() } : {}) }, { signal: abort }) : null);
  const zone = form.timezone || 'UTC';
  // The same schedule keeps its rhythm.
  const isSame = before && form.kind === stored.kind && form[FIELD_OF[form.kind]] === stored[FIELD_OF[form.kind]] && form.timezone === stored.timezone;
  if (isSame) return html`<${Card} title="When it runs" flush extra=${html`<span class="muted small">unchanged</span>`}><div class="body"><strong><${Sentence} text=${data?.description} zone=${zone}/></strong></div><${Fires} occurrences=${before} zone=${zone}/></${Card}>`;
  if (!isRecurring) return html`<${Card} title="When it runs"><p>${form.kind === 'now' ? 'As soon as it is saved.' : form.kind === 'delay' ? `${form.delay} after it is saved.` : `Once, at ${form.execute_at || '…'}.`}</p></${Card}>`;
  return html`<${Card} title="When it runs" flush foot=${data?.dst_gap ? `When clocks change: a skipped time is ${data.dst_gap === 'SKIP' ? 'skipped' : 'run right after'}, a repeated one runs ${{ FIRST: 'the first time', SECOND: 'the second time', BOTH: 'both times' }[data.dst_overlap]}.` : undefined}>
    ${error ? html`<div class="body"><${Notice} kind="bad">${error.errors?.length ? error.errors.map(({ field, detail }) => `${field} ${detail}`).join('; ') : error.message}</${Notice}></div>`
      : data ? html`<div class="body"><strong><${Sentence} text=${data.description} zone=${zone}/></strong></div><${Fires} occurrences=${data.occurrences} zone=${zone} others=${before}/>` : html`<div class="body muted">…</div>`}
  </${Card}>
  ${before && html`<${Card} title="Before the change" flush><${Fires} label="Fires before the change" occurrences=${before.slice(0, 12)} zone=${zone}/></${Card}>`}`;
}

export function JobForm({ id }) {
  const from = id ?? params().get('from');
  const stored = useRead([from], (abort) => from ? get(`jobs/${part(from)}`, undefined, abort) : Promise.resolve(/** @type {import('punctual-api').Of<'Job'>} */ ({})));
  const before = useRead([id], (abort) => id ? get(`jobs/${part(id)}/next`, { count: 12 }, abort).then((preview) => preview.occurrences) : Promise.resolve(undefined));
  const [form, setForm] = useState(/** @type {any} */ (null));
  const [wrong, setWrong] = useState(/** @type {Record<string, string>} */ ({}));
  const [isBusy, setBusy] = useState(false);
  useEffect(() => {
    if (stored.data && !form) setForm({ ...formOf(stored.data), ...(from && !id ? { name: `${stored.data.name} copy` } : {}), ...Object.fromEntries(['cron_expression', 'timezone', 'interval'].filter((name) => params().get(name)).flatMap((name) => [[name, params().get(name)], ...(name === 'timezone' ? [] : [['kind', name === 'interval' ? 'interval' : 'cron']])])) });
  }, [stored.data]);
  if (stored.error && !form) return html`<${Head} title="Job"/><${Failure} error=${stored.error}/>`;
  if (!form) return html`<p class="muted" role="status">Loading…</p>`;
  if (!can('jobs:write')) return html`<${Head} title="New job"/><${Empty} icon="ban" title="Not permitted">Your role may not submit jobs.</${Empty}>`;
  const set = (name) => (event) => setForm({ ...form, [name]: event?.target ? event.target.value : event });
  const input = (name, more = {}) => html`<input name=${name} value=${form[name]} onInput=${set(name)} ...${more}/>`;
  const save = async (event) => {
    event.preventDefault();
    setBusy(true);
    setWrong({});
    try {
      const job = jobOf(form);
      const answer = id ? await put(`jobs/${part(id)}`, job, { headers: { 'if-match': `"${stored.data.version}"` } }) : await post('jobs', job);
      say(id ? `Saved ${form.name}` : `Submitted ${form.name}`);
      go(`jobs/${answer.job_id}`);
    } catch (error) {
      setWrong({ ...Object.fromEntries((error.errors ?? []).map(({ field, detail }) => [SHOWN.includes(field.split(/[.[]/)[0]) ? field.split(/[.[]/)[0] : 'more', `${field} ${detail}`])), '': error.status === 412 ? 'Somebody has changed this job since you opened it. Reload the page to see the change, then edit again.' : error.message });
    }
    setBusy(false);
  };
  return html`<${Head} title=${id ? `Edit ${stored.data.name}` : from ? 'Clone a job' : 'New job'} crumbs=${html`<a href="jobs">Jobs</a>${id && html`<${Icon} name="chevron-right"/><a href=${`jobs/${id}`}>${stored.data.name}</a>`}`}/>
    <form class="grid" onSubmit=${save} novalidate>
      <div class="span-7 stack">
        ${wrong[''] && html`<${Notice} kind="bad">${wrong['']}</${Notice}>`}
        <${Card} title="What"><div class="form">
          <${Field} label="Name" wrong=${wrong.name}>${input('name', { required: true, autocomplete: 'off' })}</${Field}>
          <${Field} label="Type" hint="Which handler runs it; noop, sleep and http are built in" wrong=${wrong.job_type}>${input('job_type', { placeholder: 'as the name', autocomplete: 'off' })}</${Field}>
          <${Field} wide label="Payload (JSON)" hint="Passed to the handler. Numbers are kept exactly as you write them." wrong=${wrong.payload}><textarea class="code" rows="6" spellcheck=${false} value=${form.payload} onInput=${set('payload')}></textarea></${Field}>
          <${Field} label="Queue" wrong=${wrong.queue}>${input('queue')}</${Field}>
          <${Field} label="Priority" hint="1 to 10; higher starts first" wrong=${wrong.priority}>${input('priority', { type: 'number', min: 1, max: 10 })}</${Field}>
          <${Field} wide label="Tags" hint="Separated by commas" wrong=${wrong.tags}>${input('tags')}</${Field}>
        </div></${Card}>
        <${Card} title="When"><div class="form">
          <div class="wide"><${Segmented} label="Schedule" options=${SCHEDULES} value=${form.kind} onChange=${set('kind')}/></div>
          ${form.kind === 'at' && html`<${Field} wide label="Time" hint="RFC 3339, such as 2026-12-24T18:00:00+01:00" wrong=${wrong.execute_at}>${input('execute_at')}</${Field}>`}
          ${form.kind === 'delay' && html`<${Field} wide label="Delay" hint="30s, 10m, 1h30m, 2d" wrong=${wrong.delay}>${input('delay')}</${Field}>`}
          ${form.kind === 'cron' && html`<${Field} label="Cron expression" hint="minute hour day month weekday; H picks a fixed value" wrong=${wrong.cron_expression}>${input('cron_expression', { class: 'mono', spellcheck: false })}</${Field}>`}
          ${form.kind === 'interval' && html`<${Field} label="Interval" hint="90s, 15m, PT3H, P1D, monthly" wrong=${wrong.interval}>${input('interval')}</${Field}>`}
          ${form.kind === 'rrule' && html`<${Field} label="Recurrence rule" hint="As in iCalendar (RFC 5545)" wrong=${wrong.rrule}>${input('rrule', { class: 'mono', spellcheck: false })}</${Field}>`}
          ${form.kind === 'many' && html`<${Field} wide label="Schedules (JSON)" hint="It runs whenever one of them says so. Each has cron_expression, interval or rrule, and if you like a timezone, start_at and end_at of its own." wrong=${wrong.schedules}><textarea class="code" rows="8" spellcheck=${false} value=${form.schedules} onInput=${set('schedules')}></textarea></${Field}>`}
          ${RECURRING.includes(form.kind) && html`<${Field} label="Time zone" wrong=${wrong.timezone}>${input('timezone', { list: 'zones', autocomplete: 'off' })}</${Field}>
            <${Field} label="If the last run is still open" wrong=${wrong.overlap_policy}><${Select} value=${form.overlap_policy} onChange=${set('overlap_policy')} options=${[['SKIP', 'skip this one'], ['QUEUE', 'wait for it'], ['ALLOW', 'run both'], ['REPLACE', 'cancel the open one']]}/></${Field}>
            <${Field} label="If a time was missed" wrong=${wrong.misfire_policy}><${Select} value=${form.misfire_policy} onChange=${set('misfire_policy')} options=${[['SKIP_MISSED', 'skip it'], ['RUN_ONCE', 'run the latest'], ['RUN_ALL', 'run all']]}/></${Field}>`}
          <datalist id="zones">${ZONES.map((zone) => html`<option value=${zone}/>`)}</datalist>
        </div></${Card}>
        <${Card} title="If it fails"><div class="form">
          <${Field} label="Retries" wrong=${wrong.max_retries}>${input('max_retries', { type: 'number', min: 0, max: 1000 })}</${Field}>
          <${Field} label="Timeout of an attempt, in seconds" wrong=${wrong.timeout_secs}>${input('timeout_secs', { type: 'number', min: 0, step: 'any' })}</${Field}>
          <${Field} wide label="More fields (JSON)" hint="Any other field of POST /jobs, such as retry, expires_after, concurrency_key or max_runs" wrong=${wrong.more}><textarea class="code" rows="4" spellcheck=${false} value=${form.more} onInput=${set('more')}></textarea></${Field}>
        </div></${Card}>
        <div class="row"><button class="button primary" disabled=${isBusy}>${id ? 'Save' : 'Submit'}</button><${Button} href=${id ? `jobs/${id}` : 'jobs'}>Cancel</${Button}></div>
      </div>
      <div class="span-5 stack"><${Preview} form=${form} stored=${id ? formOf(stored.data) : null} before=${before.data?.length ? before.data : undefined}/></div>
    </form>`;
}
