"""A semaphore: numbered slots, each an exclusive lock of its own.

A lease holds some of them, whichever are free.

Knows the slots' names, and the note of how many there are. Must not know nodes.

Counting permits on each node would not do: of three nodes with two permits each, three holders have
a majority each. A slot has one holder at most, because it is a lock, and a fence of its own.

A client that names K permits uses the first K slots, 0 to K - 1. So clients that name different
numbers never hold more permits together than the largest of these numbers, and they need not agree
on one. That is what lets a rolling deployment change the number.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from copy import copy
from typing import overload

from .. import checks
from ..errors import ConfigError, readable
from ..wire.resp import pack
from .command import Statement
from .exclusive import Exclusive, beside, key_of
from .joint import Some

MOST = 1000  # permits: a waiter is in the queue of every slot
_NOTED = rb"[0-9]{1,4}"  # a text, which `re` compiles at its first use


class Slots(Some):
    """The slots of a semaphore. Immutable.

    Args:
        name: The name of the semaphore.
        permits: How many slots there are.
        count: How many of them are needed at once.
        ttl: As of an `Exclusive`.
        prefix: As of an `Exclusive`.
        horizon: As of an `Exclusive`.

    Attributes:
        key: The beginning of the keys of all slots.
    """

    def __init__(self, name: str, permits: int, count: int, ttl: float, *, prefix: str = "", horizon: int) -> None:
        self.key = key_of(name, prefix)
        self._noted = beside(self.key, b"permits")
        self.label = name
        self.permits = checks.whole(permits, "permits", most=MOST)
        self.needed = checks.whole(count, "count", most=MOST)
        if count > permits:
            raise ConfigError(f"{count} permits at once can never be had of {name!r}, which has {permits}")
        self._prefix, self._ttl, self.horizon = prefix, ttl, horizon
        # Those that were needed so far.
        self._slots: dict[int, Exclusive] = {}
        # Makes what the holder of a slot says along with its lease; None: it says nothing.
        self._statement_of: Callable[[bytes], Statement] | None = None

    def __len__(self) -> int:
        return self.permits

    @overload
    def __getitem__(self, at: int) -> Exclusive: ...
    @overload
    def __getitem__(self, at: slice) -> list[Exclusive]: ...
    def __getitem__(self, at: int | slice) -> Exclusive | list[Exclusive]:
        if isinstance(at, slice):
            return [self[it] for it in range(self.permits)[at]]
        slot = range(self.permits)[at]
        if slot not in self._slots:
            made = Exclusive(self.label, prefix=self._prefix, ttl=self._ttl, horizon=self.horizon, slot=slot)
            statement_of = self._statement_of
            self._slots[slot] = made if statement_of is None else made.with_statement(statement_of(made.name))
        return self._slots[slot]

    def with_statements(self, statement_of: Callable[[bytes], Statement]) -> Slots:
        """The same slots, for a caller that has something to say while it holds some of them.

        Args:
            statement_of: Makes what is said, for the key of a slot.
        """
        other = copy(self)
        other._slots = {}
        other._statement_of = statement_of
        return other

    def first(self, ticket: int) -> list[Exclusive]:
        """Return the slots to try first. They depend on the ticket, so that requests spread."""
        return [self[(ticket + it) % self.permits] for it in range(self.needed)]

    def others(self, ticket: int) -> list[Exclusive]:
        """Return all other slots, in the order that follows `first`."""
        return [self[(ticket + it) % self.permits] for it in range(self.needed, self.permits)]

    def tells(self, expiry: float) -> bytes:
        """Return the bytes that note on a node how many permits this client names.

        The node keeps the note for `expiry` seconds and answers with the previous one.
        """
        return pack(b"SET", self._noted, b"%d" % self.permits, b"PX", b"%d" % round(expiry * 1000), b"GET")

    def differs(self, before: object) -> str:
        """Compare another client's number with this one's.

        Args:
            before: A node's answer to `tells`.

        Returns:
            A warning, or an empty text if the numbers are equal, or if no client of holdfast wrote
            the note.
        """
        noted = re.fullmatch(_NOTED, before) if isinstance(before, bytes) else None
        if noted is None or int(noted[0]) == self.permits:
            return ""
        theirs = int(noted[0])
        return (
            f"another client names {theirs} permits for semaphore {readable(self.label)!r}, "
            f"and this one {self.permits}: while both are in use, "
            f"up to {max(theirs, self.permits)} permits can be held. "
            "Unless you are changing the number just now, name the same one everywhere."
        )
