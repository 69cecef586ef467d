"""A rate: its keys on a node, what is taken and given back as bytes, and what an answer means.

Knows `scripts/gcra.lua` and `scripts/window.lua`, and counts exactly, in whole numbers. Must not
know which nodes there are, or who waits.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from ... import checks
from ...errors import ConfigError
from ...scripts import GCRA, WINDOW, Script
from ...wire.resp import pack

LONGEST = 512  # bytes of a name, and of a key
MOST = 10**12  # calls of a limit, or of a burst: nodes count up to 2**53
# Limits of one rate: one script call has the keys of all of them.
MOST_LIMITS = 10
SECOND = 1_000_000  # microseconds
SHORTEST, LASTS = 0.001, 1e8  # seconds: of a period; and until nothing is owed any more

# Instead of a patience: the caller's turn has come, so the node looks only at calls that were
# really taken. TURN - x: the same, and the node may count the call x microseconds ahead.
TURN = -1
# What a script is asked to do; any other number is the moment of the take that is given back.
_TAKE, _PEEK = 0, -1
_REFUSED, _ALLOWED, _RESERVED, _AHEAD = range(4)  # what it answers


class Limit(NamedTuple):
    """`calls` in `period` microseconds, `burst` of them at once. In a fixed window: all at once."""

    calls: int
    period: int
    burst: int


@dataclass(frozen=True, slots=True)
class RateAnswer:
    """One node's answer.

    Attributes:
        allowed: The call was taken; after a peek: it would be.
        reserved: The call was not taken, but the node has reserved a turn for it, in `retry`
        microseconds.
        retry: Microseconds until the same call may be allowed. If it was taken a moment ahead:
            until it counts. Else 0.
        reset: Microseconds until nothing is owed.
        remaining: How many calls are left now.
        at: What giving the call back has to name: the moment of the take, or the end of each
        limit's window.
        limit: Which limit has the longest `retry`, by its index.
    """

    allowed: bool
    reserved: bool
    retry: int
    reset: int
    remaining: int
    at: tuple[int, ...]
    limit: int


class Algorithm(ABC):
    """How a node counts.

    Attributes:
        most: How many calls can be taken at once.
        kept: What the keys have after the name, as each algorithm keeps something else.
        orderly: Can a caller reserve a turn?
    """

    kept: ClassVar[bytes]
    orderly: ClassVar[bool]

    def __init__(self, keys: Sequence[bytes], limits: Sequence[Limit]) -> None:
        self._keys, self._limits, self.most = keys, limits, min(it.burst for it in limits)

    @staticmethod
    @abstractmethod
    def spelled(limit: Limit) -> bytes:
        """How a limit stands in its key: limits that differ in anything have different keys."""

    def take(self, cost: int, patience: int = 0) -> bytes:
        """The bytes that take `cost` calls, or reserve a turn at most `patience` microseconds
        ahead.

        With TURN, the turn of the caller has come.
        """
        return self._say(cost, [_TAKE] * len(self._limits), patience)

    def peek(self, cost: int) -> bytes:
        """The bytes that ask the same and change nothing."""
        return self._say(cost, [_PEEK] * len(self._limits))

    def give(self, cost: int, at: Sequence[int]) -> bytes:
        """The bytes that give calls back. `at`: as the answer told."""
        return self._say(cost, at)

    @abstractmethod
    def _say(self, cost: int, what: Sequence[int], patience: int = 0) -> bytes:
        """The bytes for a script. `what`: what each limit is asked to do."""

    @abstractmethod
    def read(self, cost: int, reply: object) -> RateAnswer | None:
        """What a node answered to a caller that wanted `cost` calls.

        None if the script never answers that.
        """


class Gcra(Algorithm):
    """The generic cell rate algorithm: what was taken flows back evenly, and `burst` calls may be
    taken at once.

    A node keeps the time that is owed: a call owes period / calls. Whole microseconds are not exact
    enough for that. So each one is divided into as many parts as the limit has calls, and
    everything is a whole number of parts.
    """

    kept: ClassVar[bytes] = b"rate"
    orderly: ClassVar[bool] = True

    @staticmethod
    def spelled(limit: Limit) -> bytes:
        return b"%d/%b/%d" % (limit.calls, _in_seconds(limit.period), limit.burst)

    def _say(self, cost: int, what: Sequence[int], patience: int = 0) -> bytes:
        # All limits are taken, or given back, at one moment.
        numbers = [what[0], patience]
        for calls, period, burst in self._limits:
            numbers += [calls, *divmod(cost * period, calls), *divmod(burst * period, calls)]
        return _evalsha(GCRA, self._keys, numbers)

    def read(self, cost: int, reply: object) -> RateAnswer | None:
        if (numbers := _numbers(reply, len(self._limits), _AHEAD)) is None:
            return None
        verdict, now = numbers[:2]
        retries, resets, remaining = [], [], []
        for (calls, period, burst), micros, parts in zip(self._limits, numbers[2::2], numbers[3::2], strict=True):
            owed = micros * calls + parts
            left = burst * period - owed
            more = 0 if verdict == _AHEAD else cost * period
            retries.append(0 if verdict == _ALLOWED else max(_up(more - left, calls), 0))
            resets.append(_up(owed, calls))
            remaining.append(max(left // period, 0))
        return _told(verdict, retries, resets, remaining, (now,))


class Window(Algorithm):
    """The fixed window: each window has the length of a period, and begins with its first call."""

    kept: ClassVar[bytes] = b"window"
    orderly: ClassVar[bool] = False

    @staticmethod
    def spelled(limit: Limit) -> bytes:
        return b"%d/%b" % (limit.calls, _in_seconds(limit.period))

    def _say(self, cost: int, what: Sequence[int], patience: int = 0) -> bytes:
        numbers = [cost]
        for (calls, period, _), at in zip(self._limits, what, strict=True):
            numbers += [calls, period, at]
        return _evalsha(WINDOW, self._keys, numbers)

    def read(self, cost: int, reply: object) -> RateAnswer | None:
        if (numbers := _numbers(reply, len(self._limits), _ALLOWED)) is None:
            return None
        verdict, now = numbers[:2]
        retries, resets, remaining = [], [], []
        for (calls, _, _), left, taken in zip(self._limits, numbers[2::2], numbers[3::2], strict=True):
            retries.append(left if verdict == _REFUSED and taken + cost > calls else 0)
            resets.append(left if taken else 0)
            remaining.append(max(calls - taken, 0))
        return _told(verdict, retries, resets, remaining, tuple(now + it for it in numbers[2::2]))


def reset(keys: Sequence[bytes]) -> bytes:
    """The bytes that forget what was taken, and every turn that is reserved."""
    return pack(b"DEL", *keys)


def key_of(kind: type[Algorithm], name: str, prefix: str, key: object, limit: Limit) -> bytes:
    """Where one limit of a rate is kept.

    No two limits share a key, whatever names and keys there are, and no lock has one of these keys.
    The limit is part of it: counts of different limits cannot be compared, and would destroy each
    other.
    """
    checks.name(name, "a rate's name", most=LONGEST)
    if not name:
        raise ConfigError("a rate needs a name", "bad_name")
    # The first brace that closes ends the name. The limit follows, then the key, with anything in
    # it.
    if "{" in name or "}" in name:
        raise ConfigError(
            f"{name!r} cannot be a rate's name: it has a brace in it. Give what differs from call to call as `key=`",
            "bad_name",
        )
    own = b"{%b}:%b:%b" % ((prefix + name).encode(), kind.kept, kind.spelled(limit))
    if key is None:
        return own
    number = isinstance(key, int) and not isinstance(key, bool)
    text = str(key) if number else checks.name(key, "a rate's key", most=LONGEST)
    if not text:
        raise ConfigError(
            "a rate's key is empty: all callers without one would share a limit. Leave it out to do so", "bad_name"
        )
    return b"%b:%b" % (own, text.encode())


def _in_seconds(micros: int) -> bytes:
    """A period in seconds, exactly, with no more digits than it needs."""
    whole, rest = divmod(micros, SECOND)
    return b"%d" % whole + (b".%06d" % rest).rstrip(b"0").rstrip(b".")


def _evalsha(script: Script, keys: Sequence[bytes], numbers: Sequence[int]) -> bytes:
    return pack(b"EVALSHA", script.sha, b"%d" % len(keys), *keys, *[b"%d" % it for it in numbers])


def _numbers(reply: object, limits: int, verdicts: int) -> Sequence[int] | None:
    """What a script of ours answers: a verdict, its clock, and two numbers for each limit."""
    if not isinstance(reply, list) or len(reply) != 2 + 2 * limits or any(type(it) is not int for it in reply):
        return None
    return reply if 0 <= reply[0] <= verdicts else None


def _told(
    verdict: int, retries: Sequence[int], resets: Sequence[int], remaining: Sequence[int], at: tuple[int, ...]
) -> RateAnswer:
    """The answers of all limits, as one: a call is allowed when the last of them allows it."""
    retry = max(retries)
    allowed = verdict in (_ALLOWED, _AHEAD)
    return RateAnswer(allowed, verdict == _RESERVED, retry, max(resets), min(remaining), at, retries.index(retry))


def _up(number: int, by: int) -> int:
    """Divided, and rounded up."""
    return -(-number // by)
