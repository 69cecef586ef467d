"""What undoes the work of `once_per_run` at the end of a run of pytest.

Knows nothing but these functions. A module of its own, because pytest must be the first to import
`plugin`: it rewrites the assertions of plugins.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["at_end", "ends"]

Ending = Callable[[Any], object]

ends: dict[str, Ending] = {}


def at_end(key: str) -> Callable[[Ending], Ending]:
    """Decorate the function that undoes what the fixture `once_per_run` has made.

    It belongs in the conftest.py at the root of your tests. It is called once, with the result,
    when all tests have run. With pytest-xdist, the controller calls it when all workers have ended,
    also if some were killed.

    Args:
        key: The key that `once_per_run` was called with.

    Returns:
        A decorator, which returns the function.

    Raises:
        ValueError: The key has such a function already.
    """
    if key in ends:
        raise ValueError(f"at_end has a function for {key!r} already: {ends[key].__qualname__}")

    def decorate(function: Ending) -> Ending:
        ends[key] = function
        return function

    return decorate
