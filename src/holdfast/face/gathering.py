"""Latches and barriers: what they are told, whom they ask in which order, and when all have come. Shared by both faces.

Knows recipes, and that rounds have answers. Must not know who waits for them: a plan yields what is to be done (nodes asked, time let
pass, a push listened for), and returns what came of it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from math import inf

from .. import checks
from ..checks import Seconds
from ..core import quorum
from ..core.round import Answers, Round
from ..core.ticket import TOKEN
from ..engine.crew import Watch
from ..engine.settings import Settings
from ..errors import Cancelled, Misuse, NoQuorum, NotAllArrived
from ..recipes import gathering as recipes
from ..recipes.gathering import Told, id_of
from .plans import TICK, Ask, Keeps, Listen, Pause, Plan
from .repair import mend
from .terms import LONGEST_WAIT, waiting


@dataclass(frozen=True, slots=True)
class Terms:
    """A latch's or a barrier's options, checked. `wait` in seconds."""

    recipe: recipes.Gathering
    settings: Settings
    wait: float | None

    @property
    def needed(self) -> int:
        """The nodes of which any two sets meet."""
        return quorum.majority(len(self.settings.addresses))


def terms(settings: Settings, kind: str, name: str, count: int, keep: Seconds, wait: Seconds | None) -> Terms:
    """Checked options. ConfigError says which is wrong, and what to write instead."""
    kept = checks.seconds(keep, "keep", least=settings.max_ttl, most=LONGEST_WAIT)  # (whoever waits looks more often)
    return Terms(recipes.Gathering(kind, name, count, kept, prefix=settings.prefix), settings, waiting(wait))


# ------------------------------------------------ what is to be done


class Sight:
    """What one caller knows of one generation: who has arrived, and which node knows of whom.

    Whatever it asks, it tells each node of all those that the node has not told of: so what a node forgot is said again, and what few
    nodes have is written back before anybody acts on it.
    """

    __slots__ = (
        "_causes", "_confirmed", "_me", "_seen", "_terms",
        "asked", "began", "ended", "generation", "heard", "hoped", "ids", "latest", "sure",
    )  # fmt: skip

    def __init__(self, terms: Terms, generation: int = 0, me: bytes = b"") -> None:
        self._terms, self.generation = terms, generation
        self.ids: dict[bytes, bytes] = {}  # of all nodes, and each but once in memory
        self._seen: dict[int, tuple[bytes, int, set[bytes]]] = {}  # by node: since when it remembers, how many it has told, and whom
        self.latest = generation  # so many generations are over, as far as any node knows
        self.began = self.ended = 0.0  # of all rounds
        self.asked, self.heard, self.sure = 0.0, 0, 0  # of the last: its time, how many have answered, and to how many of them it is over
        self.hoped = 0  # how many will be of use by themselves: they are in their restart guard
        self._causes: dict[int, Exception] = {}
        self._me, self._confirmed = b"", True
        if me:
            self.arrives(me)

    def arrives(self, me: bytes) -> None:
        """The caller's own arrival, which is to be told from now on."""
        self._me, self._confirmed = me, False
        self.ids[me] = me

    @property
    def looks(self) -> bool:
        """Does the caller only look? (It has not arrived.)"""
        return not self._me

    @property
    def answered(self) -> bool:
        """Has a majority answered?"""
        return self.heard >= self._terms.needed

    @property
    def over(self) -> bool:
        """Does a majority know that all have arrived? Then everybody who asks from now on will hear of it."""
        return self.sure >= self._terms.needed

    @property
    def full(self) -> bool:
        """Have all arrived, whoever knows of it?"""
        return self.latest > self.generation or len(self.ids) >= self._terms.recipe.count

    @property
    def arrived(self) -> int:
        """How many have, as far as is known."""
        return self._terms.recipe.count if self.over else len(self.ids)

    def settle(self, token: bytes = b"", patient: bool = False) -> Plan[None]:
        """Ask, and again where that makes it sure: after an arrival, for those that were confirmed before it; and if all have arrived,
        until a majority knows. `token`: is told then; `patient`: as of `_ask`.
        """
        yield Keeps(self._terms.recipe.kind)
        while True:
            yield from self._ask(token, patient)
            again, self._confirmed = self.full or not self._confirmed, self._confirmed or self.answered
            if self.over or not self.answered or not again:
                break
        yield from self._mend()

    def _ask(self, token: bytes, patient: bool) -> Plan[None]:
        """One round. It waits for a majority; `patient`: and for one that knows that all have arrived, as long as any may answer. (Whoever
        has pushed may be the slowest.)"""
        terms, full = self._terms, self.full
        recipe, needed = terms.recipe, terms.needed
        asks = {}
        for node in range(len(terms.settings.addresses)):
            birth, count, known = self._seen.get(node, _UNSEEN)
            asks[node] = recipe.say(self.generation, self._news(known), birth, count, over=full, token=token, ttl=terms.settings.ttl)

        def enough(answers: Answers) -> bool:
            told = [it for it in map(recipe.read, answers.values()) if isinstance(it, Told)]
            return len(told) >= needed and (not patient or any(it.over > self.generation for it in told))

        self._note((yield Ask(asks, enough)))

    def glance(self) -> Plan[None]:
        """Ask in one round who has arrived, and change nothing on the nodes."""
        terms = self._terms
        recipe, needed = terms.recipe, terms.needed

        def enough(answers: Answers) -> bool:
            return sum(isinstance(recipe.read(it), Told) for it in answers.values()) >= needed

        yield Keeps(recipe.kind)
        asks = dict.fromkeys(range(len(terms.settings.addresses)), recipe.look(self.generation))
        self._note((yield Ask(asks, enough)))
        yield from self._mend()

    def _mend(self) -> Plan[None]:
        """If a node has told fewer arrivals than another, have them written back there. Nobody waits for that.

        Of what is over, everybody who passes or looks tells the nodes that do not know it.
        """
        if not self.over and any(self._news(known) for _, _, known in self._seen.values()):
            yield mend(self._terms.settings, self._terms.recipe.state)

    def _news(self, known: set[bytes]) -> Sequence[bytes]:
        """What a node that has told of these is to be told."""
        return [it for it in self.ids if it not in known] if len(known) < len(self.ids) else ()

    def _note(self, seen: Round) -> None:
        """Take in what the nodes have said."""
        recipe, others = self._terms.recipe, list[str]()
        self.began, self.asked, self.ended = self.began or seen.began, seen.began, seen.ended
        self.heard, self.sure, self.hoped, self._causes = 0, 0, seen.guarded, dict(seen.causes)
        for node, reply in seen.answers.items():
            match recipe.read(reply):
                case Told() as told:
                    self._hear(node, told)
                case None:
                    self._causes[node] = TypeError("its answer is not what the script says")
                case other:
                    others.append(other)
                    self._causes[node] = ValueError(f"there it waits for {other}, and here for {recipe.count}")
        if len(others) > len(self._terms.settings.addresses) - self._terms.needed:
            raise recipe.disagreement(others)

    def _hear(self, node: int, told: Told) -> None:
        self.heard, self.latest = self.heard + 1, max(self.latest, told.over)
        if told.over > self.generation:
            self.sure += 1
            if self._me in told.ids:
                raise self._superfluous()
            return
        birth, _, known = self._seen.get(node, _UNSEEN)
        if birth != told.birth or told.known == 0:  # (all of them are told: it is the first time, or it had forgotten)
            known = set()
        known.update([self.ids.setdefault(it, it) for it in told.ids])
        self._seen[node] = told.birth, told.known + len(told.ids), known

    def _superfluous(self) -> Misuse:
        name, count = self._terms.recipe.name, self._terms.recipe.count
        return Misuse(
            f"{count} others have arrived in generation {self.generation} of barrier {name!r}, which is for {count}: too many take part, "
            "or one of them has come back with another id. Give each party one id, which it keeps when it is restarted."
        )

    def unheard(self, doing: str, waited: float) -> NoQuorum:
        """Too few have answered."""
        causes = {self._terms.settings.addresses[node].label: cause for node, cause in self._causes.items()}
        return NoQuorum(self._terms.recipe.name, waited, causes, self._terms.needed, doing)


