/** holdfast for Node: a lock over N independent Redis or Valkey servers. */
import { createHash, randomBytes } from 'node:crypto';
import { hostname } from 'node:os';
import { setTimeout as sleep } from 'node:timers/promises';
import { Claim, wordOf } from './claim.js';
import { checkName, keysOf, monotonic, Tickets } from './names.js';
import { Node, VERSION } from './node.js';
import type { Value } from './resp.js';

/** The longest ttl of a client that writes no marks on the nodes, in ms (rule G14). */
const UNMARKED = 10_000;

export interface Options {
  /** The longest ttl of any client of these nodes, in ms. The same for all of them. Default 30000. */
  maxTtl?: number;
  /** What every key begins with. The same for all clients. */
  prefix?: string;
  /** How long a node may owe an answer, in ms. Default `maxTtl` / 20, from 50 to 1000. */
  nodeTimeout?: number;
  /** What operators read as the holder. Default `host:pid`. */
  owner?: string;
}

export interface Wanted {
  /** The length of the lease in ms, from 50 to `maxTtl`, and 10000 at most. Default a third of `maxTtl`, or 10000. */
  ttl?: number;
  /** How long to wait in ms: 0 tries once. Default: without end. */
  wait?: number;
}

/** Somebody else holds the lock. */
export class LockBusy extends Error {}
/** Too few nodes can be used. */
export class NoQuorum extends Error {}
/** The lease is lost: another client may hold the lock by now. */
export class LockLost extends Error {}

/** A lock that is held, until it is released or lost. */
export class Lease {
  /** The fencing token: greater than that of every earlier lease of this name. */
  readonly fence: number;

  /** @param signal Aborted as soon as the lease is lost, or its client is closed. */
  constructor(
    readonly name: string,
    readonly signal: AbortSignal,
    private readonly claim: Claim,
    private readonly longest: number,
    private readonly run: (what?: () => void) => void,
  ) {
    this.fence = claim.fence;
  }

  /** Return how many ms the lease is still good for. 0: it is lost or released. */
  remaining(): number {
    this.run();
    return this.claim.state === 'held' ? Math.max(0, this.claim.deadline - monotonic()) : 0;
  }

  /** Throw LockLost if the lease is no longer held. */
  check(): void {
    if (this.remaining() <= 0) throw new LockLost(`'${this.name}' is not held any more: ${this.claim.reason}`);
  }

  /**
   * Have the lease last `ttl` ms from now at least: as long as when it was acquired, if that is not said.
   *
   * @throws LockLost if it is lost, NoQuorum if no majority has confirmed it in time. Then the lease may still be held.
   */
  async extend(ttl = this.claim.terms.ttl): Promise<void> {
    const { longest } = this;
    if (!(ttl >= 50 && ttl <= longest)) throw new RangeError(`ttl must be from 50 to ${longest} ms, not ${ttl}`);
    const isConfirmed = await new Promise<boolean>((then) => {
      this.run(() => this.claim.extend(Math.floor(ttl), then));
      if (this.claim.state !== 'held') then(false);
    });
    this.check();
    if (!isConfirmed) throw new NoQuorum(`'${this.name}' was not extended: no majority of the nodes has confirmed it in time`);
  }

  /** Give the lock back. The next waiter gets it. */
  release(): void {
    this.run(() => this.claim.end('released'));
  }
}

/** A claim that is not over. `done` tells its caller what has become of it. */
interface Live { claim: Claim; key: string; timer?: NodeJS.Timeout; done(): void }

const FAR_OFF = 'its clock is far from those of the others: set it (NTP)';

/** This client's own clock less the monotonic one, in microseconds. */
const ownClock = () => (Date.now() - monotonic()) * 1000;

/** Read the address of a node, or throw a RangeError that says what to write. */
function addressOf(text: string): URL {
  const url = new URL(text);
  if (url.protocol !== 'redis:') throw new RangeError(`${url.protocol}//${url.host} is not supported: write redis://host:port`);
  if (url.search) {
    throw new RangeError(
      `'${url.search}' in the address of ${url.host} is not supported: this client knows no failover and no other option. ` +
        'If other clients give this node a failover, use another client, or a server without replicas for all',
    );
  }
  return url;
}

