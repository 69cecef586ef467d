"""The script of latches and barriers, on simulated servers and on real ones: word by word, and held against a model in random histories."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from scripts.bench import INBOXES, Bench, Simulated, about

from holdfast.primitives.latch.commands import BARRIER, LATCH, Gathering, LatchAnswer
from holdfast.scripts import ARRIVE

KEEP, TTL = 60.0, 30.0  # seconds: longer than any test
SEEDS, STEPS = range(12), 60


@dataclass
class Caller:
    """Somebody who asks one node, and remembers what it has told."""

    birth: bytes = b"0"
    ids: list[bytes] = field(default_factory=list)


class Node:
    """One server, told what the recipe says."""

    def __init__(self, bench: Bench, kind: str = LATCH, count: int = 3) -> None:
        self.bench, self.recipe = bench, Gathering(kind, "n", count, KEEP)
        bench.load(ARRIVE)

    def say(
        self, ids: Sequence[bytes] = (), generation: int = 0, caller: Caller | None = None, recipe: Gathering | None = None, **more: Any
    ) -> Any:
        """Who arrives; what comes back, read."""
        caller = Caller() if caller is None else caller
        reply = self.bench.told((recipe or self.recipe).say(generation, ids, caller.birth, len(caller.ids), **more))
        told = self.recipe.read(reply)
        assert told is not None, reply
        if isinstance(told, LatchAnswer) and told.over <= generation:
            caller.birth, caller.ids = told.birth, [*caller.ids[: told.known], *told.ids]
        return told

    def kept(self) -> set[bytes]:
        found: list[bytes] = self.bench.operator.say("SCAN", 0, "COUNT", 1000)[1]
        return set(found)

    def pushes(self) -> list[bytes]:
        return [data for _, data in self.bench.client.heard()]

    def watch(self, ticket: int = 1) -> bytes:
        """A token that can be told, on the client's own connection."""
        self.bench.client.subscribe(INBOXES[0])
        return self.bench.token(ticket)


@pytest.fixture
def node(bench: Bench) -> Node:
    return Node(bench)


# ------------------------------------------------ word by word


def test_ids_may_have_anything_in_them_but_a_nul(node: Node) -> None:
    odd = [b"\r\n", "é %s%Z+ {x}".encode()]
    assert node.say(odd).ids == odd
    assert node.say([b"\x01"]).over == 1


def test_what_was_told_before_is_left_out(node: Node) -> None:
    caller = Caller()
    node.say([b"a"], caller=caller)
    assert caller.ids == [b"a"]
    told = node.say([b"b"], caller=caller)
    assert (told.known, told.ids, caller.ids) == (1, [b"b"], [b"a", b"b"])
    assert (node.say(caller=caller).known, caller.ids) == (2, [b"a", b"b"])


def test_a_node_that_has_forgotten_tells_all(node: Node) -> None:
    caller = Caller()
    node.say([b"a"], caller=caller)
    before = caller.birth
    node.bench.operator.say("FLUSHALL")
    node.bench.place.pass_time(0.001)
    node.say([b"b", b"c"])
    told = node.say(caller=caller)
    assert (told.known, caller.ids) == (0, [b"b", b"c"])
    assert int(before) < int(caller.birth)
    caller.ids.append(b"more than there are")
    assert node.say(caller=caller).known == 0, "an operator has deleted the set, and nothing else"


def test_who_waits_is_told_once_all_have_arrived(node: Node) -> None:
    # Rule A3.
    one, other = node.watch(1), node.watch(2)
    node.say(token=one, ttl=TTL)
    node.say([b"a"], token=other, ttl=TTL)
    node.say([b"b"])
    assert node.pushes() == []
    node.say([b"c"])
    assert node.pushes() == [b"n %b 0 {n}:latch" % it for it in (one, other)]
    node.say([b"d"])
    assert node.pushes() == []
    assert node.kept() == {b"{n}:latch"}, "nothing is kept but that it is open"


