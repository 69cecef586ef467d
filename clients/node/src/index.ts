/** holdfast for Node: a lock over N independent Redis or Valkey servers. */
import { createHash, randomBytes } from 'node:crypto';
import { hostname } from 'node:os';
import { Claim, type Standing } from './claim.js';
import { median, monotonic } from './clock.js';
import { checkName, keysOf, padded, Tickets } from './names.js';
import { Node, type Crew } from './node.js';
import type { Value } from './resp.js';

export interface Options {
  /** The longest ttl of any client of these nodes, in ms. The same for all of them. Default 30000. */
  maxTtl?: number;
  /** What every key begins with. The same for all clients. */
  prefix?: string;
  /** How long a node may owe an answer, in ms. Default `maxTtl` / 20, from 50 to 1000. */
  nodeTimeout?: number;
  /** What operators read as the holder. Default `host:pid`. */
  owner?: string;
  /** Run ids of servers that are known to be new, for tests: they need no guard. */
  fresh?: string[];
}

export interface Wanted {
  /** The length of the lease in ms, from 50 to `maxTtl`. Default a third of `maxTtl`. */
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
  private readonly ended = new AbortController();

  constructor(readonly name: string, private readonly claim: Claim, private readonly run: (what: () => void) => void) {}

  /** The fencing token: greater than that of every earlier lease of this name. */
  get fence(): number {
    return this.claim.fence;
  }

  /** Aborted as soon as the lease is lost. */
  get signal(): AbortSignal {
    return this.ended.signal;
  }

  /** Return how many ms the lease is still good for. 0: it is lost or released. */
  remaining(): number {
    const now = monotonic();
    let held = false;
    this.run(() => (held = this.claim.look(now)));
    return held ? Math.max(0, this.claim.deadline - now) : 0;
  }

  /** Throw LockLost if the lease is no longer held. */
  check(): void {
    if (this.remaining() <= 0) throw new LockLost(`'${this.name}' is not held any more: ${this.claim.reason}`);
  }

  /** Give the lock back. The next waiter gets it. */
  release(): void {
    this.run(() => this.claim.end('released', monotonic()));
  }

  /** Called by the client. */
  lost(reason: string): void {
    this.ended.abort(new LockLost(`'${this.name}' was lost: ${reason}`));
  }
}

interface Live { claim: Claim; key: string; timer?: NodeJS.Timeout; done(): void }

export class Holdfast implements Crew {
  readonly inbox = randomBytes(16).toString('hex');
  readonly owner: string;
  readonly guard: number;
  readonly fresh: ReadonlySet<string>;
  readonly nodes: Node[];
  private readonly maxTtl: number;
  private readonly prefix: string;
  private readonly nodeTimeout: number;
  private readonly K: number;
  private readonly tickets = new Tickets(this.inbox);
  private readonly live = new Set<Live>();
  private skew: number | undefined;
  private readonly chores: NodeJS.Timeout[];
  private closed = false;

  /** @param urls One `redis://user:password@host:port/db` for each node: the same nodes for all clients. */
  constructor(urls: string[], options: Options = {}) {
    this.maxTtl = options.maxTtl ?? 30_000;
    this.prefix = options.prefix ?? '';
    this.nodeTimeout = options.nodeTimeout ?? Math.min(1000, Math.max(50, this.maxTtl / 20));
    this.owner = (options.owner ?? `${hostname()}:${process.pid}`).replaceAll(/\s/g, '_');
    this.fresh = new Set(options.fresh);
    this.guard = this.maxTtl + 2000;
    this.K = Math.floor(this.guard / 2);
    if (urls.length === 0) throw new RangeError('name one node at least');
    if (Buffer.byteLength(this.prefix) > 256 || /[{}]/.test(this.prefix)) throw new RangeError('a prefix has at most 256 bytes, and no braces');
    this.nodes = urls.map((url) => {
      const parsed = new URL(url);
      if (parsed.protocol !== 'redis:') throw new RangeError(`'${url}' is not supported: use redis://host:port`);
      return new Node(parsed, this);
    });
    for (const node of this.nodes) node.open();
    const upNodes = () => this.nodes.filter((node) => node.state === 'up');
    this.chores = [
      setInterval(() => { this.compareClocks(); if (this.live.size) for (const node of upNodes()) this.sign(node); }, 60_000),
      setInterval(() => { for (const node of upNodes()) node.askTime(); }, 1_200_000),
    ];
    for (const chore of this.chores) chore.unref();
  }

