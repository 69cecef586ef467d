"""Surveys in the hands of tasks.

Knows how a task carries out a plan. Decides nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Self

from ...drivers.aio.driver import Driver
from ...drivers.aio.run import run
from . import plan as survey
from .commands import Row
from .plan import Search


class Survey(survey.Survey):
    __doc__ = survey.Survey.__doc__
    __slots__ = ("_drivers",)

    def __init__(self, search: Search, drivers: Sequence[Callable[[], Driver]]) -> None:
        super().__init__(search)
        # Those of the running loop.
        self._drivers = drivers

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Row:
        row = await run(self._search.next(), *self._drivers)
        if row is None:
            raise StopAsyncIteration
        return row
