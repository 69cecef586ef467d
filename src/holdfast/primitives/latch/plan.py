"""Latches and barriers: their options, the plans of their calls, and when all have arrived.

Shared by both faces. Knows recipes, and that queries have answers. Must not know who waits for
them: a plan yields steps (ask nodes, let time pass, listen for a push), and returns a result.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Collection, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, TypeVar

from ... import checks
from ...checks import Seconds
from ...engine.engine import Watch
from ...engine.plans import TICK, Ask, Do, Pause, Plan
from ...engine.settings import Settings
from ...errors import Cancelled, ConfigError, Misuse, NoQuorum, NotAcquired, NotAllArrived
from ...events import Called
from ...face.shards import Shards
from ...face.terms import LONGEST_WAIT, Description, waiting
from ...face.tracing import ObservedCall
from ...operations.repair.plan import mend
from ...protocol.exclusive import LONGEST
from ...protocol.nodes import too_few
from ...protocol.query import Answers, Query
from ...protocol.quorum import Quorum
from ...protocol.ticket import TOKEN
from . import commands as recipes
from .commands import LatchAnswer, id_of

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class LatchTerms:
    """The checked options of a latch or barrier. `wait` is in seconds."""

    recipe: recipes.Gathering
    settings: Settings
    wait: float | None

    @property
    def quorum(self) -> Quorum:
        """Which of the nodes decide."""
        return self.settings.quorum


def terms(
    shards: Shards, kind: str, name: str, count: int, keep: Seconds, wait: Seconds | None
) -> tuple[LatchTerms, int]:
    """Check the options, and find the shard.

    ConfigError says which one is wrong, and what to write instead.
    """
    at = shards.settled(checks.name(name, f"a {kind}'s name", most=LONGEST), kind)
    settings = shards.all[at].settings
    # A waiter asks the nodes more often than every `max_ttl`, and so keeps the latch.
    kept = checks.seconds(keep, "keep", least=settings.max_ttl, most=LONGEST_WAIT)
    return LatchTerms(recipes.Gathering(kind, name, count, kept, prefix=settings.prefix), settings, waiting(wait)), at


# ------------------------------------------------ what is to be done


class Arrivals:
    """One caller's knowledge of one generation: all arrivals, and which of them each node knows.

    With each question it tells each node the arrivals that this node has not reported. So a node
    learns again what it forgot, and an arrival that few nodes know is written back before anybody
    acts on it.
    """

    def __init__(self, terms: LatchTerms, generation: int = 0, me: bytes = b"") -> None:
        self._terms, self.generation = terms, generation
        # The ids of all nodes, each once in memory.
        self.ids: dict[bytes, bytes] = {}
        # By node: since when it remembers, how many ids it has told, and which.
        self._seen: dict[int, tuple[bytes, int, set[bytes]]] = {}
        # How many generations are over, as far as any node knows.
        self.latest = generation
        # The beginning of the first round, and the end of the last.
        self.began = self.ended = 0.0
        # The last round: when it began, which nodes answered, and which know that it is over.
        self.asked, self.heard, self.sure = 0.0, set[int](), set[int]()
        # The nodes that are in their restart guard, and will be usable when it ends.
        self.hoped: Collection[int] = ()
        self._causes: dict[int, Exception] = {}
        self._me, self._confirmed = b"", True
        if me:
            self.arrives(me)

    def arrives(self, me: bytes) -> None:
        """Add the caller's own arrival, to tell it to the nodes from now on."""
        self._me, self._confirmed = me, False
        self.ids[me] = me

    @property
    def looks(self) -> bool:
        """Whether the caller only looks, because it has not arrived."""
        return not self._me

    @property
    def answered(self) -> bool:
        """Whether a majority has answered."""
        return self._terms.quorum.met(self.heard)

    @property
    def over(self) -> bool:
        """Whether a majority knows that all have arrived.

        Then everybody who asks from now on will hear of it.
        """
        return self._terms.quorum.met(self.sure)

    @property
    def full(self) -> bool:
        """Whether all have arrived, even if no majority knows it."""
        return self.latest > self.generation or len(self.ids) >= self._terms.recipe.count

    @property
    def arrived(self) -> int:
        """How many have arrived, as far as is known."""
        return self._terms.recipe.count if self.over else len(self.ids)

    def settle(self, token: bytes = b"", patient: bool = False) -> Plan[None]:
        """Ask the nodes, and ask again where that gives certainty.

        After an arrival, a second round finds the arrivals that were confirmed before it. If all
        have arrived, the rounds go on until a majority knows it.

        Args:
            token: The waiter that the nodes tell when all have arrived.
            patient: As of `_ask`.
        """
        yield Do(lambda it: it.keeps(self._terms.recipe.kind))
        while True:
            yield from self._ask(token, patient)
            again, self._confirmed = self.full or not self._confirmed, self._confirmed or self.answered
            if self.over or not self.answered or not again:
                break
        yield from self._mend()

    def _ask(self, token: bytes, patient: bool) -> Plan[None]:
        """Ask the nodes in one round, which waits for a majority.

        With `patient`, the round also waits for a node that knows that all have arrived, as long as
        any node may still answer. The node that has sent the push may be the slowest.
        """
        terms, full = self._terms, self.full
        recipe, decides = terms.recipe, terms.quorum
        asks = {}
        ttl = terms.settings.ttl
        for node in range(len(terms.settings.addresses)):
            birth, count, known = self._seen.get(node, _UNSEEN)
            news = self._news(known)
            asks[node] = recipe.say(self.generation, news, birth, count, over=full, token=token, ttl=ttl)

        def enough(answers: Answers) -> bool:
            told = {node: it for node, said in answers.items() if isinstance(it := recipe.read(said), LatchAnswer)}
            return decides.met(told) and (not patient or any(it.over > self.generation for it in told.values()))

        self._note((yield Ask(asks, enough)))

    def glance(self) -> Plan[None]:
        """Ask in one round who has arrived, and change nothing on the nodes."""
        terms = self._terms
        recipe, decides = terms.recipe, terms.quorum

        def enough(answers: Answers) -> bool:
            return decides.met([node for node, it in answers.items() if isinstance(recipe.read(it), LatchAnswer)])

        yield Do(lambda it: it.keeps(recipe.kind))
        asks = dict.fromkeys(range(len(terms.settings.addresses)), recipe.look(self.generation))
        self._note((yield Ask(asks, enough)))
        yield from self._mend()

    def _mend(self) -> Plan[None]:
        """Write arrivals back to nodes that reported fewer than others. Nobody waits for that.

        If the generation is over, this is not needed: everybody who passes or looks tells the nodes
        that do not know it.
        """
        if not self.over and any(self._news(known) for _, _, known in self._seen.values()):
            yield mend(self._terms.settings, self._terms.recipe.state)

    def _news(self, known: set[bytes]) -> Sequence[bytes]:
        """Return the arrivals that a node does not know, if it has reported these."""
        return [it for it in self.ids if it not in known] if len(known) < len(self.ids) else ()

    def _note(self, seen: Query) -> None:
        """Take in the answers of a round."""
        recipe, others = self._terms.recipe, dict[int, str]()
        self.began, self.asked, self.ended = self.began or seen.began, seen.began, seen.ended
        self.heard, self.sure, self.hoped, self._causes = set(), set(), seen.guarded, dict(seen.causes)
        for node, reply in seen.answers.items():
            match recipe.read(reply):
                case LatchAnswer() as told:
                    self._hear(node, told)
                case None:
                    self._causes[node] = TypeError("its answer is not what the script says")
                case other:
                    others[node] = other
                    self._causes[node] = ValueError(f"there it waits for {other}, and here for {recipe.count}")
        decides = self._terms.quorum
        if not decides.met(decides.nodes - others.keys()):
            raise recipe.disagreement(others.values())

    def _hear(self, node: int, told: LatchAnswer) -> None:
        self.heard.add(node)
        self.latest = max(self.latest, told.over)
        if told.over > self.generation:
            self.sure.add(node)
            if self._me in told.ids:
                raise self._superfluous()
            return
        birth, _, known = self._seen.get(node, _UNSEEN)
        # The node has told all of its ids, because it is the first time, or because it had
        # forgotten.
        if birth != told.birth or told.known == 0:
            known = set()
        known.update([self.ids.setdefault(it, it) for it in told.ids])
        self._seen[node] = told.birth, told.known + len(told.ids), known

    def _superfluous(self) -> Misuse:
        name, count = self._terms.recipe.name, self._terms.recipe.count
        return Misuse(
            f"{count} others have arrived in generation {self.generation} of barrier {name!r}, "
            f"which is for {count}: too many take part, or one of them has come back with another id. "
            "Give each party one id, which it keeps when it is restarted."
        )

    def unheard(self, doing: str, waited: float) -> ConfigError | NoQuorum:
        """Return the error for too few answers."""
        causes = {self._terms.settings.addresses[node].label: cause for node, cause in self._causes.items()}
        return too_few(self._terms.recipe.name, waited, causes, self._terms.quorum, doing)


