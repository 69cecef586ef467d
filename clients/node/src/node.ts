/** One node: its connection, its guard, and the commands that it owes an answer (section 3 of docs/protocol.md). */
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { connect, type Socket } from 'node:net';
import { encode, Garbled, Push, Reader, Refusal, type Value } from './resp.js';

const script = (name: string) => readFileSync(new URL(`./${name}.lua`, import.meta.url), 'utf8');
export const SCRIPTS = { request: script('request'), release: script('release'), roll: script('roll') };
const SHA = new Map(Object.entries(SCRIPTS).map(([name, text]) => [name, createHash('sha1').update(text).digest('hex')]));
/** After these errors a connection begins anew (rule T5). */
const IN_DOUBT = /^(NOSCRIPT|LOADING|NOAUTH|MASTERDOWN|MOVED|ASK)|(^|-)READONLY /;
/** Products that speak the protocol of Redis, and need not run scripts as it does (rule T9). */
const OTHERS = /^(dragonfly|garnet|kvrocks|pika|redict)_version:|^executable:.*\/keydb|cluster_mget/m;

/** What a node tells the client that it belongs to. */
export interface Crew {
  readonly inbox: string;
  readonly owner: string;
  /** The guard in ms: `max_ttl` + 2 s or more. */
  readonly guard: number;
  readonly fresh: ReadonlySet<string>;
  now(): number;
  /** How long the node may owe an answer now, in ms. */
  patience(): number;
  /** Return why this run of a server cannot be used, or ''. */
  refuses(node: Node, run: string): string;
  up(node: Node): void;
  down(node: Node): void;
  /** A node that was not up is not up in another way. */
  changed(node: Node): void;
  pushed(node: Node, items: Value[]): void;
}

export class Node {
  state: 'dialling' | 'guarded' | 'up' | 'down' = 'down';
  /** Why the node cannot be used, in words. */
  problem = 'not connected yet';
  run = '';
  /** Whether the node was refused for what it is, and never worked. */
  useless = false;
  /** The node's clock less the client's monotonic one, in microseconds. */
  offset: number | undefined;
  /** When this run of the server last answered, on the client's clock. */
  heard = -Infinity;

  private socket: Socket | undefined;
  private pending: { sent: number; then: (reply: Value) => void }[] = [];
  private words: string[] = [];
  private known = 0;
  private before = -Infinity;
  private subscribed = false;
  private began = 0;
  private failures = 0;
  private closed = false;
  private readonly unsaid = new Map<string, { keys: string[]; args: (string | number)[]; ended: number }>();
  private timer: NodeJS.Timeout | undefined;

  constructor(readonly url: URL, private readonly crew: Crew) {}

  open(): void {
    const reader = new Reader();
    const socket = connect({ host: this.url.hostname, port: Number(this.url.port || 6379), noDelay: true });
    this.socket = socket;
    this.state = 'dialling';
    this.began = this.crew.now();
    this.subscribed = false;
    socket.on('connect', () => this.greet());
    socket.on('data', (bytes) => {
      try {
        for (const value of reader.push(bytes)) if (this.socket === socket) this.heardOf(value);
      } catch (error) {
        if (!(error instanceof Garbled)) throw error;
        this.hangUp(error.message);
      }
    });
    socket.on('error', (error) => this.socket === socket && this.hangUp(error.message));
    socket.on('close', () => this.socket === socket && this.hangUp('it closed the connection'));
    this.watch();
  }

  close(): void {
    this.closed = true;
    this.hangUp('closed');
  }

  /** Send `release`, and again after a reconnect if it was not answered by then (rule T6). */
  release(keys: string[], args: (string | number)[]): void {
    const token = String(args[0]);
    if (!this.unsaid.has(token)) this.unsaid.set(token, { keys, args, ended: this.crew.now() });
    if (this.state === 'up') this.run_script('release', keys, args, () => this.unsaid.delete(token));
  }

  run_script(name: keyof typeof SCRIPTS, keys: string[], args: (string | number)[], then: (reply: Value) => void): void {
    this.send(['EVALSHA', SHA.get(name) ?? '', keys.length, ...keys, ...args], then);
  }

  /** Send a command. All commands of one turn of the event loop leave in one write. */
  send(words: (string | number)[], then: (reply: Value) => void = () => undefined): void {
    if (this.words.length === 0) setImmediate(() => this.flush(this.socket));
    this.words.push(encode(words));
    this.pending.push({ sent: this.crew.now(), then });
  }

  /** Measure the node's clock. */
  askTime(): void {
    const sent = this.crew.now();
    this.send(['TIME'], (reply) => {
      if (!Array.isArray(reply)) return this.hangUp('TIME was refused');
      this.offset = Number(reply[0]) * 1e6 + Number(reply[1]) - ((sent + this.crew.now()) / 2) * 1000;
    });
  }

  /** Close the connection with a reset, so that nothing that is buffered is executed later (rule T4). */
  hangUp(problem: string): void {
    const socket = this.socket;
    if (!socket) return;
    const was = this.state;
    this.socket = undefined;
    this.state = 'down';
    this.problem = problem;
    this.pending = [];
    this.words = [];
    clearTimeout(this.timer);
    socket.on('error', () => undefined);
    socket.resetAndDestroy();
    if (was === 'up') this.crew.down(this);
    else this.crew.changed(this);
    if (this.closed) return;
    const now = this.crew.now();
    this.failures = was === 'up' && now - this.began >= 1000 ? 0 : this.failures + 1;
    const wait = this.failures === 0 ? 0 : Math.min(1280, 10 * 2 ** (this.failures - 1)) * (0.5 + Math.random() / 2);
    this.timer = setTimeout(() => this.open(), wait);
  }

