// Alerts: current problems, recipients, silences, and what was sent.

import { html, signal, useEffect } from '../lib.js';
import { get, part, post, put, readUntil, remove } from '../api.js';
import { ask, attempt, can, removeUnused } from '../state.js';
import { params, setParams } from '../router.js';
import { Button, Card, Document, Empty, Field, Head, Menu, Name, Notice, Table, Tabs, Time, usePages, useRead, wordOf } from '../ui.js';
import { count } from '../time.js';

const EVENTS = ['failed', 'missed', 'late', 'recovered', 'succeeded', 'running_long', 'dead_letters', 'queue_old', 'worker_lost'];
const list = (text) => text.split(',').map((one) => one.trim()).filter(Boolean);
const SELECTORS = [['names', 'Job names'], ['tags', 'Tags'], ['queues', 'Queues'], ['job_types', 'Job types'], ['owners', 'Owners']];
const selected = (jobs) => SELECTORS.filter(([name]) => jobs?.[name]?.length).map(([name, label]) => `${label.toLowerCase()} ${jobs[name].join(', ')}`).join('; ') || 'all jobs';
const selectorFields = (jobs) => SELECTORS.map(([name, label]) => html`<${Field} key=${name} label=${label} hint="Names or patterns, separated by commas"><input name=${name} value=${(jobs?.[name] ?? []).join(', ')}/></${Field}>`);
const selectorFrom = (answer) => Object.fromEntries(SELECTORS.map(([name]) => [name, list(answer[name])]).filter(([, values]) => values.length));
const isAllowed = () => can('notifications:write');

/** Opens the form that a link to this page asks for. */
function useOffer(open) {
  const isAsked = params().get('add') === 'true';
  useEffect(() => { if (isAsked && isAllowed()) { setParams({ add: null }); open(); } }, [isAsked]);
}

/** Changes of rules and channels on this page. */
const changes = signal(0);
/** Jobs that are examined for a `notify` of their own. */
const NOTIFY_MAX = 200;

/** Says that nobody would be notified, and offers the next step. */
function Unheard({ tab }) {
  const { data } = useRead([tab, changes.value], async (abort) => {
    const [rules, channels, jobs] = await Promise.all([get('notifications/rules', { limit: 200 }, abort), get('channels', { limit: 1 }, abort), can('jobs:read') ? get('jobs', { limit: NOTIFY_MAX }, abort) : null]);
    const own = (jobs?.items ?? []).some((job) => job.notify && Object.keys(job.notify).length);
    return { isHeard: rules.items.some((rule) => !rule.disabled), isOff: rules.items.length > 0, hasChannel: channels.items.length > 0, hasOwn: own || Boolean(jobs?.next_cursor) || !jobs };
  }, { every: 10000 });
  if (!data || data.isHeard) return null;
  return html`<${Notice} kind="warn"><div class="row"><span class="grow">${data.isOff ? 'All rules are disabled' : 'There are no rules'}${data.hasOwn ? ': only jobs with a notify of their own notify anyone.' : ', so nobody would be notified of failed, missed or late jobs.'}</span>
    ${isAllowed() && (data.hasChannel ? html`<${Button} small icon="plus" href="alerts?tab=rules&add=true">Add a rule</${Button}>` : html`<${Button} small icon="plus" href="alerts?tab=channels&add=true">Add a channel</${Button}>`)}</div></${Notice}>`;
}

