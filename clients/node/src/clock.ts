/** The client's clock: monotonic, and running on while the machine sleeps. */
import { uptime } from 'node:os';

/** Linux tells its uptime, which counts sleep, in steps of 10 ms. */
const STEP = 10;
const base = uptime() * 1000 - performance.now();
let slept = 0;

/** Return the time in ms since some moment. */
export function monotonic(): number {
  const behind = uptime() * 1000 - performance.now() - base;
  if (behind > slept + 2 * STEP) slept = behind + STEP;
  return performance.now() + slept;
}

/** Return the median of some numbers. */
export function median(numbers: number[]): number {
  const sorted = [...numbers].sort((a, b) => a - b);
  const half = sorted.length >> 1;
  return sorted.length % 2 ? (sorted[half] ?? 0) : ((sorted[half - 1] ?? 0) + (sorted[half] ?? 0)) / 2;
}
