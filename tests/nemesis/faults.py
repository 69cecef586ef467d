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
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from .clients import THREADS, Crowd
from .history import FORKED, History
from .proxy import DOWN, UP, Proxy
from .servers import CUT, EMPTY, EVERY_SECOND, FORGETFUL, KEPT, Servers, process_state

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
    fits: Callable[[Field, int], bool]


KINDS: dict[str, Kind] = {}
LINKS, CABLES, PROCESSES, REFUSALS, CLOCKS, CLIENTS, OUTSIDE = "links", "cables", "processes", "refusals", "clocks", "clients", "outside"


def kind(
    name: str,
    group: str,
    longest: float = 1.0,
    often: bool = False,
    client: bool = False,
    breaks: str = "",
    fits: Callable[[Field, int], bool] = lambda field, target: True,
) -> Callable[[Callable[[Field, int], AsyncIterator[None]]], Act]:
    """Enter a fault in the list."""

    def enter(act: Callable[[Field, int], AsyncIterator[None]]) -> Act:
        made = asynccontextmanager(act)
        KINDS[name] = Kind(name, made, group, longest, often, client, breaks, fits)
        return made

    return enter


# ------------------------------------------------ the way to a node: the proxy


def _saw(proxy: Proxy, what: str, before: int) -> None:
    if proxy.seen[what] <= before:
        raise Missed(f"nothing was {what} at node {proxy.node}")


async def _held(field: Field, node: int, *ways: str) -> AsyncIterator[None]:
    proxy = field.proxies[node]
    before = sum(proxy.seen[f"{way} kept"] for way in ways)
    proxy.hold(*ways)
    try:
        yield
    finally:
        proxy.free(*ways)
    if sum(proxy.seen[f"{way} kept"] for way in ways) == before:
        raise Missed(f"nothing was on its way to node {node}")


@kind("cut off, both ways", LINKS)
async def cut(field: Field, node: int) -> AsyncIterator[None]:
    """Nothing goes through; what was sent arrives when it is over, also if its sender has gone."""
    async for it in _held(field, node, UP, DOWN):
        yield it


@kind("requests held back", LINKS)
async def deaf(field: Field, node: int) -> AsyncIterator[None]:
    """They are executed late; what the node says gets through."""
    async for it in _held(field, node, UP):
        yield it


@kind("answers held back", LINKS)
async def dumb(field: Field, node: int) -> AsyncIterator[None]:
    """Everything is executed, and nobody hears of it in time."""
    async for it in _held(field, node, DOWN):
        yield it


@kind("slow, 5 to 80 ms each way", LINKS)
async def slow(field: Field, node: int) -> AsyncIterator[None]:
    """What takes longer than the others' answers, and sometimes longer than node_timeout."""
    proxy = field.proxies[node]
    before, proxy.delay = proxy.seen[f"{UP} late"], field.dice.uniform(0.005, 0.08)
    try:
        yield
    finally:
        proxy.delay = 0.0
    _saw(proxy, f"{UP} late", before)


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
    before = proxy.seen[f"{UP} kept"]
    proxy.hold(UP, DOWN)
    try:
        yield
    finally:
        proxy.reset()
        proxy.free(UP, DOWN)
    _saw(proxy, f"{UP} kept", before)


async def _truncated(field: Field, node: int, way: str, most: int) -> AsyncIterator[None]:
    proxy = field.proxies[node]
    before = proxy.seen[f"{way} truncated"]
    proxy.cut_after(field.dice.randrange(1, most), way)
    yield
    proxy.cut_after(1 << 40, way)
    _saw(proxy, f"{way} truncated", before)


@kind("requests cut in two", LINKS, longest=0.3)
async def half_a_request(field: Field, node: int) -> AsyncIterator[None]:
    """The node has part of it, and then the connection is gone."""
    async for it in _truncated(field, node, UP, 700):
        yield it


@kind("answers cut in two", LINKS, longest=0.3)
async def half_an_answer(field: Field, node: int) -> AsyncIterator[None]:
    """The client has part of it, and then the connection is gone."""
    async for it in _truncated(field, node, DOWN, 150):
        yield it


# ------------------------------------------------ the way to a node: its cable


def _cabled(field: Field, node: int) -> bool:
    return field.servers[node].cable is not None


async def _unreachable(field: Field, node: int, change: Callable[[Any, bool], None]) -> AsyncIterator[None]:
    server = field.servers[node]
    change(server.cable, False)
    try:
        reachable = await asyncio.to_thread(server.reachable)
        yield
    finally:
        change(server.cable, True)
    if reachable:
        raise Missed(f"node {node} could be reached all the same")


