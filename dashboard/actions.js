// Actions on jobs and what belongs to them. Each says what it means before it is done.

import { html } from './lib.js';
import { parseExact, part, post, remove } from './api.js';
import { ask, attempt, can } from './state.js';
import { Field, Name, pretty } from './ui.js';
import { go, segments } from './router.js';

export const short = (id) => id.slice(0, 8);
const named = (job) => html`<${Name}>${job.name}</${Name}>`;

/** What each verb means, for one job and for many. */
export const VERBS = {
  pause: { icon: 'pause', text: 'Pause', done: 'Paused', fits: (job) => job.status === 'ACTIVE', about: 'Running executions finish; everything else waits until you resume. Occurrences of a recurring job that fall due meanwhile are skipped.' },
  resume: { icon: 'play', text: 'Resume', done: 'Resumed', fits: (job) => job.status === 'PAUSED', about: 'A recurring job continues with its next occurrence; a one-time job whose time has passed runs now.' },
  trigger: { icon: 'zap', text: 'Run now', many: 'Run', done: 'Started', fits: (job) => job.status !== 'CANCELLED', about: 'Starts one more occurrence now. The schedule does not change.' },
  retry: { icon: 'retry', text: 'Retry', done: 'Retrying', fits: (job) => job.status === 'FAILED', about: 'Adds an attempt to the latest occurrence that failed for good, with a fresh retry budget.' },
  cancel: { icon: 'ban', text: 'Cancel', done: 'Cancelled', danger: true, fits: (job) => ['ACTIVE', 'PAUSED'].includes(job.status), about: 'Stops the job for good: waiting executions are dropped, running ones are asked to stop. It cannot be resumed.' },
  delete: { icon: 'trash', text: 'Delete', done: 'Deleted', danger: true, fits: () => true, about: 'Cancels the job and hides it with its history at once. This cannot be undone.' },
};

const send = (verb, id, body) => verb === 'delete' ? remove(`jobs/${part(id)}`) : post(`jobs/${part(id)}/${verb}`, body);

/** A payload for one run. */
export const payloadField = (payload) => html`<${Field} label="Payload of this run (JSON)" hint="Replaces the payload for this run and its retries only."><textarea class="code" name="payload" rows="6" spellcheck=${false}>${pretty(payload ?? null)}</textarea></${Field}>`;
/** The body of a trigger: the payload only if it was edited. */
export const withPayload = (text, before) => text.trim() === pretty(before ?? null) ? {} : { payload: parseExact(text) };

/** Asks, acts and says how it went. Returns whether it was done. */
export async function act(verb, job, after) {
  const { text, about, done, danger } = VERBS[verb];
  const edits = verb === 'trigger' && can('payload:read') ? payloadField(job.payload) : null;
  const answer = await ask({ title: verb === 'trigger' ? 'Run this job now?' : `${text} this job?`, danger, action: text, body: html`<p>${named(job)}</p><p class="muted">${about}</p>${edits}` });
  if (answer === undefined) return false;
  const result = await attempt(() => send(verb, job.job_id, edits ? withPayload(answer.payload, job.payload) : undefined), `${done}: ${job.name}`);
  if (result === undefined) return false;
  // The page of a job that is gone has nothing to read again.
  if (verb === 'delete' && segments().length > 1) { go('jobs'); return true; }
  if (verb === 'trigger' && result?.execution_id) go(`executions/${part(result.execution_id)}`);
  after?.();
  return true;
}

/** The same for many jobs, a few at a time. */
export async function actOnAll(verb, jobs, after) {
  const { text: one, many: text = one, about, done, danger, fits } = VERBS[verb];
  const fitting = jobs.filter(fits);
  const others = jobs.length - fitting.length;
  if (!fitting.length) {
    await ask({ title: 'Nothing to do', isNews: true, body: html`<p>None of the ${jobs.length} selected jobs can be changed this way in its current status.</p>` });
    return;
  }
  const answer = await ask({
    title: `${text} ${fitting.length} ${fitting.length === 1 ? 'job' : 'jobs'}?`, danger, action: `${text} ${fitting.length}`,
    body: html`<p class="muted">${about}</p>${others > 0 && html`<p>${others} of the selected jobs ${others === 1 ? 'is' : 'are'} left out: the status does not allow it.</p>`}<ul>${fitting.slice(0, 8).map((job) => html`<li class="cut">${named(job)}</li>`)}${fitting.length > 8 && html`<li class="muted">and ${fitting.length - 8} more</li>`}</ul>`,
  });
  if (answer === undefined) return;
  await attempt(async () => {
    const failed = [];
    const left = [...fitting];
    const work = async () => {
      for (let job = left.shift(); job; job = left.shift()) {
        try { await send(verb, job.job_id); } catch (error) { failed.push(`${job.name}: ${error.message}`); }
      }
    };
    await Promise.all([work(), work(), work(), work()]);
    if (failed.length) throw new Error(`${fitting.length - failed.length} done, ${failed.length} refused. ${failed.slice(0, 3).join('; ')}`);
  }, `${done}: ${fitting.length} jobs`);
  after?.();
}

/** The actions on a job that its status and the caller's role allow. */
export function verbsFor(job, after) {
  if (!can('jobs:write')) return [];
  return Object.entries(VERBS).filter(([, verb]) => verb.fits(job)).map(([id, verb]) => ({ id, icon: verb.icon, text: verb.text, danger: verb.danger, run: () => act(id, job, after) }));
}

/** Advice of the API as things to click. Unknown advice is ignored. */
export function adviceFor(advice, after) {
  const write = can('jobs:write');
  const known = {
    resume_job: write && { text: 'Resume the job', run: () => post(`jobs/${advice.job_id}/resume`) },
    retry_job: write && { text: 'Retry the other job', run: () => post(`jobs/${advice.job_id}/retry`) },
    trigger_job: write && { text: advice.override ? 'Run it now regardless' : 'Run it now', run: () => post(`jobs/${advice.job_id}/trigger`, advice.override ? { override: true } : {}) },
    cancel_job: write && { text: 'Cancel the other job', danger: true, run: () => post(`jobs/${advice.job_id}/cancel`) },
    wait_for_job: { text: 'Show the other job', href: `jobs/${advice.job_id}` },
    resume_queue: can('queues:write') && { text: `Resume queue ${advice.queue}`, run: () => post(`queues/${part(advice.queue)}/resume`) },
    resume_worker: can('workers:write') && { text: `Resume worker ${advice.worker_id}`, run: () => post(`workers/${part(advice.worker_id)}/resume`) },
    set_queue: can('queues:write') && { text: `Change limits of ${advice.queue}`, href: `queues?edit=${part(advice.queue)}` },
    redrive_dead_letter: write && { text: 'Redrive the dead letter', run: () => post('dead-letters/redrive', { ids: [advice.occurrence_id] }) },
  }[advice.action];
  if (!known) return null;
  return { ...known, run: known.run && (async () => { if (await attempt(known.run, `Done: ${known.text}`) !== undefined) after?.(); }) };
}
