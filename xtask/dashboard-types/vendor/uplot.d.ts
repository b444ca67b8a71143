declare class uPlot {
  constructor(options: any, data: any[][], parent: Element);
  setData(data: any[][]): void;
  setSize(size: { width: number; height: number }): void;
  destroy(): void;
  static tzDate(at: Date, zone: string): Date;
  static paths: any;
}
export default uPlot;