function Alerts() {
  const pages = usePages('notifications/alerts', {}, { limit: 100, every: 5000, keyOf: (alert) => alert.alert_id });
  const failing = useRead([], (abort) => readUntil('jobs', { failing: true, limit: 100 }, { enough: 100, pagesMax: 4, abort }), { every: 15000 });
  const acknowledge = async (alert) => { if (await attempt(() => post(`notifications/alerts/${part(alert.alert_id)}/ack`), `Acknowledged: ${alert.name}`) !== undefined) pages.reload(); };
  const columns = [
    { id: 'state', label: 'State', cell: (alert) => html`<span class=${`status ${{ firing: 'bad', acknowledged: 'warn', pending: 'wait' }[alert.state] ?? ''}`}>${alert.state}</span>` },
    { id: 'kind', label: 'Kind', cell: (alert) => wordOf(alert.type) },
    { id: 'name', label: 'About', cell: (alert) => alert.job_id ? html`<a class="main cut" href=${`jobs/${alert.job_id}`}><${Name}>${alert.name}</${Name}></a>` : html`<strong class="cut"><${Name}>${alert.name}</${Name}></strong>` },
    { id: 'text', label: 'What happened', cell: (alert) => html`<span class="cut" title=${alert.explanation}>${alert.explanation}</span>` },
    { id: 'since', label: 'Since', cell: (alert) => html`<${Time} at=${alert.since} style="relative"/>` },
    { id: 'count', label: 'Times', num: true, cell: (alert) => alert.count },
    { id: 'channels', label: 'Notified', cell: (alert) => html`<span class="cut muted">${alert.channels.join(', ') || 'nobody'}</span>` },
    { id: 'actions', label: '', cell: (alert) => isAllowed() && alert.state !== 'acknowledged' && html`<${Button} small onClick=${() => acknowledge(alert)}>Acknowledge</${Button}>` },
  ];
  return html`<${Card} flush><${Table} label="Alerts" columns=${columns} items=${pages.items} pages=${pages} keyOf=${(alert) => alert.alert_id} empty=${html`<${Empty} icon="check" title="No alert is firing">${failing.data?.items.length ? html`But ${count(failing.data.items.length)}${failing.data.isAll ? '' : ' or more'} ${failing.data.items.length === 1 ? 'job is' : 'jobs are'} failing: <a href="jobs?failing=true">show ${failing.data.items.length === 1 ? 'it' : 'them'}</a>.` : ''}</${Empty}>`}/></${Card}>`;
}

function Rules() {
  const pages = usePages('notifications/rules', {}, { limit: 200 });
  const edit = async (rule) => {
    const known = (await get('channels').catch(() => ({ items: [] }))).items.map((one) => one.name);
    const answer = await ask({
      title: rule ? `Rule ${rule.name}` : 'New rule', action: 'Save', wide: true,
      body: html`<div class="form">${!rule && html`<${Field} label="Name"><input name="name" required/></${Field}>`}
        <${Field} label="Events" hint=${`Of ${EVENTS.join(', ')}`}><input name="events" required value=${(rule?.events ?? ['failed', 'missed']).join(', ')}/></${Field}>
        <${Field} label="Channels" hint=${known.length ? `Of ${known.join(', ')}` : 'Add a channel first'}><input name="channels" required value=${(rule?.channels ?? (known.length === 1 ? known : [])).join(', ')}/></${Field}>
        ${selectorFields(rule?.match)}</div>`,
    });
    if (!answer) return;
    const name = rule?.name ?? answer.name.trim();
    const kept = rule ? Object.fromEntries(['failures', 'late_by', 'longer_than', 'dead_letters_above', 'queue_older_than', 'disabled'].filter((field) => rule[field] !== null && rule[field] !== undefined).map((field) => [field, rule[field]])) : {};
    if (await attempt(() => put(`notifications/rules/${part(name)}`, { ...kept, events: list(answer.events), channels: list(answer.channels), match: selectorFrom(answer) }), `Saved ${name}`) !== undefined) { pages.reload(); changes.value += 1; }
  };
  useOffer(edit);
  const drop = async (rule) => { if (await ask({ title: `Remove rule ${rule.name}?`, danger: true, action: 'Remove', body: html`<p class="muted">It sends no more notifications.</p>` }) !== undefined && await attempt(() => remove(`notifications/rules/${part(rule.name)}`), `Removed ${rule.name}`) !== undefined) { pages.reload(); changes.value += 1; } };
  const columns = [
    { id: 'name', label: 'Rule', cell: (rule) => html`<strong class="cut"><${Name}>${rule.name}</${Name}></strong>` },
    { id: 'state', label: 'State', cell: (rule) => rule.disabled ? html`<span class="status">disabled</span>` : html`<span class="status ok">enabled</span>` },
    { id: 'events', label: 'Events', cell: (rule) => html`<span class="cut">${rule.events.join(', ')}</span>` },
    { id: 'jobs', label: 'Of', cell: (rule) => html`<span class="cut muted">${selected(rule.match)}</span>` },
    { id: 'channels', label: 'Tells', cell: (rule) => html`<span class="cut">${rule.channels.join(', ')}</span>` },
    { id: 'actions', label: '', cell: (rule) => isAllowed() && html`<${Menu} small kind="plain" label=${`Actions on rule ${rule.name}`} items=${[{ text: 'Change', icon: 'edit', run: () => edit(rule) }, { text: 'Remove', icon: 'trash', danger: true, run: () => drop(rule) }]}/>` },
  ];
  return html`<${Card} title="Rules" flush extra=${isAllowed() && html`<${Button} small kind="primary" icon="plus" onClick=${() => edit()}>New rule</${Button}>`}><${Table} label="Rules" columns=${columns} items=${pages.items} pages=${pages} keyOf=${(rule) => rule.name} empty=${html`<${Empty} icon="bell" title="There are no rules">A rule tells a channel when jobs fail, are missed, late or recover.</${Empty}>`}/></${Card}>`;
}

