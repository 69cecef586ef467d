"""Simulated clients and nodes for walks: docs/protocol.md, section 5, in a page, and connections that break at bad moments.

A node executes one command at a time, in the order of its connection. What was on its way when a connection broke may still be executed
long afterwards, in its order, or never. Nothing here is shared with `src`, save the claim that is being tested.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf
from random import Random

from protocol.conversation import Mute as Lock

from holdfast.protocol.claim import Claim, State
from holdfast.protocol.command import CEDE, GRANTED, INQUIRY, KEEP, RELEASE, TRY, Command
from holdfast.protocol.joint import JointRequest
from holdfast.protocol.nodes import NodeSet, Standing
from holdfast.protocol.ticket import Tickets
from holdfast.protocol.timing import Timing

EPOCH = 1_700_000_000_000  # ms
HORIZON = 16_000  # K, ms
PATIENCE = 1.0


class Node:
    """One master, and one name on it. `publish(kind, token, fence)`: tell whose token it is; False if nobody listens. Times in ms."""

    def __init__(self, publish: Callable[[bytes, bytes, int], bool], horizon: int = HORIZON) -> None:
        self._publish, self._horizon = publish, horizon
        self._name, self._until = b"", 0  # the lock's key
        self._fence, self._forgotten = 0, 0
        self._waiters: dict[bytes, int] = {}  # token -> lease deadline; its least key is the queue's head
        self._queue_until = 0  # when all of them are forgotten

    def state(self, now: int) -> tuple[object, ...]:
        """All that it keeps, as a value: without what has run out."""
        name = self.holder(now)
        fence = self._fence if now <= self._forgotten else 0
        waiters = tuple(sorted(self._waiters.items())) if now <= self._queue_until else ()
        queue_until = self._queue_until if waiters else 0
        return name, self._until if name else 0, fence, self._forgotten if fence else 0, queue_until, waiters

    def become(self, state: tuple[object, ...]) -> None:
        """Take up a state that a node was in."""
        self._name, self._until, self._fence, self._forgotten, self._queue_until, waiters = state  # type: ignore[assignment]  # (what `state` gave)
        self._waiters = dict(waiters)  # type: ignore[call-overload]  # (pairs)

    def holder(self, now: int) -> bytes:
        return self._name if now <= self._until else b""  # (a key is there until its deadline has passed)

    @property
    def waits(self) -> bool:
        """Is anybody in its queue?"""
        return bool(self._waiters)

    def execute(self, command: Command, now: int) -> object:
        ttl = round(command.ttl * 1000)
        if now > self._queue_until:
            self._waiters.clear()
        if command.mode == RELEASE:
            return self._release(command.token, now)
        return self._request(command.token, ttl, command.mode, command.fence, now, command.clock)

    def _known(self, now: int) -> int:
        """What the fence stands at: the record, or what has to be above it by now (less 1: the floor may be granted)."""
        return self._fence if now <= self._forgotten else now * 1000 - self._horizon * 500 - 1

    def _grant(self, token: bytes, until: int, proposed: int, now: int, forgotten: int = 0) -> int:
        """Grants it. The record of the fence is there for as long as the lease. `forgotten`: when the client lets it expire, if told."""
        self._fence = max(self._known(now) + 1, proposed)
        self._forgotten = max(self._fence // 1000 + self._horizon, forgotten or until)
        if forgotten and 4 * (until - now) > 3 * self._horizon and self._forgotten >= now:
            self._forgotten = max(self._forgotten, until)
        self._name, self._until = token, until
        return self._fence

    def _renew(self, proposed: int, now: int, mode: bytes) -> None:
        """Raises the fence to the proposed one, and has its record outlive the lease."""
        if now > self._forgotten or self._fence < proposed:
            self._fence = proposed if mode == KEEP else max(self._known(now), proposed)
            self._forgotten = max(self._fence // 1000 + self._horizon, self._until)
        elif self._forgotten < self._until:
            self._forgotten = min(self._until + self._horizon, now + 2 * self._horizon)

    def _enqueue(self, token: bytes, deadline: int) -> bool:
        new = token not in self._waiters
        self._waiters[token] = max(deadline, self._waiters.get(token, 0))
        self._queue_until = max(deadline, self._queue_until if len(self._waiters) > new else 0)
        return new

    def _promote(self, now: int, caller: bytes = b"", proposed: int = 0, forgotten: int = 0) -> int:
        while self._waiters:
            head = min(self._waiters)
            deadline = self._waiters.pop(head)
            if deadline <= now:
                continue
            until = min(deadline, now + 2 * self._horizon)
            fence = self._grant(head, until, proposed if head == caller else int(head[:16]), now, forgotten)
            if head == caller:
                return fence
            if self._publish(GRANTED, head, fence):
                return 0
            self._name = b""
        return 0

    def _request(self, token: bytes, ttl: int, mode: bytes, proposed: int, now: int, clock: int) -> object:
        holder = self.holder(now)
        # Where the name is free and nobody waits, the client has said when the record may expire.
        usual = not holder and not self._waiters
        forgotten = max(proposed // 1000 + self._horizon, clock // 1000 + self._horizon * 5 // 4) if usual else 0
        if holder == token:
            lower = bool(self._waiters) and min(self._waiters) < token
            if not (mode == CEDE and lower):
                self._until = max(self._until, now + ttl)
                self._renew(proposed, now, mode)
                return [self._fence, 1, 0] if lower else self._fence
            self._enqueue(token, now + ttl)
            self._name = b""
            if fence := self._promote(now, token, proposed):
                return [fence, 0, 1]
        elif mode == TRY:
            if not holder:
                fence = self._promote(now, token, proposed)  # (its own token can be in the queue only by a late command)
                if not fence and not self.holder(now):
                    fence = self._grant(token, now + ttl, proposed, now, forgotten)
                if fence:
                    return b"%016d" % fence if fence == proposed else [fence, 0, 1]
        else:
            new = self._enqueue(token, now + ttl)
            if not holder:
                if fence := self._promote(now, token, proposed, forgotten):
                    return b"%016d" % fence if fence == proposed else [fence, 0, 1]
            elif new and token < holder:
                self._publish(INQUIRY, holder, 0)
        holder = self.holder(now)
        place = sorted(self._waiters).index(token) if token in self._waiters else -1
        told = self._fence if now <= self._forgotten else 0
        return [0, self._until - now if holder else -2, place, holder or None, told]

    def _release(self, token: bytes, now: int) -> int:
        mine = self.holder(now) == token
        if mine:
            self._name = b""
        self._waiters.pop(token, None)
        if not self.holder(now):
            self._promote(now)
        return int(mine)


@dataclass
class Wire:
    """One client's connection to one node: commands, with the name that each is about. `late`: what was on its way when one broke."""

    up: bool = True
    out: deque[tuple[str, Command]] = field(default_factory=deque)
    ledger: deque[tuple[str, Command]] = field(default_factory=deque)
    back: deque[tuple[str, Command | None, object]] = field(default_factory=deque)
    late: deque[tuple[str, Command]] = field(default_factory=deque)
    unsaid: list[tuple[str, Command]] = field(default_factory=list)


