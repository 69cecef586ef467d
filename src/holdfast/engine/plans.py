"""Plans: the steps of calls that need more from the nodes than one lock. Shared by both faces.

Knows the kinds of steps. Must not know who takes them, or how they wait. A plan yields a step, is
sent its result (or its error is thrown in), and returns the result of the call.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from ..events import Event
from ..protocol.query import Answers

if TYPE_CHECKING:
    from .engine import Engine, Watch

T = TypeVar("T")
# Seconds. A shorter rest of a wait may be too small for a clock to show.
TICK = 1e-6


class Ask:
    """Ask nodes. The answer is the query, when it is over.

    Attributes:
        asks: The bytes for each node.
        enough: Whether these answers suffice, so that the other nodes need not be waited for.
        shard: The number of the shard that is asked.
        share: Questions with the same share are answered together, so that a client never has more
            than one of them under way. They must ask the same of the same nodes, need the same
            answers, and only read.
    """

    __slots__ = ("asks", "enough", "shard", "share")

    def __init__(
        self,
        asks: Mapping[int, bytes],
        enough: Callable[[Answers], bool] | None = None,
        shard: int = 0,
        share: Hashable = None,
    ) -> None:
        self.asks, self.enough, self.shard, self.share = asks, enough, shard, share


class Pause:
    """Let `seconds` pass, or less if nodes have news for the watch.

    The answer is False if another thread has ended the wait.
    """

    __slots__ = ("seconds", "watch")

    def __init__(self, seconds: float, watch: Watch | None = None) -> None:
        self.seconds, self.watch = seconds, watch


class Keeps:
    """Note that something is kept on the nodes that should outlive a restart.

    `what` is its kind, such as "once". `shard` is as in `Ask`.
    """

    __slots__ = ("shard", "what")

    def __init__(self, what: str, shard: int = 0) -> None:
        self.what, self.shard = what, shard


class Steer:
    """Have the engine do something that nobody waits for.

    `do` is called with the engine and the time. `shard` is as in `Ask`.
    """

    __slots__ = ("do", "shard")

    def __init__(self, do: Callable[[Engine, float], object], shard: int = 0) -> None:
        self.do, self.shard = do, shard


class Offer:
    """Have observers hear of something, if anybody listens.

    Attributes:
        make: Makes the event, given the time on the driver's clock.
        shard: As of Ask.
    """

    __slots__ = ("make", "shard")

    def __init__(self, make: Callable[[float], Event], shard: int = 0) -> None:
        self.make, self.shard = make, shard


class Clock:
    """The answer: the time on the driver's clock, in seconds."""

    __slots__ = ()


class Listen:
    """Get a new Watch. Nodes that know its token send it their news."""

    __slots__ = ()


class Wall:
    """Get the seconds since 1970, by the wall clock of the process."""

    __slots__ = ()


class Meet:
    """Learn which servers the nodes of a shard are, waiting at most `within` seconds.

    The answer is their run ids. `shard` is the shard's number.
    """

    __slots__ = ("shard", "within")

    def __init__(self, shard: int, within: float) -> None:
        self.shard, self.within = shard, within


class Call:
    """Call a function. The answer is its result. A face for asyncio awaits it."""

    __slots__ = ("call",)

    def __init__(self, call: Callable[[], Any]) -> None:
        self.call = call


# An event is handed to observers.
Step = Ask | Pause | Listen | Wall | Clock | Meet | Call | Keeps | Steer | Offer | Event
Plan = Generator[Step, Any, T]


class Waitless(Protocol):
    """The methods of a driver that do not wait. All drivers have them."""

    def listen(self) -> Watch: ...

    def wall(self) -> float: ...

    def clock(self) -> float: ...

    def keeps(self, what: str) -> None: ...

    def steer(self, do: Callable[[Engine, float], object]) -> None: ...

    def offer(self, make: Callable[[float], Event]) -> None: ...

    def note(self, event: Event) -> None: ...


def at_once(step: Listen | Wall | Clock | Keeps | Steer | Offer | Event, drivers: Sequence[Waitless]) -> object:
    """Take a step that does not wait, and return its result.

    Args:
        step: The step.
        drivers: The driver of each shard.
    """
    match step:
        case Listen():
            return drivers[0].listen()
        case Wall():
            return drivers[0].wall()
        case Clock():
            return drivers[0].clock()
        case Keeps():
            drivers[step.shard].keeps(step.what)
        case Steer():
            drivers[step.shard].steer(step.do)
        case Offer():
            drivers[step.shard].offer(step.make)
        case event:
            drivers[0].note(event)
    return None


def of(shard: int, plan: Plan[T]) -> Plan[T]:
    """Return the same plan for another shard."""
    try:
        step = next(plan)
        while True:
            if isinstance(step, Ask | Meet | Keeps | Steer | Offer):
                step.shard = shard
            step = plan.send((yield step))
    except StopIteration as end:
        found: T = end.value
        return found
