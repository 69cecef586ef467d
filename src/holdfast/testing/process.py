"""A process in a simulated world: tasks that are paused, killed and cut off from nodes together,
apart from all others.

Knows event loops, contexts and links to nodes. Must not know locks, drivers or faces.

A task, a timer or a callback belongs to the process in whose context it was made, as every task
inherits its parent's context. The loop asks that process before it runs anything of it: a paused
process keeps what was to be run, and a crashed one drops it.
"""

from __future__ import annotations

import asyncio
import contextvars
import weakref
from collections.abc import Callable, Collection, Coroutine, Generator, Iterable
from math import inf
from typing import Any, Generic, TypeVar, cast

from .. import checks
from ..checks import Seconds
from ..errors import Misuse
from .client import SimulatedClient, works
from .network import WALL, Node
from .world import DriftingClock, World

# Virtual seconds after it was resumed in which a process's tasks run, and its clients do not yet.
FIRST = 2e-5
# Virtual seconds that a process which was resumed has to catch up.
SOON = 1e-4

T = TypeVar("T")
U = TypeVar("U")

current: contextvars.ContextVar[Process[Any] | None] = contextvars.ContextVar("process", default=None)


class Crashed(RuntimeError):
    """The process was crashed before it had a result."""


class Process(Generic[T]):
    """A process of its own in a simulated world. Await it for its result.

    `Simulation.process` makes it.

    Attributes:
        name: What errors and the timeline call it.
        paused: Whether it is paused now.
        crashed: Whether it was crashed.
    """

    def __init__(
        self,
        world: World,
        name: str,
        nodes: Collection[Node],
        loop: asyncio.AbstractEventLoop,
        clock: DriftingClock | None = None,
    ) -> None:
        self.name = name
        # That of its machine, and how far the wall clock is ahead of it.
        self.clock = clock or DriftingClock(world, 0.0)
        self.epoch = WALL - self.clock()
        # Has anything of it run since its clients were looked at?
        self.awake = False
        # How often it was paused, and resumed.
        self.turns = 0
        # The tasks that were begun by `run`.
        self.users: list[asyncio.Task[Any]] = []
        self.paused = self.crashed = False
        # Does anybody learn of its error?
        self.awaited = False
        self.clients: list[SimulatedClient] = []
        self.tasks: weakref.WeakSet[asyncio.Task[Any]] = weakref.WeakSet()
        # Tasks of a crashed process: they never go on, and are thrown away after the run.
        self.remains: list[asyncio.Task[Any]] = []
        self._world = world
        self._nodes = nodes
        self._loop = loop
        self._outcome: asyncio.Future[T] = self._loop.create_future()
        self._held: list[tuple[Callable[..., object], tuple[Any, ...], contextvars.Context]] = []
        # When a pause ends.
        self._until = inf
        self._resumed = -inf
        # It was resumed, and its clients do not work yet.
        self._behind = False
        # Until when it cannot reach a node.
        self._dark: dict[Node, float] = {}

    def __repr__(self) -> str:
        return f"process {self.name!r}"

    def __await__(self) -> Generator[Any, None, T]:
        self.awaited = True
        return asyncio.shield(self._outcome).__await__()

    # ------------------------------------------------ what happens to it

    def pause(self, seconds: Seconds | None = None) -> None:
        """Stop the whole process, as SIGSTOP, a debugger or a suspended machine does.

        Its connections stay open.

        Nothing of it runs: no task, no timer, no renewal. When it is resumed, what should have
        happened meanwhile happens then. Its tasks go on before its clients notice how late it is,
        as if the pause had struck in the middle of a task. So a task whose sleep is over goes on
        for one step with a lease that another process may have by then. A process that pauses
        itself runs on to its next `await` that waits.

        Args:
            seconds: Virtual seconds until it is resumed by itself. By default it stays paused until
                `resume()`.

        Raises:
            Misuse: The process was crashed.
        """
        self._check_alive()
        length = inf if seconds is None else checks.seconds(seconds, "seconds")
        self._world.note(self, "is paused" if length == inf else f"is paused for {length:.3f} s")
        until = self._world.now + length
        self._until = max(self._until, until) if self.paused else until
        self.paused = True
        self.turns += 1
        if self._until < inf:
            self._world.at(self._until, self._due)

    def resume(self) -> None:
        """Let a paused process go on. If it is not paused, this has no effect."""
        if self.paused and not self.crashed:
            self._world.note(self, "is resumed")
            self.paused = False
            self.turns += 1
            self._resumed = self._world.now
            self._behind = True
            # Callbacks by which clients work are held a little longer.
            self._go_on()
            self._world.after(FIRST, self._catch_up, self._world.now)

    def crash(self) -> None:
        """Kill the process, as SIGKILL or the loss of its machine's power does.

        It releases nothing, and its connections close.

        No code of it runs any more while the simulation does. (After the run, Python throws its
        tasks away. Only then do their `finally` blocks run, and they can reach no node.) Awaiting a
        crashed process raises `Crashed`.

        Raises:
            Misuse: The process tried to crash itself. The code after the call would still run, so
                another process must do it.
        """
        if current.get() is self:
            raise Misuse(
                f"{self} cannot crash itself, as the code after the call would still run: crash it from outside"
            )
        if self.crashed:
            return
        self._world.note(self, "is crashed")
        self.crashed = True
        self.paused = False
        self._held.clear()
        self.remains = forsaken(self.tasks)
        for client in self.clients:
            client.end()
        if not self._outcome.done():
            self._outcome.set_exception(Crashed(f"{self} was crashed"))
            # The code that crashed it knows.
            self._outcome.exception()

    def cut_off(self, seconds: Seconds, nodes: Collection[Node] | None = None) -> None:
        """Drop every packet between this process and some nodes for a while.

        Other processes can reach them all the same.

        Open connections to these nodes stay half open, as after any such break: the client notices,
        and connects again.

        Args:
            seconds: Virtual seconds until the process can connect again.
            nodes: From which nodes it is cut off. By default from all.

        Raises:
            Misuse: The process was crashed.
        """
        self._check_alive()
        length = checks.seconds(seconds, "seconds")
        nodes = self._nodes if nodes is None else nodes
        self._world.note(self, f"cannot reach {', '.join(map(str, nodes))} for {length:.3f} s")
        for node in nodes:
            self._dark[node] = max(self._world.now + length, self._dark.get(node, 0.0))
        for client in self.clients:
            for transport in client.transports:
                if transport.link.node in nodes:
                    transport.link.deaf = transport.link.mute = True

    # ------------------------------------------------ for the simulation

    @property
    def stopped(self) -> bool:
        """Can it not be expected to have noticed anything: because it does not run, or has only
        just begun to again?
        """
        return self.crashed or self.paused or self._world.now < self._resumed + SOON

    @property
    def awaits_nothing(self) -> bool:
        """Will neither a pause nor a cut end by itself?"""
        return not (self.paused and self._until < inf) and all(
            until <= self._world.now for until in self._dark.values()
        )

    @property
    def failure(self) -> BaseException | None:
        """The error with which it ended, if nobody awaits it."""
        if self.awaited or self.crashed or not self._outcome.done() or self._outcome.cancelled():
            return None
        return self._outcome.exception()

    async def path_to(self, node: Node) -> None:
        """Wait until it can reach this node.

        A client that dials meanwhile gives up, and tries again.
        """
        if (dark := self._dark.get(node, 0.0) - self._world.now) > 0:
            await asyncio.sleep(dark)

    def within(self, function: Callable[..., U], *arguments: object) -> U:
        """Call this as code of the process."""
        context = contextvars.copy_context()
        context.run(current.set, self)
        return context.run(function, *arguments)

    def run(self, main: Coroutine[Any, Any, U]) -> asyncio.Task[U]:
        """Begin a task of the process."""
        task: asyncio.Task[U] = self.within(cast(Any, self._loop.create_task), main)
        self.users.append(task)
        return task

    def wall(self) -> float:
        """Return seconds since 1970, on its machine's wall clock."""
        return self.clock() + self.epoch

    def admit(self, callback: Callable[..., object], arguments: tuple[Any, ...], context: contextvars.Context) -> None:
        """Run this in its turn; or later, if the process is paused; or never."""
        if self.paused or (self._behind and works(callback)):
            self._held.append((callback, arguments, context))
        elif not self.crashed:
            self.awake = True
            callback(*arguments)

    def ended(self, task: asyncio.Task[T]) -> None:
        """Its first task is done."""
        if self._outcome.done():
            return
        if task.cancelled():
            self._outcome.cancel()
        elif (error := task.exception()) is not None:
            self._outcome.set_exception(error)
            # If nobody awaits it, `run` raises it.
            self._outcome.exception()
        else:
            self._outcome.set_result(task.result())

    def bury(self) -> None:
        """Throw away the tasks of a crashed process."""
        remains = self.remains
        self.remains = []
        bury(remains)

    def _catch_up(self, resumed: float) -> None:
        """Its clients may work again: what they should have done, in that order."""
        if self.paused or self.crashed or self._resumed != resumed:
            return
        self._behind = False
        self._go_on()

    def _go_on(self) -> None:
        held, self._held = self._held, []
        for callback, arguments, context in held:
            self._loop.call_soon(callback, *arguments, context=context)

    def _due(self) -> None:
        if self._world.now >= self._until:
            self.resume()

    def _check_alive(self) -> None:
        if self.crashed:
            raise Misuse(f"{self} was crashed already")


def owner_of(context: contextvars.Context | None) -> Process[Any] | None:
    """The process to which something belongs that is to be run in this context; None: the context
    of the caller.
    """
    return current.get() if context is None else context.get(current)


def forsaken(tasks: Iterable[asyncio.Task[Any]]) -> list[asyncio.Task[Any]]:
    """Those that are not done, of which nobody waits for the end any more."""
    found = [task for task in tasks if not task.done()]
    for task in found:
        asyncio.tasks._unregister_task(task)
        task._log_destroy_pending = False  # type: ignore[attr-defined]  # (private, and without a type)
    return found


def bury(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Throw away tasks whose process is dead."""
    for task in tasks:
        coroutine: Any = task.get_coro()
        # A `finally` that awaits makes the next attempt necessary.
        for _ in range(10):
            try:
                coroutine.close()
            except RuntimeError:
                continue
            except BaseException:
                # The process is dead: its errors reach nobody.
                pass
            break
