"""One command to every node, settled by the answers of a quorum: for what is no lock, such as reads, counters and sets.

Knows who was asked and who has answered. Must not know what was asked, or what an answer means.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import inf

from .command import READ, Command
from .reach import DOWN, GUARDED, UP, Reach

Answers = Mapping[int, object]


class Round:
    """A command under way: `asks` has its bytes for each node that is to be asked.

    It is over when every one of them has answered, or cannot; when the `enough` of its author says so; and in any case at `deadline`.
    A node that is still being dialled is waited for. An answer that is an error is a cause, and no answer.
    """

    __slots__ = ("_enough", "_reach", "answers", "armed", "asks", "began", "causes", "deadline", "ended", "over", "sends", "wake")

    def __init__(
        self, asks: Mapping[int, bytes], reach: Reach, *, deadline: float, enough: Callable[[Answers], bool] | None = None
    ) -> None:
        self.asks, self._reach, self.deadline, self._enough = asks, reach, deadline, enough
        self.answers: dict[int, object] = {}
        self.causes: dict[int, Exception] = {}  # what is wrong where no answer came from
        self.sends: list[tuple[int, Command]] = []
        self.wake, self.armed = deadline, inf
        self.began = self.ended = 0.0
        self.over = False

    def begin(self, now: float) -> None:
        """Ask every node that can be spoken to."""
        self.began = now
        for node in self.asks:
            self.joined(node, now)
        self._decide(now)

    def put_off(self, deadline: float) -> None:
        """It begins only now, and is over at this deadline."""
        self.deadline = self.wake = deadline

    def answered(self, node: int, command: Command, reply: object, now: float) -> bool:
        """A node has answered. (What comes when it is over is too late: somebody may be reading.)"""
        if self.over:
            return False
        if isinstance(reply, Exception):
            self.causes[node] = reply
        else:
            self.answers[node] = reply
        return self._decide(now)

    def joined(self, node: int, now: float) -> bool:
        """The node can be spoken to. (What it was asked before is asked again: the answer to that will never come.)"""
        if self.over or node not in self.asks or node in self.answers or self._reach.standing[node] is not UP:
            return False
        self.causes.pop(node, None)
        self.sends.append((node, Command(self, READ, b"", now, data=self.asks[node])))
        return True

    def tick(self, now: float) -> bool:
        """Time has passed, or a node stands differently from before."""
        return self._decide(now)

    def _decide(self, now: float) -> bool:
        """Is there anything to wait for?"""
        if self.over:
            return False
        standing = self._reach.standing
        open_ = [i for i in self.asks if i not in self.answers and i not in self.causes and standing[i] not in (DOWN, GUARDED)]
        if open_ and now < self.deadline and not (self._enough is not None and self._enough(self.answers)):
            return False
        for node in self.asks:
            if node not in self.answers and node not in self.causes:
                self.causes[node] = self._reach.cause(node, now) or TimeoutError("no answer yet")
        self.over, self.ended, self.wake = True, now, inf
        return True

    @property
    def sufficient(self) -> bool:
        """Has a quorum answered?"""
        return len(self.answers) >= self._reach.quorum

    @property
    def guarded(self) -> int:
        """How many of those that were asked are in their restart guard, and will be of use by themselves."""
        return sum(self._reach.standing[node] is GUARDED for node in self.asks)
