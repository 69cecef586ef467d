// The types of what the page uses of uplot.js, which is a plain script.
declare class uPlot {
    constructor(options: object, data: number[][], parent: Element);
    setData(data: number[][]): void;
    setSize(size: {width: number; height: number}): void;
    destroy(): void;
}
