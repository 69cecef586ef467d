"""Who is inside: two users whose blocks are entered and left wherever pools, generators and stacks do that.

At most one is inside, or as many as there are permits, and each exit gives back its own lease.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import AsyncGenerator, Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager, suppress
from functools import partial
from typing import Any

import pytest
from contract.cluster import Cluster
from proof.misuse import misuse

import holdfast
from holdfast import LeaseState, LockLost, NotAcquired, aio, current
from holdfast.embedded import Nodes

# Blocks that only one user may be in, and blocks that both may.
ALONE: dict[str, Callable[[Any, str, float], Any]] = {
    "lock": lambda client, name, wait: client.lock(name, wait=wait),
    "reentrant": lambda client, name, wait: client.lock(name, wait=wait, reentrant=True),
    "several names": lambda client, name, wait: client.lock(name, f"{name}/2", wait=wait, reentrant=True),
    "write": lambda client, name, wait: client.rwlock(name).write(wait=wait, reentrant=True),
    "permit": lambda client, name, wait: client.semaphore(name, 1, wait=wait),
    "election": lambda client, name, wait: client.election(name, value="me", wait=wait),
}
TOGETHER: dict[str, Callable[[Any, str, float], Any]] = {
    "read": lambda client, name, wait: client.rwlock(name).read(wait=wait),
    "permits": lambda client, name, wait: client.semaphore(name, 2, wait=wait),
}


class Generator_:
    """A generator that is suspended in its block."""

    def __init__(self, lock: Any) -> None:
        def rows() -> Generator[Any]:
            with lock as lease:
                yield lease

        self._rows = rows()

    def enter(self) -> Any:
        return next(self._rows)

    def leave(self) -> None:
        with suppress(StopIteration):
            next(self._rows)


class Decorated(Generator_):
    """A generator function with the lock above it."""

    def __init__(self, lock: Any) -> None:
        @lock
        def rows() -> Generator[Any]:
            yield current()

        self._rows = rows()


class Stack:
    """An ExitStack."""

    def __init__(self, lock: Any) -> None:
        self._lock, self._stack = lock, ExitStack()

    def enter(self) -> Any:
        return self._stack.enter_context(self._lock)

    def leave(self) -> None:
        self._stack.close()


class Manager(Stack):
    """A context manager of the user's own, as a web framework enters a dependency."""

    def __init__(self, lock: Any) -> None:
        @contextmanager
        def held() -> Iterator[Any]:
            with lock as lease:
                yield lease

        super().__init__(held())


class Acquired(Stack):
    """A lease that was acquired, and then entered."""

    def enter(self) -> Any:
        return self._stack.enter_context(self._lock.acquire())


def in_context(call: Callable[[], Any]) -> Any:
    return contextvars.copy_context().run(call)


@contextmanager
def places(place: str) -> Iterator[tuple[Callable[[Callable[[], Any]], Any], ...]]:
    """Where user 1 enters and leaves, and where user 2 does."""
    with ThreadPoolExecutor(1) as one, ThreadPoolExecutor(1) as other:

        def job(pool: ThreadPoolExecutor, call: Callable[[], Any]) -> Any:
            return pool.submit(call).result()

        def copied(pool: ThreadPoolExecutor, call: Callable[[], Any]) -> Any:
            return pool.submit(in_context, call).result()

        yield {
            "one caller": (lambda call: call(),) * 4,
            "contexts of one thread": (in_context,) * 4,
            "one pool thread": (partial(job, one),) * 4,
            "one pool thread, contexts copied": (partial(copied, one),) * 4,
            "each enters here and leaves there": tuple(partial(job, it) for it in (one, other, other, one)),
        }[place]


EVERYWHERE = ("contexts of one thread", "one pool thread", "one pool thread, contexts copied", "each enters here and leaves there")
CASES = [(block, place) for block in (Generator_, Decorated, Stack, Manager, Acquired) for place in EVERYWHERE]
# In one place, only generators are users of their own: the others have one caller, who would wait for itself.
CASES += [(Generator_, "one caller"), (Decorated, "one caller")]


@pytest.fixture
def client(nodes: Nodes) -> Iterator[Any]:
    cluster = Cluster(nodes)
    with holdfast.Holdfast(*cluster.urls) as client:
        client.ready()
        yield client


