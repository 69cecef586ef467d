"""The steps of a turn, one by one: what is asked of the nodes before and after the function has run, and what becomes of what they have."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from scripts.bench import spoken

from holdfast import Holdfast
from holdfast.engine.plans import Ask
from holdfast.primitives.once.commands import FORGOTTEN
from holdfast.primitives.once.plan import Turn
from holdfast.protocol.query import Query

FENCE, ABOVE, KEEP = 5, 7, 5000


def told(plan: Any, *rounds: list[Any]) -> list[dict[int, list[bytes]]]:
    """What a plan asks of which nodes, if they answer this."""
    asked, answer = [], None
    try:
        for answers in (*rounds, []):
            step = plan.send(answer)
            assert isinstance(step, Ask)
            asked.append({node: spoken(data) for node, data in step.asks.items()})
            answer = Query.__new__(Query)
            answer.began, answer.ended, answer.answers = 0.0, 0.5, dict(enumerate(answers))
    except StopIteration:
        return asked
    raise AssertionError(f"it goes on: {asked[-1]}")


def copy(ballot: int, value: bytes, left: int, fence: int) -> list[Any]:
    """What a node that has promised answers to a look."""
    return [1, fence, left, b"%016d %b" % (ballot, value)]


def test_after_forgetting_a_result_that_has_to_be_stored_twice_is_kept_as_long_as_any_other() -> None:
    """The first time, one node stores it, and the others have the floor of a waiter that has asked meanwhile."""
    with Holdfast("redis://n0", "redis://n1", "redis://n2") as locks:
        turn = Turn(locks.once("x", keep=KEEP / 1000)._terms, "x", 0)
    lease: Any = SimpleNamespace(fence=FENCE, token="t", check=lambda: None, _expects=lambda fence: None)
    forgotten = copy(3, FORGOTTEN, 9000, FENCE)
    told(turn.look(lease), [forgotten] * 3)
    again = copy(3, FORGOTTEN, 8000, ABOVE + 1)
    asked = told(turn.keep(lease, 1), [FENCE, ABOVE, ABOVE], [copy(FENCE, b"1", 4000, ABOVE + 1), again, again], [ABOVE + 1] * 3)
    assert [it[0][7] for it in (asked[0], asked[2])] == [b"%016d" % FENCE, b"%016d" % (ABOVE + 1)]
    assert [it[0][9] for it in (asked[0], asked[2])] == [b"%d" % KEEP] * 2
