/**
 * One request for one name on all nodes, from its first command to its release.
 *
 * It has no clock and no socket: each call says what happened and when, and `out` collects what is to be sent. The
 * rules and their numbers are those of docs/protocol.md. Times are in ms, tickets and fences in microseconds.
 */
import { isToken } from './names.js';
import { Refusal, type Value } from './resp.js';

/** wait, try once, cede, keep */
export type Mode = 'w' | 't' | 'c' | 'k';
export type Command =
  | { node: number; what: 'request'; token: string; mode: Mode; P: number; pxat: number; watch: boolean }
  | { node: number; what: 'release'; token: string };

/** How a node stands. `useless`: it was refused for what it is, and never worked for this client. */
export type Standing = 'up' | 'dialling' | 'guarded' | 'down' | 'useless';

export interface Terms {
  key: string;
  ttl: number;
  /** Whether it waits in the queue. Otherwise it tries once. */
  patient: boolean;
  ticket: number;
  /** Makes a token of a ticket, another one for each call. */
  token: (ticket: number) => string;
  /** The fence horizon, half of the guard. */
  K: number;
  /** How long an answer may take. */
  nodeTimeout: number;
  /** How long a majority may be away before waiting ends. */
  outage: number;
  /** Where the claim stands in the period of its renewals, from 0 to 1 (rule C21). */
  place: number;
}

interface Word { fence: number; lower: boolean; fresh: boolean; left: number; place: number; holder: string | null }

/** Read what `request` answers, or nothing if the script never answers that. */
function wordOf(reply: Value): Word | undefined {
  const list: Value[] = Array.isArray(reply) ? reply : typeof reply === 'string' && /^\d{16}$/.test(reply) ? [Number(reply), 0, 1] : [reply, 0, 0];
  const [fence, second, third, holder = null] = list;
  if (typeof fence !== 'number' || typeof second !== 'number' || typeof third !== 'number') return undefined;
  const denied = fence === 0 && list.length === 4 && (holder === null || typeof holder === 'string');
  if (!denied && !(fence > 0 && fence <= Number.MAX_SAFE_INTEGER && list.length === 3)) return undefined;
  return { fence, lower: second === 1, fresh: third === 1, left: second, place: third, holder: denied ? (holder as string | null) : null };
}

class Vote {
  granted = false;
  fence = 0;
  bound = 0;
  lower = false;
  /** When the latest request was sent that this connection has answered. */
  sent: number | undefined;
  last = 0;
  /** When the unbroken series of grants began, if there is one. */
  since: number | undefined;
  first = 0;
  /** Whether a series of this token was ever broken here (rule C13). */
  broke = false;
  owed: { mode: Mode; sent: number; watch: boolean }[] = [];
  /** Whether an answer was lost that may have said something new (rule C14). */
  missing = false;
  ceding = false;
  burnt = false;
  wrote = 0;
  touched = false;
  /** What the node answered instead of a vote, or '' if its latest answer was one. */
  error = '';
  /** When to ask again because the holder's key has run out (rule Q13). */
  again = Infinity;
  /** The foreign value whose change the node will report (rule Q14). */
  watched: string | undefined;
}

export class Claim {
  state: 'waiting' | 'held' | 'lost' | 'over' = 'waiting';
  /** Why the claim is lost or over. */
  reason = '';
  token = '';
  /** T: the fence on which a majority agreed. */
  fence = 0;
  /** D: when a held claim ends. */
  deadline = 0;
  out: Command[] = [];

  private votes: Vote[];
  private readonly quorum: number;
  private P: number;
  private proposed = 0;
  private beat: number;
  private sooner = 2;
  private asked = Infinity;
  private doubt = false;
  private askAgain = Infinity;
  private away = Infinity;
  private burning = false;

  constructor(readonly terms: Terms, private readonly standing: Standing[], private readonly began: number) {
    this.votes = standing.map(() => new Vote());
    this.quorum = Math.floor(standing.length / 2) + 1;
    this.P = terms.ticket;
    this.token = terms.token(terms.ticket);
    this.beat = this.later(began);
  }

  begin(now: number): void {
    this.react(now, () => this.askAll(this.mode, now));
  }

  /** Handle an answer to a request for `token`. Answers come in the order in which the requests were sent. */
  answer(node: number, token: string, reply: Value, now: number): void {
    this.react(now, () => {
      const vote = this.vote(node);
      const request = token === this.token ? vote.owed.shift() : undefined;
      if (!request) return;
      // From a cede to its answer, nothing counts (Q9).
      if (vote.ceding && request.mode !== 'c') return;
      const word = wordOf(reply);
      vote.error = reply instanceof Refusal ? reply.message : word ? '' : 'no script answers that';
      // Nobody knows what a failed request did: no bound moves (C4), and a cede may still be executed (Q10).
      if (!word) return request.mode === 'c' ? this.burn(vote) : undefined;
      vote.sent = request.sent;
      if (request.mode === 'c') vote.ceding = false;
      if (word.fence > 0) this.granted(node, word.fence, word.lower, word.fresh, this.boundOf(request.sent), now);
      else this.denied(node, word, request.watch, now);
      vote.missing = false;
    });
  }

