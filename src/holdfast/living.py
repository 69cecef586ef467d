"""A set of objects that somebody still uses, which threads may change while another thread looks through it.

Knows weak references. Must not know what is in the set.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Generic, TypeVar
from weakref import WeakValueDictionary

T = TypeVar("T")


class Living(Generic[T]):
    """Objects, compared by identity, each until nobody refers to it any more.

    Looking through a `WeakSet` raises RuntimeError if another thread adds something meanwhile. This does not.
    """

    def __init__(self, objects: Iterable[T] = ()) -> None:
        self._all: WeakValueDictionary[int, T] = WeakValueDictionary()
        for it in objects:
            self.add(it)

    def add(self, it: T) -> None:
        """It is one of them from now on."""
        self._all[id(it)] = it

    def discard(self, it: T) -> None:
        """It is none of them any more. Nothing happens if it was none."""
        self._all.pop(id(it), None)

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[T]:
        # One C call copies all references, so nothing can be added in the middle of it.
        for reference in self._all.valuerefs():
            if (it := reference()) is not None:
                yield it
