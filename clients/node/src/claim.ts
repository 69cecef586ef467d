/**
 * One request for one name on all nodes, from its first command to its release.
 *
 * It has no clock and no socket: `react` says what happened and when, and `out` collects what is to be sent. The rules
 * and their numbers are those of docs/protocol.md. Times are in ms, tickets and fences in microseconds.
 */
import { isTicket, TOKEN } from './names.js';
import { Refusal, type Value } from './resp.js';

/** wait, try once, cede, keep */
export type Mode = 'w' | 't' | 'c' | 'k';
export type Command =
  | { node: number; what: Mode; token: string; ttl: number; P: number; pxat: number; watch: boolean }
  | { node: number; what: 'release'; token: string };

/** How a node stands. `useless`: it was refused for what it is, and never worked for this client. */
export type Standing = 'up' | 'dialling' | 'guarded' | 'down' | 'useless';

export interface Terms {
  /** The length of the lease. */
  ttl: number;
  /** How long an answer may take. */
  nodeTimeout: number;
  /** How long a majority may be away before waiting ends (rule C17). */
  outage: number;
  /** Whether it waits in the queue. Otherwise it tries once. */
  patient: boolean;
  /** Its place in the queue. */
  ticket: number;
  /** Makes a token of a ticket, another one for each call. */
  token: (ticket: number) => string;
  /** The fence horizon, half of the guard. */
  K: number;
  /** Where the claim stands in the period of its renewals, from 0 to 1 (rule C21). */
  place: number;
}

/**
 * A grant: `second` tells of a lower token, `third` whether it is fresh. A denial has fence 0, the PTTL, the place, and
 * the fence that the node has `told`.
 */
interface Word { fence: number; second: number; third: number; holder: string | null; told: number }

/** Read what `request` answers, or nothing if the script never answers that. */
export function wordOf(reply: Value): Word | undefined {
  let list = Array.isArray(reply) ? reply : [reply, 0, 0];
  // The P that was proposed, as it was sent: granted just now.
  if (typeof reply === 'string' && /^\d{16}$/.test(reply)) list = [Number(reply), 0, 1];
  const [fence, second, third, holder = null, told = 0] = list;
  const areNumbers = [...list.slice(0, 3), told].every((it) => Number.isSafeInteger(it)) && Number(fence) >= 0 && Number(told) >= 0;
  if (!areNumbers || (fence === 0 ? list.length < 4 : list.length !== 3)) return undefined;
  return holder === null || typeof holder === 'string' ? ({ fence, second, third, holder, told } as Word) : undefined;
}

/** What a node said last. Section 6 has a table of it. */
const newVote = (_: unknown, node: number) => ({
  node,
  /** Until when the node's grant counts, or 0. */
  bound: 0,
  fence: 0,
  /** Whether a lower token waits there. */
  lower: false,
  /** When the latest request was sent that this connection has answered. */
  sent: -Infinity,
  /** What `sent` was at the latest grant, if there was one, and no cede since. */
  last: -Infinity,
  /** Since when a holder is certain of the node: its grants are an unbroken series from then on (rule C13). */
  since: Infinity,
  /** Until when a grant by the latest request counts that was answered. */
  base: 0,
  /** Requests that are not answered yet. `good`: until when a grant counts (rule C2). */
  owed: [] as { mode: Mode; sent: number; good: number; watch: boolean }[],
  /** Whether a connection broke that owed an answer, and none has come since. */
  unheard: false,
  /** The P that was sent last, whether the token was ever sent, and whether a cede was cut (rule Q10). */
  wrote: 0,
  touched: false,
  burnt: false,
  /** What the node answered instead of a vote. */
  error: '',
  /** When to ask again because the holder's key has run out (rule Q13). */
  again: Infinity,
  /** The foreign value whose change the node will report (rule Q14). */
  watched: undefined as string | undefined,
});
type Vote = ReturnType<typeof newVote>;

/** Until when a grant counts: from before its request was sent, for less than its ttl (rule C2). */
const good = (sent: number, ttl: number) => sent + ttl - (ttl / 100 + 2);

/** From a cede to its answer, nothing counts (rule Q9). */
const isCeding = (vote: Vote) => vote.owed.some(({ mode }) => mode === 'c');

export class Claim {
  state: 'waiting' | 'held' | 'lost' | 'over' = 'waiting';
  /** Why the claim is lost or over. */
  reason = '';
  token: string;
  /** T: the fence on which a majority agreed. */
  fence = 0;
  /** D: when a held claim ends. */
  deadline = 0;
  out: Command[] = [];

