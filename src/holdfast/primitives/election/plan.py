"""Elections: what a leader announces, who leads, and what an observer sees, in which order.

Knows the recipe, and what a lease is. Must not know who waits, or how: what is asked of nodes is a
plan.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import AsyncIterable, Awaitable, Iterable
from dataclasses import dataclass, replace
from math import inf
from typing import TypeVar

from ... import checks
from ...checks import Seconds
from ...engine.engine import Watch
from ...engine.plans import TICK, Ask, Do, Pause, Plan
from ...engine.settings import Settings
from ...face.lease import Lease
from ...face.lock import Lock
from ...face.shards import Shards
from ...face.terms import ElectionOptions, LockTerms, allow, terms, waiting
from ...operations.inspection.plan import unheard
from ...protocol.exclusive import LONGEST
from ...protocol.note import Word
from ...protocol.query import Query
from .commands import ElectionHeard, ElectionLock, LeaderStatements, heard, value_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Leader:
    """Who leads, as far as the nodes know. False if nobody does.

    Attributes:
        name: The election's name.
        term: The leader's term. If nobody leads, the last one that is known; 0 if none is.
        version: The number of the value within its term, from 1. 0 if nobody leads.
        value: What the leader has announced. None if nobody leads.
        certain: False if too few nodes answered to know. The other fields are then what was known
            before.
    """

    name: str
    term: int
    version: int
    value: str | None
    certain: bool = True

    def __bool__(self) -> bool:
        return self.value is not None


def leader_of(name: str, word: Word) -> Leader:
    """Return what users see of a word."""
    if word.left <= 0:
        return Leader(name=name, term=word.term, version=0, value=None)
    return Leader(name=name, term=word.term, version=word.version, value=word.value)


def campaign(shards: Shards, name: str, value: str, options: ElectionOptions) -> tuple[LockTerms, int]:
    """Return the lock that the leader holds, and the number of its shard.

    Raises:
        ConfigError: The name or an option cannot work.
    """
    at = shards.settled(checks.name(name, "an election's name", most=LONGEST), "election")
    settings = shards.all[at].settings
    allow(options, "election", ElectionOptions)

    def offices(ttl: float) -> tuple[ElectionLock, ...]:
        return (ElectionLock(name, value, prefix=settings.prefix, ttl=ttl, horizon=settings.horizon),)

    return terms(settings, offices, **options), at


# ------------------------------------------------ what is to be done


def look(settings: Settings, office: ElectionLock) -> Plan[Leader]:
    """Ask the nodes who leads. Raise NoQuorum if too few answer to know."""
    found, seen = yield from _read(settings, office, b"", 0.0)
    if not found.enough or not (yield from _write_back(settings, office, found, seen)):
        raise unheard(settings, seen, office.label, "look for the leader of")
    return leader_of(office.label, found.word)


def publish(settings: Settings, speech: LeaderStatements, lease: Lease, value: str) -> Plan[None]:
    """Announce another value from now on, and wait until a majority of the nodes has it."""
    words, office = value_of(value), speech.office
    lease.check()
    speech.says(words)
    data = office.announce(speech.word(lease.fence, lease.remaining))
    decides = settings.quorum
    seen: Query = yield Ask(dict.fromkeys(decides.nodes, data), decides.met)
    lease.check()
    if not seen.sufficient:
        raise unheard(settings, seen, office.label, "publish a leader's value of")


def _read(settings: Settings, office: ElectionLock, token: bytes, ttl: float) -> Plan[tuple[ElectionHeard, Query]]:
    """Ask what a majority says. All nodes notify the token of changes from then on."""
    decides = settings.quorum
    seen: Query = yield Ask(
        dict.fromkeys(decides.nodes, office.watch(token, ttl)), lambda answers: heard(answers, decides).clear
    )
    return heard(seen.answers, decides), seen


def _write_back(settings: Settings, office: ElectionLock, found: ElectionHeard, seen: Query) -> Plan[bool]:
    """Make sure that a majority has what was read, or something later, before anybody acts on it.

    Otherwise a caller that asks later could read something earlier.
    """
    decides = settings.quorum
    if decides.met(found.by):
        return True
    word = found.word._replace(left=max(0.0, found.word.left - (seen.ended - seen.began)))
    others = dict.fromkeys(decides.nodes - found.by, office.announce(word))
    told: Query = yield Ask(others, lambda answers: decides.met(found.by | answers.keys()))
    return decides.met(found.by | told.answers.keys())


class View:
    """What one observer has seen, and what it sees next.

    Args:
        settings: Those of the nodes.
        office: The election.
        ttl: Seconds. The observer asks at least this often.
        wait: Seconds for which it observes. None: for ever.
    """

    def __init__(self, settings: Settings, office: ElectionLock, ttl: float, wait: Seconds | None) -> None:
        self._settings, self._office, self._ttl, self._wait = settings, office, ttl, waiting(wait)
        # The rank of the newest word that was shown.
        self._rank = (0, 0)
        self._shown: Leader | None = None
        self._watch: Watch | None = None
        self._until = inf
        self._pause = 0.0

    def next(self) -> Plan[Leader | None]:
        """Return the next change. The first one is the present state.

        None: there will be no more.
        """
        if self._watch is None:
            self._watch = yield Do(lambda it: it.listen())
        # Clear what it was told so far: the next question sees it.
        yield Pause(0.0, self._watch)
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

    def _sees(self, found: ElectionHeard, seen: Query) -> Plan[Leader]:
        """Return what is to be seen now. Never anything earlier than before."""
        self._pause = self._ttl / 3
        if not found.enough:
            return self._guess()
        # If nodes have forgotten a word that was shown, that leader is not in office any more.
        word = found.word if found.word.rank >= self._rank else Word(*self._rank)
        if word.rank > self._rank and not (yield from _write_back(self._settings, self._office, found, seen)):
            return self._guess()
        self._rank = word.rank
        self._pause = min(self._ttl, word.left or inf)
        return leader_of(self._office.label, word)

    def _guess(self) -> Leader:
        """Return what was known before, as uncertain, because too few nodes answer."""
        return replace(self._shown or leader_of(self._office.label, Word(0, 0)), certain=False)


# ------------------------------------------------ what users have


T = TypeVar("T", bound=Lease)


class Leadership(Lease):
    """The lease of the leader. `campaign` and `with` return it.

    It can do all that a Lease can. Its fence is the term.
    """

    __slots__ = ()

    @property
    def term(self) -> int:
        """The term: greater than that of every earlier leader.

        Pass it as a fence with everything that only the leader may do.
        """
        fence: int = self.fence
        return fence

    @property
    def is_leader(self) -> bool:
        """Whether this is certainly the leader now. Asks no node, so read it as often as you like.

        A moment passes between reading it and acting on it: pass `term` as a fence, too.
        """
        return self.held

    @abstractmethod
    def publish(self, value: str) -> Awaitable[None] | None:
        """Announce another value to observers, and wait until a majority of the nodes has it.

        Args:
            value: A text of at most 64 KiB.

        Raises:
            LockLost: This is not the leader any more.
            NoQuorum: Too few nodes answered. Observers may see the value all the same, now or
                later, because each renewal sends it again.
            Misuse: The leadership was resigned (`not_held`).
            ConfigError: The value is no such text. Nothing was sent.
        """

    @abstractmethod
    def resign(self, confirm: bool = False) -> int | Awaitable[int]:
        """Leave office. Observers see that nobody leads, and the first standby takes over at once.

        Idempotent. When it returns, the resignation has been sent, and is sent again after a
        reconnect.

        Args:
            confirm: Wait until a majority of the nodes has confirmed, for at most `node_timeout`
                (default: False).

        Returns:
            With `confirm`, the number of nodes that have confirmed so far. Otherwise 0.

        Raises:
            LockLost: The leadership was lost before. Raised once.
            Misuse: It belongs to the process that this one was forked from (`wrong_process`).
        """


def spoken(terms: LockTerms) -> tuple[LockTerms, LeaderStatements]:
    """Return the terms of one campaign, and what its winner announces."""
    (office,) = terms.recipes
    assert isinstance(office, ElectionLock)
    speech = LeaderStatements(office)
    return terms._replace(recipes=(office.with_statement(speech.statement),)), speech


class Election(Lock[T]):
    """The description of an election. It is immutable, and threads or tasks may share it.

    `with` and `campaign()` wait to become the leader, and give you a Leadership. In everything else
    it is a lock: candidates wait in a queue, and a `with` block or a decorated function runs as the
    leader.
    """

    __slots__ = ()

    @property
    def _office(self) -> ElectionLock:
        (office,) = self._terms.recipes
        assert isinstance(office, ElectionLock)
        return office

    @property
    def _spelled(self) -> None:
        # No decorator fills the name of an election.
        return None

    @abstractmethod
    def campaign(self) -> T | Awaitable[T]:
        """Wait to become the leader, for at most the election's `wait` seconds.

        The same as `acquire()`. Keep the leadership and resign it, or use `with`, which does both.
        Observers see the new leader at once; this call does not wait for that.

        Args:
            cancel: Threads only: a `threading.Event`. At most 50 ms after another thread has set
                it, the wait ends with Cancelled. With asyncio, cancel the task.

        Returns:
            The Leadership.

        Raises:
            LockBusy: `wait` ran out, and another client leads.
            NoQuorum: Too few nodes answered to know whether another client leads.
            Misuse: This thread or task leads already, and would wait for itself (`self_deadlock`).
            Cancelled: `cancel` was set.
            Misuse: The client was closed before or during the wait (`closed`).
        """

    @abstractmethod
    def leader(self) -> Leader | Awaitable[Leader]:
        """Ask the nodes who leads. Any client may ask: it does not take part in the election.

        Takes one round trip. It takes two if so few nodes have the answer that it must be copied to
        others first, so that nobody who asks later sees less. The answer may be out of date when
        you read it.

        Returns:
            A Leader, which is false if nobody leads.

        Raises:
            NoQuorum: Too few nodes answered to know.
        """

    @abstractmethod
    def observe(self, wait: Seconds | None = None) -> Iterable[Leader] | AsyncIterable[Leader]:
        """Follow who leads, without polling and without taking part in the election.

        Loop over the result (with asyncio, by `async for`). It yields the present state first, then
        each change, and never an earlier state again. If too few nodes answer, it yields what was
        known before, with `certain` False. It may miss a value or a term that was over soon. You
        may leave the loop at any time: the nodes forget an observer after two ttls.

        Args:
            wait: Seconds after which the loop ends (default: None, never).
            cancel: Threads only: a `threading.Event`. At most 50 ms after another thread has set
                it, the loop ends. With asyncio, cancel the task.

        Returns:
            An Observation, which yields Leaders.

        Raises:
            ConfigError: `wait` is no duration.
            Misuse: Raised by the loop: the client was closed (`closed`).
        """

    def __repr__(self) -> str:
        return f"<Election {self.name!r} ttl={self.ttl:g}>"
