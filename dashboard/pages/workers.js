// Workers and the processes of the cluster.

import { html } from '../lib.js';
import { get, part, post } from '../api.js';
import { ask, attempt, can, isLimited } from '../state.js';
import { Card, Empty, Failure, Head, Menu, Name, Notice, Status, Table, Time, useRead } from '../ui.js';
import { bytes, count } from '../time.js';

const served = (worker) => worker.queues.length ? `in ${worker.queues.join(', ')}` : 'in all queues';
const ORDERS = {
  pause: ['Pause', 'pause', 'It gets no new work, and continues with what it has.'],
  resume: ['Resume', 'play', 'It gets work again.'],
  drain: ['Drain', 'power', 'It finishes what runs, gives back the rest, and disconnects. This cannot be undone.'],
};

export default function Workers() {
  const workers = useRead([], (abort) => get('workers', undefined, abort), { every: 3000 });
  const nodes = useRead([], (abort) => isLimited() ? Promise.resolve(null) : get('nodes', undefined, abort), { every: 5000 });
  const order = async (worker, verb) => {
    const [text, , about] = ORDERS[verb];
    const answer = await ask({ title: `${text} worker ${worker.worker_id}?`, action: text, danger: verb === 'drain', body: html`<p class="muted">${about}</p>` });
    if (answer !== undefined && await attempt(() => post(`workers/${worker.session_id}/${verb}`), `${text}: ${worker.worker_id}`) !== undefined) workers.reload();
  };
  const items = workers.data?.items ?? [];
  const health = (worker) => {
    const state = worker.condition;
    if (!state) return html`<span class="muted">–</span>`;
    if (state.refuses?.length) return html`<span class="status bad" title=${state.refuses.join(', ')}>refuses: ${state.refuses.join(', ')}</span>`;
    const memory = state.memory_total_bytes ? `${Math.round(100 - 100 * Number(state.memory_free_bytes) / Number(state.memory_total_bytes))} % memory` : '';
    const more = [state.round_trip_ms !== null && state.round_trip_ms !== undefined && `${state.round_trip_ms} ms away`, state.disk_free_bytes && `${bytes(state.disk_free_bytes)} of disk free`].filter(Boolean).join(', ');
    return html`<span class="muted small cut" title=${more}>${[state.cpu_percent !== null && state.cpu_percent !== undefined && `${state.cpu_percent} % CPU`, memory].filter(Boolean).join(', ')}</span>`;
  };
  const columns = [
    { id: 'worker', label: 'Worker', cell: (worker) => html`<a class="main cut" href=${`executions?status=RUNNING&worker=${part(worker.worker_id)}`}><${Name}>${worker.worker_id}</${Name}></a>` },
    { id: 'state', label: 'State', cell: (worker) => html`<${Status} of=${worker.state}/>` },
    { id: 'slots', label: 'Slots', cell: (worker) => html`<div class="row tight" style=${{ flexWrap: 'nowrap' }}><div class="meter" style=${{ width: '60px' }} role="img" aria-label="Slots in use"><i style=${{ width: `${worker.slots ? 100 * worker.running / worker.slots : 0}%` }}></i></div><span class="small nowrap">${worker.running} of ${worker.slots}</span></div>` },
    { id: 'types', label: 'Runs', cell: (worker) => html`<span class="cut" title=${`${worker.job_types.join(', ')}; ${served(worker)}`}>${worker.job_types.join(', ')} <span class="muted small">${served(worker)}</span></span>` },
    { id: 'health', label: 'Health', cell: health },
    { id: 'where', label: 'Host and version', cell: (worker) => html`<span class="cut muted"><${Name}>${worker.host ?? '–'}</${Name}>${worker.embedded ? ', in the server' : ''}${worker.version ? `, ${worker.version}` : ''}</span>` },
    { id: 'beat', label: 'Heard', cell: (worker) => html`<span class="nowrap"><${Time} at=${worker.last_heartbeat_at} style="relative"/></span>` },
    { id: 'actions', label: '', cell: (worker) => can('workers:write') && !isLimited() && worker.state !== 'DRAINING' && html`<${Menu} small kind="plain" label=${`Actions on ${worker.worker_id}`} items=${[worker.state === 'PAUSED' ? 'resume' : 'pause', 'drain'].map((verb) => ({ text: ORDERS[verb][0], icon: ORDERS[verb][1], danger: verb === 'drain', run: () => order(worker, verb) }))}/>` },
  ];
  const parts = [
    { id: 'node', label: 'Node', cell: (node) => html`<span class="cut"><${Name}>${node.node_id}</${Name}>${node.leader ? html` <span class="chip">leader</span>` : ''}</span>` },
    { id: 'roles', label: 'Roles', cell: (node) => html`<span class="cut" title=${node.roles.join(', ')}>${node.roles.join(', ')}</span>` },
    { id: 'address', label: 'Address', cell: (node) => html`<span class="mono">${node.address || '–'}</span>` },
    { id: 'segments', label: 'Segments', num: true, cell: (node) => `${node.segments} of 64` },
    { id: 'clock', label: 'Clock', num: true, cell: (node) => html`<span class=${Math.abs(node.clock_offset_ms) > 500 ? 'status warn' : 'nowrap'}>${node.clock_offset_ms} ms</span>` },
    { id: 'store', label: 'Store', cell: (node) => html`<span class="cut">${node.store}, schema ${node.schema_version}</span>` },
    { id: 'version', label: 'Version', cell: (node) => html`<span class="nowrap">${node.version} <span class="muted small">tzdata ${node.tzdb_version}</span></span>` },
    { id: 'since', label: 'Started', cell: (node) => html`<span class="nowrap"><${Time} at=${node.started_at}/></span>` },
  ];
  const versions = new Set((nodes.data?.items ?? []).map((node) => node.version));
  return html`<${Head} title="Workers and nodes" about=${`${count(items.reduce((sum, worker) => sum + Number(worker.running), 0))} of ${count(items.reduce((sum, worker) => sum + Number(worker.slots), 0))} slots in use`}/>
    ${(nodes.data?.items ?? []).flatMap((node) => node.warnings.map((text) => html`<${Notice} kind="warn">${node.node_id}: ${text}</${Notice}>`))}
    ${versions.size > 1 && html`<${Notice} kind="warn">The nodes run different versions: ${[...versions].join(', ')}.</${Notice}>`}
    <div class="stack"><${Card} title="Workers" flush>${workers.error && !workers.data ? html`<div class="body"><${Failure} error=${workers.error}/></div>` : html`<${Table} label="Workers" columns=${columns} items=${items} pages=${{ isLoading: !workers.data }} keyOf=${(worker) => worker.session_id} empty=${html`<${Empty} icon="workers" title="No worker is connected">Start one with <code>punctual worker</code>, or write one in any language.</${Empty}>`}/>`}</${Card}>
    ${nodes.data && html`<${Card} title="Nodes" flush><${Table} label="Nodes" columns=${parts} items=${nodes.data.items} keyOf=${(node) => node.node_id}/></${Card}>`}</div>`;
}
