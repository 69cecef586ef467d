"""Notes how many permits this client names for each semaphore.

The client warns if another client names another number. Knows which semaphores were noted on the
nodes lately, and which questions are open. Must not know lanes or claims.

No acquire waits for this. A client notes its number on the nodes in the same write as its request,
and the answer is the note that was there before. A semaphore is safe without it, because clients
that name different numbers share the slots of the smaller one.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..core.goal import Some
from ..core.round import Round

# Semaphores that are remembered: a template can name any number of them.
MOST = 10_000


class Sizes:
    """One client's notes of its semaphores' sizes.

    Attributes:
        expiry: For how many seconds a node keeps a note. While a semaphore is in use, its note is
            written again after a third of that.
        due: The semaphores to note with the next request.
        asked: The open questions, and the semaphore of each.
    """

    def __init__(self, expiry: float) -> None:
        self.expiry = expiry
        self.due: list[Some] = []
        self.asked: dict[Round, Some] = {}
        # By semaphore: its size, and until when it need not be noted again.
        self._noted: dict[str, tuple[int, float]] = {}

    def wanted(self, slots: Some, now: float) -> None:
        """Note a semaphore whose permits are about to be requested."""
        size, until = self._noted.get(slots.label, (0, 0.0))
        if size == len(slots) and now < until:
            return
        self._noted.pop(slots.label, None)
        self._noted[slots.label] = len(slots), now + self.expiry / 3
        if len(self._noted) > MOST:
            # Forget the oldest. If it is used again, it is noted once more.
            del self._noted[next(iter(self._noted))]
        self.due.append(slots)

    def questions(self) -> Iterator[tuple[Some, bytes]]:
        """Return the due semaphores, each with the bytes for every node. Then none is due."""
        due, self.due = self.due, []
        for slots in due:
            yield slots, slots.tells(self.expiry)

    def difference(self, round_: Round) -> tuple[int, str] | None:
        """Return the first node with another client's number, and the warning, or None."""
        slots = self.asked.pop(round_)
        for node, before in sorted(round_.answers.items()):
            if warning := slots.differs(before):
                return node, warning
        return None
