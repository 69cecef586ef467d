"""The driver for asyncio: one protocol object a node and event loop, one future a claim, one timer a loop.

Knows event loops, transports and the clock. Must not know the protocol: it moves bytes and time between a crew and the world.

What is said first in a turn of the loop leaves at once; whatever else is said in that turn leaves together at its end, in
one write a node.
"""

from __future__ import annotations

import asyncio
import os
import time
import weakref
from collections.abc import AsyncGenerator, Callable
from math import inf
from typing import Any, Protocol

from ..clock import clock
from ..core.claim import HELD, LOST, Claim
from ..core.command import Recipe
from ..engine.crew import Crew, NodeStatus
from ..engine.settings import Settings
from ..errors import Closed
from ..events import Event
from ..recipes import exclusive
from ..wire.address import Address
from . import sockets
from .forks import generation

CHUNK = 65536


class Lease(Protocol):
    """What a face gives to its user. The driver never keeps it, or its death would never be noticed."""

    claim: Claim

    def _fell(self) -> None:
        """It is lost. Called with nothing half done."""


class Link(asyncio.BufferedProtocol):
    """One connection: the bytes of one node, read into one buffer for ever."""

    def __init__(self, driver: Driver, node: int) -> None:
        self.driver, self.node = driver, node
        self.transport: asyncio.Transport | None = None
        self._buffer = bytearray(CHUNK)
        self._view = memoryview(self._buffer)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def get_buffer(self, sizehint: int) -> bytearray:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.driver.received(self, self._view[:nbytes])

    def connection_lost(self, exc: Exception | None) -> None:
        self.driver.lost(self, exc or ConnectionError("it closed the connection"))


