"""Notes: what the holder of a lock says of itself, as bytes, and what a node's copy means. What a
leader says is kept in the same way.

Knows `scripts/announce.lua`, and where a note lies. Must not know which nodes exist, or who reads
it.

A note begins with its holder's token. So a note that outlasts its lease, or arrives late, is never
taken for one of another holder. That is why nodes need not remember that it is over, unlike what a
leader says.
"""

from __future__ import annotations

import re
from functools import partial
from typing import NamedTuple

from .. import checks
from ..errors import ConfigError
from ..scripts import ANNOUNCE
from ..wire.resp import evalsha
from .command import READER, Recipe, Statement
from .exclusive import beside
from .semaphore import Slots

LAST = 2**53 - 1  # the version of a resignation
LONGEST = 1024  # bytes: it goes to every node with every renewal
# Milliseconds that a last word stays: the least that an expiry can be.
_FORGOTTEN = 1
_SAID = re.compile(rb"\d+ \d+ \d+ (\S+) (.*)", re.DOTALL)


class Word(NamedTuple):
    """A statement of who leads.

    `left` is for how many seconds the leader is in office at least. 0 means that nobody is.
    """

    term: int
    version: int
    left: float = 0.0
    value: str = ""

    @property
    def rank(self) -> tuple[int, int]:
        """The order of words: the later one has the higher rank."""
        return self.term, self.version


def announcement(register: bytes, watchers: bytes, word: Word, keep: int) -> bytes:
    """The bytes that put a word into a register, unless a later one is there.

    Args:
        register: The register's key.
        watchers: The key of those who are told of a new word.
        word: The word.
        keep: Milliseconds for which it is remembered after it is no longer good.
    """
    term, version, left = b"%d" % word.term, b"%d" % word.version, b"%d" % round(word.left * 1000)
    return evalsha(ANNOUNCE, register, watchers, term, version, left, b"%d" % keep, word.value.encode())


class Note:
    """A holder's note on one lock. Immutable.

    Args:
        lock: The lock's key.
        horizon: K, the fence horizon, in ms.
        text: What the holder says.
    """

    __slots__ = ("_keep", "_keys", "_text")

    def __init__(self, lock: bytes, horizon: int, text: str) -> None:
        # A lock that is not an election's has no watchers, so nobody is told.
        self._keys = key_of(lock), beside(lock, b"watchers")
        # More than any ttl, or a renewal would shorten it.
        self._keep = 2 * horizon
        self._text = text

    def statement(self, token: bytes, fence: int, ttl: float) -> bytes:
        """Return the bytes that are said along with the lease."""
        if ttl <= 0:
            return announcement(*self._keys, Word(fence, LAST), _FORGOTTEN)
        return announcement(*self._keys, Word(fence, 1, ttl, f"{token.decode()} {self._text}"), self._keep)


def text_of(note: object) -> str:
    """Check a note.

    Args:
        note: A text; None: no note.

    Returns:
        The text. Empty if there is no note.

    Raises:
        ConfigError: It is no text, or longer than 1 KiB.
    """
    return "" if note is None else checks.text(note, "a note", most=LONGEST)


def key_of(lock: bytes) -> bytes:
    """Return the key in which a node keeps the note on a lock."""
    return beside(lock, b"note")


def with_note(recipes: tuple[Recipe, ...] | Slots, text: str) -> tuple[Recipe, ...] | Slots:
    """Have the holder of these locks, or slots, say this along with the lease.

    Args:
        recipes: The locks, or the slots of a semaphore.
        text: What the holder says. Not empty.

    Returns:
        The same locks or slots, with the note.

    Raises:
        ConfigError: They are the readers' side of a read-write lock.
    """
    if isinstance(recipes, Slots):
        return recipes.with_statements(partial(_statement, text, recipes.horizon))
    made = []
    for recipe in recipes:
        if recipe.kind == READER:
            raise ConfigError(
                f"a note is of a holder that has the lock alone, and {recipe.label!r} can have many readers: leave the "
                "note out, or pass it to `write()`"
            )
        made.append(recipe.with_statement(_statement(text, recipe.horizon, recipe.name)))
    return tuple(made)


def _statement(text: str, horizon: int, lock: bytes) -> Statement:
    return Note(lock, horizon, text).statement


def read(kept: object, holder: bytes | None) -> str | None:
    """Return what the holder of a lock says of itself.

    Args:
        kept: What a node keeps as the note on the lock.
        holder: The value of the lock's key.

    Returns:
        The text. None if the note is not the holder's, or there is no note.
    """
    said = _SAID.fullmatch(kept) if isinstance(kept, bytes) else None
    return said[2].decode("utf-8", "replace") if said is not None and said[1] == holder else None
