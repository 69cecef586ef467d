"""Latches and barriers on one node: their keys, their commands as bytes, and what answers mean.

Knows `scripts/arrive.lua`. Must not know which nodes there are, who waits, or when a generation is
over for all.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from ... import checks
from ...errors import ConfigError, readable
from ...protocol.exclusive import LONGEST, beside, key_of
from ...scripts import ARRIVE
from ...wire.resp import evalsha

# The largest count: a newcomer is told of all earlier arrivals.
MOST = 1000
LATCH, BARRIER = "latch", "barrier"


class LatchAnswer(NamedTuple):
    """One node's answer.

    Attributes:
        over: How many generations are over.
        birth: Since when the node remembers.
        known: How many ids it left out, because it has told them before.
        text: The other ids. Of a generation that is over, those of the question that came too late,
            because the set was full.
    """

    over: int
    birth: bytes
    known: int
    text: bytes = b""

    @property
    def ids(self) -> Sequence[bytes]:
        """The ids in the answer."""
        return self.text.split(b"\0") if self.text else []


class Gathering:
    """The commands of one latch or barrier. Immutable.

    Args:
        kind: LATCH or BARRIER.
        name: The name of the latch or barrier.
        count: How many have to arrive.
        keep: For how many seconds a node remembers it after its last use.
        prefix: The prefix of all keys of the client.
    """

    def __init__(self, kind: str, name: str, count: int, keep: float, *, prefix: str = "") -> None:
        self._key = key_of(name, prefix)
        self.kind, self.name = kind, name
        self.count = checks.whole(count, "count" if kind == LATCH else "parties", most=MOST)
        self._state = beside(self._key, kind.encode())
        self._count, self._keep = b"%d" % self.count, b"%d" % round(keep * 1000)

    @property
    def state(self) -> bytes:
        """The key of its state."""
        return self._state

    def say(
        self,
        generation: int,
        ids: Iterable[bytes],
        birth: bytes,
        known: int,
        *,
        over: bool = False,
        token: bytes = b"",
        ttl: float = 0.0,
    ) -> bytes:
        """Return the bytes that report arrivals in a generation, and ask for all others.

        Args:
            generation: The generation.
            ids: The arrivals to report.
            birth: The node's `birth` in its last answer.
            known: How many ids the node has told so far.
            over: Whether somebody has seen that all have arrived.
            token: The waiter to tell when all have arrived.
            ttl: Seconds for which the node remembers that waiter.
        """
        told = b"%d" % over, birth, b"%d" % known
        return self._arrives(generation, self._keep, *told, token, b"%d" % round(ttl * 1000), b"\0".join(ids))

    def look(self, generation: int) -> bytes:
        """Return the bytes that ask who has arrived in a generation, and change nothing."""
        return self._arrives(generation, b"0", b"0", b"0", b"0", b"", b"0", b"")

    def _arrives(self, generation: int, *words: bytes) -> bytes:
        sets = [beside(self._key, it) for it in self._sets(generation)]
        return evalsha(ARRIVE, self._state, *sets, self._count, b"%d" % generation, *words)

    def _sets(self, generation: int) -> tuple[bytes, bytes, bytes]:
        """Return the sets of arrivals, of waiters, and of what can be forgotten afterwards."""
        if self.kind == LATCH:
            return b"arrived", b"awaited", b"arrived"
        return b"arrived%d" % generation, b"awaited%d" % generation, b"arrived%d" % (generation - 1)

    def read(self, reply: object) -> LatchAnswer | str | None:
        """Read a node's answer.

        Returns:
            The answer. A text is the count that others have named. None if the script does not
            answer like this.
        """
        match reply:
            case [int(over), bytes(birth), int(known), bytes(ids)]:
                return LatchAnswer(over, birth, known, ids)
            case bytes(other):
                return readable(other.decode("utf-8", "replace"))
        return None

    def disagreement(self, others: Collection[str]) -> ConfigError:
        """Return the error for clients that name different counts."""
        theirs = " or ".join(sorted(set(others)))
        what = "count" if self.kind == LATCH else "parties"
        return ConfigError(
            f"{self.kind} {self.name!r} waits for {theirs} for others, and for {self.count} here: "
            f"all who use it must name the same `{what}`. Take another name; "
            "the old number is forgotten when nobody has used it for as long as it is kept (`keep=`)."
        )


def id_of(value: object) -> bytes:
    """Return an id as nodes note it. Raise ConfigError for a text that cannot be an id."""
    text = checks.name(value, "an id", most=LONGEST)
    if not text or "\0" in text:
        raise ConfigError(
            f"an id is a text of 1 to {LONGEST} bytes without NUL, not {checks.shown(value)}. "
            "An arrival at a latch may have none",
            "bad_name",
        )
    return text.encode()
