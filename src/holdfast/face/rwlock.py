"""The description of a read-write lock. Its two sides are locks. For threads and for asyncio.

Knows how sides are described. Must not know threads or tasks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar, Unpack

from ..protocol.command import READER, WRITER
from .lock import Lock
from .terms import Bound, Options

L = TypeVar("L", bound=Lock[Any])


class RWLock(Bound, Generic[L]):
    """The description of a read-write lock: many readers, or one writer, first come first served.

    Sends nothing by itself. `read()` and `write()` describe its two sides. You use each of them
    like a Lock: with `with`, `acquire`, `try_acquire`, or as a decorator. A reader that comes while
    a writer waits stands behind it, so neither side starves. Each reader has a lease of its own.

    A reader's fence is greater than that of every earlier writer. A writer's fence is greater than
    that of every earlier holder. Two readers may have the same. So storage should refuse a write
    below any fence that it has seen, and a read below the highest fence of a write.

    Do not use the name for `lock`, too. The two keep each other out, but have no common queue.
    Waiting to write inside your own read block raises Misuse. `lease.downgrade()` goes from
    writing to reading.
    """

    __slots__ = ("_describe", "_name")

    def __init__(self, name: str, describe: Callable[..., L]) -> None:
        self._name, self._describe = name, describe
        # Raises ConfigError for a name that cannot work.
        self.read()

    @property
    def name(self) -> str:
        """The lock's name."""
        return self._name

    def read(self, **options: Unpack[Options]) -> L:
        """Describe the side of readers, of which many may hold the lock at the same time.

        Args:
            options: Those of `lock`, except for `note`.

        Returns:
            A Lock, to acquire or to decorate with. Its leases are `shared`.

        Raises:
            ConfigError: An option cannot work, or there is a `note`.
        """
        return self._describe(READER, **options)

    def write(self, **options: Unpack[Options]) -> L:
        """Describe the side of writers, of which one at a time holds the lock, without readers.

        Args:
            options: Those of `lock`.

        Returns:
            A Lock, to acquire or to decorate with.

        Raises:
            ConfigError: An option cannot work.
        """
        return self._describe(WRITER, **options)

    def __repr__(self) -> str:
        return f"<RWLock {self.name!r}>"