  private flush(socket: Socket | undefined): void {
    if (!socket || socket !== this.socket) return;
    const words = this.words.join('');
    this.words = [];
    socket.write(words);
  }

  /** Hang up on a node that owes an answer for too long, once all that has arrived was read (rule T3). */
  private watch(): void {
    const wait = Math.max(10, this.crew.patience() / 4);
    this.timer = setTimeout(() => setImmediate(() => {
      if (!this.socket) return;
      const since = this.state === 'dialling' ? (this.pending[0]?.sent ?? this.began) : this.pending[0]?.sent;
      if (since !== undefined && this.crew.now() - since > this.crew.patience()) this.hangUp('it did not answer in time');
      else this.watch();
    }), wait);
  }

  private heardOf(value: Value): void {
    if (this.state !== 'dialling') this.heard = this.crew.now();
    if (value instanceof Push) {
      if (value.items[0] === 'subscribe' && value.items[1] === this.crew.inbox) this.subscribed = true;
      else this.crew.pushed(this, value.items);
      return;
    }
    if (value instanceof Refusal && IN_DOUBT.test(value.message)) return this.hangUp(value.message);
    const owed = this.pending.shift();
    if (!owed) return this.hangUp('it answered what nobody had asked');
    owed.then(value);
  }

  private greet(): void {
    const { username, password, pathname } = this.url;
    const must = (reply: Value) => reply instanceof Refusal && this.isUseless(`refused: ${reply.message}`);
    const login = password ? ['AUTH', decodeURIComponent(username) || 'default', decodeURIComponent(password)] : [];
    const info: string[] = [];
    const keep = (reply: Value) => (typeof reply === 'string' ? info.push(reply) : this.hangUp('INFO was refused'));
    this.send(['HELLO', 3, ...login], must);
    if (pathname.length > 1 && pathname !== '/0') this.send(['SELECT', pathname.slice(1)], must);
    this.send(['CLIENT', 'SETNAME', `holdfast:${this.crew.owner}:${this.crew.inbox.slice(0, 8)}`]);
    this.send(['CLIENT', 'SETINFO', 'LIB-NAME', 'holdfast']);
    this.send(['CLIENT', 'TRACKING', 'ON', 'OPTIN', 'NOLOOP']);
    this.words.push(encode(['SUBSCRIBE', this.crew.inbox]));
    for (const section of ['server', 'replication', 'memory']) this.send(['INFO', section], keep);
    this.askTime();
    const last = this.pending.at(-1);
    const then = last?.then;
    if (last) last.then = (reply) => { then?.(reply); if (this.socket) this.greeted(info.join('\r\n')); };
  }

  private greeted(info: string): void {
    const facts = new Map([...info.matchAll(/^(\w+):(.*?)\r?$/gm)].map(([, name, fact]) => [name, fact ?? '']));
    const run = facts.get('run_id') ?? '';
    const uptime = Number(facts.get('uptime_in_seconds') ?? NaN) * 1000;
    const version = Number.parseFloat(facts.get('valkey_version') ?? facts.get('redis_version') ?? '0');
    if (!this.subscribed) return this.isUseless('it confirmed no subscription');
    if (facts.get('role') !== 'master' || !run || !(uptime >= 0)) return this.isUseless('it is no primary server');
    if (OTHERS.test(info)) return this.isUseless('it is neither Redis nor Valkey');
    if (facts.get('redis_mode') === 'cluster') return this.isUseless('it is part of a cluster');
    if (version < (facts.has('valkey_version') ? 7.2 : 6.2)) return this.isUseless(`its version ${version} is too old`);
    const now = this.crew.now();
    if (run !== this.run) {
      this.before = this.heard;
      this.known = now;
      this.run = run;
    }
    this.heard = now;
    const refused = this.crew.refuses(this, run);
    if (refused) return this.hangUp(refused);
    const { guard, fresh } = this.crew;
    // A promoted server has forgotten what its primary granted, so that its uptime says nothing (rule G3).
    const promoted = Number(facts.get('second_repl_offset') ?? -1) >= 0 || !/^0*$/.test(facts.get('master_replid2') ?? '');
    const aged = fresh.has(run) ? now : Math.max(now + guard + 1000 - uptime, this.before + guard);
    const usable = Math.max(now, Math.min(this.known + guard, promoted ? Infinity : aged));
    this.state = 'guarded';
    this.useless = false;
    this.problem = `restarted: it may have forgotten locks, and is used again in ${Math.ceil((usable - now) / 1000)} s`;
    if (usable <= now) return this.ready();
    this.crew.changed(this);
    clearTimeout(this.timer);
    this.timer = setTimeout(() => { this.watch(); this.ready(); }, usable - now);
  }

  /** It will not do, whenever it is asked. What worked once may work again. */
  private isUseless(problem: string): void {
    this.useless = this.run === '';
    this.hangUp(problem);
  }

  private ready(): void {
    for (const text of Object.values(SCRIPTS)) this.send(['SCRIPT', 'LOAD', text]);
    this.state = 'up';
    this.problem = '';
    const now = this.crew.now();
    for (const [token, { keys, args, ended }] of this.unsaid) {
      if (now - ended < this.crew.guard - 2000) this.release(keys, args);
      else this.unsaid.delete(token);
    }
    this.crew.up(this);
  }
}
