"""Processes of a test that end with it, even if the test is killed.

Knows processes and pipes. Must not know what the processes do.
"""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator

# Reads a pipe that is never written to. End of file means that the process with its other end is gone.
_WATCHER = 'read -r nothing; kill -KILL "-$0"'


@contextlib.contextmanager
def leashed(group: int) -> Iterator[None]:
    """Kill a group of processes if this process ends inside of the block.

    A server has workers, so that a signal at the death of its parent (PR_SET_PDEATHSIG) would not reach all of them.

    Args:
        group: The process id of the group's first process, which was started with `start_new_session`.
    """
    watcher = subprocess.Popen(["/bin/sh", "-c", _WATCHER, str(group)], stdin=subprocess.PIPE, start_new_session=True)
    try:
        yield
    finally:
        watcher.kill()
        watcher.communicate()
