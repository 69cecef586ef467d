"""What is done once: who runs, what the others are told, what counts as done and what does not; over every driver."""

from __future__ import annotations

import asyncio
import pickle
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from functools import partial
from math import nan
from typing import Any

import pytest
from contract.cluster import Cluster
from contract.faces import Asyncio, Face, Script, Threads
from contract.test_shards import Addition, lives

from holdfast import Result, current
from holdfast.errors import ConfigError, LockBusy, LockLost, Misuse
from holdfast.face.values import MOST
from holdfast.primitives.once.commands import note


class Job:
    """A function of the face's colour, which takes some time; it notes its arguments and leases. `gives`: makes its result of both."""

    def __init__(self, face: Face, gives: Callable[..., Any] = lambda *args, **kwargs: "done", takes: float = 0.0) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.leases: list[Any] = []

        def works(*args: Any, **kwargs: Any) -> Script[Any]:
            self.leases.append(current())
            self.calls.append((*args, *kwargs.items()))
            if takes:
                yield lambda: time.sleep(takes) if isinstance(face, Threads) else asyncio.sleep(takes)
            return gives(*args, **kwargs)

        self.function: Any = face.function(works)

    @property
    def runs(self) -> int:
        return len(self.calls)


async def run(face: Face, once: Any, job: Job, *args: Any, **kwargs: Any) -> Any:
    """`once.run(...)`"""
    if kwargs:
        return await face.call(lambda: once.run(job.function, *args, **kwargs))
    return await face.call(once.run, job.function, *args)


async def result(face: Face, once: Any) -> Result:
    """`once.result()`"""
    found: Result = await face.call(once.result)
    return found


async def test_one_runs_and_all_have_its_result(face: Face, five: Cluster, name: str) -> None:
    clients = [await face.connected(five) for _ in range(2)]
    job = Job(face, lambda *args: {"by": list(args)}, takes=0.2)
    told = await asyncio.gather(*[run(face, it.once(name, keep=60, wait=20), job, number) for number, it in enumerate(clients * 4)])
    assert job.runs == 1
    assert told == [{"by": list(job.calls[0])}] * 8
    assert await run(face, clients[0].once(name, keep=60), job, 99) == told[0], "later callers, too"
    assert job.runs == 1
    lease = job.leases[0]
    assert (lease.name, type(lease.fence)) == (name, int)
    await face.until(lambda: five.holders(f"{name}[once]") == [None] * 5)


async def test_a_failure_is_the_caller_s_own_and_lets_the_next_one_try(face: Face, five: Cluster, name: str) -> None:
    # Rule O6.
    once = (await face.connected(five)).once(name, keep=60)
    error = ValueError("bad luck")

    def fails() -> Any:
        raise error

    failing, working = Job(face, fails), Job(face)
    with pytest.raises(ValueError) as caught:
        await run(face, once, failing)
    assert caught.value is error
    assert not await result(face, once)
    assert await run(face, once, working) == "done"
    assert await run(face, once, failing) == "done"
    assert (failing.runs, working.runs) == (1, 1)
    assert working.leases[0].fence > failing.leases[0].fence


async def test_a_result_may_be_nothing(face: Face, five: Cluster, name: str) -> None:
    once, job = (await face.connected(five)).once(name, keep=60), Job(face, lambda: None)
    found = await result(face, once)
    assert (found.known, found.value, bool(found)) == (False, None, False)
    assert await run(face, once, job) is None
    found = await result(face, once)
    assert (found.known, found.value, bool(found)) == (True, None, True)
    assert await run(face, once, job) is None
    assert job.runs == 1


# ------------------------------------------------ what can be kept


async def test_what_has_run_and_cannot_be_kept_is_not_run_again(face: Face, five: Cluster, name: str) -> None:
    client = await face.connected(five)
    wrongs = [({1, 2}, "set"), (datetime.now(UTC), "datetime"), (nan, "Out of range"), ("x" * MOST, f"it has {MOST + 2} bytes")]
    for number, (wrong, told) in enumerate(wrongs):
        once, job = client.once(f"{name}.{number}", keep=60), Job(face, lambda wrong=wrong: wrong)
        with pytest.raises(Misuse, match="has run, but its result cannot be kept") as caught:
            await run(face, once, job)
        assert told in str(caught.value)
        assert "pass a `serializer=` that can keep it" in str(caught.value)
        assert len(str(caught.value)) < 1000
        again = Job(face)
        for waits in (lambda once=once, again=again: run(face, once, again), lambda once=once: result(face, once)):
            with pytest.raises(Misuse, match="run before") as caught:
                await waits()
            assert told in str(caught.value), "others are told why"
        assert (job.runs, again.runs) == (1, 0)


