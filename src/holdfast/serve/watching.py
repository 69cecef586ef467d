"""The one watcher of a process, which surveys the nodes while somebody looks.

Knows the client and its event loop. Decides nothing about what is shown: that is `scene`.

It works while at least one viewer is there, and 10 seconds longer, so that a page that is loaded
again does not start from nothing. With no viewer, no command is sent to the nodes.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..clock import sources_of
from ..errors import HoldfastError, message_of
from .scene import Scene, Viewer

if TYPE_CHECKING:
    from ..aio import Holdfast
    from ..engine.status import NodeStatus

# The share of each node's time that a survey may take.
SHARE = 0.02
EVERY = 1.0  # seconds between the beginnings of two passes, at least
LINGER = 10.0  # seconds after the last viewer has left
# Rows after which other tasks of the event loop get their turn.
BREATH = 50
log = logging.getLogger("holdfast.serve")


class Watcher:
    """Surveys the nodes for all viewers of this process.

    Args:
        locks: The client.
        nodes_of: Makes what viewers see of the nodes.
        hello: What each viewer is told first.
    """

    def __init__(
        self, locks: Holdfast, nodes_of: Callable[[tuple[NodeStatus, ...]], Any], hello: dict[str, Any] | None = None
    ) -> None:
        self.scene = Scene(secrets.token_hex(8), hello or {})
        self._locks = locks
        self._nodes_of = nodes_of
        self._tasks: set[asyncio.Task[None]] = set()
        self._ending: asyncio.TimerHandle | None = None

    @property
    def working(self) -> bool:
        """Whether it surveys the nodes now."""
        return bool(self._tasks)

    def join(self) -> Viewer:
        """Return a new viewer, and work from now on. Call `leave` with it at its end."""
        if self._ending is not None:
            self._ending.cancel()
            self._ending = None
        viewer = self.scene.joins(self._wall())
        if not self._tasks:
            loop = asyncio.get_running_loop()
            self._tasks = {loop.create_task(it) for it in (self._survey(), self._seconds())}
            for task in self._tasks:
                task.add_done_callback(_ended)
        return viewer

    def leave(self, viewer: Viewer) -> None:
        """Forget a viewer. Ten seconds after the last one has left, the work ends."""
        self.scene.viewers.discard(viewer)
        if not self.scene.viewers and self._tasks:
            if self._ending is not None:
                self._ending.cancel()
            self._ending = asyncio.get_running_loop().call_later(LINGER, self._stop)

    async def close(self) -> None:
        """End the work now."""
        tasks = list(self._tasks)
        if self._ending is not None:
            self._ending.cancel()
            self._ending = None
        self._stop()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        self._tasks = set()

    async def _survey(self) -> None:
        """Look at all locks, again and again."""
        clock, scene = sources_of(asyncio.get_running_loop()).clock, self.scene
        while True:
            began = clock()
            scene.begin(self._wall())
            why = ""
            try:
                met = 0
                async for row in self._locks.survey(pause=SHARE):
                    scene.saw(row, self._wall())
                    met += 1
                    if met % BREATH == 0:
                        await asyncio.sleep(0)
            except HoldfastError as error:
                why = message_of(error)
            scene.end(self._wall(), why)
            took = clock() - began
            scene.paced(max(took, EVERY))
            await asyncio.sleep(max(EVERY - took, 0.0))

    async def _seconds(self) -> None:
        """Sample the totals and the nodes. The client knows the nodes without asking them."""
        while True:
            self.scene.second(self._wall(), self._nodes_of(self._locks.nodes()))
            await asyncio.sleep(1.0)

    def _wall(self) -> float:
        return sources_of(asyncio.get_running_loop()).wall()


def _ended(task: asyncio.Task[None]) -> None:
    """Say that the work has failed, which nobody waits for."""
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("the watcher of the page has ended: open the page again", exc_info=error)
