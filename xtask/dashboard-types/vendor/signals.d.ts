export interface Signal<T> { value: T; peek(): T; subscribe(tell: (value: T) => void): () => void }
export function signal<T = any>(first: T): Signal<T>;
export function computed<T>(make: () => T): { readonly value: T; peek(): T };
export function effect(run: () => void): () => void;
export function batch(run: () => void): void;
