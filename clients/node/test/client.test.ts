/** The client on servers that do wrong: what the protocol asks of connections, guards and clocks. */
import { match, ok, strictEqual } from 'node:assert';
import { spawn } from 'node:child_process';
import { describe, it } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { Holdfast, LockBusy, LockLost, NoQuorum } from '../src/index.js';
import { block, failure, Fake, servers, states, unhurried, until, using } from './fake.js';

/** The guard of a client with the least `maxTtl`, in ms. */
const GUARD = 2050;
const NONE = 'redis://127.0.0.1:1';

describe('the client', { concurrency: 6 }, () => {
  it('what one run of a server has set going does not end the guard of the next (G1)', async () => {
    const node = await new Fake().restart('1').listen();
    node.adopted = 'another run';
    // The client is busy from the last word of the greeting until after its next look at the node.
    node.instead = ([word]) => void (word === 'TIME' && block(100));
    await using([node], async (locks) => {
      await until(() => states(locks) === 'guarded');
      node.instead = () => undefined;
      await sleep(900);
      node.restart();
      node.cut();
      const born = performance.now();
      await until(() => states(locks) === 'up', 4);
      const first = node.commands.find(({ at, words }) => at > born && words[0] === 'SCRIPT')!;
      ok(first.at - born >= 2050, `scripts were loaded ${first.at - born} ms after the start`);
    }, { nodeTimeout: 50 });
  });

  it('uses a run at once that an operator has called new, and no other run for that word (G5)', async () => {
    const node = await new Fake().restart().listen();
    await using([node], async (locks) => {
      await until(() => states(locks) === 'up', 1);
      node.restart();
      node.cut();
      await until(() => states(locks) === 'guarded');
      node.adopted = node.facts.run_id!;
      node.cut();
      await sleep(500);
      strictEqual(states(locks), 'guarded', 'this client has heard the earlier run');
    });
  });

  it('counts a server once, however long nobody has spoken to it (T8)', async () => {
    const [node] = await servers(1);
    await using([node!], async (locks) => {
      // The other address is dialled again every 1.28 s at the latest.
      await sleep(GUARD + 1400);
      strictEqual(states(locks).split(',').filter((state) => state === 'up').length, 1);
      const { error } = await failure(unhurried(() => locks.acquire('jobs', { ttl: 50, wait: 0 })));
      ok(error instanceof NoQuorum);
      match(error.message, /the same server/);
    }, {}, [node!.url(), node!.url('127.0.0.2'), NONE]);
  });

  it('takes a server that has two addresses back after a reconnect (T8)', async () => {
    const [node] = await servers(1);
    await using([node!], async (locks) => {
      await until(() => states(locks).includes('up'));
      node!.cut();
      await until(() => !states(locks).includes('up'));
      await until(() => states(locks).includes('up'));
    }, {}, [node!.url(), node!.url('127.0.0.2')]);
  });

  for (const ahead of [-3_600_000, 3_600_000]) {
    it(`draws tickets by the clock of its nodes, ${ahead} ms ahead, also those of before it knew it (F6)`, async () => {
      const nodes = await servers(3);
      for (const node of nodes) node.ahead = ahead;
      await using(nodes, async (locks) => {
        const right = () => (Date.now() + ahead) * 1000;
        const first = await locks.acquire('a', { ttl: 900 });
        const second = await locks.acquire('b', { ttl: 900 });
        for (const { fence } of [first, second]) ok(Math.abs(fence - right()) < 2e6, `${fence} is far from ${right()}`);
      }, { maxTtl: 900 });
    });
  }

  for (const query of ['?failover=15', '?x']) {
    it(`refuses an address with ${query}, and says what to do (G10)`, () => {
      const made = () => new Holdfast([`redis://127.0.0.1:1${query}`]);
      let said = '';
      try { void made().close(); } catch (error) { said = String(error); }
      match(said, /^RangeError: .*not supported.*use another client/);
    });
  }

  it('extends a lease once a majority has confirmed it, and says if none has (C18)', async () => {
    const nodes = await servers(3);
    await using(nodes, async (locks) => {
      const lease = await locks.acquire('jobs', { ttl: 1000 });
      await lease.extend(5000);
      ok(lease.remaining() > 4000, `${lease.remaining()} ms are left`);
      for (const node of nodes.slice(1)) node.instead = ([word]) => (word === 'EVALSHA' ? '-OOM\r\n' : undefined);
      const { error, took } = await failure(lease.extend());
      ok(error instanceof NoQuorum && took < 1000, `${error} after ${took} ms`);
      ok(lease.remaining() > 4000, 'what a majority has granted before stays');
      strictEqual((await failure(lease.extend(5001))).error.name, 'RangeError');
      lease.release();
      ok((await failure(lease.extend())).error instanceof LockLost);
    }, { maxTtl: 5000 });
  });

  it('refuses a password that it cannot read, and reads an address of IPv6', async () => {
    const { error } = await failure((async () => void (await new Holdfast(['redis://:100%@h']).close()))());
    match(String(error), /^RangeError: .*write %25/);
    const locks = new Holdfast(['redis://[::1]:1']);
    await until(() => locks.nodes[0]!.problem !== 'not connected yet');
    match(locks.nodes[0]!.problem, /::1/);
    await locks.close();
  });

  it('guards a server that was promoted again under its run id (G3)', async () => {
    const [node] = await servers(1);
    await using([node!], async (locks) => {
      await until(() => states(locks) === 'up');
      await sleep(1000);
      const loads = node!.said('SCRIPT').length;
      Object.assign(node!.facts, { master_replid: 'b'.repeat(40), master_replid2: 'a'.repeat(40), second_repl_offset: '7' });
      node!.cut();
      await until(() => states(locks) === 'guarded');
      await sleep(GUARD - 200);
      strictEqual(node!.said('SCRIPT').length, loads, 'something was sent within the guard');
      await until(() => states(locks) === 'up');
      Object.assign(node!.facts, { master_replid: 'c'.repeat(40), master_replid2: 'b'.repeat(40) });
      node!.cut();
      await until(() => states(locks) === 'guarded');
    });
  });

  it('opens no connection after close (T3)', async () => {
    const node = await new Fake().listen();
    node.stop();
    const locks = new Holdfast([node.url()], { maxTtl: 50 });
    await until(() => locks.nodes[0]!.problem.includes('ECONNREFUSED'));
    await locks.close();
    const again = await new Fake().listen(node.port);
    await sleep(1500);
    strictEqual(again.connections, 0);
    again.stop();
  });

  it('keeps no process alive after close', async () => {
    const [node] = await servers(1);
    node!.adopted = node!.facts.run_id!;
    const text = `
      const { Holdfast } = await import(${JSON.stringify(new URL('../src/index.js', import.meta.url).href)});
      const locks = new Holdfast(['${node!.url()}', '${NONE}'], { nodeTimeout: 20_000 });
      while (locks.nodes[0].state !== 'up') await new Promise((done) => setTimeout(done, 5));
      await locks.close();
      console.log('closed');`;
    const child = spawn(process.execPath, ['--input-type=module', '-e', text], { stdio: ['ignore', 'pipe', 'inherit'] });
    const closed = await new Promise<number>((done) => child.stdout.once('data', () => done(performance.now())));
    await new Promise((ended) => child.once('exit', ended));
    ok(performance.now() - closed < 2000, `the process went on for ${performance.now() - closed} ms`);
    node!.stop();
  });

  it('uses no node that tells no time (F4)', async () => {
    const [node] = await servers(1);
    node!.instead = ([word]) => (word === 'TIME' ? '*2\r\n$1\r\nx\r\n$1\r\ny\r\n' : undefined);
    await using([node!], async (locks) => {
      await until(() => node!.connections > 2);
      match(locks.nodes[0]!.problem, /tells no time/);
      strictEqual(node!.said('SCRIPT').length, 0);
    });
  });

  it('refuses a ttl above 10 s, because it writes no marks (G14)', async () => {
    const [node] = await servers(1);
    await using([node!], async (locks) => {
      match(String((await failure(locks.acquire('jobs', { ttl: 10_001 }))).error), /RangeError.*from 50 to 10000 ms/);
      const lease = await locks.acquire('jobs');
      match(String((await failure(lease.extend(10_001))).error), /RangeError.*from 50 to 10000 ms/);
    }, { maxTtl: 30_000 });
  });

  it('refuses a ttl whose third is shorter than the round trip (C19)', async () => {
    const nodes = await servers(3);
    for (const node of nodes) node.delay = 30;
    await using(nodes, async (locks) => {
      await until(() => states(locks) === 'up,up,up');
      match(String((await failure(locks.acquire('jobs', { ttl: 50 }))).error), /RangeError.*too short.*Choose/);
      (await locks.acquire('jobs', { ttl: 1000 })).release();
    }, { maxTtl: 1000 });
  });

  it('gives a connection node_timeout to be made, however short the leases are (T3)', async () => {
    const [node] = await servers(1);
    node!.instead = ([word]) => { node!.delay = word === 'EVALSHA' ? 0 : 60; return undefined; };
    await using([node!], async (locks) => {
      (await locks.acquire('jobs', { ttl: 120 })).release();
      strictEqual(node!.connections, 1);
    }, { maxTtl: 120 });
  });

  // What the nodes answer, the ttl, which is also the outage, and how many ms an endless acquire waits at most.
  const refusals: [string, (words: string[]) => string | undefined, number, number][] = [
    ['SCRIPT LOAD is refused', ([word]) => (word === 'SCRIPT' ? '-NOPERM no scripts\r\n' : undefined), 2000, 400],
    ['each request is answered by MOVED', ([word]) => (word === 'EVALSHA' ? '-MOVED 1 h:1\r\n' : undefined), 2000, 400],
    ['the password is missing', ([word]) => (word === 'HELLO' ? '-NOAUTH HELLO needs AUTH\r\n' : undefined), 2000, 400],
    ['the user may not subscribe', ([word]) => (word === 'SUBSCRIBE' ? '-NOPERM no channel\r\n' : undefined), 2000, 400],
    ['the server loads its data for ever', ([word]) => (word === 'SCRIPT' ? '-LOADING data\r\n' : undefined), 400, 1500],
  ];
  for (const [name, instead, ttl, most] of refusals) {
    it(`does not wait for ever if ${name} (C17)`, async () => {
      const nodes = await servers(3);
      for (const node of nodes) node.instead = instead;
      await using(nodes, async (locks) => {
        const late = new AbortController();
        const tooLate = sleep(most, undefined, { signal: late.signal });
        const { error } = await failure(Promise.race([locks.acquire('jobs', { ttl }), tooLate]));
        late.abort();
        tooLate.catch(() => undefined);
        ok(error instanceof NoQuorum, String(error));
      }, { maxTtl: ttl });
    });
  }

  it('waits for a server that has too many clients for a moment (C17)', async () => {
    const [node] = await servers(1);
    const full = '-ERR max number of clients reached\r\n';
    node!.instead = ([word]) => (word === 'HELLO' && node!.connections < 3 ? full : undefined);
    await using([node!], async (locks) => (await locks.acquire('jobs', { ttl: 1000 })).release(), { maxTtl: 1000 });
  });

  for (const [name, wait, least] of [['wait', Infinity, 300], ['try', 0, 100]] as const) {
    it(`gives nodes that were away for long time to come back, in each ${name} (C17)`, async () => {
      await using([], async (locks) => {
        await sleep(500);
        const { error, took } = await failure(locks.acquire('jobs', { ttl: 300, wait }));
        ok(error instanceof NoQuorum);
        ok(took >= least - 5, `it took ${took} ms`);
      }, { maxTtl: 300, nodeTimeout: 100 }, [NONE]);
    });
  }

  it('dials at once when a caller comes, and has the lock (C17)', async () => {
    const [node] = await servers(1);
    let refused = 0;
    node!.instead = ([word]) => (word === 'HELLO' && refused < 8 ? (refused++, '-ERR max number of clients reached\r\n') : undefined);
    await using([node!], async (locks) => {
      // It rests for 0.64 s at least, once it has read the last refusal.
      await until(() => refused === 8, 10);
      await sleep(100);
      const began = Date.now();
      (await locks.acquire('jobs', { ttl: 3000, wait: 0 })).release();
      ok(Date.now() - began < 500, `it took ${Date.now() - began} ms`);
    }, { maxTtl: 3000, nodeTimeout: 500 });
  });

  const strangers: [string, Record<string, string>, string, RegExp][] = [
    ['a node of a cluster of Redis', { redis_mode: 'cluster' }, 'redis', /part of a cluster/],
    ['a node of a cluster of Valkey', { redis_mode: '', server_mode: 'cluster' }, 'valkey', /part of a cluster/],
    ['another product, by its server_name', { server_name: 'other' }, '', /neither Redis nor Valkey/],
    ['another product, by its HELLO', {}, 'redis-like', /neither Redis nor Valkey/],
    ['KeyDB, by its program', { executable: '/usr/bin/keydb-server' }, 'redis', /neither Redis nor Valkey/],
    ['a replica', { role: 'slave' }, 'redis', /no primary/],
    ['an old Redis', { redis_version: '6.0.16' }, 'redis', /too old/],
    ['a server without an uptime', { uptime_in_seconds: '' }, 'redis', /hides/],
  ];
  for (const [name, facts, product, why] of strangers) {
    it(`refuses ${name} (T9)`, async () => {
      const [node] = await servers(1);
      node!.product = product;
      Object.assign(node!.facts, facts);
      await using([node!], async (locks) => match(String((await failure(locks.acquire('jobs', { ttl: 50 }))).error), why));
    });
  }

  it('reads 7.10 as newer than 7.2, and names its library', async () => {
    const [node] = await servers(1);
    Object.assign(node!.facts, { valkey_version: '7.10.1', server_name: 'valkey' });
    await using([node!], async (locks) => {
      (await locks.acquire('jobs', { ttl: 50 })).release();
      ok(node!.said('CLIENT').some((words) => words[2] === 'LIB-VER' && /^\d+\.\d+/.test(words[3]!)));
    });
  });

  it('notes its settings twice a minute, and not with each acquire (G7, G8)', async () => {
    const [node] = await servers(1);
    await using([node!], async (locks) => {
      for (const name of ['a', 'b', 'c']) (await locks.acquire(name, { ttl: 1000 })).release();
      await until(() => node!.said('EVALSHA').some((words) => words.at(-1) === '180000' && /^v2 1000 1 [0-9a-f]{8}  0 [0-9.]+$/.test(words[8]!)));
      strictEqual(node!.said('EVALSHA').filter((words) => words[8]?.startsWith('v2 ')).length, 1);
    }, { maxTtl: 1000 });
  });

  it('tells the holder of a lease that its client was closed', async () => {
    const [node] = await servers(1);
    await using([node!], async (locks) => {
      const lease = await locks.acquire('jobs', { ttl: 1000 });
      await locks.close();
      ok(lease.signal.aborted && lease.signal.reason instanceof LockLost);
      strictEqual(lease.remaining(), 0);
      strictEqual(node!.releases(), 1);
    }, { maxTtl: 1000 });
  });

  it('connects again after a grant below the proposed fence (T5)', async () => {
    const [node] = await servers(1);
    await using([node!], async (locks) => {
      (await locks.acquire('jobs', { ttl: 1000 })).release();
      const before = node!.connections;
      node!.instead = (words) => (words.length === 13 ? ':1\r\n' : undefined);
      void failure(locks.acquire('others', { ttl: 1000 }));
      await until(() => node!.connections > before);
      node!.instead = () => undefined;
    }, { maxTtl: 1000 });
  });

  it('connects again after an error that leaves it in doubt (T5), and sends a release that was owed (T6)', async () => {
    const [node] = await servers(1);
    await using([node!], async (locks) => {
      const lease = await locks.acquire('jobs', { ttl: 1000 });
      node!.instead = (words) => (words.length === 9 ? '' : undefined);
      lease.release();
      await until(() => node!.releases() === 1);
      node!.instead = (words) => (words.length === 13 ? '-NOAUTH Authentication required.\r\n' : undefined);
      node!.cut();
      await until(() => node!.releases() === 2);
      const before = node!.connections;
      void failure(locks.acquire('others', { ttl: 1000 }));
      await until(() => node!.connections > before);
      node!.instead = () => undefined;
    }, { maxTtl: 1000 });
  });

  it('sends a release again that met a node without the scripts (T5, T6)', async () => {
    const [node] = await servers(1);
    await using([node!], async (locks) => {
      const lease = await locks.acquire('jobs', { ttl: 1000 });
      node!.instead = (words) => (words.length === 9 && node!.releases() === 1 ? '-NOSCRIPT No matching script.\r\n' : undefined);
      lease.release();
      await until(() => node!.releases() === 2);
    }, { maxTtl: 1000 });
  });

  it('ends a try that a foreign client is in the way of (Q15)', async () => {
    const [node] = await servers(1);
    node!.instead = (words) => (words.length === 13 ? '*4\r\n:0\r\n:1000\r\n:-1\r\n$7\r\nforeign\r\n' : undefined);
    await using([node!], async (locks) => {
      ok((await failure(locks.acquire('jobs', { ttl: 1000, wait: 0 }))).error instanceof LockBusy);
    }, { maxTtl: 1000 });
  });
});
