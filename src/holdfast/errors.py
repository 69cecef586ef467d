"""Everything that holdfast raises: one tree, facts as attributes.

Knows words and facts. Must not know nodes' sockets, drivers, or how a fact came about.

    HoldfastError
    ├── NotAcquired
    │   ├── LockBusy       (also TimeoutError)   another holder has it, and the time to wait ran out
    │   ├── RateLimited    (also TimeoutError)   the limit is used up for longer than the time to wait
    │   ├── NotAllArrived  (also TimeoutError)   others have yet to arrive, and the time to wait ran out
    │   ├── NoQuorum                             too few nodes answered: nobody can know
    │   └── Cancelled                            the caller's `cancel` was set
    ├── LockLost                                 it was held, and nobody can be sure of it any longer
    │   └── StaleFence                           a fenced resource has seen a later holder, and wrote nothing
    ├── Misuse             (also RuntimeError)   the caller's program is wrong
    │   ├── NotHeld                              used after its release
    │   ├── SelfDeadlock                         waited for by the thread or task that holds it
    │   ├── WrongProcess                         used on the other side of a fork
    │   ├── WrongLoop                            used from another event loop
    │   └── Closed                               the client was closed
    ├── BadFence           (also ValueError)     a request says no fence, or none that can be read
    └── ConfigError        (also ValueError)     an argument, an address or a server that cannot work
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = [
    "BadFence",
    "Cancelled",
    "Closed",
    "ConfigError",
    "HoldfastError",
    "LockBusy",
    "LockLost",
    "Misuse",
    "NoQuorum",
    "NotAcquired",
    "NotAllArrived",
    "NotHeld",
    "RateLimited",
    "SelfDeadlock",
    "StaleFence",
    "WrongLoop",
    "WrongProcess",
]


SHOWN = 5  # ids that a message lists
LONGEST_TOLD = 400  # characters: the longest sentence that a server says of itself (MISCONF) stays whole


def readable(text: str, most: int = LONGEST_TOLD) -> str:
    """Escape what cannot be printed, and cut the text at `most` characters: for words of nodes and other programs in messages and logs.

    Args:
        text: Any text. It may have control characters, line ends or halves of surrogate pairs in it.
        most: The most characters that are kept. A text that was cut ends in "...".

    Returns:
        The text on one line, every character of it printable.
    """
    told = "".join([it if it.isprintable() else it.encode("unicode_escape").decode() for it in text[:most]])
    return told if len(told) <= most and len(text) <= most else f"{told[:most]}..."


class HoldfastError(Exception):
    """Any error of holdfast's own. Picklable: it is its message and its attributes."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (type(self), self.args, self.__dict__)


def _restored(kind: type[HoldfastError], args: tuple[Any, ...], facts: dict[str, Any]) -> HoldfastError:
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(facts)
    return error


class NotAcquired(HoldfastError):
    """What was asked for was not to be had. `name`: of the lock, the rate or the like; `waited`: for how many seconds the caller did."""

    name: str
    waited: float


ITSELF = "this client itself"  # who holds a lock, where that is the client that asks


class LockBusy(NotAcquired, TimeoutError):
    """Another holder has the lock, and the time to wait for it ran out.

    Attributes:
        holder: The holder's token, or the first 64 bytes of the value that another program wrote. None if no node told.
        owner: Whose client the holder is, such as "host:pid". None if another program holds the lock, or if no node told.
        ttl_left: Seconds until the holder's lease ends unless it is renewed. None if no node told, and where another program wrote a
            value without an expiry.
    """

    holder: str | None
    owner: str | None
    ttl_left: float | None

    def __init__(
        self,
        name: str,
        waited: float,
        holder: str | None,
        ttl_left: float | None,
        *,
        who: str = "",
        advice: str = "",
    ) -> None:
        """Say who holds the lock.

        Args:
            name: The lock's name.
            waited: Seconds that the caller waited.
            holder: As the attribute.
            ttl_left: As the attribute.
            who: What the message calls the holder. Empty: the value itself, shortened.
            advice: What the message says last. Empty: to wait longer, or to come back later.
        """
        left = "" if ttl_left is None else f" for up to {ttl_left:.1f} s more unless renewed"
        who = who or ("another client" if holder is None else readable(holder, 64))
        advice = advice or "Wait longer (`wait=`), or come back later."
        self._before, self._who, self._after = f"{name!r} is held by ", who, f"{left} (waited {waited:.3f} s). {advice}"
        super().__init__(f"{self._before}{who}{self._after}")
        self.name, self.waited, self.holder, self.ttl_left = name, waited, holder, ttl_left
        self.owner = None

    def held_by(self, owner: str) -> None:
        """Say whose client the holder is, as the nodes told it."""
        self.owner = owner
        if self._who != ITSELF:
            self.args = (f"{self._before}{readable(owner, 128)}{self._after}",)


class RateLimited(NotAcquired, TimeoutError):
    """The limit is used up, and the call would be allowed only after the time to wait for it has run out.

    `key`: whose limit it is, if each has one; `limit`, `period`: so many calls in so many seconds; `retry_after`: in how many seconds
    the call may be allowed, at the earliest.
    """

    key: str | None
    limit: int
    period: float
    retry_after: float

    def __init__(self, name: str, waited: float, key: str | None, limit: int, period: float, retry_after: float) -> None:
        whose = "" if key is None else f" of {key!r}"
        super().__init__(
            f"{name!r}{whose} is used up: {limit} in {period:g} s are allowed, and more in {retry_after:.3f} s at the earliest; "
            f"waited {waited:.3f} s. Wait longer (`wait=`), or come back then."
        )
        self.name, self.waited, self.key = name, waited, key
        self.limit, self.period, self.retry_after = limit, period, retry_after


