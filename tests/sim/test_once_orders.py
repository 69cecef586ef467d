"""Who does something once, in every order: turns of several runners at once, none of whom heeds whose turn it is.

The lock is broken here on purpose: whoever wants it takes it from whoever has it, and the others go on as if nothing had happened, as a
process does that was stopped. Each command comes to its node, and each answer back, at any time after it was sent, or never; nodes' fences
rise by themselves, as clock floors do. What has to hold all the same: nobody is ever told another result than anybody else. The turns, the
bytes and the scripts are those that ship.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from math import inf
from types import SimpleNamespace
from typing import Any

import hiredis
import pytest
from sim.test_once import Forgetting, Job

from holdfast.engine.plans import Ask
from holdfast.errors import LockLost
from holdfast.face.terms import LockTerms
from holdfast.face.values import JSON
from holdfast.primitives.once import commands as recipes
from holdfast.primitives.once.plan import OnceTerms, Turn
from holdfast.protocol.quorum import Quorum
from holdfast.protocol.timing import Timing
from holdfast.scripts import LOOK, STORE
from holdfast.testing.server import Server
from holdfast.wire.resp import pack

pytestmark = pytest.mark.stories

NODES, SEEDS = 3, range(500)  # (a fault that takes long is found in the 498th)
HORIZON = 1  # ms: half of it, by which a runner's own ballot goes above what it heard, is met by the rises below
NOW = 1_800_000_000
NAME = b"n[once]"
FENCE = b"{n[once]}:fence"
RISES = (1, 2, 499, 500, 501)

Steps = Generator[Any, Any, Any]


class Lease:
    """What a turn is told of its lock. Lost when its runner is told so, which may be late or never."""

    def __init__(self, fence: int, token: str) -> None:
        self.fence, self.token, self.lost = fence, token, False

    def check(self) -> None:
        if self.lost:
            raise LockLost("n", "expired", self.fence)

    def _expects(self, fence: int) -> None:
        """No gap is looked for here."""


class Runner:
    """One caller: reads; takes the lock; looks; runs, which gives what no other run does; keeps. It calls a few times."""

    def __init__(self, world: Orders, number: int) -> None:
        self.world, self.number = world, number
        self.turn = Turn(world.deed, "n", 0)
        self.steps = self.play()
        self.ask: Ask | None = None
        self.answers: dict[int, object] = {}
        self.asked = 0  # which round it is
        self.done = False
        self.lease: Lease | None = None
        self.proceed(None)

    def play(self) -> Steps:
        world = self.world
        for _ in range(world.calls):
            began = world.clock
            while not (yield from self.turn.read()):
                yield None
                self.lease = lease = world.take(self.number)
                mine = f"{self.number} at {world.clock}"
                try:
                    if not (yield from self.turn.look(lease)):  # type: ignore[arg-type]  # (a stand-in)
                        world.job.ran[mine] = world.clock
                        yield None
                        yield from self.turn.keep(lease, mine)  # type: ignore[arg-type]  # (a stand-in)
                        world.own += 0 < self.turn._ballot != lease.fence
                except LockLost as lost:
                    if not (yield from self.ends(lost)):
                        continue
                break
            world.job.told.append((self.turn.value, began, world.clock))
            self.turn = Turn(world.deed, "n", 0)
            yield None

    def ends(self, lost: LockLost) -> Steps:
        """Whether what was done under a lock that is lost counts. If not, it comes again."""
        try:
            yield from self.turn.last(lost)
        except LockLost:
            self.turn = Turn(self.world.deed, "n", 0)
            return False
        return True

    def proceed(self, answer: object) -> None:
        """Take the next step that needs somebody else."""
        self.ask = None
        try:
            step = self.steps.send(answer)
        except StopIteration:
            self.done = True
            return
        if isinstance(step, Ask):
            self.ask, self.answers, self.asked = step, {}, self.asked + 1
            for node, data in step.asks.items():
                self.world.sends(self, node, data)

    def heard(self, asked: int, node: int, reply: object) -> None:
        """An answer has come."""
        if self.ask is not None and asked == self.asked:
            self.answers[node] = reply
            assert self.ask.enough is not None
            if self.ask.enough(self.answers) or len(self.answers) == NODES:
                self.over()

    def over(self) -> None:
        """The round is over: enough has come, or time has run out."""
        seen = SimpleNamespace(answers=self.answers, began=1.0, ended=1.0, sufficient=len(self.answers) * 2 > NODES)
        self.proceed(seen)


class Oblivious(Runner):
    """A caller of `forget`, who tries until that is certain."""

    def play(self) -> Steps:
        while True:
            yield None
            self.lease = lease = self.world.take(self.number)
            forgetting = Forgetting(self.world.clock)
            self.world.job.forgotten.append(forgetting)
            try:
                yield from self.turn.forget(lease)  # type: ignore[arg-type]  # (a stand-in)
            except LockLost as lost:
                if not (yield from self.ends(lost)):
                    continue
            forgetting.ended = self.world.clock
            return


class Orders:
    """One order of everything. `kinds`: of the callers; none: two to four who call `run` once. `calls`: how often each of these does."""

    def __init__(self, seed: int, kinds: Sequence[type[Runner]] = (), calls: int = 1) -> None:
        self.dice = random.Random(seed)
        self.job, self.clock, self.calls, self.own = Job(), 0.0, calls, 0
        settings = SimpleNamespace(addresses=(None,) * NODES, prefix="", horizon=HORIZON, quorum=Quorum(range(NODES)))
        terms = LockTerms((), Timing(10.0))
        shards: Any = SimpleNamespace(all=[SimpleNamespace(settings=settings)], every=[SimpleNamespace(settings=settings)])
        self.deed = OnceTerms(shards, "n", 10**9, None, None, terms, JSON)
        self.servers = [Server(lambda: float(NOW), f"{it:040x}") for it in range(NODES)]
        for server in self.servers:
            server.scripts.update({LOOK.sha, STORE.sha})
            server.lua.compile(LOOK.source)
            server.lua.compile(STORE.source)
        self.connections: dict[tuple[int, int], deque[tuple[Runner, int, bytes]]] = {}
        self.replies: list[tuple[Runner, int, int, object]] = []
        self.rises = self.dice.choice((0, 0, 2, 4))
        self.losses = self.dice.choice((0.0, 0.1, 0.3))
        self.fence = (NOW + 3600) * 10**6
        several = kinds or [Runner] * self.dice.randint(2, 4)
        self.runners = [kind(self, number) for number, kind in enumerate(several)]

    def do(self, node: int, data: bytes) -> object:
        reader = hiredis.Reader()
        connection = self.servers[node].connect(reader.feed)
        connection.feed(data)
        connection.disconnect()
        return reader.gets()

    def sends(self, runner: Runner, node: int, data: bytes) -> None:
        self.connections.setdefault((runner.number, node), deque()).append((runner, runner.asked, data))

    def take(self, number: int) -> Lease:
        """The lock, on some majority, whoever has it; its fence is above all that these nodes have granted."""
        nodes = self.dice.sample(range(NODES), NODES // 2 + 1)
        found = [int(self.do(it, pack(b"GET", FENCE)) or 0) for it in nodes]  # type: ignore[call-overload]  # (digits)
        fence, token = max(*found, self.fence) + 1, b"%016d:%032x:%08x" % (1, number, number)
        for it in nodes:
            self.do(it, pack(b"SET", NAME, token, b"PX", b"1000000"))
            self.do(it, pack(b"SET", FENCE, b"%d" % fence, b"PX", b"100000000"))
        return Lease(fence, token.decode())

    def rise(self) -> None:
        """A node's fence rises by itself."""
        node = self.dice.randrange(NODES)
        fence = int(self.do(node, pack(b"GET", FENCE)) or self.fence)  # type: ignore[call-overload]  # (digits)
        self.do(node, pack(b"SET", FENCE, b"%d" % (fence + self.dice.choice(RISES)), b"PX", b"100000000"))
        self.rises -= 1

    def turn(self) -> None:
        """One thing happens, anywhere."""
        dice = self.dice
        things: list[tuple[Callable[..., Any], tuple[Any, ...]]] = []
        things += [(self._arrives, (it,)) for it, connection in self.connections.items() if connection]
        things += [(self._hears, (it,)) for it in self.replies]
        for it in self.runners:
            if not it.done and it.ask is None:
                things += [(it.proceed, (None,))] * 2
            elif not it.done and dice.random() < 0.03:
                things.append((it.over, ()))
            if it.lease is not None and not it.lease.lost and dice.random() < 0.01:
                things.append((setattr, (it.lease, "lost", True)))
        if self.rises and dice.random() < 0.1:
            things.append((self.rise, ()))
        if things:
            do, arguments = dice.choice(things)
            do(*arguments)

    def _arrives(self, way: tuple[int, int]) -> None:
        runner, asked, data = self.connections[way].popleft()
        if self.dice.random() < self.losses:
            return
        reply = self.do(way[1], data)
        assert not isinstance(reply, Exception), reply
        self.replies.append((runner, asked, way[1], reply))

    def _hears(self, reply: tuple[Runner, int, int, object]) -> None:
        self.replies.remove(reply)
        runner, asked, node, answer = reply
        if self.dice.random() >= self.losses:
            runner.heard(asked, node, answer)

    def run(self) -> Job:
        """What the callers did, and were told."""
        for _ in range(900):
            self.clock += 1
            self.turn()
            if all(it.done for it in self.runners):
                break
        return self.job


