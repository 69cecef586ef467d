/** One node: its connection, its guard, and the commands that it owes an answer (section 3 of docs/protocol.md). */
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { connect, type Socket } from 'node:net';
import type { Standing } from './claim.js';
import type { Holdfast } from './index.js';
import { Guard } from './guard.js';
import { monotonic } from './names.js';
import { encode, Push, Reader, Refusal, type Value } from './resp.js';

type Word = string | number;
const NAMES = ['request', 'release', 'registry'] as const;
const SCRIPTS = NAMES.map((name) => readFileSync(new URL(`./${name}.lua`, import.meta.url), 'utf8'));
const SHA = SCRIPTS.map((text) => createHash('sha1').update(text).digest('hex'));
export const VERSION = '0.1.0';
/** After these errors a connection begins anew (rule T5). */
const IN_DOUBT = /^(NOSCRIPT|LOADING|NOAUTH|MASTERDOWN|MOVED|ASK)|(^|-)READONLY /;
/** Refusals of the greeting that time will mend. All others are about what the server is. */
const PASSING = /^(LOADING|BUSY|MASTERDOWN|TRYAGAIN|CLUSTERDOWN|ERR max number of clients)/;
/** Products that speak the protocol of Redis, and need not run scripts as it does (rule T9). */
const OTHERS = /^((dragonfly|garnet|kvrocks|pika|redict)_version:|executable:.*\/keydb[^/\n]*$|features:.*cluster_mget)/m;
/** The key in which an operator says of a run of the server that it began empty and never granted a lock (rule G5). */
const ADOPTED = '{holdfast}:adopted';
/** A look at a node is late if it comes later than planned by this share of the time that an answer may be owed. */
const LATE = 1 / 8;
/** After this silence, in ms, a connection that does not answer is opened again at once. */
const QUIET = 30_000;

/** Return why a server will not do, by what it says in INFO and HELLO, or ''. */
export function unfit(said: string, fact: (name: string) => string): string {
  const isValkey = fact('valkey_version') !== '';
  const version = fact(isValkey ? 'valkey_version' : 'redis_version');
  const [major = 0, minor = 0] = version.split('.').map(Number);
  const products = [fact('server_name'), /(?:^|,)server,([^,\n]*)/.exec(said)?.[1] ?? ''];
  if (OTHERS.test(said) || products.some((name) => !['', 'redis', 'valkey'].includes(name))) {
    return 'it is neither Redis nor Valkey, and nobody has shown that locks are safe on it';
  }
  if (!(major * 1000 + minor >= (isValkey ? 7002 : 6002))) {
    return `its version ${version} is too old: use Redis 6.2 or newer, or Valkey 7.2 or newer`;
  }
  if (fact('redis_mode') === 'cluster' || fact('server_mode') === 'cluster') {
    return 'it is part of a cluster: name servers that are independent of each other';
  }
  if (fact('role') !== 'master') return 'it is no primary: name servers that are independent of each other';
  const isKnown = fact('run_id') !== '' && /^\d{1,12}$/.test(fact('uptime_in_seconds'));
  return isKnown ? '' : 'it hides its run_id or its uptime: name the server itself, and no proxy';
}

export class Node {
  state: Standing | 'loading' = 'down';
  /** Why the node cannot be used, in words. */
  problem = 'not connected yet';
  /** The node's clock less the client's monotonic one, in microseconds, and by how much that may be wrong. */
  clock: { offset: number; blur: number } | undefined;
  /** When that was measured. */
  measured = -Infinity;
  /** The shortest time that an answer on the latest connection took, in ms (rule C19). 0: not measured yet. */
  trip = 0;
  /** What this client noted in the registry here, and when. */
  noted = { note: '', at: -Infinity };

