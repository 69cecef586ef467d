"""What a lease knows without asking anybody: shared by both faces.

Knows a claim's state and the clock. Must not know threads, tasks or nodes.
"""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from ..checks import Seconds
from ..clock import clock
from ..core import claim as core
from ..core.claim import Claim
from ..engine.settings import Settings, lease_of
from ..errors import LockLost, NotHeld
from .telling import guarded
from .terms import Terms


class LeaseState(enum.Enum):
    """How a lease is."""

    HELD = "held"
    DOUBT = "doubt"  # a renewal was not confirmed in time: still held, and tried again until the lease ends
    LOST = "lost"
    RELEASED = "released"


HELD, DOUBT, LOST, RELEASED = LeaseState


class LostEvent(Protocol):
    """What `threading.Event` and `asyncio.Event` have in common."""

    def set(self) -> None:
        """It happened."""

    def is_set(self) -> bool:
        """Has it happened?"""


class Lease(ABC):
    """A lock that is held: what `acquire` and `with` give.

    Safe from every thread of its process; with asyncio, from its event loop only. Dropped without a release it is not renewed
    any longer, and ends with its ttl.
    """

    __slots__ = ("__weakref__", "_event", "_lost", "_released", "_settings", "_terms")

    def __init__(self, terms: Terms, settings: Settings) -> None:
        self._terms, self._settings = terms, settings
        self._event: Any = None
        self._lost = ""  # why, once it is known
        self._released = False

    # ------------------------------------------------ what a face adds

    @property
    @abstractmethod
    def _claim(self) -> Claim: ...

    @abstractmethod
    def _mine(self) -> None:
        """Raises Misuse if the caller may not use this lease: another process, another loop."""

    @abstractmethod
    def _new_event(self) -> LostEvent: ...

    @abstractmethod
    def extend(self, ttl: Seconds | None = None) -> float | Awaitable[float]:
        """Make the lease last at least `ttl` seconds from now (default: its own ttl). Never shortens, never adds up.

        Returns `remaining` when a majority has confirmed. Raises LockLost if it is lost, NoQuorum if that cannot be known
        within `node_timeout` (it is then in DOUBT, and held to its deadline), NotHeld after a release, and ConfigError for a
        ttl above `max_ttl`. Later renewals are by the lock's own ttl.
        """

    @abstractmethod
    def release(self, confirm: bool = False) -> int | Awaitable[int]:
        """Give the lock back. Waits for no answer: what it had to say has left when it returns, and is said again after a reconnect.

        With `confirm`, waits (at most `node_timeout`) until a majority has confirmed, and returns on how many nodes it is
        certain; otherwise returns 0. Releasing twice is nothing; releasing a lost lease raises LockLost, once.
        """

    # ------------------------------------------------ what it knows

    @property
    def name(self) -> str:
        """The lock's name."""
        return self._terms.name

    @property
    def token(self) -> str:
        """What stands in the lock's key on the nodes: unique to this acquisition."""
        return self._claim.token.decode()

    @property
    def fence(self) -> int:
        """The fencing token: greater than that of every earlier holder of this name. Hand it to whatever the lock protects."""
        return self._claim.fence

    @property
    def waited(self) -> float:
        """For how many seconds the lock was waited for."""
        return self._claim.since - self._claim.began

    @property
    def contended(self) -> bool:
        """Was somebody else in the way?"""
        return self._claim.contended

    @property
    def state(self) -> LeaseState:
        """HELD, DOUBT, LOST or RELEASED, by the clock and not only by what was noticed."""
        self._mine()
        claim = self._claim
        if self._released or claim.state is core.OVER:
            return RELEASED
        if self._lost or claim.state is not core.HELD or clock() >= claim.until:
            self._lost = self._lost or claim.reason or ("max_hold" if claim.until >= claim.limit else "expired")
            return LOST
        return DOUBT if claim.doubt else HELD

    @property
    def held(self) -> bool:
        """Is it certainly held? (In DOUBT it is.)"""
        return self.state in (HELD, DOUBT)

    @property
    def remaining(self) -> float:
        """For how many seconds it is certainly held, if no renewal succeeds any more. No I/O."""
        return max(0.0, self._claim.until - clock()) if self.held else 0.0

    @property
    def votes(self) -> int:
        """How many nodes count now."""
        return self._claim.counting(clock()) if self.held else 0

    @property
    def lost(self) -> Any:
        """An event that is set when the lease is lost: `threading.Event` here, `asyncio.Event` in `holdfast.aio`."""
        self._mine()
        if self._event is None:
            self._event = self._new_event()
            if self.state is LOST or self._lost:
                self._event.set()
        return self._event

    def check(self) -> None:
        """Raise LockLost if the lock is lost, and NotHeld after a release. No I/O: call it as often as you like."""
        state = self.state
        if state is RELEASED:
            raise NotHeld(f"the lease of {self.name!r} was released before")
        if state is LOST:
            raise self._loss()

    def __repr__(self) -> str:
        return f"<Lease {self.name!r} fence={self.fence} {self._claim.until - clock():.1f} s left unless renewed or released>"

    def __reduce__(self) -> Any:
        raise TypeError("a lease belongs to this process and cannot be pickled: hand over its `fence` and `token` instead")

    # ------------------------------------------------ for the faces

    def _loss(self) -> LockLost:
        return LockLost(self.name, self._lost, self.fence)

    def _ends(self) -> bool:
        """The caller wants to release it. True if there is something to release; LockLost if it is lost, once."""
        state = self.state
        if state is LOST:
            self._released = True
            raise self._loss()
        return state is not RELEASED

    def _ended(self) -> None:
        """Its release was said. Raises LockLost if it was lost just before."""
        self._released = True  # (not sooner: a caller who is interrupted on the way may release again)
        if self._claim.state is core.LOST:
            self._lost = self._claim.reason
            raise self._loss()

    def _extension(self, ttl: Seconds | None) -> float:
        """The length that an extension asks for; raises if there is nothing to extend."""
        length = self._terms.ttl if ttl is None else lease_of(ttl, self._settings.max_ttl)
        self.check()
        return length

    def _extended(self) -> float:
        """How long it is good for after an extension; raises why it is not."""
        self.check()
        if self._claim.setback is not None:
            raise self._claim.setback
        return self.remaining

    def _fell(self) -> None:
        """It is lost: whoever wants to know is told."""
        self._lost = self._lost or self._claim.reason or "closed"
        if self._event is not None:
            self._event.set()
        if self._terms.on_lost is not None:
            self._call(self._terms.on_lost)

    def _call(self, on_lost: Callable[[Any], object]) -> None:
        guarded(on_lost, self)