@pytest.mark.parametrize("block, place", CASES, ids=[f"{block.__name__}, {place}" for block, place in CASES])
def test_two_users_of_threads(client: Any, name: str, block: type[Any], place: str) -> None:
    with places(place) as (enters1, leaves1, enters2, leaves2):
        for kind, make in ALONE.items():
            lock = make(client, f"{name}/{kind}", 20)
            first, second = block(lock), block(make(client, f"{name}/{kind}", 0.05))
            lease = enters1(first.enter)
            with pytest.raises(NotAcquired):
                enters2(second.enter)
            assert lease.held, kind
            leaves1(first.leave)
            assert lease.state is LeaseState.RELEASED, kind
            second = block(lock)
            lease = enters2(second.enter)
            leaves2(second.leave)
            assert lease.state is LeaseState.RELEASED, kind
        for kind, make in TOGETHER.items():
            lock = make(client, f"{name}/{kind}", 20)
            for order in (1, -1):
                users = [(block(lock), enters1, leaves1), (block(lock), enters2, leaves2)]
                inside = [(enters(user.enter), user, leaves) for user, enters, leaves in users][::order]
                for at, (_, user, leaves) in enumerate(inside):
                    leaves(user.leave)
                    states = [it.state is LeaseState.RELEASED for it, _, _ in inside]
                    assert states == [True] * (at + 1) + [False] * (1 - at), (kind, order)


def test_a_plain_call_of_exit_gives_back_its_caller_s_own_lease_or_the_only_one(client: Any, name: str) -> None:
    """As that of a fixture, which may be in another thread."""
    pool, lock = client.semaphore(name, 2, wait=20), client.lock(name, reentrant=True)
    with ThreadPoolExecutor(1) as jobs:
        ours = pool.__enter__()
        theirs, _ = jobs.submit(lambda: (pool.__enter__(), pool.__exit__(None, None, None))).result()
        assert (ours.held, theirs.held) == (True, False)
        theirs = jobs.submit(lambda: pool.__enter__()).result()
        with misuse("not_held", match="was not entered here, or by several callers at once"):
            jobs.submit(lambda: pool.__exit__(None, None, None)).result()
        pool.__exit__(None, None, None)
        assert (ours.held, theirs.held) == (False, True)
        pool.__exit__(None, None, None)
        assert not theirs.held
    with lock as block:
        outer, inner = lock.__enter__(), lock.__enter__()
        for left in ((True, False), (False, False)):
            lock.__exit__(None, None, None)
            assert (block.held, outer.held, inner.held) == (True, *left)


class AsyncGenerator_:
    """An async generator that is suspended in its block."""

    def __init__(self, lock: Any) -> None:
        async def rows() -> AsyncGenerator[Any]:
            async with lock as lease:
                yield lease

        self._rows = rows()

    async def enter(self) -> Any:
        return await anext(self._rows)

    async def leave(self) -> None:
        assert await anext(self._rows, None) is None


class AsyncDecorated(AsyncGenerator_):
    """An async generator function with the lock above it."""

    def __init__(self, lock: Any) -> None:
        @lock
        async def rows() -> AsyncGenerator[Any]:
            yield current()

        self._rows = rows()


class AsyncStack:
    """An AsyncExitStack."""

    def __init__(self, lock: Any) -> None:
        self._lock, self._stack = lock, AsyncExitStack()

    async def enter(self) -> Any:
        return await self._stack.enter_async_context(self._lock)

    async def leave(self) -> None:
        await self._stack.aclose()


async def here(call: Callable[[], Any]) -> Any:
    return await call()


async def in_a_task(call: Callable[[], Any]) -> Any:
    return await asyncio.create_task(call())


@pytest.mark.parametrize(
    "block, runs",
    [(AsyncGenerator_, here), (AsyncDecorated, here), (AsyncGenerator_, in_a_task), (AsyncStack, in_a_task), (AsyncStack, here)],
)
async def test_two_users_of_asyncio(nodes: Nodes, name: str, block: type[Any], runs: Callable[..., Any]) -> None:
    cluster = Cluster(nodes)
    async with aio.Holdfast(*cluster.urls) as client:
        await client.ready()
        # Two stacks of one task have one owner, who would wait for itself.
        one = (block, runs) == (AsyncStack, here)
        for kind, make in () if one else ALONE.items():
            lock = make(client, f"{name}/{kind}", 20)
            first, second = block(lock), block(make(client, f"{name}/{kind}", 0.05))
            lease = await runs(first.enter)
            with pytest.raises(NotAcquired):
                await runs(second.enter)
            assert lease.held, kind
            await runs(first.leave)
            assert lease.state is LeaseState.RELEASED, kind
        for kind, make in [it for it in TOGETHER.items() if not one or it[0] == "permits"]:
            lock = make(client, f"{name}/{kind}", 20)
            for order in (1, -1):
                inside = [(await runs(user.enter), user) for user in (block(lock), block(lock))][::order]
                for at, (_, user) in enumerate(inside):
                    await runs(user.leave)
                    states = [it.state is LeaseState.RELEASED for it, _ in inside]
                    assert states == [True] * (at + 1) + [False] * (1 - at), (kind, order)