class Client:
    """One engine, that wants one thing at a time: a claim, or several under one ticket."""

    def __init__(self, number: int, nodes: int) -> None:
        self.inbox = b"%032x" % number
        self.tickets, self.node_set = Tickets(self.inbox), NodeSet([f"node{i}" for i in range(nodes)], PATIENCE, inf, 16_000)
        self.wires = [Wire() for _ in range(nodes)]
        self.want: Claim | JointRequest | None = None
        self.needed = 0  # how many names it needs
        for node in range(nodes):
            self.node_set.note(node, Standing.UP, 0.0)

    @property
    def claims(self) -> tuple[Claim, ...]:
        return () if self.want is None else self.want.claims

    @property
    def names(self) -> set[str]:
        return {it.recipe.label for it in self.claims}

    def is_(self, state: State) -> bool:
        return self.want is not None and self.want.state is state

    def __lt__(self, other: Client) -> bool:
        """Is it its turn before the other's?"""
        assert self.want is not None and other.want is not None
        return (self.want.claims[0].ticket, self.inbox) < (other.want.claims[0].ticket, other.inbox)


class World:
    """Clients and nodes, which do one thing at a time, at random, and are looked at after each."""

    def __init__(self, seed: int, nodes: int, clients: int, names: str = "j", some: bool = False) -> None:
        self.dice, self.now, self.names, self.some = Random(seed), 0.0, names, some
        self.fences: dict[str, list[int]] = {name: [] for name in names}
        self.clients = [Client(i, nodes) for i in range(clients)]
        self.nodes = [
            {name: Node(lambda *push, i=i, name=name: self._published(i, name, *push)) for name in names}  # type: ignore[misc]  # (mypy knows no type of a default in a loop)
            for i in range(nodes)
        ]

    @property
    def ms(self) -> int:
        return EPOCH + int(self.now * 1000)

    # ------------------------------------------------ what can happen

    def begins(self, client: Client, patient: bool = True, renew: bool = True) -> None:
        if client.want is None or client.want.done:
            ticket = client.tickets.ticket(EPOCH / 1000 + self.now + self.dice.choice([0, 0, 0.5, -0.5]))
            needed = self.dice.randint(1, min(3, len(self.names)))
            names = self.dice.sample(self.names, len(self.names))

            def claims(names: Sequence[str]) -> list[Claim]:
                timing = Timing(9.0, None if patient else 0.0, renew)
                return [Claim(Lock(it), timing, ticket, client.tickets, client.node_set) for it in names]

            if self.some:
                client.want = JointRequest(claims(names[:needed]), lambda: claims(names[needed:]))
            else:
                client.want = claims(names)[0] if needed == 1 else JointRequest(claims(names[:needed]))
            client.needed = needed
            client.want.begin(self.now)
            self.act(client)

    def ends(self, client: Client) -> None:
        if client.want is not None:
            client.want.release(self.now)
            self.act(client)

    def extends(self, client: Client) -> None:
        if client.want is not None and client.is_(State.HELD):
            client.want.extend(self.dice.choice([2.0, 9.0, 20.0]), self.now)
            self.act(client)

    def node_hears(self, client: Client, node: int) -> None:
        wire = client.wires[node]
        if wire.out:
            name, command = wire.out.popleft()
            wire.back.append((name, command, self.nodes[node][name].execute(command, self.ms)))

    def node_hears_late(self, client: Client, node: int) -> None:
        if late := client.wires[node].late:
            name, command = late.popleft()
            self.nodes[node][name].execute(command, self.ms)

    def client_hears(self, client: Client, node: int) -> None:
        wire = client.wires[node]
        if not wire.back:
            return
        name, command, said = wire.back.popleft()
        if command is not None:
            assert wire.ledger.popleft()[1] is command
            for claim in client.claims:
                if command.owner is claim:
                    claim.answered(node, command, said, self.now)
        else:
            kind, token, fence = said  # type: ignore[misc]  # (three bytes)
            claim = next((it for it in client.claims if it.token == token and it.state in (State.WAITING, State.HELD)), None)  # type: ignore[assignment]  # (None if there is none)
            if claim is not None:
                claim.pushed(node, kind, fence, self.now)
            elif kind == GRANTED:
                self._say(client, node, name, Command(None, RELEASE, token, self.now))
        self.act(client)

    def breaks(self, client: Client, node: int) -> None:
        wire = client.wires[node]
        if wire.up:
            wire.up = False
            wire.late.extend(wire.out)
            wire.unsaid += [it for it in wire.ledger if it[1].again]
            wire.out.clear()
            wire.ledger.clear()
            wire.back.clear()
            client.node_set.note(node, Standing.CONNECTING, self.now)
            for claim in client.claims:
                claim.broke(node, self.now)
            self.act(client)

    def joins(self, client: Client, node: int) -> None:
        wire = client.wires[node]
        if not wire.up:
            wire.up = True
            client.node_set.note(node, Standing.UP, self.now)
            unsaid, wire.unsaid = wire.unsaid, []
            for name, command in unsaid:
                self._say(client, node, name, command)
            for claim in client.claims:
                claim.joined(node, self.now)
            self.act(client)

    def passes(self, seconds: float) -> None:
        self.now += seconds

    def wakes(self, client: Client) -> None:
        """A driver's round: what owes an answer for too long is hung up, and who wanted to be woken is."""
        for node, wire in enumerate(client.wires):
            if wire.up and wire.ledger and self.now >= wire.ledger[0][1].sent + PATIENCE and not wire.back:
                self.breaks(client, node)
        for claim in client.claims:
            if not claim.done and claim.wake <= self.now:
                claim.tick(self.now)
        self.act(client)

    # ------------------------------------------------ what must hold

    def look(self) -> None:
        """At most one holds a name, and all of its names or none; what is counted is so; fences grow."""
        for client in self.clients:
            states = {it.state for it in client.claims}
            assert len(states) <= 1, f"it is of two minds: {states}"
            assert len(client.claims) == client.needed or client.is_(State.WAITING), "it has more, or less, than it needs"
        for name, fences in self.fences.items():
            holding = [it for client in self.clients for it in client.claims if it.recipe.label == name and it.state is State.HELD]
            holders = [it for it in holding if self.now < it.until]
            assert len(holders) <= 1, f"two hold {name}"
            for claim in holders:
                plain = claim.as_usual
                voters = plain if plain is not None else [i for i, v in enumerate(claim.votes) if v.granted and self.now < v.bound]
                for node in voters:
                    holder = self.nodes[node][name].holder(self.ms)
                    assert holder == claim.token, f"node {node} is counted for {name}, and does not hold the token"
                if claim.since == self.now and (not fences or claim.fence != fences[-1]):
                    assert not fences or claim.fence > fences[-1], f"a fence of {name} is no greater than the one before"
                    fences.append(claim.fence)

    def calm(self, rounds: int = 600) -> None:
        """After any faults end whoever waits gets it, and gives it back. (What a late command took may be gone only after 20 s.)"""
        for client in self.clients:
            for wire in client.wires:
                wire.late.clear()
        for _ in range(rounds):
            waiting = [it for it in self.clients if it.is_(State.WAITING)]
            holding = [it for it in self.clients if it.is_(State.HELD)]
            if not waiting and not holding:
                return
            for client in holding:
                self.ends(client)
            for client in self.clients:
                for node, wire in enumerate(client.wires):
                    self.joins(client, node)
                    while wire.out:
                        self.node_hears(client, node)
            for client in self.clients:
                for node, wire in enumerate(client.wires):
                    while wire.back:
                        self.client_hears(client, node)
                self.wakes(client)
                self.look()
            self.passes(0.05)
        raise AssertionError("somebody waits for ever")

    # ------------------------------------------------ within

    def act(self, client: Client) -> None:
        stirred = client.want.stirred if isinstance(client.want, JointRequest) else []
        for claim in dict.fromkeys([*client.claims, *stirred]):
            sends, claim.sends, claim.notes, claim.news = claim.sends, [], [], False
            for nodes, command in sends:
                for node in nodes:
                    self._say(client, node, claim.recipe.label, command)
        stirred.clear()

    def _say(self, client: Client, node: int, name: str, command: Command) -> None:
        wire = client.wires[node]
        if wire.up:
            wire.out.append((name, command))
            wire.ledger.append((name, command))
        elif command.again:
            wire.unsaid.append((name, command))

    def _published(self, node: int, name: str, kind: bytes, token: bytes, fence: int) -> bool:
        for client in self.clients:
            if client.inbox == token[17:49]:
                wire = client.wires[node]
                if wire.up:
                    wire.back.append((name, None, (kind, token, fence)))
                return wire.up
        raise AssertionError("nobody's token")