  push(node: number, kind: string, fence: number, now: number): void {
    this.react(now, () => {
      const vote = this.vote(node);
      if (vote.ceding) return;
      if (kind === 'g') {
        // A push before the first answer on this connection has no bound (C3).
        const bound = vote.sent === undefined ? 0 : this.boundOf(vote.sent);
        this.granted(node, fence, false, true, bound, now);
      } else if (kind === 'i' && this.counts(vote, now)) vote.lower = true;
      else if (kind === 'x') this.broken(vote, now);
    });
  }

  /** Handle the news that a key was changed (rule Q14), or that the node was flushed: no key (rule C15). */
  invalidated(node: number, key: string | null, now: number): void {
    this.react(now, () => {
      const vote = this.vote(node);
      if (key === null && this.state === 'held' && vote.owed.length === 0) this.ask(node, 'k', now);
      if ((key !== null && key !== this.terms.key) || this.state === 'held' || vote.watched === undefined) return;
      vote.watched = undefined;
      this.ask(node, 'w', now, true);
    });
  }

  connected(node: number, now: number): void {
    this.standing[node] = 'up';
    this.react(now, () => {
      const vote = this.vote(node);
      if (vote.burnt) this.release(node, this.token);
      else if (this.state === 'waiting') this.ask(node, this.mode, now);
      else if (this.doubt) this.ask(node, 'k', now);
    });
  }

  /** A connection broke, and with it every answer that it owed. What the node has granted counts on (C11). */
  disconnected(node: number, standing: Standing, now: number): void {
    this.standing[node] = standing;
    this.react(now, () => {
      const vote = this.vote(node);
      vote.missing ||= vote.owed.length > 0;
      vote.owed = [];
      vote.sent = undefined;
      vote.wrote = 0;
      vote.watched = undefined;
      vote.again = Infinity;
      vote.error = '';
      if (vote.ceding) this.burn(vote);
    });
  }

  /** A node that is not up is not up in another way. */
  stands(node: number, standing: Standing, now: number): void {
    this.standing[node] = standing;
    this.tick(now);
  }

  /** Add a correction of the clock to the ticket of a claim that waits (rule F6). */
  corrected(by: number, now: number): void {
    this.react(now, () => {
      if (this.state !== 'waiting') return;
      this.terms.ticket += by;
      this.P = this.terms.ticket;
      this.burning = true;
    });
  }

  /** Do what is due. */
  tick(now: number): void {
    this.react(now, () => (this.state === 'waiting' ? this.wait(now) : this.renew(now)));
  }

  /** When to call `tick` at the latest. */
  due(): number {
    if (this.state === 'held') return Math.min(this.deadline, this.beat, this.askAgain);
    const limit = this.terms.patient ? this.beat : this.began + this.terms.ttl / 3;
    return Math.min(limit, this.away + this.terms.outage, ...this.votes.map((vote) => vote.again));
  }

  /** End the claim, whatever it waits for. */
  end(reason: string, now: number): void {
    this.react(now, () => this.finish('over', reason));
  }

  /** Look at the clock only: whether the lease is still good. */
  look(now: number): boolean {
    this.react(now, () => undefined);
    return this.state === 'held';
  }

  // What happens, in the order of section 6 -------------------------------------------------------------------------

  private react(now: number, handle: () => void): void {
    if (this.over()) return;
    this.expire(now);
    if (!this.over()) handle();
    if (!this.over()) this.settle(now);
  }

  /** The deadline comes before everything that has arrived, and is as it was (rule C6). */
  private expire(now: number): void {
    const held = this.state === 'held';
    if (held && now >= this.deadline) return this.finish('lost', 'its time is up: no majority confirmed a renewal in time');
    for (const vote of this.votes) {
      if (!vote.granted || vote.bound > now) continue;
      vote.granted = false;
      // If enough others had the token, its series ends here. If not, it stays open until the node speaks (C12).
      if (!held || this.vouched(vote, now)) this.endSeries(vote);
    }
  }

