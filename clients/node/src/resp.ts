/**
 * RESP3, as far as the answers of a node need it: a map is a list of keys and values. Knows bytes, and neither sockets
 * nor locks.
 */

/** An error that the node answered. It is a value here, because answers must stay in their order. */
export class Refusal {
  constructor(readonly message: string) {}
}

/** Something that the node sent without being asked, such as a message to the inbox. */
export class Push {
  constructor(readonly items: Value[]) {}
}

export type Value = null | number | string | Refusal | Push | Value[];

/** The bytes are no RESP3, or more than any answer may have: the connection cannot be used any more. */
export class Garbled extends Error {}

/** Nothing that this client asks for comes near these limits (rule T10 allows 32 MiB and 1,048,576 items). */
const MOST_BYTES = 1 << 20;
const MOST_ITEMS = 2000;

/** Write one command as the node reads it. */
export function encode(words: readonly (string | number)[]): string {
  return `*${words.length}\r\n` + words.map((word) => `$${Buffer.byteLength(String(word))}\r\n${word}\r\n`).join('');
}

/** Cut a stream of bytes into values. A value that has not arrived completely waits for more bytes. */
export class Reader {
  private bytes = Buffer.alloc(0);
  private at = 0;
  private items = 0;

  /** Add bytes, and return the values that are complete now. */
  push(chunk: Buffer): Value[] {
    this.bytes = Buffer.concat([this.bytes, chunk]);
    const values: Value[] = [];
    for (;;) {
      this.at = 0;
      this.items = 0;
      const value = this.value();
      if (value === undefined) break;
      values.push(value);
      this.bytes = this.bytes.subarray(this.at);
    }
    if (this.bytes.length > MOST_BYTES) throw new Garbled('an answer is larger than any answer may be');
    return values;
  }

  private value(): Value | undefined {
    const end = this.bytes.indexOf('\r\n', this.at);
    if (end < 0) return undefined;
    const line = this.bytes.toString('utf8', this.at, end);
    this.at = end + 2;
    const type = line.charAt(0);
    const rest = line.slice(1);
    if (type === '+') return rest;
    if (type === '-') return new Refusal(rest);
    if (line === '_' || line === '$-1' || line === '*-1') return null;
    const size = /^-?\d+$/.test(rest) ? Number(rest) : NaN;
    if (type === ':' && Number.isSafeInteger(size)) return size;
    // What follows has a size, which is looked at before there is room for it (rule T10).
    this.items += 1;
    const isTooLarge = !(size >= 0 && size <= MOST_BYTES) || this.items > MOST_ITEMS;
    if (isTooLarge) throw new Garbled(`no answer of a node begins with ${JSON.stringify(line.slice(0, 20))}`);
    if (type === '$') return this.text(size);
    if (type === '=') return this.text(size)?.slice('txt:'.length);
    if (type === '*') return this.list(size);
    if (type === '%') return this.list(size * 2);
    if (type !== '>') throw new Garbled(`no answer of a node begins with ${JSON.stringify(line.slice(0, 20))}`);
    const items = this.list(size);
    return items && new Push(items);
  }

  private text(size: number): string | undefined {
    const start = this.at;
    this.at = start + size + 2;
    if (this.at > this.bytes.length) return undefined;
    if (this.bytes.toString('latin1', start + size, this.at) !== '\r\n') throw new Garbled('a text is longer than it says');
    return this.bytes.toString('utf8', start, start + size);
  }

  private list(size: number): Value[] | undefined {
    const items: Value[] = [];
    while (items.length < size) {
      const item = this.value();
      if (item === undefined) return undefined;
      items.push(item);
    }
    return items;
  }
}
