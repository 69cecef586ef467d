"""All shards that a client knows, and which of them a name is taken from and looked for on.

Shared by both faces.

Knows how names are spread now, and how they were before. Must not know who waits: questions to
nodes are plans for the face.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import islice
from operator import methodcaller
from typing import TYPE_CHECKING, Any, NamedTuple

from ..engine import plans
from ..engine.plans import Ask, Do, Plan
from ..engine.settings import Settings, settings
from ..errors import ConfigError
from ..node import Credentials
from ..protocol.exclusive import key_of, user_name
from ..protocol.query import Query
from ..protocol.semaphore import Slots
from ..wire import rights
from ..wire.address import Address
from .spreading import ShardNodes, Spread
from .terms import LockTerms

if TYPE_CHECKING:
    from ssl import SSLContext

    from ..checks import Seconds
    from ..drivers.access import Access
    from ..drivers.files import Authority
    from ..engine.status import NodeStatus
    from ..operations.inspection.commands import LockStatus
    from ..operations.repair.plan import Repaired
    from ..operations.survey.plan import Search


class Shard(NamedTuple):
    """One shard, and how to reach each of its nodes."""

    listed: ShardNodes
    settings: Settings
    access: tuple[Access, ...]


class Shards:
    """The current shards, then the former ones that are not among them. Each has a number.

    While names move, the numbers after these are those of joint shards. A joint shard has the nodes
    of a current shard and of former ones, and needs a majority of each (rule SH2).

    Attributes:
        all: The current shards and the former ones.
        every: All of these, and the joint ones.
        parts: The numbers of the shards that each joint one consists of, the current one first.
    """

    def __init__(
        self,
        now: Sequence[ShardNodes],
        before: Sequence[ShardNodes],
        options: dict[str, Any],
        context: SSLContext | Authority | None,
        credentials: Credentials | None,
    ) -> None:
        # `_former` has the number of each former shard.
        shards, self._former = _joined(now, before)
        self._spread, self._before = Spread([it.name for it in now]), Spread([it.name for it in before])
        replaced = next((it for it in shards if it.lists), None)
        digests = tuple(it.digest for it in (self._spread, self._before) if it.names)
        if replaced is not None and len(set(digests)) > 1:
            raise ConfigError(
                f"the shard {replaced.name!r} keeps some of its nodes, and the list of shards changes too: "
                "make one change after the other, or give the shard other servers, every one of them new"
            )
        if len(shards) > 1 or replaced is not None:
            names = [it.name if len(shards) > 1 else "" for it in shards]
            made = [
                settings(_addresses(it), shard=name, spreads=digests, leaving=at >= len(now), lists=it.lists, **options)
                for at, (name, it) in enumerate(zip(names, shards, strict=True))
            ]
        else:
            made = [settings(_addresses(shards[0]), **options)]
        # Here, because a program that makes no client needs no sockets.
        from ..drivers.access import accesses

        nodes = [node for it in shards for node in it.nodes]
        ways = iter(accesses(nodes, context, credentials, made[0].node_timeout))
        self.all = tuple(
            Shard(listed, it, tuple(islice(ways, len(it.addresses)))) for listed, it in zip(shards, made, strict=True)
        )  # fmt: skip
        self.parts = tuple(it for home in range(len(now)) for it in self._moves(home))
        self.every = (*self.all, *(_together([self.all[at] for at in it]) for it in self.parts))

    def _moves(self, home: int) -> Iterator[tuple[int, ...]]:
        """Yield this shard together with each former shard of which it gets names.

        Names of several former shards can be locked together, so if there are several, the last
        ones that this yields are all of them.
        """
        name, now, before = self._spread.names[home], self._spread.names, self._before.names
        # Where both lists have both shards, no name moves from one to the other.
        sources = sorted({
            at
            for it, at in zip(before, self._former, strict=True)
            if at != home and (it == name or name not in before or it not in now)
        })
        for source in sources:
            yield home, source
        if len(sources) > 1:
            yield home, *sources

    def placed(self, terms: LockTerms) -> tuple[int, int]:
        """Return the number of the shard of these names, and that of the shard to lock them on.

        For names that move, the second one is a joint shard. `migration.place` says whether it is
        needed.

        Raises:
            ConfigError: They live on several shards.
        """
        homes = {name: self._spread.of(name) for name in terms.names}
        home = homes[terms.names[0]]
        if len(set(homes.values())) > 1:
            told = ", ".join(f"{name!r} lives on {self._spread.names[it]!r}" for name, it in homes.items())
            raise ConfigError(
                f"names on several shards cannot be locked together: {told}. "
                "Give them a common part in braces, which then decides alone where they live: "
                "'{account}:7', '{account}:3'"
            )
        if isinstance(terms.recipes, Slots) or terms.kind:
            home = self.settled(terms.name, "read-write lock" if terms.kind else "semaphore")
            return home, home
        return home, self.locking(home, *terms.names)

    def locking(self, home: int, *names: str) -> int:
        """Return the number of the shard to lock these names on, which live on the shard `home`."""
        former = {self._former[self._before.of(it)] for it in names} if self._former else set()
        return self.together(home, former - {home})

    def together(self, home: int, former: Collection[int]) -> int:
        """Return the number of the shard that has the nodes of all these shards."""
        if not former:
            return home
        if len(former) > 1:
            # The last one that begins with this shard has all that may be needed.
            return len(self.all) + max(at for at, it in enumerate(self.parts) if it[0] == home)
        return len(self.all) + self.parts.index((home, *former))

    def homes(self, name: str) -> list[int]:
        """Return the shards on which this name may be held: its own, then its former one.

        Raises:
            ConfigError: It cannot be a name.
        """
        key_of(name, parts=True)
        name = user_name(name)
        return list(dict.fromkeys([self.home(name), *([self._former[self._before.of(name)]] if self._former else [])]))

    def home(self, name: str) -> int:
        """Return the shard on which this name lives."""
        return self._spread.of(name)

    def counting(self, name: str) -> list[int]:
        """Return the shards that count calls of this name, in the order that all clients use.

        While the name moves, these are its old shard and then its new one.
        """
        home = self.home(name)
        former = self._former[self._before.of(name)] if self._former else home
        return [home] if former == home else [former, home]

    def settled(self, name: str, what: str) -> int:
        """Return the shard of a primitive that cannot be on two shards at once.

        `what` is its kind, such as "semaphore".

        Raises:
            ConfigError: The name moves at present.
        """
        home = self.home(name)
        if self._former and self._former[self._before.of(name)] != home:
            raise ConfigError(
                f"{what} {name!r} moves to another shard, and cannot be used meanwhile: "
                "stop all who use it, then name the new shards without `previous`"
            )
        return home

    def probe(self, at: int, *more: bytes, nodes: Sequence[NodeStatus] = ()) -> Plan[Query]:
        """Ask every node of a shard whether this client may do all it needs, or more.

        Those of `nodes` that are still being dialled are not waited for.
        """
        asked = rights.question(self.all[at].settings.prefix, *more)
        every = dict.fromkeys(range(len(self.all[at].settings.addresses)), asked)
        awaited = {i for i, it in enumerate(nodes) if it.state in ("up", "refusing")} or every.keys()
        seen: Query = yield Ask(every, lambda answers: answers.keys() >= awaited, shard=at)
        return seen

    def checked(self, at: int, nodes: tuple[NodeStatus, ...]) -> Plan[tuple[NodeStatus, ...]]:
        """Find what has to be asked of the nodes of a shard that are up.

        These are the clients that do not know this client's list of shards, and whether the nodes
        were repaired.
        """
        from ..operations.inspection import plan as inspection
        from ..operations.repair import plan as repair

        settings = self.all[at].settings
        known = yield from plans.of(at, inspection.straggling(settings, nodes))
        return (yield from plans.of(at, repair.marked(settings, known)))

    def repair(self, pause: Seconds) -> Plan[Repaired]:
        """Write back what nodes have forgotten, on every shard."""
        from ..operations.repair import plan as repair

        seconds = repair.pace(pause)
        parts = []
        for at, shard in enumerate(self.all):
            parts.append((yield from plans.of(at, repair.repair(shard.settings, seconds))))
        return repair.total(parts)

    def inspect(self, name: str) -> Plan[LockStatus]:
        """Return the state of a lock. For a name that moves, from the first shard that holds it."""
        from ..operations.inspection import plan as inspection

        found = []
        for at in self.homes(name):
            found.append((yield from plans.of(at, inspection.inspect(self.all[at].settings, name))))
            if found[-1].state != "free":
                return found[-1]
        return found[0]

    def locked_by(self, name: str) -> Plan[str | None]:
        """Return the holder of a lock on a majority of a shard, or None."""
        from ..operations.inspection import plan as inspection

        for at in self.homes(name):
            holder = yield from plans.of(at, inspection.locked_by(self.all[at].settings, name))
            if holder is not None:
                return holder
        return None

    def names(self, pattern: str) -> Plan[list[str]]:
        """Return the names of all locks that are held on any shard, in order."""
        from ..operations.inspection import plan as inspection

        found: set[str] = set()
        for at, shard in enumerate(self.all):
            found.update((yield from plans.of(at, inspection.names(shard.settings, pattern))))
        return sorted(found)

    def survey(self, pattern: str, pause: float) -> Search:
        """The locks that are held, on any set, step by step."""
        from ..operations.survey.plan import Search

        return Search([it.settings for it in self.all], pattern, pause)

    def force_release(self, name: str, reason: str, only: str | None) -> Plan[int]:
        """Take a lock away from its holder, on every shard on which it may be, and tell observers.

        Returns:
            On how many nodes it was held.
        """
        from ..operations.inspection import plan as inspection

        held = 0
        for at in self.homes(name):
            plan = inspection.force_release(self.all[at].settings, name, reason, only)
            event = yield from plans.of(at, plan)
            yield Do(methodcaller("note", event), at)
            held += event.nodes
        return held


def _addresses(shard: ShardNodes) -> list[Address]:
    return [it.address for it in shard.nodes]


def _together(shards: Sequence[Shard]) -> Shard:
    """Return the joint shard of these, whose nodes have a list for each of them."""
    home, lists, addresses = shards[0], list[tuple[int, ...]](), list[Address]()
    for it in shards:
        lists.append(tuple(range(len(addresses), len(addresses) + len(it.settings.addresses))))
        addresses += it.settings.addresses
    # Other clients tell by the last digest that this list of nodes is a joint one.
    spreads = (*home.settings.spreads, Spread([it.listed.name for it in shards]).digest)
    made = home.settings._replace(addresses=tuple(addresses), lists=tuple(lists), spreads=spreads)
    return Shard(home.listed, made, tuple(access for it in shards for access in it.access))


def _joined(now: Sequence[ShardNodes], before: Sequence[ShardNodes]) -> tuple[list[ShardNodes], list[int]]:
    """Return all shards, each once, the current ones first, and the numbers of the former ones."""
    found, former = list(now), []
    for it in before:
        twins = [number for number, other in enumerate(found) if other.places & it.places]
        twin = twins[0] if twins else len(found)
        if not twins:
            found.append(it)
        elif len(twins) > 1:
            raise ConfigError(
                f"the former shard {it.name!r} has nodes in common with {found[twin].name!r} and with "
                f"{found[twins[1]].name!r}: its nodes can be replaced, and not be spread over other shards"
            )
        elif found[twin].places != it.places:
            found[twin] = found[twin].joint(it)
        former.append(twin)
    if twice := sorted({found[it].name for it in former if former.count(it) > 1}):
        raise ConfigError(f"previous names the shard {twice[0]!r} twice")
    return found, former