class Driver:
    """All there is of a client in one event loop. Made in that loop, and gone with it."""

    def __init__(self, settings: Settings, tell: Callable[[Event], None], telling: bool = False, version: str = "0") -> None:
        self.settings, self._tell, self._born = settings, tell, generation()
        self.loop = asyncio.get_running_loop()
        self.crew = Crew(settings, os.urandom(16).hex().encode(), exclusive.undo, version)
        self.crew.telling = telling
        self.crew.epoch = time.time() - clock()
        self.closed = False
        self._leases: dict[Claim, weakref.ref[Any]] = {}  # of all claims that somebody has
        self._waiters: dict[Claim, list[asyncio.Future[None]]] = {}  # who waits for news of a claim
        self._links: list[Link | None] = [None] * len(settings.addresses)
        self._dialling: dict[int, asyncio.Task[None]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._due = inf
        self._turning = False  # has something been said in this turn of the loop already?
        self._flushed: list[asyncio.Future[None]] = []  # who waits until what was said has left
        self._watchers: list[asyncio.Future[None]] = []  # who waits for news of any node
        self._seen = 0
        # asyncio.run ends a loop's async generators before it closes it: that is when this driver ends, if nobody closes it before.
        self._life = self._live()
        try:
            self._life.__anext__().send(None)
        except StopIteration:
            pass

    async def _live(self) -> AsyncGenerator[None, None]:
        try:
            yield
        finally:
            await self.close()

    @property
    def foreign(self) -> bool:
        """Is this a forked child, and the driver its parent's?"""
        return generation() != self._born

    # ------------------------------------------------ for the face

    async def acquire(self, lease: Lease, recipe: Recipe, *, ttl: float, wait: float | None, renew: bool, max_hold: float) -> None:
        """Wait until the lease is held. `wait`: seconds; None for ever; 0 tries once. Raises what the claim says."""
        deadline = inf if not wait else clock() + wait
        while True:
            self._check_open()
            now = clock()
            claim = self.crew.claim(recipe, ttl, now, patient=wait != 0, deadline=deadline, renew=renew, max_hold=max_hold)
            waiter = self.loop.create_future()
            self._waiters[claim] = [waiter]
            lease.claim = claim
            self.crew.begin(claim, now)
            self.work()
            try:
                await waiter
            except BaseException:  # cancelled: nothing is left behind, and nothing is waited for
                self._end(claim)
                raise
            self._check_open()
            if claim.refusal is not None:
                raise claim.refusal
            if claim.state is HELD and clock() < claim.until:
                self._leases[claim] = weakref.ref(lease, lambda _, claim=claim: claim.abandon())  # type: ignore[misc]
                return
            self._end(claim)  # held, and lost before anybody heard of it: once more

    async def extend(self, claim: Claim, ttl: float) -> None:
        """Have the lease last at least `ttl` seconds from now; returns when that was confirmed, or was not in time."""
        if not self.crew.extend(claim, ttl, clock()):
            self.work()
            return
        waiter = self.loop.create_future()
        self._waiters.setdefault(claim, []).append(waiter)
        self.work()
        await waiter

    async def release(self, claim: Claim, confirm: bool) -> int:
        """Give it back. Returns when the bytes have left; with `confirm`, when a majority has confirmed: on how many nodes."""
        if not confirm:
            self._end(claim)
            if self._unsent():
                waiter = self.loop.create_future()
                self._flushed.append(waiter)
                await waiter
            return 0
        waiter = self.loop.create_future()
        self._waiters[claim] = [waiter]
        self.crew.end(claim, clock(), heard=True)
        self.work()
        await waiter
        return claim.freed

    async def ready(self, wait: float) -> tuple[NodeStatus, ...]:
        """Connect to every node. Raises what is wrong after `wait` seconds, or at once if time will not mend it."""
        began = clock()
        self.work()
        while True:
            self._check_open()
            now = clock()
            status, wrong = self.status(), self.crew.verdict(now - began, now)
            if not any(it.state == "connecting" for it in status) and wrong is None:
                return status
            if wrong is not None and (isinstance(wrong, ValueError) or now >= began + wait):
                raise wrong
            if now >= began + wait:
                return status
            watcher = self.loop.create_future()
            self._watchers.append(watcher)
            await asyncio.wait([watcher], timeout=began + wait - now)

    def status(self) -> tuple[NodeStatus, ...]:
        """How the nodes are, as far as is known."""
        return self.crew.status(clock())

    async def close(self) -> None:
        """Release everything and end. Waits for the nodes' answers, at most `node_timeout`."""
        if self.closed or self.foreign:
            return
        self.closed = True
        end = clock() + self.settings.node_timeout
        self.crew.close(clock())
        self.work()
        try:
            while self.crew.owing and (left := end - clock()) > 0:
                watcher = self.loop.create_future()
                self._watchers.append(watcher)
                await asyncio.wait([watcher], timeout=left)
        finally:
            self._shut()

    def _shut(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        for task in self._dialling.values():
            task.cancel()
        links, self._links = self._links, [None] * len(self._links)
        for link in links:
            if link is not None and link.transport is not None:
                link.transport.close()
        self._wake(self._watchers)

    def _check_open(self) -> None:
        if self.closed:
            raise Closed("this client was closed")

    def _end(self, claim: Claim) -> None:
        self.crew.end(claim, clock())
        self.work()
        if claim.done:
            self._leases.pop(claim, None)
            self._waiters.pop(claim, None)

    # ------------------------------------------------ what happens

    def received(self, link: Link, data: memoryview) -> None:
        """A node sent this."""
        if self._links[link.node] is link:
            self.crew.received(link.node, data, clock())
            if self.closed:
                self._wake(self._watchers)
            self.work()

    def lost(self, link: Link, cause: Exception) -> None:
        """A connection is gone."""
        if self._links[link.node] is link:
            self._links[link.node] = None
            self.crew.lost(link.node, clock(), cause)
            self.work()

    def _tick(self) -> None:
        """Time has passed. What lies unread is not late: the loop reads once more before anybody is judged by this `now`.

        A turn looks what can be read before it calls what was asked for in the turn before: hence two turns.
        """
        self._timer, self._due, now = None, -inf, clock()  # (until then nobody needs another timer)
        self.loop.call_soon(self.loop.call_soon, self._judge, now)

    def _judge(self, now: float) -> None:
        self._due = inf
        if not self.closed or self.crew.owing:
            self.crew.epoch = time.time() - clock()
            self.crew.tick(now)
            self.work()

    # ------------------------------------------------ what the crew wants done

    def work(self) -> None:
        """Do what the crew asks for, and wake whose claims have news."""
        crew = self.crew
        if crew.settled or crew.events or crew.changes != self._seen:
            self._settle()
        if crew.hangups or crew.dials:
            self._connect()
        if not self._turning:
            self._turning = True
            self.loop.call_soon(self._turned)
            self._flush()

    def _turned(self) -> None:
        self._turning = False
        self._flush()

    def _unsent(self) -> bool:
        return any(lane.out for lane in self.crew.lanes)

    def _flush(self) -> None:
        crew = self.crew
        for lane, link in zip(crew.lanes, self._links, strict=True):
            if lane.out and link is not None and link.transport is not None:
                link.transport.write(lane.take())
        if self._flushed:
            self._wake(self._flushed)
        if (wake := crew.next_wake()) < self._due:
            if self._timer is not None:
                self._timer.cancel()
            self._due = wake
            self._timer = self.loop.call_later(max(0.0, wake - clock()), self._tick)

    def _settle(self) -> None:
        crew = self.crew
        settled, crew.settled = crew.settled, []
        for claim in settled:
            self._wake(self._waiters.pop(claim, []))
            if claim.done and (found := self._leases.pop(claim, None)) is not None and claim.state is LOST:
                lease = found()
                if lease is not None:
                    lease._fell()
        if crew.changes != self._seen:
            self._seen = crew.changes
            self._wake(self._watchers)
        told, crew.events = crew.events, []
        for event in told:
            self._tell(event)

    @staticmethod
    def _wake(waiters: list[asyncio.Future[None]]) -> None:
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)
        waiters.clear()

    def _connect(self) -> None:
        """Close what the crew wants closed, with a reset, then dial what it wants dialled."""
        crew = self.crew
        hangups, crew.hangups = crew.hangups, []
        for node in hangups:
            if (task := self._dialling.pop(node, None)) is not None:
                task.cancel()
            link, self._links[node] = self._links[node], None
            if link is not None and link.transport is not None:
                sockets.reset(link.transport.get_extra_info("socket"))
                link.transport.abort()
        dials, crew.dials = crew.dials, []
        for node in dials:
            if not self.closed:
                self._dialling[node] = self.loop.create_task(self._dial(node, self.settings.addresses[node]))

    async def _dial(self, node: int, address: Address) -> None:
        try:
            link = await self._connected(node, address)
        except OSError as error:
            if self._dialling.get(node) is asyncio.current_task():
                del self._dialling[node]
                self.crew.lost(node, clock(), error)
                self.work()
            return
        if self._dialling.get(node) is not asyncio.current_task():  # given up meanwhile
            assert link.transport is not None
            link.transport.abort()
            return
        del self._dialling[node]
        self._links[node] = link
        self.crew.connected(node, clock())
        self.work()

    async def _connected(self, node: int, address: Address) -> Link:
        """A connection to the first of the node's places that takes one."""
        places = sockets.places(address) if sockets.is_literal(address) else await self.loop.run_in_executor(None, sockets.places, address)
        refusal: OSError = OSError(f"{address.label} has no address")
        for family, where in places:
            sock = sockets.open_socket(family)
            try:
                await self.loop.sock_connect(sock, where)
                if address.path:
                    _, link = await self.loop.create_unix_connection(lambda: Link(self, node), sock=sock)
                else:
                    _, link = await self.loop.create_connection(lambda: Link(self, node), sock=sock)
                return link
            except OSError as error:
                refusal = error
                sock.close()
            except BaseException:
                sock.close()
                raise
        raise refusal
