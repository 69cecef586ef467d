"""Virtual time: a heap of events, one source of chance, and tasks that wait without a thread or a
loop.

Knows time and chance. Must not know nodes, locks or the real clock. The same seed gives the same
history, to the last byte.
"""

from __future__ import annotations

import hashlib
import heapq
import random
from collections.abc import Callable, Collection, Coroutine, Generator
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from itertools import count
from math import inf
from typing import Any, Generic, Protocol, TypeVar, cast

from .chance import Chance

# Events, and virtual seconds. More events in less time mean that something goes round in circles.
BUSY = 5_000, 0.01

T = TypeVar("T")
Do = Callable[..., object]


@dataclass(slots=True, eq=False)
class Flight:
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


class TaskCancelled(BaseException):
    """Raised in a task that is cancelled, where it waits."""


class TaskHost(Protocol):
    """Where tasks run: a process that may sleep, or be dead."""

    def wakes(self, do: Do, *arguments: object) -> None:
        """Do this as soon as the process runs."""


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
        self.flights: list[Flight] = []
        # Called when time has passed, before the next event.
        self.passes: list[Do] = []
        # Called after every event.
        self.looks: list[Do] = []
        # The one that runs now.
        self.task: Task[Any] | None = None
        # Messages that got to a node.
        self.delivered = 0
        # Numbers the nodes, of all sets, so that no two servers have the same run_id.
        self.machines = count()
        # How much of what is sent takes long.
        self.slow = 0.0
        # Seconds that the rest takes at most, one way.
        self.swift = 0.002
        self._events: list[tuple[float, int, Do, tuple[Any, ...]]] = []
        self._sequence = count()
        self._counted = 0.0
        self._count = 0
        self._tasks: list[Task[Any]] = []

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
            for look in self.looks:
                look()
        if until < inf and not unless():
            self.now = max(self.now, until)

    # ------------------------------------------------ what is kept

    def note(self, who: object, what: str, *details: object) -> None:
        """Record this for the timeline."""
        if self.records:
            self.record.append((self.now, who, what, *details))

    def flies(self, sender: object, receiver: object, data: bytes) -> Flight:
        """Record that bytes leave now. The code that lets them arrive sets `lands`."""
        flight = Flight(self.now, sender, receiver, data)
        if self.records:
            self.flights.append(flight)
        return flight

    def fingerprint(self) -> str:
        """Return a digest of everything that happened."""
        return hashlib.sha256("\n".join(map(repr, self.record)).encode()).hexdigest()

    # ------------------------------------------------ tasks

    def wakes(self, do: Do, *arguments: object) -> None:
        """The world never sleeps."""
        do(*arguments)

    def spawn(self, coroutine: Coroutine[Any, Any, T], host: TaskHost | None = None) -> Task[T]:
        """Begin a task, on this host."""
        task = Task(self, coroutine, host or self)
        self._tasks.append(task)
        return task

    def sleep(self, seconds: float) -> Future[None]:
        """To be awaited."""
        future: Future[None] = Future()
        self.after(seconds, future.set, None)
        return future

    def do(self, coroutine: Coroutine[Any, Any, T], within: float = 3600.0) -> T:
        """Run a task to its end, and the world with it."""
        task = self.spawn(coroutine)
        self.run(self.now + within, lambda: task.done)
        if not task.done:
            raise Violation(f"still not done after {within:g} s")
        return task.result()

    def close(self) -> None:
        """End all tasks."""
        for task in self._tasks:
            task.drop()
        self._tasks.clear()


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


class Future(Generic[T]):
    """Something that will be known. Await it in a task."""

    __slots__ = ("_error", "_value", "_waiters", "done")

    def __init__(self) -> None:
        self.done = False
        self._value: T | None = None
        self._error: BaseException | None = None
        self._waiters: list[Task[Any]] = []

    def set(self, value: T, error: BaseException | None = None) -> None:
        """Now it is known. Only the first time counts."""
        if not self.done:
            self.done = True
            self._value = value
            self._error = error
            waiters = self._waiters
            self._waiters = []
            for task in waiters:
                task.wake(self)

    def result(self) -> T:
        """What is known, or what was raised."""
        if self._error is not None:
            raise self._error
        return cast(T, self._value)

    def __await__(self) -> Generator[Future[T], None, T]:
        if not self.done:
            yield self
        return self.result()


class Task(Future[T]):
    """A coroutine that runs in virtual time.

    Its error goes to the task that awaits it. If there is none, the error ends the run.
    """

    __slots__ = ("__weakref__", "_context", "_coroutine", "_host", "_waits_for", "_world")

    def __init__(self, world: World, coroutine: Coroutine[Any, Any, T], host: TaskHost) -> None:
        super().__init__()
        self._world = world
        self._coroutine = coroutine
        # As each task of an event loop has: it tells owners of locks apart.
        self._context = copy_context()
        self._host = host
        self._waits_for: Future[Any] | None = None
        world.at(world.now, host.wakes, self._step, None, None)

    def wake(self, future: Future[Any]) -> None:
        """Continue the task, because the future that it waits for is done.

        It runs in an event of its own, never inside of the code that set the future.
        """
        self._world.at(self._world.now, self._host.wakes, self._step, future, None)

    def cancel(self) -> None:
        """Raise Cancelled where it waits."""
        self._world.at(self._world.now, self._host.wakes, self._step, None, TaskCancelled())

    def drop(self) -> None:
        """Its process is no more."""
        self.done = True
        self._coroutine.close()

    def _step(self, woken_by: Future[Any] | None, error: BaseException | None) -> None:
        # It waits for something else by now.
        if self.done or (error is None and woken_by is not self._waits_for):
            return
        self._waits_for = None
        self._world.task = self
        try:
            step = partial(self._coroutine.send, None) if error is None else partial(self._coroutine.throw, error)
            future = self._context.run(step)
        except StopIteration as stop:
            self.set(stop.value)
        except TaskCancelled as cancelled:
            self.set(cast(T, None), cancelled if self._waiters else None)
        except Exception as failure:
            if not self._waiters:
                raise
            self.set(cast(T, None), failure)
        else:
            self._waits_for = future
            future._waiters.append(self)
        finally:
            self._world.task = None
