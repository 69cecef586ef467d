"""What a lease knows without asking any node. For threads and for asyncio.

Knows a claim's state and its driver's clock. Must not know threads, tasks or nodes.
"""

import enum
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AbstractContextManager
from math import inf
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from .. import events
from ..checks import Seconds
from ..drivers.callbacks import Call
from ..engine.ready import Want
from ..engine.settings import Settings, lease_of
from ..errors import HoldfastError, LockLost, Misuse, NoQuorum
from ..protocol.claim import Claim, State
from ..protocol.command import READER, WRITER
from ..protocol.exclusive import Exclusive
from ..protocol.ticket import kind_of
from ..weakset import SafeWeakSet
from .environment import caller
from .terms import LockTerms

if TYPE_CHECKING:
    from ..protocol.adoption import Handover


class LeaseState(enum.Enum):
    """The state of a lease."""

    HELD = "held"
    # A renewal was not confirmed in time: still held, and tried again until the lease ends.
    DOUBT = "doubt"
    LOST = "lost"
    # Given back by its user, or left to run out.
    RELEASED = "released"
    # Its ticket may be adopted by another owner.
    HANDED_OVER = "handed over"
    # Not held at all: no quorum answered, and `fail_open` lets the body run without it.
    OPEN = "open"


HELD, DOUBT, LOST, RELEASED, HANDED_OVER, OPEN = LeaseState
# (On the way of every release, an attribute of an enum costs as much as a call.)
_HELD, _LOST, _OVER = State.HELD, State.LOST, State.OVER


class LeaseInfo(NamedTuple):
    """A lease that this client holds, as it was when `leases()` was called.

    Attributes:
        name: The lock's name. Several names are joined by commas.
        names: The lock's names.
        kind: What is held: "exclusive", "read", "write", "permit", "election", "once" or "fill".
        fence: The fencing token. Of several names or slots, the largest one.
        state: HELD or DOUBT.
        remaining: Seconds for which it is certainly held if no renewal succeeds any more.
        held_for: Seconds since it was acquired.
        votes: How many nodes count for it.
    """

    name: str
    names: tuple[str, ...]
    kind: str
    fence: int
    state: LeaseState
    remaining: float
    held_for: float
    votes: int