async def test_a_failure_that_is_no_result_is_still_a_failure(face: Face, five: Cluster, name: str) -> None:
    """What a function raises, Misuse too, is its caller's own: it says nothing about a result."""
    once = (await face.connected(five)).once(name, keep=60)

    def fails() -> Any:
        raise Misuse("of its own")

    with pytest.raises(Misuse, match="of its own"):
        await run(face, once, Job(face, fails))
    assert await run(face, once, Job(face)) == "done"


async def test_a_result_that_looks_like_the_note_is_none(face: Face, five: Cluster, name: str) -> None:
    class Raw:
        dumps = loads = staticmethod(bytes)

    once, job = (await face.connected(five)).once(name, keep=60, serializer=Raw()), Job(face, lambda: note("forged"))
    with pytest.raises(Misuse, match="begin like the note"):
        await run(face, once, job)
    with pytest.raises(Misuse, match="begin like the note"):
        await run(face, once, job)
    assert job.runs == 1


async def test_another_serializer(face: Face, five: Cluster, name: str) -> None:
    client = await face.connected(five)
    once, job = client.once(name, keep=60, serializer=pickle), Job(face, lambda: {1: {2, 3}})
    assert await run(face, once, job) == await run(face, once, job) == (await result(face, once)).value == {1: {2, 3}}
    assert job.runs == 1
    for waits in (lambda: run(face, client.once(name, keep=60), job), lambda: result(face, client.once(name, keep=60))):
        with pytest.raises(ConfigError, match="`serializer`"):
            await waits()


# ------------------------------------------------ schedules


async def test_once_in_each_slot(face: Face, five: Cluster, name: str) -> None:
    client, job = await face.connected(five), Job(face, lambda *args: list(args))
    hourly = client.once(name, keep=7200, per=3600)
    # Measured by the nodes' own clock, by which slots begin. No run reaches this slot by waiting.
    slot = int(five.ask(0, "TIME")[0]) // 3600 - 100
    then = datetime.fromtimestamp(slot * 3600, UTC)
    assert (hourly.key, hourly.keep, hourly.per) == (name, 7200.0, 3600.0)
    assert await run(face, hourly.at(then), job, 1) == [1]
    assert await run(face, hourly.at(then + timedelta(minutes=59, seconds=59.9)), job, 2) == [1]
    assert await run(face, hourly.at(then.astimezone(timezone(timedelta(hours=5)))), job, 3) == [1]
    assert await run(face, hourly.at(then.timestamp() + 5), job, 4) == [1]
    assert await run(face, hourly.at(then + timedelta(hours=1)), job, 5) == [5]
    assert await run(face, hourly.at(then - timedelta(microseconds=1)), job, 6) == [6]
    assert (await result(face, hourly.at(then))).value == [1], "however late"
    assert not await result(face, hourly), "the slot of now is another one"
    assert await run(face, hourly, job, 7) == [7]
    assert await run(face, hourly, job, 8) in ([7], [8]), "(an hour may just have ended)"
    assert five.everywhere("EXISTS", f"{{{name}[once 3600s {slot}]}}:result") == [1] * 5
    assert f"{name}[once 3600s {slot}]" not in await face.call(client.names, f"{glob(name)}*"), "its lock was released"


async def test_no_user_s_name_is_that_of_a_slot(face: Face, five: Cluster, name: str) -> None:
    client, job = await face.connected(five), Job(face, lambda *args: list(args))
    minutes = client.once(name, keep=60, per=60)
    names = [f"{name}@0", f"{name}@60s 0", f"{name} 60s 0", f"{name}[60s 0]"]
    assert [await run(face, client.once(it, keep=60), job, it) for it in names] == [[it] for it in names]
    assert not await result(face, minutes.at(0))
    assert await run(face, minutes.at(0), job, "slot") == ["slot"]
    for wrong in (f"{name}[once 60s 0]", f"{name}[once day 2000-01-01 UTC]"):
        for describe in (client.lock, lambda it: client.once(it, keep=60), lambda it: client.once(it, keep=60, per=60)):
            with pytest.raises(ConfigError, match="looks like"):
                describe(wrong)
    taken = client.once(name, keep=7200, per=3600)
    assert not await result(face, taken.at(0)), "nor is a slot of one schedule a slot of another"


async def test_the_arguments_are_all_the_function_s(face: Face, five: Cluster, name: str) -> None:
    client, job = await face.connected(five), Job(face)
    once = client.once(name, keep=60)
    assert await face.call(lambda: once.run(job.function, 1, at=2, wait=3, key=4, keep=5)) == "done"
    assert job.calls == [(1, ("at", 2), ("wait", 3), ("key", 4), ("keep", 5))]


# ------------------------------------------------ inside


