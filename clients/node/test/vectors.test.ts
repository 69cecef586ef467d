/** The conversations of `clients/vectors`: given these answers, the claim sends that, as the Python library does. */
import { deepStrictEqual, ok, strictEqual } from 'node:assert';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { Claim, type Command, type Standing } from '../src/claim.js';
import { Refusal, type Value } from '../src/resp.js';

interface Said { to: number[]; what: string; token: number; P?: number; watch?: boolean; ttl?: number }
interface Step {
  at: number; event: string; node: number; reply: Value; error?: string; kind: string; fence: number; by: number;
  standing: Standing; sends: Said[]; state: string; held?: number; until?: number; refused?: boolean;
  extended?: boolean; ttl: number;
}
interface Vector {
  test: string; number: number; nodes: number; standing: Standing[]; ttl: number; patient: boolean; ticket: number; K: number;
  nodeTimeout: number; outage: number; began: number; place: number; steps: Step[];
}

const INBOX = 'b'.repeat(32);
const FILE = new URL('../../../vectors/claim.json', import.meta.url);
const vectors = JSON.parse(readFileSync(FILE, 'utf8')) as Vector[];

class Talk {
  readonly claim: Claim;
  private readonly tokens: string[] = [];
  private readonly owed: string[][];
  private extended: boolean[] = [];
  private extending = 0;

  constructor(readonly vector: Vector) {
    const { ttl, patient, ticket, K, nodeTimeout, outage, standing, began, place } = vector;
    const token = (of: number) => {
      this.tokens.push(`${of}:${INBOX}:${String(this.tokens.length).padStart(8, '0')}`);
      return this.tokens.at(-1) as string;
    };
    this.claim = new Claim({ ttl, patient, ticket, token, K, nodeTimeout, outage, place }, [...standing], began);
    this.owed = standing.map(() => []);
  }

  step(step: Step): void {
    const { claim } = this;
    const { node, at } = step;
    let token: string | undefined;
    if (step.event === 'answer') {
      token = this.owed[node]?.shift();
      ok(token, 'the node owes no answer');
    } else if (step.event === 'disconnected') this.owed[node] = [];
    const { state } = claim;
    const isDue = claim.due() <= at;
    claim.react(at, () => {
      if (step.event === 'begin') return;
      if (step.event === 'answer') claim.answer(node, token as string, step.error === undefined ? step.reply : new Refusal(step.error));
      else if (step.event === 'push') claim.push(node, step.kind, step.fence);
      else if (step.event === 'changed') claim.invalidated(node, false);
      else if (step.event === 'flushed') claim.invalidated(node, true);
      else if (step.event === 'connected') claim.stands(node, 'up');
      else if (step.event === 'disconnected' || step.event === 'stands') claim.stands(node, step.standing);
      else if (step.event === 'extend') this.extending += 1, claim.extend(step.ttl, (isConfirmed) => this.extended.push(isConfirmed));
      else if (step.event === 'end') claim.end('released');
      else if (step.event === 'corrected') claim.corrected(step.by);
      else claim.tick();
    });
    deepStrictEqual(this.said(claim.out.splice(0)), this.meant(step.sends), `what it sends at ${at} after ${step.event}`);
    strictEqual(claim.state, step.state, `its state at ${at} after ${step.event}`);
    if (step.event === 'tick' && !['lost', 'over'].includes(state)) {
      ok(isDue || (step.sends.length === 0 && claim.state === state), `it does not want to be woken at ${at}`);
      ok(claim.state !== state || claim.due() > at, `it wants to be woken at ${at} again and again`);
    }
    strictEqual(claim.reason.startsWith('refused'), step.refused ?? false, `the reason: ${claim.reason}`);
    const told = this.extended.splice(0);
    this.extending -= told.length;
    if (step.state !== 'held') return strictEqual(this.extending, 0, 'somebody waits for an extension of what is over');
    deepStrictEqual([...new Set(told)], step.extended === undefined ? [] : [step.extended], `the extension at ${at}`);
    strictEqual(claim.fence, step.held);
    ok(Math.abs(claim.deadline - (step.until ?? 0)) < 0.01, `it is held until ${claim.deadline}, not ${step.until}`);
  }

  /** What each node is sent, in its order. `k` and `w` mean the same. */
  private said(commands: Command[]): string[][] {
    const lines: string[][] = this.vector.standing.map(() => []);
    for (const command of commands) {
      const token = this.tokens.indexOf(command.token);
      if (command.what !== 'release') this.owed[command.node]?.push(command.token);
      lines[command.node]?.push(
        command.what === 'release' ? `release ${token}` : `${command.what === 'k' ? 'w' : command.what} ${token} ${command.P} ${command.watch} ${command.ttl}`,
      );
    }
    return lines;
  }

  private meant(sends: Said[]): string[][] {
    const lines: string[][] = this.vector.standing.map(() => []);
    for (const { to, what, token, P, watch, ttl = this.vector.ttl } of sends) {
      const line = what === 'release' ? `release ${token}` : `${what === 'k' ? 'w' : what} ${token} ${P} ${watch} ${ttl}`;
      for (const node of to) lines[node]?.push(line);
    }
    return lines;
  }
}

test('there are vectors', () => ok(vectors.length > 100));

for (const vector of vectors) {
  test(`${vector.test} ${vector.number}`, () => {
    const talk = new Talk(vector);
    for (const step of vector.steps) talk.step(step);
  });
}
