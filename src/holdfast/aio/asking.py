"""How a task carries out a plan: asks nodes, lets time pass, calls what is to be called, tells observers.

Knows the asyncio driver's `ask`, `sleep`, `listen`, `wall`, `keeps`, `steer` and `note`. Decides nothing.
"""

from __future__ import annotations

from inspect import isawaitable
from typing import Any, TypeVar

from ..drivers.aio import Driver
from ..face.plans import Ask, Call, Keeps, Listen, Meet, Pause, Plan, Steer, Step, Wall

T = TypeVar("T")


async def carry_out(plan: Plan[T], *drivers: Driver) -> T:
    """Do what the plan wants done, until it knows; what goes wrong on the way is thrown into it."""
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
        trouble = None  # (it knows this frame: nobody should have to collect that ring)


async def _do(step: Step, drivers: tuple[Driver, ...]) -> Any:
    match step:
        case Ask():
            return await drivers[step.shard].ask(step.asks, step.enough, step.share)
        case Pause():
            return await drivers[0].sleep(step.seconds, step.watch)
        case Listen():
            return drivers[0].listen()
        case Wall():
            return drivers[0].wall()
        case Meet():
            await drivers[step.shard].meet(step.within)
            return drivers[step.shard].servers()
        case Call():
            found = step.call()
            return await found if isawaitable(found) else found
        case Keeps():
            return drivers[step.shard].keeps(step.what)
        case Steer():
            return drivers[step.shard].steer(step.do)
        case event:
            return drivers[0].note(event)
