"""The survey of a gateway, which everybody who looks at its locks shares.

Knows the client and its event loop. Must not know who looks, or what they are shown.

It goes on only while somebody asks for it. So nobody has to say that they have gone, and with no
viewer, no command is sent to the nodes.
"""

from __future__ import annotations

import asyncio
from math import inf
from typing import TYPE_CHECKING

from ..aio import Holdfast
from ..clock import sources_of
from ..errors import HoldfastError, message_of

if TYPE_CHECKING:
    from ..typing import Row

# The share of each node's time that surveys may take.
SHARE = 0.02
EVERY = 1.0  # seconds between the beginnings of two surveys, at least
# Seconds without a survey after which nobody is shown what the last one has found.
OLD = 10.0
# Rows after which other tasks of the event loop get their turn.
BREATH = 50


class Surveys:
    """One survey after the other, for as long as somebody asks.

    Args:
        locks: The client.

    Attributes:
        rows: The locks that are held, by name, as the last survey that was complete has found them.
            Of the first survey, those that it has found so far.
        complete_at: When that survey was complete, in seconds since 1970. None: none was so far.
        interval: Seconds from one survey to the next, as long as nothing goes wrong.
        why: Why the last one was not complete. Empty: it was.
        number: How many have ended.
        task: The survey that is under way, or the last one.
    """

    def __init__(self, locks: Holdfast) -> None:
        self.rows: dict[str, Row] = {}
        self.complete_at: float | None = None
        self.interval = EVERY
        self.why = ""
        self.number = 0
        self._locks = locks
        self.task: asyncio.Task[None] | None = None
        # Whether somebody has asked since the one that is under way has begun.
        self._again = False
        self._due = self._ended = -inf

    def next(self) -> asyncio.Task[None]:
        """Return the survey that is under way, or begin one. All share it, so do not cancel it."""
        if self.task is None or self.task.done():
            self._begin()
        else:
            self._again = True
        assert self.task is not None
        return self.task

    def _begin(self) -> None:
        self._again = False
        self.task = asyncio.get_running_loop().create_task(self._survey())

    async def _survey(self) -> None:
        clock, wall, _ = sources_of(asyncio.get_running_loop())
        if clock() > self._ended + OLD:
            self.rows, self.complete_at, self.why = {}, None, ""
        await asyncio.sleep(max(0.0, self._due - clock()))
        began = clock()
        self._due = began + EVERY
        found: dict[str, Row] = {}
        if self.complete_at is None:
            self.rows = found
        try:
            async for row in self._locks.survey(pause=SHARE):
                found[row.name] = row
                if len(found) % BREATH == 0:
                    await asyncio.sleep(0)
        except HoldfastError as error:
            self.why = message_of(error)
        else:
            self.rows, self.complete_at, self.why = found, wall(), ""
            self.interval = max(EVERY, clock() - began)
        self._ended = clock()
        self.number += 1
        if self._again:
            self._begin()
