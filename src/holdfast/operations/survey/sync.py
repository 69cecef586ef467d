"""Surveys in the hands of threads.

Knows how a thread carries out a plan. Decides nothing.
"""

from __future__ import annotations

from typing import Self

from ...drivers.threads.run import run
from . import plan as survey
from .commands import Row


class Survey(survey.Survey):
    __slots__ = ()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Row:
        row = run(self._search.next(), *self._drivers)
        if row is None:
            raise StopIteration
        return row
