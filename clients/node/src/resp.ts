/** RESP3, as far as the answers of a node need it: a map is a list of keys and values. Knows bytes, and neither sockets nor locks. */

/** An error that the node answered. It is a value here, because answers must stay in their order. */
export class Refusal {
  constructor(readonly message: string) {}
}

/** Something that the node sent without being asked, such as a message to the inbox. */
export class Push {
  constructor(readonly items: Value[]) {}
}

export type Value = null | boolean | number | string | Refusal | Push | Value[];

/** The bytes are no RESP3, or more than any answer may have: the connection cannot be used any more. */
export class Garbled extends Error {}

/** Nothing that this client asks for comes near these limits (rule T10 allows 32 MiB and 1,048,576 items). */
const MOST_BYTES = 1 << 20;
const MOST_ITEMS = 1 << 16;
const MOST_DEPTH = 8;

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
      const value = this.value(0);
      if (value === undefined) {
        if (this.bytes.length > MOST_BYTES) throw new Garbled('an answer is larger than any answer may be');
        return values;
      }
      values.push(value);
      this.bytes = this.bytes.subarray(this.at);
    }
  }

  private line(): string | undefined {
    const end = this.bytes.indexOf('\r\n', this.at);
    if (end < 0) return undefined;
    const text = this.bytes.toString('utf8', this.at, end);
    this.at = end + 2;
    return text;
  }

  private value(depth: number): Value | undefined {
    if (depth > MOST_DEPTH || ++this.items > MOST_ITEMS) throw new Garbled('an answer has too many items');
    const line = this.line();
    if (line === undefined) return undefined;
    const rest = line.slice(1);
    switch (line[0]) {
      case '+': return rest;
      case '-': return new Refusal(rest);
      case ':': return this.size(rest, -Number.MAX_SAFE_INTEGER, Number.MAX_SAFE_INTEGER);
      case ',': return Number(rest);
      case '#': return rest === 't';
      case '_': return null;
      case '(': return rest;
      case '$': return this.text(rest);
      case '!': { const text = this.text(rest); return typeof text === 'string' ? new Refusal(text) : undefined; }
      case '=': { const text = this.text(rest); return typeof text === 'string' ? text.slice(4) : undefined; }
      case '*': case '~': return rest === '-1' ? null : this.list(rest, 1, depth);
      case '>': { const items = this.list(rest, 1, depth); return items && new Push(items); }
      case '%': return this.list(rest, 2, depth);
      default: throw new Garbled(`no answer begins with ${JSON.stringify(line.slice(0, 20))}`);
    }
  }

  private text(length: string): string | null | undefined {
    if (length === '-1') return null;
    const end = this.at + this.size(length, 0, MOST_BYTES);
    if (this.bytes.length < end + 2) return undefined;
    const text = this.bytes.toString('utf8', this.at, end);
    this.at = end + 2;
    return text;
  }

  private list(length: string, times: number, depth: number): Value[] | undefined {
    const items: Value[] = [];
    for (let left = this.size(length, 0, MOST_ITEMS) * times; left > 0; left--) {
      const item = this.value(depth + 1);
      if (item === undefined) return undefined;
      items.push(item);
    }
    return items;
  }

  private size(text: string, least: number, most: number): number {
    const size = /^-?\d+$/.test(text) ? Number(text) : NaN;
    if (!(size >= least && size <= most)) throw new Garbled(`${JSON.stringify(text.slice(0, 30))} is not a number in range`);
    return size;
  }
}
