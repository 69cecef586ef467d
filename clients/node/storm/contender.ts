/**
 * One process of the storm of `tests/clients`: it takes the lock again and again, and writes down when it held it.
 *
 * A line of the file is the fence and a moment (of the machine's monotonic clock, in ns) that was read before the lease
 * was asked whether it is held. So a process that was stopped in between writes nothing that it cannot know.
 */
import { openSync, writeSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { Holdfast, LockBusy, LockLost, NoQuorum } from '../src/index.js';

interface Task { urls: string[]; fresh: string[]; name: string; prefix: string; maxTtl: number; ttl: number; file: string }

const task = JSON.parse(process.argv[2] ?? '') as Task;
const file = openSync(task.file, 'a');
const locks = new Holdfast(task.urls, { prefix: task.prefix, maxTtl: task.maxTtl, fresh: task.fresh });

for (;;) {
  try {
    const lease = await locks.acquire(task.name, { ttl: task.ttl, wait: Math.random() < 0.1 ? 0 : 5000 });
    for (let beats = 3 + Math.random() * 8; beats > 0; beats--) {
      const now = process.hrtime.bigint();
      lease.check();
      writeSync(file, `${lease.fence} ${now}\n`);
      await sleep(1);
    }
    lease.release();
  } catch (error) {
    if (!(error instanceof LockBusy || error instanceof LockLost || error instanceof NoQuorum)) throw error;
    await sleep(1 + Math.random() * 20);
  }
}
