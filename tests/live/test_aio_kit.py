"""What the live tests of asyncio share, and that it notices what it is there to notice.

Knows clients, loops and servers. `calm` makes a test of a coroutine: it runs in a loop of its own that is ended as a program ends it,
and fails if anything is left over or complained of. `left` looks into the servers. `lose` takes a lease away between two turns of the loop.
"""

from __future__ import annotations

import asyncio
import functools
import gc
import itertools
import logging
import os
import re
import sys
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Self

from contract.cluster import asks
from contract.programs import run

from holdfast.aio import Holdfast, Lease
from holdfast.clock import clock
from holdfast.drivers.aio.driver import Driver
from holdfast.embedded import Nodes
from holdfast.protocol.exclusive import keys_of

SOON = 10.0  # seconds in which what has to happen has happened, on a busy machine too
_numbers = itertools.count()


def some(name: str) -> str:
    """A lock's name that nobody has used."""
    return f"{name}:{next(_numbers)}"


def client(nodes: Nodes, **options: Any) -> Holdfast:
    """A client of these nodes."""
    return Holdfast(*nodes.urls, **options)


async def connected(nodes: Nodes, **options: Any) -> Holdfast:
    """The same, once it speaks with every node."""
    locks = client(nodes, **options)
    await locks.ready(SOON)
    return locks


async def true(condition: Callable[[], object], within: float = SOON) -> None:
    """Wait until it holds."""
    end = clock() + within
    while not condition():
        assert clock() < end, f"not within {within:g} s: {condition}"
        await asyncio.sleep(0.003)


async def turns(count: int) -> None:
    """Let the loop turn so often."""
    for _ in range(count):
        await asyncio.sleep(0)


def driver_of(locks: Holdfast) -> Driver:
    """The driver of the running loop."""
    return locks._driver()


def lose(lease: Lease, reason: str = "forced") -> None:
    """It is lost, now, as if a node had just said so."""
    driver, claim = lease._driver, lease._want

    def taken() -> None:
        claim.lose(clock(), reason)
        driver.engine.act(claim, clock())

    driver.do(taken)


def idle(locks: Holdfast) -> bool:
    """Does this client remember nothing of anybody?"""
    driver = driver_of(locks)
    return not (driver.engine.live or len(driver.waiting) or driver._leases or driver.strangers)


def left(nodes: Nodes, *names: str) -> list[str]:
    """What stands in these locks' keys, other than fences: who holds, who waits. It blocks, for part of a millisecond."""
    commands: list[tuple[object, ...]] = []
    for name in names:
        key, _, queue, waiters = (it.decode() for it in keys_of(name.encode()))
        commands += [("GET", key), ("ZRANGE", queue, 0, -1), ("HKEYS", waiters)]
    return [f"node {node}: {it}" for node, url in enumerate(nodes.urls) for it in asks(url, commands) if it]


async def gone(nodes: Nodes, *names: str) -> None:
    """Wait until nothing stands there any more."""
    await true(lambda: not left(nodes, *names))


def forced(nodes: Nodes, lease: Lease) -> None:
    """Take the lock away from its holder, as an operator does."""
    inbox = lease.token.split(":")[1]
    for url in nodes.urls:
        asks(url, [("DEL", lease.name), ("PUBLISH", inbox, f"x {lease.token} 0 {lease.name}")])


class Complaints:
    """Collects what an event loop, or the garbage collector, complains of, and what asyncio logs as an error."""

    def __init__(self) -> None:
        self.heard: list[str] = []

    def __enter__(self) -> Self:
        self._hook, sys.unraisablehook = sys.unraisablehook, self._unraisable
        self._handler = _Errors(self.heard)
        logging.getLogger("asyncio").addHandler(self._handler)
        return self

    def __exit__(self, *raised: object) -> None:
        gc.collect()
        sys.unraisablehook = self._hook
        logging.getLogger("asyncio").removeHandler(self._handler)

    def _unraisable(self, what: Any) -> None:
        self.heard.append(f"{what.err_msg or 'ignored'} {what.object!r}: {what.exc_value!r}")


class _Errors(logging.Handler):
    def __init__(self, heard: list[str]) -> None:
        super().__init__(logging.ERROR)
        self._heard = heard

    def emit(self, record: logging.LogRecord) -> None:
        self._heard.append(record.getMessage())


def ended(main: Callable[[], Coroutine[Any, Any, Any]]) -> None:
    """Run it in a loop of its own, to its end; nothing may be left over, and nobody may complain."""

    async def whole() -> None:
        await main()
        assert asyncio.all_tasks() == {asyncio.current_task()}

    with Complaints() as complaints:
        asyncio.run(whole())
    assert complaints.heard == []


def calm(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Makes a test of a coroutine function: see `ended`."""

    @functools.wraps(test)
    def sync(*arguments: Any, **named: Any) -> None:
        ended(lambda: test(*arguments, **named))

    return sync


async def cut(work: Coroutine[Any, Any, Any] | asyncio.Task[Any], after: int) -> str:
    """Run it as a task, cancelled after so many turns of the loop: "done" if it was faster, "cancelled", or what it did instead."""
    task = work if isinstance(work, asyncio.Task) else asyncio.create_task(work)
    await turns(after)
    cancelled = task.cancel()
    await asyncio.wait([task], timeout=SOON)
    assert task.done(), f"cancelled after {after} turns, and still there"
    if task.cancelled():
        return "cancelled"
    if not cancelled:
        task.result()
        return "done"
    return f"swallowed the cancellation, and ended with {task.exception()!r}"


async def at_every_turn(once: Callable[[int], Awaitable[str]], most: int = 400) -> int:
    """Have something cut after 0, 1, 2 ... turns until it is faster, and says "done". How many turns it took."""
    for k in range(most):
        outcome = await once(k)
        assert outcome in ("cancelled", "done"), f"after {k} turns: {outcome}"
        if outcome == "done":
            return k
    raise AssertionError(f"{once} took more than {most} turns")


STRICT = ("-X", "dev", "-W", "error")  # every warning is an error


def ran(nodes: Nodes, source: str) -> str:
    """What such a program, which finds these nodes in its environment, prints; it may not complain, nor fail."""
    status, said, complained = run(source, nodes, flags=STRICT, patience=30)
    assert (status, complaints(complained)) == (0, [])
    return said


def complaints(text: str) -> list[str]:
    """Return the lines of a program's stderr, without those in which asyncio reports how long a busy machine took for a step."""
    return [it for it in text.splitlines() if not re.fullmatch(r"Executing <.*> took [\d.]+ seconds", it)]


# ------------------------------------------------ that it notices


def test_the_loop_is_the_one_that_was_asked_for() -> None:
    async def loop() -> str:
        return type(asyncio.get_running_loop()).__module__.partition(".")[0]

    assert asyncio.run(loop()) == os.environ.get("HOLDFAST_LOOP", "asyncio")