class NotAllArrived(NotAcquired, TimeoutError):
    """Others have yet to arrive, and the time to wait for them ran out. An arrival of the caller's own still counts.

    Attributes:
        arrived: How many have arrived, as far as a majority of the nodes knows.
        count: How many have to arrive.
        ids: The ids of those that have arrived. An arrival at a latch without an id counts in `arrived`, and is not listed here.
    """

    arrived: int
    count: int
    ids: tuple[str, ...]

    def __init__(self, name: str, waited: float, arrived: int, count: int, ids: tuple[str, ...] = ()) -> None:
        told = ", ".join(repr(readable(it, 64)) for it in ids[:SHOWN])
        more = "" if len(ids) <= SHOWN else f" and {len(ids) - SHOWN} more"
        here = f" ({told}{more})" if ids else ""
        super().__init__(
            f"{arrived} of {count} have arrived at {name!r}{here}; waited {waited:.3f} s for the others. Wait longer (`wait=`), or "
            "come back later: an arrival stays."
        )
        self.name, self.waited, self.arrived, self.count, self.ids = name, waited, arrived, count, ids


class NoQuorum(NotAcquired):
    """Too few nodes answered: nobody can know whether the lock is free. `causes`: what is wrong, by node."""

    causes: Mapping[str, Exception]

    def __init__(self, name: str, waited: float, causes: Mapping[str, Exception], needed: int, doing: str = "acquire") -> None:
        told = "".join(f"\n  {node}: {cause}" for node, cause in causes.items())
        enough = "no node is" if needed == 1 else f"fewer than {needed} nodes are"
        advice = f"Look at these nodes, then try again:{told}"
        if not causes:
            advice = "No node has reported a problem: allow more time for the answers (`wait=`), or try again."
        super().__init__(f"could not {doing} {name!r}: {enough} usable (waited {waited:.3f} s). {advice}")
        self.name, self.waited, self.causes = name, waited, dict(causes)


class Cancelled(NotAcquired):
    """Another thread has ended the wait, by setting the event that was handed over as `cancel`."""

    def __init__(self, name: str, waited: float) -> None:
        super().__init__(
            f"waiting for {name!r} was cancelled after {waited:.3f} s: the event given as `cancel` is set. Clear it before you wait again."
        )
        self.name, self.waited = name, waited


class Overtaken(NotAcquired):
    """What the lock was waited for may have come by other means: enough nodes have said so. Look, instead of waiting on."""

    def __init__(self, name: str, waited: float) -> None:
        super().__init__(f"what {name!r} was wanted for may be there, by somebody else's doing, after {waited:.3f} s of waiting: look.")
        self.name, self.waited = name, waited


class LockLost(HoldfastError):
    """The lock was held, and nobody can be sure of it any longer: stop what it protected.

    `reason`: expired, gap, forced, max_hold, slow or closed; `fence`: the fencing token it had.
    """

    name: str
    reason: str
    fence: int | None

    def __init__(self, name: str, reason: str, fence: int | None, told: str = "") -> None:
        super().__init__(f"{name!r} is lost ({reason}): {told or _WHY.get(reason, reason)}. Stop what it protected; its fence was {fence}.")
        self.name, self.reason, self.fence = name, reason, fence


_WHY = {
    "expired": "its lease was not renewed on a majority of the nodes in time",
    "gap": "so many nodes lost its key for a moment that another client may have held it",
    "forced": "an operator took it away",
    "max_hold": "it was held for as long as `max_hold` allows",
    "slow": "this process was stopped, or too busy, to read the nodes' answers in time",
    "closed": "its client was closed",
}


class StaleFence(LockLost):
    """A fenced resource has seen the fencing token of a later holder, and refused: nothing was written. `reason` is "stale".

    `seen`: the fence below which it refuses (None if it did not tell).
    """

    seen: int | None

    def __init__(self, name: str, fence: int | None, seen: int | None = None) -> None:
        told = "what it protects has seen a later holder" if seen is None else f"what it protects refuses fences below {seen}"
        super().__init__(name, "stale", fence, told)
        self.seen = seen


class Misuse(HoldfastError, RuntimeError):
    """The caller's program is wrong."""


class NotHeld(Misuse):
    """The lease was released before."""


class SelfDeadlock(Misuse):
    """This thread or task holds the lock already, and would wait for itself."""


class WrongProcess(Misuse):
    """The lease belongs to the process on the other side of a fork."""


class WrongLoop(Misuse):
    """The lease belongs to another event loop."""


class Closed(Misuse):
    """The client was closed, and has not been entered again since."""


CLOSED = "this client was closed. To use it again, enter it: `with client:`, or `async with client:`"


class BadFence(HoldfastError, ValueError):
    """A request says no fence for the lock that it needs, or none that can be read. `said`: what it says; None for nothing."""

    said: str | None

    def __init__(self, why: str, said: str | None = None) -> None:
        super().__init__(why)
        self.said = said


class ConfigError(HoldfastError, ValueError):
    """An argument, an address or a server that cannot work; the message says what to change."""
