"""What a simulated node answers and keeps: replies and their bytes, how versions of servers differ,
and the values of keys.

Must not know commands, or who sends them.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

# ---- answers, and their bytes

Reply: TypeAlias = "int | float | bytes | list[Reply] | dict[bytes, Reply] | None"


class Status(bytes):
    """An answer such as OK."""


class Text(bytes):
    """An answer for people."""


class Encoded(bytes):
    """A script's answer: bytes for the wire already."""


class Pairs(list[Reply]):
    """Pairs to a client; to a script, which speaks RESP2, one flat list."""


class Refusal(Exception):
    """The answer is an error. `line`: what it says, beginning with its code."""

    def __init__(self, line: bytes) -> None:
        super().__init__(line)
        self.line = line


OK = Status(b"OK")
SYNTAX = b"ERR syntax error"
WRONGTYPE = b"WRONGTYPE Operation against a key holding the wrong kind of value"


def encode(reply: Reply) -> bytes:
    """An answer in RESP3."""
    match reply:
        case Encoded():
            return reply
        case Status():
            return b"+%b\r\n" % reply
        case Text():
            return b"=%d\r\ntxt:%b\r\n" % (len(reply) + 4, reply)
        case bytes():
            return b"$%d\r\n%b\r\n" % (len(reply), reply)
        case int():
            return b":%d\r\n" % reply
        case float():
            return b",%.17g\r\n" % reply
        case None:
            return b"_\r\n"
        case list():
            return b"*%d\r\n" % len(reply) + b"".join(map(encode, reply))
        case dict():
            return b"%%%d\r\n" % len(reply) + b"".join(encode(key) + encode(value) for key, value in reply.items())


def push(*items: Reply) -> bytes:
    """A push in RESP3."""
    return b">%d\r\n" % len(items) + b"".join(map(encode, items))


# ---- how servers differ


def exact(number: float) -> bytes:
    """A number that a script hands to a command, as text."""
    return b"%.17g" % number


@dataclass(frozen=True, slots=True)
class Dialect:
    """How a server's version shows to clients and scripts.

    `own_push_last`: what a connection publishes to itself comes after the answer, not before it;
    `takes_setinfo`: CLIENT SETINFO is known; `takes_sections`: INFO takes several; `wraps_errors`:
    the error of a command in a script becomes part of one that begins with ERR, whatever its own
    code; `number`: see `exact`.
    """

    software: bytes
    version: bytes
    own_push_last: bool = True
    takes_setinfo: bool = True
    takes_sections: bool = True
    wraps_errors: bool = False
    number: Callable[[float], bytes] = exact


REDIS_7_0 = Dialect(b"redis", b"7.0.15", own_push_last=False, takes_setinfo=False)


# ---- what a server keeps


class SortedSet:
    """Members in the order of their scores; those of one score in the order of their bytes."""

    __slots__ = ("_line", "_scores")

    def __init__(self) -> None:
        self._scores: dict[bytes, float] = {}
        self._line: list[tuple[float, bytes]] = []

    def __len__(self) -> int:
        return len(self._line)

    def score(self, member: bytes) -> float | None:
        return self._scores.get(member)

    def rank(self, member: bytes) -> int | None:
        score = self._scores.get(member)
        return None if score is None else bisect_left(self._line, (score, member))

    def put(self, member: bytes, score: float) -> None:
        self.drop(member)
        self._scores[member] = score
        insort(self._line, (score, member))

    def drop(self, member: bytes) -> bool:
        score = self._scores.pop(member, None)
        if score is not None:
            del self._line[bisect_left(self._line, (score, member))]
        return score is not None

    def line(self, first: int = 0, last: int = -1) -> list[tuple[float, bytes]]:
        """From one rank to another, both included; negative ones count from the end."""
        first, last = (max(at + len(self), 0) if at < 0 else at for at in (first, last + 1 or len(self)))
        return self._line[first:last]

    def copy(self) -> SortedSet:
        other = SortedSet()
        other._scores = self._scores.copy()
        other._line = self._line.copy()
        return other


class Hash(dict[bytes, bytes]):
    """Fields and their values."""

    def copy(self) -> Hash:
        return Hash(self)


Value: TypeAlias = bytes | Hash | SortedSet
V = TypeVar("V", bytes, Hash, SortedSet)


class Keyspace:
    """The keys of one database.

    `values`; `deadlines`: of those that expire, in ms of the server's clock.

    As in Redis, a key is there until its deadline has *passed*.
    """

    __slots__ = ("deadlines", "values")

    def __init__(self) -> None:
        self.values: dict[bytes, Value] = {}
        self.deadlines: dict[bytes, int] = {}

    def put(self, key: bytes, value: Value, deadline: int | None = None) -> None:
        self.values[key] = value
        if deadline is None:
            self.deadlines.pop(key, None)
        else:
            self.deadlines[key] = deadline

    def drop(self, key: bytes) -> None:
        del self.values[key]
        self.deadlines.pop(key, None)

    def clear(self) -> None:
        self.values.clear()
        self.deadlines.clear()

    def expired(self, now: int) -> list[bytes]:
        return [key for key, deadline in self.deadlines.items() if deadline < now]

    def copy(self) -> Keyspace:
        other = Keyspace()
        other.values = {key: value if isinstance(value, bytes) else value.copy() for key, value in self.values.items()}
        other.deadlines = self.deadlines.copy()
        return other