_UNSEEN: tuple[bytes, int, set[bytes]] = (b"0", 0, set())


class Patience:
    """How long a caller has waited, and how much longer waiting makes sense."""

    def __init__(self, terms: LatchTerms, watch: Watch) -> None:
        self._terms, self._watch = terms, watch
        self._began: float | None = None
        # Since when no majority could be heard.
        self._away_since: float | None = None
        # Whether there is time to wait for all nodes. At the first and the last look there is not.
        self._patient = False

    def look(self, sight: Arrivals) -> Plan[None]:
        """Ask for the state, and have the nodes tell when it changes."""
        yield from sight.settle(self._watch.token, self._patient)

    def pause(self, sight: Arrivals) -> Plan[None]:
        """Wait for news, or until it is time to look again.

        Raises:
            NotAllArrived: The time to wait is over.
            NoQuorum: No majority has answered for too long.
            ConfigError: This client may not wait there.
            Cancelled: The caller has cancelled the wait.
        """
        terms, settings = self._terms, self._terms.settings
        if self._began is None:
            self._began = sight.began
        if terms.quorum.met(sight.heard.union(sight.hoped)):
            self._away_since = None
        elif self._away_since is None:
            self._away_since = sight.asked
        waited, dark = sight.ended - self._began, 0.0 if self._away_since is None else sight.ended - self._away_since
        left = inf if terms.wait is None else terms.wait - waited
        if left <= TICK and sight.answered:
            # An arrival without an id has a token instead, which means nothing to users.
            here = tuple(it.decode("utf-8", "backslashreplace") for it in sight.ids if not TOKEN.fullmatch(it))
            raise NotAllArrived(terms.recipe.name, waited, sight.arrived, terms.recipe.count, here)
        hope = inf if self._away_since is None else settings.outage - dark
        wrong = sight.unheard("wait at", waited)
        if left <= TICK or hope <= TICK or isinstance(wrong, ConfigError):
            raise wrong
        self._patient = settings.ttl / 3 < left
        if not (yield Pause(min(settings.ttl / 3, left, hope), self._watch)):
            raise Cancelled(terms.recipe.name, waited)


