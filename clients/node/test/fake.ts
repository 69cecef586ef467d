/** A server that greets like Redis and grants every request, and that does wrong on demand. */
import { createServer, type Server, type Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { Holdfast, type Options } from '../src/index.js';
import { Reader } from '../src/resp.js';

const bulk = (text: string) => `$${Buffer.byteLength(text)}\r\n${text}\r\n`;
let runs = 0;

export class Fake {
  /** What INFO says. */
  facts: Record<string, string> = {};
  /** The run of which it says that an operator has called it new. '': none. */
  adopted = '';
  /** What it calls itself in its answer to HELLO. */
  product = 'redis';
  /** How far its clock is ahead, and how late it answers, in ms. */
  ahead = 0;
  delay = 0;
  /** What it answers instead of the usual, in RESP. */
  instead: (words: string[]) => string | undefined = () => undefined;
  readonly commands: { at: number; words: string[] }[] = [];
  connections = 0;
  port = 0;
  private server: Server | undefined;
  private readonly sockets = new Set<Socket>();
  private readonly granted = new Map<string, string>();

  /** Become another run, which has just started. */
  restart(uptime = '0'): this {
    runs += 1;
    this.facts = { redis_version: '7.4.0', redis_mode: 'standalone', role: 'master', run_id: runs.toString(16).padStart(40, '0') };
    this.facts.uptime_in_seconds = uptime;
    return this;
  }

  async listen(port = 0): Promise<this> {
    if (!this.facts.run_id) this.restart();
    this.server = createServer((socket) => this.serve(socket));
    await new Promise<void>((listening) => this.server!.listen(port, '0.0.0.0', listening));
    this.port = (this.server.address() as { port: number }).port;
    return this;
  }

  /** Break all connections. */
  cut(): void {
    for (const socket of this.sockets) socket.destroy();
  }

  stop(): void {
    this.server?.close();
    this.cut();
  }

  url(host = '127.0.0.1'): string {
    return `redis://${host}:${this.port}`;
  }

  said(word: string): string[][] {
    return this.commands.flatMap(({ words }) => (words[0] === word ? [words] : []));
  }

  /** How many releases it was sent. */
  releases(): number {
    return this.said('EVALSHA').filter((words) => words.length === 9 && words[2] === '4').length;
  }

  private serve(socket: Socket): void {
    const reader = new Reader();
    this.connections += 1;
    this.sockets.add(socket);
    socket.on('close', () => this.sockets.delete(socket));
    socket.on('error', () => undefined);
    socket.on('data', (bytes) => {
      for (const value of reader.push(bytes)) {
        const words = (value as string[]).map(String);
        this.commands.push({ at: performance.now(), words });
        const answer = this.instead(words) ?? this.answer(words);
        const say = () => socket.writable && socket.write(answer);
        if (this.delay > 0) setTimeout(say, this.delay);
        else say();
      }
    });
  }

  private answer(words: string[]): string {
    const now = (Date.now() + this.ahead) * 1000;
    const facts = Object.entries(this.facts).map(([name, fact]) => `${name}:${fact}\r\n`);
    switch (words[0]) {
      case 'HELLO': return `%1\r\n${bulk('server')}${bulk(this.product)}`;
      case 'SUBSCRIBE': return `>3\r\n${bulk('subscribe')}${bulk(words[1]!)}:1\r\n`;
      case 'INFO': return bulk(words[1] === 'server' ? facts.join('') : '');
      case 'GET': return this.adopted ? bulk(this.adopted) : '_\r\n';
      case 'TIME': return `*2\r\n${bulk(String(Math.floor(now / 1e6)))}${bulk(String(now % 1e6))}`;
      case 'EVALSHA': return words.length === 13 ? this.grant(words[7]!, words[10]!) : ':1\r\n';
      default: return '+OK\r\n';
    }
  }

  private grant(token: string, P: string): string {
    const before = this.granted.get(token);
    this.granted.set(token, P);
    return before ? `:${before}\r\n` : bulk(P);
  }
}

/** Start so many servers. */
export async function servers(count: number): Promise<Fake[]> {
  return await Promise.all(Array.from({ length: count }, () => new Fake().listen()));
}

/** Do something with a client of these servers that has the shortest guard. They are new, unless they know another run. */
export async function using(
  nodes: Fake[],
  what: (locks: Holdfast) => Promise<void>,
  options: Options = {},
  urls = nodes.map((it) => it.url()),
): Promise<void> {
  for (const node of nodes) node.adopted ||= node.facts.run_id!;
  const locks = new Holdfast(urls, { maxTtl: 50, nodeTimeout: 300, ...options });
  try {
    await what(locks);
  } finally {
    await locks.close();
    for (const node of nodes) node.stop();
  }
}

/** Wait until something is so, for so many seconds at most. */
export async function until(is: () => boolean, seconds = 2): Promise<void> {
  const end = performance.now() + seconds * 1000;
  while (!is()) {
    if (performance.now() > end) throw new Error(`not in time: ${is}`);
    await sleep(2);
  }
}

/** Return the error that something ends with, and how many ms it took. */
export async function failure(what: Promise<unknown>): Promise<{ error: Error; took: number }> {
  const began = performance.now();
  const error = await what.then(() => new Error('nothing failed'), (reason: Error) => reason);
  return { error, took: performance.now() - began };
}

export const states = (locks: Holdfast) => locks.nodes.map((node) => node.state).join();

/** Keep the event loop busy, as too much work would. */
export function block(ms: number): void {
  for (const end = performance.now() + ms; performance.now() < end;);
}

/** What an attempt comes to, but for a round trip that was measured while this machine was busy. It is measured again. */
export async function unhurried<T>(attempt: () => Promise<T>): Promise<T> {
  for (let left = 20; ; left--) {
    try {
      return await attempt();
    } catch (error) {
      if (!left || !/too short/.test(String(error))) throw error;
      await sleep(50);
    }
  }
}
