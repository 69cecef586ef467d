"""Notes which locks each thread or task is inside of.

So it may enter a reentrant lock again, and never waits for itself.

Knows threads or tasks, and their leases. Must not know how a lease is acquired. It keeps no lease
alive: a lease that is dropped is no longer in here.
"""

from __future__ import annotations

import weakref
from typing import Generic, TypeVar

from ..core.command import WRITER
from ..core.demand import Demand
from ..errors import Misuse, SelfDeadlock
from .lease import Lease
from .terms import LockTerms

T = TypeVar("T", bound=Lease)


class Reentrancy(Generic[T]):
    """The leases of one client, by thread or task, and name."""

    __slots__ = ("_leases",)

    def __init__(self) -> None:
        self._leases: weakref.WeakValueDictionary[tuple[int, str], T] = weakref.WeakValueDictionary()

    def enters(self, here: object, lease: T) -> None:
        """Note that the lease is this thread's or task's, as soon as it is held.

        Call it before the lease is held: an interrupt could come in between afterwards.
        """
        lease._owner = weakref.ref(here)
        for name in lease._terms.alone:
            if self._at(here, name) is None:
                self._leases[id(here), name] = lease

    def _at(self, here: object, name: str) -> T | None:
        """Return the lease of this name that is held here, or None."""
        lease = self._leases.get((id(here), name))
        # Another thread or task may have got the same id since, so the owner is compared. It is a
        # weak reference, because a task that is kept here could never be thrown away.
        if lease is None or lease._owner is None or lease._owner() is not here:
            return None
        return lease if lease._going else None

    def found(self, here: object, terms: LockTerms, demand: Demand) -> T | None:
        """Return the lease that this thread or task may share, or None.

        Raises:
            SelfDeadlock: Waiting would never end.
            Misuse: The lease has other terms.
        """
        if not self._leases:
            return None
        within = {name: lease for name in terms.alone if (lease := self._at(here, name)) is not None}
        if not within:
            return None
        outer = next(iter(within.values()))
        upgrade = terms.kind == WRITER and any(it._kind != WRITER for it in within.values())
        whole = len(within) == len(terms.names) and all(it is outer for it in within.values())
        if terms.reentrant and not upgrade and whole:
            if terms.demand.max_hold != outer._terms.demand.max_hold:
                raise Misuse(
                    f"{terms.name!r} is entered again with another max_hold: the lease is the same, "
                    "so leave it as it was"
                )
            return outer
        if demand.wait == 0:
            return None
        told = ", ".join(map(repr, within))
        if upgrade:
            raise SelfDeadlock(
                f"{told} is held by this very thread or task, not to write, and cannot become a write lock: "
                "two that tried would wait for each other for ever. "
                "Leave it first; or take the write lock to begin with, and `downgrade()` it"
            )
        if terms.reentrant:
            raise SelfDeadlock(
                f"{told} is held here, and not all of {terms.name!r}: take all names at once, before anything else"
            )
        advice = "do not ask for it again inside of its own body"
        if terms.alone == terms.names:
            advice = "use reentrant=True, or only try"
        raise SelfDeadlock(f"{told} is held by this very thread or task, which would wait for itself: {advice}")