def arrive(terms: LatchTerms, id: str | None) -> Plan[int]:
    """Arrive at a latch, and return how many have arrived."""
    me = (yield Do(lambda it: it.listen())).token if id is None else id_of(id)
    sight = Arrivals(terms, me=me)
    yield from sight.settle()
    if not sight.answered:
        raise sight.unheard("arrive at", sight.ended - sight.began)
    return sight.arrived


def arrived(terms: LatchTerms) -> Plan[int]:
    """Return how many have arrived at a latch."""
    return (yield from _seen(terms)).arrived


def is_open(terms: LatchTerms) -> Plan[bool]:
    """Return whether all have arrived at a latch."""
    return (yield from _seen(terms)).over


def _seen(terms: LatchTerms) -> Plan[Arrivals]:
    """Look at a latch. As long as it may be closed, this changes nothing on the nodes.

    If some nodes know that all have arrived, but no majority does, this tells the others.
    Otherwise the caller might hear that the latch is open, and a later caller that it is not. The
    nodes only note what was decided before.
    """
    sight = Arrivals(terms)
    yield from sight.glance()
    if sight.full and not sight.over:
        yield from sight.settle()
    if not sight.answered:
        raise sight.unheard("look at", sight.ended - sight.began)
    return sight


def wait(terms: LatchTerms) -> Plan[None]:
    """Wait until all have arrived at a latch."""
    yield from _gathered(terms, _wait(terms))


