"""The errors that holdfast raises, as one tree. Details are attributes.

Knows messages and the values in them. Must not know nodes' sockets, drivers, or what led to an
error.

    HoldfastError
    ├── NotAcquired
    │   ├── LockBusy       (also TimeoutError)   another holder has it until `wait` ran out
    │   ├── RateLimited    (also TimeoutError)   the limit is used up for longer than `wait`
    │   ├── NotAllArrived  (also TimeoutError)   others have not arrived when `wait` ran out
    │   ├── NoQuorum                             too few nodes answered: nobody can know
    │   └── Cancelled                            the caller's `cancel` was set
    ├── LockLost                                 it was held, and that is no longer certain
    │   └── StaleFence                           a fenced resource has seen a later holder
    ├── Misuse             (also RuntimeError)   the caller's program is wrong: see `reason`
    ├── BadFence           (also ValueError)     a request has no fence, or an unreadable one
    └── ConfigError        (also ValueError)     an argument, address or server that cannot work
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal, TypeGuard

__all__ = [
    "BadFence",
    "Cancelled",
    "ConfigError",
    "HoldfastError",
    "LockBusy",
    "LockLost",
    "Misuse",
    "NoQuorum",
    "NotAcquired",
    "NotAllArrived",
    "RateLimited",
    "StaleFence",
]


SHOWN = 5  # ids that a message lists
# Characters: the longest sentence that a server says of itself (MISCONF) stays whole.
LONGEST_TOLD = 400


# The page about errors, relative to where the documentation is.
PAGE = "holdfast/errors"


def message_of(error: BaseException | str | None) -> str:
    """Return an error's message without the address of its page.

    Messages and log lines that quote other errors use it.

    Args:
        error: Any error, or a text. Only errors of holdfast have a page. None gives "None".

    Returns:
        The message.
    """
    return error.message if isinstance(error, HoldfastError) else str(error)


def readable(text: str, most: int = LONGEST_TOLD) -> str:
    """Escape unprintable characters, and cut the text at `most` characters.

    Messages and logs quote nodes and other programs with it.

    Args:
        text: Any text, also with control characters, line ends or halves of surrogate pairs.
        most: The most characters that are kept, 400 by default. A text that was cut ends in "...".

    Returns:
        The text on one line, every character of it printable.
    """
    told = "".join([it if it.isprintable() else it.encode("unicode_escape").decode() for it in text[:most]])
    return told if len(told) <= most and len(text) <= most else f"{told[:most]}..."


def shortened(text: str) -> str:
    """Shorten each token in a text to its first 16 and last 8 digits.

    These tell it from other tokens of its client. Who knows a whole token can release its lock.
    """
    return re.sub(r"([0-9]{16}):[0-9a-f]{32}:([0-9a-f]{8})(?::[rw])?", r"\1:\2", text)


def outcome_of(error: BaseException | None) -> str:
    """Return how a call ended that raised this error, in one word: for events and traces.

    Args:
        error: What it raised. None if its caller gave up by itself.

    Returns:
        "busy", "no_quorum", "gave_up" or "error".
    """
    if isinstance(error, LockBusy | RateLimited | NotAllArrived):
        return "busy"
    if isinstance(error, NoQuorum):
        return "no_quorum"
    # An interrupt and a cancelled task are no Exception.
    return "error" if isinstance(error, Exception) and not isinstance(error, Cancelled) else "gave_up"


class HoldfastError(Exception):
    """The base class of all errors that holdfast raises.

    Errors can be pickled with their message and attributes. The text of an error ends in the
    address of the page that explains it, such as "[holdfast/errors#lockbusy]".
    """

    @property
    def page(self) -> str:
        """The address of the page about it, such as "holdfast/errors#lockbusy"."""
        if isinstance(self, Misuse | ConfigError) and self.reason != "other":
            return f"{PAGE}#{self.reason}"
        kinds = [it.__name__ for it in type(self).__mro__ if it.__module__ == __name__ and it.__name__ in __all__]
        return f"{PAGE}#{kinds[0].lower()}"

    @property
    def message(self) -> str:
        """The text of the error without the address of its page: what happened and what to do."""
        return super().__str__()

    def __str__(self) -> str:
        """Return the message and the address of the page.

        The address is on a line of its own if the message has several lines.
        """
        message = self.message
        space = "\n" if "\n" in message else " "
        return f"{message}{space}[{self.page}]".lstrip()

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (type(self), self.args, self.__dict__)


def _restored(kind: type[HoldfastError], args: tuple[Any, ...], facts: dict[str, Any]) -> HoldfastError:
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(facts)
    return error


class NotAcquired(HoldfastError):
    """The lock, permit, call or other thing that you asked for was not granted.

    Attributes:
        name: The name of the lock, rate or other object.
        waited: Seconds that the caller waited.
    """

    name: str
    waited: float


ITSELF = "this client itself"  # who holds a lock, where that is the client that asks


class LockBusy(NotAcquired, TimeoutError):
    """Another holder has the lock, and the time to wait for it ran out.

    Attributes:
        holder: The holder's token, or the first 64 bytes of the value that another program wrote.
            None if no node reported it.
        owner: The process of the holder's client, such as "host:pid". None if another program holds
            the lock, or if no node reported it.
        note: What the holder says of itself (`note=`). None if it says nothing, if no node reported
            it, and where the lock is a permit of a semaphore.
        ttl_left: Seconds until the holder's lease ends unless it is renewed. None if no node
            reported it, or if another program wrote a value without an expiry.
    """

    holder: str | None
    owner: str | None
    note: str | None
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
            advice: The end of the message. Empty: to wait longer, or to come back later.
        """
        left = "" if ttl_left is None else f" for up to {ttl_left:.1f} s more unless renewed"
        who = who or ("another client" if holder is None else shortened(readable(holder, 64)))
        advice = advice or "Wait longer (`wait=`), or come back later."
        self._before, self._who, self._after = f"{name!r} is held by ", who, f"{left} (waited {waited:.3f} s). {advice}"
        super().__init__(f"{self._before}{who}{self._after}")
        self.name, self.waited, self.holder, self.ttl_left = name, waited, holder, ttl_left
        self.owner = self.note = None

    def held_by(self, owner: str | None, note: str | None = None) -> None:
        """Say who the holder is. holdfast calls it with what the nodes report.

        Args:
            owner: The process of the holder's client, such as "host:pid". The message shows its
                first 128 characters. None: no node reported it.
            note: What the holder says of itself. None: nothing.

        Raises:
            AttributeError: The error was made without `__init__`.
        """
        self.owner = owner
        self.note = note
        who = readable(owner, 128) if owner is not None and self._who != ITSELF else self._who
        said = f" ({readable(note, 128)})" if note else ""
        self.args = (f"{self._before}{who}{said}{self._after}",)