_UNSEEN: tuple[bytes, int, set[bytes]] = (b"0", 0, set())


class Patience:
    """Of one who waits: for how long already, and until when there is hope."""

    __slots__ = ("_began", "_dark", "_patient", "_terms", "_watch")

    def __init__(self, terms: Terms, watch: Watch) -> None:
        self._terms, self._watch = terms, watch
        self._began: float | None = None
        self._dark: float | None = None  # since when no majority could be heard
        self._patient = False  # is there time to hear all out? Not for who has just come, nor for a last look

    def look(self, sight: Sight) -> Plan[None]:
        """See how it is, and be told when that changes."""
        yield from sight.settle(self._watch.token, self._patient)

    def pause(self, sight: Sight) -> Plan[None]:
        """Wait for news, or until it is time to look again. Raises what a caller is told who has waited long enough."""
        terms, settings = self._terms, self._terms.settings
        if self._began is None:
            self._began = sight.began
        if sight.heard + sight.hoped >= terms.needed:
            self._dark = None
        elif self._dark is None:
            self._dark = sight.asked
        waited, dark = sight.ended - self._began, 0.0 if self._dark is None else sight.ended - self._dark
        left = inf if terms.wait is None else terms.wait - waited
        if left <= TICK and sight.answered:
            # (an arrival without an id stands there by a token, which means nothing to anybody)
            here = tuple(it.decode("utf-8", "backslashreplace") for it in sight.ids if not TOKEN.fullmatch(it))
            raise NotAllArrived(terms.recipe.name, waited, sight.arrived, terms.recipe.count, here)
        hope = inf if self._dark is None else settings.outage - dark
        if left <= TICK or hope <= TICK:
            raise sight.unheard("wait at", waited)
        self._patient = settings.ttl / 3 < left
        if not (yield Pause(min(settings.ttl / 3, left, hope), self._watch)):
            raise Cancelled(terms.recipe.name, waited)


