// The types of what the page uses of preact.js, which comes without any.
export type Child = unknown;
export function html(strings: TemplateStringsArray, ...values: unknown[]): Child;
export function render(child: Child, parent: Element): void;
export function useState<T>(first: T | (() => T)): [T, (next: T | ((before: T) => T)) => void];
export function useEffect(effect: () => void | (() => void), inputs?: unknown[]): void;
export function useLayoutEffect(effect: () => void | (() => void), inputs?: unknown[]): void;
export function useMemo<T>(made: () => T, inputs: unknown[]): T;
export function useRef<T>(first: T | null): {current: T | null};
