"""A rate: its key on a node, what is taken and given back as bytes, and what an answer means.

Knows `scripts/gcra.lua` and `scripts/window.lua`, and counts exactly, in whole numbers. Must not know which nodes there are, or who waits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

from .. import checks
from ..errors import ConfigError
from ..scripts import GCRA, WINDOW, Script
from ..wire.resp import pack

LONGEST = 512  # bytes of a name, and of a key
MOST = 10**12  # calls of a limit, or of a burst: nodes count up to 2**53
SECOND = 1_000_000  # microseconds
SHORTEST, LASTS = 0.001, 1e8  # seconds: of a period; and until nothing is owed any more


@dataclass(frozen=True, slots=True)
class Told:
    """One node's answer. `retry`, `reset`: microseconds until the same call may be allowed, and until nothing is owed; `remaining`: how
    many calls are left now; `at`: what a giving back has to name."""

    allowed: bool
    retry: int
    reset: int
    remaining: int
    at: int


class Algorithm(Protocol):
    """How a node counts.

    `key`: where; `most`: the calls that can be taken at once; `kept`: what its keys end with, as each keeps something else.
    """

    key: bytes
    most: int
    kept: ClassVar[bytes]

    def take(self, cost: int) -> bytes:
        """The bytes that take so many calls."""

    def give(self, cost: int, at: int) -> bytes:
        """The bytes that give them back. `at`: as the answer told."""

    def read(self, cost: int, reply: object) -> Told | None:
        """What a node answered to who wanted so many; None if that is not what the script says."""


class Gcra:
    """The generic cell rate algorithm: what was taken flows back evenly, `limit` calls in a period; `burst` of them may be taken at once.

    It is kept as the time that is owed: a call owes period / limit. Microseconds are not fine enough for that: they are counted in
    `limit` parts each, in which everything is whole.
    """

    __slots__ = ("_limit", "_period", "key", "most")
    kept: ClassVar[bytes] = b"rate"

    def __init__(self, key: bytes, limit: int, period: int, burst: int) -> None:
        self.key, self._limit, self._period, self.most = key, limit, period, burst

    def _say(self, cost: int, at: int) -> bytes:
        burst = divmod(self.most * self._period, self._limit)
        return _evalsha(GCRA, self.key, self._limit, *divmod(cost * self._period, self._limit), *burst, at)

    def take(self, cost: int) -> bytes:
        return self._say(cost, 0)

    def give(self, cost: int, at: int) -> bytes:
        return self._say(cost, at)

    def read(self, cost: int, reply: object) -> Told | None:
        if (numbers := _numbers(reply)) is None:
            return None
        allowed, micros, parts, now = numbers
        owed = micros * self._limit + parts
        left = self.most * self._period - owed
        retry = 0 if allowed else max(_up(cost * self._period - left, self._limit), 0)
        return Told(bool(allowed), retry, _up(owed, self._limit), max(left // self._period, 0), now)


class Window:
    """The fixed window: `limit` calls in each window of a period's length, which begins with the first of them."""

    __slots__ = ("_period", "key", "most")
    kept: ClassVar[bytes] = b"window"

    def __init__(self, key: bytes, limit: int, period: int) -> None:
        self.key, self.most, self._period = key, limit, period

    def take(self, cost: int) -> bytes:
        return _evalsha(WINDOW, self.key, cost, self.most, self._period, 0)

    def give(self, cost: int, at: int) -> bytes:
        return _evalsha(WINDOW, self.key, cost, self.most, self._period, at)

    def read(self, cost: int, reply: object) -> Told | None:
        if (numbers := _numbers(reply)) is None:
            return None
        allowed, left, taken, now = numbers
        return Told(bool(allowed), 0 if allowed else left, left, max(self.most - taken, 0), now + left)


def key_of(kind: type[Algorithm], name: str, prefix: str, key: object) -> bytes:
    """Where a rate is kept: in no other rate's key, whatever names and keys there are, and in none of a lock's."""
    checks.text(name, "a rate's name", most=LONGEST)
    if not name:
        raise ConfigError("a rate needs a name")
    if "{" in name or "}" in name:  # (the first brace that closes ends the name: what follows is the key, with anything in it)
        raise ConfigError(f"{name!r} cannot be a rate's name: it has a brace in it; what differs from call to call is its key (`key=`)")
    own = b"{%b}:%b" % ((prefix + name).encode(), kind.kept)
    if key is None:
        return own
    text = str(key) if isinstance(key, int) and not isinstance(key, bool) else checks.text(key, "a rate's key", most=LONGEST)
    if not text:
        raise ConfigError("a rate's key is empty: all who have none would share one limit. Leave it out if that is meant")
    return b"%b:%b" % (own, text.encode())


def _evalsha(script: Script, key: bytes, *numbers: int) -> bytes:
    return pack(b"EVALSHA", script.sha, b"1", key, *[b"%d" % it for it in numbers])


def _numbers(reply: object) -> Sequence[int] | None:
    return reply if isinstance(reply, list) and len(reply) == 4 and all(type(it) is int for it in reply) else None


def _up(number: int, by: int) -> int:
    """Divided, and rounded up."""
    return -(-number // by)