def arrive(terms: Terms, id: str | None) -> Plan[int]:
    """One arrival at a latch. How many there are."""
    me = (yield Listen()).token if id is None else id_of(id)
    return (yield from _settled(Sight(terms, me=me), "arrive at"))


def arrived(terms: Terms) -> Plan[int]:
    """How many have arrived at a latch."""
    return (yield from _seen(terms)).arrived


def is_open(terms: Terms) -> Plan[bool]:
    """Have all arrived at a latch?"""
    return (yield from _seen(terms)).over


def _seen(terms: Terms) -> Plan[Sight]:
    """Look at a latch. As long as it may be closed, this changes nothing on the nodes.

    If some nodes know that all have arrived, and no majority does, the others are told so. Without that, the caller might be told
    that the latch is open, and somebody who asks later that it is not. All that these nodes note was decided before.
    """
    sight = Sight(terms)
    yield from sight.glance()
    if sight.full and not sight.over:
        yield from sight.settle()
    if not sight.answered:
        raise sight.unheard("look at", sight.ended - sight.began)
    return sight


def _settled(sight: Sight, doing: str) -> Plan[int]:
    yield from sight.settle()
    if not sight.answered:
        raise sight.unheard(doing, sight.ended - sight.began)
    return sight.arrived


def wait(terms: Terms) -> Plan[None]:
    """Wait until all have arrived at a latch."""
    sight, patience = Sight(terms), Patience(terms, (yield Listen()))
    while True:
        yield from patience.look(sight)
        if sight.over:
            return
        yield from patience.pause(sight)


class Progress:
    """How far the parties have come that share one description of a barrier.

    A party that gave up waiting has arrived all the same, and goes on there when it comes again.

    Attributes:
        over: How many generations are over, as far as they know.
    """

    __slots__ = ("_left", "over")

    def __init__(self) -> None:
        self.over = 0
        self._left: dict[bytes, int] = {}  # the parties that gave up waiting, and in which generation

    def begins(self, me: bytes) -> int | None:
        """The generation in which this party has arrived already, if it gave up waiting there."""
        return self._left.pop(me, None)

    def gives_up(self, me: bytes, generation: int) -> None:
        """A party waits no longer."""
        self._left[me] = generation


def meet(terms: Terms, progress: Progress, id: str) -> Plan[int]:
    """Wait for all at a barrier. Which generation that was."""
    me = id_of(id)
    patience = Patience(terms, (yield Listen()))
    generation = progress.begins(me)
    if generation is None and progress.over:  # all before it have been passed from here, and this one needs whoever comes here
        generation = progress.over
    sight = Sight(terms) if generation is None else Sight(terms, generation, me)
    try:
        while True:
            yield from patience.look(sight)
            if sight.looks and sight.latest > sight.generation:
                sight = Sight(terms, sight.latest)
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


