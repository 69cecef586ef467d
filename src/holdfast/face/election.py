"""Elections: what a leader says of itself, who leads, and what an observer is shown, in which order. Shared by both faces.

Knows the recipe, and what a lease is. Must not know who waits, or how: what is asked of nodes is a plan.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import AsyncIterable, Awaitable, Iterable
from dataclasses import dataclass, replace
from math import inf
from typing import TypeVar

from ..checks import Seconds
from ..core import quorum
from ..core.round import Round
from ..engine.crew import Watch
from ..engine.settings import Settings
from ..recipes.election import Heard, Office, Speech, Word, heard, value_of
from .lease import Lease
from .lock import Lock
from .looking import unheard
from .plans import TICK, Ask, Listen, Pause, Plan
from .terms import Terms, waiting


@dataclass(frozen=True, slots=True, kw_only=True)
class Leader:
    """Who leads, as far as the nodes tell. False if nobody does.

    `name`: of the election; `term`: of the leader, or the last one that is known if nobody leads (0: none is); `version`: of the value
    within its term, from 1 on, 0 if nobody leads; `value`: what the leader says of itself, None if nobody leads; `certain`: False when
    too few nodes answered to tell, and the rest is what was known before.
    """

    name: str
    term: int
    version: int
    value: str | None
    certain: bool = True

    def __bool__(self) -> bool:
        return self.value is not None


def leader_of(name: str, word: Word) -> Leader:
    """What a word says to users."""
    if word.left <= 0:
        return Leader(name=name, term=word.term, version=0, value=None)
    return Leader(name=name, term=word.term, version=word.version, value=word.value)


def offices(settings: Settings, name: str, value: str, ttl: float) -> tuple[Office, ...]:
    """The lock of whoever leads."""
    return (Office(name, value, prefix=settings.prefix, ttl=ttl, horizon=settings.horizon),)


# ------------------------------------------------ what is to be done


def look(settings: Settings, office: Office) -> Plan[Leader]:
    """Who leads. NoQuorum where too few nodes answer to tell."""
    found, seen = yield from _read(settings, office, b"", 0.0)
    if not found.enough or not (yield from _write_back(settings, office, found, seen)):
        raise unheard(settings, seen, office.label, "look for the leader of")
    return leader_of(office.label, found.word)


def publish(settings: Settings, speech: Speech, lease: Lease, value: str) -> Plan[None]:
    """Say something else from now on; over when a majority has it."""
    words, office = value_of(value), speech.office
    lease.check()
    speech.says(words)
    data = office.announce(speech.word(lease.fence, lease.remaining))
    size = len(settings.addresses)
    seen: Round = yield Ask(dict.fromkeys(range(size), data), lambda answers: len(answers) >= quorum.majority(size))
    lease.check()
    if not seen.sufficient:
        raise unheard(settings, seen, office.label, "publish a leader's value of")


def _read(settings: Settings, office: Office, token: bytes, ttl: float) -> Plan[tuple[Heard, Round]]:
    """What a majority says; all nodes tell the token of changes from then on."""
    size = len(settings.addresses)
    seen: Round = yield Ask(dict.fromkeys(range(size), office.watch(token, ttl)), lambda answers: heard(answers, size).clear)
    return heard(seen.answers, size), seen


def _write_back(settings: Settings, office: Office, found: Heard, seen: Round) -> Plan[bool]:
    """Before anybody acts on what was read, a majority has it, or something later: so nobody reads anything earlier after that."""
    size = len(settings.addresses)
    lacking = quorum.majority(size) - len(found.by)
    if lacking <= 0:
        return True
    word = replace(found.word, left=max(0.0, found.word.left - (seen.ended - seen.began)))
    others = dict.fromkeys([node for node in range(size) if node not in found.by], office.announce(word))
    told: Round = yield Ask(others, lambda answers: len(answers) >= lacking)
    return len(told.answers) >= lacking


class View:
    """What one observer was shown, and what it is shown next. `wait`: for how many seconds it looks on; `ttl`: how often, at least."""

    __slots__ = ("_office", "_pause", "_rank", "_settings", "_shown", "_ttl", "_until", "_wait", "_watch")

    def __init__(self, settings: Settings, office: Office, ttl: float, wait: Seconds | None) -> None:
        self._settings, self._office, self._ttl, self._wait = settings, office, ttl, waiting(wait)
        self._rank = (0, 0)  # the highest that was shown
        self._shown: Leader | None = None
        self._watch: Watch | None = None
        self._until = inf
        self._pause = 0.0

    def next(self) -> Plan[Leader | None]:
        """The next change; None: there will be none. The first one is how it is now."""
        if self._watch is None:
            self._watch = yield Listen()
        yield Pause(0.0, self._watch)  # (whatever it was told so far, the next look sees)
        while True:
            found, seen = yield from _read(self._settings, self._office, self._watch.token, 2 * self._ttl)
            if self._wait is not None and self._until == inf:
                self._until = seen.began + self._wait
            before, self._shown = self._shown, (yield from self._sees(found, seen))
            if self._shown != before:
                return self._shown
            left = self._until - seen.ended
            if left <= TICK or not (yield Pause(min(self._pause, left), self._watch)):
                return None

    def _sees(self, found: Heard, seen: Round) -> Plan[Leader]:
        """What there is to be seen now. Never anything earlier than before."""
        self._pause = self._ttl / 3
        if not found.enough:
            return self._guess()
        word = found.word if found.word.rank >= self._rank else Word(*self._rank)  # (forgotten: that one is not in office any more)
        if word.rank > self._rank and not (yield from _write_back(self._settings, self._office, found, seen)):
            return self._guess()
        self._rank = word.rank
        self._pause = min(self._ttl, word.left or inf)
        return leader_of(self._office.label, word)

    def _guess(self) -> Leader:
        """Nobody can tell: what was there before, perhaps still is."""
        return replace(self._shown or leader_of(self._office.label, Word(0, 0)), certain=False)


# ------------------------------------------------ what users have


T = TypeVar("T", bound=Lease)


class Leadership(Lease):
    """The lease of whoever leads: what `campaign` and `with` give. All that a Lease can do; its fence is the term."""

    __slots__ = ()

    @property
    def term(self) -> int:
        """The term: greater than that of every earlier leader. Hand it, as a fence, to whatever only the leader may do."""
        fence: int = self.fence
        return fence

    @property
    def is_leader(self) -> bool:
        """Is this certainly the leader, now? No I/O: ask as often as you like. (After it, a moment passes: see `term`.)"""
        return self.held

    @abstractmethod
    def publish(self, value: str) -> Awaitable[None] | None:
        """Say something else to observers from now on: a text of at most 64 KiB. Returns when a majority of the nodes has it.

        Raises LockLost if this is not the leader any more; NoQuorum if too few nodes answered: it is said again with each renewal all the
        same, so it may be seen later, or has been seen already. ConfigError for what is no such text, before anything is said.
        """

    @abstractmethod
    def resign(self, confirm: bool = False) -> int | Awaitable[int]:
        """Leave office: observers see that nobody leads, and whoever is first in line takes over at once.

        Like `release`: waits for no answer, unless `confirm`, then (at most `node_timeout`) until a majority has confirmed, and returns on
        how many nodes it is certain. Twice is nothing; raises LockLost if it was lost before, once.
        """

    def __repr__(self) -> str:
        return f"<Leadership of {self.name!r} term={self.term} {self.state.name}>"


def spoken(terms: Terms) -> tuple[Terms, Speech]:
    """The terms of one campaign, and what is said by whoever wins it."""
    (office,) = terms.recipes
    assert isinstance(office, Office)
    speech = Speech(office)
    return terms._replace(recipes=(office.with_rider(speech.rider),)), speech


class Election(Lock[T]):
    """The description of an election: immutable, shared by as many users as you like. `campaign` and `with` give a Leadership.

    In all else it is a lock: whoever waits stands in line, and a `with` block, or a decorated function, runs as the leader.
    """

    __slots__ = ()

    @property
    def _office(self) -> Office:
        (office,) = self._terms.recipes
        assert isinstance(office, Office)
        return office

    @property
    def _spelled(self) -> None:
        # no decorator fills the name of an election
        return None

    @abstractmethod
    def campaign(self) -> T | Awaitable[T]:
        """Wait until this is the leader, as long as the election's `wait` says; the Leadership is the caller's, to be resigned.

        The same as `acquire`, and raises the same. Observers are told at once, and the caller does not wait for that.
        """

    @abstractmethod
    def leader(self) -> Leader | Awaitable[Leader]:
        """Look once who leads: a Leader, which is false if nobody does. For everybody; takes no part.

        One round trip; two, if what was found is on so few nodes that it has to be passed on first, so that nobody who looks later sees
        less. It may be over when it returns. Raises NoQuorum if too few nodes answer to tell.
        """

    @abstractmethod
    def observe(self, wait: Seconds | None = None) -> Iterable[Leader] | AsyncIterable[Leader]:
        """Look on, without polling: how it is now, and each change, as Leaders, one after the other, and never an earlier one again.

        For everybody; takes no part. When too few nodes answer it shows what was known, with `certain` false. A value or a term that was
        over soon may pass unseen. `wait`: the loop ends after so many seconds (default: never). Whoever leaves the loop leaves nothing
        behind that lasts: nodes forget an observer after two ttls. Closed is raised when the client is closed. Threads may hand over
        `cancel`, a `threading.Event`: soon (50 ms) after another thread has set it, the loop ends. (A task has its own `cancel()`.)
        """

    def __repr__(self) -> str:
        return f"<Election {self.name!r} ttl={self.ttl:g}>"
