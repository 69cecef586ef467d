"""Surveys in the hands of threads.

Knows how a thread carries out a plan. Decides nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from ..base import survey
from ..base.survey import Search
from ..drivers.threads import Driver
from ..recipes.survey import Row
from .waiting import run


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
