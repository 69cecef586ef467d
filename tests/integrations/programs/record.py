"""Writes lines into the record of a test: when, which process, what."""

from __future__ import annotations

import os
import time


def note(*words: object) -> None:
    """Write one line. Lines of several processes do not mix: each is one write at the end of the file."""
    line = " ".join(map(str, [f"{time.monotonic():.6f}", os.getpid(), *words])) + "\n"
    file = os.open(os.environ["RECORD"], os.O_WRONLY | os.O_APPEND)
    try:
        os.write(file, line.encode())
    finally:
        os.close(file)