  private socket: Socket | undefined;
  private pending: { sent: number; then: (reply: Value) => void }[] = [];
  private timer: NodeJS.Timeout | undefined;
  /** When `look` is due. */
  private due = 0;
  /** When to open the connection, or to leave the guard. */
  private wake = 0;
  /** When the step of making the connection began that is under way, and since when the connection is of use. */
  private began = 0;
  private opened = Infinity;
  /** Until when the silence of the node may have been this client's, and the question that was excused for it. */
  private excused = -Infinity;
  private pardoned: object | undefined;
  /** Attempts in a row that came to nothing, and how the node stood after the last one. */
  private failures = 0;
  private failed: Standing = 'down';
  private worked = false;
  private closed = false;
  private subscribed = false;
  readonly guard = new Guard();
  private readonly unsaid = new Map<string, { keys: string[]; args: Word[]; ended: number }>();
  private readonly login: string[] = [];

  constructor(readonly at: number, readonly url: URL, private readonly client: Holdfast) {
    try {
      const [user, password] = [url.username, url.password].map(decodeURIComponent);
      if (user || password) this.login = ['AUTH', user || 'default', password ?? ''];
    } catch {
      throw new RangeError(`the user or password of ${url.host} has a '%' that encodes nothing: write %25`);
    }
  }

  /** How claims see the node. One that is dialled again after a failure is not hoped for (rules C17 and Q15). */
  get standing(): Standing {
    if (this.state !== 'dialling' && this.state !== 'loading') return this.state;
    return this.failures === 0 ? 'dialling' : this.failed;
  }

  close(): void {
    this.closed = true;
    this.hangUp('closed');
  }

  /** Send `release`, and again after a reconnect if it was not answered by then (rule T6). */
  release(keys: string[], args: Word[], ended = monotonic()): void {
    const token = String(args[0]);
    this.unsaid.set(token, { keys, args, ended });
    if (this.state === 'up') this.call('release', keys, args, () => this.unsaid.delete(token));
  }

  /** Call a script. */
  call(name: (typeof NAMES)[number], keys: string[], args: Word[], then?: (reply: Value) => void): void {
    this.send(['EVALSHA', SHA[NAMES.indexOf(name)]!, keys.length, ...keys, ...args], then);
  }

  /** Send a command. All commands of one turn of the event loop leave in one write. `null`: a push confirms it. */
  send(words: Word[], then: ((reply: Value) => void) | null = () => undefined): void {
    const { socket } = this;
    if (!socket) return;
    if (socket.writableCorked === 0) {
      socket.cork();
      setImmediate(() => socket.uncork());
    }
    socket.write(encode(words));
    if (then) this.pending.push({ sent: monotonic(), then });
  }

  /** Measure the node's clock. What is read too late counts for nothing (rule F4). */
  askTime(then: () => void): void {
    const sent = monotonic();
    this.send(['TIME'], (reply) => {
      const now = monotonic();
      const [seconds = NaN, microseconds = NaN] = Array.isArray(reply) ? reply.map(Number) : [];
      if (!(seconds + microseconds > 0)) return this.hangUp('it tells no time');
      if (now - sent > this.client.K / 2) {
        this.began = now;
        return this.askTime(then);
      }
      const offset = seconds * 1e6 + microseconds - ((sent + now) / 2) * 1000;
      this.clock = { offset, blur: ((now - sent) / 2) * 1000 };
      this.measured = now;
      then();
    });
  }

  /** Close the connection with a reset, so that nothing that is buffered is executed later (rule T4). */
  hangUp(problem: string, state: Standing = 'down'): void {
    const { socket } = this;
    if (socket) {
      this.socket = undefined;
      this.pending = [];
      this.problem = problem;
      // A reset of a socket that is still connecting would wait until it is connected.
      if (socket.connecting) socket.destroy();
      else socket.resetAndDestroy();
      const now = monotonic();
      this.failures = now - this.opened >= 1000 ? 0 : this.failures + 1;
      const delay = this.failures === 0 ? 0 : Math.min(1280, 10 * 2 ** this.failures);
      this.wake = now + delay * (0.5 + Math.random() / 2);
      this.opened = Infinity;
      this.state = state;
      this.failed = state;
      this.client.stands(this);
    }
    this.plan();
  }

