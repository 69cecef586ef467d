"""Fences in memory, for things that live and die with this process, such as a device.

Knows threads, tasks and the clock. Must not know what is protected.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass

from ..checks import Seconds, seconds, shown
from ..errors import Misuse, StaleFence
from .bearer import Fences, fences_of

_SWEEP = 1024  # names, from which on there may be some to forget


@dataclass(slots=True)
class _Record:
    lock: threading.Lock | asyncio.Lock
    seen: int = 0
    written: int = 0
    until: float = 0.0  # when it may be forgotten
    users: int = 0  # who is inside, or waits to be
    owner: object = None  # the thread or task that is inside


class Seen:
    """The highest fence that this process has seen of each name. It forgets with the process.

    One `Seen` is for all threads (`guard`), or for the tasks of one event loop (`aguard`), not for
    both.

    Args:
        keep: Seconds for which a name is remembered after its last use, at least 1. A fence counts
            microseconds since 1970. If nothing is remembered of a name, a fence that is older than
            `keep` is refused, so that forgetting lets nobody in. None remembers for ever, and
            accepts numbers of other locks.
        clock: Returns seconds since 1970.

    Raises:
        ConfigError: `keep` is no such time.
    """

    def __init__(self, *, keep: Seconds | None = 7 * 86400.0, clock: Callable[[], float] = time.time) -> None:
        self._keep = None if keep is None else seconds(keep, "keep", least=1.0)
        self._clock = clock
        self._records: dict[str, _Record] = {}
        # Protects the table of records. Held only to look something up.
        self._latch = threading.Lock()
        self._full = _SWEEP

    @contextmanager
    def guard(self, lease: Fences, *, read: bool = False, unfenced: bool = False) -> Iterator[None]:
        """Enter a block in which no other thread is with this name. Write inside of it.

        A write after the block is not protected: a later holder may come in between. Readers, too,
        enter one after another. In an event loop, use `aguard`: a thread that waits here would stop
        the loop, and with it the task that it waits for.

        Args:
            lease: A lease, or `{name: fence}`.
            read: The block only reads, see `FenceTable.guard`.
            unfenced: Let a lease without a fence pass unchecked.

        Returns:
            A context manager that waits for its turn.

        Raises:
            StaleFence: A later holder has been here. The body does not run.
            Misuse: This thread is inside with this name already (`self_deadlock`).
            Misuse: This thread runs an event loop, this `Seen` is for tasks, or the lease has no
                fence.
        """
        if asyncio._get_running_loop() is not None:
            raise Misuse(
                "this thread runs an event loop, which waiting here would stop for good: "
                "use `async with seen.aguard(lease)`"
            )
        with ExitStack() as stack:
            for name, fence in fences_of(lease, unfenced).items():
                record = stack.enter_context(self._record(name, threading.Lock, threading.get_ident()))
                assert isinstance(record.lock, type(self._latch))
                stack.enter_context(record.lock)
                record.owner = threading.get_ident()
                stack.callback(setattr, record, "owner", None)
                self._judge(name, fence, record, read)
            yield

    @asynccontextmanager
    async def aguard(self, lease: Fences, *, read: bool = False, unfenced: bool = False) -> AsyncIterator[None]:
        """Enter a block in which no other task is with this name. Write inside of it.

        This is `guard` for the tasks of one event loop.

        Args:
            lease: A lease, or `{name: fence}`.
            read: The block only reads, see `FenceTable.guard`.
            unfenced: Let a lease without a fence pass unchecked.

        Returns:
            An asynchronous context manager that waits for its turn.

        Raises:
            StaleFence: A later holder has been here. The body does not run.
            Misuse: This task is inside with this name already (`self_deadlock`).
            Misuse: This `Seen` is for threads, or the lease has no fence.
        """
        async with AsyncExitStack() as stack:
            for name, fence in fences_of(lease, unfenced).items():
                record = stack.enter_context(self._record(name, asyncio.Lock, asyncio.current_task()))
                assert isinstance(record.lock, asyncio.Lock)
                await stack.enter_async_context(record.lock)
                record.owner = asyncio.current_task()
                stack.callback(setattr, record, "owner", None)
                self._judge(name, fence, record, read)
            yield

    def __len__(self) -> int:
        """Return how many names are remembered."""
        return len(self._records)

    @contextmanager
    def _record(
        self, name: str, kind: Callable[[], threading.Lock | asyncio.Lock], caller: object
    ) -> Iterator[_Record]:
        """Keep the record of a name from being forgotten during the block.

        Refuse a thread or task that is inside with it already.
        """
        with self._latch:
            record = self._records.get(name)
            if record is None:
                self._sweep()
                record = self._records[name] = _Record(kind())
            if isinstance(record.lock, asyncio.Lock) is not (kind is asyncio.Lock):
                raise Misuse(
                    "one `Seen` is for threads (`guard`) or for tasks (`aguard`), not for both: "
                    "make two, of different names"
                )
            if record.owner == caller:
                raise Misuse(
                    f"this thread or task is inside with {shown(name)} already, and would wait for itself: "
                    "enter it once",
                    "self_deadlock",
                )
            record.users += 1
        try:
            yield record
        finally:
            with self._latch:
                record.users -= 1

    def _sweep(self) -> None:
        """Forget old records, each time the table has doubled since the last sweep."""
        if self._keep is not None and len(self._records) >= self._full:
            now = self._clock()
            self._records = {name: it for name, it in self._records.items() if it.users or it.until > now}
            self._full = max(_SWEEP, 2 * len(self._records))

    def _judge(self, name: str, fence: int, record: _Record, read: bool) -> None:
        now, floor = self._clock(), 0
        if self._keep is not None:
            floor = round((now - self._keep) * 1_000_000)
        seen = (record.written if read else record.seen) or floor
        if fence < seen:
            raise StaleFence(name, fence, seen)
        record.seen = max(record.seen, fence)
        if not read:
            record.written = fence
        if self._keep is not None:
            # By then the floor is above the fence. The millisecond covers the rounding of floats.
            record.until = max(now, record.seen / 1_000_000) + self._keep + 0.001
