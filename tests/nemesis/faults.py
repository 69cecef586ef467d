"""Every kind of harm: how it is done, how it ends, and how one sees that it happened.

Knows servers, proxies and client processes. Must not know when harm is done, or what may come of it.

A fault is an asynchronous context: entering does it, leaving heals it. Whoever cannot show that it happened raises Missed, and it does
not count. `breaks` names the assumption of docs/proof.md that it breaks; most break none.
"""

from __future__ import annotations

import asyncio
import random
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from .clients import Crowd
from .harm import stopped
from .history import FORKED, History
from .processes import state
from .proxy import DOWN, UP, Proxy
from .servers import CUT, EMPTY, EVERY_SECOND, FORGETFUL, KEPT, Cable, Server, Servers

BACK = 0.55  # seconds by which a clock may be set back altogether (until its server starts anew): less than a quarter of the guard
SWIFT = 0.004  # seconds that it may be set forward at a time: less than the drift
BUSY_LOOP = "redis.call('TIME') while true do end"


class Missed(Exception):
    """The harm was done, and nothing shows that anybody met with it."""


@dataclass
class Field:
    """All that harm can be done to. `read`: take in what clients have written since; `ttl`: of the locks;
    `lately`: when each node's clock was last set forward.
    """

    servers: Servers
    proxies: Sequence[Proxy]
    crowd: Crowd
    history: History
    read: Callable[[], None]
    dice: random.Random
    ttl: float
    lately: dict[int, float] = field(default_factory=dict)


Act = Callable[[Field, int], AbstractAsyncContextManager[None]]
Does = Callable[[Field, int], AsyncIterator[None]]
Fits = Callable[[Field, int], bool]


@dataclass(frozen=True)
class Kind:
    """One kind of fault. `longest`: how long it lasts, in ttls; `often`: it is drawn twice as often; `fits`: can this target suffer it?"""

    name: str
    act: Act
    group: str
    longest: float
    often: bool
    client: bool  # it is a client's process that suffers it, and not a node
    breaks: str
    fits: Fits


KINDS: dict[str, Kind] = {}
LINKS, CABLES, PROCESSES, REFUSALS, CLOCKS, CLIENTS, OUTSIDE = "links", "cables", "processes", "refusals", "clocks", "clients", "outside"


def kind(
    name: str, group: str, longest: float = 1.0, breaks: str = "", fits: Fits = lambda *_: True, often: bool = False, client: bool = False
) -> Callable[[Does], Act]:
    """Enter a fault in the list."""

    def enter(act: Does) -> Act:
        made = asynccontextmanager(act)
        KINDS[name] = Kind(name, made, group, longest, often, client, breaks, fits)
        return made

    return enter


@asynccontextmanager
async def shows(target: int, count: Callable[[], Any], missed: str) -> AsyncIterator[None]:
    """What happens within has been met with if this count rises meanwhile."""
    try:
        before = await count()
        yield
        if await count() <= before:
            raise Missed(f"{missed} (node {target})")
    except OSError as unheard:
        raise Missed(f"node {target} did not answer: {unheard}") from None


# ------------------------------------------------ the way to a node: the proxy


def seen(field: Field, node: int, *what: str) -> AbstractAsyncContextManager[None]:
    """The proxy of a node has to see something of this happen."""

    async def count() -> int:
        return sum(field.proxies[node].seen[it] for it in what)

    return shows(node, count, f"no {' and no '.join(what)}")


def _held(*ways: str) -> Does:
    async def act(field: Field, node: int) -> AsyncIterator[None]:
        async with seen(field, node, *[f"{way} kept" for way in ways]):
            field.proxies[node].hold(*ways)
            try:
                yield
            finally:
                field.proxies[node].free(*ways)

    return act


# Nothing goes through; what was sent arrives when it is over, also if its sender has gone.
kind("cut off, both ways", LINKS)(_held(UP, DOWN))
# They are executed late; what the node says gets through.
kind("requests held back", LINKS)(_held(UP))
# Everything is executed, and nobody hears of it in time.
kind("answers held back", LINKS)(_held(DOWN))