  private now: number;
  private votes: Vote[];
  private readonly quorum: number;
  private readonly mode: Mode;
  private P: number;
  private proposed = 0;
  /** The largest fence that a node has told which denied: T is above it (rule F11). */
  private above = 0;
  /** When the claim became held. */
  private since = -Infinity;
  private beat: number;
  private sooner = 2;
  /** When the renewal was sent that is not confirmed yet, and when it is repeated (rule C9). */
  private asked = Infinity;
  private askAgain = Infinity;
  /** Extensions that are not confirmed yet (rule C18): the first and the latest of them, and the end that they want. */
  private extension = { first: Infinity, latest: Infinity, until: 0 };
  private extended: ((isConfirmed: boolean) => void)[] = [];
  /** Whether a cut cede, or a wrong clock, has made the token worthless (rules Q11 and F6). */
  private burning = false;
  private readonly patience: number;
  /** Since when too few nodes are of use, as far as this claim has seen (rule C17). */
  private away = Infinity;

  constructor(
    readonly terms: Terms,
    private readonly standing: Standing[],
    private readonly began: number,
  ) {
    this.votes = standing.map(newVote);
    this.quorum = Math.floor(standing.length / 2) + 1;
    this.P = terms.ticket;
    this.token = terms.token(terms.ticket);
    this.now = began;
    this.patience = Math.min(terms.nodeTimeout, terms.ttl / 3);
    this.beat = this.later(began);
    this.mode = terms.patient ? 'w' : 't';
    this.react(began, () => this.askAll(this.mode));
  }

  /** Something happens at `now`. The deadline comes before everything that has arrived, and is as it was (rule C6). */
  react(now: number, what?: () => void): void {
    this.now = now;
    if (!this.isOver()) this.expire();
    if (!this.isOver()) what?.();
    if (!this.isOver()) this.settle();
  }

  // What happens: call these within `react` ---------------------------------------------------------------------------

  /** An answer to a request for `token`. Answers come in the order in which the requests were sent. */
  answer(node: number, token: string, reply: Value): void {
    if (token !== this.token) return;
    const vote = this.votes[node]!;
    const ceding = isCeding(vote);
    const request = vote.owed.shift();
    if (!request || (ceding && request.mode !== 'c')) return;
    const word = wordOf(reply);
    vote.error = reply instanceof Refusal ? reply.message : word ? '' : 'no script answers that';
    // Nobody knows what a failed request did: no bound moves (C4), and a cede may still be executed (Q10).
    if (!word) return ceding ? this.burn(vote) : undefined;
    // A fence that rises: the node may have granted it again in an answer that was lost (C14).
    const isRaised = word.fence > vote.fence && (vote.unheard || word.fence > this.proposed);
    const shown = isRaised && word.fence <= this.latest();
    vote.unheard = false;
    vote.sent = request.sent;
    vote.base = request.good;
    if (word.fence > 0) this.granted(vote, word.fence, word.second === 1, word.third === 1 || shown);
    else this.denied(vote, word, request.watch);
  }

  push(node: number, kind: string, fence: number): void {
    const vote = this.votes[node]!;
    if (isCeding(vote)) return;
    if (kind === 'g') this.granted(vote, fence, false, true);
    else if (kind === 'i') vote.lower = vote.bound > this.now;
    else if (kind === 'x') this.broken(vote);
  }

  /** The claim's key was changed (rule Q14), or the node was flushed (rule C15). */
  invalidated(node: number, flushed: boolean): void {
    const vote = this.votes[node]!;
    if (this.state === 'held') {
      if (flushed && vote.owed.length === 0) this.ask(vote, 'k');
    } else if (vote.watched !== undefined) {
      vote.watched = undefined;
      this.ask(vote, 'w', true);
    }
  }

  /** A node stands in another way. What it has granted counts on when its connection breaks (rule C11). */
  stands(node: number, standing: Standing): void {
    const vote = this.votes[node]!;
    const was = this.standing[node];
    this.standing[node] = standing;
    if (standing === 'up') {
      if (vote.burnt) this.release(node, this.token);
      else if (this.state === 'waiting') this.ask(vote, this.mode);
      else if (this.isInDoubt()) this.ask(vote, 'k');
    } else if (was === 'up') {
      if (isCeding(vote)) this.burn(vote);
      // What is owed may have been granted, so that the next grant is not the first (rule C13).
      if (vote.owed.length > 0) Object.assign(vote, { last: Math.max(vote.last, 0), unheard: true });
      Object.assign(vote, { owed: [], sent: -Infinity, wrote: 0, watched: undefined, again: Infinity, error: '' });
    }
  }