def _gathered(terms: LatchTerms, plan: Plan[T]) -> Plan[T]:
    """Carry out a wait, and have observers hear how it ended."""
    began: float = yield Do(lambda it: it.clock())
    facts: dict[str, Any] = {"name": terms.recipe.name, "kind": terms.recipe.kind}
    try:
        found = yield from plan
    except NotAcquired:
        yield Do(lambda it: it.offer(lambda now: Called(**facts, how="incomplete", took=now - began)))
        raise
    yield Do(lambda it: it.offer(lambda now: Called(**facts, how="complete", took=now - began)))
    return found


def _wait(terms: LatchTerms) -> Plan[None]:
    sight, patience = Arrivals(terms), Patience(terms, (yield Do(lambda it: it.listen())))
    while True:
        yield from patience.look(sight)
        if sight.over:
            return
        yield from patience.pause(sight)


class Progress:
    """The progress of the parties that share one description of a barrier.

    A party that gave up waiting has arrived all the same, and goes on there when it comes again.

    Attributes:
        over: How many generations are over, as far as they know.
    """

    def __init__(self) -> None:
        self.over = 0
        # The parties that gave up waiting, and in which generation.
        self._left: dict[bytes, int] = {}

    def begins(self, me: bytes) -> int | None:
        """Return the generation in which this party gave up waiting after its arrival, or None."""
        return self._left.pop(me, None)

    def gives_up(self, me: bytes, generation: int) -> None:
        """Note that a party waits no longer."""
        self._left[me] = generation


def meet(terms: LatchTerms, progress: Progress, id: str) -> Plan[int]:
    """Wait for all parties at a barrier, and return the generation."""
    return (yield from _gathered(terms, _meet(terms, progress, id)))


def _meet(terms: LatchTerms, progress: Progress, id: str) -> Plan[int]:
    me = id_of(id)
    patience = Patience(terms, (yield Do(lambda it: it.listen())))
    generation = progress.begins(me)
    # Parties that share this description have passed all earlier generations. This party is needed
    # in the next one.
    if generation is None and progress.over:
        generation = progress.over
    sight = Arrivals(terms) if generation is None else Arrivals(terms, generation, me)
    try:
        while True:
            yield from patience.look(sight)
            if sight.looks and sight.latest > sight.generation:
                sight = Arrivals(terms, sight.latest)
            elif sight.looks and sight.answered:
                sight.arrives(me)
            elif sight.over:
                break
            else:
                yield from patience.pause(sight)
    except BaseException:
        if not sight.looks:
            progress.gives_up(me, sight.generation)
        raise
    progress.over = max(progress.over, sight.generation + 1)
    return sight.generation


# ------------------------------------------------ what users have


class _LatchOrBarrier(Description):
    """The common part of the descriptions of latches and barriers."""

    __slots__ = ()
    _terms: LatchTerms

    @property
    def name(self) -> str:
        """The name of the latch or barrier."""
        return self._terms.recipe.name

    def _surrounded(self) -> ObservedCall:
        """What hears of a wait's beginning and end in its caller's context."""
        return ObservedCall(self._terms.settings.around, self._terms.recipe.kind, (self.name,))


