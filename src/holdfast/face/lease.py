"""What a lease knows without asking anybody: shared by both faces.

Knows a claim's state and its driver's clock. Must not know threads, tasks or nodes.
"""

from __future__ import annotations

import enum
import weakref
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import Any, Protocol, Self

from .. import events
from ..checks import Seconds
from ..core import claim as core
from ..core.claim import Claim
from ..core.command import READER, WRITER
from ..core.ticket import kind_of
from ..drivers.aside import Call
from ..engine.crew import Want
from ..engine.settings import Settings, lease_of
from ..errors import LockLost, Misuse, NoQuorum, NotHeld
from ..living import Living
from ..recipes.exclusive import Exclusive
from .environment import caller
from .moving import Move, Whole
from .terms import Terms


class LeaseState(enum.Enum):
    """How a lease is."""

    HELD = "held"
    DOUBT = "doubt"  # a renewal was not confirmed in time: still held, and tried again until the lease ends
    LOST = "lost"
    RELEASED = "released"
    OPEN = "open"  # not held at all: no quorum answered, and `fail_open` lets the body run without it


HELD, DOUBT, LOST, RELEASED, OPEN = LeaseState


class LostEvent(Protocol):
    """What `threading.Event` and `asyncio.Event` have in common."""

    def set(self) -> None:
        """It happened."""

    def is_set(self) -> bool:
        """Has it happened?"""


