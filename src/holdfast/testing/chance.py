"""What goes wrong, and how: each fault has a name, a number and dice of its own, so that one can be left out and the others stay.

Knows chance. Must not know what a fault does, or time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from random import Random


class Chance:
    """Decides on faults. `seed`: of all of it; `only`: the faults that may happen ("restarts 2"), of those that would; None: all.

    Whether a fault of some kind happens is drawn from the kind's own dice, and how from the fault's own: so a fault that is left out
    changes what follows from it, and not the draws of the others. `happened`: the faults, in order; `saw`: is told each one's kind.
    """

    def __init__(self, seed: int, only: Collection[str] | None = None, saw: Callable[[str], object] = str) -> None:
        self.seed, self.only, self._saw = seed, None if only is None else frozenset(only), saw
        self.happened: list[str] = []
        self._kinds: dict[str, Random] = {}
        self._numbers: dict[str, int] = {}

    def dice(self, what: str) -> Random:
        """Dice for something that is nobody else's."""
        return Random(f"{self.seed} {what}")

    def strikes(self, what: str, chance: float = 1.0) -> Random | None:
        """Does this fault happen now? Its dice if so."""
        if chance <= 0.0:
            return None
        dice = self._kinds.get(what)
        if dice is None:
            dice = self._kinds[what] = self.dice(what)
        if dice.random() >= chance:
            return None
        self._numbers[what] = number = self._numbers.get(what, 0) + 1
        fault = f"{what} {number}"
        if self.only is not None and fault not in self.only:
            return None
        self.happened.append(fault)
        self._saw(what)
        return self.dice(fault)
