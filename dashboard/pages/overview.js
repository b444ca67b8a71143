// What matters now: what is late, what fails, what runs, and what comes next.

import { html, useEffect, useMemo, useState } from '../lib.js';
import { SERVER, get, part, post, readUntil } from '../api.js';
import { attempt, can, isLimited, now } from '../state.js';
import { onExecutions } from '../live.js';
import { learnNames, nameOf, readNames } from '../names.js';
import { Button, Card, Copy, Empty, Failure, Head, Icon, List, Name, Notice, Segmented, Status, Tile, Time, kindOf, useRead } from '../ui.js';
import { ExecutionsOverTime, SpansOverTime } from '../series.js';
import { PauseNotice } from '../pause.js';
import { clockTime, count, span, zoneFor } from '../time.js';
import { go } from '../router.js';

/** Queued for longer than this is late. */
const LATE_MS = 5000;
/** Failing jobs that are listed. */
const FAILING_MAX = 6;
const EVERY_MS = 2000;
/** Executions that have just finished. */
const FEED_MAX = 10;

/** The latest executions that have ended. */
function useFeed() {
  const [feed, setFeed] = useState([]);
  useEffect(() => {
    let isOver = false;
    const add = (batch) => {
      const ended = batch.filter((one) => one.completed_at);
      if (!ended.length || isOver) return;
      setFeed((last) => {
        const known = new Set(ended.map((one) => one.execution_id));
        return [...ended.reverse(), ...last.filter((one) => !known.has(one.execution_id))].slice(0, FEED_MAX);
      });
    };
    const first = async () => {
      const pages = await Promise.all(['SUCCEEDED', 'FAILED', 'TIMED_OUT'].map((status) => get('executions', { status, limit: FEED_MAX }).catch(() => ({ items: [] }))));
      learnNames(pages.flatMap((page) => page.items));
      add(pages.flatMap((page) => page.items).sort((a, b) => Date.parse(a.completed_at) - Date.parse(b.completed_at)));
    };
    first();
    const stop = onExecutions(add);
    return () => { isOver = true; stop(); };
  }, []);
  return feed;
}

/** Failed attempts of the last hour, from the figures of the server; null if it keeps none. */
async function readFailures(abort) {
  try {
    const page = await get('series', { metric: 'executions', by: 'all', limit: 1, since: new Date(now.peek() - 3600_000).toISOString() }, abort);
    const columns = page.series[0]?.columns ?? {};
    return ['failed', 'timed_out', 'lost'].reduce((sum, name) => sum + (columns[name] ?? []).reduce((all, one) => all + Number(one ?? 0), 0), 0);
  } catch (error) {
    if (error.status === 404 || error.status === 403) return null;
    throw error;
  }
}

/** Whether the processes of the cluster work together, in one line. */
function Health({ nodes }) {
  const leader = nodes.find((node) => node.leader);
  const segments = nodes.reduce((sum, node) => sum + Number(node.segments), 0);
  const apart = Math.max(...nodes.map((node) => Math.abs(Number(node.clock_offset_ms))));
  const silent = nodes.filter((node) => node.answering === false);
  const facts = [
    [Boolean(leader), leader ? html`leader <${Name}>${leader.node_id}</${Name}>` : 'no leader'],
    [segments >= SEGMENTS, `${Math.min(segments, SEGMENTS)} of ${SEGMENTS} segments held`],
    [apart <= CLOCK_MAX_MS, `clocks within ${span(apart) === '0 ms' ? '1 ms' : span(apart)}`],
    nodes[0].coordination && [true, `coordination by ${nodes[0].coordination}`],
    silent.length > 0 && [false, `${silent.length} ${silent.length === 1 ? 'node does' : 'nodes do'} not answer`],
  ].filter(Boolean);
  return html`<span class="row"><a href="workers">${count(nodes.length)} ${nodes.length === 1 ? 'node' : 'nodes'} on ${nodes[0].store}, version ${nodes[0].version}</a>${facts.map(([isFine, text], index) => html`<span key=${index} class="row tight"><span class=${`dot ${isFine ? 'ok' : 'bad'}`}></span>${text}</span>`)}</span>`;
}

/** Slices of all jobs, which the nodes divide among themselves. */
const SEGMENTS = 64;
const CLOCK_MAX_MS = 500;
const TRIES = [
  { icon: 'zap', title: 'Run something now', about: 'A job that does nothing, successfully. You see it pass through its states.', job: { name: 'hello', job_type: 'noop' } },
  { icon: 'calendar', title: 'Repeat every 10 seconds', about: 'A recurring job. Pause it, look at its next fires, edit its schedule.', job: { name: 'heartbeat', job_type: 'sleep', payload: { ms: 400 }, interval: '10s' } },
  { icon: 'dead', title: 'Fail on purpose', about: 'A job with a wrong payload fails for good and becomes a dead letter. Fix its payload, then redrive it.', job: { name: 'broken', job_type: 'sleep', payload: { minutes: 1 }, max_retries: 0 } },
];

