// Hold a lock for as long as this process lives, by `holdfast serve --resp` and ioredis.

import Redis from 'ioredis';

// The lease ends with its connection, so another connection is of no use.
const locks = new Redis({ port: 7421, retryStrategy: null });
locks.on('error', () => process.exit(2));
locks.on('end', () => process.exit(2));
const found = await locks.call('LOCK', 'invoice:42', 'WAIT', 5000, 'SESSION');
if (found === null) {
  console.error('another process has it');
  process.exit(1);
}
await locks.call('CHECK', found[0]); // before each step that must not happen twice: rejects if it is lost
console.log('working with fence', found[1]); // pass the fence to what you write to
await locks.call('UNLOCK', found[0]);
process.exit(0);
