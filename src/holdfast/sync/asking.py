"""How a thread carries out a plan: asks nodes, lets time pass, calls what is to be called, tells observers.

Knows the threads driver's `ask`, `sleep`, `listen`, `wall`, `keeps`, `steer` and `note`. Decides nothing.
"""

from __future__ import annotations

from typing import Any, TypeVar

from ..drivers.threads import Cancel, Driver
from ..face.plans import Ask, Call, Keeps, Listen, Meet, Pause, Plan, Steer, Step, Wall

T = TypeVar("T")


def carry_out(plan: Plan[T], *drivers: Driver, cancel: Cancel | None = None) -> T:
    """Do what the plan wants done, until it knows; what goes wrong on the way is thrown into it. `cancel`: ends its pauses."""
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
        trouble = None  # (it knows this frame: nobody should have to collect that ring)


def _do(step: Step, drivers: tuple[Driver, ...], cancel: Cancel | None) -> Any:
    match step:
        case Ask():
            return drivers[step.shard].ask(step.asks, step.enough, step.share)
        case Pause():
            return drivers[0].sleep(step.seconds, cancel, step.watch)
        case Listen():
            return drivers[0].listen()
        case Wall():
            return drivers[0].wall()
        case Meet():
            drivers[step.shard].meet(step.within, cancel)
            return drivers[step.shard].servers()
        case Call():
            return step.call()
        case Keeps():
            return drivers[step.shard].keeps(step.what)
        case Steer():
            return drivers[step.shard].steer(step.do)
        case event:
            return drivers[0].note(event)
