"""Those who come together, at a latch or in the generations of a barrier: its keys on a node, what is said as bytes, what an answer means.

Knows `scripts/arrive.lua`. Must not know which nodes there are, who waits, or when a generation is over for all.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from .. import checks
from ..errors import ConfigError, readable
from ..scripts import ARRIVE
from ..wire.resp import pack
from .exclusive import LONGEST, beside, key_of

MOST = 1000  # that a latch or a barrier waits for: who comes new is told of all who have come before
LATCH, BARRIER = "latch", "barrier"


class Told(NamedTuple):
    """One node's answer. `over`: so many generations are; `birth`: since when it remembers; `known`: how many ids it left out, because they
    were told before; `text`: the others. Of a generation that is over it tells only those that came too late: who was asked for, and is
    not among so many as there may be."""

    over: int
    birth: bytes
    known: int
    text: bytes = b""

    @property
    def ids(self) -> Sequence[bytes]:
        """Those that it told."""
        return self.text.split(b"\0") if self.text else []


class Gathering:
    """What is said to a node about one latch or barrier. Immutable.

    `kind`: LATCH or BARRIER; `count`: how many have to come; `keep`: for how many seconds a node is to remember it, from the last word on.
    """

    __slots__ = ("_count", "_keep", "_key", "_state", "count", "kind", "name")

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
        self, generation: int, ids: Iterable[bytes], birth: bytes, known: int, *, over: bool = False, token: bytes = b"", ttl: float = 0.0
    ) -> bytes:
        """The bytes that say who has arrived in a generation, and ask who else has. `birth`, `known`: what the node has told of it before,
        and how many ids in all.

        `over`: all have, somebody has seen it; `token`: is to be told when all have, if that is within `ttl` seconds.
        """
        return pack(
            *(b"EVALSHA", ARRIVE.sha, b"%d" % ARRIVE.keys, self._state, *[beside(self._key, it) for it in self._sets(generation)]),
            *(self._count, b"%d" % generation, self._keep, b"%d" % over, birth, b"%d" % known),
            *(token, b"%d" % round(ttl * 1000), b"\0".join(ids)),
        )

    def look(self, generation: int) -> bytes:
        """The bytes that ask who has arrived in a generation, and change nothing on the node."""
        sets = [beside(self._key, it) for it in self._sets(generation)]
        return pack(
            *(b"EVALSHA", ARRIVE.sha, b"%d" % ARRIVE.keys, self._state, *sets),
            *(self._count, b"%d" % generation, b"0", b"0", b"0", b"0", b"", b"0", b""),
        )

    def _sets(self, generation: int) -> tuple[bytes, bytes, bytes]:
        """Who has arrived, who waits, and what can be forgotten afterwards."""
        if self.kind == LATCH:
            return b"arrived", b"awaited", b"arrived"
        return b"arrived%d" % generation, b"awaited%d" % generation, b"arrived%d" % (generation - 1)

    def read(self, reply: object) -> Told | str | None:
        """What a node answered; a text: the count that others have named; None: that is not what the script says."""
        match reply:
            case [int(over), bytes(birth), int(known), bytes(ids)]:
                return Told(over, birth, known, ids)
            case bytes(other):
                return readable(other.decode("utf-8", "replace"))
        return None

    def disagreement(self, others: Collection[str]) -> ConfigError:
        """Others wait for another number."""
        theirs, what = " or ".join(sorted(set(others))), "count" if self.kind == LATCH else "parties"
        return ConfigError(
            f"{self.kind} {self.name!r} waits for {theirs} for others, and for {self.count} here: all who use it must name the same "
            f"`{what}`. Take another name; the old number is forgotten when nobody has used it for as long as it is kept (`keep=`)."
        )


def id_of(value: object) -> bytes:
    """Who arrives, as nodes note it. ConfigError for what cannot be an id."""
    text = checks.text(value, "an id", most=LONGEST)
    if not text or "\0" in text:
        shown = checks.shown(value)
        raise ConfigError(f"an id is a text of 1 to {LONGEST} bytes without NUL, not {shown}. An arrival at a latch may have none")
    return text.encode()