/** This server, as a worker elsewhere names it. */
const HERE = location.protocol === 'https:' ? SERVER.replace(/\/$/, '') : location.host;
const WORKERS = {
  HTTP: "punctual job submit ping --type http --payload '{\"url\": \"http://example.com/\"}' --every 1m",
  Shell: "punctual serve --allow shell\npunctual job submit disk --type shell --payload '{\"script\": \"df -h\"}' --cron '0 * * * *'",
  Python: `# examples/python/worker.py is a complete worker that needs nothing but Python 3. Copy it, and change its handlers:
def send_invoice(job):
    print("sending", job["payload"]["invoice"])   # goes to the log
    return {"sent": True}

HANDLERS = {"send-invoice": send_invoice}

# Start it with a token for workers, and give it work:
#   export PUNCTUAL_SERVER=${HERE} PUNCTUAL_TOKEN=$(punctual token create billing --role worker)
#   python3 worker.py
#   punctual job submit invoice-17 --type send-invoice --payload '{"invoice": 17}'`,
  Rust: `// cargo add punctual-client --features worker; cargo add serde --features derive; cargo add tokio --features full
use punctual_client::{Client, worker::{Context, Worker}};
use serde::{Deserialize, Serialize};

#[derive(Deserialize)]
struct Invoice { invoice: u64 }

#[derive(Serialize)]
struct Sent { sent: u64 }

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let client = Client::new("${HERE}", std::env::var("PUNCTUAL_TOKEN")?)?;
    Worker::builder(client)
        .name("billing-1")
        .handler("send-invoice", |context: Context, invoice: Invoice| async move {
            context.log("sending").await;
            Ok(Sent { sent: invoice.invoice })
        })
        .build()
        .run_until(async { let _ = tokio::signal::ctrl_c().await; })
        .await?;
    Ok(())
}`,
  'Any language': `# The worker protocol is plain HTTP and JSON; docs/worker-protocol.md has all of it. A worker opens a session, polls for
# work, sends a heartbeat every few seconds, and reports how the work ended:
POST /api/v1/worker/sessions   {"worker": "billing-1", "job_types": ["send-invoice"], "slots": 4, "lease_secs": 6}
POST /api/v1/worker/poll       {"session": 7, "turn": 1, "job_types": ["send-invoice"], "capacity": 4, "held": []}
POST /api/v1/worker/heartbeat  {"session": 7, "beat": 1}
POST /api/v1/worker/report     {"reports": [{"session": 7, "execution_id": "…", "epoch": 1, "outcome": "succeeded"}]}`,
};

function Greeting({ reload }) {
  const [language, setLanguage] = useState('HTTP');
  const submit = async (job) => {
    const answer = await attempt(() => post('jobs', job), `Submitted: ${job.name}`);
    if (answer) { reload(); go(`jobs/${answer.job_id}`); }
  };
  return html`<${Card} title=${can('jobs:write') ? 'Welcome. Three things to try' : 'Welcome. There are no jobs yet'}>
    ${!can('jobs:write') && html`<p class="muted">Your role may look, but not submit. Jobs appear here when somebody submits them.</p>`}
    ${can('jobs:write') && html`<div class="tries">${TRIES.map(({ icon, title, about, job }) => html`<div class="card"><h3 class="row tight"><${Icon} name=${icon}/>${title}</h3><p class="muted small">${about}</p><${Button} kind="primary" small onClick=${() => submit(job)}>Try it</${Button}></div>`)}</div>`}
  </${Card}>
  ${can('jobs:write') && html`<${Card} title="Then let it do your work" extra=${html`<${Segmented} label="Language" options=${Object.keys(WORKERS).map((name) => [name, name])} value=${language} onChange=${setLanguage}/>`}>
    <div class="copy-box"><pre class="text-block" tabindex="0" role="region" aria-label="Example">${WORKERS[language]}</pre><${Copy} text=${WORKERS[language]}/></div>
  </${Card}>`}`;
}