function Channels() {
  const pages = usePages('channels', {}, { limit: 200 });
  const test = (channel) => attempt(() => post(`channels/${part(channel.name)}/test`), (answer) => answer.delivered ? `${channel.name} accepted the test message` : `${channel.name} did not: ${answer.error}`);
  const add = async () => {
    const answer = await ask({ title: 'New webhook', action: 'Save', body: html`<p class="muted">Other kinds of channels, such as mail, Slack or PagerDuty, are added with <code>punctual channel set</code>.</p><${Field} label="Name"><input name="name" required/></${Field}><${Field} label="URL"><input name="url" type="url" required/></${Field}>` });
    if (answer && await attempt(() => put(`channels/${part(answer.name.trim())}`, { type: 'webhook', url: answer.url }), `Saved ${answer.name}`) !== undefined) { pages.reload(); changes.value += 1; }
  };
  useOffer(add);
  const drop = async (channel) => { if (await ask({ title: `Remove channel ${channel.name}?`, danger: true, action: 'Remove', body: html`<p class="muted">Messages that wait for it are given up.</p>` }) !== undefined && await removeUnused(`channels/${part(channel.name)}`, channel.name)) { pages.reload(); changes.value += 1; } };
  const columns = [
    { id: 'name', label: 'Channel', cell: (channel) => html`<strong class="cut"><${Name}>${channel.name}</${Name}></strong>` },
    { id: 'type', label: 'Kind', cell: (channel) => html`<span class="chip">${channel.type}</span>` },
    { id: 'state', label: 'State', cell: (channel) => channel.disabled ? html`<span class="status bad" title=${channel.disabled}>disabled</span>` : html`<span class="status ok">enabled</span>` },
    { id: 'where', label: 'To', cell: (channel) => html`<span class="cut muted">${channel.url ?? (channel.to ?? []).join(', ')}${channel.configured ? ' (configuration file)' : ''}</span>` },
    { id: 'at', label: 'Set', cell: (channel) => html`<${Time} at=${channel.updated_at}/>` },
    { id: 'actions', label: '', cell: (channel) => isAllowed() && html`<${Menu} small kind="plain" label=${`Actions on channel ${channel.name}`} items=${[{ text: 'Send a test message', icon: 'zap', run: () => test(channel) }, !channel.configured && { text: 'Remove', icon: 'trash', danger: true, run: () => drop(channel) }]}/>` },
  ];
  return html`<${Card} title="Channels" flush extra=${isAllowed() && html`<${Button} small kind="primary" icon="plus" onClick=${add}>New webhook</${Button}>`}><${Table} label="Channels" columns=${columns} items=${pages.items} pages=${pages} keyOf=${(channel) => channel.name} empty=${html`<${Empty} icon="bell" title="There are no channels"/>`}/></${Card}>`;
}

function Silences() {
  const pages = usePages('notifications/silences', {}, { limit: 200 });
  const add = async () => {
    const answer = await ask({ title: 'New silence', action: 'Save', wide: true, body: html`<p class="muted">No notifications about these jobs are sent. Alerts are still listed.</p><div class="form"><${Field} label="For" hint="Such as 2h"><input name="duration" required value="2h"/></${Field}><${Field} label="Reason"><input name="reason"/></${Field}>${selectorFields()}</div>` });
    if (answer && await attempt(() => post('notifications/silences', { duration: answer.duration, ...(answer.reason.trim() ? { reason: answer.reason.trim() } : {}), match: selectorFrom(answer) }), 'Silenced') !== undefined) pages.reload();
  };
  const end = async (silence) => { if (await attempt(() => remove(`notifications/silences/${part(silence.silence_id)}`), 'The silence is over') !== undefined) pages.reload(); };
  const columns = [
    { id: 'jobs', label: 'Silences', cell: (silence) => html`<span class="cut">${selected(silence.match)}</span>` },
    { id: 'state', label: 'State', cell: (silence) => html`<span class=${`status ${silence.active ? 'warn' : ''}`}>${silence.active ? 'active' : 'not active'}</span>` },
    { id: 'ends', label: 'Ends', cell: (silence) => html`<${Time} at=${silence.ends_at} style="relative"/>` },
    { id: 'why', label: 'Reason', cell: (silence) => html`<span class="cut muted">${silence.reason ?? '–'}</span>` },
    { id: 'who', label: 'By', cell: (silence) => html`<${Name}>${silence.created_by}</${Name}>` },
    { id: 'actions', label: '', cell: (silence) => isAllowed() && html`<${Button} small onClick=${() => end(silence)}>End</${Button}>` },
  ];
  return html`<${Card} title="Silences" flush extra=${isAllowed() && html`<${Button} small kind="primary" icon="plus" onClick=${add}>New silence</${Button}>`}><${Table} label="Silences" columns=${columns} items=${pages.items} pages=${pages} keyOf=${(silence) => silence.silence_id} empty=${html`<${Empty} icon="bell" title="Nothing is silenced"/>`}/></${Card}>`;
}