def walk(seed: int, nodes: int, clients: int, steps: int, faults: bool = True, names: str = "j", some: bool = False) -> World:
    """Anything may happen at any time; then everything is well again, and whoever waits gets the lock. (A failure tells the seed.)"""
    world = World(seed, nodes, clients, names, some)
    dice = world.dice
    happenings: list[tuple[int, Callable[[Client, int], object]]] = [
        (30, world.node_hears),
        (30, world.client_hears),
        (6, lambda client, _: world.begins(client, patient=dice.random() < 0.8, renew=dice.random() < 0.8)),
        (3, lambda client, _: world.ends(client)),
        (1, lambda client, _: world.extends(client)),
        (6, lambda *_: world.passes(dice.choice([0.001, 0.05, 0.3]))),
        (6, lambda client, _: world.wakes(client)),
    ]
    if faults:
        happenings += [
            (2, world.breaks),
            (4, world.joins),
            (2, world.node_hears_late),
            (1, lambda client, node: client.wires[node].late.clear()),
            (1, lambda *_: world.passes(dice.choice([1.0, 2.9, 4.0]))),
        ]
    weights, what = [it[0] for it in happenings], [it[1] for it in happenings]
    for happens in dice.choices(what, weights, k=steps):
        happens(dice.choice(world.clients), dice.randrange(nodes))
        world.look()
    world.calm()
    return world


