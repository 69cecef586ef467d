"""Virtual time: a heap of events, and one source of chance.

Knows time and chance. Must not know nodes, locks or the real clock. The same seed gives the same
history, to the last byte.
"""

from __future__ import annotations

import hashlib
import heapq
import random
from collections.abc import Callable, Collection
from dataclasses import dataclass
from itertools import count
from math import inf
from typing import TYPE_CHECKING, Any

from .chance import Chance

if TYPE_CHECKING:
    from .client import SimulatedClient
    from .laws import Laws

# Events, and virtual seconds. More events in less time mean that something goes round in circles.
BUSY = 5_000, 0.01

Do = Callable[..., object]


@dataclass(slots=True, eq=False)
class BytesInFlight:
    """Bytes on their way. `lands`: when they got there; None: they never did, or have not yet."""

    leaves: float
    sender: object
    receiver: object
    data: bytes
    lands: float | None = None


class Violation(AssertionError):
    """A law is broken. Says which, and how."""

    @property
    def law(self) -> str:
        """The law's name, as in `laws.LAWS`."""
        return str(self).partition(":")[0]


class World:
    """Everything that happens, in the order of time.

    `seed`: of all chance in it; `only`: the faults that may happen, as of a Chance.

    `seen` counts what happened, by kind; `record` keeps it: (when, who, what, details), for
    `fingerprint`, the timeline and the picture. `flights`: what was sent. `records`: whether these
    two are kept: who only wants to know whether a law is broken needs neither.
    """

    def __init__(self, seed: int, *, only: Collection[str] | None = None, records: bool = True) -> None:
        self.seed = seed
        self.dice = random.Random(seed)
        self.now = 0.0
        self.records = records
        self.seen: dict[str, int] = {}
        self.chance = Chance(seed, only, self.saw)
        self.record: list[tuple[object, ...]] = []
        self.flights: list[BytesInFlight] = []
        # Called when time has passed, before the next event.
        self.passes: list[Do] = []
        # Called after every event.
        self.looks: list[Do] = []
        # The turns of an event loop, if one is due: they belong to the event that has caused them.
        self.turns: Do | None = None
        # Messages that got to a node.
        self.delivered = 0
        # Numbers the nodes, of all sets, so that no two servers have the same run_id.
        self.machines = count()
        # Who is at an address: a node, or one server of a node that moves.
        self.hosts: dict[str, Any] = {}
        # Clients, by their driver.
        self.clients: dict[Any, SimulatedClient] = {}
        # The laws that watch clients.
        self.laws: list[Laws] = []
        # How much of what is sent takes long.
        self.slow = 0.0
        # Seconds that the rest takes at most, one way.
        self.swift = 0.002
        self._events: list[tuple[float, int, Do, tuple[Any, ...]]] = []
        self._sequence = count()
        self._counted = 0.0
        self._count = 0

    # ------------------------------------------------ chance

    def delay(self) -> float:
        """How long something takes from one machine to another."""
        return self.dice.uniform(0.0, 0.2) if self.dice.random() < self.slow else self.dice.uniform(0.0001, self.swift)

    def saw(self, what: str, times: int = 1) -> None:
        """It happened."""
        if times:
            self.seen[what] = self.seen.get(what, 0) + times

    # ------------------------------------------------ time

    def at(self, when: float, do: Do, *arguments: object) -> None:
        """Call a function at this time, or now if that is past."""
        heapq.heappush(self._events, (max(when, self.now), next(self._sequence), do, arguments))

    def after(self, delay: float, do: Do, *arguments: object) -> None:
        """Call a function after this many seconds."""
        heapq.heappush(self._events, (self.now + delay, next(self._sequence), do, arguments))

    def run(self, until: float = inf, unless: Callable[[], bool] = lambda: False) -> None:
        """Run events until this time, until `unless` is true, or until no event is left."""
        events = self._events
        if self.turns is not None and not unless():
            self.turns()
        while events and events[0][0] <= until and not unless():
            when, _, do, arguments = heapq.heappop(events)
            if when > self.now:
                self.now = when
                for passed in self.passes:
                    passed()
            self._count += 1
            if self._count == BUSY[0]:
                if self.now < self._counted + BUSY[1]:
                    raise Violation(f"busy: {BUSY[0]} events since {self._counted:.6f}, and no end")
                self._counted = self.now
                self._count = 0
            do(*arguments)
            if self.turns is not None:
                self.turns()
            for look in self.looks:
                look()
        if until < inf and not unless():
            self.now = max(self.now, until)

    # ------------------------------------------------ what is kept

    def note(self, who: object, what: str, *details: object) -> None:
        """Record this for the timeline."""
        if self.records:
            self.record.append((self.now, who, what, *details))

    def flies(self, sender: object, receiver: object, data: bytes) -> BytesInFlight:
        """Record that bytes leave now. The code that lets them arrive sets `lands`."""
        flight = BytesInFlight(self.now, sender, receiver, data)
        if self.records:
            self.flights.append(flight)
        return flight

    def fingerprint(self) -> str:
        """Return a digest of everything that happened."""
        return hashlib.sha256("\n".join(map(repr, self.record)).encode()).hexdigest()


class DriftingClock:
    """A clock of somebody's own: never quite right, and it may step.

    `ahead`: of the world's; `rate`: how fast it runs.
    """

    def __init__(self, world: World, ahead: float, rate: float = 1.0) -> None:
        self._world = world
        self.ahead = ahead
        self.rate = rate
        # How often it was set.
        self.steps = 0

    def __call__(self) -> float:
        return self.ahead + self._world.now * self.rate

    def when(self, reading: float) -> float:
        """When, in the world's time, it will say this."""
        return (reading - self.ahead) / self.rate

    def step(self, seconds: float) -> None:
        """Set it forward, or back."""
        self.ahead += seconds
        self.steps += 1

    def becomes(self, rate: float) -> None:
        """From now on it runs at this rate."""
        self.ahead = self() - self._world.now * rate
        self.rate = rate
        self.steps = self.steps + 1
