"""How a task asks nodes what is no lock.

Knows the asyncio driver's `ask`. Decides nothing.
"""

from __future__ import annotations

from typing import TypeVar

from ..drivers.aio import Driver
from ..face.looking import Plan

T = TypeVar("T")


async def carry_out(plan: Plan[T], driver: Driver) -> T:
    """Ask what the plan wants asked, until it knows."""
    try:
        ask = next(plan)
        while True:
            ask = plan.send(await driver.ask(ask.asks, ask.enough))
    except StopIteration as end:
        value: T = end.value
        return value