@kind("slow, 5 to 80 ms each way", LINKS)
async def slow(field: Field, node: int) -> AsyncIterator[None]:
    """What takes longer than the others' answers, and sometimes longer than node_timeout."""
    async with seen(field, node, f"{UP} late"):
        field.proxies[node].delay = field.dice.uniform(0.005, 0.08)
        try:
            yield
        finally:
            field.proxies[node].delay = 0.0


@kind("connections reset", LINKS, longest=0.05, often=True)
async def reset(field: Field, node: int) -> AsyncIterator[None]:
    """All of this node's, at once."""
    if field.proxies[node].reset() == 0:
        raise Missed(f"nobody was connected to node {node}")
    yield


@kind("half open", LINKS)
async def half_open(field: Field, node: int) -> AsyncIterator[None]:
    """What is sent is swallowed, connections too; in the end all are reset, and nothing of it ever arrives."""
    proxy = field.proxies[node]
    async with seen(field, node, f"{UP} kept"):
        proxy.hold(UP, DOWN)
        try:
            yield
        finally:
            proxy.reset()
            proxy.free(UP, DOWN)


def _truncated(way: str, most: int) -> Does:
    async def act(field: Field, node: int) -> AsyncIterator[None]:
        async with seen(field, node, f"{way} truncated"):
            field.proxies[node].cut_after(field.dice.randrange(1, most), way)
            yield
            field.proxies[node].cut_after(1 << 40, way)

    return act


# The node has part of it, and then the connection is gone.
kind("requests cut in two", LINKS, 0.3)(_truncated(UP, 700))
# The client has part of it, and then the connection is gone.
kind("answers cut in two", LINKS, 0.3)(_truncated(DOWN, 150))


# ------------------------------------------------ the way to a node: its cable


def _cabled(field: Field, node: int) -> bool:
    return field.servers[node].cable is not None


def _unreachable(change: Callable[[Any, bool], None]) -> Does:
    async def act(field: Field, node: int) -> AsyncIterator[None]:
        server = field.servers[node]
        change(server.cable, False)
        try:
            reachable = await asyncio.to_thread(server.reachable)
            yield
        finally:
            change(server.cable, True)
        if reachable:
            raise Missed(f"node {node} could be reached all the same")

    return act


# Packets are lost both ways, those that end connections too: the node goes on believing in them.
kind("cable unplugged", CABLES, fits=_cabled)(_unreachable(Cable.plug))
# Packets to the node are lost, and sent again by the kernel; those from it arrive.
kind("requests lost on the cable", CABLES, fits=_cabled)(_unreachable(Cable.hear))
# Packets from the node are lost; those to it arrive, and are executed.
kind("answers lost on the cable", CABLES, fits=_cabled)(_unreachable(Cable.answer))


# ------------------------------------------------ the node's process


async def _state(who: str, pid: int, wanted: str) -> None:
    for _ in range(200):
        if state(pid) in wanted.split(","):
            return
        await asyncio.sleep(0.001)
    raise Missed(f"{who} ran on")


@kind("SIGSTOP", PROCESSES, often=True)
async def node_stopped(field: Field, node: int) -> AsyncIterator[None]:
    """It stands still, and then does all that it was told meanwhile."""
    field.servers[node].freeze()
    try:
        await _state(f"node {node}", field.servers[node].pid, "T")
        yield
    finally:
        field.servers[node].thaw()


async def _restarted(field: Field, node: int, past: str) -> None:
    server = field.servers[node]
    before = server.run_id
    await server.start(past)
    if server.run_id == before:
        raise Missed(f"node {node} is the server that it was")


def _back(past: str, down: Callable[[Server], Awaitable[object]], missed: str = "") -> Does:
    async def act(field: Field, node: int) -> AsyncIterator[None]:
        met = await down(field.servers[node])
        try:
            yield
        finally:
            await _restarted(field, node, past)
        if missed and not met:
            raise Missed(f"node {node} {missed}")

    return act


async def _killed(server: Server) -> bool:
    server.kill()
    return server.written > 0


async def _cut_off(server: Server) -> bool:
    before = server.a_second_ago()
    server.kill(second_ago=before)
    return server.written > max(0, before - 3)


def _writes(field: Field, node: int) -> bool:
    return field.servers[node].disk is not FORGETFUL


def _writes_late(field: Field, node: int) -> bool:
    return field.servers[node].disk is EVERY_SECOND


