"""A value that is computed once for all: its key on a node, how it is looked at and kept, and what an answer means.

Knows `scripts/peek.lua` and `scripts/put.lua`. Must not know which nodes there are, what a value says, or who computes it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ..scripts import PEEK, PUT
from ..wire.resp import pack
from .exclusive import Exclusive, beside, keys_of


@dataclass(frozen=True, slots=True)
class Kept:
    """A value as one node has it. `left`: for how many more seconds it is fresh; 0 or less: for how long it has not been."""

    left: float
    data: bytes

    @property
    def fresh(self) -> bool:
        """Is it as good as computed just now?"""
        return self.left > 0


class Cache:
    """Where the nodes keep what is computed under a lock. Immutable."""

    __slots__ = ("_keys", "peek")

    def __init__(self, lock: Exclusive) -> None:
        self._keys = lock.name, beside(lock.name, b"cache"), keys_of(lock.name)[2]
        self.peek = pack(b"EVALSHA", PEEK.sha, b"%d" % PEEK.keys, self._keys[1])  # the bytes that look

    @property
    def key(self) -> bytes:
        """Where a node keeps the value."""
        return self._keys[1]

    def put(self, fence: int, fresh: int, stale: int, data: bytes) -> bytes:
        """The bytes that keep a value. `fresh`: for how many milliseconds; `stale`: and for how many more it may be shown."""
        return pack(b"EVALSHA", PUT.sha, b"%d" % PUT.keys, *self._keys, b"%d" % fence, b"%d" % fresh, b"%d" % stale, data)


def read(reply: object) -> Kept | None:
    """What a node has; None: nothing."""
    match reply:
        case [int(left), bytes(data)]:
            return Kept(left / 1000, data)
    return None


def best(replies: Iterable[object]) -> Kept | None:
    """The value that is fresh for longest, of all that nodes have."""
    return max([it for reply in replies if (it := read(reply)) is not None], key=lambda it: it.left, default=None)


def settled(replies: Iterable[object], needed: int) -> bool:
    """Need no other node be asked? One has a fresh value, or so many as are `needed` have none."""
    told = [read(it) for it in replies]
    return any(it is not None and it.fresh for it in told) or len(told) >= needed
