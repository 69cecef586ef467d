/** Keys, tokens and tickets (section 4 of docs/protocol.md). */

const FIELDS = 'fence queue waiters readers rfence rwqueue rwwaiters permits rate window leader watchers result cache latch barrier arrived awaited note';
const RESERVED = new RegExp(`^\\{[^}]*\\}:(${FIELDS.replaceAll(' ', '|')})|\\[(slot \\d+|election|once|once [^[\\]]+|fill)\\]$`, 's');
const TOKEN = /^\d{16}:[0-9a-f]{32}:[0-9a-f]{8}(:[rw])?$/;

/** A ticket that cannot be right: below 9 * 10^15, Lua counts exactly. */
const LAST_TICKET = 9e15;

/** Return the part of a key that decides on its hash slot: its hash tag, or nothing. */
function hashTag(key: string): string | undefined {
  const open = key.indexOf('{');
  const close = key.indexOf('}', open + 1);
  return open >= 0 && close > open + 1 ? key.slice(open + 1, close) : undefined;
}

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
  if (key.includes('}') && hashTag(key) === undefined) throw new RangeError(`'${name}' has a '}' but no hash tag`);
  if (RESERVED.test(key)) throw new RangeError(`'${name}' looks like a key that belongs to another name`);
}

/** Whether the value of a lock's key is the token of a claim, and not of a foreign client. */
export function isToken(value: string): boolean {
  return TOKEN.test(value);
}

/** Draws tickets and tokens for one client. */
export class Tickets {
  private last = 0;
  private serial = 0;

  constructor(readonly inbox: string) {}

  /** Return `now` in microseconds, or a little more: greater than every ticket that was drawn before. */
  ticket(now: number): number {
    if (!(now > 0 && now < LAST_TICKET)) throw new RangeError(`a clock that shows ${now} us cannot be right`);
    this.last = Math.max(Math.floor(now), this.last + 1);
    return this.last;
  }

  /** Return a token that no other claim has. */
  token(ticket: number): string {
    this.serial += 1;
    return `${padded(ticket)}:${this.inbox}:${this.serial.toString(16).padStart(8, '0')}`;
  }
}

/** Write a ticket or a fence in its 16 digits. */
export function padded(microseconds: number): string {
  return String(microseconds).padStart(16, '0');
}