  /** Add a correction of the clock to the ticket of a claim that waits (rule F6). */
  corrected(by: number): void {
    if (this.state !== 'waiting') return;
    this.terms.ticket += by;
    if (!isTicket(this.terms.ticket)) return this.end('the clocks of the nodes cannot be right: set them (NTP)');
    // A node far ahead, which our clock had let pass, may have told it: F5 would refuse it now (rule F11).
    if (this.above >= this.latest()) this.above = 0;
    this.P = Math.max(this.terms.ticket, this.above + 1);
    this.burning = true;
  }

  /** Have the lease last `ttl` from now at least (rule C18). `then` is told whether a majority has confirmed that in time. */
  extend(ttl: number, then: (isConfirmed: boolean) => void): void {
    if (this.state !== 'held') return then(false);
    const { first, until } = this.extension;
    const isFirst = first === Infinity;
    this.extension = { first: Math.min(first, this.now), latest: this.now, until: Math.max(isFirst ? 0 : until, good(this.now, ttl)) };
    this.extended.push(then);
    if (this.askAgain === Infinity) {
      this.asked = this.now;
      this.askAgain = this.now + this.patience;
    }
    for (const vote of this.votes) this.ask(vote, 'k', false, ttl);
  }

  /** Do what is due. */
  tick(): void {
    if (this.state === 'held') this.renew();
    else this.wait();
  }

  /** When to call `tick` at the latest. */
  due(): number {
    if (this.state === 'held') return Math.min(this.deadline, this.beat, this.askAgain, this.extension.first + this.patience);
    const limit = this.terms.patient ? this.beat : this.began + this.terms.ttl / 3;
    return Math.min(limit, this.givesUp(), ...this.votes.map((vote) => vote.again));
  }

  /** When a majority was away for too long (rule C17). */
  private givesUp(): number {
    const { patient, outage } = this.terms;
    return this.away + (patient ? Math.max(outage, this.patience) : this.patience);
  }

  /** End the claim, whatever it waits for. On the way, every node that has seen the token is sent a release. */
  end(reason: string, state: 'lost' | 'over' = 'over'): void {
    this.state = state;
    this.reason = reason;
    this.extensionIs(false);
    for (const vote of this.votes) if (vote.touched) this.release(vote.node, this.token);
  }

  // The decisions, in the order of section 6 ---------------------------------------------------------------------------

  /** Whether a renewal was repeated, and is still not confirmed (rules C9 and C16). */
  private isInDoubt(): boolean {
    return this.askAgain < Infinity && this.askAgain > this.asked + this.patience;
  }

  private isOver(): boolean {
    return this.state === 'lost' || this.state === 'over';
  }

  private expire(): void {
    const held = this.state === 'held';
    if (held && this.now >= this.deadline) {
      const refusals = this.votes.filter(({ error }) => error !== '').map(({ node, error }) => `node ${node}: ${error}`);
      const isRefused = refusals.length > 0 && this.isDark();
      const why = `refused: too many of the nodes refused to renew its lease (${refusals.join('; ')})`;
      return this.end(isRefused ? why : 'its time is up: no majority confirmed a renewal in time', 'lost');
    }
    for (const vote of this.votes) {
      if (vote.bound === 0 || vote.bound > this.now) continue;
      vote.bound = 0;
      // If enough others had the token, its series ends here. If not, it stays open until the node speaks (C12).
      if (!held || this.vouched(vote)) vote.since = Infinity;
    }
  }

  private settle(): void {
    if (this.burning && this.state === 'waiting') this.startOver();
    if (this.state === 'waiting') {
      const fences = this.counting().map((vote) => vote.fence);
      const agreed = fences.find((fence) => fences.filter((other) => other === fence).length >= this.quorum);
      if (agreed === undefined || agreed <= this.above) return this.makeWay();
      this.state = 'held';
      this.since = this.now;
      this.fence = this.P = agreed;
      this.sooner = 2;
      this.beat = this.later(this.reached('bound') - this.terms.ttl);
    }
    this.deadline = this.reached('bound');
    if (this.deadline <= this.now) this.end('a majority no longer has it', 'lost');
    else {
      if (this.reached('last') >= this.asked) this.askAgain = Infinity;
      if (this.reached('last') >= this.extension.latest && this.deadline >= this.extension.until) this.extensionIs(true);
    }
  }

