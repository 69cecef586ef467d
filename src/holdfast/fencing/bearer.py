"""Bearers of fences: a lease, or the fences that were taken from it.

Knows which names and fences a lease has. Must not know what is protected, or how.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

from .. import checks
from ..errors import ConfigError, Misuse

# Every language, and every store, has whole numbers up to here.
MOST = 2**53 - 1
LONGEST = 512  # bytes of a lock's name


@runtime_checkable
class Bearer(Protocol):
    """Anything with a lock's `name` and its `fence`: a lease of holdfast, or another lock's.

    A lease of several names has `fences`, too.
    """

    @property
    def name(self) -> str:
        """The name of the lock."""

    @property
    def fence(self) -> Any:
        """The fencing token; None if nothing is held."""


Fences = Bearer | Mapping[str, int]  # a lease, or {name: fence}


def fences_of(given: Fences, unfenced: bool = False) -> dict[str, int]:
    """Return the fence of each name, in the order of names.

    Transactions that lock records in this order do not deadlock.

    Args:
        given: A lease, or `{name: fence}`.
        unfenced: Return nothing for a lease without a fence (OPEN).

    Returns:
        `{name: fence}`, sorted by name.

    Raises:
        Misuse: The lease has no fence, and `unfenced` is False.
        ConfigError: `given` is neither, or a fence is no whole number from 1 to 2^53 - 1.
    """
    found: Mapping[str, int | None]
    if isinstance(given, Mapping):
        found = given
    elif hasattr(given, "fences"):
        found = given.fences
    elif isinstance(given, Bearer):
        found = {given.name: given.fence}
    else:
        raise ConfigError(f"a lease, or {{name: fence}}, bears a fence; {checks.shown(given)} does not: pass either")
    fences = {
        checks.text(name, "a lock's name", most=LONGEST): _fence(fence)
        for name, fence in sorted(found.items())
        if fence is not None
    }
    if not fences and not unfenced:
        raise Misuse(
            f"{checks.shown(given)} bears no fence: it was granted without servers (`fail_open`), so no one can tell "
            "whether it is stale. Pass `unfenced=True` to go on unchecked."
        )
    return fences


def fence_of(given: Fences, unfenced: bool = False) -> tuple[str, int] | None:
    """Return the only name and its fence.

    Args:
        given: A lease of one name, or `{name: fence}`.
        unfenced: Return None for a lease without a fence (OPEN).

    Returns:
        The name and the fence. None for a lease without a fence.

    Raises:
        Misuse: There are several names, or the lease has no fence and `unfenced` is False.
        ConfigError: `given` is neither, or a fence is no whole number from 1 to 2^53 - 1.
    """
    fences = fences_of(given, unfenced)
    if len(fences) > 1:
        held = ", ".join(fences)
        raise Misuse(f"the lease holds several names ({held}), and this takes one: pass {{name: lease.fences[name]}}")
    return next(iter(fences.items()), None)


def _fence(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= MOST:
        raise ConfigError(f"a fence is a whole number from 1 to 2^53 - 1, not {checks.shown(value)}")
    return value
