// The pause of the whole cluster, on the pages where somebody wonders why nothing starts.

import { html } from './lib.js';
import { remove } from './api.js';
import { ask, attempt, can, isLimited } from './state.js';
import { Button, Name, Notice, Time } from './ui.js';

async function resume(after) {
  const answer = await ask({ title: 'Resume the whole cluster?', action: 'Resume', body: html`<p class="muted">Everything that waited runs, late. Queues that were paused on their own stay paused.</p>` });
  if (answer !== undefined && await attempt(() => remove('pause'), 'Resumed the cluster') !== undefined) after();
}

/** @param {{pause?: import('punctual-api').Of<'ClusterPause'>, after: () => void}} of */
export function PauseNotice({ pause, after }) {
  if (!pause?.paused) return null;
  return html`<${Notice} kind="warn"><div class="row"><span class="grow"><strong>The whole cluster is paused: nothing starts.</strong> Since <${Time} at=${pause.paused_at}/>${pause.until && html` until <${Time} at=${pause.until}/>`}${pause.paused_by && html`, by <${Name}>${pause.paused_by}</${Name}>`}${pause.reason && html`: <${Name}>${pause.reason}</${Name}>`}</span>
    ${can('queues:write') && !isLimited() && html`<${Button} small icon="play" onClick=${() => resume(after)}>Resume the cluster</${Button}>`}</div></${Notice}>`;
}
