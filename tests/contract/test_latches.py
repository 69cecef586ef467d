"""Latches and barriers: who arrives, who waits, what callers are told, and what is refused before anything is sent; over every driver."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest
from contract.cluster import Cluster
from contract.faces import Face

from holdfast.errors import ConfigError, Misuse, NoQuorum, NotAllArrived


async def test_it_opens_when_all_have_arrived(face: Face, five: Cluster, name: str) -> None:
    one, other = [(await face.connected(five, ttl=30)).latch(name, 3) for _ in range(2)]
    waiting = [asyncio.create_task(face.call(it.wait)) for it in (one, other)]
    assert [await face.call(it.arrive) for it in (one, other)] == [1, 2]
    assert (await face.call(one.arrived), await face.call(other.is_open)) == (2, False)
    assert not any(it.done() for it in waiting)
    began = face.now()
    assert await face.call(one.arrive) == 3
    await asyncio.gather(*waiting)
    assert face.now() - began < 8, "they were told: they would have looked after ten seconds"
    assert (await face.call(other.arrived), await face.call(one.is_open)) == (3, True)
    assert await face.call(other.arrive) == 3, "more may come"
    await face.call(other.wait)
    assert (one.name, one.count) == (name, 3)


async def test_who_has_waited_long_enough_is_told_who_is_there(face: Face, five: Cluster, name: str) -> None:
    client = await face.connected(five)
    for who in ("linux", "macos"):
        await face.call(client.latch(name, 4).arrive, who)
    for wait in (0, timedelta(milliseconds=200)):
        began = face.now()
        with pytest.raises(NotAllArrived, match=r"2 of 4 have arrived at '.*' .*\('linux', 'macos'\)") as caught:
            await face.call(client.latch(name, 4, wait=wait).wait)
        assert face.now() - began < 5
        error = caught.value
        assert (error.name, error.arrived, error.count, set(error.ids)) == (name, 2, 4, {"linux", "macos"})
        assert isinstance(error, TimeoutError)
        assert (0.2 if wait else 0) <= error.waited < 5
    await face.call(client.latch(name, 4).arrive)
    with pytest.raises(NotAllArrived) as caught:
        await face.call(client.latch(name, 4, wait=0).wait)
    assert (caught.value.arrived, set(caught.value.ids)) == (3, {"linux", "macos"}), "one has no id"
    with pytest.raises(NotAllArrived) as caught:
        await face.call(client.barrier(name, 2, wait=0).wait, "only one")
    assert caught.value.ids == ("only one",)


async def test_another_number_is_refused(face: Face, five: Cluster, name: str) -> None:
    # Rule A5.
    client, other = await face.connected(five), await face.connected(five)
    await face.call(client.latch(name, 3).arrive)
    await face.call(client.latch(f"{name}.done", 1).arrive)
    wrong = other.latch(name, 2)
    for call in (wrong.arrive, wrong.wait, wrong.arrived, wrong.is_open, other.latch(f"{name}.done", 2).wait):
        with pytest.raises(ConfigError, match="all who use it must name the same `count`"):
            await face.call(call)
    assert await face.call(client.latch(name, 3).arrived) == 1, "it has not arrived"
    with pytest.raises(NotAllArrived):
        await face.call(client.barrier(name, 3, wait=0).wait, "a")
    with pytest.raises(ConfigError, match=r"for 3 .*for 2 .*`parties`"):
        await face.call(other.barrier(name, 2).wait, "b")


async def test_a_look_at_a_latch_that_is_not_open_changes_nothing(face: Face, five: Cluster, name: str) -> None:
    """Whoever looks with a wrong count, such as a monitor, does not decide how many have to arrive."""
    # Rule A6.
    client, monitor = await face.connected(five), await face.connected(five)
    wrong = monitor.latch(name, 5)
    assert (await face.call(wrong.is_open), await face.call(wrong.arrived)) == (False, 0)
    assert five.everywhere("EXISTS", f"{{{name}}}:latch", f"{{{name}}}:arrived") == [0] * 5, "nothing was noted"
    assert await face.call(client.latch(name, 2).arrive, "a") == 1
    for key in (f"{{{name}}}:latch", f"{{{name}}}:arrived"):
        five.everywhere("PEXPIRE", key, 50_000)
    assert (await face.call(monitor.latch(name, 2).is_open), await face.call(monitor.latch(name, 2).arrived)) == (False, 1)
    for key in (f"{{{name}}}:latch", f"{{{name}}}:arrived"):
        assert max(five.everywhere("PTTL", key)) <= 50_000, "a look does not keep the latch for longer"
    assert await face.call(client.latch(name, 2).arrive, "b") == 2
    assert await face.call(monitor.latch(name, 2).is_open)


async def test_what_a_minority_says_is_no_disagreement(face: Face, three: Cluster, name: str) -> None:
    client = await face.connected(three)
    three.ask(0, "SET", f"{{{name}}}:latch", "7 1 0", "PX", 100_000)
    assert await face.call(client.latch(name, 1).arrive) == 1
    three.ask(1, "SET", f"{{{name}.2}}:latch", "7 1 0", "PX", 100_000)
    three.ask(2, "SET", f"{{{name}.2}}:latch", "8 1 0", "PX", 100_000)
    with pytest.raises(ConfigError, match="waits for 7 or 8 for others"):
        await face.call(client.latch(f"{name}.2", 1).arrive)


async def test_where_a_node_refuses_to_count_nobody_knows(face: Face, three: Cluster, name: str) -> None:
    client = await face.connected(three, outage=0.2)
    three.ask(0, "HSET", f"{{{name}}}:latch", "x", "y")
    assert await face.call(client.latch(name, 1).arrive) == 1, "a minority"
    three.ask(1, "HSET", f"{{{name}.2}}:latch", "x", "y")
    three.ask(2, "HSET", f"{{{name}.2}}:latch", "x", "y")
    for call in (client.latch(f"{name}.2", 1).arrive, client.latch(f"{name}.2", 1).wait):
        with pytest.raises(NoQuorum, match="WRONGTYPE"):
            await face.call(call)


# ------------------------------------------------ barriers


async def test_all_wait_for_all_again_and_again(face: Face, five: Cluster, name: str) -> None:
    barriers = [(await face.connected(five)).barrier(name, 3) for _ in range(3)]
    for generation in range(3):
        early = [asyncio.create_task(face.call(it.wait, who)) for it, who in zip(barriers, "ab", strict=False)]
        await face.sleep(0.1)
        assert not any(it.done() for it in early)
        assert await face.call(barriers[2].wait, "c") == generation
        assert await asyncio.gather(*early) == [generation] * 2
    assert (barriers[0].name, barriers[0].parties) == (name, 3)


async def test_a_description_that_is_new_finds_the_generation(face: Face, five: Cluster, name: str) -> None:
    # Rule BA1.
    client = await face.connected(five)
    for generation in range(3):
        found = await asyncio.gather(*[face.call(client.barrier(name, 2).wait, who) for who in ("a", "b")])
        assert found == [generation] * 2


async def test_who_gives_up_has_arrived_and_may_go_on(face: Face, five: Cluster, name: str) -> None:
    client, other = await face.connected(five), await face.connected(five)
    soon, patient = client.barrier(name, 2, wait=0.1), other.barrier(name, 2, wait=20)
    for generation in range(2):
        for _ in range(2):
            with pytest.raises(NotAllArrived, match="1 of 2 have arrived"):
                await face.call(soon.wait, "a")
        assert await face.call(patient.wait, "b") == generation, "it counts, and but once"
        assert await face.call(soon.wait, "a") == generation, "and it is told that this one is over, not the next"


async def test_who_begins_anew_with_its_id_is_the_same(face: Face, five: Cluster, name: str) -> None:
    # Rule BA3.
    client, other = await face.connected(five), await face.connected(five)
    for _ in range(2):  # (each has a description of its own, as after a restart)
        with pytest.raises(NotAllArrived, match="1 of 2 have arrived"):
            await face.call(client.barrier(name, 2, wait=0).wait, "a")
    assert await face.call(other.barrier(name, 2).wait, "b") == 0
    with pytest.raises(NotAllArrived):
        await face.call(client.barrier(name, 2, wait=0).wait, "a")  # nobody can tell it that it is over: it is in the next
    assert await face.call(other.barrier(name, 2).wait, "b") == 1


async def test_one_too_many_is_told(face: Face, five: Cluster, name: str) -> None:
    # Rule BA4.
    parties = {who: (await face.connected(five)).barrier(name, 2) for who in "abc"}

    async def meet(*which: str) -> list[int]:
        return await asyncio.gather(*[face.call(parties[it].wait, it) for it in which])

    assert await meet("a", "b") == [0, 0]
    assert await meet("b", "c") == [1, 1]
    with pytest.raises(Misuse, match=r"2 others .*generation 1"):
        await meet("a")
