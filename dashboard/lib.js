// The libraries in one place: components, hooks, signals and markup.

import { cloneElement, Component, h, render, Fragment } from './vendor/preact.js';
import htm from './vendor/htm.js';

export { cloneElement, Component, h, render, Fragment };
export { useEffect, useLayoutEffect, useMemo, useRef, useState, useCallback, useId, useErrorBoundary } from './vendor/hooks.js';
export { signal, computed, effect, batch } from './vendor/signals.js';

/** Markup with components: html`<${Component} prop=${value}/>`. */
export const html = htm.bind(h);