  /**
   * Acquire the lock, and keep it until it is released.
   *
   * @throws LockBusy if somebody else holds it for all of `wait`. NoQuorum if too few nodes can be used.
   */
  async acquire(name: string, wanted: Wanted = {}): Promise<Lease> {
    const { ttl = this.maxTtl / 3, wait = Infinity } = wanted;
    checkName(name, this.prefix);
    if (this.closed) throw new Error('this client is closed');
    if (!(ttl >= 50 && ttl <= this.maxTtl)) throw new RangeError(`ttl must be from 50 to ${this.maxTtl} ms, not ${ttl}`);
    return await new Promise((resolve, reject) => {
      const now = this.now();
      const ticket = this.tickets.ticket(now * 1000 + this.clock());
      const hash = createHash('sha1').update(`${ticket}${this.inbox}`).digest();
      const terms = {
        key: this.prefix + name, ttl: Math.floor(ttl), patient: wait > 0, ticket, token: (of: number) => this.tickets.token(of), K: this.K,
        nodeTimeout: this.nodeTimeout, outage: ttl, place: hash.readUInt32BE(0) / 2 ** 32,
      };
      const claim = new Claim(terms, this.nodes.map((node) => this.standing(node)), now);
      let lease: Lease | undefined;
      const limit = wait > 0 && wait < 2 ** 31 ? setTimeout(() => this.run(one, () => claim.end('time is up', this.now())), wait) : undefined;
      const done = () => {
        if (claim.state === 'waiting') return;
        clearTimeout(limit);
        if (claim.state === 'held') return resolve((lease ??= new Lease(name, claim, (what) => this.run(one, what))));
        this.live.delete(one);
        if (claim.state === 'lost' && lease) lease.lost(claim.reason);
        reject(this.excuse(name, claim.reason));
      };
      const one: Live = { claim, key: terms.key, done };
      this.live.add(one);
      for (const node of this.nodes) if (node.state === 'up') this.sign(node);
      this.run(one, () => claim.begin(now));
    });
  }

  /** Release everything, and close the connections once the nodes had `node_timeout` to answer. */
  async close(): Promise<void> {
    this.closed = true;
    for (const chore of this.chores) clearInterval(chore);
    for (const one of [...this.live]) this.run(one, () => one.claim.end('the client was closed', this.now()));
    await Promise.race([
      Promise.all(this.nodes.filter((node) => node.state === 'up').map((node) => new Promise((answered) => node.send(['TIME'], answered)))),
      new Promise((late) => setTimeout(late, this.nodeTimeout)),
    ]);
    for (const node of this.nodes) node.close();
  }

  // What the nodes ask and tell ---------------------------------------------------------------------------------------

  now(): number {
    return monotonic();
  }

  patience(): number {
    return Math.min(this.nodeTimeout, ...[...this.live].map(({ claim }) => claim.terms.ttl / 3));
  }

  /** A server counts once, whatever its addresses are (rule T8). */
  refuses(node: Node, run: string): string {
    for (const other of this.nodes) {
      const recent = this.now() - other.heard < this.guard;
      if (other !== node && other.run === run && recent) return `it is the same server as ${other.url.host}`;
    }
    return this.isFarOff(node) ? 'its clock is far from those of the others: set it (NTP)' : '';
  }

  up(node: Node): void {
    this.compareClocks();
    if (this.live.size) this.sign(node);
    this.each((claim) => claim.connected(this.nodes.indexOf(node), this.now()));
  }

  changed(node: Node): void {
    this.each((claim) => claim.stands(this.nodes.indexOf(node), this.standing(node), this.now()));
  }

  down(node: Node): void {
    this.each((claim) => claim.disconnected(this.nodes.indexOf(node), this.standing(node), this.now()));
  }

