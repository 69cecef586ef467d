"""A survey of the locks that are held: which nodes are asked, in which steps, and how long to rest.

Knows recipes, and that queries have answers. Must not know threads or tasks: what waits is a plan.

A lock that is held stands on a majority, q of N nodes. Among any N - q + 1 nodes is one of them. So
a survey looks through the keys of that many nodes, one node after the other, and then asks all
nodes about each lock that it found. It keeps the names that it has shown, to show each once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from math import inf
from typing import Any, NamedTuple

from ... import checks
from ...engine import registry
from ...engine.plans import Ask, Pause, Plan
from ...engine.settings import Settings
from ...errors import ConfigError, NoQuorum
from ...protocol.query import Query
from ...protocol.quorum import Quorum
from ...protocol.ticket import TOKEN, inbox_of
from ..inspection import commands as inspection
from ..inspection.plan import unheard
from . import commands as recipes
from .commands import Row, SurveyAnswer

# The smallest share of a node's time, so that a rest has an end.
LEAST = 0.001
MOST = 512  # bytes of a pattern


class Position(NamedTuple):
    """Where a survey is: in the keys of one node, at this cursor of its SCAN."""

    node: int
    cursor: bytes = b"0"


class Search:
    """One survey, row by row.

    Args:
        sets: The settings of each shard.
        pattern: What the names are like, as SCAN has it.
        pause: The share of a node's time that the survey may take.

    Raises:
        ConfigError: The pattern or the pause cannot work.
    """

    def __init__(self, sets: Sequence[Settings], pattern: str, pause: float) -> None:
        self._pattern = checks.text(pattern, "a pattern of names", most=MOST)
        self._share = _share(pause)
        self._sets = sets
        # How many keys the nodes have looked at.
        self.scanned = 0
        # Rows that are ready, and the locks that were found to be held.
        self._rows: deque[Row] = deque()
        self._known: set[bytes] = set()
        # Locks without a holder on a majority: shown at the end, if none was found later.
        self._split: dict[bytes, Row] = {}
        # The inboxes that were asked about, and whose they are, as far as nodes know.
        self._owners: dict[bytes, str | None] = {}
        # Seconds to rest before the next step.
        self._rest = 0.0
        # The set that is looked through; and in it where, how many nodes are done, why others were
        # left out, and when the first step began and the last one ended.
        self._at = 0
        self._place: Position | None = Position(0)
        self._done = 0
        self._causes: dict[str, Exception] = {}
        self._began = inf
        self._last = 0.0

    def next(self) -> Plan[Row | None]:
        """Return the next row; None: that was all.

        Raises:
            NoQuorum: Too few nodes of a shard answered.
        """
        while not self._rows and self._at < len(self._sets):
            if self._rest:
                yield Pause(self._rest)
                self._rest = 0.0
            yield from self._step()
            if self._at == len(self._sets):
                self._rows.extend(self._split.values())
        return self._rows.popleft() if self._rows else None

    def _step(self) -> Plan[None]:
        """Look at some keys of one node, and ask all nodes about the locks among them."""
        settings, place = self._sets[self._at], self._place
        if place is None:
            raise self._too_few(settings)
        step = inspection.names(settings.prefix, self._pattern, place.cursor, recipes.STEP)
        seen: Query = yield Ask({place.node: step}, shard=self._at)
        took = seen.heard - seen.began
        self._began = min(self._began, seen.began)
        self._last = seen.ended
        if place.node not in seen.answers:
            self._causes[settings.addresses[place.node].label] = seen.causes[place.node]
            self._turn(settings, place.node)
            return
        cursor, looked, keys = inspection.found(seen.answers[place.node])
        self.scanned += looked
        new = list(dict.fromkeys(it for it in keys if it not in self._known))
        for at in range(0, len(new), recipes.LOCKS):
            took += yield from self._confirm(settings, new[at : at + recipes.LOCKS])
        self._rest = took * (1 / self._share - 1)
        if cursor == b"0":
            self._done += 1
            self._turn(settings, place.node)
        else:
            self._place = Position(place.node, cursor)

    def _turn(self, settings: Settings, node: int) -> None:
        """Go on with the next node, or the next set, after this node."""
        self._place = Position(node + 1) if node + 1 < len(settings.addresses) else None
        if self._done == _needed(settings.quorum):
            self._at += 1
            self._place = Position(0)
            self._done = 0
            self._causes = {}
            self._began = inf

    def _confirm(self, settings: Settings, keys: Sequence[bytes]) -> Plan[float]:
        """Ask all nodes about these locks, and make rows of the answers.

        Returns:
            How many seconds the nodes worked.
        """
        decides = settings.quorum
        seen: Query = yield Ask(dict.fromkeys(decides.nodes, recipes.look(keys)), shard=self._at)
        told = {node: recipes.told(reply, len(keys)) for node, reply in seen.answers.items()}
        answers = {node: it for node, it in told.items() if it is not None}
        if not decides.met(answers):
            raise unheard(settings, seen, self._pattern, "survey")
        views = [{node: it[at] for node, it in answers.items()} for at in range(len(keys))]
        # A silent node does no work, so no rest is due for it.
        took = seen.heard - seen.began
        took += yield from self._ask_owners(settings, [recipes.holder_of(it, decides) for it in views], seen)
        for key, view in zip(keys, views, strict=True):
            self._take(key, settings, view)
        return took

    def _ask_owners(self, settings: Settings, holders: Sequence[bytes | None], seen: Query) -> Plan[float]:
        """Learn whose clients these holders are, of those that were not asked about before.

        Returns:
            How many seconds the nodes worked.
        """
        inboxes = dict.fromkeys(inbox_of(it) for it in holders if it and TOKEN.fullmatch(it))
        new = [it for it in inboxes if it not in self._owners]
        if not new:
            return 0.0
        self._owners.update(dict.fromkeys(new))
        told: Query = yield Ask(dict.fromkeys(seen.answers, registry.owned(settings.prefix, new)), shard=self._at)
        self._owners.update(registry.owners(new, told.answers.values()))
        return told.heard - told.began

    def _take(self, key: bytes, settings: Settings, view: dict[int, SurveyAnswer]) -> None:
        """Have a lock shown, unless it is free."""
        row = recipes.row(key, settings.prefix, view, settings.quorum, self._owners)
        if row is None:
            return
        if row.state == "split":
            self._split[key] = row
            return
        self._split.pop(key, None)
        self._known.add(key)
        self._rows.append(row)

    def _too_few(self, settings: Settings) -> NoQuorum:
        """What to raise if a lock could be on none of the nodes that were looked through."""
        waited = self._last - self._began
        return NoQuorum(self._pattern, waited, self._causes, _needed(settings.quorum), "survey")


def _needed(decides: Quorum) -> int:
    """How many nodes have to be looked through to find whatever a majority has."""
    return len(decides.nodes) - decides.least + 1


def _share(pause: object) -> float:
    """The share of a node's time that a survey may take; 1: all of it."""
    if isinstance(pause, bool) or not isinstance(pause, int | float):
        raise ConfigError(
            f"pause is a number, the share of a node's time that a survey may take; not {checks.shown(pause)}"
        )
    if pause != 0 and not LEAST <= pause <= 1:
        raise ConfigError(
            "pause is the share of a node's time that a survey may take: 0 (it never rests), or from "
            f"{LEAST} to 1; not {checks.shown(pause)}"
        )
    return float(pause) or 1.0


class Survey:
    """The locks that are held, one `Row` after the other, in no order: loop over it.

    Each lock is shown once. A lock that the same majority of the nodes has for the whole survey is
    in it. One that is acquired or released meanwhile may be missing. Locks that are split come
    last. Leave the loop whenever you like.
    """

    __slots__ = ("_drivers", "_search")

    def __init__(self, search: Search, drivers: Sequence[Any]) -> None:
        # With asyncio, functions that return those of the running loop.
        self._search, self._drivers = search, drivers

    @property
    def scanned(self) -> int:
        """How many keys the nodes have looked at so far, of locks and of everything else.

        A survey looks through more than one node, so it counts the same name more than once.
        """
        return self._search.scanned
