"""Which locks each thread or task is inside of: for those that may be entered again, and against waiting for oneself.

Knows who is where. Must not know how one gets in. It keeps no lease alive: one that is dropped is not in here any more.
"""

from __future__ import annotations

import weakref
from typing import Generic, TypeVar

from ..core.command import WRITER
from ..errors import Misuse, SelfDeadlock
from .lease import Lease
from .terms import Terms

T = TypeVar("T", bound=Lease)


class Inside(Generic[T]):
    """Of one client: by thread or task, and name."""

    __slots__ = ("_leases",)

    def __init__(self) -> None:
        self._leases: weakref.WeakValueDictionary[tuple[int, str], T] = weakref.WeakValueDictionary()

    def enters(self, here: object, lease: T) -> None:
        """The lease is this thread's or task's, as soon as it is held. (Said before it is: afterwards, an interrupt could come between.)"""
        lease._owner = weakref.ref(here)
        for name in lease._terms.alone:
            if self._at(here, name) is None:
                self._leases[id(here), name] = lease

    def _at(self, here: object, name: str) -> T | None:
        """The lease of this name that is held here."""
        lease = self._leases.get((id(here), name))
        # (its number may have been given to another thread or task since; and a task that is kept here could never be thrown away)
        return lease if lease is not None and lease._owner is not None and lease._owner() is here and lease._going else None

    def found(self, here: object, terms: Terms, wait: float | None) -> T | None:
        """The lease to be shared, if there is one that may be. Raises SelfDeadlock if waiting would never end, Misuse for other terms."""
        if not self._leases:
            return None
        within = {name: lease for name in terms.alone if (lease := self._at(here, name)) is not None}
        if not within:
            return None
        outer = next(iter(within.values()))
        upgrade = terms.kind == WRITER and any(it._kind != WRITER for it in within.values())
        if terms.reentrant and not upgrade and len(within) == len(terms.names) and all(it is outer for it in within.values()):
            if terms.max_hold != outer._terms.max_hold:
                raise Misuse(f"{terms.name!r} is entered again with another max_hold: the lease is the same, so leave it as it was")
            return outer
        if wait == 0:
            return None
        told = ", ".join(map(repr, within))
        if upgrade:
            raise SelfDeadlock(
                f"{told} is held by this very thread or task, not to write, and cannot become a write lock: two that tried would wait "
                "for each other for ever. Leave it first; or take the write lock to begin with, and `downgrade()` it"
            )
        if terms.reentrant:
            raise SelfDeadlock(f"{told} is held here, and not all of {terms.name!r}: take all names at once, before anything else")
        advice = "use reentrant=True, or only try" if terms.alone == terms.names else "do not ask for it again inside of its own body"
        raise SelfDeadlock(f"{told} is held by this very thread or task, which would wait for itself: {advice}")
