"""Rows become figures: medians over rounds, spread, and ratios within a round.

Knows numbers. Must not know what they are of.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Figure:
    """The median of several rounds. `spread`: (most - least) / median; `rounds`: of how many."""

    value: float
    spread: float
    rounds: int

    def __str__(self) -> str:
        return f"{short(self.value)} ±{self.spread / 2:.0%}" if self.rounds > 1 else short(self.value)


def of(values: Iterable[float]) -> Figure | None:
    """Their median and spread; None of nothing."""
    found = [it for it in values if not math.isnan(it)]
    if not found:
        return None
    middle = median(found)
    return Figure(middle, (max(found) - min(found)) / middle if middle else 0.0, len(found))


def short(value: float) -> str:
    """Three digits that matter."""
    if value == 0 or value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.{max(0, 2 - math.floor(math.log10(value)))}f}" if value >= 0.01 else f"{value:.1e}"


class Rounds:
    """All rows of a run."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self.rows = [it for it in rows if "error" not in it]
        self._found: dict[tuple[str, str, int], Row] = {(it["case"], it["contender"], it["round"]): it for it in self.rows}

    def figure(self, case: str, contender: str, what: str) -> Figure | None:
        """The median of what this contender's rows say."""
        return of(float(it[what]) for it in self.rows if (it["case"], it["contender"]) == (case, contender) and what in it)

    def each(self) -> list[Round]:
        """Round by round: what a ratio is made of was measured side by side."""
        return [Round(self, number) for number in sorted({it["round"] for it in self.rows})]

    def contenders(self, case: str) -> list[str]:
        """Who has a row in a case."""
        return list(dict.fromkeys(it["contender"] for it in self.rows if it["case"] == case))

    def row(self, case: str, contender: str, round_: int) -> Row:
        """One row; LookupError if there is none."""
        return self._found[case, contender, round_]


class Round:
    """What was measured in one round."""

    def __init__(self, rounds: Rounds, number: int) -> None:
        self._rounds, self._number = rounds, number

    def __call__(self, case: str, contender: str, what: str) -> float:
        """One figure; LookupError if it was not measured."""
        return float(self._rounds.row(case, contender, self._number)[what])

    def least(self, case: str, contenders: Iterable[str], what: str) -> float:
        """The best of several contenders, of those that were measured."""
        found = []
        for it in contenders:
            try:
                found.append(self(case, it, what))
            except LookupError:
                continue
        if not found:
            raise LookupError(case)
        return min(found)