async def rows(lock: Any, work: Callable[[], Any] | None = None) -> AsyncGenerator[None]:
    """Holds the lock while it is suspended, and may work before."""
    async with lock:
        if work is not None:
            await work()
        yield


managed = asynccontextmanager(rows)


async def works_in_a_block(lock: Any, work: Callable[[], Any]) -> None:
    async with lock:
        await work()


async def works_in_a_manager(lock: Any, work: Callable[[], Any]) -> None:
    async with managed(lock):
        await work()


async def works_in_a_lease(lock: Any, work: Callable[[], Any]) -> None:
    async with await lock.acquire():
        await work()


async def works_in_a_generator(lock: Any, work: Callable[[], Any]) -> None:
    async for _ in rows(lock, work):
        pass


@pytest.mark.parametrize("kind", ["lock", "election"])
@pytest.mark.parametrize("inside", [works_in_a_block, works_in_a_manager, works_in_a_lease, works_in_a_generator])
async def test_a_lost_lease_cancels_the_task_that_is_certainly_inside(
    nodes: Nodes, name: str, inside: Callable[..., Any], kind: str
) -> None:
    # Rule E6.
    async with aio.Holdfast(*nodes.urls) as client:

        async def works() -> None:
            await client.force_release(name if kind == "lock" else f"{name}[election]", "a test")
            await asyncio.sleep(5)

        with pytest.raises(LockLost, match="forced"):
            await asyncio.wait_for(inside(getattr(client, kind)(name), works), 4)


@pytest.mark.parametrize("left", ["generator", "stack", "stack in a manager"])
async def test_a_lost_lease_cancels_no_task_that_may_be_busy_with_something_else(nodes: Nodes, name: str, left: str) -> None:
    async with aio.Holdfast(*nodes.urls) as client:
        lock, stack = client.lock(name), AsyncExitStack()
        if left == "generator":
            generator = rows(lock)
            stack.push_async_callback(anext, generator, None)
            await anext(generator)
        else:
            await stack.enter_async_context(lock if left == "stack" else managed(lock))
        await client.force_release(name, "a test")
        while client.leases():
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.05)
        with pytest.raises(LockLost):
            await stack.aclose()


def test_the_threads_client_in_tasks_of_one_loop(client: Any, name: str) -> None:
    """Each task is a user, though one thread runs them all."""
    lock = client.lock(name, wait=0.05, reentrant=True)

    async def user(inside: asyncio.Event, leave: asyncio.Event) -> bool:
        try:
            with lock:
                inside.set()
                await leave.wait()
                return True
        except NotAcquired:
            return False

    async def main() -> None:
        inside, leave = asyncio.Event(), asyncio.Event()
        first = asyncio.create_task(user(inside, leave))
        await inside.wait()
        assert not await asyncio.create_task(user(inside, leave))
        leave.set()
        assert await first

    asyncio.run(main())


@pytest.mark.parametrize("enter", ["with", "manager", "stack", "acquire", "function", "generator"])
def test_one_user_enters_again(client: Any, name: str, enter: str) -> None:
    """Certainly the same user: a reentrant lock is entered again, another one raises Misuse."""
    for reentrant in (True, False):
        lock = client.lock(name, wait=5, reentrant=reentrant)
        with ExitStack() as stack:
            match enter:
                case "stack" | "with":
                    outer = stack.enter_context(lock)
                case "manager":
                    outer = stack.enter_context(_managed(lock))
                case "acquire":
                    outer = stack.enter_context(lock.acquire())
                case "function":
                    outer = _opened(lock, stack)
                case "generator":
                    rows = lock(partial(_rows, lock))()
                    outer = next(rows)
                    assert next(rows) is (outer.fence if reentrant else None)
                    rows.close()
                    continue
            if reentrant:
                with _managed(lock) as inner:
                    assert inner.fence == outer.fence
            elif enter != "acquire":
                with misuse("self_deadlock"):
                    lock.acquire()
            else:  # this lease may be handed to anybody, who may release it
                with pytest.raises(NotAcquired):
                    client.lock(name, wait=0.05).acquire()


@contextmanager
def _managed(lock: Any) -> Iterator[Any]:
    with lock as lease:
        yield lease


def _opened(lock: Any, stack: ExitStack) -> Any:
    return stack.enter_context(lock)


def _rows(lock: Any) -> Iterator[Any]:
    """Enters the lock of its own decorator again."""
    yield current()
    try:
        yield lock.acquire().fence
    except holdfast.Misuse:
        yield None
