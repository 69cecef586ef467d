"""Elections on one node: the lock of an office, and the register in which its holder says who
leads. Both as bytes, and what answers mean.

Knows `scripts/watch.lua`, and announcements (`protocol.note`). Must not know which nodes there are,
who waits, or what time it is.

The term is the fence of the lock. A leader's statement has a version within its term, and the
highest (term, version) counts. A leader that resigns uses the highest version possible. So a
resignation counts more than the leader's other statements, however late these arrive.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count
from typing import NamedTuple

from ... import checks
from ...protocol.exclusive import Exclusive, beside
from ...protocol.note import LAST, Word, announcement
from ...protocol.quorum import Quorum
from ...scripts import WATCH
from ...wire.resp import evalsha

LONGEST_VALUE = 65536  # bytes: it goes to every node with every renewal


class ElectionHeard(NamedTuple):
    """The answers of several nodes together.

    Attributes:
        word: The highest word, with the longest time that a node reports for it.
        by: The nodes that have it.
        enough: Whether a majority has answered.
        clear: Whether they agree, so that the other nodes need not be waited for.
    """

    word: Word
    by: frozenset[int]
    enough: bool
    clear: bool


class ElectionLock(Exclusive):
    """The lock of an office, and its register. Immutable.

    `value` is a leader's first statement. The other parameters are those of an Exclusive.
    """

    __slots__ = ("_leader", "_watchers", "value")

    def __init__(self, name: str, value: str, *, prefix: str = "", ttl: float, horizon: int) -> None:
        super().__init__(name, prefix=prefix, ttl=ttl, horizon=horizon, own="election")
        self.value = value_of(value)
        self._leader, self._watchers = beside(self.name, b"leader"), beside(self.name, b"watchers")

    def announce(self, word: Word) -> bytes:
        """Return the bytes that announce this word to a node.

        The node remembers it for one guard longer than it is valid.
        """
        return announcement(self._leader, self._watchers, word, 2 * self.horizon)

    def watch(self, token: bytes, ttl: float) -> bytes:
        """Return the bytes that ask a node who leads.

        The node tells the token of changes for `ttl` seconds. With an empty token, it only answers.
        """
        return evalsha(WATCH, self._leader, self._watchers, token, b"%d" % round(ttl * 1000))


class LeaderStatements:
    """A leader's statements, version by version, beginning with the office's own value.

    Threads may add statements at the same time, without a lock: each takes a version of its own,
    and only lower versions are ever forgotten.
    """

    def __init__(self, office: ElectionLock) -> None:
        self.office, self._versions = office, count(1)
        self._said: dict[int, str] = {}
        self.says(office.value)

    def says(self, value: str) -> None:
        """Make this value the current statement."""
        version = next(self._versions)
        self._said[version] = value

    def word(self, term: int, left: float) -> Word:
        """Return the latest statement, valid for `left` seconds. 0 makes it a resignation."""
        if left <= 0:
            return Word(term, LAST)
        # One step, because other threads may add statements meanwhile.
        said = self._said.copy()
        version = max(said)
        for earlier in said:
            if earlier < version:
                self._said.pop(earlier, None)
        return Word(term, version, left, said[version])

    def statement(self, token: bytes, fence: int, ttl: float) -> bytes:
        """Return the bytes of the statement, which go along with a request for the lock."""
        return self.office.announce(self.word(fence, ttl))


def value_of(value: object) -> str:
    """Return a leader's value. Raise ConfigError for a value that is no text, or too long."""
    return checks.text(value, "what a leader says", most=LONGEST_VALUE)


def heard(answers: Mapping[int, object], decides: Quorum) -> ElectionHeard:
    """Combine the answers of nodes to `watch`. Answers of another form do not count."""
    words = {node: word for node, reply in answers.items() if (word := _read(reply)) is not None}
    # Of those with the same rank, the one with the longest time left.
    highest = max(words.values(), default=Word(0, 0))
    by = frozenset(node for node, word in words.items() if word.rank == highest.rank)
    over = frozenset(node for node in by if words[node].left <= 0)
    # One node's clock may be wrong.
    if decides.met(over):
        highest = Word(highest.term, highest.version, 0.0, highest.value)
    enough = decides.met(words)
    return ElectionHeard(highest, by, enough, clear=enough and (not over or over == by or decides.met(over)))


def _read(reply: object) -> Word | None:
    """Read one node's answer. None if the script does not answer like this."""
    if not isinstance(reply, list) or len(reply) != 4:
        return None
    *numbers, value = reply
    if not isinstance(value, bytes) or not all(type(it) is int and 0 <= it <= LAST for it in numbers):
        return None
    term, version, left = numbers
    return Word(term, version, left / 1000, value.decode("utf-8", "replace"))
