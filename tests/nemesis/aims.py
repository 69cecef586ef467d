"""Moments of the protocol, seen from the wire: reads along with the proxies, and holds a conversation still when one has come.

Knows the protocol's words (requests, answers, pushes) and proxies. Must not know which harm is done at such a moment.

Holding still is keeping bytes back for some milliseconds, on the connections of one client: nothing that a network would not do.
"""

from __future__ import annotations

import asyncio
import enum
import random
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from holdfast.clock import clock
from holdfast.protocol.command import WAIT
from holdfast.protocol.quorum import majority
from holdfast.scripts import RELEASE, REQUEST
from holdfast.wire.connection import UNREADABLE
from holdfast.wire.resp import MORE, Push, reader

from .proxy import DOWN, UP, Link, Proxy, Way

MOST = 5_000  # tokens that are remembered
UNTIL_EARLY, UNTIL_LATE = -0.005, 0.005  # seconds around the end of a lease
PATIENCE = 0.3  # seconds for the first answer to come, once a conversation is held


class Moment(enum.Enum):
    """When harm is done."""

    ANY = "at any time"
    ANSWERS = "between the first and the q-th answer"
    RENEWAL = "while a renewal is under way"
    UNTIL = "when a lease ends, ± 5 ms"
    RELEASE = "at a release"
    PUSH = "at a hand-over"


AIMED = tuple(it for it in Moment if it is not Moment.ANY)


@dataclass(slots=True)
class Trace:
    """What the wire showed of one token."""

    token: bytes
    ttl: float
    asked: dict[int, float] = field(default_factory=dict)  # when each node was asked last
    granted: dict[int, float] = field(default_factory=dict)  # when what each node granted last had been asked

    @property
    def inbox(self) -> bytes:
        """Whose it is."""
        return self.token[17:49]


class Ear:
    """What is heard on one connection."""

    def __init__(self, node: int) -> None:
        self.node = node
        self.inbox, self.owner = b"", ""
        self.readers = {UP: reader(), DOWN: reader()}
        self.owed: deque[tuple[bytes, float] | None] = deque()  # who is owed each answer: (token, when it was asked), or nobody we know


class Caught:
    """A conversation that is held still. `node`: where it was noticed; `owner`: whose; `end`: of its lease (for UNTIL)."""

    def __init__(self, moment: Moment, trace: Trace, node: int, owner: str) -> None:
        self.moment, self.trace, self.node, self.owner = moment, trace, node, owner
        self.end: float | None = None
        self.held: list[Way] = []
        self.freed = False

    def hold(self, ways: Sequence[Way]) -> None:
        """Keep back what goes these ways."""
        for way in ways:
            way.hold()
        self.held += ways

    def free(self) -> None:
        """Let it go on."""
        for way in self.held:
            way.free()
        self.held.clear()
        self.freed = True


