"""A set of objects that are still in use, which threads may change while another iterates.

Knows weak references. Must not know what is in the set.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Generic, TypeVar
from weakref import WeakValueDictionary

T = TypeVar("T")


class SafeWeakSet(Generic[T]):
    """Objects, compared by identity. Each stays in the set as long as something refers to it.

    Iterating over a `WeakSet` raises RuntimeError if another thread adds an object meanwhile.
    Iterating over this set does not.
    """

    def __init__(self, objects: Iterable[T] = ()) -> None:
        self._all: WeakValueDictionary[int, T] = WeakValueDictionary()
        for it in objects:
            self.add(it)

    def add(self, it: T) -> None:
        """Add an object."""
        self._all[id(it)] = it

    def discard(self, it: T) -> None:
        """Remove an object. Idempotent."""
        self._all.pop(id(it), None)

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[T]:
        # One C call copies all references, so nothing can be added in the middle of it.
        for reference in self._all.valuerefs():
            if (it := reference()) is not None:
                yield it
