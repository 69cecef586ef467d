/** `clients/vectors/parts.json`: what can be computed, and has to be the same in all clients. */
import { deepStrictEqual, strictEqual, throws } from 'node:assert';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { Claim, type Mode } from '../src/claim.js';
import { Guard } from '../src/guard.js';
import { checkName, keysOf } from '../src/names.js';
import { unfit } from '../src/node.js';

interface Parts {
  keys: { prefix: string; name: string; keys: string[] | null }[];
  request: { ticket: number; ttl: number; mode: Mode; P: number; K: number; passed: number; arguments: string[] }[];
  servers: { info: string; fit: boolean }[];
  guards: { guard: number; steps: { at: number; run: string; uptime: number; usable: number }[] }[];
}
const parts = JSON.parse(readFileSync(new URL('../../../vectors/parts.json', import.meta.url), 'utf8')) as Parts;

test('the keys of names, and the names that are refused', () => {
  for (const { prefix, name, keys } of parts.keys) {
    if (keys === null) throws(() => checkName(name, prefix), RangeError, name);
    else {
      checkName(name, prefix);
      deepStrictEqual(keysOf(prefix + name), keys);
    }
  }
});

test('until when the record of a fence lasts', () => {
  for (const { ticket, ttl, mode, P, K, passed, arguments: sent } of parts.request.filter(({ mode }) => mode === 't')) {
    const terms = { ttl, nodeTimeout: 1000, outage: 9000, patient: false, ticket, token: () => sent[0]!, K, place: 0 };
    const claim = new Claim(terms, ['dialling'], 5);
    // Only a write-back proposes another fence than the ticket, and it needs a majority that has granted less.
    Object.assign(claim, { P });
    claim.react(5 + passed, () => claim.stands(0, 'up'));
    if (passed < ttl / 3) deepStrictEqual(claim.out.map((it) => 'pxat' in it && String(it.pxat)), [sent[5]], mode);
  }
});

test('which servers are of use', () => {
  for (const { info, fit } of parts.servers) {
    const fact = (name: string) => new RegExp(`^${name}:(.*?)\r?$`, 'm').exec(info)?.[1] ?? '';
    strictEqual(unfit(info, fact) === '', fit, info);
  }
});

test('from when on a server may be used', () => {
  for (const { guard, steps } of parts.guards) {
    const met = new Guard();
    for (const { at, run, uptime, usable } of steps) strictEqual(met.meets(run, uptime, at, guard), usable);
  }
});