class RateLimited(NotAcquired, TimeoutError):
    """The limit is used up, and the call would be allowed only after `wait` has run out.

    Attributes:
        key: The key that was passed, if each key has a limit of its own. Otherwise None.
        limit: Calls allowed per `period`.
        period: Seconds.
        retry_after: Seconds until the call may be allowed, at the earliest.
    """

    key: str | None
    limit: int
    period: float
    retry_after: float

    def __init__(
        self, name: str, waited: float, key: str | None, limit: int, period: float, retry_after: float
    ) -> None:
        whose = "" if key is None else f" of {key!r}"
        super().__init__(
            f"{name!r}{whose} is used up: {limit} in {period:g} s are allowed, "
            f"and more in {retry_after:.3f} s at the earliest; "
            f"waited {waited:.3f} s. Wait longer (`wait=`), or come back then."
        )
        self.name, self.waited, self.key = name, waited, key
        self.limit, self.period, self.retry_after = limit, period, retry_after


class NotAllArrived(NotAcquired, TimeoutError):
    """Others have yet to arrive, and the time to wait for them ran out.

    An arrival of the caller's own still counts.

    Attributes:
        arrived: How many have arrived, as far as a majority of the nodes knows.
        count: How many have to arrive.
        ids: The ids of those that have arrived. An arrival at a latch without an id counts in
            `arrived`, and is not listed here.
    """

    arrived: int
    count: int
    ids: tuple[str, ...]

    def __init__(self, name: str, waited: float, arrived: int, count: int, ids: tuple[str, ...] = ()) -> None:
        told = ", ".join(repr(readable(it, 64)) for it in ids[:SHOWN])
        more = "" if len(ids) <= SHOWN else f" and {len(ids) - SHOWN} more"
        here = f" ({told}{more})" if ids else ""
        super().__init__(
            f"{arrived} of {count} have arrived at {name!r}{here}; waited {waited:.3f} s for the others. "
            "Wait longer (`wait=`), or come back later: an arrival stays."
        )
        self.name, self.waited, self.arrived, self.count, self.ids = name, waited, arrived, count, ids


class NoQuorum(NotAcquired):
    """Too few nodes answered: nobody can know whether the lock is free.

    Attributes:
        causes: The problem of each node that has one, by the node's address.
        needed: How many nodes are needed.
    """

    causes: Mapping[str, Exception]
    needed: int

    def __init__(
        self,
        name: str,
        waited: float,
        causes: Mapping[str, Exception],
        needed: int,
        doing: str = "acquire",
        *,
        away: float = 0.0,
        lists: int = 1,
    ) -> None:
        """Say what is wrong at each node.

        Args:
            name: The name of the lock or other object.
            waited: As the attribute.
            causes: As the attribute.
            needed: How many nodes are a majority.
            doing: What was asked for.
            away: Seconds for which no majority has been usable. 0 or less: not known.
            lists: 2 while the list of nodes is changed: a majority of each is needed.
        """
        told = "".join(f"\n  {node}: {message_of(cause)}" for node, cause in causes.items())
        enough = "no node is" if needed == 1 else f"fewer than {needed} nodes are"
        if lists > 1:
            enough = "too few nodes of the former or the new list are"
        advice = f"Look at these nodes, then try again:{told}"
        if not causes:
            advice = "No node has reported a problem: allow more time for the answers (`wait=`), or try again."
        outage = f"; no majority for {away:.1f} s" if away > 0 else ""
        super().__init__(f"could not {doing} {name!r}: {enough} usable (waited {waited:.3f} s{outage}). {advice}")
        self.name, self.waited, self.causes, self.needed = name, waited, dict(causes), needed


