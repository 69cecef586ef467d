"""Turns names of locks into values of a label, of which there are few.

Knows names. Must not know metrics. Names of locks are no labels by default: each value of a label
is a time series, and a name such as `order:4711` would make as many as there are orders.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable

from ..kit import function_of

__all__ = ["OTHER", "Limited", "by_function", "collapsed", "first_part"]

OTHER = "other"

# A UUID, eight or more hex digits of which one is a digit, or a number.
_VARIES = re.compile(
    r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"
    r"|\b(?=[a-fA-F]*\d)[0-9a-fA-F]{8,}\b"
    r"|\d+"
)


def first_part(separator: str = ":") -> Callable[[str], str]:
    """Make a function that returns what stands before the first separator.

    Args:
        separator: What separates the parts of your names. Default: a colon.

    Returns:
        The function, for `Metrics(names=…)`: `order:4711` becomes `order`.

    Raises:
        ValueError: The separator is empty.
    """
    if not separator:
        raise ValueError(
            "first_part: the separator is empty. Name the character that separates the parts of your names."
        )
    return lambda name: name.partition(separator)[0]


def collapsed(name: str) -> str:
    """Replace what varies in a name by asterisks: numbers, UUIDs, and hex of eight digits or more.

    Args:
        name: The name of a lock.

    Returns:
        The name as a pattern: `order:4711:refund` becomes `order:*:refund`.
    """
    return _VARIES.sub("*", name)


def by_function(name: str) -> str:
    """Return the decorated function that asked for a lock, such as a task of a framework.

    That is the one that asked last, if several functions have locks of the same name.

    Args:
        name: The name of a lock.

    Returns:
        The function's qualified name. Empty: no decorated function of this process asked for it.
    """
    return function_of(name)


class Limited:
    """Calls a user's function, and lets a limited number of different values through.

    Args:
        function: From the name of a lock to the value of the label.
        most: How many different values may appear. Further ones become "other".
    """

    __slots__ = ("_function", "_most", "_seen", "_warned")

    def __init__(self, function: Callable[[str], str], most: int) -> None:
        self._function = function
        self._most = most
        self._seen: set[str] = set()
        self._warned = False

    def __call__(self, name: str) -> str:
        """Return the value of the label for the name of a lock.

        Args:
            name: The name of the lock.

        Returns:
            What the user's function returns, or "other" if there would be too many values.
        """
        value = str(self._function(name))
        if value in self._seen:
            return value
        if len(self._seen) < self._most:
            self._seen.add(value)
            return value
        if not self._warned:
            self._warned = True
            logging.getLogger("holdfast.metrics").warning(
                "names= has returned more than %d different values: %r and all further ones are counted as %r. "
                "Let names= return fewer values, for example holdfast.metrics.collapsed, or raise most=",
                self._most,
                value,
                OTHER,
            )
        return OTHER
