"""A value that is computed once for all: its key on a node, how it is looked at, kept and dropped,
and what an answer means.

Knows `scripts/peek.lua`, `scripts/put.lua` and `scripts/void.lua`. Must not know which nodes there
are, what a value says, or who computes it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ...protocol.exclusive import Exclusive, beside, keys_of
from ...scripts import PEEK, PUT, VOID
from ...wire.resp import evalsha


@dataclass(frozen=True, slots=True)
class Kept:
    """A value as one node has it.

    `left`: for how many more seconds it is fresh; 0 or less: for how long it has not been. `fence`:
    of the lease under which it was computed. `ttl`: for how many seconds it was to be fresh at
    first. `data`: None if this is a note: whatever is of this fence or of a lower one was dropped.
    """

    left: float
    fence: int
    ttl: float = 0.0
    data: bytes | None = None

    @property
    def fresh(self) -> bool:
        """Is it as good as computed just now?"""
        return self.left > 0

    def left_for(self, ttl: float) -> float:
        """For how many more seconds it is fresh for a caller to whom no value is that is older than
        this many seconds.
        """
        age = self.ttl - self.left
        return min(self.left, ttl - age)


@dataclass(frozen=True, slots=True)
class FillHeard:
    """What a node tells before a value is dropped.

    `fence`: the highest that it knows of; `stays`: how long a value stays, in ms.
    """

    fence: int
    stays: int


class Cache:
    """Where the nodes keep what is computed under a lock. Immutable."""

    def __init__(self, lock: Exclusive) -> None:
        self._keys = lock.name, beside(lock.name, b"cache"), keys_of(lock.name)[2]
        self._drops = keys_of(lock.name)[1], self._keys[1]
        # K, in ms.
        self.horizon, self._horizon = lock.horizon, b"%d" % lock.horizon
        # The bytes that look.
        self.peek = evalsha(PEEK, self._keys[1])

    @property
    def key(self) -> bytes:
        """Where a node keeps the value."""
        return self._keys[1]

    def put(self, fence: int, fresh: int, stale: int, ttl: int, data: bytes) -> bytes:
        """The bytes that keep a value.

        Args:
            fence: Of the lease under which it was computed.
            fresh: Milliseconds for which it is fresh.
            stale: Milliseconds for which it may be shown after that.
            ttl: Milliseconds for which it would be fresh if it were kept at once: its age is what
                is missing.
            data: The value.
        """
        times = b"%d" % fresh, b"%d" % stale, b"%d" % ttl
        return evalsha(PUT, *self._keys, b"%d" % fence, *times, data)

    def void(self, fence: int = 0, lasts: int = 0) -> bytes:
        """The bytes that ask for the highest fence; with a fence, that also drop what is of this
        fence or of a lower one.

        Args:
            fence: The highest fence of which any node has told.
            lasts: Milliseconds for which values of these fences are refused.
        """
        return evalsha(VOID, *self._drops, b"%d" % fence, self._horizon, b"%d" % lasts)


def read(reply: object) -> Kept | None:
    """What a node has; None: nothing."""
    match reply:
        case [int(left), int(fence), int(ttl), bytes(data)]:
            return Kept(left / 1000, fence, ttl / 1000, data)
        case [int(), int(fence)]:
            return Kept(0.0, fence)
    return None


def heard(reply: object) -> FillHeard | None:
    """What a node has told before a value is dropped, or as it was; None for an answer that is none
    of the script's.
    """
    match reply:
        case [int(fence), int(stays)]:
            return FillHeard(fence, stays)
    return None


def best(replies: Iterable[object]) -> Kept | None:
    """The value of the highest fence, of all that nodes have; None if that fence, or a higher one,
    was dropped.
    """
    found = [it for reply in replies if (it := read(reply)) is not None]
    newest = max(found, key=lambda it: (it.fence, it.data is None, it.left), default=None)
    return None if newest is None or newest.data is None else newest


def settled(replies: Iterable[object], heard: bool, needed: int) -> bool:
    """Whether no other node has to answer.

    That is so if a majority has answered (`heard`), and there are `needed` answers or a fresh
    value.
    """
    told = list(replies)
    if not heard:
        return False
    newest = best(told)
    return len(told) >= needed or (newest is not None and newest.fresh)
