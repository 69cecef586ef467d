"""The description of a semaphore, and how a client looks at its permits. For threads and asyncio.

Knows recipes, and that queries have answers. Must not know threads or tasks: what waits is a plan.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Awaitable
from functools import partial
from typing import Any, TypeVar

from ..engine.plans import Ask, Plan
from ..engine.settings import Settings
from ..operations.inspection import commands as inspection
from ..operations.inspection.commands import PermitHolder
from ..operations.inspection.plan import owners, unheard
from ..protocol.query import Answers, Query
from ..protocol.semaphore import Slots
from .lease import Lease
from .lock import Lock
from .shards import Shards
from .terms import ElectionOptions, LockTerms, allow, terms

T = TypeVar("T", bound=Lease)


class PermitOptions(ElectionOptions, total=False):
    """The options that `semaphore` and `permitted` have in common, for type checkers.

    Attributes:
        count: How many permits one lease takes.
        fail_open: Whether to go on without a permit when no majority answers.
        note: What the holder says of itself.
    """

    count: int
    fail_open: bool
    note: str | None


def described(shards: Shards, name: str, permits: int, options: PermitOptions) -> tuple[LockTerms, int]:
    """Check the options of a semaphore, and find its shard.

    Raises:
        ConfigError: An option cannot work.
    """
    allow(options, "semaphore", PermitOptions)
    settings, held = shards.all[0].settings, dict[str, Any](options)
    count = held.pop("count", 1)
    slots = partial(Slots, name, permits, count, prefix=settings.prefix, horizon=settings.horizon)
    found = terms(settings, slots, **held)
    return found, shards.placed(found)[0]


class Semaphore(Lock[T]):
    """The description of a semaphore. It is immutable, and threads or tasks may share it.

    You use it like a Lock: `with` and `acquire()` give you a Lease. At most `permits` permits are
    held at the same time, if all clients name the same number. Otherwise at most the largest number
    is held that a client names while it uses the semaphore.
    """

    __slots__ = ()

    @property
    def permits(self) -> int:
        """How many permits there are, for this client."""
        return self._slots.permits

    @property
    def count(self) -> int:
        """How many permits one lease takes."""
        return self._slots.needed

    @property
    def _slots(self) -> Slots:
        slots = self._terms.recipes
        assert isinstance(slots, Slots)
        return slots

    @abstractmethod
    def available(self) -> int | Awaitable[int]:
        """Count the permits that nobody holds.

        Takes one round trip, and changes nothing. The number may be out of date when you read it,
        and clients that wait come first. To use a permit only if one is free, call `try_acquire()`.

        Returns:
            How many of this client's `permits` are free. A permit that may be held counts as held.

        Raises:
            NoQuorum: Fewer than a majority of the nodes answered.
        """

    @abstractmethod
    def holders(self) -> tuple[PermitHolder, ...] | Awaitable[tuple[PermitHolder, ...]]:
        """List the permits that are held, and by whom.

        Takes one or two round trips, and changes nothing. It looks at this client's `permits`. If
        another client names a larger number, `locks.names("gpus*")` lists the permits that are held
        beyond them.

        Returns:
            One PermitHolder for each permit that is held, in order of slots.

        Raises:
            NoQuorum: Fewer than a majority of the nodes answered.
        """


def available(settings: Settings, slots: Slots) -> Plan[int]:
    """Return how many permits are free."""
    seen = yield from _look(settings, slots)
    held, unknown = inspection.held(seen.answers, slots.permits, settings.quorum)
    return slots.permits - len(held) - unknown


def holders(settings: Settings, slots: Slots) -> Plan[tuple[PermitHolder, ...]]:
    """Return which permits are held, and by whom."""
    seen = yield from _look(settings, slots)
    held, _ = inspection.held(seen.answers, slots.permits, settings.quorum)
    known = yield from owners(settings, [value for value, _ in held.values()], seen.answers)
    return inspection.permit_holders(slots.label, held, known)


def _look(settings: Settings, slots: Slots) -> Plan[Query]:
    decides = settings.quorum

    def certain(answers: Answers) -> bool:
        _, unknown = inspection.held(answers, slots.permits, decides)
        return not unknown

    asks = dict.fromkeys(decides.nodes, inspection.permits(slots.key, slots.permits))
    seen: Query = yield Ask(asks, certain)
    if not seen.sufficient:
        raise unheard(settings, seen, slots.label, "look at")
    return seen
