"""Surveys in the hands of tasks.

Knows how a task carries out a plan. Decides nothing.
"""

from __future__ import annotations

from typing import Self

from ...drivers.aio.run import run
from . import plan as survey
from .commands import Row


class Survey(survey.Survey):
    __slots__ = ()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Row:
        row = await run(self._search.next(), *self._drivers)
        if row is None:
            raise StopAsyncIteration
        return row