# It has forgotten everything. Covered by the guard.
kind("kill -9, back empty", PROCESSES, 0.5)(_back(EMPTY, _killed))


@kind("kill -9, back empty at once", PROCESSES, 0.1)
async def killed_at_once(field: Field, node: int) -> AsyncIterator[None]:
    """While the conversation in which it died is held still, where there is one."""
    field.servers[node].kill()
    await _restarted(field, node, EMPTY)
    yield


# As an operator does it.
kind("SHUTDOWN, back empty", PROCESSES, 0.4)(_back(EMPTY, Server.shutdown))
# With everything that it had written (`everysec` and `always` are alike here: the kernel keeps what a dead process wrote).
WRITTEN = "kill -9, back with its append-only file"
kind(WRITTEN, PROCESSES, 0.5, fits=_writes, often=True)(_back(KEPT, _killed, "had written nothing"))
# It remembers what was a second ago, and begins a word that it does not end. Covered by the guard.
LATELY = "power cut, the last second of its append-only file gone"
kind(LATELY, PROCESSES, 0.3, fits=_writes_late, often=True)(_back(CUT, _cut_off, "had nothing to forget"))


# ------------------------------------------------ what a node refuses


def refused(field: Field, node: int, error: str) -> AbstractAsyncContextManager[None]:
    """A node has to answer with this error meanwhile."""
    return shows(node, lambda: field.servers[node].errors(error), f"nothing was refused with {error}")


def _refuses(error: str, do: Sequence[object], undo: Sequence[object]) -> Does:
    async def act(field: Field, node: int) -> AsyncIterator[None]:
        async with refused(field, node, error):
            await field.servers[node].ask(*do)
            try:
                yield
            finally:
                await field.servers[node].ask(*undo)

    return act


# No memory is left, and nothing is evicted: it refuses what writes.
kind("OOM", REFUSALS)(_refuses("OOM", ("CONFIG", "SET", "maxmemory", 1), ("CONFIG", "SET", "maxmemory", 0)))
# It is made the replica of nobody, and a master again, with the data that it had.
kind("READONLY", REFUSALS)(_refuses("READONLY", ("REPLICAOF", "127.0.0.1", 1), ("REPLICAOF", "NO", "ONE")))
# Its scripts are flushed.
kind("NOSCRIPT", REFUSALS, 0.3)(_refuses("NOSCRIPT", ("SCRIPT", "FLUSH"), ("PING",)))


@kind("BUSY", REFUSALS)
async def busy(field: Field, node: int) -> AsyncIterator[None]:
    """Somebody's script does not end: it says nothing, then that it is busy, until the script is killed."""
    server = field.servers[node]
    async with refused(field, node, "BUSY"):
        await server.ask("CONFIG", "SET", "lua-time-limit", 30)
        endless = asyncio.create_task(server.ask("EVAL", BUSY_LOOP, 0, patience=30.0))
        try:
            await asyncio.sleep(0.05)
            yield
        finally:
            for _ in range(50):
                if (await server.ask("SCRIPT", "KILL")) == "OK":
                    break
                await asyncio.sleep(0.02)
            await asyncio.gather(endless, return_exceptions=True)


@kind("disk full", REFUSALS, fits=_writes, often=True)
async def disk_full(field: Field, node: int) -> AsyncIterator[None]:
    """Its append-only file cannot grow: with `everysec` it refuses what writes (MISCONF), with `always` it dies."""
    server, deaths = field.servers[node], 0

    async def met() -> int:
        return deaths + await server.errors("MISCONF")

    async with shows(node, met, "nothing was written"):
        before = await server.errors("MISCONF")
        server.fill_disk(field.dice.randrange(1, 300))
        try:
            yield
        finally:
            if server.alive:
                server.fill_disk(None)
            else:
                await _restarted(field, node, KEPT)
                deaths = before + 1


# ------------------------------------------------ clocks


async def _stepped(field: Field, node: int, seconds: float) -> None:
    server = field.servers[node]
    try:
        low, high = await server.ahead()
        server.step(seconds)
        await asyncio.sleep(0.15)  # newer servers read the time into a cache
        now_low, now_high = await server.ahead()
    except OSError as unheard:
        raise Missed(f"node {node} did not answer: {unheard}") from None
    if not low + seconds - 0.002 <= now_high or not now_low <= high + seconds + 0.002:
        raise Missed(f"the clock of node {node} was not set: {now_low - low:.4f} s of {seconds:.4f}")


