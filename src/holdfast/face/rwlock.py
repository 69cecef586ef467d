"""The description of a read-write lock: its two sides are locks. Shared by both faces.

Knows how sides are described. Must not know threads or tasks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar, Unpack

from ..core.command import READER, WRITER
from .decorating import Options
from .lock import Lock

L = TypeVar("L", bound=Lock[Any])


class RWLock(Generic[L]):
    """The description of a read-write lock: many readers, or one writer, first come first served. Sends nothing by itself.

    `read()` and `write()` describe its sides, each a Lock like any other: `with`, `acquire`, `try_acquire`, or a decorator. While somebody
    waits to write, whoever comes later to read waits, too: so neither side starves. Each reader has a lease of its own. A reader's fence is
    greater than that of every earlier writer, a writer's than everybody's; two readers may have the same. So storage refuses a write that
    is below anything it has seen, and a read that is below the highest write.

    Not for a name that is used with `lock`: they keep each other out, but wait for each other as for strangers. Waiting to write inside
    one's own read is SelfDeadlock; the other way is `lease.downgrade()`.
    """

    __slots__ = ("_describe", "_name")

    def __init__(self, name: str, describe: Callable[..., L]) -> None:
        self._name, self._describe = name, describe
        self.read()  # what cannot work is said now

    @property
    def name(self) -> str:
        """The lock's name."""
        return self._name

    def read(self, **options: Unpack[Options]) -> L:
        """The side of readers, who are many at once. `options`: those of `lock`."""
        return self._describe(READER, **options)

    def write(self, **options: Unpack[Options]) -> L:
        """The side of writers: one at a time, and no reader beside it. `options`: those of `lock`."""
        return self._describe(WRITER, **options)

    def __repr__(self) -> str:
        return f"<RWLock {self.name!r}>"