@kind("cable unplugged", CABLES, fits=_cabled)
async def unplugged(field: Field, node: int) -> AsyncIterator[None]:
    """Packets are lost both ways, those that end connections too: the node goes on believing in them."""
    async for it in _unreachable(field, node, lambda cable, good: cable.plug(good)):
        yield it


@kind("requests lost on the cable", CABLES, fits=_cabled)
async def requests_lost(field: Field, node: int) -> AsyncIterator[None]:
    """Packets to the node are lost, and sent again by the kernel; those from it arrive."""
    async for it in _unreachable(field, node, lambda cable, good: cable.hear(good)):
        yield it


@kind("answers lost on the cable", CABLES, fits=_cabled)
async def answers_lost(field: Field, node: int) -> AsyncIterator[None]:
    """Packets from the node are lost; those to it arrive, and are executed."""
    async for it in _unreachable(field, node, lambda cable, good: cable.answer(good)):
        yield it


# ------------------------------------------------ the node's process


@kind("SIGSTOP", PROCESSES, often=True)
async def stopped(field: Field, node: int) -> AsyncIterator[None]:
    """It stands still, and then does all that it was told meanwhile."""
    server = field.servers[node]
    server.freeze()
    try:
        for _ in range(100):
            if server.state() == "T":
                break
            await asyncio.sleep(0.001)
        else:
            raise Missed(f"node {node} ran on")
        yield
    finally:
        server.thaw()


async def _restarted(field: Field, node: int, past: str) -> None:
    server = field.servers[node]
    before = server.run_id
    await server.start(past)
    if server.run_id == before:
        raise Missed(f"node {node} is the server that it was")


@kind("kill -9, back empty", PROCESSES, longest=0.5)
async def killed_empty(field: Field, node: int) -> AsyncIterator[None]:
    """It has forgotten everything. Covered by the guard."""
    server = field.servers[node]
    server.kill()
    try:
        yield
    finally:
        await _restarted(field, node, EMPTY)


@kind("kill -9, back empty at once", PROCESSES, longest=0.1)
async def killed_at_once(field: Field, node: int) -> AsyncIterator[None]:
    """While the conversation in which it died is held still, where there is one."""
    server = field.servers[node]
    server.kill()
    await _restarted(field, node, EMPTY)
    yield


@kind("SHUTDOWN, back empty", PROCESSES, longest=0.4)
async def shut_down(field: Field, node: int) -> AsyncIterator[None]:
    """As an operator does it."""
    await field.servers[node].shutdown()
    try:
        yield
    finally:
        await _restarted(field, node, EMPTY)


def _writes(field: Field, node: int) -> bool:
    return field.servers[node].disk is not FORGETFUL


@kind("kill -9, back with its append-only file", PROCESSES, longest=0.5, fits=_writes, often=True)
async def killed_kept(field: Field, node: int) -> AsyncIterator[None]:
    """With everything that it had written (`everysec` and `always` are alike here: the kernel keeps what a dead process wrote)."""
    server = field.servers[node]
    server.kill()
    written = server.written
    try:
        yield
    finally:
        await _restarted(field, node, KEPT)
    if not written:
        raise Missed(f"node {node} had written nothing")


@kind(
    "power cut, the last second of its append-only file gone",
    PROCESSES,
    longest=0.3,
    fits=lambda field, node: field.servers[node].disk is EVERY_SECOND,
    often=True,
)
async def power_cut(field: Field, node: int) -> AsyncIterator[None]:
    """It remembers what was a second ago, and begins a word that it does not end. Covered by the guard."""
    server = field.servers[node]
    before = server.a_second_ago()
    server.kill(second_ago=before)
    lost = server.written > max(0, before - 3)
    try:
        yield
    finally:
        await _restarted(field, node, CUT)
    if not lost:
        raise Missed(f"node {node} had nothing to forget")


# ------------------------------------------------ what a node refuses


async def _refused(field: Field, node: int, error: str, do: Sequence[object], undo: Sequence[object]) -> AsyncIterator[None]:
    server = field.servers[node]
    try:
        before = await server.errors(error)
        await server.ask(*do)
        try:
            yield
        finally:
            await server.ask(*undo)
        if await server.errors(error) <= before:
            raise Missed(f"node {node} refused nothing with {error}")
    except OSError as unheard:
        raise Missed(f"node {node} did not answer: {unheard}") from None


