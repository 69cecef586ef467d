"""Plans: what each step asks of a driver, and the same plan on another shard."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.engine.plans import Ask, Call, Do, Meet, Pause, Plan, of


def nothing(*given: object) -> Any: ...


def test_a_plan_for_another_shard() -> None:
    """Steps that concern a shard are moved to it, and the answers and the result pass through."""

    def plan() -> Plan[list[object]]:
        answers = list[object]()
        for it in (Ask({0: b"a"}), Meet(0, 1.0), Do(nothing), Pause(1.0), Call(nothing)):
            answers.append((yield it))
        return answers

    moved = of(2, plan())
    steps: list[Any] = [next(moved)]
    steps += [moved.send(it) for it in range(1, 5)]
    with pytest.raises(StopIteration) as ended:
        moved.send(5)
    assert ended.value.value == [1, 2, 3, 4, 5]
    assert [it.shard for it in steps[:3]] == [2] * 3
    assert not any(hasattr(it, "shard") for it in steps[3:])
