"""All sets of nodes that a client knows: where a lock's names are taken, and where they are looked for. Shared by both faces.

Knows how names are spread now, and how they were before. Must not know who waits: what is asked of nodes is a plan for the face.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple

from ..core.command import Recipe
from ..drivers.access import Access, Credentials, accesses
from ..engine.settings import Settings, settings
from ..errors import ConfigError
from ..events import Forced
from ..recipes.exclusive import key_of, user_name
from ..recipes.semaphore import Slots
from . import plans
from .plans import Plan
from .shards import Shard, Spread
from .terms import Terms

if TYPE_CHECKING:
    from ssl import SSLContext

    from ..checks import Seconds
    from ..engine.crew import NodeStatus
    from ..recipes.looking import LockStatus
    from .repair import Repaired


class Site(NamedTuple):
    """One set of nodes, and the ways in at each of them."""

    shard: Shard
    settings: Settings
    access: tuple[Access, ...]


class Sites:
    """The sets of now, then those of before that are no more; each is known by its number. `options`: as of settings."""

    def __init__(
        self,
        now: Sequence[Shard],
        before: Sequence[Shard],
        options: dict[str, Any],
        context: SSLContext | None,
        credentials: Credentials | None,
    ) -> None:
        shards, self._former = _joined(now, before)  # the latter: which number the sets of before have
        self._spread, self._before = Spread([it.name for it in now]), Spread([it.name for it in before])
        if len(shards) > 1:
            digests = tuple(it.digest for it in (self._spread, self._before) if it.names)
            made = [
                settings(it.nodes, shard=it.name, spreads=digests, leaving=at >= len(now), **options)
                for at, it in enumerate(shards)
            ]
        else:
            made = [settings(shards[0].nodes, **options)]
        ways = iter(accesses([address for it in made for address in it.addresses], context, credentials))
        self.all = tuple(
            Site(shard, it, tuple(islice(ways, len(it.addresses)))) for shard, it in zip(shards, made, strict=True)
        )  # fmt: skip

    def placed(self, terms: Terms) -> tuple[int, Sequence[tuple[int, Terms]]]:
        """Where to take these names: on which set; and, of those that move, on which sets before that, in the order of all clients.

        ConfigError if they live on several sets. (Where there is but one, nobody has to ask.)
        """
        homes = {name: self._spread.of(name) for name in terms.names}
        home = homes[terms.names[0]]
        if len(set(homes.values())) > 1:
            told = ", ".join(f"{name!r} lives on {self._spread.names[it]!r}" for name, it in homes.items())
            raise ConfigError(
                f"names on several sets of nodes cannot be locked together: {told}. Give them a common part in braces, which then "
                "decides alone where they live: '{account}:7', '{account}:3'"
            )
        if isinstance(terms.recipes, Slots) or terms.kind:
            return self.settled(terms.name, "read-write lock" if terms.kind else "semaphore"), ()
        moving: dict[str, tuple[int, list[Recipe]]] = {}
        for recipe in terms.recipes if self._former else ():
            former = self._before.of(recipe.label)
            if self._former[former] != home:
                moving.setdefault(self._before.names[former], (self._former[former], []))[1].append(recipe)
        return home, [(at, _bare(terms, recipes)) for _, (at, recipes) in sorted(moving.items())]

    def homes(self, name: str) -> list[int]:
        """The sets on which somebody may hold this name: the one where it lives, then the one where it did before. ConfigError as ever."""
        key_of(name, parts=True)
        name = user_name(name)
        return list(dict.fromkeys([self.home(name), *([self._former[self._before.of(name)]] if self._former else [])]))

    def home(self, name: str) -> int:
        """The set on which this name lives."""
        return self._spread.of(name)

    def counting(self, name: str) -> list[int]:
        """The sets on which calls of this name count, in the order in which all clients ask them.

        While the name moves: its old set, then its new one.
        """
        home = self.home(name)
        former = self._former[self._before.of(name)] if self._former else home
        return [home] if former == home else [former, home]

    def settled(self, name: str, what: str) -> int:
        """The same, for what cannot be on two sets at once: ConfigError if the name moves just now. `what`: such as "semaphore"."""
        home = self.home(name)
        if self._former and self._former[self._before.of(name)] != home:
            raise ConfigError(
                f"{what} {name!r} moves to another set of nodes, and cannot be used meanwhile: stop all who use it, then "
                "name the new sets without `previous`"
            )
        return home

    def checked(self, at: int, nodes: tuple[NodeStatus, ...]) -> Plan[tuple[NodeStatus, ...]]:
        """See whether the nodes of a set take writes, and which clients use them that do not know this client's list of sets."""
        from . import looking, repair

        settings = self.all[at].settings
        taking = yield from plans.of(at, looking.writable(settings, nodes))
        known = yield from plans.of(at, looking.straggling(settings, taking))
        return (yield from repair.marked(settings, known, at))

    def repair(self, pause: Seconds) -> Plan[Repaired]:
        """Write back what nodes have forgotten, on every set."""
        from . import repair

        seconds = repair.pace(pause)
        parts = []
        for at, site in enumerate(self.all):
            parts.append((yield from repair.repair(site.settings, seconds, at)))
        return repair.total(parts)

    def inspect(self, name: str) -> Plan[LockStatus]:
        """How a lock is; of a name that moves, on the first of its sets where it is not free."""
        from . import looking

        found = []
        for at in self.homes(name):
            found.append((yield from plans.of(at, looking.inspect(self.all[at].settings, name))))
            if found[-1].state != "free":
                return found[-1]
        return found[0]

    def locked_by(self, name: str) -> Plan[str | None]:
        """Who has a lock on a majority of a set on which it may be."""
        from . import looking

        for at in self.homes(name):
            holder = yield from plans.of(at, looking.locked_by(self.all[at].settings, name))
            if holder is not None:
                return holder
        return None

    def names(self, pattern: str) -> Plan[list[str]]:
        """The names of all locks that are held, on any set, in order."""
        from . import looking

        found: set[str] = set()
        for at, site in enumerate(self.all):
            found.update((yield from plans.of(at, looking.names(site.settings, pattern))))
        return sorted(found)

    def force_release(self, name: str, reason: str, only: str | None) -> Plan[list[tuple[int, Forced]]]:
        """Take a lock away from whoever has it, on every set on which it may be: what came of it, set by set."""
        from . import looking

        told = []
        for at in self.homes(name):
            told.append((at, (yield from plans.of(at, looking.force_release(self.all[at].settings, name, reason, only)))))
        return told


def _bare(terms: Terms, recipes: Sequence[Recipe]) -> Terms:
    """What is held on an old set: the names that move, for as long as the lease on the new set lasts."""
    return terms._replace(recipes=tuple(recipes), renew=True, max_hold=inf, reentrant=False, fail_open=False, on_lost=None)


def _joined(now: Sequence[Shard], before: Sequence[Shard]) -> tuple[list[Shard], list[int]]:
    """All sets, each once, those of now first; and where in there those of before are."""
    found, former = list(now), []
    for it in before:
        twin = next((number for number, other in enumerate(found) if other.places & it.places), len(found))
        if twin == len(found):
            found.append(it)
        elif found[twin].places != it.places:
            raise ConfigError(
                f"the set {found[twin].name!r} and the former set {it.name!r} have some nodes in common, and not all: a set whose nodes "
                "change gets servers of its own, every one of them new"
            )
        former.append(twin)
    if twice := sorted({found[it].name for it in former if former.count(it) > 1}):
        raise ConfigError(f"previous names the set {twice[0]!r} twice")
    return found, former