@kind("OOM", REFUSALS)
async def out_of_memory(field: Field, node: int) -> AsyncIterator[None]:
    """No memory is left, and nothing is evicted: it refuses what writes."""
    async for it in _refused(field, node, "OOM", ("CONFIG", "SET", "maxmemory", 1), ("CONFIG", "SET", "maxmemory", 0)):
        yield it


@kind("READONLY", REFUSALS)
async def read_only(field: Field, node: int) -> AsyncIterator[None]:
    """It is made the replica of nobody, and a master again, with the data that it had."""
    async for it in _refused(field, node, "READONLY", ("REPLICAOF", "127.0.0.1", 1), ("REPLICAOF", "NO", "ONE")):
        yield it


@kind("NOSCRIPT", REFUSALS, longest=0.3)
async def no_script(field: Field, node: int) -> AsyncIterator[None]:
    """Its scripts are flushed."""
    async for it in _refused(field, node, "NOSCRIPT", ("SCRIPT", "FLUSH"), ("PING",)):
        yield it


@kind("BUSY", REFUSALS)
async def busy(field: Field, node: int) -> AsyncIterator[None]:
    """Somebody's script does not end: it says nothing, then that it is busy, until the script is killed."""
    server = field.servers[node]
    try:
        before = await server.errors("BUSY")
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
        if await server.errors("BUSY") <= before:
            raise Missed(f"node {node} was busy, and nobody asked")
    except OSError as unheard:
        raise Missed(f"node {node} did not answer: {unheard}") from None


@kind("disk full", REFUSALS, fits=_writes, often=True)
async def disk_full(field: Field, node: int) -> AsyncIterator[None]:
    """Its append-only file cannot grow: with `everysec` it refuses what writes (MISCONF), with `always` it dies."""
    server = field.servers[node]
    try:
        before = await server.errors("MISCONF")
        server.fill_disk(field.dice.randrange(1, 300))
        try:
            yield
        finally:
            died = not server.alive
            if died:
                await _restarted(field, node, KEPT)
            else:
                server.fill_disk(None)
        if not died and await server.errors("MISCONF") <= before:
            raise Missed(f"node {node} wrote nothing meanwhile")
    except OSError as unheard:
        raise Missed(f"node {node} did not answer: {unheard}") from None


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


@kind("lock evicted", OUTSIDE, longest=0.3, breaks="2 (memory)")
async def evicted(field: Field, node: int) -> AsyncIterator[None]:
    """Its memory is full, and it throws away whatever has not been used lately: locks, queues, and records of fences."""
    server = field.servers[node]
    try:
        before = int((await server.told("stats"))["evicted_keys"])
        await server.asks([("CONFIG", "SET", "maxmemory-policy", "allkeys-random"), ("CONFIG", "SET", "maxmemory", 1)])
        try:
            await server.ask("SET", "junk", "x", "PX", 1000)  # whoever writes next has room made for it
            yield
        finally:
            await server.asks([("CONFIG", "SET", "maxmemory", 0), ("CONFIG", "SET", "maxmemory-policy", "noeviction")])
        if int((await server.told("stats"))["evicted_keys"]) <= before:
            raise Missed(f"node {node} evicted nothing")
    except OSError as unheard:
        raise Missed(f"node {node} did not answer: {unheard}") from None


# ------------------------------------------------ clients


@kind("client stopped", CLIENTS, longest=2.0, client=True, often=True)
async def client_stopped(field: Field, client: int) -> AsyncIterator[None]:
    """With SIGSTOP, for longer than its leases last, at times."""
    pid = field.crowd.pid(client)
    field.crowd.signal(client, signal.SIGSTOP)
    try:
        for _ in range(100):
            if process_state(pid) == "T":
                break
            await asyncio.sleep(0.001)
        else:
            raise Missed(f"client {client} ran on")
        yield
    finally:
        field.crowd.signal(client, signal.SIGCONT)


@kind("client killed", CLIENTS, longest=0.3, client=True, often=True)
async def client_killed(field: Field, client: int) -> AsyncIterator[None]:
    """With SIGKILL. What it held ends with its ttl."""
    pid = field.crowd.pid(client)
    field.crowd.signal(client, signal.SIGKILL)
    for _ in range(200):
        if process_state(pid) in ("Z", ""):
            break
        await asyncio.sleep(0.001)
    try:
        yield
    finally:
        field.crowd.replace(client)


def _forks(field: Field, client: int) -> bool:
    return field.crowd.settings[client].face == THREADS and field.crowd.owner(client) in field.history.ready


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