class _Description:
    """What both have: immutable, shared by as many users as you like."""

    __slots__ = ("_terms",)

    def __init__(self, terms: Terms) -> None:
        self._terms = terms

    @property
    def name(self) -> str:
        """Its name."""
        return self._terms.recipe.name


class Latch(ABC, _Description):
    """The description of a latch, which opens when so many have arrived, and stays open. Immutable, shared by as many users as you like.

    Once it is open for anybody it is so for everybody who asks later, until nobody has used it for as long as it is kept. An arrival
    stands, whatever becomes of who has arrived: there is no way back.
    """

    __slots__ = ()

    @property
    def count(self) -> int:
        """How many have to arrive."""
        return self._terms.recipe.count

    @abstractmethod
    def arrive(self, id: str | None = None) -> int | Awaitable[int]:
        """Arrive, and wait for nobody. Returns how many have arrived, as far as is known by now.

        `id`: who arrives, a text of up to 512 bytes: the same id counts once, however often it arrives. Without one each call is another
        arrival; so whoever may have to begin anew needs one. Takes two round trips. Raises NoQuorum if fewer than a majority answer: it may
        have arrived all the same, and to arrive again with the same id is safe. ConfigError for what is no id, and if others
        use the latch with another count.
        """

    @abstractmethod
    def wait(self) -> Awaitable[None] | None:
        """Wait until the latch is open, for at most the latch's `wait` seconds. Returns at once if it is open.

        A waiter asks the nodes once every ttl / 3, and is told by them when the latch opens. Threads may pass `cancel`, a
        `threading.Event`: at most 50 ms after another thread has set it, the wait ends with Cancelled.

        Raises:
            NotAllArrived: The time to wait is over. The error says how many have arrived, and their ids.
            NoQuorum: No majority has answered for the client's `outage`, or by the end of the time to wait.
        """

    @abstractmethod
    def arrived(self) -> int | Awaitable[int]:
        """Count those who have arrived. Does not wait for anybody, and does not change a latch that is not open.

        Takes one round trip. The latch's `count` is not agreed on by this call, and `keep` does not begin again.

        Returns:
            How many have arrived: all whose arrival was confirmed, and perhaps some whose arrival is under way.

        Raises:
            NoQuorum: Fewer than a majority of the nodes answered.
            ConfigError: Others use the latch with another count.
        """

    @abstractmethod
    def is_open(self) -> bool | Awaitable[bool]:
        """Tell whether all have arrived. Does not wait for anybody, and does not change a latch that is not open.

        Takes one round trip. The latch's `count` is not agreed on by this call, and `keep` does not begin again. Once the latch was
        open for anybody, it is open for everybody who asks later.

        Raises:
            NoQuorum: Fewer than a majority of the nodes answered.
            ConfigError: Others use the latch with another count.
        """

    def __repr__(self) -> str:
        return f"<Latch {self.name!r} count={self.count}>"


class Barrier(ABC, _Description):
    """The description of a barrier, at which so many parties wait for each other, again and again: once a generation.

    Nobody passes before all parties have arrived, and no two of them are ever more than one generation apart. A barrier does not
    notice that a party died before it arrived: `wait=` says how long the others wait.
    """

    __slots__ = ("_progress",)

    def __init__(self, terms: Terms) -> None:
        super().__init__(terms)
        self._progress = Progress()

    @property
    def parties(self) -> int:
        """How many wait for each other."""
        return self._terms.recipe.count

    @abstractmethod
    def wait(self, id: str) -> int | Awaitable[int]:
        """Arrive, and wait until all parties have arrived, for at most the barrier's `wait` seconds.

        A party that gives up has arrived all the same. If it waits again, with the same id, it goes on where it was. Threads may pass
        `cancel`, as to a latch's `wait`.

        Args:
            id: The name of this party, a text of 1 to 512 bytes, and another one than any other party's. While not all have arrived,
                the same id is the same arrival: so a party that is restarted keeps its id.

        Returns:
            The generation, counted from 0.

        Raises:
            NotAllArrived: The time to wait is over. The error says how many have arrived, and their ids.
            NoQuorum: No majority has answered for the client's `outage`, or by the end of the time to wait.
            Misuse: All parties have arrived without this one, so too many take part.
            ConfigError: The id cannot be one, or others use the barrier with another number of parties.
        """

    def __repr__(self) -> str:
        return f"<Barrier {self.name!r} parties={self.parties}>"
