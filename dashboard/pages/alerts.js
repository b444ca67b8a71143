// Alerts: current problems, recipients, silences, and what was sent.

import { html, signal, useEffect, useState } from '../lib.js';
import { get, parseExact, part, post, put, readUntil, remove } from '../api.js';
import { ask, attempt, can, removeUnused } from '../state.js';
import { params, setParams } from '../router.js';
import { Button, Card, Document, Empty, Field, Head, Menu, Name, Notice, Select, Table, Tabs, Time, pretty, usePages, useRead, wordOf } from '../ui.js';
import { count } from '../time.js';

const EVENTS = ['failed', 'missed', 'late', 'recovered', 'succeeded', 'running_long', 'dead_letters', 'queue_old', 'limit_full', 'worker_lost', 'node_not_ready'];
const list = (text) => text.split(',').map((one) => one.trim()).filter(Boolean);
const SELECTORS = [['names', 'Job names'], ['tags', 'Tags'], ['queues', 'Queues'], ['job_types', 'Job types'], ['owners', 'Owners']];
const selected = (jobs) => SELECTORS.filter(([name]) => jobs?.[name]?.length).map(([name, label]) => `${label.toLowerCase()} ${jobs[name].join(', ')}`).join('; ') || 'all jobs';
const selectorFields = (jobs) => SELECTORS.map(([name, label]) => html`<${Field} key=${name} label=${label} hint="Names or patterns, separated by commas"><input name=${name} value=${(jobs?.[name] ?? []).join(', ')}/></${Field}>`);
const selectorFrom = (answer) => Object.fromEntries(SELECTORS.map(([name]) => [name, list(answer[name])]).filter(([, values]) => values.length));
/** When an event of a rule counts. An empty field has its default. @type {[name: string, label: string, hint: string, as: (text: string) => unknown][]} */
const THRESHOLDS = [
  ['failures', 'Failures in a row', '1', Number], ['successes', 'Successes to recover', '1', Number], ['late_by', 'Late by', 'such as 5m; 60s by default', String],
  ['longer_than', 'Running longer than', 'such as 1h', String], ['longer_than_usual_percent', 'Longer than usual, in %', 'such as 200', Number], ['dead_letters_above', 'Dead letters above', 'a number', Number],
  ['queue_older_than', 'Queue older than', 'such as 10m', String], ['limit_full_for', 'Limit full for', 'such as 10m', String], ['ready_nodes_below', 'Ready nodes below', 'a number', Number],
];
const isAllowed = () => can('notifications:write');