/** Fires of one job that are listed: one of each minute. */
const PER_JOB = 60;
function NextHour() {
  const { data, error } = useRead([], (abort) => readUntil('fires', { from: new Date(now.peek()).toISOString(), until: new Date(now.peek() + 3600_000).toISOString(), per_job: PER_JOB, limit: 500 }, { enough: 1000, abort }), { every: 30000 });
  const zone = zoneFor();
  const start = Math.floor(now.value / 60000) * 60000;
  const fires = useMemo(() => (data?.items ?? []).flatMap((job) => job.fires.filter((fire) => !fire.excluded_by).map((fire) => ({ at: Date.parse(fire.scheduled_time), ...fire, job }))).sort((a, b) => a.at - b.at), [data]);
  const minutes = useMemo(() => {
    const found = Array.from({ length: 60 }, () => 0);
    const slotOf = (at) => Math.floor((at - start) / 60000);
    for (const { at } of fires) if (slotOf(at) >= 0 && slotOf(at) < 60) found[slotOf(at)] += 1;
    // The other fires of frequent jobs are spread evenly.
    for (const job of data?.items ?? []) {
      const more = Number(job.count) - job.fires.length;
      const first = more > 0 ? Math.max(0, slotOf(Date.parse(job.fires.at(-1).scheduled_time))) : 60;
      for (let slot = first; slot < 60; slot += 1) found[slot] += more / (60 - first);
    }
    return found.map(Math.round);
  }, [fires, start]);
  if (error) return html`<${Card} title="Next hour"><${Failure} error=${error}/></${Card}>`;
  const most = Math.max(1, ...minutes);
  const all = (data?.items ?? []).reduce((sum, job) => sum + Number(job.count), 0);
  const coming = fires.filter((fire) => fire.at >= now.value - 1000).slice(0, 6);
  return html`<${Card} title="Next hour" flush extra=${html`<span class="muted small">${data ? `${count(all)} ${all === 1 ? 'fire' : 'fires'}${data.isAll ? '' : ' or more'}` : 'reading…'}</span>`}>
    <div class="body"><div class="bars" role="img" aria-label=${`Fires by minute, at most ${most}`}>${minutes.map((number, index) => html`<i key=${index} class=${number ? '' : 'none'} style=${{ height: `${number ? Math.max(6, 100 * number / most) : 2}%` }} title=${`${clockTime(start + index * 60000, zone, false)}: ${number}`}></i>`)}</div>
    <div class="bars-scale"><span>${clockTime(start, zone, false)}</span><span>${clockTime(start + 1800_000, zone, false)}</span><span>${clockTime(start + 3600_000, zone, false)}</span></div></div>
    <${List}>${coming.map((fire) => html`<li><a class="main cut grow" href=${`jobs/${fire.job.job_id}`}><${Name}>${fire.job.name}</${Name}></a><span class="muted small nowrap"><${Time} at=${fire.scheduled_time} zone=${fire.job.timezone}/> · <${Time} at=${fire.scheduled_time} style="relative"/></span></li>`)}
    ${data && !coming.length && html`<li class="muted">No job fires within the next hour.</li>`}</${List}>
  </${Card}>`;
}

