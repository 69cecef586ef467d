"""What a caller asks of the I/O thread on behalf of a lease, and how far both sides of it have
come.

Knows weak references. Must not know sockets, or when the I/O thread does what.
"""

from __future__ import annotations

import enum
import weakref
from _thread import LockType
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from ...engine.ready import Want
from ...errors import ConfigError
from ...protocol.command import Recipe
from ...protocol.timing import Timing
from ..callbacks import Call

if TYPE_CHECKING:
    from .io_thread import IOThread


class LeaseOwner(Protocol):
    """What a face gives to its user.

    The I/O thread never keeps it, or its death would never be noticed.
    """

    _pending: PendingCall

    @property
    def _lease(self) -> LeaseOwner:
        """The lease itself: what a pending call may refer to has one."""

    def _told_lost(self) -> Sequence[Call] | None:
        """Mark it as lost, and return what its users want called.

        Runs on the I/O thread's thread, with nothing held.
        """


class Phase(enum.Enum):
    """How far the caller's side of a pending call has come.

    A pending call goes through the phases in this order, may leave one out, and never goes back.
    Callers write the phase: the thread that acquires writes GIVEN before any other thread can have
    the lease, and LEAVING is the last. If a name moves between shards and one part is lost, that
    shard's I/O thread writes LEAVING for the others.
    """

    # The caller waits for the lock.
    WANTED = enum.auto()
    # The caller has the lease: it may be entered again, extended and believed, and it is renewed.
    GIVEN = enum.auto()
    # The caller has given the lease up. From here on no block may join it and nobody may believe in
    # it, whatever the I/O thread has heard so far.
    LEAVING = enum.auto()


WANTED, GIVEN, LEAVING = Phase


class PendingCall(weakref.ref[Any]):
    """What a caller wants of the I/O thread on behalf of a lease: put into its deque once to begin,
    and once more to end.

    As a weak reference it puts itself there when the owner of the lease dies: what holds the lease,
    such as a block, or the lease itself.
    """

    # fmt: off
    __slots__ = (
        "claim", "deadline", "ended", "error", "gate", "handed", "io_thread", "leavers", "phase", "recipes", "timing",
    )
    # fmt: on

    @property
    def lease(self) -> Any:
        """The lease. None if it has no owner any more."""
        owner = self()
        return None if owner is None else owner._lease

    def start(
        self,
        io_thread: IOThread,
        recipes: Sequence[Recipe],
        timing: Timing,
        deadline: float,
        gate: LockType,
        handed: LockType,
    ) -> None:
        """Have nothing happened yet.

        Args:
            io_thread: Does it.
            recipes: The names to acquire.
            timing: For how long to wait, and to hold.
            deadline: When the wait ends.
            gate: What the caller waits at, unless it settles it itself.
            handed: A lock that nobody has taken.
        """
        self.io_thread, self.recipes, self.timing, self.deadline = io_thread, recipes, timing, deadline
        # What the caller that acquires waits at. The I/O thread takes it when it begins.
        self.gate: LockType | None = gate
        # Taken by the caller who gets the lease, or by the I/O thread if it is lost before that, or
        # if the caller does not come for it: one of them is first.
        self.handed = handed
        self.claim: Want | None = None
        # Why it could not even begin.
        self.error: ConfigError | None = None
        # The I/O thread's side: it has ended the claim, or never began one.
        self.ended = False
        # The callers' side.
        self.phase = WANTED
        # Who waits for the end: a gate for each call of `release`, and whether that call waits for
        # the nodes' answers. Callers append, the I/O thread takes. (Several threads may release the
        # same lease at the same moment.)
        self.leavers: list[tuple[LockType, bool]] = []