def test_who_has_not_looked_for_so_long_waits_no_longer(node: Node) -> None:
    lapsed, other = node.watch(1), node.watch(2)
    node.say(token=lapsed, ttl=0.002)
    node.bench.lapse()
    node.say(token=other, ttl=TTL)
    assert node.bench.operator.say("ZRANGE", "{n}:awaited", 0, -1) == [other], "nobody has to clean up"
    node.say(token=lapsed, ttl=0.002)
    node.bench.lapse()
    node.say(over=True)
    assert node.pushes() == [b"n %b 0 {n}:latch" % other]


def test_a_user_who_may_not_publish_opens_it_all_the_same(node: Node) -> None:
    token = node.watch()
    node.say(token=token, ttl=TTL)
    with node.bench.mute():
        assert node.say([b"a", b"b", b"c"]).over == 1
    assert node.say().over == 1


def test_another_number_is_refused_and_nothing_is_noted(node: Node) -> None:
    # Rule A5.
    other = Gathering(LATCH, "n", 2, KEEP)
    node.say([b"a"])
    assert node.say([b"b"], recipe=other) == "3"
    assert node.say([b"c"], recipe=other, over=True, token=node.bench.token(1), ttl=TTL) == "3"
    assert node.say().ids == [b"a"]
    assert node.kept() == {b"{n}:latch", b"{n}:arrived"}


def test_what_somebody_else_has_written_there_is_as_if_nothing_were(node: Node) -> None:
    for value in ("x", "3", "3 4", "-1 2 3", "3 1 0 5"):
        node.bench.operator.say("SET", "{n}:latch", value, "PX", 10_000)
        assert node.say().over == 0


def test_it_is_kept_so_long_and_never_shorter(node: Node) -> None:
    short = Gathering(LATCH, "n", 3, 1.0)
    left = lambda: node.bench.operator.batch(("PTTL", "{n}:latch"), ("PTTL", "{n}:arrived"))  # noqa: E731 (a name for a question)
    node.say([b"a"], recipe=short)
    assert all(about(it, 1000) for it in left())
    node.say()
    assert all(about(it, 60_000) for it in left()), "a look moves it on"
    node.say([b"b"], recipe=short)
    assert all(about(it, 60_000) for it in left()), "and nobody moves it back"
    node.say([b"c"], recipe=short)
    assert about(left()[0], 60_000)


def test_who_waits_is_kept_for_as_long_as_it_said(node: Node) -> None:
    one, other = node.bench.token(1), node.bench.token(2)
    node.say(token=one, ttl=TTL)
    node.say(token=other, ttl=1)
    node.say(token=one, ttl=0.5)
    assert about(node.bench.operator.say("PTTL", "{n}:awaited"), 30_000)
    assert node.bench.operator.say("ZRANGE", "{n}:awaited", 0, -1) == [other, one], "a deadline is never moved back"


# ------------------------------------------------ who only looks


def look(node: Node, generation: int = 0) -> Any:
    """What is told to somebody who only looks; nothing on the node may have changed."""
    operator = node.bench.operator
    for key in node.kept():
        operator.say("PEXPIRE", key, 20_000)
    before = snapshot(node)
    told = node.recipe.read(node.bench.told(node.recipe.look(generation)))
    assert snapshot(node) == before
    assert all(operator.say("PTTL", key) <= 20_000 for key in node.kept()), "a look does not keep it for longer"
    return told


def snapshot(node: Node) -> dict[bytes, Any]:
    """What stands in each key."""
    operator = node.bench.operator
    return {it: operator.say("GET", it) if it.endswith((b"latch", b"barrier")) else operator.say("ZRANGE", it, 0, -1) for it in node.kept()}


def test_a_look_where_nothing_is_notes_nothing(node: Node) -> None:
    # Rule A6.
    told = look(node)
    assert (told.over, told.known, told.ids) == (0, 0, [])
    assert node.kept() == set(), "the count neither"


def test_a_look_tells_who_has_arrived(node: Node) -> None:
    node.say([b"a"], token=node.watch(), ttl=TTL)
    node.say([b"b"])
    told = look(node)
    assert (told.over, told.ids) == (0, [b"a", b"b"])
    node.say([b"c"])
    assert look(node)[:1] == (1,)
    assert look(node).ids == []


def test_a_look_with_another_count_is_told(node: Node) -> None:
    node.say([b"a"])
    other = Node(node.bench, LATCH, 5)
    assert look(other) == "3"


# ------------------------------------------------ barriers


