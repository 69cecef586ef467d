"""Your own asyncio code in virtual time, against simulated nodes that fail.

`holdfast.aio` runs as it ships.

Knows event loops, the asyncio face, and how to put the world's time and network under them. Must
not know what your code does.

An hour of sleeping takes no time, the same seed is the same history, and the laws of the lock are
watched all the while.
"""

from __future__ import annotations

import asyncio
import contextvars
import os
import selectors
import threading
from collections.abc import Callable, Collection, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from math import inf
from typing import Any, TypeVar, cast

from .. import checks
from ..aio import Holdfast
from ..checks import Seconds, seconds
from ..clock import Sources
from ..drivers import greenlets
from ..drivers.aio import driver, sockets
from ..drivers.aio.timer import Timer
from ..drivers.threads import io_thread as io_thread_module
from ..errors import ConfigError, Misuse
from ..protocol.claim import Claim, State
from .faults import Faults, StormSettings
from .laws import Laws
from .loop import NO_THREADS, VirtualLoop
from .network import WALL, Node
from .process import Crashed, Process, current
from .timeline import timeline
from .world import DriftingClock, Violation, World

__all__ = ["Crashed", "Process", "Simulation", "Stuck"]

T = TypeVar("T")

# What a client is called where holders are shown: the machine's name and a process's number would
# differ from run to run.
OWNER = "client-{}"
# Nodes at most: `network.HOSTS` has no more addresses.
MOST = 250
# Virtual seconds that a turn of the loop takes. So a task that polls in a loop sees time pass.
TURN = 1e-6
LAST = 40  # lines of a failure's timeline
# Virtual seconds that a run may take, unless it is told otherwise.
LIMIT = 7_200.0
# Virtual seconds that tasks have to end, when a run has failed.
GRACE = 60.0
# Virtual seconds between two looks at whether any task gets on.
GLANCE = 1.0
OURS = os.path.dirname(os.path.dirname(__file__)) + os.sep
ASYNCIO = os.path.dirname(asyncio.__file__) + os.sep


class Stuck(RuntimeError):
    """The simulated code will never end, or has not ended in time.

    The message names the tasks that wait, and for what.
    """