class Cancelled(NotAcquired):
    """Another thread has ended the wait by setting the event that was passed as `cancel`."""

    def __init__(self, name: str, waited: float) -> None:
        super().__init__(
            f"waiting for {name!r} was cancelled after {waited:.3f} s: the event given as `cancel` is set. "
            "Clear it before you wait again."
        )
        self.name, self.waited = name, waited


class Overtaken(NotAcquired):
    """Another client may already have produced the result that the lock was awaited for.

    Enough nodes have said so. The caller looks for the result instead of waiting on.
    """

    def __init__(self, name: str, waited: float) -> None:
        super().__init__(
            f"another client may already have produced the result that {name!r} was awaited for "
            f"(waited {waited:.3f} s)"
        )
        self.name, self.waited = name, waited


class LockLost(HoldfastError):
    """The lock was held, and nobody can be sure of it any longer: stop what it protected.

    Attributes:
        name: The name of the lock.
        reason: `expired`, `refused`, `gap`, `forced`, `max_hold`, `slow`, `closed` or `dropped`,
            `ticket` for a lease that cannot be adopted, and `stale` for `StaleFence`.
        fence: The fencing token of the lease, or None.
    """

    name: str
    reason: str
    fence: int | None

    def __init__(self, name: str, reason: str, fence: int | None, told: str = "", why: str = "") -> None:
        told = told or _WHY.get(reason, reason)
        if reason in ("expired", "refused") and why:
            told = f"{told} ({why})"
        super().__init__(f"{name!r} is lost ({reason}): {told}. Stop what it protected; its fence was {fence}.")
        self.name, self.reason, self.fence = name, reason, fence


_WHY = {
    "expired": "its lease was not renewed on a majority of the nodes in time",
    "refused": "too many of the nodes refused to renew its lease",
    "gap": "enough nodes lost its key for a moment that another client may have held it",
    "forced": "an operator took it away",
    "max_hold": "it was held for as long as `max_hold` allows",
    "slow": "this process was stopped, or too busy, to read the nodes' answers in time",
    "closed": "its client was closed",
    "ticket": "its ticket was adopted before, or was not adopted in time",
    "dropped": "the program did not keep the lease, so it was not renewed",
}


class StaleFence(LockLost):
    """A fenced resource has seen the fencing token of a later holder, and wrote nothing.

    Attributes:
        seen: The fence below which the resource refuses. None if it did not report that.
    """

    seen: int | None

    def __init__(self, name: str, fence: int | None, seen: int | None = None) -> None:
        seen_it = "has seen a later holder" if seen is None else f"refuses fences below {seen}"
        super().__init__(name, "stale", fence, f"what it protects {seen_it}")
        self.seen = seen


MisuseReason = Literal["not_held", "self_deadlock", "wrong_process", "wrong_loop", "closed", "other"]


class Misuse(HoldfastError, RuntimeError):
    """The caller's program is wrong.

    Attributes:
        reason: "not_held" (the lease was released before), "self_deadlock" (this thread or task
            holds the lock already, and would wait for itself), "wrong_process" (the lease belongs
            to the process on the other side of a fork), "wrong_loop" (it belongs to another event
            loop), "closed" (the client was closed, and has not been entered again since) or
            "other".
    """

    reason: MisuseReason = "other"

    def __init__(self, message: str, reason: MisuseReason = "other") -> None:
        super().__init__(message)
        self.reason = reason


def closed() -> Misuse:
    """Return the error for a use of a client that was closed."""
    told = "this client was closed. To use it again, enter it: `with client:`, or `async with client:`"
    return Misuse(told, "closed")


def is_closed(error: BaseException) -> TypeGuard[Misuse]:
    """Return whether an error says that a client was closed."""
    return isinstance(error, Misuse) and error.reason == "closed"


class BadFence(HoldfastError, ValueError):
    """A request has no fence for the lock that it needs, or an unreadable one.

    Attributes:
        said: The value that cannot be read. None if there was none.
    """

    said: str | None

    def __init__(self, why: str, said: str | None = None) -> None:
        super().__init__(why)
        self.said = said


class ConfigError(HoldfastError, ValueError):
    """An argument, an address or a server cannot work. The message says what to change.

    Attributes:
        reason: "bad_name" if a text cannot be the name or the key of anything, or if several names
            cannot be locked together. If the text comes from a request, the mistake is the
            client's. Otherwise "other".
        fix: The command to a server that grants what is missing there, such as "ACL SETUSER app
            +zadd". Empty: none is known.
    """

    reason: Literal["bad_name", "other"] = "other"
    fix: str = ""

    def __init__(self, message: str, reason: Literal["bad_name", "other"] = "other") -> None:
        super().__init__(message)
        self.reason = reason
