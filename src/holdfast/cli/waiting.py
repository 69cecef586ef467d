"""What is told while a lock is waited for, and whose terminal it is.

Knows what an inspection says, terminals and process groups. Must not know commands.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ..clock import clock
from ..errors import HoldfastError, NoQuorum, readable
from . import tree
from .durations import told
from .output import explained

if TYPE_CHECKING:
    from .. import Holdfast, LockStatus, NodeStatus
    from .job import Job

_FIRST, _PIPED, _AGAIN = 1.0, 5.0, 2.0  # seconds: on a terminal, elsewhere, and until the next line


class HolderWatch:
    """Looks at a lock while another thread waits for it, and says who holds it."""

    def __init__(self, locks: Holdfast, job: Job, tell: Callable[[str, float], object]) -> None:
        self._locks, self._job, self._tell = locks, job, tell
        self._end = threading.Event()
        self._began = clock()
        threading.Thread(target=self._look, daemon=True).start()

    def end(self) -> None:
        """Stop looking."""
        self._end.set()

    def _look(self) -> None:
        terminal = os.isatty(2)
        pause = _FIRST if terminal else _PIPED
        while not self._end.wait(pause):
            waited = clock() - self._began
            text = f"waiting {told(waited)} for {self._job.name!r}"
            try:
                if self._job.looks_at:
                    text += sentence(self._locks.inspect(self._job.looks_at), self._locks.settings.owner)
            except NoQuorum:
                text += f": {shortage(self._locks.nodes())}"
            except HoldfastError as error:
                text += f": {explained(error)}"
            if self._end.is_set():
                return
            self._tell(text, waited)
            if not terminal:
                return
            pause = _AGAIN


def sentence(status: LockStatus, owner: str) -> str:
    """Say who holds a lock, and which place in line somebody has.

    Args:
        status: How the lock is.
        owner: Who waits: the owner of this client.
    """
    text = ""
    places = [at for at, it in enumerate(status.queue, 1) if it.owner == owner]
    if places:
        text += f": {places[0]} of {len(status.queue)} in line"
    if status.state == "held":
        text += f"; held by {readable(status.owner or status.holder or 'somebody', 128)}"
        if status.note:
            text += f" ({readable(status.note, 256)})"
        if status.ttl_left is not None:
            text += f", which ends in {told(status.ttl_left)} unless it is renewed"
        if status.fence is not None:
            text += f", fence {status.fence}"
    return text


def shortage(nodes: Sequence[NodeStatus]) -> str:
    """Say why no majority of the nodes can be used now, and when that may change."""
    text = f"{sum(it.state == 'up' for it in nodes)} of {len(nodes)} nodes can be used"
    lefts = [it.guard_left for it in nodes if it.guard_left is not None]
    if lefts:
        were = "was" if len(lefts) == 1 else "were"
        text += (
            f", {len(lefts)} restarted or {were} promoted a short while ago and can be used again in {told(max(lefts))}"
        )
    for it in nodes:
        if it.state == "down" and it.cause is not None:
            text += f", {it.node}: {explained(it.cause)}"
    return text


def in_foreground(terminal: int, group: int) -> bool:
    """Does the terminal belong to this process group?"""
    try:
        return terminal >= 0 and os.tcgetpgrp(terminal) == group
    except OSError:
        return False


def shares(pid: int, group: int) -> bool:
    """Has the process group of a process other members, as in a pipeline?

    A shell script that waits for this process is no such member: it needs no terminal meanwhile.
    """
    return bool(tree.members(group) - {pid} - tree.ancestors(pid))