export class Holdfast {
  readonly inbox = randomBytes(16).toString('hex');
  readonly owner: string;
  readonly guard: number;
  readonly K: number;
  readonly maxTtl: number;
  readonly nodes: Node[];
  private readonly prefix: string;
  private readonly nodeTimeout: number;
  private readonly tickets = new Tickets(this.inbox);
  private readonly live = new Set<Live>();
  /** At which node each run of a server was met, and until when it counts there: for ever if it is connected. */
  private readonly runs = new Map<string, { node: Node; until: number }>();
  /** The clock of tickets less the monotonic one, in microseconds. It begins as this client's own (rule F6). */
  private ahead: number;
  private readonly chores: NodeJS.Timeout[];
  private closed = false;

  /** @param urls One `redis://user:password@host:port/db` for each node: the same nodes for all clients. */
  constructor(urls: string[], options: Options = {}) {
    this.maxTtl = options.maxTtl ?? 30_000;
    this.prefix = options.prefix ?? '';
    this.nodeTimeout = options.nodeTimeout ?? Math.min(1000, Math.max(50, this.maxTtl / 20));
    this.owner = (options.owner ?? `${hostname()}:${process.pid}`).replaceAll(/\s/g, '_');
    this.guard = this.maxTtl + 2000;
    this.K = Math.floor(this.guard / 2);
    if (urls.length === 0) throw new RangeError('name one node at least');
    if (!(this.maxTtl >= 50)) throw new RangeError(`maxTtl must be 50 ms or more, not ${this.maxTtl}`);
    if (!(this.nodeTimeout > 0)) throw new RangeError(`nodeTimeout must be more than 0 ms, not ${this.nodeTimeout}`);
    if (Buffer.byteLength(this.prefix) > 256 || /[{}]/.test(this.prefix)) {
      throw new RangeError('a prefix has at most 256 bytes, and no braces');
    }
    this.ahead = ownClock();
    this.nodes = urls.map((text, at) => new Node(at, addressOf(text), this));
    for (const node of this.nodes) node.start();
    this.chores = [setInterval(() => this.live.size && this.register(), 10_000), setInterval(() => this.askTime(), 1_200_000)];
    for (const chore of this.chores) chore.unref();
  }

  /**
   * Acquire the lock, and keep it until it is released.
   *
   * @throws LockBusy if somebody else holds it for all of `wait`. NoQuorum if too few nodes can be used.
   */
  async acquire(name: string, wanted: Wanted = {}): Promise<Lease> {
    const longest = Math.min(this.maxTtl, UNMARKED);
    const { ttl = Math.min(this.maxTtl / 3, longest), wait = Infinity } = wanted;
    checkName(name, this.prefix);
    if (this.closed) throw new Error('this client is closed');
    if (!(ttl >= 50 && ttl <= longest)) throw new RangeError(`ttl must be from 50 to ${longest} ms, not ${ttl}`);
    if (!(wait >= 0)) throw new RangeError(`wait must be 0 ms or more, not ${wait}`);
    const trip = this.nodes.map((node) => node.trip).sort((a, b) => a - b)[this.nodes.length >> 1]!;
    if (ttl / 3 < trip) {
      const least = Math.ceil(trip * 3);
      const why = `answers of a majority take ${trip.toFixed(1)} ms`;
      throw new RangeError(`a ttl of ${ttl} ms is too short: ${why}. Choose several times ${least} ms`);
    }
    const ticket = this.tickets.ticket(monotonic() * 1000 + this.ahead);
    const terms = {
      ttl: Math.floor(ttl),
      nodeTimeout: this.nodeTimeout,
      outage: ttl,
      patient: wait > 0,
      ticket,
      token: (of: number) => this.tickets.token(of),
      K: this.K,
      place: createHash('sha1').update(`${ticket}${this.inbox}`).digest().readUInt32BE(0) / 2 ** 32,
    };
    return await new Promise((resolve, reject) => {
      for (const node of this.nodes) if (this.isDark()) node.hurry();
      const claim = new Claim(terms, this.nodes.map((node) => node.standing), monotonic());
      const ended = new AbortController();
      let lease: Lease | undefined;
      const timeIsUp = () => this.run(one, () => claim.state === 'waiting' && claim.end('time is up'));
      // A timer takes no more than 24 days. Longer is without end.
      const limit = wait > 0 && wait < 2 ** 31 ? setTimeout(timeIsUp, wait) : undefined;
      const done = () => {
        if (claim.state === 'waiting') return;
        clearTimeout(limit);
        if (claim.state === 'held') {
          lease ??= new Lease(name, ended.signal, claim, longest, (what) => this.run(one, what));
          return resolve(lease);
        }
        this.live.delete(one);
        if (claim.state === 'lost') ended.abort(new LockLost(`'${name}' was lost: ${claim.reason}`));
        reject(this.excuse(name, claim.reason));
      };
      const one: Live = { claim, key: this.prefix + name, done };
      this.live.add(one);
      this.run(one);
      this.register();
    });
  }

