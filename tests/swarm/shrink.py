"""A failing world, made as small as it can be while the same law is still broken.

Knows plans and faults. Must not know what a fault does, or why a law is broken.

Faults are left out, by kind and then one by one; and clients, nodes, names and time, as the plan
has them. Every try is a run: what is left is the smallest that was found within a budget of runs,
and not the smallest there is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from itertools import groupby
from typing import Any, Unpack

from .campaign import live
from .explore import Exploration
from .faults import WorldSettings
from .stage import How

RUNS = 400  # tries
# Seconds after a violation: when its world may end.
MOMENT = 1e-4


@dataclass(frozen=True, slots=True)
class Case:
    """A world: its seed, its plan, and the faults that may happen in it."""

    seed: int
    plan: WorldSettings
    only: tuple[str, ...]

    def stage(self, **how: Unpack[How]) -> Exploration:
        """Set it."""
        such: How = {**how, "only": self.only}
        return Exploration(self.seed, self.plan, **such)

    def changes(self, plan: WorldSettings) -> str:
        """In what its plan differs from another."""
        mine = {it.name: getattr(self.plan, it.name) for it in fields(WorldSettings)}
        return ", ".join(f"{name}={value!r}" for name, value in mine.items() if value != getattr(plan, name))


class Shrinking:
    """The search.

    `smallest`: what it has found so far; `law`: that is broken in it; `runs`: how many it has
    taken.
    """

    def __init__(self, seed: int, plan: WorldSettings, most: int = RUNS, **how: Unpack[How]) -> None:
        self._how: How = {**how, "records": False}
        self._most = most
        self.runs = 0
        stage = Exploration(seed, plan, **self._how)
        self.law = live(stage).law
        self.smallest = Case(seed, plan, tuple(stage.world.chance.happened))

    def run(self) -> Case:
        """Search until nothing can be left out any more, or all runs are used."""
        before: Case | None = None
        while self.smallest != before and self.runs < self._most:
            before = self.smallest
            self._leave_out_kinds()
            self._simplify()
            self._leave_out_faults()
        return self.smallest

    def _still(self, case: Case) -> bool:
        """Is the same law still broken?

        Then this is the smallest now, but for the faults that did not happen in it, and its last
        time.
        """
        if self.runs >= self._most:
            return False
        self.runs += 1
        stage = case.stage(**self._how)
        outcome = live(stage)
        if outcome.law != self.law:
            return False
        only = tuple(it for it in case.only if it in stage.world.chance.happened)
        plan = case.plan
        # It ends there, whatever was to come; and messages are not counted any more.
        if outcome.seconds < plan.seconds:
            plan = replace(plan, seconds=outcome.seconds + MOMENT)
        self.smallest = Case(case.seed, plan, only)
        return True

    def _leave_out_kinds(self) -> None:
        for kind in _kinds(self.smallest.only):
            self._try_faults([it for it in self.smallest.only if _kind(it) != kind])

    def _leave_out_faults(self) -> None:
        """Ever smaller pieces of what is left, as in delta debugging."""
        size = max(len(self.smallest.only) // 2, 1)
        while size:
            at = 0
            while at < len(self.smallest.only):
                left = self.smallest.only
                if not self._try_faults([*left[:at], *left[at + size :]]):
                    at += size
            size //= 2

    def _try_faults(self, only: Sequence[str]) -> bool:
        return self._still(replace(self.smallest, only=tuple(only)))

    def _simplify(self) -> None:
        for name in ("clients", "each", "nodes", "names", "several", "ttls", "slow", "eager"):
            for value in _simpler(name, getattr(self.smallest.plan, name)):
                if self._still(replace(self.smallest, plan=replace(self.smallest.plan, **{name: value}))):
                    break


def _simpler(name: str, value: Any) -> Iterator[Any]:
    """Values that make a plan simpler, the simplest first."""
    match name:
        case "clients" | "each" | "names":
            yield from range(1, value)
        case "nodes":
            yield from (it for it in (1, 3, 5) if it < value)
        case "several" | "slow":
            yield from [0.0] * (value > 0.0)
        case "ttls":
            yield from [(max(value),)] * (len(value) > 1)
        case "eager":
            yield from [1.0] * (value < 1.0)


def _kind(fault: str) -> str:
    return fault.rpartition(" ")[0]


def _kinds(faults: Sequence[str]) -> list[str]:
    """The kinds there are, the most frequent first."""
    counts = {kind: len(list(them)) for kind, them in groupby(sorted(faults, key=_kind), key=_kind)}
    return sorted(counts, key=lambda kind: (-counts[kind], kind))
