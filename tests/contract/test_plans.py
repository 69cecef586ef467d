"""What a plan may want done, over every driver: waiting for nodes' news, calling what waits, errors thrown in; and locks that heed news."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from contract.cluster import Cluster
from contract.faces import Face

from holdfast.engine.plans import Ask, Call, Do, Pause, Plan, Step
from holdfast.errors import HoldfastError, Misuse, Overtaken, is_closed
from holdfast.protocol.query import Query
from holdfast.wire.resp import pack

LONG = 3600.0


def news(token: str, name: str, *nodes: int, kind: str = "n") -> Plan[None]:
    """These nodes tell it."""
    yield Ask(dict.fromkeys(nodes, pack(b"PUBLISH", token.split(":")[1].encode(), f"{kind} {token} 0 {name}".encode())))


def listening(told: list[Any]) -> Plan[object]:
    """Wait for news, for ever: what came of it."""
    told.append((yield Do(lambda it: it.listen())))
    return (yield from outcome(Pause(LONG, told[0])))


def outcome(step: Step) -> Plan[object]:
    """What comes of a step, or the error. (In the simulator, errors of tasks that nobody awaits end the run.)"""
    try:
        return (yield step)
    except HoldfastError as error:
        return error


async def test_a_pause_ends_with_the_news(face: Face, five: Cluster, name: str) -> None:
    client, other = await face.connected(five), await face.connected(five)
    told: list[Any] = []
    waiting = asyncio.create_task(face.call(client._look, listening(told)))
    await face.until(lambda: told)
    token = told[0].token.decode()
    await face.call(other._look, news(token[:-1] + ("0" if token[-1] != "0" else "1"), name, 0, 1, 2, 3, 4))  # somebody else's
    await face.sleep(0.1)
    assert not waiting.done()
    await face.call(other._look, news(token, name, 3))
    assert await waiting is True
    assert not told[0].news, "the next pause waits for what comes next"


async def test_news_that_come_before_the_pause_are_not_missed(face: Face, five: Cluster, name: str) -> None:
    client = await face.connected(five)

    def plan() -> Plan[bool]:
        watch = yield Do(lambda it: it.listen())
        yield from news(watch.token.decode(), name, 2)
        while not watch.news:
            yield Pause(0.01)
        ended: bool = yield Pause(LONG, watch)
        return ended

    assert await face.call(client._look, plan())


async def test_a_pause_without_news_lasts(face: Face, five: Cluster) -> None:
    client = await face.connected(five)

    def plan() -> Plan[None]:
        watch = yield Do(lambda it: it.listen())
        assert (yield Pause(0.1, watch))

    began = face.now()
    await face.call(client._look, plan())
    assert face.now() - began >= 0.1


async def test_who_waits_for_news_is_told_of_the_clients_end(face: Face, five: Cluster) -> None:
    client = await face.connected(five)
    told: list[Any] = []
    waiting = asyncio.create_task(face.call(client._look, listening(told)))
    await face.until(lambda: told)
    await face.sleep(0.05)
    await face.close(client)
    assert is_closed(await waiting)


async def test_a_watch_ends_when_nobody_refers_to_it(face: Face, five: Cluster) -> None:
    client = await face.connected(five)

    def plan() -> Plan[Any]:
        return (yield Do(lambda it: it.listen())).token

    token = await face.call(client._look, plan())
    drivers = client._drivers if hasattr(client, "_drivers") else [client._driver()]
    engine = drivers[0].engine if hasattr(drivers[0], "engine") else drivers[0].io_thread.engine
    await face.until(lambda: token not in engine.watches)


async def test_a_plan_calls_what_waits_and_has_its_errors_thrown_in(face: Face, five: Cluster, name: str) -> None:
    client = await face.connected(five)
    lock = client.lock(name)

    def plan() -> Plan[list[Any]]:
        lease = yield Call(lock.acquire)
        seen: Query = yield Ask({0: pack(b"GET", name.encode())})
        yield Call(lease.release)
        told = [seen.answers[0] == lease.token.encode(), (yield Call(lambda: "not awaited"))]
        try:
            yield Call(lease.check)
        except Misuse as error:
            told.append(error)
        return told

    told = await face.call(client._look, plan())
    assert told[:2] == [True, "not awaited"] and told[2].reason == "not_held"

    def careless() -> Plan[None]:
        yield Call(lambda: {}["nothing"])

    with pytest.raises(KeyError, match="nothing"):
        await face.call(client._look, careless())


def heeding(lock: Any, nodes: int) -> Any:
    """The same lock, whose waiters give up when so many nodes have news."""
    lock._terms = lock._terms._replace(timing=lock._terms.timing._replace(news_needed=nodes))
    return lock


@pytest.mark.parametrize("describe", [lambda client, name: client.lock(name), lambda client, name: client.rwlock(name).write()])
async def test_a_waiter_that_heeds_news_is_overtaken_by_enough_of_them(
    face: Face, five: Cluster, name: str, describe: Callable[[Any, str], Any]
) -> None:
    client, other = await face.connected(five), await face.connected(five)
    held = await face.acquire(describe(other, name))

    def waiting() -> int:
        places: int = sum(five.everywhere("ZCARD", f"{{{name}}}:{'rwqueue' if held._kind else 'queue'}"))
        return places

    deaf = asyncio.create_task(face.acquire(describe(client, name)))
    await face.until(lambda: waiting() == 5)
    heeds = asyncio.create_task(face.call(client._look, outcome(Call(heeding(describe(client, name), 3).acquire))))
    await face.until(lambda: waiting() == 10)
    tokens = [it.token for it in (await face.call(other.inspect, name)).queue]
    assert len(tokens) == 2
    for token in tokens:
        await face.call(other._look, news(token, name, 0))
        await face.call(other._look, news(token, name, 0, 3))  # the same node again
    await face.sleep(0.1)
    assert not deaf.done() and not heeds.done()
    for token in tokens:
        await face.call(other._look, news(token, name, 4))
    error = await heeds
    assert isinstance(error, Overtaken) and "may already have produced" in str(error) and error.waited > 0
    await face.until(lambda: waiting() == 5)
    assert not deaf.done(), "who is not after news waits on"
    await face.release(held)
    lease = await deaf
    assert lease.held
    await face.call(other._look, news(lease.token, name, 0, 1, 2, 3, 4))
    await face.sleep(0.1)
    assert lease.held, "who holds it has nothing to wait for"
    await face.release(lease)
