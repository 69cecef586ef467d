"""What ends a wait. For drivers, and for those who describe a wait and need no driver yet.

Must not know who waits.
"""

from __future__ import annotations

from typing import Protocol


class Cancel(Protocol):
    """What ends a wait from another thread: a `threading.Event`."""

    def is_set(self) -> bool:
        """Is the wait to end?"""