class Latch(ABC, _LatchOrBarrier):
    """The description of a latch, which opens when `count` have arrived, and stays open.

    It is immutable. Threads and tasks may share it. Once the latch is open for one caller, it is
    open for everybody who asks later, until nobody has used it for `keep` seconds. An arrival
    cannot be taken back, even if the process that arrived ends.
    """

    __slots__ = ()

    @property
    def count(self) -> int:
        """How many have to arrive."""
        return self._terms.recipe.count

    @abstractmethod
    def arrive(self, id: str | None = None) -> int | Awaitable[int]:
        """Arrive, and wait for nobody. Takes two round trips.

        Args:
            id: The name of the arrival, a text of 1 to 512 bytes. The same id counts once, however
                often it arrives. Without an id, each call is another arrival. So a process that may
                have to start over needs an id.

        Returns:
            How many have arrived, as far as is known by now.

        Raises:
            NoQuorum: Fewer than a majority of the nodes answered. It may have arrived nevertheless.
                To arrive again with the same id is safe.
            ConfigError: The id cannot be one, or others use the latch with another count.
        """

    @abstractmethod
    def wait(self) -> Awaitable[None] | None:
        """Wait until the latch is open, for at most the latch's `wait` seconds.

        Returns at once if it is open. A waiter asks the nodes once every `ttl / 3`, and the nodes
        notify it when the latch opens.

        Args:
            cancel: Threads only: a `threading.Event`. At most 50 ms after another thread has set
                it, the wait ends with Cancelled. With asyncio, cancel the task.

        Raises:
            NotAllArrived: The time to wait is over. The error says how many have arrived, and their
                ids.
            Cancelled: `cancel` was set.
            NoQuorum: No majority has answered for the client's `outage`, or by the end of the time
                to wait.
            ConfigError: Others use the latch with another count.
        """

    @abstractmethod
    def arrived(self) -> int | Awaitable[int]:
        """Count those who have arrived.

        Does not wait for anybody, and does not change a latch that is not open.

        Takes one round trip. The latch's `count` is not agreed on by this call, and `keep` does not
        begin again.

        Returns:
            How many have arrived: all whose arrival was confirmed, and perhaps some whose arrival
                is under way.

        Raises:
            NoQuorum: Fewer than a majority of the nodes answered.
            ConfigError: Others use the latch with another count.
        """

    @abstractmethod
    def is_open(self) -> bool | Awaitable[bool]:
        """Tell whether all have arrived.

        Does not wait for anybody, and does not change a latch that is not open.

        Takes one round trip. The latch's `count` is not agreed on by this call, and `keep` does not
        begin again. Once the latch was open for anybody, it is open for everybody who asks later.

        Returns:
            True if the latch is open.

        Raises:
            NoQuorum: Fewer than a majority of the nodes answered.
            ConfigError: Others use the latch with another count.
        """

    def __repr__(self) -> str:
        return f"<Latch {self.name!r} count={self.count}>"


class Barrier(ABC, _LatchOrBarrier):
    """The description of a barrier, at which `parties` wait for each other, once a generation.

    Nobody passes before all parties have arrived, and no two of them are ever more than one
    generation apart. A barrier does not notice that a party died before it arrived. `wait=` limits
    how long the others wait.
    """

    __slots__ = ("_progress",)

    def __init__(self, terms: LatchTerms, drivers: Sequence[Any]) -> None:
        super().__init__(terms, drivers)
        self._progress = Progress()

    @property
    def parties(self) -> int:
        """How many wait for each other."""
        return self._terms.recipe.count

    @abstractmethod
    def wait(self, id: str) -> int | Awaitable[int]:
        """Arrive, and wait for all parties, for at most the barrier's `wait` seconds.

        A party that gives up has arrived all the same. If it waits again, with the same id, it goes
        on where it was.

        Args:
            id: The name of this party, a text of 1 to 512 bytes, and another one than any other
                party's. While not all have arrived, the same id is the same arrival: so a party
                that is restarted keeps its id.
            cancel: Threads only: a `threading.Event`. At most 50 ms after another thread has set
                it, the wait ends with Cancelled. With asyncio, cancel the task.

        Returns:
            The generation, counted from 0.

        Raises:
            NotAllArrived: The time to wait is over. The error says how many have arrived, and their
                ids.
            Cancelled: `cancel` was set.
            NoQuorum: No majority has answered for the client's `outage`, or by the end of the time
                to wait.
            Misuse: All parties have arrived without this one, so too many take part.
            ConfigError: The id cannot be one, or others use the barrier with another number of
                parties.
        """

    def __repr__(self) -> str:
        return f"<Barrier {self.name!r} parties={self.parties}>"
