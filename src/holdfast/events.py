"""The events that observers receive: frozen facts, one class for each kind of event.

Knows words and facts. Must not know who listens, or what time it is. The code that passes an event
on stamps `at`.

The classes are written like dataclasses, and type checkers take them for such. `Fields` makes them,
because the module `dataclasses` takes several times as long to load as all of this.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Literal, NoReturn, Self, dataclass_transform

__all__ = [
    "Acquired",
    "Attempt",
    "Called",
    "Doubt",
    "Ended",
    "Event",
    "Forced",
    "LeaseEvent",
    "LockEvent",
    "NodeEvent",
    "Opened",
    "Queued",
    "Refused",
    "Renewed",
]

_NEVER = datetime.fromtimestamp(0, UTC)
_NO_FENCES: dict[str, int] = {}


@dataclass_transform(kw_only_default=True, frozen_default=True)
class Fields(type):
    """Makes a class whose annotations are its fields, and whose assignments are their defaults.

    Attributes:
        fields: The names of the fields, those of the base classes first.
        names_of_fields: The same, as a set.
        defaults: The fields that need not be given, with their values.
    """

    fields: tuple[str, ...]
    names_of_fields: frozenset[str]
    defaults: dict[str, object]

    def __new__(cls, name: str, bases: tuple[type, ...], body: dict[str, Any], *, kw_only: bool = True) -> Fields:
        """Make the class, with a slot for each field of its own.

        `kw_only` tells type checkers whether the fields can be given by their names only.
        """
        own = tuple(body.get("__annotations__", ()))
        defaults = {it: body.pop(it) for it in own if it in body}
        body["__slots__"] = own
        made = super().__new__(cls, name, bases, body)
        above = [it for it in bases if isinstance(it, Fields)]
        made.fields = (*[field for it in above for field in it.fields], *own)
        made.names_of_fields = frozenset(made.fields)
        made.defaults = {key: value for it in above for key, value in it.defaults.items()} | defaults
        return made


class Event(metaclass=Fields):
    """Something happened.

    Events are equal if they are of one class and all their fields but `at` are equal.

    Attributes:
        at: When it happened: an aware datetime in UTC.
    """

    at: datetime = _NEVER

    def __init__(self, **facts: object) -> None:
        kind = type(self)
        values = {**kind.defaults, **facts}
        if values.keys() != kind.names_of_fields:
            missing = sorted(kind.names_of_fields - values.keys())
            unknown = sorted(values.keys() - kind.names_of_fields)
            raise TypeError(f"{kind.__name__}() has the fields {kind.fields}: missing {missing}, unknown {unknown}")
        put = object.__setattr__
        for name, value in values.items():
            put(self, name, value)

    def facts(self) -> dict[str, Any]:
        """Return all fields and their values, `at` first."""
        return {it: getattr(self, it) for it in type(self).fields}

    def replace(self, **facts: object) -> Self:
        """Return the same event with other values for these fields."""
        return type(self)(**{**self.facts(), **facts})

    __replace__ = replace

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self.facts().items())})"

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(getattr(self, it) == getattr(other, it) for it in type(self).fields if it != "at")

    def __hash__(self) -> int:
        values = [getattr(self, it) for it in type(self).fields if it != "at"]
        return hash((type(self), *[tuple(it.items()) if isinstance(it, Mapping) else it for it in values]))

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (type(self), self.facts())

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"cannot assign to field {name!r}: an event does not change")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"cannot delete field {name!r}: an event does not change")


def _restored(kind: type[Event], facts: dict[str, Any]) -> Event:
    return kind(**facts)


# ------------------------------------------------ acquisitions


class LockEvent(Event):
    """Something happened to an acquisition: to one request for a lock, and to the lease it got.

    One acquisition causes one Attempt, at most one Queued, one Acquired or Refused, and after
    Acquired one Ended, or two if the lease is discarded. That holds for several names and several
    permits, too.

    Attributes:
        name: The lock's name. Several names are joined by commas.
        token: The token of the request. Of several names or permits, that of the first.
        waited: Seconds that the request has waited, or had waited when it got the lock.
        kind: "exclusive", "read", "write", "permit", "election", "once" or "fill". `Opened` may
            also be of a "rate".
        names: All names, as you wrote them.
        want: A number that all events of one acquisition have in common, and no other acquisition
            of this client on the same nodes. 0 if nothing was asked of the nodes.
    """

    name: str
    token: str
    waited: float
    kind: str = "exclusive"
    names: tuple[str, ...] = ()
    want: int = 0


class Attempt(LockEvent):
    """A request begins."""


class Queued(LockEvent):
    """Another client holds the lock, so the request waits in the queue.

    Attributes:
        holder: The holder's token, or the value that another program wrote. None if unknown.
        place: The place in the queue of the node that answered first: 1 is next. Of several permits
            or names, the best place. None if unknown.
    """

    holder: str | None
    place: int | None = None


class Refused(LockEvent):
    """The request ended without the lock.

    Attributes:
        error: The error that the caller gets. None if the caller gave up by itself.
        outcome: "busy", "no_quorum", "gave_up" (no error, or `Cancelled`) or "error".
    """

    error: Exception | None
    outcome: str = "error"


class Opened(LockEvent):
    """The body runs without the lock, because `fail_open` allows it.

    Attributes:
        error: Why the lock could not be acquired.
    """

    error: Exception


class LeaseEvent(LockEvent):
    """Something happened to a lock that this client holds.

    Attributes:
        fence: The fence of the lease. Of several names or permits, the greatest.
        fences: The fence of each name, or of each slot of a semaphore.
    """

    fence: int
    fences: Mapping[str, int] = _NO_FENCES


class Acquired(LeaseEvent):
    """The lock is held.

    Attributes:
        contended: Whether another client was in the way when this one asked.
    """

    contended: bool = False


class Renewed(LeaseEvent):
    """A majority has confirmed a renewal.

    A renewal of several names counts when the renewal of each name is confirmed.

    Attributes:
        remaining: Seconds that the lease is now valid.
        left: Seconds that were left of the lease just before. The less was left, the nearer the
            lease came to its end.
    """

    remaining: float
    left: float = 0.0


class Doubt(LeaseEvent):
    """A renewal was not confirmed in time. holdfast tries it again.

    Attributes:
        remaining: Seconds until the lease is lost.
        why: What is wrong at the nodes that have not confirmed it.
    """

    remaining: float
    why: str = ""


class Ended(LeaseEvent):
    """A lease has ended, or is about to: see `how`.

    Attributes:
        how: "released", "lost", "left" (neither renewed nor released: it runs out by itself) or
            "discarded" (the program dropped the lease without a release, so holdfast no longer
            renews it). After "discarded", "lost" follows when the time of the lease is over.
        reason: Why it was lost, as in `LockLost.reason`, or "dropped" after "discarded". Otherwise
            empty.
        remaining: Seconds until a lease that was left or discarded ends. Until then no other client
            of holdfast can get the lock. Otherwise 0.
        held: Seconds that the lease was held. 0 if it was discarded.
        why: What was wrong at the nodes, if that is the reason why it was lost.
        acquired: The file and line that acquired a discarded lease, if `HOLDFAST_DEBUG` or Python's
            development mode is on. None otherwise.
    """

    how: Literal["released", "lost", "left", "discarded"]
    reason: str = ""
    remaining: float = 0.0
    held: float = 0.0
    why: str = ""
    acquired: str | None = None

    def __str__(self) -> str:
        """Return the text of the log line and of the ResourceWarning about a discarded lease."""
        if self.how != "discarded":
            return repr(self)
        where = "" if self.acquired is None else f" It was acquired at {self.acquired}."
        return (
            f"the lease on {self.name!r} (fence {self.fence}) was discarded without release; it is no longer renewed "
            f'and ends in {self.remaining:.1f} s. Keep the lease that acquire() returns, or use "with".{where}'
        )


class Forced(Event):
    """An operator used this client to take a lock away from its holder.

    Attributes:
        name: The lock's name.
        holder: The holder's token, or the value that another program wrote. None if unknown.
        nodes: On how many nodes the lock was taken from a holder.
        reason: The reason that the operator gave.
    """

    name: str
    holder: str | None
    nodes: int
    reason: str


# ------------------------------------------------ other calls


class Called(Event):
    """A call of a rate, a once or a fill was answered, or a wait at a latch or a barrier has ended.

    Attributes:
        name: The name of the rate, fill, latch or barrier, or the key of the once.
        kind: "rate", "once", "fill", "latch" or "barrier".
        how: Of a rate: "allowed" or "refused". Of a latch or a barrier: "complete", or "incomplete"
            if the caller gets an error because others are missing. Of a once or a fill: "ran" (this
            call ran the function), "kept" (the value was there), "waited" (another caller produced
            it meanwhile), "stale" (older than its ttl) or "bypassed" (computed without the lock,
            because `fail_open` allows it).
        took: Seconds from the first question to the last answer of the nodes. Of a rate, a latch
            or a barrier: seconds that the caller waited.
        key_given: Whether a rate has a key, whose limits are its own.
        retry_after: Seconds until a call that a rate refused may be allowed. Otherwise 0.
    """

    name: str
    kind: Literal["rate", "once", "fill", "latch", "barrier"]
    how: str
    took: float
    key_given: bool = False
    retry_after: float = 0.0


class NodeEvent(Event):
    """Something happened to a node.

    Attributes:
        node: The node's address, without the password.
        state: "up" (the node is in use, perhaps again), "down" (it cannot be used), "guarded" (it
            may have forgotten leases, because it started or was promoted a short while ago),
            "refuses" (it answers and refuses writes, so it grants no locks; "up" follows when it
            accepts one) or "warned" (it works, but something about it is dangerous).
        left: Seconds until the client uses a guarded node. Otherwise 0.
        cause: Why the node is down or refuses writes, as an exception. Why it is guarded, as a
            text. Otherwise None.
        down: Seconds for which a node that is up or guarded had been down, or had refused writes,
            until now. 0 if it had not.
        warning: What is dangerous, and what to do about it.
        about: What kind of danger it is: "eviction", "replicas", "failover" (its address states a
            bound that the server does not keep), "several servers" (at its address), "persistence",
            "clock", "tls", "product" (neither Redis nor Valkey), "settings" (clients differ in
            `max_ttl` or their nodes), "shards", "permits", "key", "fence" or "bug".
    """

    node: str
    state: Literal["up", "down", "guarded", "refuses", "warned"]
    left: float = 0.0
    cause: Exception | str | None = None
    down: float = 0.0
    warning: str = ""
    about: str = ""
