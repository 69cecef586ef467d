"""An election: the lock of an office, and the register in which its holder says who leads; both as bytes, and what answers mean.

Knows `scripts/announce.lua` and `scripts/watch.lua`. Must not know which nodes there are, who waits, or what time it is.

The term is the fence of the lock. What a leader says has a version within its term, and the highest (term, version) counts. Who resigns
says the highest version that there can be: whatever else it said, and whenever that arrives, comes before it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass
from itertools import count

from .. import checks
from ..core import quorum
from ..scripts import ANNOUNCE, WATCH, Script
from ..wire.resp import pack
from .exclusive import Exclusive, beside

LAST = 2**53 - 1  # the version of a resignation
LONGEST_VALUE = 65536  # bytes: it goes to every node with every renewal


@dataclass(frozen=True, slots=True, order=True)
class Word:
    """What was said of an office. `left`: for how many seconds its leader is in office at least; 0: nobody is."""

    term: int
    version: int
    left: float = 0.0
    value: str = ""

    @property
    def rank(self) -> tuple[int, int]:
        """Which of two words is the later one."""
        return self.term, self.version


@dataclass(frozen=True, slots=True)
class Heard:
    """What the nodes that have answered say together: the highest `word`, with the longest time that is left of it.

    `by`: the nodes that have it; `enough`: has a majority told? `clear`: do they agree, so that the others need not be waited for?
    """

    word: Word
    by: frozenset[int]
    enough: bool
    clear: bool


class Office(Exclusive):
    """The lock of an office, and what goes with it. Immutable.

    `value`: what a leader says first; the other parameters are those of an Exclusive.
    """

    __slots__ = ("_leader", "_watchers", "rider", "value")
    rider: Callable[[int, float], bytes] | None

    def __init__(self, name: str, value: str, *, prefix: str = "", ttl: float, horizon: int) -> None:
        super().__init__(name, prefix=prefix, ttl=ttl, horizon=horizon, own="election")
        self.value = value_of(value)
        self._leader, self._watchers = beside(self.name, b"leader"), beside(self.name, b"watchers")
        self.rider = None

    def with_rider(self, rider: Callable[[int, float], bytes]) -> Office:
        """The same lock, for one who has something to say while holding it."""
        other = copy(self)
        other.rider = rider
        return other

    def announce(self, word: Word) -> bytes:
        """The bytes that say this to a node. It is remembered for a guard longer than it is good for."""
        term, version, left, keep = word.term, word.version, round(word.left * 1000), 2 * self.horizon
        return self._say(ANNOUNCE, b"%d" % term, b"%d" % version, b"%d" % left, b"%d" % keep, word.value.encode())

    def watch(self, token: bytes, ttl: float) -> bytes:
        """The bytes that ask a node who leads, and have it tell this token of changes, for `ttl` seconds. An empty one: only ask."""
        return self._say(WATCH, token, b"%d" % round(ttl * 1000))

    def _say(self, script: Script, *arguments: bytes) -> bytes:
        return pack(b"EVALSHA", script.sha, b"%d" % script.keys, self._leader, self._watchers, *arguments)


class Speech:
    """What a leader says, version by version, beginning with the office's own value.

    Threads may say something at the same time, without a lock: a version is whoever's who took it, and only lower ones are ever forgotten.
    """

    __slots__ = ("_said", "_versions", "office")

    def __init__(self, office: Office) -> None:
        self.office, self._versions = office, count(1)
        self._said: dict[int, str] = {}
        self.says(office.value)

    def says(self, value: str) -> None:
        """From now on this."""
        version = next(self._versions)
        self._said[version] = value

    def word(self, term: int, left: float) -> Word:
        """The latest, good for so many seconds; 0: a resignation."""
        if left <= 0:
            return Word(term, LAST)
        said = self._said.copy()  # (in one step, whoever else is about to say something)
        version = max(said)
        for earlier in said:
            if earlier < version:
                self._said.pop(earlier, None)
        return Word(term, version, left, said[version])

    def rider(self, fence: int, ttl: float) -> bytes:
        """The bytes of it, along with what is said of the lock."""
        return self.office.announce(self.word(fence, ttl))


def value_of(value: object) -> str:
    """What a leader may say of itself. ConfigError for what cannot be said."""
    return checks.text(value, "what a leader says", most=LONGEST_VALUE)


def heard(answers: Mapping[int, object], nodes: int) -> Heard:
    """What the answers of some of these nodes to `watch` say together. Answers that are none do not count."""
    words = {node: word for node, reply in answers.items() if (word := _read(reply)) is not None}
    needed = quorum.majority(nodes)
    highest = max(words.values(), default=Word(0, 0))  # (of those with the same rank, the one with the longest time left)
    by = frozenset(node for node, word in words.items() if word.rank == highest.rank)
    over = sum(words[node].left <= 0 for node in by)
    if over >= needed:  # one node's clock may be wrong
        highest = Word(highest.term, highest.version, 0.0, highest.value)
    enough = len(words) >= needed
    return Heard(highest, by, enough, clear=enough and (over in (0, len(by)) or over >= needed))


def _read(reply: object) -> Word | None:
    """One node's answer; None if that is not what the script says."""
    if not isinstance(reply, list) or len(reply) != 4:
        return None
    *numbers, value = reply
    if not isinstance(value, bytes) or not all(type(it) is int and 0 <= it <= LAST for it in numbers):
        return None
    term, version, left = numbers
    return Word(term, version, left / 1000, value.decode("utf-8", "replace"))