/** Opens the form that a link to this page asks for. */
function useOffer(open) {
  const isAsked = params().get('add') === 'true';
  useEffect(() => { if (isAsked && isAllowed()) { setParams({ add: null }, { replace: true }); open(); } }, [isAsked]);
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
    const own = rule ? Object.fromEntries(['mute', 'escalate'].filter((field) => rule[field]).map((field) => [field, rule[field]])) : {};
    const more = Object.keys(own).length ? pretty(own) : '';
    const answer = await ask({
      title: rule ? `Rule ${rule.name}` : 'New rule', action: 'Save', wide: true,
      body: html`<div class="form">${!rule && html`<${Field} label="Name"><input name="name" required/></${Field}>`}
        <${Field} label="Events" hint=${`Of ${EVENTS.join(', ')}`}><input name="events" required value=${(rule?.events ?? ['failed', 'missed']).join(', ')}/></${Field}>
        <${Field} label="Channels" hint=${known.length ? `Of ${known.join(', ')}` : 'Add a channel first'}><input name="channels" required value=${(rule?.channels ?? (known.length === 1 ? known : [])).join(', ')}/></${Field}>
        ${selectorFields(rule?.match)}</div>
        <details open=${THRESHOLDS.some(([field]) => (rule?.[field] ?? null) !== null && rule[field] !== 1) || more !== ''}><summary>When it counts, quiet hours, escalation</summary><div class="form">
        ${THRESHOLDS.map(([field, label, hint]) => html`<${Field} key=${field} label=${label} hint=${hint}><input name=${field} value=${rule?.[field] ?? ''}/></${Field}>`)}
        <${Field} wide label="Quiet hours and escalation (JSON)" hint="mute and escalate, as in PUT /notifications/rules"><textarea class="code" name="more" rows="4" spellcheck=${false}>${more}</textarea></${Field}>
        <label class="wide"><input type="checkbox" name="disabled" checked=${rule?.disabled}/> Disabled: it notifies nobody</label></div></details>`,
    });
    if (!answer) return;
    const name = rule?.name ?? answer.name.trim();
    // PUT replaces the rule: what the form does not know stays.
    const { name: _, created_at: _set, updated_at: _changed, mute: _mute, escalate: _escalate, ...kept } = rule ?? {};
    const body = () => {
      const limits = Object.fromEntries(THRESHOLDS.map(([field, , , as]) => [field, answer[field].trim() ? as(answer[field].trim()) : null]));
      return { ...kept, ...limits, ...(answer.more.trim() ? parseExact(answer.more) : {}), disabled: answer.disabled === 'on', events: list(answer.events), channels: list(answer.channels), match: selectorFrom(answer) };
    };
    if (await attempt(() => put(`notifications/rules/${part(name)}`, body()), `Saved ${name}`) !== undefined) { pages.reload(); changes.value += 1; }
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

const plain = (label, hint) => ({ label, hint, as: String });
/** A secret, or a reference to one: {"$secret": "name"}. Encrypted, and never shown. */
const hidden = (label) => ({ label, hint: 'Encrypted and never shown, or {"$secret": "name"}', isHidden: true, as: (text) => text.startsWith('{') ? parseExact(text) : text });
/** @type {Record<string, {label: string, hint?: string, isHidden?: boolean, as: (text: string) => unknown}>} */
const SETTINGS = {
  url: { ...hidden('URL'), isHidden: false, hint: 'Or {"$secret": "name"}' }, secret: hidden('Signing key'), routing_key: hidden('Integration key'), api_key: hidden('API key'), account_sid: plain('Account'), auth_token: hidden('Token of the account'),
  host: plain('Mail server'), port: { label: 'Port', hint: '587 by default', as: Number }, tls: plain('Encryption', 'starttls, tls or none'), username: plain('User'), password: hidden('Password'), from: plain('From'), to: { label: 'To', hint: 'Separated by commas', as: list },
};
/** The settings of each kind of channel. */
const CHANNELS = {
  webhook: ['url', 'secret'], slack: ['url'], teams: ['url'], discord: ['url'], pagerduty: ['routing_key'], opsgenie: ['api_key'],
  sms: ['account_sid', 'auth_token', 'from', 'to'], email: ['host', 'port', 'tls', 'username', 'password', 'from', 'to'],
};
const OPTIONAL = ['secret', 'port', 'tls', 'username', 'password'];

function ChannelFields({ channel }) {
  const [type, setType] = useState(channel?.type ?? 'webhook');
  const shown = (field) => channel?.[field] === undefined ? '' : [channel[field]].flat().join(', ');
  return html`<div class="form">${!channel && html`<${Field} label="Name"><input name="name" required/></${Field}><${Field} label="Kind"><${Select} name="type" value=${type} onChange=${setType} options=${Object.keys(CHANNELS).map((kind) => [kind, kind])}/></${Field}>`}
    ${CHANNELS[type].map((field) => { const { label, hint, isHidden } = SETTINGS[field]; return html`<${Field} key=${field} label=${label} hint=${channel?.hidden.includes(field) ? 'Leave it empty to keep it' : hint}><input name=${field} type=${isHidden ? 'password' : 'text'} autocomplete="off" required=${!channel && !OPTIONAL.includes(field)} value=${shown(field)}/></${Field}>`; })}</div>`;
}

function Channels() {
  const pages = usePages('channels', {}, { limit: 200 });
  const test = (channel) => attempt(() => post(`channels/${part(channel.name)}/test`), (answer) => answer.delivered ? `${channel.name} accepted the test message` : `${channel.name} did not: ${answer.error}`);
  const edit = async (channel) => {
    const answer = await ask({ title: channel ? `Channel ${channel.name}` : 'New channel', action: 'Save', wide: true, body: html`<${ChannelFields} channel=${channel}/>` });
    if (!answer) return;
    const name = channel?.name ?? answer.name.trim();
    const type = channel?.type ?? answer.type;
    const body = () => ({
      ...(channel ? Object.fromEntries(['include_logs', 'mute', 'template'].filter((field) => channel[field]).map((field) => [field, channel[field]])) : {}),
      type, ...Object.fromEntries(CHANNELS[type].filter((field) => answer[field]?.trim()).map((field) => [field, SETTINGS[field].as(answer[field].trim())])),
    });
    if (await attempt(() => put(`channels/${part(name)}`, body()), `Saved ${name}`) !== undefined) { pages.reload(); changes.value += 1; }
  };
  const add = () => edit();
  useOffer(add);
  const drop = async (channel) => { if (await ask({ title: `Remove channel ${channel.name}?`, danger: true, action: 'Remove', body: html`<p class="muted">Messages that wait for it are given up.</p>` }) !== undefined && await removeUnused(`channels/${part(channel.name)}`, channel.name)) { pages.reload(); changes.value += 1; } };
  const columns = [
    { id: 'name', label: 'Channel', cell: (channel) => html`<strong class="cut"><${Name}>${channel.name}</${Name}></strong>` },
    { id: 'type', label: 'Kind', cell: (channel) => html`<span class="chip">${channel.type}</span>` },
    { id: 'state', label: 'State', cell: (channel) => channel.disabled ? html`<span class="status bad" title=${channel.disabled}>disabled</span>` : html`<span class="status ok">enabled</span>` },
    { id: 'where', label: 'To', cell: (channel) => html`<span class="cut muted">${channel.url ?? (channel.to ?? []).join(', ')}${channel.configured ? ' (configuration file)' : ''}</span>` },
    { id: 'at', label: 'Set', cell: (channel) => html`<${Time} at=${channel.updated_at}/>` },
    { id: 'actions', label: '', cell: (channel) => isAllowed() && html`<${Menu} small kind="plain" label=${`Actions on channel ${channel.name}`} items=${[{ text: 'Send a test message', icon: 'zap', run: () => test(channel) }, !channel.configured && CHANNELS[channel.type] && { text: 'Change', icon: 'edit', run: () => edit(channel) }, !channel.configured && { text: 'Remove', icon: 'trash', danger: true, run: () => drop(channel) }]}/>` },
  ];
  return html`<${Card} title="Channels" flush extra=${isAllowed() && html`<${Button} small kind="primary" icon="plus" onClick=${add}>New channel</${Button}>`}><${Table} label="Channels" columns=${columns} items=${pages.items} pages=${pages} keyOf=${(channel) => channel.name} empty=${html`<${Empty} icon="bell" title="There are no channels">A channel is a place that rules write to: a webhook, a chat, mail, a pager.</${Empty}>`}/></${Card}>`;
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
