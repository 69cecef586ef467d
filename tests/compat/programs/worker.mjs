// What worker.py does, with libraries for Node: node worker.mjs LIBRARY URLS KEY FILE SECONDS
import { appendFileSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { randomUUID } from "node:crypto";
import { join } from "node:path";

const require = createRequire(join(process.env.PEER_MODULES, "package.json"));
const { Redis } = require("ioredis");
const [library, urls, key, file, seconds] = process.argv.slice(2);
const [INSIDE, BETWEEN, POLL, TTL, WAIT] = [1, 4, 1, 10000, 1000]; // milliseconds
const clients = urls.split(",").map((it) => new Redis(it));
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const RELEASE = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0";

// A lock as the documentation of Redis shows it.
async function ioredis() {
  const value = randomUUID();
  for (const end = Date.now() + WAIT; Date.now() < end; await pause(POLL))
    if ((await clients[0].set(key, value, "PX", TTL, "NX")) === "OK") return () => clients[0].eval(RELEASE, 1, key, value);
  return null;
}

let manager;
async function redlock() {
  if (manager === undefined) {
    const { default: Redlock } = require("redlock");
    manager = new Redlock(clients, { retryCount: 100, retryDelay: 5, retryJitter: 4 });
    manager.on("error", () => {});
  }
  try {
    const lock = await manager.acquire([key], TTL);
    return () => lock.release();
  } catch {
    return null;
  }
}

const enter = { "node-redlock": redlock, ioredis }[library];
writeFileSync(file, "");
console.log("ready");
await new Promise((resolve) => process.stdin.once("data", resolve));
for (const over = Date.now() + Number(seconds) * 1000; Date.now() < over; await pause(Math.random() * 2 * BETWEEN)) {
  const leave = await enter();
  if (leave === null) continue;
  const begin = process.hrtime.bigint();
  await pause(INSIDE);
  appendFileSync(file, `${begin} ${process.hrtime.bigint()}\n`);
  await leave();
}
process.exit(0);