class LeaseFacts(ABC):
    """What a lease knows of what it holds, without asking any node. Nothing here gives it up."""

    __slots__ = (
        "__weakref__", "_acquired", "_clock", "_ended", "_events", "_handed", "_joined", "_kept", "_lost",
        "_opened", "_owner", "_released", "_root", "_settings", "_terms", "_users",
    )  # fmt: skip

    def __init__(self, terms: LockTerms, settings: Settings, clock: Callable[[], float]) -> None:
        self._terms, self._settings = terms, settings
        # The driver's clock.
        self._clock = clock
        # The event of `lost`, once somebody has asked for it. If several threads ask at the same
        # moment, each may append one, and the first counts. A lock instead could be held by a
        # thread that a fork leaves behind, or that a signal handler interrupts which asks, too.
        self._events: list[Any] = []
        # Why it is lost, once that is known.
        self._lost = ""
        self._released = False
        # It was released by handing it over.
        self._handed = False
        # Seconds that the caller waited before the body ran without the lock. None if it has the
        # lock.
        self._opened: float | None = None
        # Who is inside. An `owner.Owner`, once it is noted.
        self._owner: object = None
        # If the lock was entered again, the lease that made the claim, until this one is given
        # back.
        self._root: Lease | None = None
        # And what holds that lease, such as its block: while it lives, the claim is renewed.
        self._kept: object = None
        # Whether it has ever shared another's claim.
        self._joined = False
        # The last of those who share its claim has left, so nobody may join any more.
        self._ended = False
        # All leases on a shared claim that are not given back. The same object for each of them.
        self._users: SafeWeakSet[Lease] | None = None
        # The file and line of the user's call.
        self._acquired = caller() if settings.debug else None

    @property
    @abstractmethod
    def _claim(self) -> Want:
        """The claim that it depends on."""

    @abstractmethod
    def _check_owner(self) -> bool:
        """Return whether it is being given back, so that it must not count as held.

        The nodes need not have heard of it yet.

        Raises:
            Misuse: The caller may not use this lease: it belongs to another process or event loop.
        """

    @abstractmethod
    def _new_event(self) -> Any:
        """Return an event, for threads or for tasks."""

    @property
    def name(self) -> str:
        """The lock's name. Several names are joined by commas."""
        return self._terms.name

    @property
    def names(self) -> tuple[str, ...]:
        """The lock's names."""
        return self._terms.names

    @property
    def token(self) -> str | Any:
        """What holdfast writes into the lock's key on the nodes. Unique to this lease.

        None if the lease is OPEN. Raises Misuse for several names: see `tokens`.
        """
        return self._only(self.tokens, "tokens")

    @property
    def tokens(self) -> dict[str, str]:
        """The token of each name, or of each slot of a semaphore."""
        return {it.recipe.part: it.token.decode() for it in self._mine_of()}

    @property
    def fence(self) -> int | Any:
        """The fencing token: greater than that of every earlier holder of this name.

        Pass it to the storage that the lock protects, and have that refuse a smaller one. For a
        semaphore's permit, it is greater than that of every earlier holder of the same slot: see
        `slots`.

        None if the lease is OPEN. Raises Misuse for several names, because each has its own: see
        `fences`.
        """
        return self._only(self.fences, "fences")

    @property
    def fences(self) -> dict[str, int]:
        """The fencing token of each name, or of each slot of a semaphore."""
        return {it.recipe.part: it.fence for it in self._mine_of()}

    @property
    def slots(self) -> tuple[int, ...]:
        """The slots of a semaphore that are held, from 0 to `permits` - 1. Empty for a lock.

        Each slot has one holder at most.
        """
        recipes = [it.recipe for it in self._mine_of()]
        return tuple(it.slot for it in recipes if isinstance(it, Exclusive) and it.slot is not None)

    @property
    def shared(self) -> bool:
        """Whether it is a read lease of a read-write lock, which other readers may hold, too."""
        return self._kind == READER

    @property
    def _kind(self) -> bytes:
        # For a read-write lock, what it is now, because `downgrade` changes it.
        return self._terms.kind and (
            self._terms.kind if self._opened is not None else kind_of(self._claim.claims[0].token)
        )

    @property
    def waited(self) -> float:
        """Seconds that the lock was waited for."""
        return self._claim.since - self._claim.began if self._opened is None else self._opened

    @property
    def contended(self) -> bool:
        """Whether another client was in the way: it held the lock, or waited for it."""
        return self._opened is None and self._claim.contended

    @property
    def state(self) -> LeaseState:
        """HELD, DOUBT, LOST, RELEASED, HANDED_OVER or OPEN, as a LeaseState.

        Each access compares the clock with the lease's deadline. So a process that was paused sees
        LOST at once.
        """
        state = self._by_now()
        if state is RELEASED and self._handed:
            return HANDED_OVER
        return DOUBT if state is HELD and self._claim.doubt else state

    def _by_now(self) -> LeaseState:
        """Return the state, with HELD for a lease in doubt, too."""
        if self._opened is not None:
            return OPEN
        leaving, claim = self._check_owner(), self._claim
        # Other threads may end or prolong the claim at any moment, so each value is read once. The
        # clock comes first: a deadline that was read before it may have been moved since. The state
        # comes last: while it is HELD, the deadline that was read is that of a held claim.
        now = self._clock()
        until = claim.until
        state = claim.state
        if self._released or state is _OVER:
            return RELEASED
        if self._lost or state is not _HELD or now >= until:
            self._lost = self._lost or claim.reason or ("max_hold" if until >= claim.limit else "expired")
            return LOST
        return RELEASED if leaving else HELD

    @property
    def held(self) -> bool:
        """Whether the lock is certainly held now. True in DOUBT, too."""
        return self.state in (HELD, DOUBT)

    @property
    def remaining(self) -> float:
        """Seconds for which the lock is certainly held if no further renewal succeeds.

        0.0 if it is not held. Asks no node.
        """
        return max(0.0, self._claim.until - self._clock()) if self.held else 0.0

    @property
    def until(self) -> float:
        """The moment until which the lock is certainly held if no further renewal succeeds.

        It is a time of `holdfast.clock.clock`. `-inf` if the lock is not held. Asks no node.
        """
        return self._claim.until if self.held else -inf

    @property
    def votes(self) -> int:
        """The number of nodes that count for the lease now."""
        return self._claim.counting(self._clock()) if self.held else 0

    @property
    def lost(self) -> Any:
        """An event that is set when the lease is lost.

        It is a `threading.Event`, in `holdfast.aio` an `asyncio.Event`.
        """
        if self._opened is None:
            self._check_owner()
        if not self._events:
            self._events.append(self._new_event())
        event = self._events[0]
        # Looked at each time: the caller that made the event may have been interrupted before it
        # set it.
        if not event.is_set() and (self.state is LOST or self._lost):
            event.set()
        return event

    def check(self) -> None:
        """Raise LockLost if the lock may be gone. Call it before each step that needs the lock.

        Asks no node, so call it as often as you like. It passes if the lease is OPEN.

        Raises:
            LockLost: The lease is lost. The error's `reason` says why.
            Misuse: The lease was released or left (`not_held`).
            Misuse: The lease belongs to the process that forked this one (`wrong_process`).
            Misuse: With asyncio, the lease belongs to another event loop (`wrong_loop`).
        """
        state = self.state
        if state is RELEASED:
            raise Misuse(f"the lease of {self.name!r} was released or left before", "not_held")
        if state is HANDED_OVER:
            raise Misuse(f"the lease of {self.name!r} was handed over before", "not_held")
        if state is LOST:
            raise self._loss()

    def __repr__(self) -> str:
        kind = type(self).__name__
        if self._opened is not None:
            return f"<{kind} {self.name!r} OPEN: not held>"
        facts = f"{self.name!r} fence={','.join(str(it) for it in self.fences.values())}"
        try:
            state, left = self.state, self.remaining
        except HoldfastError:
            return f"<{kind} {facts} of another process or event loop>"
        if state in (LOST, RELEASED, HANDED_OVER):
            return f"<{kind} {facts} {state.name}: not held>"
        return f"<{kind} {facts} {left:.1f} s left unless renewed or released>"

    def __reduce__(self) -> Any:
        raise TypeError(
            "a lease belongs to this process and cannot be pickled: pass on its `fence` and `token`, "
            "or the ticket that `lease.hand_over()` returns"
        )

    # ------------------------------------------------ for the leases of threads and asyncio

    def _elsewhere(self) -> Misuse:
        """Return the error for a forked child that uses a lease of its parent."""
        told = f"the lease of {self.name!r} belongs to the process that this one was forked from: acquire the lock here"
        return Misuse(told, "wrong_process")

    def _mine_of(self) -> list[Claim]:
        """Return the claims of its names. Empty if it is OPEN.

        A lease that shares another's claim may have fewer names.
        """
        return [it for it in self._claim.claims if it.recipe.label in self._terms.names] if self._opened is None else []

    def _only(self, values: dict[str, Any], plural: str) -> Any:
        """Return the value of the only name."""
        if len(values) > 1:
            raise Misuse(
                f"the lease of {self.name!r} has several names or slots, and one of these for each: see `{plural}`"
            )
        return next(iter(values.values()), None)

    def _loss(self) -> LockLost:
        fences = list(self.fences.values())
        return LockLost(self.name, self._lost, fences[0] if len(fences) == 1 else None, why=self._claim.why)

    def _acquisition(self) -> tuple[str, dict[str, Any]]:
        """Return how its acquire has ended, and what is known then. For the user's `around`."""
        if self._opened is not None:
            return "open", {"waited": self._opened}
        fences = self.fences
        facts = {"fence": max(fences.values()), "fences": fences, "contended": self.contended}
        return "held", {**facts, "waited": self.waited, "votes": self.votes, "want": self._claim.want}

    def _dropped(self) -> events.Ended:
        """Return the event for a held lease that its owner has dropped."""
        fences = self.fences
        return events.Ended(
            how="discarded",
            name=self.name,
            token=next(iter(self._claim.claims)).token.decode(),
            waited=self.waited,
            kind=self._terms.primitive,
            names=self.names,
            want=self._claim.want,
            fence=max(fences.values()),
            fences=fences,
            remaining=max(0.0, self._claim.until - self._clock()),
            acquired=self._acquired,
        )

    def _info(self) -> LeaseInfo | None:
        """Return what `leases()` says of it. None if it is not held."""
        claim, now = self._claim, self._clock()
        if claim.state is not _HELD or now >= claim.until:
            return None
        return LeaseInfo(
            name=self.name,
            names=self.names,
            kind=_KINDS.get(kind_of(claim.claims[0].token)) or claim.claims[0].recipe.primitive,
            fence=max(self.fences.values()),
            state=DOUBT if claim.doubt else HELD,
            remaining=claim.until - now,
            held_for=now - claim.since,
            votes=claim.counting(now),
        )

    @property
    def _overdue(self) -> float:
        """Seconds for which it has certainly not been renewed any more."""
        return max(0.0, self._clock() - self._claim.until)

    @property
    def _in_time(self) -> bool:
        return self._claim.state is _HELD and self._clock() < self._claim.until