def _may_go_back(field: Field, node: int) -> bool:
    return field.servers[node].can_skew and field.servers[node].offset > -BACK + 0.02


def _may_go_forward(field: Field, node: int) -> bool:
    return field.servers[node].can_skew and time.monotonic() > field.lately.get(node, 0.0) + 1.5 * field.ttl


@kind("clock set back, 10 to 300 ms", CLOCKS, longest=0.2, fits=_may_go_back)
async def clock_back(field: Field, node: int) -> AsyncIterator[None]:
    """By less than a quarter of the guard altogether. It is right again after the next restart."""
    await _stepped(field, node, -min(field.dice.uniform(0.01, 0.3), BACK + field.servers[node].offset))
    yield


@kind("clock set forward by less than the drift", CLOCKS, longest=0.2, fits=_may_go_forward)
async def clock_forward(field: Field, node: int) -> AsyncIterator[None]:
    """Once in a lease at most."""
    field.lately[node] = time.monotonic()
    await _stepped(field, node, SWIFT)
    yield


AHEAD = 1.2  # seconds by which a clock may be ahead: less than half the guard, so that fences may be trusted after restarts


@kind(
    "clock set forward, beyond the drift",
    OUTSIDE,
    longest=0.5,
    breaks="1 (rates)",
    fits=lambda field, node: field.servers[node].can_skew and field.servers[node].offset < AHEAD - 0.1,
)
async def clock_leaps(field: Field, node: int) -> AsyncIterator[None]:
    """Leases end there before their holders know: exclusion may fail, the fence may not."""
    await _stepped(field, node, min(field.dice.uniform(0.05, AHEAD), AHEAD - field.servers[node].offset))
    yield


# ------------------------------------------------ memory


@kind("lock evicted", OUTSIDE, 0.3, "2 (memory)")
async def evicted(field: Field, node: int) -> AsyncIterator[None]:
    """Its memory is full, and it throws away whatever has not been used lately: locks, queues, and records of fences."""
    server = field.servers[node]

    async def count() -> int:
        return int((await server.told("stats"))["evicted_keys"])

    async with shows(node, count, "nothing was evicted"):
        await server.asks([("CONFIG", "SET", "maxmemory-policy", "allkeys-random"), ("CONFIG", "SET", "maxmemory", 1)])
        try:
            await server.ask("SET", "junk", "x", "PX", 1000)  # whoever writes next has room made for it
            yield
        finally:
            await server.asks([("CONFIG", "SET", "maxmemory", 0), ("CONFIG", "SET", "maxmemory-policy", "noeviction")])


# ------------------------------------------------ clients


@kind("client stopped", CLIENTS, 2.0, client=True, often=True)
async def client_stopped(field: Field, client: int) -> AsyncIterator[None]:
    """With SIGSTOP, for longer than its leases last, at times."""
    with stopped(pid := field.crowd.pid(client)):
        await _state(f"client {client}", pid, "T")
        yield


@kind("client killed", CLIENTS, 0.3, client=True, often=True)
async def client_killed(field: Field, client: int) -> AsyncIterator[None]:
    """With SIGKILL. What it held ends with its ttl."""
    field.crowd.signal(client, signal.SIGKILL)
    try:
        await _state(f"client {client}", field.crowd.pid(client), "Z,")
        yield
    finally:
        field.crowd.replace(client)


def _forks(field: Field, client: int) -> bool:
    return field.crowd.settings[client].face == "threads" and field.crowd.owner(client) in field.history.ready


@kind("client forked while it held a lock", CLIENTS, longest=0.3, client=True, fits=_forks)
async def client_forked(field: Field, client: int) -> AsyncIterator[None]:
    """The child may not use its parent's lease, and waits in line as anybody does."""
    before = field.history.counts[FORKED]
    field.crowd.signal(client, signal.SIGUSR1)
    yield
    for _ in range(40):
        field.read()
        if field.history.counts[FORKED] > before:
            return
        await asyncio.sleep(0.05)
    raise Missed(f"client {client} held nothing, and did not fork")
