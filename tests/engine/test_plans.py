"""Plans: what each step asks of a driver, and the same plan on another shard."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.engine.plans import Ask, Call, Clock, Keeps, Listen, Meet, Offer, Pause, Plan, Steer, Wall, at_once, of
from holdfast.events import Acquired


class Driver:
    """Notes what it is asked for."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def __getattr__(self, name: str) -> Any:
        return lambda *given: self.calls.append((name, *given)) or name


EVENT = Acquired.__new__(Acquired)


def nothing(*given: object) -> Any: ...


@pytest.mark.parametrize(
    "step, shard, call, answer",
    [
        (Listen(), 0, ("listen",), "listen"),
        (Wall(), 0, ("wall",), "wall"),
        (Clock(), 0, ("clock",), "clock"),
        (Keeps("once", 1), 1, ("keeps", "once"), None),
        (Steer(nothing, 1), 1, ("steer", nothing), None),
        (Offer(nothing, 1), 1, ("offer", nothing), None),
        (EVENT, 0, ("note", EVENT), None),
    ],
)
def test_steps_that_do_not_wait(step: Any, shard: int, call: tuple[Any, ...], answer: object) -> None:
    drivers = [Driver(), Driver()]
    assert at_once(step, drivers) == answer
    assert [it.calls for it in drivers] == [[call] if at == shard else [] for at in (0, 1)]


def test_a_plan_for_another_shard() -> None:
    """Steps that concern a shard are moved to it, and the answers and the result pass through."""

    def plan() -> Plan[list[object]]:
        answers = list[object]()
        for it in (Ask({0: b"a"}), Meet(0, 1.0), Keeps("x"), Steer(nothing), Offer(nothing), Pause(1.0), Call(nothing)):
            answers.append((yield it))
        return answers

    moved = of(2, plan())
    steps: list[Any] = [next(moved)]
    steps += [moved.send(it) for it in range(1, 7)]
    with pytest.raises(StopIteration) as ended:
        moved.send(7)
    assert ended.value.value == [1, 2, 3, 4, 5, 6, 7]
    assert [it.shard for it in steps[:5]] == [2] * 5
    assert not any(hasattr(it, "shard") for it in steps[5:])
