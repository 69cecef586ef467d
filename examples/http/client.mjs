// Run a command while holding a lock, by way of `holdfast serve`. Needs Node 18 or newer, and no packages.
//     node client.mjs NAME COMMAND [ARG...]
// The command gets FENCING_TOKEN, for the requests that it makes.

import { spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";

const gateway = process.env.HOLDFAST_GATEWAY ?? "http://127.0.0.1:7420";
const token = process.env.HOLDFAST_GATEWAY_TOKEN ?? "";
const ttl = Number(process.env.TTL_MS ?? 10000);
const over = new Set(["lost", "released", "unknown-lease", "gateway-gone"]);
const later = new Set(["", "draining", "overloaded", "no-quorum", "too-many"]);

class Lease {
  id = randomBytes(16).toString("hex");
  until = 0;
  said = {};
  fencingToken = "";

  // Only now does this program believe that it has the lock.
  get held() {
    return performance.now() < this.until;
  }

  // Sends a request. Returns the state that the answer says; "" if none came.
  async ask(method, path, body, patience) {
    const headers = { "content-type": "application/json", authorization: `Bearer ${token}` };
    const signal = AbortSignal.timeout(Math.max(1, Math.floor(patience)));
    // Count from before it is sent: the answer may be on its way for long.
    const sent = performance.now();
    try {
      const answer = await fetch(`${gateway}/v1/leases/${this.id}${path}`, { method, headers, body: JSON.stringify(body), signal });
      this.said = await answer.json();
      this.fencingToken = answer.headers.get("fencing-token") ?? this.fencingToken;
    } catch {
      return "";
    }
    const state = this.said.state ?? this.said.type.replace("/problems/", "");
    // With the gateway's name in it, any gateway behind a balancer finds the lease.
    this.id = this.said.id ?? this.id;
    if (state === "held") this.until = sent + this.said.valid_ms;
    return over.has(state) ? "lost" : state;
  }
}

const [name, command, ...rest] = process.argv.slice(2);
let lease = new Lease();
// After a long wait, the answer's time is over when it comes, so it asks again. While it waits, it may begin again.
while (!lease.held) {
  let state = await lease.ask("PUT", "", { names: [name], ttl_ms: ttl, wait_ms: 20000 }, 30000);
  if (state === "lost" || state === "gateway-unreachable") [lease, state] = [new Lease(), ""];
  if (later.has(state)) await sleep(1000);
  else if (state !== "held" && state !== "waiting") {
    console.error(`client.mjs: ${lease.said.detail}`);
    process.exit(75);
  }
}

const env = { ...process.env, FENCING_TOKEN: lease.fencingToken };
// From before the command begins: a signal that ended this program alone would free the lock under it.
for (const it of ["SIGINT", "SIGTERM"]) process.on(it, () => child.kill(it));
const child = spawn(command, rest, { env, stdio: "inherit", detached: true });
let status = null;
const ended = new Promise((done) => {
  child.on("error", () => done((status = 127)));
  child.on("exit", (code) => done((status = code ?? 137)));
});
while (status === null) {
  const pause = Math.min(lease.said.keepalive_ms ?? ttl / 3, Math.max(0, lease.until - performance.now()));
  await Promise.race([ended, sleep(pause)]);
  const state = status === null && lease.held ? await lease.ask("POST", "/keepalive", {}, lease.until - performance.now()) : "lost";
  if (status === null && (state === "lost" || !lease.held)) {
    console.error("client.mjs: the lock is lost");
    process.kill(-child.pid, "SIGKILL");
    await ended;
  }
}
await lease.ask("DELETE", "", {}, 3000);
process.exit(status);
