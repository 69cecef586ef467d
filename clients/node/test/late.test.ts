/** The client whose event loop was busy: what it has not read in time. These tests keep it busy, so they run one by one. */
import { ok, strictEqual } from 'node:assert';
import { test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { Claim } from '../src/claim.js';
import { block, servers, states, unhurried, until, using } from './fake.js';

test('a clock that was read late counts for nothing (F4)', async () => {
  const [node] = await servers(1);
  let asked = 0;
  // K/2 is 512 ms here.
  node!.instead = ([word]) => { if (word === 'TIME' && ++asked === 1) setImmediate(() => block(700)); return undefined; };
  await using([node!], async (locks) => {
    await until(() => states(locks) === 'up');
    strictEqual(asked, 2);
    const lease = await unhurried(() => locks.acquire('jobs', { ttl: 50 }));
    ok(Math.abs(lease.fence / 1000 - Date.now()) < 100, `${lease.fence / 1000 - Date.now()} ms off`);
  }, { nodeTimeout: 2000 });
});

test('a node is not late where the client was late itself (T3)', async () => {
  const [node] = await servers(1);
  await using([node!], async (locks) => {
    const lease = await locks.acquire('jobs', { ttl: 1000 });
    await sleep(30);
    // The release is written once the event loop has time.
    lease.release();
    block(900);
    await sleep(400);
    strictEqual(states(locks), 'up');
    strictEqual(node!.connections, 1);
  }, { maxTtl: 1000, nodeTimeout: 300 });
});

test('a node that owes an answer is hung up on in time (T3)', async () => {
  const [node] = await servers(1);
  await using([node!], async (locks) => {
    const lease = await locks.acquire('jobs', { ttl: 1000 });
    node!.instead = (words) => (words[0] === 'EVALSHA' ? '' : undefined);
    const began = performance.now();
    lease.release();
    await until(() => node!.connections === 2);
    ok(performance.now() - began < 250);
    strictEqual(locks.nodes[0]!.standing === 'useless', false);
  }, { maxTtl: 1000, nodeTimeout: 50 });
});

test('heartbeats that were missed are left out (C21)', () => {
  const terms = { ttl: 60, patient: true, ticket: 1.7e15, token: String, K: 1500, nodeTimeout: 50, outage: 60, place: 0 };
  const claim = new Claim(terms, ['up'], 0);
  const answer = (now: number) => claim.react(now, () => claim.answer(0, claim.token, [0, 60, 1, 'x']));
  answer(1);
  claim.out = [];
  const now = 600_000;
  let ticks = 0;
  for (; claim.due() <= now; ticks++) claim.react(now, () => claim.tick());
  strictEqual(ticks, 1);
  strictEqual(claim.out.length, 1);
  ok(claim.due() <= now + 20);
});