  private settle(now: number): void {
    if (this.burning) this.startOver(now);
    if (this.state === 'waiting') {
      const fence = this.agreed(now);
      if (fence) this.hold(fence, now);
      else this.makeWay(now);
    }
    if (this.state !== 'held') return;
    this.deadline = this.reached((vote) => vote.bound, now);
    if (this.deadline <= now) this.finish('lost', 'a majority no longer has it');
    else if (this.reached((vote) => vote.last, now) >= this.asked) {
      this.askAgain = Infinity;
      this.doubt = false;
    }
  }

  private hold(fence: number, now: number): void {
    this.state = 'held';
    this.fence = this.P = fence;
    this.sooner = 2;
    this.beat = this.later(this.reached((vote) => vote.bound, now) - this.terms.ttl);
  }

  private makeWay(now: number): void {
    const counting = () => this.votes.flatMap((vote, node) => (this.counts(vote, now) ? [{ vote, node }] : []));
    if (this.terms.patient) for (const { vote, node } of counting()) if (vote.lower) this.ask(node, 'c', now);
    const rest = counting();
    if (rest.length >= this.quorum) {
      // Write back (F9): the highest fence of those that count, once to each that has less.
      this.P = Math.max(...rest.map(({ vote }) => vote.fence));
      for (const { vote, node } of rest) {
        if (vote.fence >= this.P || vote.wrote === this.P ) continue;
        this.ask(node, this.mode, now);
      }
    }
    this.giveUp(now);
  }

  private giveUp(now: number): void {
    const { patient, outage, ttl } = this.terms;
    const many = (is: (vote: Vote, standing: Standing | undefined) => boolean) =>
      this.votes.filter((vote, node) => is(vote, this.standing[node])).length;
    const gone = (standing: Standing | undefined) => standing === 'down' || standing === 'useless';
    const away = many((vote, standing) => gone(standing) || vote.error !== '') > this.votes.length - this.quorum;
    this.away = away ? Math.min(this.away, now) : Infinity;
    const may = (vote: Vote, standing: Standing | undefined) =>
      vote.granted || ((standing === 'up' || standing === 'dialling') && vote.sent === undefined && !vote.error);
    if (many((vote) => vote.error.includes('WRONGTYPE')) >= this.quorum) this.finish('over', 'the name is a key of another type');
    else if (many((_, standing) => standing === 'useless') > this.votes.length - this.quorum) this.finish('over', 'no majority');
    else if (!patient && (many(may) < this.quorum || now >= this.began + ttl / 3)) this.finish('over', 'busy');
    else if (now >= this.away + outage) this.finish('over', 'no majority');
  }

  private wait(now: number): void {
    const everybody = this.terms.patient && now >= this.beat;
    if (everybody) this.beat = this.later(this.beat);
    this.votes.forEach((vote, node) => {
      const first = now >= vote.again;
      if (first) vote.again = Infinity;
      if (vote.owed.length === 0 && (everybody || (first && !vote.granted))) this.ask(node, this.mode, now);
    });
  }

  private renew(now: number): void {
    this.doubt ||= now >= this.askAgain;
    const early = Math.min(100, this.terms.ttl / 30);
    if (now < this.beat - early && now < this.askAgain) return;
    if (this.askAgain === Infinity) this.asked = now;
    while (now >= this.beat - early) this.beat = this.later(this.beat);
    this.askAll('k', now);
    this.askAgain = now + Math.min(this.terms.nodeTimeout, this.terms.ttl / 3);
  }

  /** The next heartbeat or renewal: the first two come sooner, to reach the claim's place in the period (C21). */
  private later(before: number): number {
    const sooner = this.sooner > 0 ? (this.terms.place * this.terms.ttl) / 6 : 0;
    this.sooner -= 1;
    return before + this.terms.ttl / 3 - sooner;
  }

  // Votes -----------------------------------------------------------------------------------------------------------

  private granted(node: number, fence: number, lower: boolean, anew: boolean, bound: number, now: number): void {
    const vote = this.vote(node);
    if (vote.burnt) return this.release(node, this.token);
    vote.again = Infinity;
    const shown = fence > this.proposed && fence > vote.fence && (vote.missing || fence - vote.fence < this.terms.K * 500);
    if (anew || shown) this.breakSeries(vote, now);
    if (this.over()) return;
    const most = this.terms.ticket + (now - this.began) * 1000 + this.terms.K * 1500;
    if (bound === 0 || (fence > most && (anew || shown || !vote.granted || this.state !== 'held'))) {
      if (bound > 0) vote.error = 'its fence is further ahead than any clock';
      return this.broken(vote, now);
    }
    vote.bound = anew || shown || !vote.granted ? bound : Math.max(vote.bound, bound);
    vote.granted = true;
    vote.fence = fence;
    vote.lower = lower;
    vote.last = vote.sent ?? 0;
    if (vote.since !== undefined) return;
    vote.since = now;
    vote.first = fence;
  }

