"""Who holds which name, by what holders believe: one file for all processes of a soak, one record a name.

Knows fences, and until when a holder may believe in its lease. Must not know locks or nodes: it has to notice when they are wrong.

The file needs no lock of its own, and a process that is stopped at any point makes no false alarm: something is wrong only if a lease is
still held *after* somebody else's record was read. What such a process writes late can hide an overlap, but not make one up.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import Protocol

from holdfast.clock import clock

RECORD = struct.Struct("=Qd")  # the fence of the last holder; until when it may believe in its lease, on the clock that processes share


class Holder(Protocol):
    """A lease."""

    @property
    def held(self) -> bool:
        """Is it held now?"""

    @property
    def remaining(self) -> float:
        """For how many more seconds at least, by what is known now."""


class Ledger:
    """The file. `complaints`: what this process saw go wrong."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT)
        self.complaints: list[str] = []

    def enter(self, number: int, fence: int, holder: Holder) -> None:
        """A name is held by somebody new."""
        last, until = self._read(number)
        now = clock()
        if not holder.held:  # (it was stopped on the way here: no holder)
            return
        if now < until:
            self.complaints.append(f"name {number} has two holders, with fences {last} and {fence}, for {until - now:.3f} s more")
        elif fence <= last:
            self.complaints.append(f"name {number} has fence {fence} after {last}")
        self._write(number, fence, now + holder.remaining)

    def renew(self, number: int, fence: int, holder: Holder) -> None:
        """It is still held."""
        last, _ = self._read(number)
        now = clock()
        if not holder.held:
            return
        if last > fence:
            self.complaints.append(f"name {number} was given to fence {last} while fence {fence} held it")
        else:
            self._write(number, fence, now + holder.remaining)

    def leave(self, number: int, fence: int) -> None:
        """It is about to be given back, or was lost."""
        if self._read(number)[0] == fence:
            self._write(number, fence, 0.0)

    def _read(self, number: int) -> tuple[int, float]:
        record = os.pread(self._file, RECORD.size, number * RECORD.size)
        fence, until = RECORD.unpack(record) if len(record) == RECORD.size else (0, 0.0)
        return fence, until

    def _write(self, number: int, fence: int, until: float) -> None:
        os.pwrite(self._file, RECORD.pack(fence, until), number * RECORD.size)