def test_nobody_is_told_another_result_than_anybody_else() -> None:
    told = several = own = 0
    for seed in SEEDS:
        orders = Orders(seed)
        job = orders.run()
        assert not list(job.faults()), seed
        told += len(job.told)
        several += len(job.told) > 1 and len(job.ran) > 1
        own += orders.own
    assert told > len(SEEDS), "most are told one"
    assert several > len(SEEDS) / 3, "and had it been another's, it would have been seen"
    assert own > 10, "ballots of runners' own were needed"


def test_the_law_of_forgetting_holds_in_every_order() -> None:
    told = forgotten = several = 0
    seeds = range(150)
    for seed in seeds:
        job = Orders(seed, (Runner, Runner, Oblivious, random.Random(seed).choice((Runner, Oblivious))), calls=2).run()
        assert not list(job.faults()), seed
        told += len(job.told)
        forgotten += sum(it.ended < inf for it in job.forgotten)
        several += len({it for it, _, _ in job.told}) > 1
    assert told > 2 * len(seeds)
    assert forgotten > len(seeds) / 2
    assert several > len(seeds) / 5, "results are made again"


# ------------------------------------------------ what orders at random hardly ever show


def test_copies_of_two_ballots_are_not_counted_together_though_their_values_are_equal() -> None:
    """Two readers come one after the other, in an order that hardly ever comes at random.

    x is stored on one node, y on another with a higher ballot, x once more on the third by one who has not seen y. So x is on two of
    three nodes, and no result: whoever comes next may meet y, and has to go on with that.
    """
    orders, register = Orders(0), recipes.Register(NAME, HORIZON)
    one, two, three, four = (orders.fence + it for it in range(1, 5))

    def looks(ballot: int, *nodes: int) -> recipes.Answers:
        return {it: orders.do(it, register.look(ballot)) for it in nodes}

    def stores(ballot: int, value: bytes, *nodes: int) -> None:
        assert [orders.do(it, register.store(ballot, value, 1000)) for it in nodes] == [ballot] * len(nodes)

    assert recipes.newest(looks(one, 0, 1)) is None
    stores(one, b"x", 0)
    assert recipes.newest(looks(two, 1, 2)) is None
    stores(two, b"y", 1)
    found = recipes.newest(looks(three, 0, 2))
    assert found is not None and found.value == b"x"
    stores(three, b"x", 2)
    assert recipes.agreed(looks(0, 0, 2), Quorum(range(NODES))) is None
    found = recipes.newest(looks(four, 0, 1))
    assert found is not None and found.value == b"y"
    stores(four, b"y", 0, 1)
    second = recipes.agreed(looks(0, 0, 1), Quorum(range(NODES)))
    assert second is not None and second.value == b"y"


