"""The driver for threads: one thread a client and process, the I/O thread, owns the engine and all
sockets.

Knows sockets, `poll`, threads, signals and fork. Must not know the protocol: it moves bytes and
time between an engine and the world.

- `pending`: what a caller asks of the I/O thread on behalf of a lease.
- `links`: the sockets, and the bell that wakes the I/O thread.
- `direct`: what callers do by themselves, in the usual case.
- `io_thread`: the thread, and what it does in one turn.
- `driver`: what the sync face calls.

In the usual case a caller acquires and releases by itself; `direct` says how that is safe. For all
else, callers append to one deque, ring the bell if the I/O thread sleeps, and wait on a lock of
their own. The exception of a signal can only ever hit an append or a wait there: nothing is ever
half done. What an interrupted caller did not say, its lease says when it dies: the finalizer is
that same append, one C call.
"""

from typing import TYPE_CHECKING

from ...lazy import lazy
from ..cancel import Cancel
from .call import GIVEN, LEAVING, WANTED, PendingCall

if TYPE_CHECKING:
    from .driver import Driver
else:
    # It loads sockets, which a program that makes no client does not need.
    __getattr__, __dir__ = lazy(__name__, {".driver": ["Driver"]})

__all__ = ["GIVEN", "LEAVING", "WANTED", "Cancel", "Driver", "PendingCall"]
