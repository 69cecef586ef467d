"""Every interleaving of requests for permits: the shipped `JointRequest` and `Claim`s of k slots under one ticket, of which any m will do.

What is explored. N nodes, k slots on each, and some clients, who want m permits each: no faults, and no time passes (faults are for
one slot, and `explorer` has them). A client begins, gives back, or gives up; a node executes what is next for a slot on a connection;
a client hears what is next. A slot's commands have a connection of their own here. That is more than can happen: in truth all slots
of a node share one.

What must hold: no slot is held by two, and every node that counts holds the token (P-S1, V); whoever holds has as many as it wants, and
keeps no other; fences of a slot grow (P-S2); when nothing is under way, the lowest ticket that waits has not enough slots that are out
of holders' hands (P-L1: no deadlock, and no permit is forgotten); nothing goes round in a circle.

Knows claims and `explorer`'s way to take one apart. Must not know what a claim is made of.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from holdfast.protocol.claim import Claim, State
from holdfast.protocol.joint import JointRequest

from .explorer import BACK, FRESH, GUARD, IDLE, INSTANT, NOTICED, Bounds, Broken, Model, _Engine
from .search import walk

Situation = tuple[tuple[int, ...], tuple[int, ...]]  # how often each client has begun; slots, in order


class Permits(JointRequest):
    """The shipped goal, when it has asked for all slots: what it does once it is denied. (Before that, it waits for nobody's half.)"""

    __slots__ = ()

    def __init__(self, claims: Sequence[Claim], wanted: int) -> None:
        super().__init__(claims)
        self._needed, self._over = wanted, False


@dataclass(frozen=True, slots=True)
class Demand:
    """What is wanted: `wants[i]` of `slots` by each client, `holds` times. `room`: how many messages may be under way to clients."""

    nodes: int
    slots: int
    wants: tuple[int, ...]
    holds: int = 1
    cancels: bool = False
    room: int = 99


class Slots:
    """The world of a demand. A slot is (each client's claim, columns in order, highest fence); a column is as in `explorer`."""

    joint = Permits

    def __init__(self, demand: Demand) -> None:
        self.demand, self.clients = demand, range(len(demand.wants))
        self.model = Model(Bounds(nodes=demand.nodes, clients=len(demand.wants)))
        self._values, self._number = self.model._values, self.model._number
        self._done, self._local = dict[Any, Any](), dict[int, Any]()
        self._looked = set[int]()

    def first(self) -> Situation:
        """Nothing has happened."""
        column = self.model._column(self._number(self.model._empty), -GUARD, [FRESH] * len(self.clients))
        slot = self._number(((("idle", 0, 0, 0),) * len(self.clients), (column,) * self.demand.nodes, 0))
        return (0,) * len(self.clients), (slot,) * self.demand.slots

    def _half(self, column: int, client: int) -> Any:
        return self._values[self._values[column][2][client]]

    # ------------------------------------------------ what can happen

    def successors(self, state: Situation) -> Iterator[tuple[tuple[Any, ...], Situation]]:
        """Everything that can happen now, and what comes of it."""
        begun, slots = state
        found: list[tuple[tuple[Any, ...], Situation]] = []
        full = self.demand.room <= sum(self._under_way(slot) for slot in slots)
        for at, slot in enumerate(slots):
            if at and slot == slots[at - 1]:  # alike in all: what happens there may as well happen here
                continue
            for label, after in self._within(slot):
                if not full:
                    found.append(((*label, at), self._ordered(begun, (*slots[:at], after, *slots[at + 1 :]))))
            columns = self._values[slot][1]
            for node, column in enumerate(columns):
                if node and column == columns[node - 1]:
                    continue
                for client in self.clients:
                    if self._half(column, client)[BACK]:
                        label = ("hears", client, node, at)
                        after, idle = self._input(state, client, "hears", at, node)
                        if idle == IDLE:
                            yield label, after
                            return
                        found.append((label, after))
        for client in self.clients:
            states = self._states(slots, client)
            if not states:
                if begun[client] < self.demand.holds:
                    found.append((("begins", client), self._input(state, client, "begins", -1, -1)[0]))
            elif State.HELD in states:
                found.append((("gives it back", client), self._input(state, client, "gives it back", -1, -1)[0]))
            elif self.demand.cancels:
                found.append((("gives up", client), self._input(state, client, "gives up", -1, -1)[0]))
        yield from found

    def _states(self, slots: Sequence[int], client: int) -> list[Any]:
        """How the claims of a client are, those that are not over."""
        return [it[4] for it in (self._values[slot][0][client] for slot in slots) if it[0] == "live"]

    def _ordered(self, begun: tuple[int, ...], slots: Sequence[int]) -> Situation:
        return begun, tuple(sorted(slots))

    def _under_way(self, slot: int) -> int:
        return sum(self.model._under_way(column)[0] for column in self._values[slot][1])

    def _within(self, slot: int) -> list[tuple[tuple[Any, ...], int]]:
        """What nodes can execute of a slot, and the slot that comes of it."""
        known = self._local.get(slot)
        if known is not None:
            return known  # type: ignore[no-any-return]  # (the same type)
        known = self._local[slot] = []
        claims, columns, highest = self._values[slot]
        for node, column in enumerate(columns):
            if node and column == columns[node - 1]:
                continue
            for label, _, other in self.model._at(column, 0):
                after = tuple(sorted((*columns[:node], other, *columns[node + 1 :])))
                known.append(((*label, node), self._number((claims, after, highest))))
        return known

    # ------------------------------------------------ at a client

    def _input(self, state: Situation, client: int, kind: str, at: int, node: int) -> tuple[Situation, int]:
        begun, slots = state
        key = (client, tuple(slots), kind, at, node, begun[client])
        done = self._done.get(key)
        if done is None:
            done = self._done[key] = self._ask(slots, client, kind, at, node, begun[client])
        after, idle = done
        if kind == "begins":
            begun = (*begun[:client], begun[client] + 1, *begun[client + 1 :])
        return self._ordered(begun, after), idle

    def _ask(self, slots: Sequence[int], client: int, kind: str, at: int, node: int, begun: int) -> tuple[tuple[int, ...], int]:
        """Put an input to the claims of a client, and see what they say."""
        engines = [self._engine(slot, client) for slot in slots]
        moments = [instant for engine in engines for base, instant in map(engine._instant, engine._moments()) if base == 0.0]
        for engine in engines:
            engine.now = INSTANT * (1 + max(moments, default=0))
            if kind == "begins":
                engine.core = ("idle", begun, *engine.core[2:])
                engine._begin()
        wanted = self.demand.wants[client]
        claims = [it.claim for it in engines if it.claim is not None]
        # A client that has ended may still hear what nodes have sent it.
        joint = self.joint(claims, wanted) if claims else None
        before = [it.claim is not None and it.claim.state is State.HELD for it in engines]
        idle = NOTICED
        if kind == "hears":
            idle = engines[at].happens(kind, node)
        elif kind != "begins" and joint is not None:
            joint.release(engines[0].now)
        after = []
        held = [it.claim for it in engines if it.claim is not None and it.claim.state is State.HELD]
        if held and (len(held) != wanted or any(it.claim is not None and it.claim.state is State.WAITING for it in engines)):
            raise Broken(f"whole: {len(held)} are held of {wanted}, or more are waited for")
        for slot, engine, was in zip(slots, engines, before, strict=True):
            claims, columns, highest = self._values[slot]
            engine._act()
            if engine.claim is not None:
                engine.claim.company = None
                if engine.claim.state is State.HELD and not was:
                    if engine.claim.fence <= highest:
                        raise Broken(f"fence: {engine.claim.fence} is granted after {highest}")
                    highest = engine.claim.fence
            core = engine.take_apart()
            halves = [self._number(tuple(it)) for it in engine.halves]
            others = sorted(self.model._swap(column, client, half) for column, half in zip(columns, halves, strict=True))
            after.append(self._number(((*claims[:client], core, *claims[client + 1 :]), tuple(others), highest)))
        return tuple(after), idle

    def _engine(self, slot: int, client: int) -> _Engine:
        claims, columns, _ = self._values[slot]
        return _Engine(self.model, client, claims[client], [list(self._half(column, client)) for column in columns], 0)

    # ------------------------------------------------ what must hold

    def look(self, state: Situation) -> None:
        """P-S1 and V, in every slot."""
        for slot in state[1]:
            if slot not in self._looked:
                self._looked.add(slot)
                self._look(*self._values[slot][:2])

    def _look(self, claims: Sequence[Any], columns: Sequence[int]) -> None:
        if sum(it[0] == "live" and it[4] is State.HELD for it in claims) > 1:
            raise Broken("exclusion: two hold a slot")
        for column in columns:
            for client, core in enumerate(claims):
                if core[0] == "live":
                    self.model._counts(client, core, self._values[column], 0)

    def settled(self, state: Situation) -> None:
        """P-L1, where nothing is under way: the lowest ticket waits for holders only."""
        waiting, out = [], 0
        for client in self.clients:
            states = self._states(state[1], client)
            if State.WAITING in states:
                token = next(it[7] for slot in state[1] for it in [self._values[slot][0][client]] if it[0] == "live")
                waiting.append((token, self.demand.wants[client]))
            out += states.count(State.HELD)
        if waiting and self.demand.slots - out >= min(waiting)[1]:
            raise Broken("idle: nothing is under way, enough slots are free, and the first in line waits")


def explore(world: Slots, most: int) -> tuple[int, bool]:
    """How many states there are, and whether those are all."""
    return walk(world.first(), lambda state: _follow(world, state), most)


def _follow(world: Slots, state: Situation) -> Iterator[Situation]:
    world.look(state)
    all_ = list(world.successors(state))
    if all(label[0] in ("begins", "gives it back", "gives up") for label, _ in all_):
        world.settled(state)
    return (after for _, after in all_)


__all__ = ["Demand", "Permits", "Slots", "explore"]