  private denied(node: number, { left, place, holder }: Word, watch: boolean, now: number): void {
    const vote = this.vote(node);
    if (vote.burnt) return;
    this.broken(vote, now);
    if (this.over() || place !== 0 || this.state !== 'waiting' || !this.terms.patient) return;
    vote.again = left < 0 ? Infinity : now + left + 1;
    if (holder === null || isToken(holder)) return;
    if (watch) vote.watched = holder;
    else if (vote.watched !== holder && vote.owed.length === 0) {
      vote.watched = holder;
      this.ask(node, 'w', now, true);
    }
  }

  private broken(vote: Vote, now: number): void {
    this.breakSeries(vote, now);
    vote.granted = false;
    vote.lower = false;
    vote.wrote = 0;
  }

  /** The node may have been somebody else's meanwhile. Nobody was, if enough others had the token all the time (C12). */
  private breakSeries(vote: Vote, now: number): void {
    if (vote.since === undefined) return;
    if (this.state === 'held' && !this.vouched(vote, now)) this.finish('lost', 'a majority was without it for a moment');
    this.endSeries(vote);
  }

  private endSeries(vote: Vote): void {
    vote.since = undefined;
    vote.broke = true;
  }

  private vouched(vote: Vote, now: number): boolean {
    const since = (other: Vote) => (!other.broke && other.first <= this.fence ? 0 : (other.since ?? Infinity));
    const others = this.votes.filter((other) => other !== vote && this.counts(other, now) && since(other) <= vote.last);
    return others.length >= this.votes.length + 1 - this.quorum;
  }

  private counts(vote: Vote, now: number): boolean {
    return vote.granted && vote.bound > now;
  }

  private agreed(now: number): number | undefined {
    const fences = this.votes.filter((vote) => this.counts(vote, now)).map((vote) => vote.fence);
    return fences.find((fence) => fences.filter((other) => other === fence).length >= this.quorum);
  }

  /** What a majority of the nodes has reached, of those that count: the q-th largest. */
  private reached(what: (vote: Vote) => number, now: number): number {
    const counting = this.votes.filter((vote) => this.counts(vote, now)).map(what);
    return counting.sort((a, b) => b - a)[this.quorum - 1] ?? 0;
  }

  /** A grant is good from before its request was sent, for less than its ttl (rule C2). */
  private boundOf(sent: number): number {
    return sent + this.terms.ttl - (this.terms.ttl / 100 + 2);
  }

  private burn(vote: Vote): void {
    vote.ceding = false;
    vote.burnt = true;
    this.burning = this.state === 'waiting';
  }

  // Commands --------------------------------------------------------------------------------------------------------

  private askAll(mode: Mode, now: number): void {
    this.votes.forEach((vote, node) => {
      if (vote.owed.length < 2 && !vote.burnt) this.ask(node, mode, now);
    });
  }

  private ask(node: number, mode: Mode, now: number, watch = false): void {
    const vote = this.vote(node);
    if (this.standing[node] !== 'up' || vote.burnt) return;
    if (mode === 'c') {
      vote.ceding = true;
      vote.since = undefined;
      vote.granted = false;
    }
    vote.owed.push({ mode, sent: now, watch });
    vote.wrote = this.P;
    vote.touched = true;
    this.proposed = Math.max(this.proposed, this.P);
    const clock = Math.floor((this.terms.ticket + (now - this.began) * 1000) / 1000);
    const pxat = Math.max(clock + Math.floor((this.terms.K * 5) / 4), Math.floor(this.P / 1000) + this.terms.K);
    this.out.push({ node, what: 'request', token: this.token, mode, P: this.P, pxat, watch });
  }

  private release(node: number, token: string): void {
    this.out.push({ node, what: 'release', token });
  }

  /** A cede that was cut may be executed at any time: the token is worth nothing more, the ticket is (rule Q11). */
  private startOver(now: number): void {
    const old = this.token;
    const touched = this.votes.flatMap((vote, node) => (vote.touched ? [node] : []));
    this.burning = false;
    this.token = this.terms.token(this.terms.ticket);
    this.votes = this.votes.map(() => new Vote());
    this.askAll(this.mode, now);
    for (const node of touched) this.release(node, old);
  }

  private finish(state: 'lost' | 'over', reason: string): void {
    this.state = state;
    this.reason = reason;
    this.votes.forEach((vote, node) => vote.touched && this.release(node, this.token));
  }

  private get mode(): Mode {
    return this.terms.patient ? 'w' : 't';
  }

  private over(): boolean {
    return this.state === 'lost' || this.state === 'over';
  }

  private vote(node: number): Vote {
    return this.votes[node] as Vote;
  }
}