def take_turns(seed: int, nodes: int, clients: int, names: str, some: bool = False) -> World:
    """Without faults, and before any time passes, everybody is served, in the order of tickets. (A failure tells the seed.)

    With `some`, nobody waits for long while as much is free as the lowest ticket needs; those who need less may be served before it.
    """
    world = World(seed, nodes, clients, names, some)
    dice, queue = world.dice, list[Client]()

    def one_hears_something() -> bool:
        under_way = [(it, i) for it in world.clients for i, wire in enumerate(it.wires) if wire.out or wire.back]
        if not under_way:
            return False
        client, node = dice.choice(under_way)
        dice.choice([world.node_hears, world.client_hears])(client, node)
        world.look()
        for it in [] if some else queue:
            passed = [other for other in queue if other.is_(State.WAITING) and other < it and other.names & it.names]
            assert not (it.is_(State.HELD) and passed), "one that came later is served first"
        return True

    for client in world.clients:
        world.begins(client)
        for _ in range(dice.randrange(8 * nodes)):
            one_hears_something()
    while True:
        while one_hears_something():
            pass
        holding, queue = [it for it in world.clients if it.is_(State.HELD)], [it for it in world.clients if it.is_(State.WAITING)]
        if some and queue:
            free = len(names) - sum(it.needed for it in holding)
            assert free < min(queue).needed, "permits idle, and somebody waits"
        for it in [] if some else queue:
            before = [other for other in queue if other < it] + holding
            assert any(other.names & it.names for other in before), "nobody is in its way, and it waits"
        if not holding:
            break
        world.ends(dice.choice(holding))
    assert all(it.is_(State.OVER) for it in world.clients)
    assert not any(node.holder(world.ms) or node.waits for them in world.nodes for node in them.values()), "something is left"
    return world


__all__ = ["World", "take_turns", "walk"]
