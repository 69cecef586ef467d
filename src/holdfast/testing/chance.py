"""Draws which faults happen, and how.

Each fault has a name, a number and dice of its own. So one fault can be left out without changing
the others.

Knows chance. Must not know what a fault does, or time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from random import Random


class Chance:
    """Decides on faults.

    Dice of its kind decide whether a fault happens, and dice of its own decide how. So a fault that
    is left out changes what follows from it, and not the draws of the others.

    Attributes:
        seed: The seed of all dice.
        only: The faults that may happen, such as "restarts 2". None allows all.
        happened: The faults so far, in order.
    """

    def __init__(self, seed: int, only: Collection[str] | None = None, saw: Callable[[str], object] = str) -> None:
        """
        Args:
            seed: As the attribute.
            only: As the attribute.
            saw: Called with the kind of each fault that happens.
        """
        self.seed = seed
        self.only = None if only is None else frozenset(only)
        self._saw = saw
        self.happened: list[str] = []
        self._kinds: dict[str, Random] = {}
        self._numbers: dict[str, int] = {}

    def dice(self, what: str) -> Random:
        """Return dice that only this purpose uses."""
        return Random(f"{self.seed} {what}")

    def strikes(self, what: str, chance: float = 1.0) -> Random | None:
        """Decide whether a fault of this kind happens now.

        Args:
            what: The kind.
            chance: The probability, 0 to 1.

        Returns:
            The dice of the fault. None if it does not happen.
        """
        if chance <= 0.0:
            return None
        dice = self._kinds.get(what)
        if dice is None:
            dice = self.dice(what)
            self._kinds[what] = dice
        if dice.random() >= chance:
            return None
        number = self._numbers.get(what, 0) + 1
        self._numbers[what] = number
        fault = f"{what} {number}"
        if self.only is not None and fault not in self.only:
            return None
        self.happened.append(fault)
        self._saw(what)
        return self.dice(fault)