  /** A caller has come: dial within 0.1 s, if the node rests after a failure (rule C17). */
  hurry(): void {
    if (this.socket) return;
    this.wake = Math.min(this.wake, monotonic() + 100);
    this.plan();
  }

  // What time brings ------------------------------------------------------------------------------------------------

  /** Do what is due. One timer serves all states, so that no timer of an earlier connection acts on a later one. */
  private look(): void {
    const now = monotonic();
    if (this.closed) return;
    if (!this.socket) {
      if (now >= this.wake) this.open();
    } else if (this.state === 'guarded') {
      if (now >= this.wake) this.load();
    } else {
      this.excuse(now);
      if (now - this.oldest() > this.client.patience(this.state)) this.tooLate();
    }
    this.plan();
  }

  /** Plan the next look. It comes once all that has arrived until then was read (rule T3). */
  private plan(): void {
    clearTimeout(this.timer);
    if (this.closed) return;
    const isOwed = this.socket && this.state !== 'guarded';
    const wait = isOwed ? Math.max(10, this.client.patience(this.state) / 4) : Math.max(0, this.wake - monotonic());
    this.due = monotonic() + Math.min(wait, 60_000);
    this.timer = setTimeout(() => setImmediate(() => this.look()), this.due - monotonic());
  }

  /** The node owes an answer for too long. After a long silence, a firewall may have cut the connection: no failure. */
  private tooLate(): void {
    const asked = this.pending[0]?.sent ?? 0;
    if (asked - this.guard.heard < QUIET) this.opened = Infinity;
    this.hangUp('it did not answer in time');
  }

  /** Since when the node owes an answer, or its part in making the connection. */
  private oldest(): number {
    if (this.state !== 'up') return this.began;
    return this.pending[0] ? Math.max(this.pending[0].sent, this.excused) : Infinity;
  }

  /** If this side was late, its last words may have left only now: a question has its time again, once (rule T3). */
  private excuse(now: number): void {
    const late = now - this.due;
    const patience = this.client.patience(this.state);
    if (late < patience * LATE) return;
    if (this.state !== 'up') this.began += Math.min(late, patience);
    if (this.pending[0] === this.pardoned) return;
    this.pardoned = this.pending[0];
    this.excused = now;
  }

  // The connection, from its beginning --------------------------------------------------------------------------------

  private open(): void {
    const reader = new Reader();
    const host = this.url.hostname.replace(/^\[|\]$/g, '');
    const socket = connect({ host, port: Number(this.url.port || 6379), noDelay: true });
    this.socket = socket;
    this.state = 'dialling';
    this.began = monotonic();
    this.subscribed = false;
    socket.on('connect', () => this.socket === socket && this.greet());
    socket.on('data', (bytes) => {
      try {
        for (const value of reader.push(bytes)) if (this.socket === socket) this.heardOf(value);
      } catch (error) {
        if (this.socket === socket) this.hangUp(String(error));
      }
    });
    socket.on('error', (error) => this.socket === socket && this.hangUp(error.message));
    socket.on('close', () => this.socket === socket && this.hangUp('it closed the connection'));
  }

  private heardOf(value: Value): void {
    // Until the greeting is over, nobody knows which run of the server speaks.
    if (this.state !== 'dialling') this.guard.heard = monotonic();
    if (value instanceof Push) {
      if (value.items[0] === 'subscribe' && value.items[1] === this.client.inbox) this.subscribed = true;
      return this.client.pushed(this, value.items);
    }
    const owed = this.pending.shift();
    if (!owed) return this.hangUp('it answered what nobody had asked');
    this.trip = Math.min(this.trip || Infinity, monotonic() - owed.sent);
    // Such an error is no answer: claims hear that the connection broke, and a release is sent again.
    if (this.state !== 'up' || !(value instanceof Refusal) || !IN_DOUBT.test(value.message)) return owed.then(value);
    // The names of a cluster live on other shards too, and asking again does not change that (rule C17).
    const isElsewhere = /^(MOVED|ASK)/.test(value.message);
    this.hangUp(value.message, isElsewhere ? 'useless' : 'down');
  }

