"""Tasks in a simulated world that has no other event loop: a world whose events give its own loop something to do.

Knows asyncio's loops, tasks, and worlds. Must not know nodes, or what tasks do.
"""

from __future__ import annotations

import asyncio
import contextvars
import sys
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from holdfast.clock import Sources
from holdfast.testing.loop import NO_THREADS, VirtualLoop
from holdfast.testing.process import bury, current, forsaken, owner_of
from holdfast.testing.world import Violation, World

T = TypeVar("T")

# Seconds by which a timer is late: no clock may show a moment before the one that was waited for.
LATE = 1e-6
# Turns at one moment: more of them go round in circles.
BUSY = 5_000


def rings(future: asyncio.Future[None]) -> None:
    """What was waited for has happened."""
    if not future.done():
        future.set_result(None)


class TaskWorld(World):
    """A world that runs tasks. Its loop is made at the first use."""

    _loop: WorldLoop | None = None

    @property
    def loop(self) -> WorldLoop:
        """The event loop that this world runs."""
        if self._loop is None:
            self._loop = WorldLoop(self)
        return self._loop

    def spawn(self, coroutine: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Begin a task that belongs to no process.

        Its error ends the run, unless another task awaits it.
        """
        task: asyncio.Task[T] = self.loop.create_task(coroutine)
        return task

    def sleep(self, seconds: float) -> asyncio.Future[None]:
        """To be awaited."""
        future: asyncio.Future[None] = self.loop.create_future()
        self.after(seconds, rings, future)
        return future

    def do(self, coroutine: Coroutine[Any, Any, T], within: float = 3600.0) -> T:
        """Run a task to its end, and the world with it."""
        task = self.spawn(coroutine)
        # Its error is told here.
        task.add_done_callback(id)
        self.run(self.now + within, task.done)
        if not task.done():
            raise Violation(f"still not done after {within:g} s")
        return task.result()

    def close(self) -> None:
        """End all tasks and clients."""
        if self._loop is not None:
            self._loop.close()


class Task(asyncio.Task[T]):
    """A task whose error ends the run, unless another task awaits it."""

    heard = False

    def add_done_callback(self, *arguments: Any, **options: Any) -> None:
        self.heard = True
        super().add_done_callback(*arguments, **options)


class WorldLoop(VirtualLoop):
    """An event loop that a world runs, at once after the events that give it something to do."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._tasks: dict[asyncio.Task[Any], None] = {}

    def __del__(self) -> None:
        """A world needs no end."""

    @property
    def holdfast_sources(self) -> Sources:
        """The clocks of the process that makes a client."""
        process = current.get()
        assert process is not None, "a client belongs to a process"
        return Sources(process.clock, process.wall, self.world.dice.randbytes)

    def enter(self, function: Callable[..., T], *arguments: Any) -> T:
        """Call this as code that runs in this loop."""
        before, hooks = asyncio._get_running_loop(), sys.get_asyncgen_hooks()
        asyncio._set_running_loop(self)
        # An async generator that nobody has any more is not closed in real time.
        sys.set_asyncgen_hooks(None, _forget)
        try:
            return function(*arguments)
        finally:
            sys.set_asyncgen_hooks(*hooks)
            asyncio._set_running_loop(before)

    def close(self) -> None:
        """The world is over: everybody ends."""
        remains = forsaken(self._tasks)
        self._tasks.clear()
        for client in self.world.clients.values():
            client.end()
        bury(remains)

    # ------------------------------------------------ as of any loop

    def create_task(self, coro: Any, *, context: contextvars.Context | None = None, **options: Any) -> Any:
        task = Task(coro, loop=self, context=context, **options)
        asyncio.Task.add_done_callback(task, self._ended)
        self._tasks[task] = None
        return self._owned(task, context)

    def _ended(self, task: Task[Any]) -> None:
        self._tasks.pop(task, None)
        if not task.heard and not task.cancelled() and (error := task.exception()) is not None:
            self.failure = self.failure or error

    def call_later(  # type: ignore[override]  # (any arguments, whatever the callback takes)
        self, delay: float, callback: Any, *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        process = owner_of(context)
        rate = 1.0 if process is None else process.clock.rate
        return self.call_at(self.time() + delay / rate + LATE, callback, *args, context=context)

    def call_at(  # type: ignore[override]  # (as above)
        self, when: float, callback: Any, *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        timer = super().call_at(when, callback, *args, context=context)
        # The world has them, and not the loop.
        self._scheduled.clear()  # type: ignore[attr-defined]  # (asyncio's own, without a type)
        self.world.at(when, self._fires, timer)
        return timer

    def call_soon_threadsafe(self, *_: Any, **__: Any) -> Any:  # type: ignore[override]  # (it refuses whatever it is given)
        # No thread is in virtual time, and Python runs finalizers when it likes.
        raise RuntimeError(NO_THREADS)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        self.failure = self.failure or context.get("exception") or RuntimeError(context["message"])

    def _call_soon(self, callback: Any, args: Any, context: Any) -> asyncio.Handle:
        handle: asyncio.Handle = super()._call_soon(callback, args, context)  # type: ignore[misc]  # (as above)
        self._has_to_turn()
        return handle

    def _fires(self, timer: asyncio.TimerHandle) -> None:
        if not timer.cancelled():
            self._ready.append(timer)  # type: ignore[attr-defined]  # (as above)
            self._has_to_turn()

    def _has_to_turn(self) -> None:
        self.world.turns = self._turns

    def _turns(self) -> None:
        """Turn until nobody has anything to do at this moment.

        Laws look after each turn, as after each event.
        """
        ready: Any = self._ready  # type: ignore[attr-defined]  # (as above)
        count = 0
        try:
            while ready:
                self.enter(self._turn, ready)
                self._check()
                for look in self.world.looks if ready else ():
                    look()
                count += 1
                if count == BUSY:
                    raise Violation(f"busy: {BUSY} turns at {self.world.now:.6f}, and no end")
        finally:
            self.world.turns = self._turns if ready else None

    def _turn(self, ready: Any) -> None:
        for _ in range(len(ready)):
            handle = ready.popleft()
            if not handle._cancelled:
                handle._run()

    def _check(self) -> None:
        self.look()
        for driver in self.world.clients:
            # A client that failed is a bug, and not only a lost lease.
            self.failure = self.failure or driver.failure
        self.raises()


def _forget(generator: object) -> None:
    pass