class Simulation:
    """A world of simulated masters, and an event loop in it: `run` your code there.

    Args:
        nodes: The number of nodes, 3 by default. Leave it out if you name `shards`.
        seed: The seed of all chance in the world. The same seed is the same history.
        max_ttl: The longest ttl that your clients use, in seconds.
        only: The faults of a `storm` that may happen, such as "restarts 2", to find out which ones
            matter.
        shards: Several shards instead of one: the number of nodes of each shard, by its name.

    Attributes:
        nodes: All nodes, shard by shard. Stop, restart, freeze or cut them off at any time (see
            `network.Node`).
        urls: The addresses of all nodes, in the same order, for `holdfast.aio.Holdfast`.
        shards: With `shards`: the addresses of each shard, by its name, for
            `holdfast.aio.Holdfast(shards=...)`. Otherwise empty.
        nodes_of: The nodes of each shard, by its name. Without `shards` the only shard is called
            "".
        laws: The laws, which watch all nodes: a name may move from one shard to another.
        laws_of: The same laws, by the name of each shard.
        world: Time, and what has happened.

    Raises:
        ConfigError: A number of nodes is below 1, `shards` is empty, or both `nodes` and `shards`
            are given.
    """

    def __init__(
        self,
        nodes: int | None = None,
        seed: int = 0,
        *,
        max_ttl: float = 30.0,
        only: Collection[str] | None = None,
        shards: Mapping[str, int] | None = None,
    ) -> None:
        sizes = _sizes(nodes, shards)
        self.seed = seed
        self._guard = max_ttl + 2.0
        self.world = World(seed, only=only)
        numbers = count()
        self.nodes_of = {
            name: tuple(Node(self.world, next(numbers), DriftingClock(self.world, WALL)) for _ in range(size))
            for name, size in sizes.items()
        }
        self.nodes = tuple(node for them in self.nodes_of.values() for node in them)
        self.urls = tuple(node.url for node in self.nodes)
        named = {} if shards is None else self.nodes_of
        self.shards = {name: tuple(node.url for node in them) for name, them in named.items()}
        self.laws = Laws(self.world, self.nodes, self._guard)
        self.laws_of = dict.fromkeys(self.nodes_of, self.laws)
        # Of all clients, in all runs.
        self.entropy = self.world.chance.dice("clients").randbytes
        self._clients = 0
        self._faults: list[Faults] = []
        self._processes: list[Process[Any]] = []
        # That of this run.
        self.loop: _Loop | None = None
        # When this run has taken too long, in the world's time.
        self.ends = inf
        # When it was last looked at whether a task gets on; since when none does.
        self._looked = self._since = 0.0
        # The tasks of then, and what each waited for.
        self._waited: dict[asyncio.Task[Any], object] = {}

    def client(self, nodes: Collection[int] | None = None, **options: Any) -> Holdfast:
        """Make a client of these nodes. It can be used inside `run` only.

        Each process needs clients of its own, as it would in the real world.

        Args:
            nodes: The numbers of the nodes that it names, from 0. Default: all. Clients that name
                different nodes may be able to hold the same lock at the same time. If they are,
                `run` raises Violation.
            options: The client's options, as for `holdfast.aio.Holdfast`. In a simulation with
                shards, the client names all of them unless you pass `shards`. `owner` is
                "client-1", "client-2" and so on by default, in the order in which clients are made.

        Raises:
            ConfigError: No node has such a number, or `nodes` is given together with shards.
            Misuse: Later, when the client is used outside `run`, or by another process than the
                first that used it.
        """
        if nodes is None:
            urls = () if self.shards or "shards" in options else self.urls
        elif self.shards or "shards" in options:
            raise ConfigError(
                "nodes= is for a simulation of one set. With several, pass addresses, such as "
                "shards={'a': simulation.shards['a'][:2]}"
            )
        elif not nodes or any(type(it) is not int or not 0 <= it < len(self.nodes) for it in nodes):
            raise ConfigError(
                f"nodes={checks.shown(nodes)}: name at least one node, each by its number, "
                f"from 0 to {len(self.nodes) - 1}"
            )
        else:
            urls = tuple(self.urls[it] for it in nodes)
        shards = {"shards": self.shards} if self.shards and nodes is None else {}
        self._clients += 1
        return _WorldClient(self, urls, {"owner": OWNER.format(self._clients), **shards, **options})

    def process(self, main: Coroutine[Any, Any, T], name: str = "") -> Process[T]:
        """Start a process of its own: tasks that can be paused, crashed or cut off together.

        Everything that the coroutine starts belongs to the process: its tasks, its timers, and the
        clients that it uses. Await the process for the result. If nobody does, `run` raises the
        error with which the process ended.

        Args:
            main: What the process does.
            name: What errors and the timeline call it. By default "process 1", "process 2" and so
                on.

        Raises:
            Misuse: This was called outside `run`.
        """
        loop = asyncio._get_running_loop()
        if not (isinstance(loop, _Loop) and loop.simulation is self):
            main.close()
            raise Misuse("simulation.process() is for code that simulation.run() runs: call it in there")
        process: Process[T] = Process(self.world, name or f"process {len(self._processes) + 1}", self.nodes, loop)
        self._processes.append(process)
        context = contextvars.copy_context()
        context.run(current.set, process)
        task = loop.create_task(main, name=process.name, context=context)
        task.add_done_callback(process.ended)
        return process

    @property
    def now(self) -> float:
        """Seconds since the world began."""
        return self.world.now

    def wall(self) -> float:
        """Return seconds since 1970, on the world's wall clock, in place of `time.time`."""
        return WALL + self.world.now

    def run(self, main: Coroutine[Any, Any, T], *, limit: Seconds = LIMIT) -> T:
        """Run a coroutine in virtual time to its end, and all that it sets off.

        Args:
            main: The coroutine. Processes that are still paused when it returns are crashed, and
                other tasks are cancelled.
            limit: Virtual seconds that it may take, > 0. Default: 7200, two hours.

        Returns:
            What the coroutine returns.

        Raises:
            Stuck: Every task waits, and nothing that could wake one will ever happen, such as in a
                deadlock of two tasks that each hold what the other waits for; or the limit is over.
                The message names the tasks, and the locks they wait for.
            Violation: A law of the lock is broken. That is a bug in holdfast.
            BaseException: Whatever the coroutine raises, or a process that nobody awaits.
        """
        try:
            self._begin(seconds(limit, "limit", least=TURN))
        except BaseException:
            main.close()
            raise
        try:
            with self._alone(), asyncio.Runner(loop_factory=lambda: _Loop(self)) as runner:
                try:
                    outcome = runner.run(main)
                    for process in self._processes:
                        if (failure := process.failure) is not None:
                            raise failure
                    return outcome
                finally:
                    self._finish()
        except BaseException as error:
            error.add_note(f"in the simulated world of seed {self.seed}, at {self.now:.6f} s; what had happened, last:")
            error.add_note("\n".join(timeline(self.world, LAST)))
            raise

    def storm(self, faults: float = 2.0, *, disks: bool = False) -> None:
        """Let things go wrong from now on, until `calm`.

        Connections break, also in one direction only, and what was under way is executed late.
        Nodes restart empty, freeze, and refuse commands. Their clocks are set.

        Args:
            faults: The average number of faults a second, on each shard.
            disks: Nodes that restart may have kept what they had.
        """
        self.calm()
        for name, nodes in self.nodes_of.items():
            ttls = (self._guard - 2.0,)
            plan = StormSettings(faults=faults, disks=disks, ttls=ttls)
            self.world.slow = plan.slow
            self._faults.append(Faults(self.world, nodes, plan, self._guard, name))

    def calm(self) -> None:
        """From now on nothing is wrong any more.

        What is half open stays so: clients have to notice it.
        """
        for faults in self._faults:
            faults.end()
        self._faults.clear()

    def timeline(self, last: int | None = None) -> str:
        """What happened, one line an event: the last lines, or all."""
        return "\n".join(timeline(self.world, last))

    # ------------------------------------------------ within

    def _begin(self, limit: float) -> None:
        self.ends = self.now + limit
        self._looked = self._since = self.now
        self._waited = {}
        self._processes.clear()

    def _finish(self) -> None:
        """The main task is done: whatever is paused will not go on, and the dead are buried."""
        for process in self._processes:
            if process.paused:
                process.crash()
        for process in self._processes:
            process.bury()

    def use(self, client: driver.Driver) -> None:
        """The running code uses this client: only the process that has begun with it may."""
        shown, process = self.world.clients[client], current.get()
        if shown.process is not process:
            used, here = (
                "the code outside all processes" if it is None else str(it) for it in (shown.process, process)
            )
            raise Misuse(
                f"this client belongs to {used}, and {here} uses it: make one with simulation.client() in each process"
            )

    def overdue(self) -> Stuck | None:
        """The error to raise if the run has taken too long."""
        if self.now < self.ends:
            return None
        return self._stuck(f"the run has not ended by its limit, at {self.ends:g} s")

    def deadlock(self, loop: _Loop, nothing_left: bool) -> Stuck | None:
        """The error to raise if no task can ever get on: because nothing is left to happen, or
        leases are renewed for ever.
        """
        if nothing_left and self.now < self.ends:
            return self._stuck("everybody waits, and nothing is left to happen")
        if self.now < self._looked + GLANCE:
            return None
        self._looked = self.now
        waited = {task: getattr(task, "_fut_waiter", None) for task in self._tasks()}
        if waited.keys() != self._waited.keys() or any(self._waited[task] is not it for task, it in waited.items()):
            self._waited = waited
            self._since = self.now
            return None
        clients = [it for it in self.world.clients if it.loop is loop]
        longest = max(
            [max(it.settings.guard or 0.0, it.settings.outage, it.settings.max_ttl) for it in clients], default=0.0
        )
        if self.now < self._since + 2 * longest + GLANCE or self._comes(loop, clients):
            return None
        return self._stuck("everybody waits, and nothing is left to happen but that leases are renewed")

    def _comes(self, loop: _Loop, clients: Collection[driver.Driver]) -> bool:
        """Will something happen by itself, sooner or later?"""
        if self._faults:
            return True
        if not all(it.awaits_nothing for it in self._processes):
            return True
        claims = [claim for client in clients for claim in _claims(client)]
        if any(it.deadline < inf if it.state is not State.HELD else it.timing.max_hold < inf for it in claims):
            return True
        # asyncio's own list of timers, which has no type.
        return any(not it.cancelled() and not _is_a_drivers(it) for it in loop._scheduled)  # type: ignore[attr-defined]

    def _stuck(self, why: str) -> Stuck:
        told = [f"{why}. These tasks wait:"] + [f"  {self._told(task)}" for task in self._tasks()]
        told += [f"  {it} is paused" for it in self._processes if it.paused]
        self.ends = self.now + GRACE
        # For what their end takes.
        self._since = self.now
        return Stuck("\n".join(told))

    def _tasks(self) -> list[asyncio.Task[Any]]:
        """The tasks that are not the clients' own, in the order of their names."""
        found = [it for it in asyncio.all_tasks(self.loop) if not _is_a_clients(it)]
        return sorted(found, key=lambda it: (len(it.get_name()), it.get_name()))

    def _told(self, task: asyncio.Task[Any]) -> str:
        """Where a task waits, and for which lock."""
        coroutine: Any = task.get_coro()
        name = getattr(coroutine, "__qualname__", repr(coroutine))
        where = ""
        while coroutine is not None:
            frames = (getattr(coroutine, kind, None) for kind in ("cr_frame", "gi_frame", "ag_frame"))
            frame = next((it for it in frames if it is not None), None)
            if frame is not None and not frame.f_code.co_filename.startswith((OURS, ASYNCIO)):
                name = frame.f_code.co_qualname
                where = f" at {os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"
            within = (getattr(coroutine, kind, None) for kind in ("cr_await", "gi_yieldfrom", "ag_await"))
            coroutine = next((it for it in within if it is not None), None)
        return f"{task.get_name()}: {name}{where}{self._wanted(task)}"

    def _wanted(self, task: asyncio.Task[Any]) -> str:
        waiter = getattr(task, "_fut_waiter", None)
        for client in self.world.clients:
            for want, waiters in client.waiting.claims.items():
                if waiter is not None and any(it is waiter for it in waiters):
                    return " waits for " + ", ".join(
                        f"the lock {it.recipe.label!r}{self._holder(it, client)}" for it in want.claims
                    )
        return ""

    def _holder(self, wanted: Claim, client: driver.Driver) -> str:
        for other, shown in self.world.clients.items():
            if any(it.state is State.HELD and it.recipe.name == wanted.recipe.name for it in _claims(other)):
                if shown.process is not None:
                    return f", which {shown.process} holds"
                return f", which {'the same' if other is client else 'another'} client holds"
        return ""

    def look_away(self) -> None:
        """A law is broken: the clients may still end in peace."""
        self.world.looks.clear()
        self.world.passes.clear()
        for shown in self.world.clients.values():
            shown.laws = None
        self.world.laws.clear()

    def look(self, loop: _Loop) -> None:
        """Clients have done something: see whether all is as it must be."""
        loop.look()
        loop.raises()
        for laws in self.world.laws:
            laws.look()

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """No thread starts in here: it would live in real time."""
        instead = [
            # Anyio has workers of its own, and so may others.
            (threading.Thread, "start", _refused(threading.Thread.start)),
            # (A client for threads would dial in earnest.)
            (io_thread_module, "start_new_thread", _refused(greenlets.start_new_thread)),
        ]
        before = [(module, name, getattr(module, name)) for module, name, _ in instead]
        for module, name, value in instead:
            setattr(module, name, value)
        try:
            yield
        finally:
            for module, name, value in before:
                setattr(module, name, value)


