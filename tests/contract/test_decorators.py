"""Decorated functions and generators: what they hold and for how long, what they pass on, which lock they take, what is current."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
from contract.cluster import Cluster
from contract.faces import Face, Script, Threads, in_a_thread
from hypothesis import given, settings
from hypothesis import strategies as st
from proof.misuse import misuse

import holdfast
from holdfast import LeaseState, current
from holdfast.embedded import Nodes
from holdfast.errors import LockBusy, LockLost, Misuse, NoQuorum

Body = Callable[..., Awaitable[Any]]


async def nothing(*args: Any, **kwargs: Any) -> None:
    """A body that does nothing."""


def function(face: Face, body: Body) -> Callable[..., Any]:
    """A function of this face's colour, which does what the body says; the body gets the current lease first."""
    loop = asyncio.get_running_loop()

    def in_its_thread(*args: Any, **kwargs: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(body(current(), *args, **kwargs), loop).result()  # type: ignore[arg-type]  # (a coroutine in this face)

    async def in_its_task(*args: Any, **kwargs: Any) -> Any:
        return await body(current(), *args, **kwargs)

    return in_its_thread if isinstance(face, Threads) else in_its_task


def counting(face: Face, log: list[Any], lease: Callable[[], Any] = current) -> Callable[..., Any]:
    """A generator function of this face's colour: counts, and notes what it is sent, its leases, and its end.

    Args:
        face: The face.
        log: Where it notes.
        lease: How it finds its lease when it ends.
    """

    def threads(count: int) -> Any:
        try:
            for number in range(count):
                log.append(current())
                log.append((yield number))
        finally:
            log.append(f"over, held: {lease().held}")

    async def asynchronous(count: int) -> Any:
        try:
            for number in range(count):
                await asyncio.sleep(0)
                log.append(current())
                log.append((yield number))
        finally:
            await asyncio.sleep(0)
            log.append(f"over, held: {lease().held}")

    return threads if isinstance(face, Threads) else asynchronous


class Steps:
    """A generator of either colour, driven step by step; with threads, each step is taken by another one."""

    OVER = "it is over"

    def __init__(self, generator: Any) -> None:
        self.generator = generator
        self._threads = hasattr(generator, "send")

    async def _step(self, take: Any, *arguments: Any) -> Any:
        if not self._threads:
            try:
                return await take(*arguments)
            except StopAsyncIteration:
                return self.OVER

        def taken() -> Any:  # (a StopIteration cannot pass through a future)
            try:
                return take(*arguments)
            except StopIteration:
                return self.OVER

        return await in_a_thread(taken)

    async def next(self) -> Any:
        """One step; OVER at the end."""
        return await self.send(None)

    async def send(self, value: Any) -> Any:
        """One step that hands in a value."""
        return await self._step(self.generator.send if self._threads else self.generator.asend, value)

    async def throw(self, error: BaseException) -> Any:
        """One step that raises in the generator."""
        return await self._step(self.generator.throw if self._threads else self.generator.athrow, error)

    async def close(self) -> None:
        """End it."""
        await self._step(self.generator.close if self._threads else self.generator.aclose)


@asynccontextmanager
async def taken(face: Face, nodes: Cluster, name: str) -> AsyncIterator[Any]:
    """The lock while somebody else has it."""
    lease = await face.acquire(face.client(nodes).lock(name))
    yield lease
    await face.release(lease)


async def is_free(face: Face, nodes: Cluster, name: str) -> None:
    """The lock can be had by somebody else."""
    await face.release(await face.acquire(face.client(nodes).lock(name, wait=5)))


# ------------------------------------------------ functions


async def test_a_function_holds_its_lock_while_it_runs(face: Face, five: Cluster, name: str) -> None:
    locks = await face.connected(five)

    async def body(lease: Any, a: int, *, b: int) -> Any:
        assert (lease.name, lease.state) == (name, LeaseState.HELD)
        with pytest.raises(LockBusy):
            await face.acquire(face.client(five).lock(name, wait=0))
        return lease, a + b

    decorated = locks.lock(name)(function(face, body))
    fences = []
    for _ in range(3):  # again and again
        lease, result = await face.call(partial(decorated, 2, b=3))
        assert (lease.state, result) == (LeaseState.RELEASED, 5)
        fences.append(lease.fence)
    assert fences == sorted(set(fences))
    await is_free(face, five, name)


async def test_an_exception_passes_and_the_lock_is_released(face: Face, five: Cluster, name: str) -> None:
    locks, own = await face.connected(five), KeyError("the body's own")

    async def body(lease: Any) -> None:
        raise own

    for decorated in (locks.lock(name)(function(face, body)), locks.locked(name, on_busy="skip")(function(face, body))):
        with pytest.raises(KeyError) as caught:
            await face.call(decorated)
        assert caught.value is own
        assert not hasattr(own, "__notes__")
    await is_free(face, five, name)


async def test_a_function_whose_lock_is_lost_raises_when_it_is_left(face: Face, five: Cluster, name: str) -> None:
    locks = await face.connected(five)

    async def body(lease: Any) -> str:
        await face.until_lost(lease)  # with asyncio it is cancelled meanwhile
        assert isinstance(face, Threads)
        return "what it returns is lost, too"

    with pytest.raises(LockLost) as caught:
        await face.call(locks.lock(name, ttl=0.2, renew=False)(function(face, body)))
    assert caught.value.name == name


# ------------------------------------------------ generators


@pytest.mark.parametrize("cyclic", [False, True])
async def test_a_generator_that_is_dropped_is_closed(face: Face, five: Cluster, name: str, cyclic: bool) -> None:
    """By Python at once, or by the event loop: its `finally` runs with the lock, which is released then."""
    locks, log = await face.connected(five), list[Any]()
    # (In a cycle Python may end the function before its decorator: then no lease is the current one.)
    steps = Steps(locks.lock(name)(counting(face, log, lambda: log[0]))(3))
    await steps.next()
    if cyclic:
        steps.itself = steps  # type: ignore[attr-defined]  # (an attribute of a function)
    del steps
    await face.until(lambda: gc.collect() is None or len(log) == 2)  # (a thread that took a step may still be ending)
    assert log[1] == "over, held: True"
    await is_free(face, five, name)


async def test_a_generator_that_loses_its_lock_between_two_steps_is_closed(face: Face, five: Cluster, name: str) -> None:
    """Its user is told by the next step, and by nothing else: what runs between the steps is not the generator's body."""
    locks, log, told = await face.connected(five), list[Any](), list[Any]()
    steps = Steps(locks.lock(name, ttl=0.2, renew=False, on_lost=told.append)(counting(face, log))(3))
    await steps.next()
    await face.until_lost(log[0])  # nobody is cancelled here
    await face.until(lambda: told)
    with pytest.raises(LockLost) as caught:
        await steps.next()
    assert not hasattr(caught.value, "__notes__")
    assert caught.value.name == name
    assert log[1:] == ["over, held: False"]
    assert await steps.next() == Steps.OVER


async def test_what_is_thrown_at_a_generator_without_its_lock_comes_first(face: Face, five: Cluster, name: str) -> None:
    locks = await face.connected(five)
    for how in ("closed", "thrown at"):
        log: list[Any] = []
        steps = Steps(locks.lock(name, ttl=0.2, renew=False)(counting(face, log))(3))
        await steps.next()
        await face.until_lost(log[0])
        if how == "closed":
            await steps.close()
        else:
            with pytest.raises(KeyError) as caught:
                await steps.throw(KeyError("x"))
            assert "is lost (expired)" in caught.value.__notes__[0]
        assert log[1:] == ["over, held: False"]


class Argument:
    """Something to be forgotten."""


async def test_nothing_is_kept_by_a_cycle(face: Face, five: Cluster, name: str) -> None:
    """What an ended generator was given is forgotten at once, as without the decorator, and not when garbage is collected."""
    client = await face.connected(five)

    def body(argument: Any) -> Any:
        yield 1

    async def asynchronous(argument: Any) -> Any:
        yield 1

    plain = body if isinstance(face, Threads) else asynchronous
    gc.disable()
    try:
        for function in (plain, client.lock(name)(plain)):
            argument = Argument()
            gone = weakref.ref(argument)
            generator = function(argument)
            try:  # (what pytest.raises has seen is kept by a cycle)
                if isinstance(face, Threads):
                    next(generator)
                    generator.throw(KeyError())
                else:
                    await anext(generator)
                    await generator.athrow(KeyError())
            except KeyError:
                pass
            del argument, generator
            assert gone() is None
    finally:
        gc.enable()


SEEN: contextvars.ContextVar[str] = contextvars.ContextVar("SEEN")


async def test_other_context_variables_are_as_without_the_decorator(face: Face, five: Cluster, name: str) -> None:
    """A generator and whoever takes its steps share them: in threads, as in a task."""
    client = await face.connected(five)

    def body() -> Any:
        SEEN.set("of the body")
        yield SEEN.get()
        yield SEEN.get()

    async def asynchronous() -> Any:
        for seen in body():
            yield seen

    def uses(generator: Any) -> Script[list[str]]:
        told = []
        for _ in range(2):
            SEEN.set("of the user")
            told += [(yield partial(next if isinstance(face, Threads) else anext, generator)), SEEN.get()]
        yield generator.close if isinstance(face, Threads) else generator.aclose
        return told

    plain = body if isinstance(face, Threads) else asynchronous
    expected = await face.user(client, uses(plain()))
    assert await face.user(client, uses(client.lock(name)(plain)())) == expected


# A body, as data: what it does at each of its yields with what it is sent, and with what is thrown at it.
ERRORS: list[Any] = [ValueError, KeyError, StopIteration, StopAsyncIteration, GeneratorExit, KeyboardInterrupt]
ACTS = ["go on", "return", "raise", "raise anew"]
PLANS = st.lists(st.tuples(st.sampled_from(ACTS), st.sampled_from(ACTS)), max_size=4)
MOVES = st.lists(
    st.one_of(
        st.just(("next", None)),
        st.tuples(st.just("send"), st.integers(0, 9)),
        st.tuples(st.just("throw"), st.sampled_from(ERRORS)),
        st.just(("close", None)),
    ),
    max_size=8,
)


def acts(act: str, log: list[Any], got: Any) -> bool:
    """Do what the plan says; True: the body returns."""
    log.append(repr(got))
    if act == "raise":
        raise got if isinstance(got, BaseException) else ZeroDivisionError(str(got))
    if act == "raise anew":
        raise LookupError("anew")
    return act == "return"


def planned(plan: Any, log: list[Any], leases: list[Any]) -> Any:
    """A generator that follows a plan."""
    try:
        leases.append(current())
    except Misuse:
        pass
    for number, (sent, thrown) in enumerate(plan):
        try:
            got = yield number
        except BaseException as error:
            if acts(thrown, log, error):
                return "of an exception"
        else:
            if acts(sent, log, got):
                return "early"
    return "late"


async def planned_async(plan: Any, log: list[Any], leases: list[Any]) -> Any:
    """The same, async. (Who yields when it is to end is left in the middle for ever: that has a test of its own.)"""
    try:
        leases.append(current())
    except Misuse:
        pass
    for number, (sent, thrown) in enumerate(plan):
        await asyncio.sleep(0)
        try:
            got = yield number
        except BaseException as error:
            if acts("return" if isinstance(error, GeneratorExit) and thrown == "go on" else thrown, log, error):
                return
        else:
            if acts(sent, log, got):
                return


def story(error: BaseException) -> list[str]:
    """An exception with what led to it."""
    told = []
    at: BaseException | None = error
    while at is not None:
        told.append(repr(at))
        at = at.__cause__ or (None if at.__suppress_context__ else at.__context__)
    return told


async def outcome(move: str, what: Any, generator: Any) -> Any:
    """What becomes of one step of a generator of either colour."""
    a = "a" if hasattr(generator, "asend") else ""
    try:
        match move:
            case "next":
                found = getattr(generator, f"__{a}next__")()
            case "send":
                found = getattr(generator, f"{a}send")(what)
            case "throw":
                found = getattr(generator, f"{a}throw")(what())
            case _:
                found = getattr(generator, f"{a}close")()
        return await found if a else found
    except StopIteration as end:
        return "over", end.value
    except StopAsyncIteration:
        return "over"
    except BaseException as error:
        return story(error)


def is_over(generator: Any) -> bool:
    return (generator.ag_frame if hasattr(generator, "asend") else generator.gi_frame) is None


def check_hold(leases: list[Any], begun: bool, over: bool) -> None:
    """The lock is held exactly from the first step to the end."""
    if not begun:
        assert leases == []
    else:
        assert len(leases) == 1
        assert leases[0].state is (LeaseState.RELEASED if over else LeaseState.HELD)


async def behaves_alike(locks: Any, function: Any, plan: Any, moves: Any) -> None:
    """A decorated generator behaves as the generator itself."""
    logs: tuple[list[Any], list[Any]] = [], []
    leases: list[Any] = []
    bare, decorated = function(plan, logs[0], []), locks.lock("same", wait=5)(function)(plan, logs[1], leases)
    begun = False
    for move, what in moves:
        begun = begun or (move in ("next", "send") and not is_over(bare) and not (move == "send" and what is not None))
        assert await outcome(move, what, decorated) == await outcome(move, what, bare)
        assert logs[0] == logs[1]
        check_hold(leases, begun, is_over(bare))
        with misuse("not_held"):
            current()
    begun = begun or not is_over(bare)
    for generator in (bare, decorated):
        while not is_over(generator):
            await outcome("next", None, generator)
    assert logs[0] == logs[1]
    check_hold(leases, begun, True)


def always(run: Callable[[Any], object], locks: Any, function: Any) -> None:
    @settings(max_examples=150, deadline=None)
    @given(PLANS, MOVES)
    def each(plan: Any, moves: Any) -> None:
        run(behaves_alike(locks, function, plan, moves))

    each()


def test_a_decorated_generator_behaves_as_the_generator_itself(nodes: Nodes) -> None:
    def at_once(nothing_waits: Any) -> None:
        with pytest.raises(StopIteration):
            nothing_waits.send(None)

    with holdfast.Holdfast(*nodes.urls) as locks:
        always(at_once, locks, planned)


def test_a_decorated_async_generator_behaves_as_the_generator_itself(nodes: Nodes) -> None:
    with asyncio.Runner() as runner:
        locks = holdfast.aio.Holdfast(*nodes.urls)
        always(runner.run, locks, planned_async)
        runner.run(locks.close())


# ------------------------------------------------ busy


async def test_busy_is_raised_or_skipped(face: Face, five: Cluster, name: str) -> None:
    locks, ran = await face.connected(five), list[Any]()

    async def body(lease: Any) -> str:
        ran.append(lease)
        return "done"

    plain = function(face, body)
    raises = locks.locked(name, wait=0)(plain)
    skips = locks.locked(name, on_busy="skip", wait=0)(plain)
    late = locks.locked(name, on_busy="skip", wait=0.1)(plain)
    log: list[Any] = []
    generator = locks.locked(name, on_busy="skip", wait=0)(counting(face, log))
    async with taken(face, five, name):
        with pytest.raises(LockBusy):
            await face.call(raises)
        assert await face.call(skips) is None
        began = face.now()
        assert await face.call(late) is None
        assert face.now() - began > 0.09  # it waits as `wait` says
        steps = Steps(generator(3))
        assert await steps.next() == Steps.OVER
        busy = Steps(locks.locked(name, wait=0)(counting(face, log))(3))
        with pytest.raises(LockBusy):
            await busy.next()
    assert ran == log == []
    await face.until(lambda: five.holders(name) == [None] * 5)  # (a release waits for no answer)
    assert await face.call(raises) == await face.call(skips) == "done"
    steps = Steps(generator(1))
    assert await steps.next() == 0
    assert await steps.next() == Steps.OVER


async def test_no_quorum_is_never_skipped(face: Face, three: Cluster, name: str) -> None:
    locks = await face.connected(three, node_timeout=0.2)
    skips = locks.locked(name, on_busy="skip", wait=0)(function(face, nothing))
    steps = Steps(locks.locked(name, on_busy="skip", wait=0)(counting(face, []))(3))
    await three.kill(0, 1)
    with pytest.raises(NoQuorum):
        await face.call(skips)
    with pytest.raises(NoQuorum):
        await steps.next()


# ------------------------------------------------ what would run without its lock


async def test_a_function_that_only_begins_its_work_is_misuse(face: Face, five: Cluster, name: str) -> None:
    client = await face.connected(five)
    log: list[Any] = []

    def begins() -> Any:
        return counting(Threads(), log)(3)

    async def coroutine() -> Any:
        return begins()

    wrong = {"would run without the lock": begins if isinstance(face, Threads) else coroutine}
    if isinstance(face, Threads):
        wrong["returned a coroutine"] = lambda: coroutine()
    for told, does in wrong.items():
        for call in (client.lock(name)(does), partial(client.once(name, keep=60).run, does), client.fill(name, 60, does).get):
            with pytest.raises(holdfast.Misuse, match=told):
                await face.call(call)
    assert log == []
    await is_free(face, five, name)