  /** The server will not do, whenever it is asked. What worked once may work again. */
  private refuse(problem: string): void {
    this.hangUp(problem, this.worked ? 'down' : 'useless');
  }

  /** The node must not refuse this. Time mends a few refusals. */
  private isRefused(reply: Value): boolean {
    if (!(reply instanceof Refusal)) return false;
    if (PASSING.test(reply.message)) this.hangUp(reply.message);
    else this.refuse(`refused: ${reply.message}`);
    return true;
  }

  private greet(): void {
    const { inbox, owner } = this.client;
    const database = this.url.pathname.slice(1) || '0';
    const said: string[] = [];
    const keep = (reply: Value) => this.isRefused(reply) || said.push(String(reply));
    this.began = monotonic();
    this.trip = 0;
    this.send(['HELLO', 3, ...this.login], keep);
    if (database !== '0') this.send(['SELECT', database], keep);
    this.send(['CLIENT', 'SETNAME', `holdfast:${owner}:${inbox.slice(0, 8)}`]);
    this.send(['CLIENT', 'SETINFO', 'LIB-NAME', 'holdfast']);
    this.send(['CLIENT', 'SETINFO', 'LIB-VER', VERSION]);
    this.send(['CLIENT', 'TRACKING', 'ON', 'OPTIN', 'NOLOOP']);
    this.send(['SUBSCRIBE', inbox], null);
    for (const section of ['server', 'replication', 'memory']) this.send(['INFO', section], keep);
    let adopted: Value = null;
    this.send(['GET', ADOPTED], (reply) => (adopted = reply));
    this.askTime(() => this.greeted(said.join('\n'), adopted));
  }

  private greeted(said: string, adopted: Value): void {
    const fact = (name: string) => new RegExp(`^${name}:(.*?)\r?$`, 'm').exec(said)?.[1] ?? '';
    const problem = this.subscribed ? unfit(said, fact) : 'it confirms no subscription: the user needs SUBSCRIBE';
    if (problem) return this.refuse(problem);
    const run = fact('run_id');
    const refused = this.client.refuses(this, run);
    if (refused) return this.hangUp(refused);
    const now = monotonic();
    // A promoted server has forgotten what its primary granted, so that its uptime says nothing (rule G3). Its
    // replication id is another one after each promotion, while its run id stays.
    const isPromoted = Number(fact('second_repl_offset') || -1) >= 0 || !/^0*$/.test(fact('master_replid2'));
    const reign = isPromoted ? run + fact('master_replid') : run;
    const lasted = adopted === run ? Infinity : Number(fact('uptime_in_seconds'));
    this.wake = this.guard.meets(reign, isPromoted ? -Infinity : lasted, now, this.client.guard);
    if (this.wake <= now) return this.load();
    const seconds = Math.ceil((this.wake - now) / 1000);
    this.problem = `${isPromoted ? 'promoted' : 'restarted'}: it may have forgotten locks, and is used again in ${seconds} s`;
    this.state = 'guarded';
    this.client.stands(this);
    this.plan();
  }

  /** Load the scripts, after the guard (rule G4). The node is of use once it has taken them. */
  private load(): void {
    this.state = 'loading';
    this.began = monotonic();
    let left = SCRIPTS.length;
    const loaded = (reply: Value) => {
      left -= 1;
      if (!this.isRefused(reply) && left === 0) this.ready();
    };
    for (const text of SCRIPTS) this.send(['SCRIPT', 'LOAD', text], loaded);
    this.plan();
  }

  private ready(): void {
    const unsaid = [...this.unsaid.values()];
    const now = monotonic();
    this.state = 'up';
    this.problem = '';
    this.worked = true;
    this.opened = now;
    this.excused = now;
    this.noted.at = -Infinity;
    this.unsaid.clear();
    for (const { keys, args, ended } of unsaid) if (now - ended < this.client.maxTtl) this.release(keys, args, ended);
    this.client.stands(this);
  }

  /** Open the connection, and keep it open. */
  start(): void {
    this.open();
    this.plan();
  }
}
