"""How a thread carries out a plan.

Knows the threads driver's `ask`, `sleep`, `meet` and `servers`. Decides nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from ... import checks
from ...engine.plans import Ask, Call, Do, Meet, Pause, Plan, Step

if TYPE_CHECKING:
    from . import Cancel, Driver

T = TypeVar("T")


def run(plan: Plan[T], *drivers: Driver, cancel: Cancel | None = None) -> T:
    """Carry out a plan, and return its result. Errors of its steps are thrown into it.

    `cancel` ends its pauses.
    """
    checks.cancel(cancel)
    if not drivers[0].settings.addresses:
        raise drivers[0].settings.nodeless
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
                answer = _do(step, drivers, cancel)
            except BaseException as error:
                trouble = error
    finally:
        # The error refers to this frame. Break the cycle.
        trouble = None


def _do(step: Step, drivers: tuple[Driver, ...], cancel: Cancel | None) -> Any:
    match step:
        case Ask():
            return drivers[step.shard].ask(step.asks, step.enough, step.share)
        case Pause():
            return drivers[0].sleep(step.seconds, cancel, step.watch)
        case Meet():
            drivers[step.shard].meet(step.within, cancel)
            return drivers[step.shard].servers()
        case Call():
            return step.call()
        case Do():
            return step.do(drivers[step.shard])