  pushed(node: Node, items: Value[]): void {
    const at = this.nodes.indexOf(node);
    if (items[0] === 'invalidate') {
      const keys = Array.isArray(items[1]) ? items[1] : [null];
      for (const key of keys) this.each((claim) => claim.invalidated(at, key === null ? null : String(key), this.now()));
    }
    const [, kind = '', token = '', fence = '', key = ''] = /^(\S+) (\S+) (\d+) (.*)$/s.exec(String(items[2])) ?? [];
    if (items[0] !== 'message' || items[1] !== this.inbox || !kind) return;
    // The token and the name must both be those of a live claim (rule T7).
    const one = [...this.live].find(({ claim }) => claim.token === token && claim.terms.key === key);
    if (one) this.run(one, () => one.claim.push(at, kind, Number(fence), this.now()));
    else if (kind === 'g') node.release(keysOf(key), [token, this.K]);
  }

  // -----------------------------------------------------------------------------------------------------------------

  /** Do something with a claim, send what it has to say, and see what has become of it. */
  private run(one: Live, what: () => void): void {
    what();
    const { claim } = one;
    for (const command of claim.out.splice(0)) {
      const node = this.nodes[command.node] as Node;
      const keys = keysOf(one.key);
      if (command.what === 'release') node.release(keys, [command.token, this.K]);
      else {
        if (command.watch) node.send(['CLIENT', 'CACHING', 'YES']);
        const args = [command.token, claim.terms.ttl, command.mode, padded(command.P), this.K, command.pxat];
        node.run_script('request', keys, args, (reply) => {
          this.run(one, () => claim.answer(command.node, command.token, reply, this.now()));
        });
      }
    }
    one.done();
    clearTimeout(one.timer);
    if (!this.live.has(one)) return;
    one.timer = setTimeout(() => this.run(one, () => claim.tick(this.now())), Math.max(0, claim.due() - this.now()));
  }

  private each(what: (claim: Claim) => void): void {
    for (const one of [...this.live]) this.run(one, () => what(one.claim));
  }

  private standing(node: Node): Standing {
    return node.state === 'down' && node.useless ? 'useless' : node.state;
  }

  /** What to add to the monotonic clock for the clock of tickets (rule F4), in microseconds. */
  private clock(): number {
    const own = Date.now() * 1000 - this.now() * 1000;
    const voices = this.nodes.map((node) => node.offset ?? own);
    return median(voices.length % 2 ? voices : [...voices, own]);
  }

  /** A node whose clock is far off is not used: its fences would be far from all others' (rule F4). */
  private isFarOff(node: Node): boolean {
    return this.nodes.length > 1 && Math.abs((node.offset ?? 0) - this.clock()) > this.K * 500;
  }

  /** Look at the clocks again. When their median moves far, the tickets of claims that wait were wrong (rule F6). */
  private compareClocks(): void {
    for (const node of this.nodes) if (node.state === 'up' && this.isFarOff(node)) node.hangUp('its clock is far off: set it');
    this.skew ??= this.clock();
    const by = Math.round(this.clock() - this.skew);
    if (Math.abs(by) <= this.K * 500) return;
    this.skew = this.clock();
    this.each((claim) => claim.corrected(by, this.now()));
  }

  /** Sign the roll, so that others know this client and its owner (rules G8 and G9). */
  private sign(node: Node): void {
    const keys = [`{holdfast}:lists:${this.prefix}`, `{holdfast}:clients:${this.prefix}`, `{holdfast}:owner:${this.prefix}${this.inbox}`];
    node.run_script('roll', keys, [`${this.owner} ${this.inbox.slice(0, 8)}`, '0', 26 * 3_600_000, '16 1000 16', this.owner, 180_000], () => undefined);
  }

  private excuse(name: string, reason: string): Error {
    const problems = this.nodes.filter((node) => node.problem).map((node) => `${node.url.host}: ${node.problem}`);
    if (reason === 'no majority' || this.nodes.length - problems.length <= this.nodes.length / 2) {
      return new NoQuorum(`${this.nodes.length - problems.length} of ${this.nodes.length} nodes usable for '${name}'. ${problems.join('. ')}`);
    }
    return new LockBusy(`'${name}' was not acquired: ${reason}`);
  }
}