export default function Overview() {
  const { data: stats, error, reload } = useRead([], (abort) => get('stats', undefined, abort), { every: EVERY_MS });
  const { data: nodes } = useRead([], (abort) => isLimited() ? Promise.resolve(null) : get('nodes', undefined, abort), { every: 10000 });
  const { data: failing } = useRead([], (abort) => get('jobs', { failing: true, limit: FAILING_MAX }, abort), { every: 30000 });
  const { data: failures } = useRead([], readFailures, { every: 15000 });
  const hour = now.value - 3600_000;
  const { data: changes } = useRead([], (abort) => can('audit:read') && !isLimited() ? get('audit', { limit: 6 }, abort) : Promise.resolve(null), { every: 10000 });
  const recent = useFeed();
  useEffect(() => { readNames(recent); }, [recent.map((one) => one.job_id).join()]);
  if (!stats) return html`<${Head} title="Overview"/>${error ? html`<${Failure} error=${error} retry=${reload}/>` : html`<p class="muted" role="status">Loading…</p>`}`;
  const { jobs, live } = stats;
  const total = jobs.active + jobs.paused + jobs.completed + jobs.failed + jobs.cancelled;
  const ages = stats.queues.filter((lane) => lane.oldest_queued_at).map((lane) => ({ ...lane, age: Math.max(0, now.value - Date.parse(lane.oldest_queued_at)) })).sort((a, b) => b.age - a.age);
  const late = ages.filter((lane) => lane.age > LATE_MS);
  const warnings = (nodes?.items ?? []).flatMap((node) => node.warnings.map((text) => `${node.node_id}: ${text}`));
  return html`<${Head} title="Overview" about=${nodes?.items.length ? html`<${Health} nodes=${nodes.items}/>` : 'Figures of the jobs that you may see'}>
      ${can('jobs:write') && html`<${Button} kind="primary" icon="plus" href="jobs/new">New job</${Button}>`}
    </${Head}>
    ${warnings.map((text) => html`<${Notice} kind="warn">${text}</${Notice}>`)}
    <${PauseNotice} pause=${stats.pause} after=${reload}/>
    ${live.sessions === 0 && html`<${Notice} kind="warn">No worker is connected: nothing can run.</${Notice}>`}
    ${total === 0 && html`<div class="stack"><${Greeting} reload=${reload}/></div>`}
    <div class="tiles" style=${{ marginTop: total === 0 ? '16px' : '' }}>
      <${Tile} label="Late now" value=${late.length ? span(late[0].age) : 'none'} kind=${late.length ? 'bad' : 'ok'} note=${late.length ? `oldest, in ${late[0].queue}` : ages.length ? `none waits over ${span(LATE_MS)}` : 'nothing waits'} href="queues"/>
      <${Tile} label="Failed" value=${failures === null || failures === undefined ? '–' : count(failures)} kind=${failures ? 'bad' : ''} note="in the last hour" href=${`executions?status=FAILED&from=${new Date(hour - hour % 60000).toISOString()}&until=${new Date(now.value + 60000).toISOString()}`}/>
      <${Tile} label="Running" value=${count(live.running)} note=${`of ${count(live.slots)} slots`} href="executions?status=RUNNING"/>
      <${Tile} label="Queued" value=${count(live.queued)} note="ready to start" href="executions?status=QUEUED"/>
      <${Tile} label="Waiting" value=${count(live.waiting)} note="behind a gate" href="executions?status=WAITING"/>
      <${Tile} label="Dead letters" value=${count(jobs.dead_letters)} kind=${jobs.dead_letters ? 'warn' : ''} note="failed for good" href="dead-letters"/>
      <${Tile} label="Active jobs" value=${count(jobs.active)} note=${`${count(jobs.paused)} paused`} href="jobs?status=ACTIVE"/>
    </div>
    ${total > 0 && html`<div class="grid">
      <div class="span-8 stack">
        <${ExecutionsOverTime} by="all"/>
        <${SpansOverTime} by="all" metric="lateness" title="Lateness"/>
        <${Card} title="Just finished" flush extra=${html`<a class="small" href="executions?status=SUCCEEDED">All executions</a>`}>
          ${recent.length ? html`<${List}>${recent.map((one) => html`<li key=${one.execution_id}><${Status} of=${one.status}/><a class="main cut grow" href=${`executions/${one.execution_id}`}><${Name}>${nameOf(one)}</${Name}></a>${one.started_at && html`<span class="muted small nowrap">${span(Date.parse(one.completed_at) - Date.parse(one.started_at))}</span>`}<span class="muted small nowrap"><${Time} at=${one.completed_at} style="relative"/></span></li>`)}</${List}>` : html`<${Empty} icon="executions" title="Nothing has finished yet"/>`}
        </${Card}>
      </div>
      <div class="span-4 stack">
        <${NextHour}/>
        <${Card} title="Failing now" flush extra=${html`<a class="small" href="jobs?failing=true">All failing jobs</a>`}>
          ${failing?.items.length ? html`<${List}>${failing.items.map((job) => html`<li key=${job.job_id}><span class=${`dot ${kindOf('FAILED')}`}></span><div class="grow"><a class="main cut" href=${`jobs/${job.job_id}`}><${Name}>${job.name}</${Name}></a><div class="muted small cut" title=${job.last_error}>${job.last_error ?? ''}</div></div></li>`)}</${List}>` : failing ? html`<${Empty} icon="check" title=${failing.next_cursor ? 'None of the latest jobs is failing' : 'No job is failing'}/>` : html`<p class="body muted">Reading…</p>`}
        </${Card}>
        <${Card} title="Queues by age" flush extra=${html`<a class="small" href="queues">All queues</a>`}>
          ${ages.length ? html`<${List}>${ages.slice(0, 6).map((lane) => html`<li key=${lane.queue + lane.job_type}><span class="cut grow"><a href=${`queues/${part(lane.queue)}`}><${Name}>${lane.queue}</${Name}></a> <span class="muted">${lane.job_type}</span></span><span class="muted small nowrap">${count(lane.queued)} queued</span><span class="nowrap">${span(lane.age)}</span></li>`)}</${List}>` : html`<${Empty} icon="queues" title="No queue is waiting"/>`}
        </${Card}>
        ${changes && html`<${Card} title="Changed last" flush extra=${html`<a class="small" href="audit">Audit log</a>`}>
          <${List}>${changes.items.map((entry) => html`<li key=${entry.entry_id}><div class="grow"><div class="cut"><${Name}>${entry.name}</${Name}> <span class="muted">${entry.action}</span></div><div class="muted small cut">${entry.object}</div></div><span class="muted small nowrap"><${Time} at=${entry.at} style="relative"/></span></li>`)}</${List}>
        </${Card}>`}
      </div>
    </div>`}`;
}