function Deliveries() {
  const pages = usePages('notifications/deliveries', {}, { limit: 100, every: 5000, keyOf: (delivery) => delivery.delivery_id });
  const replay = async (delivery) => { if (await attempt(() => post(`notifications/deliveries/${part(delivery.delivery_id)}/replay`), 'Sent again') !== undefined) pages.reload(); };
  const columns = [
    { id: 'at', label: 'When', cell: (delivery) => html`<${Time} at=${delivery.created_at}/>` },
    { id: 'channel', label: 'Channel', cell: (delivery) => html`<strong><${Name}>${delivery.channel}</${Name}></strong>` },
    { id: 'state', label: 'State', cell: (delivery) => html`<span class=${`status ${/delivered|sent/i.test(delivery.state) ? 'ok' : /fail|dead|gave/i.test(delivery.state) ? 'bad' : 'wait'}`}>${wordOf(delivery.state)}</span>` },
    { id: 'kind', label: 'Kind', cell: (delivery) => `${wordOf(delivery.type)}${delivery.count > 1 ? `, ${delivery.count} events` : ''}` },
    { id: 'attempts', label: 'Attempts', num: true, cell: (delivery) => delivery.attempts },
    { id: 'error', label: 'Last error', cell: (delivery) => html`<span class="cut muted" title=${delivery.last_error}>${delivery.last_error ?? ''}</span>` },
    { id: 'actions', label: '', cell: (delivery) => html`<span class="row tight" style=${{ flexWrap: 'nowrap' }}><${Button} small kind="plain" icon="code" label="Show the events" onClick=${() => ask({ title: 'Events of this message', isNews: true, wide: true, action: 'Close', body: html`<${Document} value=${delivery.events} label="Events"/>` })}/>${isAllowed() && html`<${Button} small onClick=${() => replay(delivery)}>Send again</${Button}>`}</span>` },
  ];
  return html`<${Card} flush><${Table} label="Deliveries" columns=${columns} items=${pages.items} pages=${pages} keyOf=${(delivery) => delivery.delivery_id} empty=${html`<${Empty} icon="bell" title="Nothing was sent yet"/>`}/></${Card}>`;
}

export default function AlertsPage() {
  const tab = params().get('tab') ?? 'alerts';
  const { data, reload } = useRead([], (abort) => get('notifications', undefined, abort), { every: 10000 });
  const resume = async () => { if (await attempt(() => post('notifications/resume'), 'Sending again') !== undefined) reload(); };
  const Part = { alerts: Alerts, rules: Rules, channels: Channels, silences: Silences, deliveries: Deliveries }[tab] ?? Alerts;
  return html`<${Head} title="Alerts" about="What is wrong now, who is notified, and what was sent."/>
    ${data?.stopped && html`<${Notice} kind="warn">Nothing is sent: ${data.stopped} ${isAllowed() && html`<${Button} small onClick=${resume}>Resume</${Button}>`}</${Notice}>`}
    <${Tabs} label="Parts of the alerts" current=${tab} hrefOf=${(one) => `alerts${one === 'alerts' ? '' : `?tab=${one}`}`} items=${[['alerts', 'Now'], ['rules', 'Rules'], ['channels', 'Channels'], ['silences', 'Silences'], ['deliveries', 'Deliveries']]}/>
    <${Unheard} tab=${tab}/>
    <${Part}/>`;
}
