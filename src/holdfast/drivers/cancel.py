"""What ends a wait. For drivers, and for those who describe a wait and need no driver yet.

Must not know who waits.
"""

from __future__ import annotations

from typing import Protocol

from ..checks import shown
from ..errors import ConfigError


class Cancel(Protocol):
    """What ends a wait from another thread: a `threading.Event`."""

    def is_set(self) -> bool:
        """Is the wait to end?"""


def check(cancel: object) -> None:
    """Raise ConfigError for what cannot end a wait, such as the False of `acquire(False)`.

    None is allowed: nothing ends the wait.
    """
    if cancel is not None and not callable(getattr(cancel, "is_set", None)):
        raise ConfigError(
            f"cancel is an event, such as threading.Event(), which ends waiting when it is set; not {shown(cancel)}"
        )
