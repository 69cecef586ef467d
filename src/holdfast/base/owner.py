"""Who owns a lease: whether a caller is certainly the one that is inside of a lock already.

A thread is not enough: it may serve several requests in turn, or run the tasks of a loop. An owner
is a thread or greenlet, the task that it runs, the job that a pool has given it, and the context
(`contextvars`) in which it first acquired a lock. A generator that holds a lock while it is
suspended is an owner of its own. When in doubt, a caller is a stranger, and waits as one.

Knows threads, tasks, contexts, the call stack, and the leases of owners. Must not know how a lease
is acquired. It keeps no lease alive: a lease that is dropped is no longer in here.
"""

from __future__ import annotations

import gc
import sys
import weakref
from contextvars import ContextVar
from types import AsyncGeneratorType, CoroutineType, FrameType, GeneratorType
from typing import Any, Generic, TypeVar

from ..core.command import WRITER
from ..core.demand import Demand
from ..drivers.greenlets import itself
from ..errors import Misuse, SelfDeadlock
from .lease import Lease
from .terms import LockTerms

T = TypeVar("T", bound=Lease)


class Owner:
    """One logical caller. Two calls have the same owner if they get the same object."""

    __slots__ = ("__weakref__", "job", "task", "thread")

    def __init__(self, thread: object, task: weakref.ref[Any] | None, job: weakref.ref[Any] | None) -> None:
        self.thread, self.task, self.job = thread, task, job


# Pools that copy the context for each job forget the owner with the job.
_known: ContextVar[Owner] = ContextVar("holdfast.owner")

# An owner, and the generators on its call stack, by the ids of their frames: the innermost first.
Here = tuple[Owner, tuple[int, ...]]


def here(task: Any) -> Here:
    """Return who calls.

    Args:
        task: The task that runs here. None if none does.
    """
    job, generators = _surroundings(sys._getframe(1))
    # All references to a task, or a job, that lives are one object.
    thread, reference = itself(), None if task is None else weakref.ref(task)
    known = _known.get(None)
    if known is None or known.thread is not thread or known.task is not reference or known.job is not job:
        known = Owner(thread, reference, job)
        _known.set(known)
    return known, generators


def running_task() -> Any:
    """Return the asyncio task that runs in this thread, or None."""
    # A program without asyncio need not load it, and another thread may be loading it just now.
    running = getattr(sys.modules.get("asyncio.events"), "_get_running_loop", None)
    loop = None if running is None else running()
    return None if loop is None else sys.modules["asyncio.tasks"].current_task(loop)


class Owners(Generic[T]):
    """The leases of one client, by owner and name."""

    __slots__ = ("_leases", "known")

    def __init__(self) -> None:
        self._leases: weakref.WeakValueDictionary[tuple[int, int, str], T] = weakref.WeakValueDictionary()
        # Empty if no owner is inside of any lock. (To ask the dictionary itself costs a call of Python's.)
        self.known: dict[tuple[int, int, str], Any] = self._leases.data  # type: ignore[attr-defined]

    def enters(self, here: Here, lease: T) -> None:
        """Note that the lease is this owner's, as soon as it is held.

        Call it before the lease is held: an interrupt could come in between afterwards.
        """
        owner, generators = here
        lease._owner = owner
        within = generators[0] if generators else 0
        for name in lease._terms.alone:
            if self._at(owner, within, name) is None:
                self._leases[id(owner), within, name] = lease

    def _at(self, owner: Owner, within: int, name: str) -> T | None:
        """Return the lease of this name that is held here, or None."""
        lease = self._leases.get((id(owner), within, name))
        # Another owner may have got the same id since.
        return lease if lease is not None and lease._owner is owner and lease._going else None

    def found(self, here: Here, terms: LockTerms, demand: Demand) -> T | None:
        """Return the lease that this caller may share, or None.

        Raises:
            SelfDeadlock: Waiting would never end.
            Misuse: The lease has other terms.
        """
        owner, generators = here
        within = {
            name: lease
            for name in terms.alone
            for generator in (*generators, 0)
            if (lease := self._at(owner, generator, name)) is not None
        }
        if not within:
            return None
        outer = next(iter(within.values()))
        upgrade = terms.kind == WRITER and any(it._kind != WRITER for it in within.values())
        whole = len(within) == len(terms.names) and all(it is outer for it in within.values())
        if terms.reentrant and not upgrade and whole:
            if terms.demand.max_hold != outer._terms.demand.max_hold:
                raise Misuse(
                    f"{terms.name!r} is entered again with another max_hold: the lease is the same, "
                    "so leave it as it was"
                )
            return outer
        if demand.wait == 0:
            return None
        told = ", ".join(map(repr, within))
        if upgrade:
            raise SelfDeadlock(
                f"{told} is held by this very thread or task, not to write, and cannot become a write lock: "
                "two that tried would wait for each other for ever. "
                "Leave it first; or take the write lock to begin with, and `downgrade()` it"
            )
        if terms.reentrant:
            raise SelfDeadlock(
                f"{told} is held here, and not all of {terms.name!r}: take all names at once, before anything else"
            )
        advice = "do not ask for it again inside of its own body"
        if terms.alone == terms.names:
            advice = "use reentrant=True, or only try"
        raise SelfDeadlock(f"{told} is held by this very thread or task, which would wait for itself: {advice}")


