"""How a task carries out a plan.

Knows the asyncio driver's `ask`, `sleep`, `meet` and `servers`. Decides nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from inspect import isawaitable
from typing import Any, TypeVar

from ...engine.plans import Ask, Call, Do, Meet, Pause, Plan, Step
from .driver import Driver

T = TypeVar("T")


async def run(plan: Plan[T], *ways: Callable[[], Driver]) -> T:
    """Carry out a plan, and return its result. Errors of its steps are thrown into it.

    `ways` return the drivers of the running loop.
    """
    drivers = [it() for it in ways]
    answer: Any = None
    trouble: BaseException | None = None
    try:
        while True:
            try:
                step = plan.send(answer) if trouble is None else plan.throw(trouble)
            except StopIteration as end:
                value: T = end.value
                return value
            answer = trouble = None
            try:
                answer = await _do(step, drivers)
            except BaseException as error:
                trouble = error
    finally:
        # The error refers to this frame. Break the cycle.
        trouble = None


async def _do(step: Step, drivers: Sequence[Driver]) -> Any:
    match step:
        case Ask():
            return await drivers[step.shard].ask(step.asks, step.enough, step.share)
        case Pause():
            return await drivers[0].sleep(step.seconds, step.watch)
        case Meet():
            await drivers[step.shard].meet(step.within)
            return drivers[step.shard].servers()
        case Call():
            found = step.call()
            return await found if isawaitable(found) else found
        case Do():
            return step.do(drivers[step.shard])