  private extensionIs(isConfirmed: boolean): void {
    this.extension = { first: Infinity, latest: Infinity, until: 0 };
    for (const then of this.extended.splice(0)) then(isConfirmed);
  }

  private makeWay(): void {
    // Cede to lower tickets, but for a try (Q8).
    if (this.terms.patient) for (const vote of this.counting()) if (vote.lower) this.ask(vote, 'c');
    const rest = this.counting();
    if (rest.length >= this.quorum) {
      // Write back the highest fence of those that count, once to each that has less (F9).
      this.P = Math.max(this.above + 1, ...rest.map((vote) => vote.fence));
      for (const vote of rest) if (vote.fence < this.P && vote.wrote !== this.P) this.ask(vote, this.mode);
    }
    this.giveUp();
  }

  /** Whether too many nodes are down or refuse (rule C17). */
  private isDark(): boolean {
    const isAway = ({ node, error }: Vote) => error !== '' || this.standing[node] === 'down' || this.standing[node] === 'useless';
    return this.votes.filter(isAway).length > this.votes.length - this.quorum;
  }

  /** End a wait that cannot succeed (C17), and a try that can no longer be granted (Q15). */
  private giveUp(): void {
    const { patient, ttl } = this.terms;
    const many = (is: (vote: Vote, standing: Standing) => boolean) =>
      this.votes.filter((vote) => is(vote, this.standing[vote.node]!)).length;
    const spare = this.votes.length - this.quorum;
    const isDown = (_: Vote, standing: Standing) => standing === 'down' || standing === 'useless';
    const mayGrant = (vote: Vote, standing: Standing) =>
      vote.bound > 0 || ((standing === 'up' || standing === 'dialling') && vote.sent === -Infinity && !vote.error);
    this.away = this.isDark() ? Math.min(this.away, this.now) : Infinity;
    if (many(({ error }) => error.includes('WRONGTYPE')) >= this.quorum) this.end('the name is a key of another type');
    else if (many((_, standing) => standing === 'useless') > spare) this.end('no majority');
    else if (this.now >= this.givesUp()) this.end('no majority');
    else if (patient) return;
    else if (this.now >= this.began + ttl / 3 || (many(mayGrant) < this.quorum && many(isDown) <= spare)) this.end('busy');
  }

  /** The heartbeat (Q12), and what the end of a holder's key calls for (Q13). */
  private wait(): void {
    const isTurn = this.isTurn(this.now) && this.terms.patient;
    for (const vote of this.votes) {
      const hasRunOut = this.now >= vote.again;
      if (hasRunOut) vote.again = Infinity;
      if (vote.owed.length === 0 && (isTurn || (hasRunOut && vote.bound === 0))) this.ask(vote, this.mode);
    }
  }

  /** The renewal, a little early so that several go together (C8), and again if it is in doubt (C9). */
  private renew(): void {
    const isTurn = this.isTurn(this.now + Math.min(100, this.terms.ttl / 30));
    if (this.now >= this.extension.first + this.patience) this.extensionIs(false);
    if (!isTurn && this.now < this.askAgain) return;
    if (this.askAgain === Infinity) this.asked = this.now;
    this.askAll('k');
    this.askAgain = this.now + this.patience;
  }

  /** Whether a heartbeat or renewal is due at `time`. Turns that were missed are left out (C21). */
  private isTurn(time: number): boolean {
    const isDue = time >= this.beat;
    while (time >= this.beat) this.beat = this.later(this.beat);
    return isDue;
  }

  /** The next heartbeat or renewal: the first two come sooner, to reach the claim's place in the period (C21). */
  private later(before: number): number {
    const sooner = this.sooner > 0 ? (this.terms.place * this.terms.ttl) / 6 : 0;
    this.sooner -= 1;
    return before + this.terms.ttl / 3 - sooner;
  }

  // Votes -----------------------------------------------------------------------------------------------------------