class Lease(LeaseFacts):
    """A lock that you hold. `acquire` and `with` return it.

    holdfast renews it until you release it. All threads of its process may use it; with asyncio,
    only its event loop. If your code drops it without releasing it, it is not renewed any more, and
    ends after its ttl. A lease of several names is held as a whole, and lost as a whole.

    It is a context manager: `with lease:` (with asyncio, `async with lease:`) releases it at the
    end, as the block of a lock does.
    """

    __slots__ = ()

    # ------------------------------------------------ what the leases for threads and asyncio add

    # A lease joins or leaves those who share a claim within the gate of the lease that made it.
    _gate: AbstractContextManager[Any]

    _driver: Any

    def _hold_by(self, driver: Any) -> None:
        """Be acquired by this driver."""
        self._driver, self._clock = driver, driver.clock

    @property
    @abstractmethod
    def _begun(self) -> Want | None:
        """Its claim. None if none was made."""

    def _expects(self, fence: int) -> None:
        """Note that the caller raises the nodes' fences to this one by other means (rule O8)."""
        self._claim.claims[0].expects(fence)

    @property
    @abstractmethod
    def _going(self) -> bool:
        """May a block join this lease?

        Its claim is held, in this process, and nobody has begun to give it back.

        False for a lease that is not acquired yet.
        """

    @abstractmethod
    def _adopt(self, root: Self) -> None:
        """Take over the claim of a lease, to share it."""

    @abstractmethod
    def _let_go(self) -> None:
        """Give its claim back, or stop waiting for it, without waiting for anything."""

    @abstractmethod
    def extend(self, ttl: Seconds | None = None, *, max_hold: Seconds | None = None) -> float | Awaitable[float]:
        """Make the lease last at least `ttl` more seconds, and wait for a majority to confirm.

        Never shortens a lease, and several calls do not add up. While holdfast renews the lease
        (the default), you rarely need this. Renewals that follow use the lock's own `ttl` again.

        Args:
            ttl: Seconds from now, from 0.05 to the client's `max_ttl` (default: the lock's `ttl`).
            max_hold: Move the end that the lock's `max_hold` sets to this many seconds from now. A
                lock without `max_hold` gets one (default: the end stays where it is).

        Returns:
            Seconds for which the lock is now certainly held. 0.0 for a lease that is OPEN.

        Raises:
            LockLost: The lease was lost before or meanwhile.
            NoQuorum: No majority confirmed within `node_timeout`, counted from the first of several
                calls that wait. The lease is in DOUBT, and held until its earlier deadline.
            Misuse: The lease was released or left (`not_held`).
            ConfigError: `ttl` or `max_hold` is out of range.
            Misuse: The lease belongs to the process that forked this one (`wrong_process`).
            Misuse: With asyncio, the lease belongs to another event loop (`wrong_loop`).
        """

    @abstractmethod
    def downgrade(self) -> Awaitable[None] | None:
        """Turn a write lease into a read lease. No other writer comes in between.

        Stop writing before you call it, because other readers may come in at once. It returns when
        a majority has confirmed. The fence is then greater by one. So storage that checks fences
        refuses what you wrote before and what arrives late, as soon as it has served a read.

        There is no way back: two readers that both waited to write would wait for each other for
        ever.

        Raises:
            Misuse: The lease is no write lease, or the lock is entered more than once.
            LockLost: The lease was lost before or meanwhile.
            NoQuorum: No majority confirmed within `node_timeout`.
            Misuse: The lease was released or left (`not_held`).
        """

    @abstractmethod
    def hand_over(self, ttl: Seconds | None = None) -> str | Awaitable[str]:
        """Hand the lease over to another process, thread or event loop, and return its ticket.

        Send the ticket to the new owner, which passes it to `adopt` of its own client. The lock
        stays taken meanwhile, and the fence stays the same. When this returns, holdfast renews the
        lease no more: `state` is HANDED_OVER, `held` is False, and `release` has no effect, so a
        block may end. A ticket is adopted once. If nobody does in time, the lock is free.

        Args:
            ttl: Seconds within which the ticket can be adopted, from 0.05 to the client's `max_ttl`
                (default: the lock's `ttl`). The lease is first made to last as long.

        Returns:
            The ticket: text, at most 610 bytes.

        Raises:
            LockLost: The lease was lost before or meanwhile.
            NoQuorum: No majority confirmed that the lease lasts for `ttl`. It is in DOUBT, and not
                handed over.
            Misuse: The lease was released or left (`not_held`), is entered more than once, or is
                not that of one exclusive lock.
            ConfigError: `ttl` is out of range.
        """

    @abstractmethod
    def release(self, confirm: bool = False) -> int | Awaitable[int]:
        """Release the lock. Idempotent.

        When it returns, the release has been sent, and is sent again after a reconnect. An
        exception that interrupts it (Ctrl-C, a time limit, a cancellation) does not stop the
        release: from then on nobody can enter the lease again, and `state` is RELEASED. Several
        threads may release the same lease at the same moment.

        Args:
            confirm: Wait until a majority of the nodes has confirmed, for at most `node_timeout`.

        Returns:
            With `confirm`, the number of nodes that have confirmed so far. Otherwise 0.

        Raises:
            LockLost: The lease was lost before. Raised once.
            Misuse: The lease belongs to the process that forked this one (`wrong_process`).
        """

    @abstractmethod
    def _stay(self) -> None:
        """Have the keys of its own claim stay on the nodes when it ends."""

    def leave(self) -> None:
        """End the lease without releasing the lock, which runs out by itself.

        For work that may still be going on when this process can no longer watch it: a child that
        does not end, or a remote caller. holdfast does not renew the lease any more, and never
        releases it: not when its block ends, not by `close()`, and not when the interpreter exits.
        Nobody else gets the lock before `remaining` seconds are over. Other clients can get it at
        most one `ttl` after this call.

        Sends nothing and waits for nothing, so it is no coroutine with asyncio either. From then on
        `state` is RELEASED, `held` is False, `check` raises Misuse, and `release` has no effect.
        `lost` is not set, and `on_lost` is not called. Idempotent, and without effect on a lease
        that was released or is OPEN.

        If the lock was entered more than once (`reentrant`), it stays held and renewed until the
        last lease on it ends. That end, whatever it is, does not release it either.

        Raises:
            LockLost: The lease was lost before. Raised once.
            Misuse: The lease belongs to the process that forked this one (`wrong_process`).
            Misuse: With asyncio, the lease belongs to another event loop (`wrong_loop`).
        """
        try:
            self._stay_held()
            if self._begin_release():
                self._let_go()
                self._end_release()
        except HoldfastError:
            raise
        except BaseException:
            # A signal's handler raised. The lock is left all the same, and not released.
            self._stay_held()
            self._unwind()
            raise

    def _stay_held(self) -> None:
        """Have its keys stay on the nodes, if it is held."""
        if self.held:
            self._stay()

    # ------------------------------------------------ for the leases of threads and asyncio

    def _join(self, root: Self) -> bool:
        """Share the claim of a lease that the same thread or task holds.

        The last one to leave gives the claim back.

        Returns:
            False if it is too late. The claim was given back since the lease was looked up, by
            another thread or a signal handler, or it is lost. Then this lease is of no use.
        """
        with root._gate:
            # The users first: a caller that is interrupted in here leaves again, and must not be
            # the last.
            if root._users is None:
                root._users = SafeWeakSet([root])
            self._users = root._users
            self._root, self._joined, self._owner = root, True, root._owner
            self._hold_by(root._driver)
            self._adopt(root)
            # It joins before it looks. A lease that leaves says so before it looks who is left: see
            # `_drop_share`. So one of the two sees the other, also if a signal handler is one of
            # them.
            self._users.add(self)
            if self._going and not root._ended:
                return True
        self._unwind()
        return False

    def _open(self, why: NoQuorum) -> events.Opened:
        """Note that no quorum answers and the body runs without the lock.

        Returns:
            The event for observers.
        """
        self._opened = why.waited
        begun = self._begun
        return events.Opened(
            name=self.name,
            token="",
            waited=why.waited,
            kind=self._terms.primitive,
            names=self.names,
            want=0 if begun is None else begun.want,
            error=why,
        )

    def _begin_release(self) -> bool:
        """Begin to release it, for its caller.

        Returns:
            Whether there is a claim to release. False if it was released before, is OPEN, or others
            who entered the lock again are still inside.

        Raises:
            LockLost: It is lost. Raised once.
        """
        state = self._by_now()
        if state is LOST:
            self._released = True
            raise self._loss()
        if state is not HELD:
            return False
        # Somebody else is still inside.
        if not self._drop_share():
            self._released = True
            return False
        return True

    def _drop_share(self) -> bool:
        """Give this share back.

        A caller that was interrupted may do so twice: the second time has no effect.

        Returns:
            Whether it was the last share.
        """
        root = self._root or self
        with root._gate:
            root._ended = last = self._users is None or not self._others()
            if last:
                # A lease that joins from here on sees the mark. One that has joined just before is
                # seen here.
                root._ended = last = self._users is None or not self._others()
        # Otherwise this would keep a lease alive that its owner drops.
        self._root = self._kept = None
        return last

    def _others(self) -> bool:
        """Take it out of those who share its claim, and return whether there are others."""
        users = self._users
        assert users is not None
        users.discard(self)
        return len(users) > 0

    def _end_release(self) -> None:
        """Note that its release was sent.

        Raises:
            LockLost: It was lost just before.
        """
        # Not earlier, because a caller that is interrupted on the way may release again.
        self._released = True
        if self._claim.state is _LOST:
            self._lost = self._claim.reason
            raise self._loss()

    def _extension(self, ttl: Seconds | None) -> float:
        """Return the length to ask for in an extension, in seconds. 0.0 if the lease is OPEN.

        Raises:
            LockLost: It is lost.
            Misuse: It was released or left (`not_held`).
        """
        length = self._terms.timing.ttl if ttl is None else lease_of(ttl, self._settings.max_ttl)
        self.check()
        return 0.0 if self._opened is not None else length

    def _sharing(self) -> bool:
        """Return whether there is something to downgrade. False if it is OPEN.

        Raises:
            Misuse: It is no write lease, or entered more than once.
            LockLost: It is lost.
            Misuse: It was released or left (`not_held`).
        """
        if self._kind != WRITER:
            what = "a read lease already" if self.shared else "no lease of a read-write lock"
            raise Misuse(f"the lease of {self.name!r} is {what}: only a write lease can be downgraded")
        if self._users is not None and len(self._users) > 1:
            raise Misuse(
                f"the write lock {self.name!r} is entered more than once here: downgrade it when the inner blocks "
                "are left"
            )
        self.check()
        return self._opened is None

    def _to_hand_over(self) -> "Handover":
        """Return what the ticket of the lease is to tell.

        Raises:
            Misuse: The lease is of a kind that cannot be handed over, or not held.
            LockLost: It is lost.
        """
        self.check()
        unfit = self._terms.primitive != "exclusive" or len(self.names) > 1
        if unfit or self._opened is not None:
            raise Misuse(f"the lease of {self.name!r} cannot be handed over: only that of one exclusive lock can")
        if self._users is not None and len(self._users) > 1:
            raise Misuse(f"the lock {self.name!r} is entered more than once here: hand it over from the outer block")
        # Loaded at its first use.
        from ..protocol.adoption import Handover

        return Handover(self.name, self._claim.claims[0].token, self.fence)

    def _extended(self) -> float:
        """Return how long it is good for after an extension.

        Raises:
            LockLost: It is lost.
            NoQuorum: The extension was not confirmed.
        """
        self.check()
        # Read it once, because another thread's extension may be confirmed meanwhile, which removes
        # the setback.
        if (setback := self._claim.setback) is not None:
            raise setback
        return self.remaining

    def _told_lost(self) -> list[Call]:
        """Mark it as lost, with those that share it.

        Their events are set, too.

        Returns:
            The `on_lost` functions to call, each with its lease. The driver calls them, aside from
            the engine.
        """
        calls: list[Call] = []
        for user in [self] if self._users is None else self._users:
            user._mark_lost()
            if user._terms.on_lost is not None:
                calls.append((user._terms.on_lost, user))
        return calls

    def _mark_lost(self) -> None:
        self._lost = self._lost or self._claim.reason or "closed"
        if self._events:
            self._events[0].set()

    def _unwind(self) -> None:
        """Give it back for a caller that was interrupted and cannot. Waits for nothing."""
        if self._drop_share():
            self._let_go()
        else:
            self._released = True


# What is held, by the kind of its token.
_KINDS = {READER: "read", WRITER: "write"}


def infos(leases: Iterable[Lease]) -> tuple[LeaseInfo, ...]:
    """Return what `leases()` says of these leases, the one that has been held longest first."""
    # By when they were acquired: each `held_for` is of a later moment than the one before.
    found = [(it._claim.since, info) for it in leases if (info := it._info()) is not None]
    return tuple(info for _, info in sorted(found, key=itemgetter(0)))
