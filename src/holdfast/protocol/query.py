"""One command to every node, decided by the answers of a quorum, for reads, counters and sets.

Knows which nodes were asked and which have answered. Must not know what was asked, or what an
answer means.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import inf

from .command import READ, Command
from .nodes import NodeSet, Standing

Answers = Mapping[int, object]


class Query:
    """A command under way.

    It is over when every node has answered, or cannot, when `enough` says so, and at the deadline
    in any case. It waits for a node that is still being dialled. An answer that is an error is a
    cause, and no answer.

    Args:
        asks: The bytes of the command, by node.
        node_set: How the nodes stand.
        deadline: When it is over in any case.
        enough: Whether these answers are enough. None: wait for all.
    """

    def __init__(
        self,
        asks: Mapping[int, bytes],
        node_set: NodeSet,
        *,
        deadline: float,
        enough: Callable[[Answers], bool] | None = None,
    ) -> None:
        self.asks = asks
        self.deadline = deadline
        self._node_set = node_set
        self._enough = enough
        self.answers: dict[int, object] = {}
        # What is wrong with the nodes that gave no answer.
        self.causes: dict[int, Exception] = {}
        self.sends: list[tuple[int, Command]] = []
        # When it wants a tick, and when the engine will give one.
        self.wake = deadline
        self.armed = inf
        self.began = 0.0
        self.ended = 0.0
        # When the last answer came. The query may have waited longer, for a node that is silent.
        self.heard = 0.0
        self.over = False

    def begin(self, now: float) -> None:
        """Ask every node that can be spoken to."""
        self.began = self.heard = now
        for node in self.asks:
            self.joined(node, now)
        self._decide(now)

    def put_off(self, deadline: float) -> None:
        """Set another deadline, because it begins later than planned."""
        self.deadline = deadline
        self.wake = deadline

    def answered(self, node: int, command: Command, reply: object, now: float) -> bool:
        """Take in what a node has answered."""
        # What comes when it is over is too late: somebody may be reading.
        if self.over:
            return False
        self.heard = now
        if isinstance(reply, Exception):
            self.causes[node] = reply
        else:
            self.answers[node] = reply
        return self._decide(now)

    def joined(self, node: int, now: float) -> bool:
        """Ask a node that can be spoken to. If it was asked on an earlier connection, ask again."""
        if self.over or node not in self.asks or node in self.answers:
            return False
        if self._node_set.standing[node] is not Standing.UP:
            return False
        self.causes.pop(node, None)
        self.sends.append((node, Command(self, READ, b"", now, data=self.asks[node])))
        return True

    def tick(self, now: float) -> bool:
        """Decide again: time has passed, or a node stands differently from before."""
        return self._decide(now)

    def _decide(self, now: float) -> bool:
        """End it unless there is something to wait for. Returns True if it has just ended."""
        if self.over:
            return False
        standing = self._node_set.standing
        away = (Standing.DOWN, Standing.GUARDED)
        unheard = [node for node in self.asks if node not in self.answers and node not in self.causes]
        coming = any(standing[node] not in away for node in unheard)
        if coming and now < self.deadline and not (self._enough is not None and self._enough(self.answers)):
            return False
        for node in unheard:
            self.causes[node] = self._node_set.cause(node, now) or TimeoutError("no answer yet")
        self.over = True
        self.ended = now
        self.wake = inf
        return True

    @property
    def sufficient(self) -> bool:
        """Has a quorum answered?"""
        return self._node_set.quorum.met(self.answers)

    @property
    def guarded(self) -> list[int]:
        """The nodes that were asked and are in their restart guard: they will be of use."""
        return [node for node in self.asks if self._node_set.standing[node] is Standing.GUARDED]
