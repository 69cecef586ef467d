/**
 * One process of the storm of `tests/clients`: it takes the lock again and again, and writes down when it held it.
 *
 * A line of the file is the fence and a moment (of the machine's monotonic clock, in ns) that was read before the lease
 * was asked whether it is held. So a process that was stopped in between writes nothing that it cannot know.
 */
import { once } from 'node:events';
import { openSync, writeSync } from 'node:fs';
import { connect } from 'node:net';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import { Holdfast, LockBusy, LockLost, NoQuorum } from '../src/index.js';

interface Task {
  urls: string[]; name: string; prefix: string; maxTtl: number; ttl: number; file: string; register: number;
  long: number;
}

const task = JSON.parse(process.argv[2] ?? '') as Task;
const file = openSync(task.file, 'a');
const locks = new Holdfast(task.urls, { prefix: task.prefix, maxTtl: task.maxTtl });
const register = connect(task.register, '127.0.0.1');
const lines = createInterface(register);

/** Ask the register, which checks fences. */
async function says(...words: unknown[]): Promise<string> {
  const answer = once(lines, 'line');
  register.write(`${words.join(' ')}\n`);
  return ((await answer) as string[])[0]!;
}

for (;;) {
  try {
    const lease = await locks.acquire(task.name, { ttl: task.ttl, wait: Math.random() < 0.1 ? 0 : 5000 });
    const old = await says('read', lease.fence);
    // Some sections are longer than a lease, and are renewed.
    for (let beats = Math.random() < task.long ? 500 : 3 + Math.random() * 8; beats > 0; beats--) {
      const now = process.hrtime.bigint();
      lease.check();
      writeSync(file, `${lease.fence} ${now}\n`);
      await sleep(1);
    }
    if (old !== 'refused') await says('write', lease.fence, old, Number(old) + 1);
    lease.release();
  } catch (error) {
    if (!(error instanceof LockBusy || error instanceof LockLost || error instanceof NoQuorum)) throw error;
  }
  await sleep(1 + Math.random() * 100);
}
