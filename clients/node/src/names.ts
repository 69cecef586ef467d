/** Keys, tokens and tickets (section 4 of docs/protocol.md), and the clock. */
import { uptime } from 'node:os';

/** What the keys of holdfast end in or begin with, after a hash tag: no name may look like one of them. */
const FIELDS =
  'fence|queue|waiters|readers|rfence|rwqueue|rwwaiters|permits|rate|window|leader|watchers|result|cache|latch|barrier|' +
  'arrived|awaited|note';
const RESERVED = new RegExp(`^\\{[^}]*\\}:(${FIELDS})|\\[(slot \\d+|election|once|once [^[\\]]+|fill)\\]$`, 's');
/** The value of a lock's key that is the token of a claim, and not a foreign client's. */
export const TOKEN = /^\d{16}:[0-9a-f]{32}:[0-9a-f]{8}(:[rw])?$/;

/** Linux tells its uptime, which counts sleep, in steps of 10 ms. */
const STEP = 10;
const base = uptime() * 1000 - performance.now();
let slept = 0;

/** Return the client's clock, in ms: monotonic, and running on while the machine sleeps. */
export function monotonic(): number {
  const behind = uptime() * 1000 - performance.now() - base;
  if (behind > slept + 2 * STEP) slept = behind + STEP;
  return performance.now() + slept;
}

/** Return the part of a key that decides on its hash slot: its hash tag, or nothing. */
const hashTag = (key: string) => /^[^{]*\{([^}]+)\}/.exec(key)?.[1];

/** Return the four keys of a lock: its own, the fence, the queue and the waiters. */
export function keysOf(key: string): string[] {
  const tag = hashTag(key);
  const field = (name: string) => (tag === undefined ? `{${key}}:${name}` : `{${tag}}:${name}:${key}`);
  return [key, field('fence'), field('queue'), field('waiters')];
}

/** Throw a RangeError if the name could share a key with another name. */
export function checkName(name: string, prefix = ''): void {
  const key = prefix + name;
  const size = Buffer.byteLength(name);
  if (size < 1 || size > 512) throw new RangeError(`a name has 1 to 512 bytes, not ${size}`);
  // A node would send back other characters than half a character, and no push would find its claim.
  if (Buffer.from(name).toString() !== name) throw new RangeError(`'${name}' has half of a surrogate pair: no text of Unicode`);
  if (key.includes('}') && hashTag(key) === undefined) throw new RangeError(`'${name}' has a '}' but no hash tag`);
  if (RESERVED.test(key)) throw new RangeError(`'${name}' looks like a key that belongs to another name`);
}

/** Whether a ticket has 16 digits, and is below the numbers that Lua does not count exactly (rule K3). */
export const isTicket = (time: number) => time >= 1e15 && time < 9e15;

/** Draws tickets and tokens for one client. */
export class Tickets {
  /** The last ticket. 0: forget it, because its clock was wrong (rule F6). */
  last = 0;
  private serial = 0;

  constructor(readonly inbox: string) {}

  /** Return `now` in microseconds, or a little more: greater than every ticket that was drawn before. */
  ticket(now: number): number {
    if (!isTicket(now)) throw new RangeError(`the clocks show ${now} us after 1970, which cannot be right: set them (NTP)`);
    this.last = Math.max(Math.floor(now), this.last + 1);
    return this.last;
  }

  /** Return a token that no other claim has. */
  token(ticket: number): string {
    this.serial += 1;
    return `${ticket}:${this.inbox}:${this.serial.toString(16).padStart(8, '0')}`;
  }
}
