"""The smallest faults, one after the other: a whole session, cut at every byte of it, in both directions; and late, held back, reset.

Knows the public face for asyncio, three real servers and the proxy. Must not know threads, processes or clocks.

In a session one client acquires, renews and releases a lock, and another one waits for it and is handed it by a push. The first
one's connection to node 0 and the second one's to node 1 are each cut somewhere: in a request, an answer, a renewal, the push, a
release, or between two of them. The third node is left alone, so the session must succeed, and quickly.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import statistics
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from holdfast import events
from holdfast.aio import Holdfast, Lease
from holdfast.clock import clock
from holdfast.embedded import Nodes
from holdfast.testing.windows import Window, fences_back, overlaps

from .proxy import DOWN, UP, Proxy

TTL = 9.0
NODE_TIMEOUT = 3.0  # a lane that is cut is found at once; a busy machine is no silent node
AT_ONCE = 6  # sessions
PATIENCE = 20.0  # seconds for a session that takes 0.02, on a busy machine; more than the wait that would end it
HELD, LATE, RESET, CUT = "held back", "late", "reset", "cut"
RANDOM = 40  # sessions each with something held back, late, and reset


@dataclass(frozen=True)
class Injection:
    """One fault. `what`: CUT, HELD, LATE or RESET; `client`: the first one (0) or the second; `way`: of its connection; `after`: bytes."""

    what: str
    client: int
    way: str
    after: int


@dataclass
class Outcome:
    """What became of all sessions."""

    sessions: int = 0
    happened: Counter[tuple[str, int, str]] = field(default_factory=Counter)
    missed: list[Injection] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    lengths: dict[tuple[int, str], int] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def injections(self) -> int:
        """How many happened."""
        return sum(self.happened.values())


class Session:
    """Two clients, and a proxy for each connection that is tampered with."""

    def __init__(self, nodes: Nodes, name: str) -> None:
        self.nodes, self.name = nodes, name
        # The first client's way to node 0, the second one's to node 1.
        self.proxies = [Proxy("127.0.0.1", int(nodes.urls[it].rpartition(":")[2]), it) for it in (0, 1)]
        self.windows: list[Window] = []
        self._queued = asyncio.Event()  # the second one waits in line

    def _observe(self, event: events.Event) -> None:
        if isinstance(event, events.Queued):
            self._queued.set()

    @asynccontextmanager
    async def clients(self) -> AsyncIterator[list[Holdfast]]:
        """Both, connected."""
        for proxy in self.proxies:
            await proxy.start()
        found = []
        try:
            for which, proxy in enumerate(self.proxies):
                urls = [proxy.url if node == which else url for node, url in enumerate(self.nodes.urls)]
                options: dict[str, Any] = {"ttl": TTL, "max_ttl": TTL, "node_timeout": NODE_TIMEOUT, "fresh": self.nodes.run_ids}
                found.append(Holdfast(*urls, observer=self._observe, **options))
            await asyncio.gather(*[it.ready() for it in found])
            yield found
        finally:
            await asyncio.gather(*[it.close() for it in found])
            for proxy in self.proxies:
                await proxy.close()

    async def run(self, begun: Callable[[], None] = lambda: None) -> None:
        """All of it. `begun`: called when both are connected, and nothing has been said of the lock."""
        async with self.clients() as (one, two):
            begun()
            mine = await one.lock(self.name, wait=PATIENCE).acquire()
            self._opened(mine)
            waits = asyncio.create_task(two.lock(self.name, wait=PATIENCE).acquire())
            await self._queued.wait()
            await mine.extend()
            self._closed(mine)
            await mine.release()
            theirs = await waits
            self._opened(theirs)
            self._closed(theirs)
            await theirs.release(confirm=True)

    def passed(self) -> dict[tuple[int, str], int]:
        """How many bytes have passed on each way that is tampered with."""
        return {
            (which, way.name): way.passed for which, proxy in enumerate(self.proxies) for link in list(proxy.links) for way in link.ways
        }

    def _opened(self, lease: Lease) -> None:
        claim = lease._claim
        self.windows.append(Window(self.name, lease.token, lease.fence, claim.since, claim.until))

    def _closed(self, lease: Lease) -> None:
        self.windows[-1].ends = min(float(lease._claim.until), clock()) if lease.held else self.windows[-1].ends


async def measured(nodes: Nodes, times: int = 5) -> dict[tuple[int, str], int]:
    """How long a session is, in bytes, each way: that of most."""
    lengths: dict[tuple[int, str], list[int]] = defaultdict(list)
    for number in range(times):
        session, start = Session(nodes, f"measured:{number:05}"), Counter[tuple[int, str]]()
        await session.run(lambda session=session, start=start: start.update(session.passed()))  # type: ignore[misc]
        counts = {key: proxy.seen[f"{key[1]} bytes"] for key in start for proxy in [session.proxies[key[0]]]}
        for key, count in counts.items():
            lengths[key].append(count - start[key])
    return {key: statistics.median_low(it) for key, it in lengths.items()}


def plan(lengths: dict[tuple[int, str], int], dice: random.Random) -> Iterator[list[Injection]]:
    """Every byte of every way; each session is tampered with at both clients, where there is still something left to try."""
    cuts = {who: [Injection(CUT, who, way, n) for way in (UP, DOWN) for n in range(1, lengths[who, way])] for who in (0, 1)}
    for who in (0, 1):
        dice.shuffle(cuts[who])
    for pair in itertools.zip_longest(cuts[0], cuts[1]):
        yield [it for it in pair if it is not None]
    for what in (HELD, LATE, RESET):
        for _ in range(RANDOM):
            yield [Injection(what, who, way := dice.choice((UP, DOWN)), dice.randrange(1, lengths[who, way])) for who in (0, 1)]


def tamper(session: Session, injections: Sequence[Injection]) -> None:
    """Arrange for these."""
    loop = asyncio.get_running_loop()
    for it in injections:
        proxy = session.proxies[it.client]
        if it.what == CUT:
            proxy.cut_after(it.after, it.way)
        elif it.what == LATE:
            proxy.delay = 0.001 + it.after % 40 / 1000
        else:
            proxy.at(it.way, it.after, proxy.reset if it.what == RESET else partial(_hold, loop, proxy, it.way))


def _hold(loop: asyncio.AbstractEventLoop, proxy: Proxy, way: str) -> None:
    proxy.hold(way)
    loop.call_later(0.03, proxy.free, way)


SHOWN: dict[str, Callable[[Proxy, str], int]] = {
    CUT: lambda proxy, way: proxy.seen[f"{way} truncated"],
    HELD: lambda proxy, way: proxy.seen[f"{way} kept"],
    LATE: lambda proxy, way: proxy.seen[f"{way} late"],
    RESET: lambda proxy, way: proxy.seen["planned"],
}


async def everywhere(seed: int, seconds: float, tell: Callable[[str], None] = print, most: int | None = None) -> Outcome:
    """Sessions with all injections, some at once, for at most so many seconds; at most `most` sessions."""
    began, outcome, dice = time.monotonic(), Outcome(), random.Random(seed)
    with Nodes(3) as nodes:
        outcome.lengths = await measured(nodes)
        plans = itertools.islice(enumerate(plan(outcome.lengths, dice)), most)

        async def works() -> None:
            for number, injections in plans:
                if time.monotonic() - began > seconds:
                    outcome.broken.append(f"only {outcome.sessions} sessions in {seconds:.0f} s")
                    return
                await _one(nodes, number, injections, outcome)
                if outcome.sessions % 200 == 0:
                    tell(f"bytes: {time.monotonic() - began:4.0f} s, {outcome.injections} injections in {outcome.sessions} sessions")

        await asyncio.gather(*[works() for _ in range(AT_ONCE)])
    outcome.seconds = time.monotonic() - began
    return outcome


async def _one(nodes: Nodes, number: int, injections: Sequence[Injection], outcome: Outcome) -> None:
    session = Session(nodes, f"session:{number:05}")
    try:
        async with asyncio.timeout(PATIENCE + 2):
            await session.run(lambda: tamper(session, injections))
    except Exception as error:
        outcome.broken.append(f"{injections}: {error!r}")
    outcome.sessions += 1
    for it in injections:
        if SHOWN[it.what](session.proxies[it.client], it.way):
            outcome.happened[it.what, it.client, it.way] += 1
        else:
            outcome.missed.append(it)
    outcome.broken += [f"{injections}: exclusion, {one} and {two}" for one, two in overlaps(session.windows)]
    outcome.broken += [f"{injections}: fence, {one} and {two}" for one, two in fences_back(session.windows)]


def told(outcome: Outcome) -> str:
    """What became of it, as a table."""
    ways = [(0, UP), (0, DOWN), (1, UP), (1, DOWN)]
    head = "| | requests of the holder | answers to it | requests of the one who waits | answers and pushes to it |"
    lines = [head, "| --- |" + " ---: |" * 4]
    lines.append("| bytes of a session | " + " | ".join(str(outcome.lengths.get(it, 0)) for it in ways) + " |")
    for what in (CUT, HELD, LATE, RESET):
        lines.append(f"| {what} | " + " | ".join(str(outcome.happened[what, who, way]) for who, way in ways) + " |")
    lines.append("")
    lines.append(
        f"{outcome.injections} injections in {outcome.sessions} sessions, {outcome.seconds:.0f} s; "
        f"{len(outcome.missed)} not counted; violations: {len(outcome.broken)}"
    )
    return "\n".join(lines)
