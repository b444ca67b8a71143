// Occurrences that failed for good, grouped by their error.

import { html, useMemo, useState } from '../lib.js';
import { get, post } from '../api.js';
import { ask, attempt, can, say } from '../state.js';
import { params, setParams, typed } from '../router.js';
import { Button, Card, Empty, Failure, Head, Icon, Name, SearchField, TextBlock, Time, useRead } from '../ui.js';
import { count } from '../time.js';

const READ_MAX = 5000;
/** Errors that differ only in numbers, ids and quoted values belong together. */
const kindOfError = (text) => (text ?? 'no message').replace(/[0-9a-f]{8}-[0-9a-f-]{27,}/gi, '…').replace(/"[^"]*"/g, '"…"').replace(/\d+/g, '#').slice(0, 300);

async function readAll(filter, abort) {
  const items = [];
  let cursor;
  do {
    const page = await get('dead-letters', { ...filter, limit: 1000, cursor }, abort);
    items.push(...page.items);
    cursor = page.next_cursor;
  } while (cursor && items.length < READ_MAX);
  return { items, isAll: !cursor };
}

export default function DeadLetters() {
  const search = params();
  const filter = Object.fromEntries(['name', 'queue', 'job_type', 'job_id', 'error'].map((name) => [name, search.get(name)]).filter(([, value]) => value));
  const { data, error, reload } = useRead([JSON.stringify(filter)], (abort) => readAll(filter, abort), { every: 10000 });
  const [open, setOpen] = useState(null);
  const groups = useMemo(() => {
    const found = new Map();
    for (const letter of data?.items ?? []) {
      const key = `${letter.job_type}\n${kindOfError(letter.error_message)}`;
      if (!found.has(key)) found.set(key, { key, job_type: letter.job_type, error: letter.error_message, letters: [] });
      found.get(key).letters.push(letter);
    }
    return [...found.values()].sort((a, b) => b.letters.length - a.letters.length);
  }, [data]);
  const act = async (verb, letters) => {
    const isRedrive = verb === 'redrive';
    const number = `${count(letters.length)} dead ${letters.length === 1 ? 'letter' : 'letters'}`;
    const answer = await ask({ title: `${isRedrive ? 'Redrive' : 'Discard'} ${number}?`, danger: !isRedrive, action: isRedrive ? 'Redrive' : 'Discard', body: html`<p class="muted">${isRedrive ? 'Each gets another attempt with a fresh retry budget. Fix the cause first, or they fail again.' : 'They are deleted and can no longer be redriven. The history of their executions stays.'}</p>` });
    if (answer === undefined) return;
    await attempt(async () => {
      let done = 0;
      const refused = [];
      for (let at = 0; at < letters.length; at += 500) {
        /** @type {{redriven?: number, discarded?: number, refused?: any[]}} */
        const result = await post(/** @type {'dead-letters/redrive'} */ (`dead-letters/${verb}`), { ids: letters.slice(at, at + 500).map((letter) => letter.occurrence_id) });
        done += Number(result.redriven ?? result.discarded);
        refused.push(...(result.refused ?? []));
      }
      say(`${isRedrive ? 'Redriven' : 'Discarded'}: ${done}${refused.length ? `; refused: ${refused.length} (${refused[0].reason})` : ''}`, refused.length ? 'error' : 'ok');
    });
    reload();
  };
  const all = data?.items ?? [];
  return html`<${Head} title="Dead letters" about="Occurrences that failed for good. They wait here until you redrive or discard them.">
      ${can('jobs:write') && all.length > 0 && html`<${Button} icon="retry" onClick=${() => act('redrive', all)}>Redrive all shown</${Button}><${Button} kind="danger" icon="trash" onClick=${() => act('discard', all)}>Discard all shown</${Button}>`}
    </${Head}>
    <${Card} flush><div class="filters">
      <${SearchField} label="Error contains" placeholder="Error contains" value=${filter.error ?? ''} onChange=${typed('error')}/>
      <${SearchField} label="Job name" placeholder="Job name" value=${filter.name ?? ''} onChange=${typed('name')}/>
      <${SearchField} label="Queue" placeholder="Queue" value=${filter.queue ?? ''} onChange=${typed('queue')}/>
      <span class="muted small">${data ? `${count(all.length)}${data.isAll ? '' : ' or more'} in ${groups.length} ${groups.length === 1 ? 'group' : 'groups'}` : ''}</span>
    </div>
    ${error && !data ? html`<div class="body"><${Failure} error=${error} retry=${reload}/></div>` : !data ? html`<div class="body muted">Loading…</div>` : !groups.length ? html`<${Empty} icon="check" title="There are no dead letters">${Object.keys(filter).length ? 'None matches these filters.' : 'Nothing has failed for good.'}</${Empty}>`
      : html`<ul class="list">${groups.map((group) => html`<li key=${group.key} style=${{ flexWrap: 'wrap' }}>
        <button type="button" class="button plain icon-only" aria-expanded=${String(open === group.key)} aria-label=${`Show ${group.letters.length} dead letters`} onClick=${() => setOpen(open === group.key ? null : group.key)}><${Icon} name=${open === group.key ? 'chevron-down' : 'chevron-right'}/></button>
        <span class="pill">${count(group.letters.length)}</span>
        <div class="grow"><div class="cut" title=${group.error}>${group.error ?? 'no message'}</div><div class="muted small"><${Name}>${group.job_type}</${Name}>, latest <${Time} at=${group.letters[0].died_at} style="relative"/></div></div>
        ${can('jobs:write') && html`<${Button} small icon="retry" onClick=${() => act('redrive', group.letters)}>Redrive</${Button}><${Button} small kind="danger" icon="trash" label="Discard this group" onClick=${() => act('discard', group.letters)}/>`}
        ${open === group.key && html`<div style=${{ flexBasis: '100%' }} class="stack tight"><${TextBlock} kind="bad" text=${group.error ?? ''} label="Error"/><div class="scroll" tabindex="0" role="region" aria-label="Dead letters of this group"><table aria-label="Dead letters of this group"><thead><tr><th>Job</th><th>Scheduled</th><th>Died</th><th class="num">Attempts</th><th>Queue</th><th><span class="sr">Actions</span></th></tr></thead><tbody>
          ${group.letters.slice(0, 100).map((letter) => html`<tr key=${letter.occurrence_id}><td><a class="main cut" href=${`jobs/${letter.job_id}`}><${Name}>${letter.name}</${Name}></a></td><td><${Time} at=${letter.scheduled_time}/></td><td><${Time} at=${letter.died_at}/></td><td class="num">${letter.attempts}</td><td><${Name}>${letter.queue}</${Name}></td><td class="right">${can('jobs:write') && html`<${Button} small onClick=${() => act('redrive', [letter])}>Redrive</${Button}>`}</td></tr>`)}
        </tbody></table></div>${group.letters.length > 100 && html`<p class="muted small">and ${count(group.letters.length - 100)} more</p>`}</div>`}
      </li>`)}</ul>`}
    </${Card}>`;
}