@pytest.fixture
def barrier(bench: Bench) -> Node:
    return Node(bench, BARRIER, 2)


def test_who_comes_too_late_is_told(barrier: Node) -> None:
    # Rule BA4.
    barrier.say([b"a", b"b"])
    told = barrier.say([b"b", b"c"])
    assert (told.over, told.ids) == (1, [b"c"])
    barrier.say([b"a"], 1)
    assert barrier.say([b"c"]).ids == [b"c"], "while the next one is under way, too"
    barrier.say(generation=2)
    assert barrier.say([b"c"], 1).ids == [], "that one was not full here: nobody can tell"


def test_who_is_further_takes_the_node_along(barrier: Node) -> None:
    # Rule BA2.
    token = barrier.watch()
    barrier.say([b"a"], token=token, ttl=TTL)
    assert barrier.say([b"b"], 4).over == 4
    assert barrier.say([b"a"]).over == 4
    assert barrier.pushes() == [], "whoever waits there looks again by itself, or was told by others"
    assert barrier.say([b"a"], 3).over == barrier.say([b"a"], 2).over == 4


def test_a_latch_and_a_barrier_may_have_the_same_name(barrier: Node, node: Node) -> None:
    node.say([b"a", b"b"])
    assert barrier.say([b"a"]).over == 0
    assert node.say([b"c"]).over == 1
    assert barrier.say().ids == [b"a"]


# ------------------------------------------------ random histories


@dataclass
class Model:
    """What one node is to know."""

    count: int
    over: int = 0
    sets: dict[int, list[bytes]] = field(default_factory=dict)
    waiting: dict[int, list[bytes]] = field(default_factory=dict)

    def say(self, generation: int, ids: Sequence[bytes], over: bool, token: bytes) -> tuple[int, list[bytes], list[bytes]]:
        """The generations that are over; all ids of this one if it is not, else those that came too late; who is told."""
        self.over = max(self.over, generation)
        here = self.sets.setdefault(generation, [])
        if self.over > generation:
            return self.over, [it for it in ids if it not in here] if len(here) >= self.count else [], []
        here += [it for it in dict.fromkeys(ids) if it not in here]
        if len(here) >= self.count or over:
            self.over = generation + 1
            self.sets.pop(generation - 1, None)
            return self.over, [], self.waiting.pop(generation, [])
        if token and token not in self.waiting.setdefault(generation, []):
            self.waiting[generation].append(token)
        return self.over, here, []


def history(node: Node, seed: int) -> str | None:
    """A random history on the server and in the model; where they differ first."""
    dice = random.Random(seed)
    node.bench.operator.say("FLUSHALL")
    node.bench.client.heard()
    model, callers = Model(node.recipe.count), dict[tuple[int, int], Caller]()
    tokens = [node.watch(it) for it in range(3)]
    for step in range(STEPS):
        generation = max(0, model.over - dice.choice([0, 0, 0, 0, 1, 2, -1]))
        ids = [b"%d" % dice.randrange(7) for _ in range(dice.choice([0, 1, 1, 1, 2, 5]))]
        over, token = dice.random() < 0.05, dice.choice([b"", *tokens])
        caller = callers.setdefault((generation, dice.randrange(3)), Caller())
        told = node.say(ids, generation, caller, over=over, token=token, ttl=TTL)
        wanted = model.say(generation, ids, over, token)
        found = told.over, list(told.ids) if told.over > generation else caller.ids
        pushed = sorted(it.split()[1] for it in node.pushes())
        if (*found, pushed) != (*wanted[:2], sorted(wanted[2])):
            return f"seed {seed}, step {step}: {found}, {pushed}, not {wanted}"
        keys = {b"arrived": model.sets, b"awaited": model.waiting}
        if node.kept() != {b"{n}:barrier", *[b"{n}:%b%d" % (key, it) for key, sets in keys.items() for it, here in sets.items() if here]}:
            return f"seed {seed}, step {step}: keeps {node.kept()}"
    return None


def test_a_history_is_what_it_is_in_the_model(bench: Bench) -> None:
    node = Node(bench, BARRIER, 3)
    for seed in SEEDS if isinstance(bench.place, Simulated) else range(3):
        assert (difference := history(node, seed)) is None, difference