@pytest.mark.slow
async def test_a_lease_that_is_taken_away(face: Face, five: Cluster, name: str) -> None:
    """The body of a task is stopped; a thread's goes on, and as nobody else has looked, its result is kept."""
    lost: list[Any] = []
    client, job = await face.connected(five), Job(face, takes=0.5)
    once = client.once(name, keep=60, on_lost=lost.append)
    running = asyncio.ensure_future(run(face, once, job))
    await face.until(lambda: job.runs)
    assert await face.call(client.force_release, f"{name}[once]", "a test") >= 3
    if isinstance(face, Asyncio):
        with pytest.raises(LockLost, match="forced"):
            await running
        assert not await result(face, once)
    else:
        assert await running == "done"
        assert (await result(face, once)).value == "done"
    await face.until(lambda: len(lost) == 1)


def glob(name: str) -> str:
    return "".join(f"[{it}]" if it in "*?" else it for it in name)


# ------------------------------------------------ decorated


async def test_a_decorated_function_is_run_once_for_its_key(face: Face, five: Cluster, name: str) -> None:
    client, runs = await face.connected(five), list[Any]()

    def report(day: int, more: str = "x") -> str:
        runs.append(current().name)
        return f"{day}{more}"

    decorated = client.once(name + ":{day}:{more}", keep=60)(face.function(report))
    calls = [((1,), {}), ((), {"day": 1}), ((2,), {}), ((1,), {"more": "y"})]
    assert [await face.call(decorated, *args, **kwargs) for args, kwargs in calls] == ["1x", "1x", "2x", "1y"]
    assert runs == [f"{name}:1:x", f"{name}:2:x", f"{name}:1:y"]
    assert (await result(face, client.once(f"{name}:2:x", keep=60))).value == "2x"


async def test_d21_other_arguments_than_those_of_the_result_are_misuse(face: Face, five: Cluster, name: str) -> None:
    """Of a decorated function, those that its template does not name; of `run` all, if it is told so."""
    client, job = await face.connected(five), Job(face, lambda order, cents=250, **more: cents)

    def charge(**options: Any) -> Any:
        def charges(order: int, cents: int = 250, **more: Any) -> Script[Any]:
            return (yield lambda: job.function(order, cents))

        return client.once(name + ":{order}", keep=60, **options)(face.function(charges))

    call = face.call
    strict = charge()
    assert [await call(strict, 7), await call(strict, 7, 250), await call(strict, order=7, cents=250)] == [250] * 3
    assert await call(strict, 8, 999) == 999, "another key"
    for arguments in ({"cents": 999}, {"cents": "250"}, {"currency": "EUR"}):
        with pytest.raises(Misuse, match=r":7' .*same=False"):
            await call(strict, 7, **arguments)
    with pytest.raises(ConfigError, match="<object object at "):
        await call(strict, 7, object())
    assert await call(charge(same=False), 7, 999) == await call(charge(same=False), 7, object()) == 250
    assert (await result(face, client.once(f"{name}:7", keep=60))).value == 250
    # What was kept for a call that is not known counts as the same, as what an earlier version has kept.
    assert [await run(face, client.once(f"{name}:9", keep=60), job, 9, it) for it in (5, 6)] == [5, 5]
    assert await call(strict, 9, 999) == 5
    told = client.once(f"{name}:10", keep=60, same=True)
    assert await run(face, told, job, 10, 5) == await run(face, told, job, 10, 5) == 5
    with pytest.raises(Misuse, match="other arguments"):
        await run(face, told, job, 10, 6)
    assert job.runs == 4


async def test_a_function_names_what_is_decorated_and_nothing_else(face: Face, five: Cluster, name: str) -> None:
    client, job = await face.connected(five), Job(face, lambda number: number)
    once = client.once(lambda number: f"{name}:{number % 2}", keep=60)
    decorated = once(job.function)
    assert [await face.call(decorated, it) for it in range(1, 5)] == [1, 2, 1, 2]
    for waits in (lambda: run(face, once, job, 1), lambda: result(face, once)):
        with pytest.raises(ConfigError, match="say the key itself"):
            await waits()


# ------------------------------------------------ keys that move to another set of nodes


async def test_no_key_that_moves_is_run_again(face: Face, name: str) -> None:
    async with face.nodes(3) as a, face.nodes(1) as b:
        moving, job = Addition(face, {"a": a, "b": b}, name), Job(face, lambda key: {"key": key})
        keys = [lives(moving.new, shard, f"{name}/{number}") for number, shard in enumerate("aabbbb")]
        for key in keys:
            assert await run(face, moving.old.once(key, keep=60), job, key) == {"key": key}
        for client in (moving.both, moving.old, moving.new):
            for key in keys:
                assert (await result(face, client.once(key, keep=60))).value == {"key": key}
                assert await run(face, client.once(key, keep=60), job, 99) == {"key": key}
        assert job.runs == len(keys)


