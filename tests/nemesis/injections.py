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
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Self

from bench.cluster import Open
from holdfast import events
from holdfast.aio import Holdfast, Lease
from holdfast.clock import clock
from holdfast.embedded import Nodes
from holdfast.testing.windows import HeldWindow, fences_back, overlaps

from .proxy import DOWN, UP, Proxy

TTL = 9.0
NODE_TIMEOUT = 3.0  # a connection that is cut is found at once; a busy machine is no silent node
AT_ONCE = 40  # sessions
REST = 1.1  # seconds that a connection has to be of use, so that its end is no failure of its node
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
    planned: int = 0
    happened: Counter[tuple[str, int, str]] = field(default_factory=Counter)
    missed: list[Injection] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    lengths: dict[tuple[int, str], int] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def injections(self) -> int:
        """How many happened."""
        return sum(self.happened.values())


class Pair:
    """Two clients, connected for many sessions; and a proxy for each connection that is tampered with."""

    def __init__(self, nodes: Nodes) -> None:
        self.nodes = nodes
        # The first client's way to node 0, the second one's to node 1.
        self.proxies = [Proxy("127.0.0.1", int(nodes.urls[it].rpartition(":")[2]), it) for it in (0, 1)]
        self.clients: list[Holdfast] = []
        self._queued = asyncio.Event()  # the second one waits in line
        self._rested = 0.0

    async def __aenter__(self) -> Self:
        options: dict[str, Any] = {"ttl": TTL, "max_ttl": TTL, "node_timeout": NODE_TIMEOUT}
        for which, proxy in enumerate(self.proxies):
            await proxy.start()
            urls = [proxy.url if node == which else url for node, url in enumerate(self.nodes.urls)]
            self.clients.append(Holdfast(*urls, observer=self._observe, **options))
        await asyncio.gather(*[it.ready() for it in self.clients])
        return self

    async def __aexit__(self, *raised: object) -> None:
        await asyncio.gather(*[it.close() for it in self.clients])
        for proxy in self.proxies:
            await proxy.close()

    async def rested(self) -> None:
        """Wait until all connections are of use again, and have been for so long that another cut is no second failure in a row."""
        while not all(node.state == "up" for it in self.clients for node in it.nodes()):
            await asyncio.sleep(0.01)
            self._rested = clock() + REST
        await asyncio.sleep(max(0.0, self._rested - clock()))

    async def session(self, name: str) -> list[HeldWindow]:
        """All of it; the windows of both holders."""
        self._queued.clear()
        self._rested = clock() + REST
        one, two = self.clients
        mine = await one.lock(name, wait=PATIENCE).acquire()
        windows = [_window(mine)]
        waits = asyncio.create_task(two.lock(name, wait=PATIENCE).acquire())
        await self._queued.wait()
        await mine.extend()
        windows[0].ends = min(float(mine._claim.until), clock())
        await mine.release()
        theirs = await waits
        windows.append(_window(theirs))
        await theirs.release(confirm=True)
        return windows

    def counted(self, what: str) -> dict[tuple[int, str], int]:
        """How much of this both proxies have seen so far, each way."""
        return {(who, way): proxy.seen[what.format(way)] for who, proxy in enumerate(self.proxies) for way in (UP, DOWN)}

    def _observe(self, event: events.Event) -> None:
        if isinstance(event, events.Queued):
            self._queued.set()


def _window(lease: Lease) -> HeldWindow:
    claim = lease._claim
    return HeldWindow(lease.name, lease.token, lease.fence, claim.since, claim.until)


async def measured(nodes: Nodes, times: int = 9) -> dict[tuple[int, str], int]:
    """How long a session is, in bytes, each way: that of most."""
    lengths: dict[tuple[int, str], list[int]] = defaultdict(list)
    async with Pair(nodes) as pair:
        for number in range(times):
            before = pair.counted("{} bytes")
            await pair.session(f"measured:{number:05}")
            await asyncio.sleep(0.02)  # for the last answers
            for key, count in pair.counted("{} bytes").items():
                lengths[key].append(count - before[key])
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


def tamper(pair: Pair, injections: Sequence[Injection]) -> None:
    """Arrange for these."""
    for it in injections:
        proxy = pair.proxies[it.client]
        if it.what == CUT:
            proxy.cut_after(it.after, it.way)
        elif it.what == LATE:
            proxy.delay = 0.001 + it.after % 40 / 1000
        else:
            proxy.at(it.way, it.after, proxy.reset if it.what == RESET else partial(_hold, proxy, it.way))


def _hold(proxy: Proxy, way: str) -> None:
    proxy.hold(way)
    asyncio.get_running_loop().call_later(0.03, proxy.free, way)


SHOWN = {CUT: "{} truncated", HELD: "{} kept", LATE: "{} late", RESET: "planned"}  # what a proxy has seen when it happened


async def everywhere(seed: int, seconds: float, tell: Callable[[str], None] = print, most: int | None = None) -> Outcome:
    """Sessions with all injections, some at once, for at most so many seconds; at most `most` sessions."""
    began, outcome, dice = time.monotonic(), Outcome(), random.Random(seed)
    with Open(3) as nodes:
        outcome.lengths = await measured(nodes)
        plans = list(plan(outcome.lengths, dice))
        dice.shuffle(plans)
        plans = plans[:most]
        outcome.planned = len(plans)
        waiting = enumerate(plans)

        async def works() -> None:
            async with Pair(nodes) as pair:
                for number, injections in waiting:
                    if time.monotonic() - began > seconds:
                        return
                    await _one(pair, number, injections, outcome)
                    if outcome.sessions % 200 == 0:
                        tell(f"bytes: {time.monotonic() - began:4.0f} s, {outcome.injections} injections in {outcome.sessions} sessions")

        await asyncio.gather(*[works() for _ in range(min(AT_ONCE, len(plans)))])
    outcome.seconds = time.monotonic() - began
    return outcome


async def _one(pair: Pair, number: int, injections: Sequence[Injection], outcome: Outcome) -> None:
    windows: list[HeldWindow] = []
    try:
        async with asyncio.timeout(PATIENCE + 5):
            await pair.rested()
            before = {it: pair.counted(SHOWN[it.what]) for it in injections}
            tamper(pair, injections)
            windows = await pair.session(f"session:{number:05}")
    except Exception as error:
        outcome.broken.append(f"{injections}: {error!r}")
        return
    finally:
        for proxy in pair.proxies:
            proxy.heal()
    outcome.sessions += 1
    for it in injections:
        if pair.counted(SHOWN[it.what])[it.client, it.way] > before[it][it.client, it.way]:
            outcome.happened[it.what, it.client, it.way] += 1
        else:
            outcome.missed.append(it)
    outcome.broken += [f"{injections}: exclusion, {one} and {two}" for one, two in overlaps(windows)]
    outcome.broken += [f"{injections}: fence, {one} and {two}" for one, two in fences_back(windows)]


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
        f"{outcome.injections} injections in {outcome.sessions} of {outcome.planned} sessions, {outcome.seconds:.0f} s; "
        f"{len(outcome.missed)} not counted; violations: {len(outcome.broken)}"
    )
    return "\n".join(lines)
