"""Plans: what is to be done, step by step, by whoever wants something of the nodes that is not just a lock. Shared by both faces.

Knows which steps there are. Must not know who takes them, or how they wait: a plan yields a step, is sent what came of it, or has the
error thrown in, and returns what it was for.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Mapping
from typing import Any, NamedTuple, TypeVar

from ..core.round import Answers
from ..engine.crew import Crew, Watch
from ..events import Event

T = TypeVar("T")
TICK = 1e-6  # seconds: what is left of a wait, once it is no more than that, may be too little for any clock to show


class Ask(NamedTuple):
    """Ask each of these nodes this. The answer: the Round, when it is over.

    `enough`: need the others be waited for? `shard`: the number of the set of nodes that is asked. `share`: callers whose questions have
    the same share are answered together, so that a client never has more than one such question under way. These callers must ask the same
    of the same nodes, need the same answers, and only read.
    """

    asks: Mapping[int, bytes]
    enough: Callable[[Answers], bool] | None = None
    shard: int = 0
    share: Hashable = None


class Pause(NamedTuple):
    """Let so many seconds pass; less if nodes have news for the watch. The answer: False if somebody has ended the wait."""

    seconds: float
    watch: Watch | None = None


class Keeps(NamedTuple):
    """Have it known that something is kept on the nodes that should outlive a restart. `what`: such as "once"; `shard`: as of Ask."""

    what: str
    shard: int = 0


class Steer(NamedTuple):
    """Have the engine do something that nobody waits for. `do`: is called with the engine and the time; `shard`: as of Ask."""

    do: Callable[[Crew, float], object]
    shard: int = 0


class Listen:
    """The answer: a new Watch, whose token nodes can be told to have their news for."""

    __slots__ = ()


class Wall:
    """The answer: seconds since 1970, by the wall clock of the process."""

    __slots__ = ()


class Meet(NamedTuple):
    """Learn which servers the nodes of a set are, waiting at most `within` seconds. The answer: their run_ids.

    `shard`: the number of the set.
    """

    shard: int
    within: float


class Call:
    """Call this. The answer: what it returns; where that has to be awaited, it is."""

    __slots__ = ("call",)

    def __init__(self, call: Callable[[], Any]) -> None:
        self.call = call


Step = Ask | Pause | Listen | Wall | Meet | Call | Keeps | Steer | Event  # (an event: observers are told)
Plan = Generator[Step, Any, T]


def of(shard: int, plan: Plan[T]) -> Plan[T]:
    """The same, asked of this set of nodes."""
    try:
        step = next(plan)
        while True:
            step = plan.send((yield step._replace(shard=shard) if isinstance(step, Ask | Meet | Keeps | Steer) else step))
    except StopIteration as end:
        found: T = end.value
        return found
