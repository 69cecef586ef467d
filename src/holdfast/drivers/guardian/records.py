"""The memory in which a client's process notes what its guardian has to release.

Knows where a record lies, and that the writer may be killed at any moment, or interrupted by a
signal's handler. Must not know what a record says.

A record takes several grains in a row, and always as many, so that a reader gets from one to the
next whatever was being written. In its first grain it has:

    byte 0       1: the record counts. Written last, and cleared first.
    byte 1       The number of its grains.
    bytes 2, 3   The number of the client's engine.
    bytes 4..7   The length of what follows.

The first grain of all has the number of bytes in use. `program` reads all this.
"""

from __future__ import annotations

import mmap
import os
import struct
from _thread import allocate_lock
from collections import deque

# Bytes.
GRAIN = 256
SIZE = 32768 * GRAIN
# The number of a record's grains is one byte.
MOST = 255
# Records of a size that still count after their tokens were released. The bytes of a release may
# lie in this process for a moment, and a release that is repeated does nothing.
LATE = 16
_HEAD = struct.Struct("<HI")


class Records:
    """Records that this process writes. All threads may, at the same time.

    Args:
        name: What the memory is called in `/proc`.
        size: Bytes.

    Attributes:
        file: The number of the file that is the memory.
    """

    def __init__(self, name: str, size: int = SIZE) -> None:
        self.file = os.memfd_create(name)
        os.ftruncate(self.file, size)
        self._map = mmap.mmap(self.file, size)
        self._size = size
        self._used = GRAIN
        self._growing = allocate_lock()
        # By the number of their grains: records to write again, the one that ended first at the
        # head. (To take one, or to add one, is one C call.)
        self._free = [deque[int]() for _ in range(MOST + 1)]

    def __del__(self) -> None:
        os.close(self.file)

    def write(self, engine: int, data: bytes) -> int:
        """Write a record.

        Args:
            engine: The number of the engine that it belongs to.
            data: What it says.

        Returns:
            Where it is. 0: there is no room.
        """
        size = len(data)
        grains = (size + GRAIN + 7) // GRAIN
        if grains > MOST:
            return 0
        free = self._free[grains]
        try:
            place = (len(free) <= LATE and self._grown(grains)) or free.popleft()
        except IndexError:
            return 0
        memory = self._map
        memory[place] = 0
        memory[place + 2 : place + 8 + size] = _HEAD.pack(engine, size) + data
        memory[place] = 1
        return place

    def _grown(self, grains: int) -> int:
        # A handler of a signal may come here while its own thread is here: it does not wait.
        if not self._growing.acquire(False):
            return 0
        try:
            place, end = self._used, self._used + grains * GRAIN
            if end > self._size:
                return 0
            self._map[place + 1] = grains
            self._map[0:8] = end.to_bytes(8, "little")
            self._used = end
        finally:
            self._growing.release()
        return place

    def drop(self, place: int) -> None:
        """Have a record count until some others were dropped, or it is written again."""
        free = self._free[self._map[place + 1]]
        free.append(place)
        if len(free) > LATE:
            self._map[free[-1 - LATE]] = 0

    def clear(self, place: int) -> None:
        """Have a record count no longer."""
        self._map[place] = 0
        self._free[self._map[place + 1]].append(place)
