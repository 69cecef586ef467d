"""Plans: the steps of calls that need more from the nodes than one lock. Shared by both faces.

Knows the kinds of steps. Must not know who takes them, or how they wait. A plan yields a step, is
sent its result (or its error is thrown in), and returns the result of the call.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from ..events import Event
from ..protocol.query import Answers

if TYPE_CHECKING:
    from .engine import Engine, Watch

T = TypeVar("T")
# Seconds. A shorter rest of a wait may be too small for a clock to show.
TICK = 1e-6


class Ask(NamedTuple):
    """Ask nodes. The answer is the query, when it is over.

    Attributes:
        asks: The bytes for each node.
        enough: Whether these answers suffice, so that the other nodes need not be waited for.
        shard: The number of the shard that is asked.
        share: Questions with the same share are answered together, so that a client never has more
            than one of them under way. They must ask the same of the same nodes, need the same
            answers, and only read.
    """

    asks: Mapping[int, bytes]
    enough: Callable[[Answers], bool] | None = None
    shard: int = 0
    share: Hashable = None


class Pause(NamedTuple):
    """Let `seconds` pass, or less if nodes have news for the watch.

    The answer is False if another thread has ended the wait.
    """

    seconds: float
    watch: Watch | None = None


class Do(NamedTuple):
    """Have a driver do something that does not wait. The answer is what that returns.

    `do` is called with the driver. `shard` is as in `Ask`.
    """

    do: Callable[[Waitless], object]
    shard: int = 0


class Meet(NamedTuple):
    """Learn which servers the nodes of a shard are, waiting at most `within` seconds.

    The answer is their run ids. `shard` is the shard's number.
    """

    shard: int
    within: float


class Call(NamedTuple):
    """Call a function. The answer is its result. A face for asyncio awaits it."""

    call: Callable[[], Any]


Step = Ask | Pause | Meet | Call | Do
Plan = Generator[Step, Any, T]


class Waitless(Protocol):
    """The methods of a driver that do not wait. All drivers have them."""

    def listen(self) -> Watch:
        """Return a new Watch. Nodes that know its token send it their news."""

    def wall(self) -> float:
        """Return the seconds since 1970, by the wall clock of the process."""

    def clock(self) -> float:
        """Return the time on the driver's clock, in seconds."""

    def keeps(self, what: str) -> None:
        """Note that something is kept on the nodes that should outlive a restart.

        `what` is its kind, such as "once".
        """

    def steer(self, do: Callable[[Engine, float], object]) -> None:
        """Have the engine do something that nobody waits for, given the time."""

    def offer(self, make: Callable[[float], Event]) -> None:
        """Have observers hear of the event that this makes, given the time, if anybody listens."""

    def note(self, event: Event) -> None:
        """Have observers hear of an event."""


def of(shard: int, plan: Plan[T]) -> Plan[T]:
    """Return the same plan for another shard."""
    try:
        step = next(plan)
        while True:
            if isinstance(step, Ask | Meet | Do):
                step = step._replace(shard=shard)
            step = plan.send((yield step))
    except StopIteration as end:
        found: T = end.value
        return found
