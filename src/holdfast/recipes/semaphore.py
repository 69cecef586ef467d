"""A semaphore: so many slots, each an exclusive lock of its own, of which whoever comes needs some, whichever.

Knows the slots' names, and `scripts/permits.lua`. Must not know which nodes there are, or what they answer.

Counting permits on each node would not do: of three nodes with two permits each, three holders have a majority each. A slot has one
holder at most, because it is a lock, and a fence of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import overload

from .. import checks
from ..core import quorum
from ..core.goal import Some
from ..errors import ConfigError, readable
from ..scripts import PERMITS
from ..wire.resp import pack
from .exclusive import Exclusive, beside, key_of

MOST = 1000  # permits: who waits, waits in every slot's queue


class Slots(Some):
    """The slots of a semaphore. `permits`: how many there are; `count`: how many of them are needed at once. Immutable.

    The other parameters are those of an Exclusive.
    """

    def __init__(self, name: str, permits: int, count: int, ttl: float, *, prefix: str = "", horizon: int) -> None:
        self._key = beside(key_of(name, prefix), b"permits")
        self.label, self.permits, self.needed = name, checks.whole(permits, "permits", most=MOST), checks.whole(count, "count", most=MOST)
        if count > permits:
            raise ConfigError(f"{count} permits at once can never be had of {name!r}, which has {permits}")
        self._prefix, self._ttl, self._horizon = prefix, ttl, horizon
        self._slots: dict[int, Exclusive] = {}  # those that were needed so far

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
            self._slots[slot] = Exclusive(self.label, prefix=self._prefix, ttl=self._ttl, horizon=self._horizon, slot=slot)
        return self._slots[slot]

    def first(self, ticket: int) -> list[Exclusive]:
        """Any: those who come at the same time should not meet."""
        return [self[(ticket + it) % self.permits] for it in range(self.needed)]

    def others(self, ticket: int) -> list[Exclusive]:
        """The rest of the circle."""
        return [self[(ticket + it) % self.permits] for it in range(self.needed, self.permits)]

    def agrees(self, expiry: float) -> bytes:
        """The bytes that tell a node how many permits there are, good for `expiry` seconds, and ask what it knows."""
        return pack(b"EVALSHA", PERMITS.sha, b"%d" % PERMITS.keys, self._key, b"%d" % self.permits, b"%d" % round(expiry * 1000))

    def agreed(self, answers: Mapping[int, object], nodes: int) -> bool | None:
        """Does a majority of the nodes say the same? None: too few have answered to tell."""
        others, needed = len(self._differing(answers)), quorum.majority(nodes)
        if len(answers) - others >= needed:
            return True
        return False if others > nodes - needed else None

    def disagreement(self, answers: Mapping[int, object]) -> ConfigError:
        """Others say something else."""
        theirs = " or ".join(sorted(set(self._differing(answers))))
        return ConfigError(
            f"semaphore {self.label!r} has {theirs} permits for others, and {self.permits} here: all who use it must name the same "
            "number. To change it, stop those who use the old one, and wait for max_ttl."
        )

    def _differing(self, answers: Mapping[int, object]) -> list[str]:
        mine = b"%d" % self.permits
        others = [it for it in answers.values() if it != mine]
        return [readable(it.decode("utf-8", "replace") if isinstance(it, bytes) else repr(it)) for it in others]
