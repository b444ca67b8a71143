export function h(type: any, props?: any, ...children: any[]): any;
export function render(node: any, parent: Element | null): void;
export function cloneElement(node: any, props: any): any;
export class Component {
  props: any;
  state: any;
}
export const Fragment: any;
export const options: any;