class Lease(ABC):
    """A lock that is held: what `acquire` and `with` give.

    Safe from every thread of its process; with asyncio, from its event loop only. Dropped without a release it is not renewed
    any longer, and ends with its ttl. One of several names is held as a whole, and lost as a whole.
    """

    __slots__ = (
        "__weakref__", "_above", "_acquired", "_clock", "_event", "_joined", "_lost", "_move", "_opened", "_owner", "_released", "_root",
        "_settings", "_terms", "_users",
    )  # fmt: skip

    def __init__(
        self, terms: Terms, settings: Settings, clock: Callable[[], float], above: Lease | None = None
    ) -> None:
        self._terms, self._settings = terms, settings
        self._clock = clock  # its driver's
        self._event: Any = None
        self._lost = ""  # why, once it is known
        self._released = False
        self._opened: float | None = None  # for how long it was waited, before the body was let in without the lock
        self._owner: weakref.ref[object] | None = None  # the thread or task that is inside
        self._root: Lease | None = None  # the lease that this one shares, where a lock is entered again, until it is given back
        self._joined = False  # has it shared one?
        self._users: Living[Lease] | None = None  # of a shared one, and of those that share it: all that are not given back
        self._move: Move | None = None  # of names that move from one set of nodes to another: what is held besides its own claim
        self._above = None if above is None else weakref.ref(above)  # of such a part: the lease that stands on it
        self._acquired = caller() if settings.debug else None  # the file and line of the user's call

    # ------------------------------------------------ what a face adds

    @property
    @abstractmethod
    def _own(self) -> Want: ...

    @property
    @abstractmethod
    def _claim(self) -> Want | Whole:
        """What it stands on: its own claim; of names that move, those of all sets."""

    @property
    @abstractmethod
    def _going(self) -> bool:
        """May a block join this lease? Its claim is held, in this process, and nobody has begun to give it back.

        False for a lease that is not acquired yet.
        """

    @abstractmethod
    def _mine(self) -> bool:
        """Is it being given back, so that nobody may believe in it any longer? The nodes need not have heard of it yet.

        Raises:
            Misuse: The caller may not use this lease: it belongs to another process or event loop.
        """

    @abstractmethod
    def _new_event(self) -> LostEvent: ...

    @abstractmethod
    def _let_go(self) -> None:
        """Give its own claim back, or stop waiting for it, without waiting for anything."""

    @abstractmethod
    def extend(self, ttl: Seconds | None = None) -> float | Awaitable[float]:
        """Make the lease last at least `ttl` seconds from now (default: its own ttl). Never shortens, never adds up.

        Returns `remaining` when a majority has confirmed. Raises LockLost if it is lost, NoQuorum if that cannot be known
        within `node_timeout` (it is then in DOUBT, and held to its deadline), NotHeld after a release, and ConfigError for a
        ttl above `max_ttl`. Later renewals are by the lock's own ttl.
        """

    @abstractmethod
    def downgrade(self) -> Awaitable[None] | None:
        """Turn a write lease into a read lease, and let no other writer in between. Do not write any more from the call on.

        Other readers may come in at once. Returns when a majority has confirmed; the fence is greater by one then, so that what was written
        before, and comes late, is refused once something was read. Raises as `extend` does, and Misuse for what is no write lease, or is
        entered more than once. There is no way back: two readers that both wait to write would wait for each other for ever.
        """

    @abstractmethod
    def release(self, confirm: bool = False) -> int | Awaitable[int]:
        """Release the lock. Idempotent.

        When it returns, the release has been sent, and is sent again after a reconnect. An exception that interrupts it
        (Ctrl-C, a time limit, a cancellation) does not stop the release: from then on nobody can enter the lease again,
        and `state` is RELEASED. Several threads may release the same lease at the same moment.

        Args:
            confirm: Wait until a majority of the nodes has confirmed, for at most `node_timeout`.

        Returns:
            With `confirm`, the number of nodes that have confirmed so far. Otherwise 0.

        Raises:
            LockLost: The lease was lost before. Raised once.
            WrongProcess: The lease belongs to the process that this one was forked from.
        """

    # ------------------------------------------------ what it knows

    @property
    def name(self) -> str:
        """The lock's name; of several names "a,b"."""
        return self._terms.name

    @property
    def names(self) -> tuple[str, ...]:
        """The lock's names."""
        return self._terms.names

    @property
    def token(self) -> str | Any:
        """What stands in the lock's key on the nodes: unique to this acquisition. None if OPEN; see `tokens` for several names."""
        return self._only(self.tokens, "tokens")

    @property
    def tokens(self) -> dict[str, str]:
        """The token of each name, or slot of a semaphore."""
        return {it.recipe.part: it.token.decode() for it in self._mine_of()}

    @property
    def fence(self) -> int | Any:
        """The fencing token: greater than that of every earlier holder of this name. Hand it to whatever the lock protects.

        None if OPEN. Raises Misuse for several names, each of which has its own: see `fences`. Of a semaphore's permit: greater than
        that of every earlier holder of the same slot, see `slots`.
        """
        return self._only(self.fences, "fences")

    @property
    def fences(self) -> dict[str, int]:
        """The fencing token of each name, or slot of a semaphore."""
        least = 0 if self._move is None or self._move.whole is None else self._move.whole.fence
        return {it.recipe.part: max(it.fence, least) for it in self._mine_of()}

    @property
    def slots(self) -> tuple[int, ...]:
        """Of a semaphore: which of its slots, from 0 to `permits` - 1, are held. Each has one holder at most. Of a lock: none."""
        recipes = [it.recipe for it in self._mine_of()]
        return tuple(it.slot for it in recipes if isinstance(it, Exclusive) and it.slot is not None)

    @property
    def shared(self) -> bool:
        """Is it a read lease, of a read-write lock, held together with other readers?"""
        return self._kind == READER

    @property
    def _kind(self) -> bytes:
        # of a read-write lock, as it is now
        return self._terms.kind and (self._terms.kind if self._opened is not None else kind_of(self._claim.claims[0].token))

    @property
    def waited(self) -> float:
        """For how many seconds the lock was waited for."""
        return self._claim.since - self._claim.began if self._opened is None else self._opened

    @property
    def contended(self) -> bool:
        """Was somebody else in the way?"""
        return self._opened is None and self._claim.contended

    @property
    def state(self) -> LeaseState:
        """HELD, DOUBT, LOST, RELEASED or OPEN, by the clock and not only by what was noticed."""
        if self._opened is not None:
            return OPEN
        leaving, claim = self._mine(), self._claim
        if self._released or claim.state is core.OVER:
            return RELEASED
        if self._lost or claim.state is not core.HELD or self._clock() >= claim.until:
            self._lost = self._lost or claim.reason or ("max_hold" if claim.until >= claim.limit else "expired")
            return LOST
        if leaving:
            return RELEASED
        return DOUBT if claim.doubt else HELD

    @property
    def held(self) -> bool:
        """Is it certainly held? (In DOUBT it is.)"""
        return self.state in (HELD, DOUBT)

    @property
    def remaining(self) -> float:
        """For how many seconds it is certainly held, if no renewal succeeds any more. No I/O."""
        return max(0.0, self._claim.until - self._clock()) if self.held else 0.0

    @property
    def votes(self) -> int:
        """How many nodes count now."""
        return self._claim.counting(self._clock()) if self.held else 0

    @property
    def lost(self) -> Any:
        """An event that is set when the lease is lost: `threading.Event` here, `asyncio.Event` in `holdfast.aio`."""
        if self._opened is None:
            self._mine()
        if self._event is None:
            self._event = self._new_event()
            if self.state is LOST or self._lost:
                self._event.set()
        return self._event

    def check(self) -> None:
        """Raise LockLost if the lock is lost, and NotHeld after a release; if OPEN, nothing. No I/O: call it as often as you like."""
        state = self.state
        if state is RELEASED:
            raise NotHeld(f"the lease of {self.name!r} was released before")
        if state is LOST:
            raise self._loss()

    def __repr__(self) -> str:
        if self._opened is not None:
            return f"<Lease {self.name!r} OPEN: not held>"
        fences = ",".join(str(it) for it in self.fences.values())
        return f"<Lease {self.name!r} fence={fences} {self._claim.until - self._clock():.1f} s left unless renewed or released>"

    def __reduce__(self) -> Any:
        raise TypeError("a lease belongs to this process and cannot be pickled: hand over its `fence` and `token` instead")

    # ------------------------------------------------ for the faces

    def _mine_of(self) -> list[Claim]:
        """The claims of its names; none if OPEN. (One that shares another's lease may have fewer names.)"""
        return [it for it in self._claim.claims if it.recipe.label in self._terms.names] if self._opened is None else []

    def _only(self, values: dict[str, Any], plural: str) -> Any:
        """The value of the only name."""
        if len(values) > 1:
            raise Misuse(f"the lease of {self.name!r} has several names or slots, and one of these for each: see `{plural}`")
        return next(iter(values.values()), None)

    def _loss(self) -> LockLost:
        fences = list(self.fences.values())
        return LockLost(self.name, self._lost, fences[0] if len(fences) == 1 else None)

    def _join(self, root: Self) -> None:
        """Stand on the claim of a lease that is held by the same thread or task: whoever leaves last gives it back."""
        # The users first: a caller who is interrupted in here leaves again, and must not be the last to leave.
        if root._users is None:
            root._users = Living([root])
        self._users = root._users
        self._users.add(self)
        self._root, self._joined, self._move = root, True, root._move

    def _open(self, why: NoQuorum) -> events.Opened:
        """No quorum answers, and the body runs all the same."""
        self._opened = why.waited
        return events.Opened(name=self.name, token="", waited=why.waited, error=why)

    def _ends(self) -> bool:
        """The caller wants to release it. True if there is something to release; LockLost if it is lost, once."""
        state = self.state
        if state is LOST:
            self._released = True
            raise self._loss()
        if state is not HELD and state is not DOUBT:
            return False
        if not self._leaves():  # somebody else is still inside
            self._released = True
            return False
        return True

    def _dropped(self) -> events.Discarded | None:
        """Its owner let it die, and it is held: what to tell. None for a part of another lease, which is told of as a whole."""
        if self._above is not None:
            return None
        return events.Discarded(
            name=self.name,
            token=next(iter(self._claim.claims)).token.decode(),
            waited=self.waited,
            fence=next(iter(self.fences.values())),
            remaining=max(0.0, self._claim.until - self._clock()),
            acquired=self._acquired,
        )

    @property
    def _overdue(self) -> float:
        """For how many seconds it has certainly not been renewed any longer."""
        return max(0.0, self._clock() - self._claim.until)

    @property
    def _in_time(self) -> bool:
        return self._claim.state is core.HELD and self._clock() < self._claim.until

    def _leaves(self) -> bool:
        """This share is given back. True if it was the last. (Twice is nothing: a caller may be interrupted, and release again.)"""
        self._root = None  # (else this would keep alive a lease that its owner drops)
        if self._users is None:
            return True
        self._users.discard(self)
        return not self._users

    def _ended(self) -> None:
        """Its release was said. Raises LockLost if it was lost just before."""
        self._released = True  # (not sooner: a caller who is interrupted on the way may release again)
        if self._claim.state is core.LOST:
            self._lost = self._claim.reason
            raise self._loss()

    def _extension(self, ttl: Seconds | None) -> float:
        """The length that an extension asks for, 0 if there is nothing to extend; raises if it is lost or released."""
        length = self._terms.ttl if ttl is None else lease_of(ttl, self._settings.max_ttl)
        self.check()
        return 0.0 if self._opened is not None else length

    def _sharing(self) -> bool:
        """May it be downgraded? False: there is nothing to downgrade; raises if it is lost or released, or no write lease."""
        if self._kind != WRITER:
            what = "a read lease already" if self.shared else "no lease of a read-write lock"
            raise Misuse(f"the lease of {self.name!r} is {what}: only a write lease can be downgraded")
        if self._users is not None and len(self._users) > 1:
            raise Misuse(f"the write lock {self.name!r} is entered more than once here: downgrade it when the inner blocks are left")
        self.check()
        return self._opened is None

    def _extended(self) -> float:
        """How long it is good for after an extension; raises why it is not."""
        self.check()
        # Read once: another thread's extension may be confirmed meanwhile, which takes the setback away.
        if (setback := self._claim.setback) is not None:
            raise setback
        return self.remaining

    def _fell(self) -> list[Call]:
        """It is lost: mark it, those that share it, and what stands on it, and set their events.

        Returns:
            The `on_lost` functions to call, each with its lease. The driver calls them, aside from the engine.
        """
        calls: list[Call] = []
        if self._above is not None and (above := self._above()) is not None:
            calls += above._fell()
        if self._move is not None:
            if not self._move.falls():
                return calls
            self._let_all_go()
        for user in [self] if self._users is None else self._users:
            user._falls()
            if user._terms.on_lost is not None:
                calls.append((user._terms.on_lost, user))
        return calls

    def _falls(self) -> None:
        self._lost = self._lost or self._claim.reason or "closed"
        if self._event is not None:
            self._event.set()

    @property
    def _parts(self) -> tuple[Self, ...]:
        """All that is held for it: of names that move, on each set."""
        return (self,) if self._move is None else (*self._move.sources, self)

    def _acquaintance(self, wait: float | None) -> float:
        """For how many seconds to wait until nodes have said which servers they are: as long as `wait` and an outage allow, or a try."""
        outage = self._settings.outage
        return outage if wait is None else min(max(wait, self._terms.ttl / 3), outage)

    def _let_all_go(self) -> None:
        """Give everything back without waiting for anything."""
        for part in self._parts:
            part._let_go()

    def _unwind(self) -> None:
        """Its caller was interrupted and will not give it back: do so here, without waiting for anything."""
        if self._leaves():
            self._let_all_go()
        else:
            self._released = True