class _WorldClient(Holdfast):
    """A client that is of use in its world only.

    (In another loop it would dial the nodes' addresses in the real world.)
    """

    def __init__(self, simulation: Simulation, urls: tuple[str, ...], options: dict[str, Any]) -> None:
        super().__init__(*urls, **options)
        self._simulation = simulation

    def _driver(self, at: int = 0) -> driver.Driver:
        loop = asyncio._get_running_loop()
        if not (isinstance(loop, _Loop) and loop.simulation is self._simulation):
            raise Misuse(
                "a client of a simulation can be used only in code that simulation.run() runs: it has no nodes outside"
            )
        found = super()._driver(at)
        self._simulation.use(found)
        return found


class _Selector(selectors.SelectSelector):
    """Where a loop waits: there the world goes on."""

    loop: _Loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        world = self.loop.simulation.world
        # What asyncio itself looks at before it waits.
        ready = self.loop._ready  # type: ignore[attr-defined]
        try:
            self.loop.simulation.look(self.loop)
            world.run(world.now + TURN)
            self._wait(world, ready, timeout)
            if (error := self.loop.simulation.overdue()) is not None:
                raise error
        except Violation:
            self.loop.simulation.look_away()
            raise
        return []

    def _wait(self, world: World, ready: Collection[object], timeout: float | None) -> None:
        simulation = self.loop.simulation
        if timeout is None or timeout > 0:
            until = inf if timeout is None else min(world.now + timeout, simulation.ends)
            world.run(until, lambda: bool(ready) or world.now >= simulation.ends)
            if not ready and (error := simulation.deadlock(self.loop, nothing_left=timeout is None)) is not None:
                raise error