  private granted(vote: Vote, fence: number, lower: boolean, anew: boolean): void {
    if (vote.burnt) return this.release(vote.node, this.token);
    vote.again = Infinity;
    if (anew) this.breaks(vote);
    if (this.isOver()) return;
    const isNew = anew || vote.bound === 0;
    // No clock allows such a fence, unless a lease has had it all the time (F5).
    const absurd = fence > this.latest() && (isNew || this.state !== 'held');
    if (absurd) vote.error = 'its fence is further ahead than any clock';
    // A push before the first answer on this connection has no bound (C3).
    if (absurd || vote.sent === -Infinity) return this.broken(vote);
    // A first grant that was asked for before the lease began vouches for all of it, unless another had the node (C13).
    const isFirst = vote.last === -Infinity && vote.sent <= this.since;
    const isEarly = this.state === 'waiting' || (isFirst && fence <= this.fence);
    if (vote.since === Infinity) vote.since = isEarly ? -Infinity : this.now;
    Object.assign(vote, { fence, lower, bound: isNew ? vote.base : Math.max(vote.bound, vote.base), last: vote.sent });
  }

  /** The largest fence that a sound node can have granted by now (F5). */
  private latest(): number {
    return this.terms.ticket + (this.now - this.began) * 1000 + this.terms.K * 1500;
  }

  private denied(vote: Vote, { second: left, third: place, holder, told }: Word, watch: boolean): void {
    if (vote.burnt) return;
    this.broken(vote);
    if (this.state === 'waiting' && told > this.above && told < this.latest()) {
      this.above = told;
      this.P = Math.max(this.P, told + 1);
    }
    if (place !== 0 || this.state !== 'waiting' || !this.terms.patient) return;
    vote.again = left < 0 ? Infinity : this.now + left + 1;
    // A foreign holder wakes nobody. So the node is to tell of its release, once for each value (Q14).
    if (holder === null || TOKEN.test(holder)) return;
    const isNews = !watch && vote.watched !== holder && vote.owed.length === 0;
    if (isNews || watch) vote.watched = holder;
    if (isNews) this.ask(vote, 'w', true);
  }

  private broken(vote: Vote): void {
    this.breaks(vote);
    Object.assign(vote, { bound: 0, lower: false, wrote: 0 });
  }

  /** The node may have been somebody else's meanwhile. Nobody was, if enough others had the token all the time (C12). */
  private breaks(vote: Vote): void {
    if (vote.since === Infinity) return;
    if (this.state === 'held' && !this.vouched(vote)) this.end('a majority was without it for a moment', 'lost');
    vote.since = Infinity;
  }

  private vouched(vote: Vote): boolean {
    const moment = Math.max(vote.last, this.since);
    const others = this.counting().filter((other) => other !== vote && other.since <= moment);
    return others.length > this.votes.length - this.quorum;
  }

  private counting(): Vote[] {
    return this.votes.filter((vote) => vote.bound > this.now);
  }

  /** What a majority of the nodes has reached, of those that count: the q-th largest. */
  private reached(what: 'bound' | 'last'): number {
    return this.counting().map((vote) => vote[what]).sort((a, b) => b - a)[this.quorum - 1] ?? 0;
  }

  /** A cede that was cut may be executed at any time: the token is worth nothing more, the ticket is (rules Q10, Q11). */
  private burn(vote: Vote): void {
    this.burning = vote.burnt = true;
  }

  private startOver(): void {
    const [old, before] = [this.token, this.votes];
    this.burning = false;
    this.token = this.terms.token(this.terms.ticket);
    this.votes = before.map(newVote);
    this.askAll(this.mode);
    for (const vote of before) if (vote.touched) this.release(vote.node, old);
  }

  // Commands --------------------------------------------------------------------------------------------------------

  private askAll(mode: Mode): void {
    for (const vote of this.votes) if (vote.owed.length < 2) this.ask(vote, mode);
  }

  private ask(vote: Vote, mode: Mode, watch = false, ttl = this.terms.ttl): void {
    const { node } = vote;
    const { ticket, K } = this.terms;
    if (this.standing[node] !== 'up' || vote.burnt) return;
    if (mode === 'c') Object.assign(vote, { since: Infinity, last: -Infinity, bound: 0 });
    vote.owed.push({ mode, sent: this.now, good: good(this.now, ttl), watch });
    Object.assign(vote, { wrote: this.P, touched: true });
    this.proposed = Math.max(this.proposed, this.P);
    const clock = Math.floor(ticket / 1000 + this.now - this.began);
    const pxat = Math.max(clock + Math.floor((K * 5) / 4), Math.floor(this.P / 1000) + K);
    this.out.push({ node, what: mode, token: this.token, ttl, P: this.P, pxat, watch });
  }

  private release(node: number, token: string): void {
    this.out.push({ node, what: 'release', token });
  }
}
