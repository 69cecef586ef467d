"""A client of the lock at level 1 of docs/protocol.md: it excludes, and polls.

One file, standard library only, to be read beside the page: comments cite its rules. `Claim` decides,
and knows neither clocks nor sockets. `Node` and `Client` carry.

    async with Client("redis://a:6379", "redis://b:6379", "redis://c:6379") as client:
        claim = await client.acquire("invoice:42", ttl=10, wait=60)  # or None
        client.check(claim)  # before each step of the work: raises Lost
        client.release(claim)
"""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import re
import socket
import struct
import time
from pathlib import Path
from statistics import median
from urllib.parse import urlsplit

INF = float("inf")
SCRIPTS = Path(__file__).parent.parent.parent / "src/holdfast/scripts"
OTHERS = {f"{it}_version" for it in ("dragonfly", "garnet", "kvrocks", "pika", "redict")}
# After these a connection is in doubt (T5).
FATAL = re.compile("^(NOSCRIPT|LOADING|NOAUTH|MASTERDOWN|-?READONLY|MOVED|ASK)")


def clock():
    """A clock that nobody sets, and that runs on while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Lost(Exception):
    """The lock is not certainly held any more."""


def read(reply):
    """What `request` answers: (fence, whether it was granted just now), (0, F) for a denial, or an error."""
    match reply:
        case bytes() if re.fullmatch(rb"[1-9]\d{15}", reply):
            return int(reply), True
        case int() if reply > 0:
            return reply, False
        case [int(fence), int(), int(fresh)] if fence > 0:
            return fence, bool(fresh)
        case [0, int(), int(), bytes() | None, *told] if all(type(it) is int and it >= 0 for it in told[:1]):
            return 0, (told or [0])[0]
    return reply if isinstance(reply, Exception) else ValueError(f"no answer of the script: {reply!r}")


class Vote:
    """What one node has said of a claim."""

    def __init__(self):
        self.owed = []  # when each request was sent that is not answered, and its P
        self.fence = self.wrote = 0  # of its grant (0: none), and what was last written back
        self.bound, self.last = 0.0, -INF  # until when the grant counts, and when its request was sent
        self.hopeless = self.touched = False  # it cannot grant this try any more; it knows the token
        self.unheard = False  # a connection broke that owed an answer, and none has come since


class Claim:
    """One request for one name. `out` collects what is to be sent: (node, "t", "k" or "release", P)."""

    def __init__(self, nodes, ticket, ttl, horizon, now):
        self.votes = [Vote() for _ in range(nodes)]
        self.quorum = nodes // 2 + 1  # C1
        self.ticket = self.proposed = self.largest = ticket
        self.above = 0  # the largest F that a denial told
        self.ttl, self.horizon, self.began = ttl, horizon, now
        self.state, self.fence, self.until = "waiting", 0, 0.0
        self.asked, self.renews, self.since = INF, INF, -INF  # the latest renewal, the next one, the beginning of the lease
        # The nodes that have had the token since the last confirmed renewal was sent, and since the latest one was.
        self.vouch, self.next = set(), set()
        self.out = []

    def happens(self, now, what, *arguments):
        """Something happens. The clock comes first, with the end of the lease as it was (C6)."""
        if self.state == "held" and now >= self.until:
            self.end("lost")
        if self.state in ("waiting", "held"):
            what(*arguments, now)
            self._decide(now)

    def begin(self, standings, now):
        """Ask all nodes that are up, at once."""
        for node, standing in enumerate(standings):
            self.stands(node, standing, now)

    def stands(self, node, standing, now):
        """A node is up, dialling, guarded or down from now on. What it has granted counts on (C11)."""
        vote = self.votes[node]
        if vote.owed:  # it may have granted, so that its next grant is not the first (C13)
            vote.last, vote.unheard = max(vote.last, 0.0), True
        vote.owed, vote.wrote = [], 0
        vote.hopeless = standing in ("guarded", "down") and vote.bound <= now
        if standing == "up" and self.state == "waiting":
            self._ask(node, now)

    def answered(self, node, reply, now):
        """A node answers the oldest request that it owes."""
        vote, said = self.votes[node], read(reply)
        (sent, proposed), counted = vote.owed.pop(0), vote.bound > now
        if isinstance(said, Exception):
            vote.hopeless = not counted  # no bound moves (C4)
            return
        fence, fresh = said
        told = 0 if fence else fresh
        if 0 < fence < proposed:
            raise ValueError("out of step: no node grants less than was proposed")  # F1
        # It granted the token again, in an answer that was lost (C14).
        limit = self.ticket + (now - self.began) * 1e6 + self.horizon * 1500
        again = (fence and fresh) or (0 < vote.fence < fence <= limit and (vote.unheard or fence > self.largest))
        vote.unheard = False
        early = vote.last == -INF and sent <= self.since and 0 < fence <= self.fence  # C13
        if again or not fence:  # it had lost the token (C12)
            self.vouch.discard(node)
            self.next.discard(node)
        if self.state == "waiting" and self.above < told < limit:  # F11
            self.above, self.proposed = told, max(self.proposed, told + 1)
        if not fence or (fence > limit and (fresh or not counted or self.state == "waiting")):  # denied, or F5
            vote.fence, vote.bound, vote.hopeless = 0, 0.0, True
            return
        if early:
            self.vouch.add(node)
        bound = sent + self.ttl - (self.ttl / 100 + 0.002)  # C2
        vote.bound = bound if again else max(bound, vote.bound)
        vote.fence, vote.last, vote.hopeless = fence, sent, vote.bound <= now

    def tick(self, up, now):
        """Give up a try after ttl/3 (Q15). Renew a lease every ttl/3 (C8)."""
        if self.state == "waiting" and now >= self.began + self.ttl / 3:
            self.end("over")
        elif self.state == "held" and now >= self.renews:
            self.asked, self.renews = now, self.renews + self.ttl / 3
            self.next = {node for node, it in enumerate(self.votes) if it.bound > now}
            for node in up:
                if len(self.votes[node].owed) < 2:
                    self._ask(node, now)

    def end(self, state):
        """Release everywhere: the last word about this token (C10)."""
        self.state = state
        self.out += [(node, "release", 0) for node, vote in enumerate(self.votes) if vote.touched]

    def _ask(self, node, now):
        vote = self.votes[node]
        self.largest = max(self.largest, self.proposed)
        vote.owed.append((now, self.proposed))
        vote.touched = True
        self.out.append((node, "t" if self.state == "waiting" else "k", self.proposed))

    def _decide(self, now):
        if self.state not in ("waiting", "held"):
            return
        counting = {node: it for node, it in enumerate(self.votes) if it.bound > now}
        bounds = sorted((it.bound for it in counting.values()), reverse=True)
        if self.state == "held":
            self.until = bounds[self.quorum - 1] if len(bounds) >= self.quorum else now  # C6
            if now >= self.until or len(self.votes) - len(self.vouch) >= self.quorum:
                self.end("lost")
            elif sum(self.votes[node].last >= self.asked for node in self.vouch) >= self.quorum:
                self.vouch, self.asked = self.next, INF
            return
        fences = [it.fence for it in counting.values()]
        agreed = max(fences, key=fences.count, default=0)
        if fences.count(agreed) >= self.quorum and agreed > self.above:  # C5, F8, F11
            self.state, self.fence, self.until = "held", agreed, bounds[self.quorum - 1]
            self.proposed, self.vouch, self.since = agreed, set(counting), now  # F10
            self.renews = self.until - 2 * self.ttl / 3
        elif sum(not it.hopeless for it in self.votes) < self.quorum:
            self.end("over")
        elif len(counting) >= self.quorum:  # F9
            self.proposed = max([*fences, self.proposed if self.above else 0])
            for node, vote in counting.items():
                if vote.fence < self.proposed != vote.wrote:
                    vote.wrote = self.proposed
                    self._ask(node, now)


def keys_of(key):
    """The keys of a lock whose name has no braces (K1)."""
    return [key, *(b"{%b}:%b" % (key, it) for it in (b"fence", b"queue", b"waiters"))]


class Guard:
    """From when on a server may be used."""

    def __init__(self):
        self.run, self.known, self.heard, self.before = "", 0.0, -INF, -INF

    def meets(self, run, uptime, now, guard):
        """A server has told its run, and its uptime in seconds."""
        if run != self.run:
            self.run, self.known, self.before = run, now, self.heard
        self.heard = now
        aged = max(now + guard + 1 - uptime, self.before + guard)  # G2
        return max(now, min(self.known + guard, aged))  # G1


def facts_of(text):
    """What a server says in INFO."""
    return dict(re.findall(r"^(\w+):(.*?)\r?$", text, re.MULTILINE))


def unfit(facts):
    """Why a server is of no use, by what it says in INFO, or nothing (T9)."""
    valkey = facts.get("valkey_version")
    version = re.match(r"([0-9]+)\.([0-9]+)", valkey or facts.get("redis_version", ""))
    if OTHERS & set(facts) or "keydb" in facts.get("executable", "") or "cluster_mget" in facts.get("features", ""):
        return "another product"
    if facts.get("server_name", "redis") not in ("redis", "valkey") or not version:
        return "another product, or of no known version"
    if tuple(map(int, version.groups())) < ((7, 2) if valkey else (6, 2)):
        return "too old"
    if "cluster" in (facts.get("redis_mode"), facts.get("server_mode")) or facts.get("role") != "master":
        return "a node of a cluster, or a replica"
    if not facts.get("run_id") or not re.fullmatch("[0-9]{1,12}", facts.get("uptime_in_seconds", "")):
        return "it hides its run_id or its uptime"
    return "it was promoted: level 1 knows no promotions" if facts.get("master_replid2", "").strip("0") else ""


def request(claim, mode, fence, now):
    """What follows the keys of `request`."""
    told = claim.ticket // 1000 + int((now - claim.began) * 1000)
    expiry = max(told + 5 * claim.horizon // 4, fence // 1000 + claim.horizon)
    return claim.token, int(claim.ttl * 1000), mode, f"{fence:016}", claim.horizon, expiry


class Node:
    """One ordered connection to one server (T1)."""

    def __init__(self, client, number, address):
        self.client, self.number, self.address = client, number, urlsplit(address)
        if self.address.scheme != "redis" or not self.address.hostname:
            raise ValueError(f"an address is like redis://host:6379, not {address!r}")
        self.standing, self.writer, self.owed, self.fails = "dialling", None, [], 0
        self.guard, self.ahead = Guard(), None

    async def live(self):
        """Connect, and connect again."""
        while True:
            try:
                await self._session()
            except Exception as error:
                self.why = error
            if self.writer is not None:
                self.writer.transport.abort()
            self.writer, self.owed, self.fails = None, [], self.fails + 1
            self._stands("down")
            await asyncio.sleep(min(0.02 * 2**self.fails, 1.28) * random.uniform(0.5, 1))

    async def _session(self):
        client = self.client
        self._stands("dialling")
        async with asyncio.timeout(client.patience):
            reader, self.writer = await asyncio.open_connection(self.address.hostname, self.address.port or 6379)
            reset = struct.pack("ii", 1, 0)  # T4
            self.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset)
            if self.address.password:
                await self._ask(reader, "AUTH", self.address.username or "default", self.address.password)
            text = await self._ask(reader, "INFO", "server") + await self._ask(reader, "INFO", "replication")
            try:
                adopted = await self._ask(reader, "GET", "{holdfast}:adopted")
            except ValueError:  # the user may not read it
                adopted = None
            sent = clock()
            seconds, micros = await self._ask(reader, "TIME")
        self.ahead = int(seconds) + int(micros) / 1e6 - (sent + clock()) / 2
        usable = self._judged(text.decode(), adopted)
        self._stands("guarded")
        await asyncio.sleep(max(0.0, usable - clock()))
        if len(client.nodes) > 1 and abs(self.ahead - client.ahead()) > client.horizon / 2000:
            raise ValueError("its clock is wrong")  # F4
        async with asyncio.timeout(client.patience):
            for name in ("request", "release"):  # G4
                client.scripts[name] = await self._ask(reader, "SCRIPT", "LOAD", (SCRIPTS / f"{name}.lua").read_text())
        self.fails = 0
        self._stands("up")
        while True:
            reply = await answer(reader)
            self.guard.heard = clock()
            if not self.owed or (isinstance(reply, Exception) and FATAL.match(str(reply))):
                raise ValueError(reply)  # T5
            claim, _ = self.owed.pop(0)
            if claim is not None:
                client.happens(claim, claim.answered, self.number, reply)

    def _judged(self, text, adopted):
        """When a server may be used that says this of itself."""
        client, facts, now = self.client, facts_of(text), clock()
        others = [it for it in client.nodes if it is not self and it.guard.run == facts.get("run_id")]
        if problem := unfit(facts):
            raise ValueError(problem)
        if any(it.writer or now < it.guard.heard + client.guard for it in others):  # T8
            raise ValueError("another address has this server")
        uptime = INF if adopted == facts["run_id"].encode() else int(facts["uptime_in_seconds"])  # G5
        return self.guard.meets(facts["run_id"], uptime, now, client.guard)

    async def _ask(self, reader, *words):
        self.write(*words)
        reply = await answer(reader)
        if isinstance(reply, Exception):
            raise reply
        self.guard.heard = clock()
        return reply

    def write(self, *words):
        parts = [it if isinstance(it, bytes) else str(it).encode() for it in words]
        self.writer.write(b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%b\r\n" % (len(it), it) for it in parts))

    def _stands(self, standing):
        self.standing = standing
        for claim in list(self.client.claims):
            self.client.happens(claim, claim.stands, self.number, standing)


async def answer(reader):
    """Read one answer."""
    line = await reader.readuntil(b"\r\n")
    kind, rest = line[:1], line[1:-2]
    match kind:
        case b"+":
            return rest
        case b":":
            return int(rest)
        case b"-":
            return ValueError(rest.decode())
        case b"$" if len(rest) < 9:  # T10
            return None if rest == b"-1" else (await reader.readexactly(int(rest) + 2))[:-2]
        case b"*" if len(rest) < 5:
            return None if rest == b"-1" else [await answer(reader) for _ in range(int(rest))]
    raise ValueError(f"no answer: {line[:40]!r}")


class Client:
    """Claims on the same nodes. All clients of them have the same `max_ttl` (G6)."""

    def __init__(self, *addresses, max_ttl=30.0, prefix=""):
        self.guard, self.horizon = max_ttl + 2, int((max_ttl + 2) * 500)
        self.patience = min(max(max_ttl / 20, 0.05), 1.0)
        self.max_ttl, self.prefix = max_ttl, prefix.encode()
        self.nodes = [Node(self, number, it) for number, it in enumerate(addresses)]
        self.claims, self.scripts, self.ticket = {}, {}, 0
        self.inbox, self.serials = os.urandom(16).hex(), itertools.count(1)

    async def __aenter__(self):
        self.tasks = [asyncio.ensure_future(it) for it in (self._ticks(), *(node.live() for node in self.nodes))]
        return self

    async def __aexit__(self, *_):
        for claim in list(self.claims):
            self.release(claim)
        await asyncio.sleep(0)
        for it in self.tasks:
            it.cancel()

    async def acquire(self, name, ttl=10.0, wait=0.0):
        """Try until the time is up. Returns a held claim, or None."""
        key = self.prefix + name.encode()
        most = min(self.max_ttl, 10.0)  # it writes no marks (G14)
        if not 0.05 <= ttl <= most:  # C19
            raise ValueError(f"ttl must be from 0.05 to {most} seconds, not {ttl}")
        if re.search(rb"[{}\[\]]", key) or not 0 < len(name.encode()) <= 512:  # K1
            raise ValueError(f"a name has 1 to 512 bytes, and no braces and brackets: {name!r}")
        end = clock() + wait
        while True:
            self.ticket = max(self.ticket + 1, int((clock() + self.ahead()) * 1e6))  # K3
            claim = Claim(len(self.nodes), self.ticket, ttl, self.horizon, clock())
            claim.key, claim.decided = key, asyncio.Event()
            claim.token = f"{self.ticket}:{self.inbox}:{next(self.serials):08x}"  # K2
            self.claims[claim] = None
            self.happens(claim, claim.begin, [it.standing for it in self.nodes])
            try:
                await claim.decided.wait()
            finally:
                if claim.state == "waiting":
                    self.release(claim)
            if claim.state == "held":
                return claim
            if clock() >= end:
                return None
            await asyncio.sleep(random.uniform(0.02, 0.1))

    def check(self, claim):
        """Return for how many seconds the lock is certainly held, or raise Lost."""
        self.happens(claim, lambda now: None)
        if claim.state != "held":
            raise Lost(claim.key.decode())
        return claim.until - clock()

    def release(self, claim):
        self.happens(claim, lambda now: claim.end("over"))

    def ahead(self):
        """How far the nodes' clocks are ahead of this one: the median (F4)."""
        own = time.time() - clock()
        told = [own if it.ahead is None else it.ahead for it in self.nodes]
        return median(told if len(told) % 2 else [*told, own])

    def happens(self, claim, what, *arguments):
        """Something happens to a claim. Send what it says."""
        claim.happens(clock(), what, *arguments)
        keys = keys_of(claim.key)
        for number, mode, fence in claim.out:
            node, now = self.nodes[number], clock()
            if node.standing == "up":
                done = mode == "release"
                said = (claim.token, self.horizon) if done else request(claim, mode, fence, now)
                node.write("EVALSHA", self.scripts["release" if done else "request"], 4, *keys, *said)
                node.owed.append((None if done else claim, now))
        claim.out = []
        if claim.state != "waiting":
            claim.decided.set()
        if claim.state in ("lost", "over"):
            self.claims.pop(claim, None)

    async def _ticks(self):
        while True:
            await asyncio.sleep(0.01)
            now = clock()
            up = [it.number for it in self.nodes if it.standing == "up"]
            for claim in list(self.claims):
                self.happens(claim, claim.tick, up)
            for node in self.nodes:
                if node.owed and now > node.owed[0][1] + min([self.patience, *(it.ttl / 3 for it in self.claims)]):
                    node.writer.transport.abort()  # T3
