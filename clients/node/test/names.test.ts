/** Keys, tokens and tickets: section 4 of docs/protocol.md. */
import { deepStrictEqual, ok, strictEqual, throws } from 'node:assert';
import { test } from 'node:test';
import { checkName, keysOf, TOKEN, Tickets } from '../src/names.js';

test('all keys of a name lie in one hash slot', () => {
  deepStrictEqual(keysOf('invoice:42'), ['invoice:42', '{invoice:42}:fence', '{invoice:42}:queue', '{invoice:42}:waiters']);
  deepStrictEqual(keysOf('a{b}c')[1], '{b}:fence:a{b}c');
  deepStrictEqual(keysOf('a{b')[1], '{a{b}:fence');
});

test('names that could share a key with another name are refused', () => {
  const others = ['{a}:fence', '{a}:queue:b', 'a[slot 7]', 'a[election]', 'a[once]', 'a[once day]', 'a[fill]'];
  for (const name of ['', 'x'.repeat(513), 'a}', '{}', 'x\ud800', ...others]) {
    throws(() => checkName(name), RangeError, name);
  }
  for (const name of ['a', 'x'.repeat(512), '{a}', '{a}:b', 'fence', 'a[slot x]', 'a[slot 7] ']) checkName(name);
});

test('tickets grow whatever the clock does, and no two tokens are alike', () => {
  const tickets = new Tickets('c'.repeat(32));
  const first = tickets.ticket(1.7e15);
  const second = tickets.ticket(1.6e15);
  ok(second > first);
  const tokens = [tickets.token(first), tickets.token(first), tickets.token(second)];
  strictEqual(new Set(tokens).size, 3);
  ok(tokens.every((it) => TOKEN.test(it)));
  ok(!TOKEN.test('shared') && !TOKEN.test(''));
  for (const wrong of [NaN, -1, 9e15]) throws(() => new Tickets('').ticket(wrong), RangeError);
});
