"""Small worlds, explored to the end: nothing is broken. And worlds with a mutant in them: it is found, within its budget of states.

These finish in seconds. `./task model` explores larger ones.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import ANY

import pytest
from model import explorer
from model.__main__ import main
from model.explorer import FORMER, NEXT, Bounds, Broken, Model, _Shape
from model.search import Search, walk
from model.worlds import SMALL, WORLDS, explore
from proof import patches
from protocol.nodes import Node
from protocol.rw_nodes import RWNode

from holdfast.protocol import quorum
from holdfast.protocol.claim import Claim, State
from holdfast.protocol.quorum import Quorum

pytestmark = pytest.mark.stories


@pytest.mark.parametrize("name", SMALL)
def test_nothing_is_broken(name: str) -> None:
    world = SMALL[name]
    explored = Search(world.bounds).run(world.most)
    assert world.least < explored.states < world.most, "it came to no end, or hardly began"
    assert set(world.shows) <= explored.seen.keys(), "what it is for did not happen"


def test_whoever_waits_is_served_in_ticket_order() -> None:
    """P-L3: the highest ticket came first, and has it; the other two wait, on all nodes. Whatever happens then, the lowest is next."""
    model = Model(Bounds(clients=3, skew=(0.0, 0.0, 0.0)))
    state = model.first()
    for client in (2, 1, 0):
        state = model.ordered(model._event(state, "begins", client)[1])
        while (after := quiet(model, state)) is not None:
            state = after
    search = Search(model.bounds)
    search.model = model
    look = model.look

    def order(state: Any) -> None:
        look(state)
        lowest, middle = (model._values[it] for it in state[3][:2])
        if middle[0] == "live" and middle[4] is State.HELD and lowest[0] == "live" and lowest[4] is State.WAITING:
            raise Broken("order: the second is served before the first")

    model.look = order  # type: ignore[method-assign]  # (a fake in its place)
    assert search.run(200_000, state).states > 100


def quiet(model: Model, state: Any) -> Any:
    """Let what is under way arrive, one at a time; None: nothing is."""
    for label, after in model.successors(state):
        if label[0] in ("hears", "executes"):
            return model.ordered(after)
    return None


def test_without_faults_nothing_goes_round_in_a_circle() -> None:
    """P-L1: so contests end."""
    model = Model(Bounds(room=2))
    states, complete = walk(model.first(), lambda state: (model.ordered(it) for _, it in model.successors(state)), 10**6)
    assert complete
    assert states > 10_000


def test_a_claim_with_something_new_in_it_is_refused() -> None:
    with pytest.raises(TypeError, match="_bag = \\[1\\] is of a kind"):
        _Shape().known("_bag", [1])
    assert _Shape().known("_bag", ()) == ()


@pytest.mark.parametrize("change", [(1, 0, 1), (0, 1, 2), (1, 2, 1), (0, 3, 2), (1, 4, 1)])
def test_who_knows_the_former_list_and_who_knows_the_next_one_must_not_meet(change: tuple[int, int, int]) -> None:
    with pytest.raises(Broken) as broken:
        Search(Bounds(nodes=sum(change), change=change, knows=(FORMER, NEXT), room=1)).run(50_000)
    assert broken.value.law.partition(":")[0] in HOLDS


def test_a_world_is_explored_and_told(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    fine, told = explore("two nodes")
    assert fine
    assert told.startswith("two nodes: 655 states, ")
    monkeypatch.setattr(quorum, "majority", lambda nodes: nodes // 2)
    fine, told = explore("two nodes")
    assert not fine
    assert "begins 0" in told
    assert main(["--list"]) == 0
    assert "three nodes, a break" in capsys.readouterr().out.splitlines()
    with pytest.raises(SystemExit):
        main(["four nodes"])
    assert "there is no world 'four nodes'" in capsys.readouterr().err


def test_a_world_in_which_too_little_happened_is_not_fine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(WORLDS, "two nodes", replace(SMALL["two nodes"], shows=("the moon falls down",)))
    assert explore("two nodes") == (False, ANY)


# ---------------------------------------------------------------- mutants

Plant = Callable[[pytest.MonkeyPatch], object]


def node(text: str, other: str) -> Plant:
    """Another text in the node."""
    return lambda monkeypatch: monkeypatch.setattr(explorer, "Node", patches.whole(Node, text, other))


def rw_node(text: str, other: str) -> Plant:
    """Another text in the node of read-write locks."""
    return lambda monkeypatch: monkeypatch.setattr(explorer, "RWNode", patches.whole(RWNode, text, other))


def claim(method: str, text: str, other: str) -> Plant:
    """Another text in a method of the claim."""
    return lambda monkeypatch: patches.method(monkeypatch, Claim, method, text, other)


def instead(where: object, name: str, other: object) -> Plant:
    """Something else instead of a function."""
    return lambda monkeypatch: monkeypatch.setattr(where, name, other)


@dataclass(frozen=True)
class Mutant:
    """What is planted, in which world it is looked for, which laws it may break, and within how many states it is found."""

    plant: Plant
    world: str
    laws: tuple[str, ...]
    within: int


HOLDS = ("counted", "exclusion", "fence")  # V and P-S1; and of two that hold it, one may have the lower fence
MUTANTS = {
    # Rule Q7.
    "no inquiry": Mutant(node("self._publish(INQUIRY, holder, 0)", "pass"), "two nodes", ("idle",), 1_000),
    # Rule Q8.
    "no cede": Mutant(claim("_cede", "if vote.granted and vote.lower:", "if False:"), "two nodes", ("idle",), 1_000),
    # Rule Q9.
    "counting while ceding": Mutant(
        claim("_cede", "vote.cedes()", "vote.lower = False"), "two nodes", HOLDS, 1_000,
    ),
    "an older answer counts while ceding": Mutant(
        claim("_told", "if vote.ceding and command.mode is not CEDE:", "if False:"), "three nodes", HOLDS, 50_000,
    ),
    # Rule Q10.
    "a cut cede is no cede": Mutant(claim("broke", "if vote.ceding:", "vote.ceding = False\n    if False:"), "a break", HOLDS, 50_000),
    # Rule Q11.
    "no start over": Mutant(claim("_burn", "if self.state is WAITING:", "if False:"), "a break", ("recovery",), 50_000),
    # Rule C3.
    "a push counts from its arrival": Mutant(
        claim("pushed", "vote.grants_by_push(", "vote.base = now + 9.0 * 0.99 - 0.002; vote.grants_by_push("),
        "a lease", HOLDS, 100_000,
    ),
    # Rule C2.
    "validity counts from the answer": Mutant(
        claim("_told", "vote.answered(command.sent, command.grants_until())",
              "self._base = command.bound = quorum.bound(now, command.ttl); vote.answered(command.sent, self._base)"),
        "a lease", HOLDS, 100_000,
    ),
    # Rule C6.
    "lost is not decided first": Mutant(
        claim("answered", "if self._late(now):", "if False:"), "renewals", ("risen",), 1_000
    ),
    # Rule C5.
    "what was granted too late is held": Mutant(claim("_hold", "if now >= until:", "if False:"), "a lease", ("late",), 100_000),
    # Rule F8.
    "no agreement on the fence": Mutant(
        instead(quorum, "agreed", lambda least, fences: max(fences) if len(fences) >= least else 0), "three nodes", ("fence",), 20_000
    ),
    # Rule F9.
    "no write-back": Mutant(claim("_write_back", "self._ask(behind", "0 and self._ask(behind"), "two nodes", ("idle",), 1_000),
    # Rule F1.
    "a grant does not raise the fence": Mutant(node("self._known(now) + 1", "self._known(now)"), "two nodes", ("fence",), 1_000),
    # Rule F1.
    "no clock floor": Mutant(node("else now * 1000 - self._horizon * 500 - 1", "else 0"), "a restart", ("fence",), 50_000),
    # Rule Q16.
    "release does not compare": Mutant(
        node('if mine:\n            self._name = b""', 'if True:\n            self._name = b""'), "one gives up", HOLDS, 50_000
    ),
    # Rule C1.
    "a quorum of half": Mutant(instead(quorum, "majority", lambda nodes: max(1, nodes // 2)), "two nodes", HOLDS, 1_000),
    # Rule SH5.
    "joint is a majority of all nodes": Mutant(
        instead(explorer, "decides", lambda lists: Quorum([node for node, it in enumerate(lists) if it])),
        "one to three nodes, former and joint", HOLDS, 1_000,
    ),
    # Rule Q15.
    "a try gives up when a quorum has refused": Mutant(
        claim("_hopeless", "return not self._quorum.met(able)",
              "return self._quorum.met(set(range(len(self.votes))) - set(able))"),
        "two nodes, both try", ("idle",), 1_000,
    ),
    # Rule G1.
    "no guard": Mutant(instead(explorer, "GUARD", 0), "a restart", HOLDS, 50_000),
    # Rules G3 and G12.
    "no guard after a promotion": Mutant(instead(explorer, "PROMOTED", 0), "a promotion", HOLDS, 50_000),
    # Rule G10.
    "a bound that is too short": Mutant(instead(explorer, "PROMOTED", explorer.GUARD), "a promotion", HOLDS, 50_000),
    # Rule G3.
    "a note of another reign is believed": Mutant(
        instead(explorer, "reigns_since", lambda note, now: now if note is None else note[1]), "a promotion", HOLDS, 50_000
    ),
    # Rule W2.
    "the first reader that leaves frees it": Mutant(
        rw_node("            if self._readers:\n                return\n", ""), "two readers and a writer", HOLDS, 20_000
    ),
    # Rule W1.
    "writers share": Mutant(rw_node("self._name == SHARED and reads(token))", "self._name == SHARED)"), "a reader tries", HOLDS, 1_000),
    # Rule W6.
    "a writer ignores readers' fences": Mutant(
        rw_node("self._known_readers(now) + 1, proposed)", "proposed)"), "a writer and a reader", ("fence",), 50_000
    ),
    # Rule W6.
    "a reader ignores writers' fences": Mutant(
        rw_node("max(self._fence + 1, proposed)", "max(self._fence, proposed)"), "a writer and a reader", ("fence",), 50_000
    ),
    # Rule W5.
    "readers are not asked": Mutant(
        rw_node("if new and self._name else", "if new and self._name not in (b'', SHARED) else"),
        "a writer and a reader on two nodes", ("idle",), 2_000,
    ),
    # Rule W1.
    "readers pass a writer that waits": Mutant(
        rw_node("elif self._fits(token) and not self._waiters:", "elif self._fits(token):"), "two readers and a writer", ("idle",), 20_000
    ),
    # Rule D2.
    "a downgrade frees it first": Mutant(
        rw_node("            deadline = max(now + ttl, self._until)\n",
                '            self._name = b""\n            self._promote(now)\n            return [0, 0, -1, self._name or None, 0]\n'),
        "a downgrade", HOLDS, 5_000,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant = MUTANTS[name]
    mutant.plant(monkeypatch)
    with pytest.raises(Broken) as broken:
        Search(SMALL[mutant.world].bounds).run(mutant.within)
    assert broken.value.law.partition(":")[0] in mutant.laws, broken.value.law