async def test_what_is_forgotten_while_a_key_moves_is_forgotten_on_both_sets(face: Face, name: str) -> None:
    async with face.nodes(3) as a, face.nodes(3) as b:
        moving, job = Addition(face, {"a": a, "b": b}, name), Job(face, lambda: {"run": job.runs})
        old, both, new = (it.once(moving.name, keep=60) for it in (moving.old, moving.both, moving.new))
        assert await run(face, both, job) == {"run": 1}
        assert await forget(face, old) is True
        assert not await result(face, both), "the latest word counts, on whichever set it is"
        assert await run(face, both, job) == {"run": 2}
        assert await forget(face, both) is True
        assert not await result(face, old)
        assert not await result(face, new)
        assert await run(face, old, job) == {"run": 3}
        assert (await result(face, both)).value == {"run": 3}
        assert (await result(face, new)).value == {"run": 3}


# ------------------------------------------------ results that are forgotten


async def forget(face: Face, once: Any) -> bool:
    """`once.forget()`"""
    had: bool = await face.call(once.forget)
    return had


async def test_a_result_that_is_forgotten_is_made_again(face: Face, five: Cluster, name: str) -> None:
    client, other = await face.connected(five), await face.connected(five)
    once, job = client.once(name, keep=60), Job(face, lambda: {"run": job.runs})
    assert await forget(face, once) is False, "there was nothing to forget"
    assert await run(face, once, job) == {"run": 1}
    assert await forget(face, other.once(name, keep=60)) is True
    assert not await result(face, once)
    assert await forget(face, once) is False
    assert await run(face, other.once(name, keep=60), job) == {"run": 2}
    assert (await result(face, once)).value == {"run": 2}
    assert job.leases[1].fence > job.leases[0].fence
    await face.until(lambda: five.holders(f"{name}[once]") == [None] * 5)


async def test_what_could_not_be_kept_can_be_forgotten(face: Face, five: Cluster, name: str) -> None:
    once, job = (await face.connected(five)).once(name, keep=60), Job(face, lambda: {1})
    for count in (1, 2):
        for _ in range(2):
            with pytest.raises(Misuse, match=r"call `forget\(\)` first"):
                await run(face, once, job)
        assert job.runs == count
        assert await forget(face, once) is True


@pytest.mark.slow
async def test_a_run_that_is_under_way_is_waited_for_and_its_result_is_forgotten(face: Face, five: Cluster, name: str) -> None:
    client, other, job = await face.connected(five), await face.connected(five), Job(face, takes=1.0)
    runner = asyncio.create_task(run(face, client.once(name, keep=60), job))
    await face.until(lambda: job.runs)
    assert not await result(face, client.once(name, keep=60)), "not yet"
    five.ask(0, "SET", f"{{{name}[once]}}:result", f"{5:016} 1", "PX", 60_000)
    assert not await result(face, client.once(name, keep=60)), "nor is a copy that nobody can complete now"
    brief = other.once(name, keep=60, wait=0)
    for asks in (run(face, brief, job), forget(face, brief)):
        with pytest.raises(LockBusy) as caught:
            await asks
        assert caught.value.name == name
    assert await forget(face, other.once(name, keep=60)) is True
    assert await runner == "done"
    assert not await result(face, client.once(name, keep=60))
    await face.until(lambda: five.waiters(f"{name}[once]") == [0] * 5)


# ------------------------------------------------ waiting that is ended


async def test_an_event_that_ends_a_wait_stops_no_function(face: Face, five: Cluster, name: str) -> None:
    if not isinstance(face, Threads):
        return
    stop = threading.Event()

    def stops() -> str:
        stop.set()
        return "done"

    once, job = (await face.connected(five)).once(name, keep=60, cancel=stop), Job(face, stops)
    assert await run(face, once, job) == "done"
    assert await run(face, once, job) == "done", "a result that is there is returned without waiting"
    assert job.runs == 1


# ------------------------------------------------ many callers of one process


@pytest.mark.parametrize("kind", ["once", "fill"])
async def test_many_callers_of_one_process_ask_each_node_one_question_at_a_time(face: Face, three: Cluster, name: str, kind: str) -> None:
    """The first one's, and one for all who come while that is under way."""
    client, function = await face.connected(three), face.function(lambda: "a" * 100_000)
    once, fill = client.once(name, keep=60), client.fill(name, 60, function)
    looks = once.result if kind == "once" else fill.get
    await face.call(partial(once.run, function) if kind == "once" else fill.get)
    await face.sleep(0.2)
    before = three.calls()
    await three.freeze(0, 1, 2)
    waiting = [asyncio.create_task(face.call(looks)) for _ in range(40)]
    await face.sleep(0.5)
    await three.thaw(0, 1, 2)
    found = await asyncio.gather(*waiting)
    assert [it.value for it in found] == ["a" * 100_000] * 40
    await face.sleep(0.2)
    assert [now - then for now, then in zip(three.calls(), before, strict=True)] == [2] * 3