  /** Release everything, and close the connections once the nodes had `node_timeout` to answer. Leases are lost by it. */
  async close(): Promise<void> {
    this.closed = true;
    for (const chore of this.chores) clearInterval(chore);
    this.each((claim) => claim.end('the client was closed', claim.state === 'held' ? 'lost' : 'over'));
    const answers = this.nodes.map((node) => node.state === 'up' && new Promise<void>((answered) => node.askTime(answered)));
    // The timer that loses the race keeps no process alive.
    await Promise.race([Promise.all(answers), sleep(this.nodeTimeout, undefined, { ref: false })]);
    for (const node of this.nodes) node.close();
  }

  // What the nodes ask and tell ---------------------------------------------------------------------------------------

  /** How long a node may owe an answer now, in ms, or take for a step of making the connection (rule T3). */
  patience(state: Node['state']): number {
    if (state !== 'up') return this.nodeTimeout;
    return Math.min(this.nodeTimeout, ...[...this.live].map(({ claim }) => claim.terms.ttl / 3));
  }

  /** Return why this run of a server cannot be used, or ''. */
  refuses(node: Node, run: string): string {
    const now = monotonic();
    for (const [known, { until }] of this.runs) if (until <= now) this.runs.delete(known);
    // A server counts once, whatever its addresses are, and for a guard after its connection is gone (rule T8).
    const met = this.runs.get(run);
    if (met && met.node !== node) return `it is the same server as ${met.node.url.host}: name each server once`;
    this.runs.set(run, { node, until: Infinity });
    this.compareClocks(node);
    return this.isFarOff(node) ? FAR_OFF : '';
  }

  /** Whether a majority is away (rule C17). */
  private isDark(): boolean {
    return this.nodes.filter(({ standing }) => standing !== 'down' && standing !== 'useless').length <= this.nodes.length / 2;
  }

  /** A node stands in another way. */
  stands(node: Node): void {
    const now = monotonic();
    if (node.state === 'down' || node.state === 'useless') {
      for (const met of this.runs.values()) if (met.node === node) met.until = Math.min(met.until, now + this.guard);
    }
    this.each((claim) => claim.stands(node.at, node.standing));
    if (this.live.size) this.register();
  }

  pushed(node: Node, items: Value[]): void {
    if (items[0] === 'invalidate') {
      const keys = Array.isArray(items[1]) ? items[1] : [null];
      for (const key of keys) {
        this.each((claim, one) => (key === null || key === one.key) && claim.invalidated(node.at, key === null));
      }
    }
    const [, kind = '', token = '', fence = '', key = ''] = /^(\S+) (\S+) (\d+) (.*)$/s.exec(String(items[2])) ?? [];
    if (items[0] !== 'message' || items[1] !== this.inbox || !kind) return;
    // The token and the name must both be those of a live claim (rule T7).
    const one = [...this.live].find((it) => it.claim.token === token && it.key === key);
    if (one) this.run(one, () => one.claim.push(node.at, kind, Number(fence)));
    else if (kind === 'g') node.release(keysOf(key), [token, this.K]);
  }

  // -----------------------------------------------------------------------------------------------------------------

  /** Do something with a claim, send what it has to say, and see what has become of it. */
  private run(one: Live, what?: () => void): void {
    const { claim } = one;
    const keys = keysOf(one.key);
    claim.react(monotonic(), what);
    for (const command of claim.out.splice(0)) {
      const node = this.nodes[command.node]!;
      const { what, token } = command;
      if (what === 'release') {
        node.release(keys, [token, this.K]);
        continue;
      }
      if (command.watch) node.send(['CLIENT', 'CACHING', 'YES']);
      const args = [token, command.ttl, what, command.P, this.K, command.pxat];
      node.call('request', keys, args, (reply) => {
        // No grant is below P (F1): this answers something else (T5).
        if ((wordOf(reply)?.fence || Infinity) < command.P) return node.hangUp('it answered what nobody had asked');
        this.run(one, () => claim.answer(node.at, token, reply));
      });
    }
    one.done();
    clearTimeout(one.timer);
    if (!this.live.has(one)) return;
    one.timer = setTimeout(() => this.run(one, () => claim.tick()), Math.max(0, claim.due() - monotonic()));
  }