# ------------------------------------------------ what the call stack tells

# Flags of code objects. `inspect` has names for them, and takes as long to load as all of the core.
_GENERATOR, _COROUTINE, _ITERABLE_COROUTINE, _ASYNC_GENERATOR = 0x20, 0x80, 0x100, 0x200


def _surroundings(frame: FrameType | None) -> tuple[weakref.ref[Any] | None, tuple[int, ...]]:
    """Return in which job and generators a frame runs.

    Returns:
        The job of a `ThreadPoolExecutor`, which runs all jobs of a thread in one context, or None.
        And the ids of the generators' frames, the innermost first. Without those of context
        managers, which are suspended while the block of their caller runs.
    """
    item = getattr(sys.modules.get("concurrent.futures.thread"), "_WorkItem", None)
    work, found = None if item is None else item.run.__code__, list[int]()
    while frame is not None:
        code = frame.f_code
        if code is work:
            return weakref.ref(frame.f_locals["self"]), tuple(found)
        if (
            code.co_flags & (_GENERATOR | _ASYNC_GENERATOR)
            and not code.co_flags & _ITERABLE_COROUTINE
            and not _in_contextlib(frame.f_back)
        ):
            found.append(id(frame))
        frame = frame.f_back
    return None, tuple(found)


def _in_contextlib(frame: FrameType | None) -> bool:
    return frame is not None and frame.f_globals.get("__name__") == "contextlib"


def block_of(frame: FrameType | None) -> FrameType | None:
    """Return the frame whose block begins where this frame enters something.

    Returns:
        The frame of a coroutine, whose task stays in the block until it is left. Or that of an
        async generator, which may be suspended in the block. None if the block may be anybody's:
        that of an `AsyncExitStack`, for example.
    """
    while frame is not None and _in_contextlib(frame):
        if frame.f_code.co_name != "__aenter__":
            return None
        frame = frame.f_back
    if frame is None or not frame.f_code.co_flags & (_COROUTINE | _ASYNC_GENERATOR):
        return None
    return block_of(frame.f_back) if is_generator(frame) and _in_contextlib(frame.f_back) else frame


def is_generator(frame: FrameType) -> bool:
    """Return whether this is the frame of an async generator."""
    return bool(frame.f_code.co_flags & _ASYNC_GENERATOR)


# How each kind of suspended code tells its frame, and what it waits for.
_WAITS = {
    CoroutineType: ("cr_frame", "cr_await"),
    AsyncGeneratorType: ("ag_frame", "ag_await"),
    GeneratorType: ("gi_frame", "gi_yieldfrom"),
}


def waits_in(task: Any, frame: int) -> bool:
    """Return whether a suspended task waits within a frame, which is given by its id."""
    at = task.get_coro()
    while at is not None:
        if type(at) in _WAITS:
            own, waits = _WAITS[type(at)]
            if id(getattr(at, own)) == frame:
                return True
            at = getattr(at, waits)
        else:
            # A step of an async generator, or a wrapper of a coroutine, tells only the garbage
            # collector what it is a part of.
            at = next((it for it in gc.get_referents(at) if type(it) in _WAITS), None)
    return False