def test_a_ballot_of_one_s_own_goes_above_whatever_is_heard_of_later() -> None:
    """Between its choice and its arrival another fence may have come to be above it."""
    runner = Runner(Orders(0), 9)
    lease = runner.world.take(9)
    plan: Any = runner.turn._promise(lease, 1000, own=True)  # type: ignore[arg-type]  # (a stand-in)
    ask = next(plan)
    assert b"\r\n1000\r\n" in ask.asks[0]
    refusals = {0: [0, 1007, -2, None], 1: [0, 1003, -2, None]}
    plan.send(SimpleNamespace(answers=refusals, began=0.0, ended=0.0))
    ask = plan.send(True)
    assert b"\r\n1008\r\n" in ask.asks[0]
    with pytest.raises(StopIteration):
        plan.send(SimpleNamespace(answers={it: [1, 1507, -2, None] for it in range(2)}, began=0.0, ended=0.0))
    assert runner.turn._ballot == 1008


def carried_out(orders: Orders, plan: Any) -> Any:
    """What comes of a plan, when all nodes answer at once."""
    try:
        step = next(plan)
        while True:
            if isinstance(step, Ask):
                answers = {node: orders.do(node, data) for node, data in step.asks.items()}
                step = plan.send(SimpleNamespace(answers=answers, began=1.0, ended=1.0, sufficient=True))
            else:
                step = plan.send(True)
    except StopIteration as end:
        return end.value


def test_a_run_that_has_its_nodes_back_does_not_undo_forgetting() -> None:
    """A caller runs; another one has the result forgotten; then the first one has its nodes back, before it hears that it had lost them.

    What the nodes agree on when it has tried to keep its result.
    """
    orders = Orders(0)
    runner, other = Turn(orders.deed, "n", 0), Turn(orders.deed, "n", 0)
    lease: Any = orders.take(1)
    assert not carried_out(orders, runner.look(lease))
    carried_out(orders, other.forget(orders.take(2)))  # type: ignore[arg-type]  # (a stand-in)
    for node in range(NODES):
        orders.do(node, pack(b"SET", NAME, lease.token.encode(), b"PX", b"1000000"))
    with suppress(LockLost):
        carried_out(orders, runner.keep(lease, "late"))
    register = recipes.Register(NAME, HORIZON)
    copy = recipes.agreed({node: orders.do(node, register.look()) for node in range(NODES)}, Quorum(range(NODES)))
    assert copy is not None
    assert copy.void
