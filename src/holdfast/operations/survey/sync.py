"""Surveys in the hands of threads.

Knows how a thread carries out a plan. Decides nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from ...drivers.threads import Driver
from ...drivers.threads.run import run
from . import plan as survey
from .commands import Row
from .plan import Search


class Survey(survey.Survey):
    __doc__ = survey.Survey.__doc__
    __slots__ = ("_drivers",)

    def __init__(self, search: Search, drivers: Sequence[Driver]) -> None:
        super().__init__(search)
        self._drivers = drivers

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Row:
        row = run(self._search.next(), *self._drivers)
        if row is None:
            raise StopIteration
        return row
