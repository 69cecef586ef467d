"""How a task carries out a plan: asks nodes what is no lock, lets time pass, tells observers.

Knows the asyncio driver's `ask`, `sleep` and `note`. Decides nothing.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, TypeVar

from ..drivers.aio import Driver
from ..events import Event
from ..face.looking import Ask
from ..face.rate import Pause

T = TypeVar("T")


async def carry_out(plan: Generator[Ask | Pause | Event, Any, T], *drivers: Driver) -> T:
    """Do what the plan wants done, until it knows."""
    answer: object = None
    try:
        while True:
            match plan.send(answer):
                case Ask() as ask:
                    answer = await drivers[ask.shard].ask(ask.asks, ask.enough)
                case Pause() as pause:
                    answer = await drivers[0].sleep(pause.seconds)
                case event:
                    answer = None
                    drivers[0].note(event)
    except StopIteration as end:
        value: T = end.value
        return value