  private each(what: (claim: Claim, one: Live) => void): void {
    for (const one of [...this.live]) this.run(one, () => what(one.claim, one));
  }

  // Clocks ------------------------------------------------------------------------------------------------------------

  /** The median of the nodes' clocks. This client has the voice of each that has not told its time (rule F4). */
  private median(): { offset: number; blur: number } {
    const own = { offset: ownClock(), blur: 0 };
    const voices = this.nodes.map((node) => node.clock ?? own);
    if (voices.length % 2 === 0) voices.push(own);
    return voices.sort((a, b) => a.offset - b.offset)[voices.length >> 1]!;
  }

  /** A node whose clock is far off is not used: its fences would be far from all others' (rule F4). */
  private isFarOff(node: Node): boolean {
    const { clock } = node;
    return this.nodes.length > 1 && clock !== undefined && Math.abs(clock.offset - this.median().offset) > this.K * 500;
  }

  private askTime(): void {
    for (const node of this.nodes) if (node.state === 'up') node.askTime(() => this.compareClocks());
  }

  /** Take in what the nodes have told of their clocks. `met`: the node that is just being met, and that its caller judges. */
  private compareClocks(met?: Node): void {
    const { offset, blur } = this.median();
    const own = ownClock();
    const before = this.ahead;
    this.ahead = Math.abs(own - offset) <= blur ? own : offset;
    const by = Math.round(this.ahead - before);
    // Tickets that were drawn before were wrong, also the last one (rule F6).
    if (Math.abs(by) > this.K * 500) {
      this.tickets.last = 0;
      this.each((claim) => claim.corrected(by));
    }
    const isUsed = (node: Node) => node !== met && (node.state === 'up' || node.state === 'guarded');
    const wrong = this.nodes.filter((node) => isUsed(node) && this.isFarOff(node));
    if (wrong.length === 0) return;
    // Measures of long ago prove nothing if this client's own clock runs at another rate: measure again first.
    const old = this.nodes.filter((node) => node.state === 'up' && node.measured < monotonic() - 60_000);
    for (const node of old) node.askTime(() => this.compareClocks());
    for (const node of wrong) if (!old.includes(node)) node.hangUp(FAR_OFF);
  }

  /** Note the settings twice a minute, so that others know this client and its owner (rules G7 to G9). */
  private register(): void {
    const key = (name: string) => `{holdfast}:${name}:${this.prefix}`;
    const keys = [key('clients'), key('owner') + this.inbox, key('lists'), key('config')];
    const isMet = ({ state }: Node) => state === 'up' || state === 'guarded' || state === 'loading';
    const isKnown = this.nodes.every(({ standing }) => standing !== 'dialling');
    const runs = isKnown ? this.nodes.filter(isMet).map(({ guard }) => guard.run.slice(0, 8)).sort() : [];
    const note = `v2 ${Math.round(this.maxTtl)} ${this.nodes.length} ${runs.join(',')}  0 ${VERSION}`;
    const now = monotonic();
    for (const node of this.nodes) {
      if (node.state !== 'up' || (now - node.noted.at < 30_000 && (note === node.noted.note || !isKnown))) continue;
      const was = node.noted.note || note;
      node.call('registry', keys, [`${this.owner} ${this.inbox.slice(0, 8)}`, note, was, 26 * 3_600_000, '32 1000 16', 180_000]);
      node.noted = { note, at: now };
    }
  }

  private excuse(name: string, reason: string): Error {
    const problems = this.nodes.filter((node) => node.problem).map((node) => `${node.url.host}: ${node.problem}`);
    const usable = this.nodes.length - problems.length;
    if (reason !== 'no majority' && usable > this.nodes.length / 2) return new LockBusy(`'${name}' was not acquired: ${reason}`);
    return new NoQuorum(`${usable} of ${this.nodes.length} nodes usable for '${name}'. ${problems.join('. ')}`);
  }
}