class Scout:
    """Reads along with all proxies. One moment at a time can be waited for."""

    def __init__(self, proxies: Sequence[Proxy], dice: random.Random) -> None:
        self.proxies, self.dice, self.quorum = proxies, dice, majority(len(proxies))
        self.traces: dict[bytes, Trace] = {}
        self._wanted = Moment.ANY
        self._first: Caught | None = None  # held, until its first answer has come
        self._still: Caught | None = None  # the last one that was caught
        self._found: asyncio.Future[Caught] | None = None
        for proxy in proxies:
            proxy.reads, proxy.opens = self._read, self._opened

    async def catch(self, moment: Moment, patience: float) -> Caught | None:
        """Wait for the moment, and hold that conversation still; None if it did not come. The caller frees it."""
        self._wanted, self._found = moment, asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(patience):
                caught = await self._found
        except TimeoutError:
            if not self._found.cancelled():  # it came in the very same moment
                self._found.result().free()
            return None
        finally:
            self._wanted, self._found = Moment.ANY, None
            if self._first is not None:
                self._first.free()
                self._first = None
        if moment is Moment.UNTIL:
            caught.end = sorted(caught.trace.granted.values())[-self.quorum] + caught.trace.ttl
            await asyncio.sleep(max(0.0, caught.end + self.dice.uniform(UNTIL_EARLY, UNTIL_LATE) - clock()))
        return caught

    # ------------------------------------------------ reading

    def _opened(self, link: Link) -> None:
        link.label = Ear(link.proxy.node)

    def _read(self, way: Way, data: bytes) -> None:
        ear: Ear = way.link.label
        heard = ear.readers[way.name]
        try:
            heard.feed(data)
            while (word := heard.gets()) is not MORE:
                if way.name is UP:
                    self._asked(ear, way.link, word)
                else:
                    self._answered(ear, way, word)
        except UNREADABLE:  # a program of somebody else's
            return

    def _asked(self, ear: Ear, link: Link, words: Any) -> None:
        match words:
            case [b"SUBSCRIBE", inbox]:  # (answered by a push)
                ear.inbox = inbox
                if self._still is not None and not self._still.freed and self._still.trace.inbox == inbox:
                    self._still.hold([link.up])  # else a client that hears nothing would connect anew, and go on
                return
            case [b"CLIENT", b"SETNAME", name]:
                ear.owner = name.decode().split(":")[1]
            case [b"EVALSHA", REQUEST.sha, _, _, _, _, _, token, ttl, mode, *_]:
                ear.owed.append((token, clock()))
                self._requested(ear, token, int(ttl) / 1000, mode)
                return
            case [b"EVALSHA", RELEASE.sha, _, _, _, _, _, token, *_]:
                trace = self.traces.pop(token, None)
                if trace is not None and len(trace.granted) >= self.quorum and self._wanted is Moment.RELEASE:
                    some = [it for it in self._links(trace) if it is link or self.dice.random() < 0.7]
                    self._catch(trace, ear, [it.up for it in some])
        ear.owed.append(None)

    def _requested(self, ear: Ear, token: bytes, ttl: float, mode: bytes) -> None:
        now = clock()
        trace = self.traces.get(token)
        if trace is None:
            trace = self.traces[token] = Trace(token, ttl)
            if len(self.traces) > MOST:
                del self.traces[next(iter(self.traces))]
            if self._wanted is Moment.ANSWERS and mode == WAIT and self._first is None:
                self._first = Caught(self._wanted, trace, ear.node, ear.owner)
                self._first.hold([it.down for it in self._links(trace) if it.label is not ear])
                asyncio.get_running_loop().call_later(PATIENCE, self._too_late, self._first)
        again = now - trace.asked.get(ear.node, now) > trace.ttl / 7
        trace.asked[ear.node] = now
        if again and len(trace.granted) >= self.quorum:
            links = self._links(trace)
            if self._wanted is Moment.RENEWAL:
                self._catch(trace, ear, [it.down for it in links] + [it.up for it in links if self.dice.random() < 0.5])
            elif self._wanted is Moment.UNTIL:
                self._catch(trace, ear, [way for it in links for way in it.ways])

    def _answered(self, ear: Ear, way: Way, word: Any) -> None:
        if type(word) is Push:
            match list(word):
                case [b"message", _, bytes() as message] if message.startswith(b"g ") and self._wanted is Moment.PUSH:
                    token = message.split(b" ")[1]
                    self._catch(self.traces.get(token) or Trace(token, 0.0), ear, [way])
            return
        asked = ear.owed.popleft() if ear.owed else None
        if asked is None or (trace := self.traces.get(asked[0])) is None:
            return
        if isinstance(word, int | bytes) or (isinstance(word, list) and word[0] != 0):  # (the usual answer is one word: the fence)
            trace.granted[ear.node] = asked[1]
        else:
            trace.granted.pop(ear.node, None)
        first = self._first
        if first is not None and first.trace is trace and first.node == ear.node:
            self._first = None
            self._tell(first)

    # ------------------------------------------------ catching

    def _links(self, trace: Trace) -> list[Link]:
        return [link for proxy in self.proxies for link in proxy.links if link.label.inbox == trace.inbox]

    def _catch(self, trace: Trace, ear: Ear, ways: Sequence[Way]) -> None:
        caught = Caught(self._wanted, trace, ear.node, ear.owner)
        caught.hold(ways)
        self._tell(caught)

    def _tell(self, caught: Caught) -> None:
        self._wanted = Moment.ANY
        if self._found is None or self._found.done():
            caught.free()
        else:
            self._still = caught
            self._found.set_result(caught)

    def _too_late(self, first: Caught) -> None:
        if self._first is first:
            first.free()
            self._first = None
