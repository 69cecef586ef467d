"""Other programs' locks on the same nodes whose values never expire, as redis-py, django-redis and python-redis-lock write them."""

from __future__ import annotations

import asyncio

import pytest
from contract.cluster import Cluster
from contract.faces import Face

from holdfast.errors import LockBusy

VALUE = "another program's token"
WAITS_LONG = 30  # seconds of a lease: its heartbeat, after 10 s, is later than any test waits
KINDS = {  # how the lock is made, from a client, its name and options; and the key that another program has
    "lock": (lambda client, name, **options: client.lock(name, **options), "{}"),
    "read": (lambda client, name, **options: client.rwlock(name).read(**options), "{}"),
    "write": (lambda client, name, **options: client.rwlock(name).write(**options), "{}"),
    "several names": (lambda client, name, **options: client.lock(f"{name}/a", name, **options), "{}"),
    "semaphore": (lambda client, name, **options: client.semaphore(name, 1, **options), "{}[slot 0]"),
}


async def test_s11_a_value_without_an_expiry_is_refused_as_busy(face: Face, three: Cluster, name: str) -> None:
    client = await face.connected(three)
    for make, key in KINDS.values():
        key = key.format(name)
        assert three.everywhere("SET", key, VALUE) == ["OK"] * 3
        assert await face.try_acquire(make(client, name)) is None
        for wait in (0, 0.2):
            with pytest.raises(LockBusy) as caught:
                await face.acquire(make(client, name, wait=wait))
            assert (caught.value.holder, caught.value.ttl_left) == (VALUE, None)
            assert f"force_release({key!r}, reason, only={VALUE!r})" in str(caught.value)
        assert three.holders(key) == [VALUE] * 3
        await face.until(lambda key=key: three.everywhere("DEL", key) == [0] * 3)
        await face.release(await face.acquire(make(client, name, wait=0)), confirm=True)


@pytest.mark.parametrize("kind", KINDS)
async def test_s11_a_value_with_an_expiry_or_without_is_waited_for_and_its_removal_wakes(
    face: Face, three: Cluster, name: str, kind: str
) -> None:
    """A plain Redlock client deletes its key, and hands nothing on (rule Q14). An operator removes what nobody will delete."""
    client = await face.connected(three)
    make, key = KINDS[kind]
    key = key.format(name)
    for expiry, forced in (((), False), (("PX", 60_000), False), ((), True)):
        assert three.everywhere("SET", key, VALUE, *expiry) == ["OK"] * 3
        waiter = asyncio.create_task(face.acquire(make(client, name, ttl=WAITS_LONG)))
        await face.sleep(0.3)
        assert not waiter.done()
        asked = sum(three.calls())
        await face.sleep(0.3)
        assert sum(three.calls()) == asked, "nobody polls meanwhile"
        if forced:
            assert await face.call(client.force_release, key, "its program is gone", "another value") == 0
            await face.sleep(0.1)
            assert three.holders(key) == [VALUE] * 3 and not waiter.done()
            assert await face.call(client.force_release, key, "its program is gone", await face.call(client.locked_by, key)) == 3
        else:
            assert three.everywhere("DEL", key) == [1] * 3
        began = face.now()
        lease = await waiter
        assert face.now() - began < 5, "not when the next heartbeat is due, after 10 s"
        await face.release(lease, confirm=True)
        await face.until(lambda: three.holders(key) == [None] * 3)


async def test_s11_a_value_that_is_no_text_is_removed_as_it_is_shown(face: Face, three: Cluster, name: str) -> None:
    client = await face.connected(three)
    for node in range(3):
        three.ask(node, "EVAL", r"return redis.call('SET', KEYS[1], '\255\254 \27')", 1, name)
    with pytest.raises(LockBusy) as caught:
        await face.acquire(client.lock(name, wait=0))
    assert caught.value.holder == "\\xff\\xfe \x1b"
    assert str(caught.value).isprintable()
    assert str(await face.call(client.inspect, name)).replace("\n", "").isprintable()
    assert await face.call(client.force_release, name, "a test", caught.value.holder) == 3
    await face.release(await face.acquire(client.lock(name, wait=0)))
