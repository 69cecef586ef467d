/** The reader of RESP3: whatever the pieces in which bytes arrive, and whatever a node sends. */
import { deepStrictEqual, strictEqual, throws } from 'node:assert';
import { test } from 'node:test';
import { encode, Garbled, Push, Reader, Refusal } from '../src/resp.js';

const STREAM = '+OK\r\n:42\r\n$3\r\na\r\n\r\n_\r\n-NOSCRIPT gone\r\n*3\r\n:1\r\n$-1\r\n*1\r\n_\r\n>2\r\n+message\r\n$2\r\n\u00e9\r\n=7\r\ntxt:abc\r\n%1\r\n+a\r\n:1\r\n';
const VALUES = ['OK', 42, 'a\r\n', null, new Refusal('NOSCRIPT gone'), [1, null, [null]], new Push(['message', '\u00e9']), 'abc', ['a', 1]];

test('values are the same in whatever pieces they arrive', () => {
  const bytes = Buffer.from(STREAM);
  for (let size = 1; size <= bytes.length; size++) {
    const reader = new Reader();
    const values = [];
    for (let at = 0; at < bytes.length; at += size) values.push(...reader.push(bytes.subarray(at, at + size)));
    deepStrictEqual(values, VALUES);
  }
});

test('what is no RESP3, or too large, is refused before it is read', () => {
  const deep = '*1\r\n'.repeat(3000);
  for (const text of ['HTTP/1.1 400\r\n', '$99999999\r\n', '*99999999\r\n', ':1.5\r\n', '$x\r\n', '$3\r\nabcde', '*?\r\n', deep]) {
    throws(() => new Reader().push(Buffer.from(text)), Garbled, text);
  }
  throws(() => new Reader().push(Buffer.alloc((1 << 20) + 1, 'a')), Garbled);
});

test('a command is written with the length of its bytes', () => {
  strictEqual(encode(['GET', '\u00e9', 5]), '*3\r\n$3\r\nGET\r\n$2\r\n\u00e9\r\n$1\r\n5\r\n');
});
