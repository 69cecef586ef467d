"""Who owns a lease: whether a caller is certainly the one that is inside of a lock already.

A thread is not enough: it may serve several requests in turn, or run the tasks of a loop. An owner
is a thread or greenlet, the task that it runs, the job that a pool has given it, and the context
(`contextvars`) in which it acquired the lock. A generator that holds a lock while it is suspended
is an owner of its own. When in doubt, a caller is a stranger, and waits as one.

Knows threads, tasks, contexts, the call stack, and the leases of owners. Must not know how a lease
is acquired. It keeps no lease alive: a lease that is dropped is no longer in here.
"""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Iterator
from contextvars import ContextVar
from types import AsyncGeneratorType, CoroutineType, FrameType, GeneratorType
from typing import Any, Generic, NamedTuple, TypeVar

from ..drivers.greenlets import itself
from ..errors import Misuse
from ..protocol.command import READER, WRITER
from ..protocol.timing import Timing
from .lease import Lease
from .terms import LockTerms

T = TypeVar("T", bound=Lease)


class Owner:
    """A caller that enters a lock: what it runs in, its lease, and the lock that it was in before.

    Attributes:
        client: The book of its client.
        lease: The lease, as a weak reference.
        thread: The thread or greenlet.
        task: The task, as a weak reference. None if there is none.
        job: The same for the job of a pool.
        generator: The id of the frame of the innermost generator. 0 if there is none.
        outer: The owner in the same context that entered before. None if there is none.
    """

    __slots__ = ("client", "generator", "job", "lease", "outer", "task", "thread")

    def __init__(self, client: Owners[Any], lease: Lease, here: Here) -> None:
        self.client, self.lease = client, weakref.ref(lease)
        self.thread, self.task, self.job, generators, self.outer = here
        self.generator = generators[0] if generators else 0


# Who entered last in this context. A copy of the context knows of nobody who enters later.
INSIDE: ContextVar[Owner | None] = ContextVar("holdfast.inside", default=None)


class Here(NamedTuple):
    """Where a caller is.

    Attributes:
        thread: As those of an Owner.
        task: As those of an Owner.
        job: As those of an Owner.
        generators: The ids of the frames of the generators that it runs in, the innermost first.
        owner: Who has entered last here, and is still inside.
    """

    thread: object
    task: weakref.ref[Any] | None
    job: weakref.ref[Any] | None
    generators: tuple[int, ...]
    owner: Owner | None

    def inside(self) -> Iterator[tuple[Owner, Any]]:
        """Yield the owners that are certainly this caller, with their leases."""
        owner = self.owner
        while owner is not None:
            lease = owner.lease()
            if lease is not None and (not owner.generator or owner.generator in self.generators):
                yield owner, lease
            owner = owner.outer


def here(task: Any) -> Here:
    """Return where the caller is.

    Args:
        task: The task that runs here. None if none does.
    """
    job, generators = _surroundings(sys._getframe(1))
    # All references to a task, or a job, that lives are one object.
    thread, reference = itself(), None if task is None else weakref.ref(task)
    owner = INSIDE.get()
    # A thread or task that was started inside of a block has a copy of its context.
    if owner is not None and (owner.thread is not thread or owner.task is not reference or owner.job is not job):
        owner = None
    while owner is not None and ((lease := owner.lease()) is None or lease._ended or lease._lost):
        owner = owner.outer
    return Here(thread, reference, job, generators, owner)


def running_task() -> Any:
    """Return the asyncio task that runs in this thread, or None."""
    # A program without asyncio need not load it, and another thread may be loading it just now.
    running = getattr(sys.modules.get("asyncio.events"), "_get_running_loop", None)
    loop = None if running is None else running()
    return None if loop is None else sys.modules["asyncio.tasks"].current_task(loop)


class Owners(Generic[T]):
    """The owners of one client."""

    def enters(self, here: Here, lease: T) -> None:
        """Note that the lease is this caller's, as soon as it is held.

        Call it before the lease is held: an interrupt could come in between afterwards.
        """
        lease._owner = owner = Owner(self, lease, here)
        INSIDE.set(owner)

    def found(self, here: Here, terms: LockTerms, timing: Timing) -> T | None:
        """Return the lease that this caller may share, or None.

        Raises:
            Misuse: Waiting would never end (`self_deadlock`).
            Misuse: The lease has other terms.
        """
        mine = [lease for owner, lease in here.inside() if owner.client is self and lease._going]
        within: dict[str, T] = {name: it for name in terms.alone for it in mine if name in it._terms.alone}
        if not within:
            return None
        outer = next(iter(within.values()))
        # Others may hold what is held to read, so only who reads may share it.
        upgrade = terms.kind != READER and any(it._kind not in (terms.kind, WRITER) for it in within.values())
        whole = len(within) == len(terms.names) and all(it is outer for it in within.values())
        if terms.reentrant and not upgrade and whole:
            asked, shared = terms.timing, outer._terms.timing
            if asked.max_hold != shared.max_hold or asked.at_least > shared.at_least:
                option = "max_hold" if asked.max_hold != shared.max_hold else "at_least"
                raise Misuse(
                    f"{terms.name!r} is entered again with another {option}: the lease is the same, "
                    "so leave it as it was"
                )
            return outer
        if timing.wait == 0:
            return None
        told = ", ".join(map(repr, within))
        if upgrade:
            raise Misuse(
                f"{told} is held by this very thread or task, not to write, and cannot become a write lock: "
                "two that tried would wait for each other for ever. "
                "Leave it first; or take the write lock to begin with, and `downgrade()` it",
                "self_deadlock",
            )
        if terms.reentrant:
            raise Misuse(
                f"{told} is held here, and not all of {terms.name!r}: take all names at once, before anything else",
                "self_deadlock",
            )
        advice = "do not ask for it again inside of its own body"
        if terms.alone == terms.names:
            advice = "use reentrant=True, or only try"
        told += " is held by this very thread or task, which would wait for itself"
        raise Misuse(f"{told}: {advice}", "self_deadlock")


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