class _Loop(VirtualLoop, asyncio.SelectorEventLoop):
    """An event loop that a world's time passes in."""

    def __init__(self, simulation: Simulation) -> None:
        self.simulation = simulation
        simulation.loop = self
        self.holdfast_sources = Sources(DriftingClock(simulation.world, 0.0), simulation.wall, simulation.entropy)
        selector = _Selector()
        selector.loop = self
        super().__init__(simulation.world, selector)

    def call_soon_threadsafe(  # type: ignore[override]  # (any arguments, whatever the callback takes)
        self, callback: Any, *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        if asyncio._get_running_loop() is not self:
            raise RuntimeError(NO_THREADS)
        return self.call_soon(callback, *args, context=context)


def _refused(plain: Callable[..., Any]) -> Callable[..., Any]:
    """The same, but not in a simulated world."""

    def begin(*arguments: Any) -> Any:
        if isinstance(asyncio._get_running_loop(), _Loop):
            raise RuntimeError(NO_THREADS)
        return plain(*arguments)

    return begin


def _claims(client: driver.Driver) -> list[Claim]:
    return list(client.engine.live.values())


def _is_a_drivers(timer: asyncio.TimerHandle) -> bool:
    """Is it a timer of a client's, which goes on for ever?"""
    callback = cast(Any, timer)._callback
    arguments = cast(Any, timer)._args
    if isinstance(getattr(callback, "__self__", None), Process):
        callback = arguments[0]
    return isinstance(getattr(callback, "__self__", None), driver.Driver | Timer)


def _is_a_clients(task: asyncio.Task[Any]) -> bool:
    """Does a client connect with it?"""
    code = getattr(task.get_coro(), "cr_code", None)
    return code is not None and code.co_filename in (driver.__file__, sockets.__file__)


def _sizes(nodes: int | None, shards: Mapping[str, int] | None) -> Mapping[str, int]:
    """The number of nodes of each set, by its name."""
    if shards is None:
        sizes: Mapping[str, int] = {"": 3 if nodes is None else nodes}
    elif nodes is not None:
        raise ConfigError("a simulation has nodes or shards: with shards={'a': 3, 'b': 3}, leave nodes out")
    elif not shards:
        raise ConfigError("shards is empty: name at least one set, as shards={'a': 3, 'b': 3}")
    else:
        sizes = shards
    for size in sizes.values():
        if type(size) is not int or size < 1:
            raise ConfigError(f"a set of a simulation has at least one node, not {checks.shown(size)}")
    if sum(sizes.values()) > MOST:
        raise ConfigError(f"a simulation has at most {MOST} nodes, not {sum(sizes.values())}")
    return sizes
