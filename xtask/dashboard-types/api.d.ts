// The answers of the API by path, from the types that openapi-typescript makes of docs/openapi.json.

import type { components, paths } from './openapi';

export type Schema = components['schemas'];
/** A type of the API by its name in the document: Of<'Job'>. */
export type Of<Name extends keyof Schema> = Schema[Name];

type Below = { [P in keyof paths as P extends `/api/v1/${infer Rest}` ? Rest : never]: paths[P] };
type Split<P extends string> = P extends `${infer First}/${infer Rest}` ? [First, ...Split<Rest>] : [P];
/** Whether a path as code writes it, with text in place of its parameters, is this path of the document. */
type Fits<Written, Known> = Written extends [infer W, ...infer Ws]
  ? Known extends [infer K, ...infer Ks] ? (K extends `{${string}}` ? Fits<Ws, Ks> : string extends W ? false : W extends K ? Fits<Ws, Ks> : false) : false
  : Known extends [] ? true : false;
type Known<P extends string> = { [K in keyof Below]: K extends string ? (Fits<Split<P>, Split<K>> extends true ? K : never) : never }[keyof Below];
type Success<Operation> = Operation extends { responses: infer R }
  ? { [S in keyof R]: S extends 200 | 201 | 202 ? (R[S] extends { content: { 'application/json': infer B } } ? B : null) : never }[keyof R]
  : never;
/** What a path answers. A path that the document lacks is an error where its answer is used. */
export type Answer<Method extends 'get' | 'post' | 'put' | 'patch', P extends string> = Below[Known<P>] extends Record<Method, infer Operation> ? Success<Operation> : never;
