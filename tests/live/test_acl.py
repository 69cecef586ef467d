"""The least that a user may do: the rules in docs/connections.md are enough, and there is nothing in them that is not needed."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from contract.cluster import Cluster, ask, asks
from contract.faces import Face, Threads

from holdfast.embedded import Nodes
from holdfast.errors import ConfigError, HoldfastError, LockBusy, LockLost, NoQuorum, NotAcquired

DOCUMENT = Path(__file__).parent.parent.parent / "docs/connections.md"
TEXT = DOCUMENT.read_text()
RULES = {line.split()[2]: line.split()[3:] for line in re.findall(r"^(ACL SETUSER .*)$", TEXT, re.MULTILINE)}
RULES["operator"] = [*RULES["app"], *re.findall(r"the same line, and\s+`([^`]*)` as well", TEXT)[0].split()]
# What read-write locks, latches and barriers need, too.
MORE = sorted(
    {it for row in re.findall(r"^\| (?:Read-write locks|Latches and barriers) \| `([^`]*)` \|$", TEXT, re.MULTILINE) for it in row.split()}
)
MARK = "~{holdfast}:adopted"
GRANTS = [it for it in RULES["app"] if it[0] in "+~&" and it != MARK]

# Without the first nothing is missing but what the document says; without the second something is, and there need not be an error.
NOTES = {"~{holdfast}:clients:app:*", "~{holdfast}:owner:app:*", "~{holdfast}:lists:app:", "~{holdfast}:config:app:"}
OPTIONAL = {*NOTES, "~{holdfast}:mark", "+mget", "+client|setname", "+client|tracking", "+client|caching"}
UNTOLD = {"+publish", "+del", "+zrem", "+hget", "+hdel"}
REFUSED = re.compile(r"NOPERM|no permission|can't (run|access)|ACL failure")


@pytest.fixture(scope="module")
def one() -> Iterator[Cluster]:
    with Cluster(Nodes(1)) as cluster:
        yield cluster


def user(nodes: Cluster, name: str, grants: list[str]) -> None:
    """Make the user anew on every node."""
    rule = [it for it in grants if it != ">PASSWORD"]
    assert [str(it) for it in nodes.everywhere("ACL", "SETUSER", name, "reset", ">pw", *rule)] == ["OK"] * len(nodes)


def client(face: Face, nodes: Cluster, name: str = "app", **options: Any) -> Any:
    urls = [it.replace("//", f"//{name}:pw@") for it in nodes.urls]
    return face.keep(face.kind(*urls, **{"prefix": "app:", "ttl": 9, "outage": 0.5, **options}))


async def life(face: Face, nodes: Cluster, name: str, who: str = "app") -> bool:
    """All that happens to locks. Was everything given back, and that told, and did who left the queue leave nothing there?

    Raises what a user would see.
    """
    first, second = client(face, nodes, who), client(face, nodes, who)
    for it in (first, second):
        await face.ready(it, 15)
    lease = await face.acquire(first.lock(name, wait=5))
    if await face.try_acquire(second.lock(name)) is not None:
        raise AssertionError("two have it")
    with pytest.raises(LockBusy):
        await face.acquire(second.lock(name, wait=0.2))
    for algorithm in ("gcra", "fixed window"):
        limits = [it.rate("mail", 1, 1000, algorithm=algorithm, key=lease.token) for it in (first, second)]
        assert [bool(await face.call(it.take)) for it in limits] == [True, False]
    await face.sleep(0.1)
    left = max(nodes.waiters(f"app:{name}"))
    waiter = asyncio.create_task(face.acquire(second.lock(name, wait=20)))
    try:
        await face.until(lambda: waiter.done() or min(nodes.waiters(f"app:{name}")) == 1 + left)
        await face.extend(lease)
        began = face.now()
        await face.release(lease, True)
        lease = await waiter
    finally:
        waiter.cancel()
        await asyncio.gather(waiter, return_exceptions=True)
    # A waiter that was not told asks again after ttl/6 = 1.5 s at the earliest.
    prompt = face.now() - began < 1.2
    await face.until(lambda: lease.votes == len(nodes))
    await face.extend(lease)
    freed = await face.release(lease, True) > len(nodes) // 2
    await orders(face, nodes, name, first, second)
    return freed and prompt and not left


async def orders(face: Face, nodes: Cluster, name: str, first: Any, second: Any) -> None:
    """The holder has a later ticket than somebody who waits: it makes way."""
    tasks = [asyncio.create_task(face.acquire(it.lock(f"{name}.order", wait=20))) for it in (first, second)]
    try:
        for done in asyncio.as_completed(tasks):
            await face.release(await done)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def test_the_rule_is_enough_for_a_note_of_a_promotion(face: Face) -> None:
    with Cluster(Nodes(1)) as nodes:
        user(nodes, "app", RULES["app"])
        assert nodes.ask(0, "REPLICAOF", "127.0.0.1", 1) == nodes.ask(0, "REPLICAOF", "NO", "ONE") == "OK"
        locks = client(face, nodes, ttl=1, max_ttl=1)
        with pytest.raises(NoQuorum, match="was promoted lately"):
            await face.acquire(locks.lock("x", wait=0.5))
        (note,) = nodes.ask(0, "KEYS", "*:reign:*")
        assert note.startswith("{app:}:reign:") and nodes.ask(0, "PTTL", note) > 86_000_000
        await face.finish()  # while there is somebody to say goodbye to


@pytest.mark.parametrize("who", ["app", "operator"])
async def test_the_rule_is_enough(face: Face, three: Cluster, who: str) -> None:
    user(three, who, RULES[who])
    assert await life(face, three, "enough", who)
    lost = client(face, three, who, ttl=1.5)
    lease = await face.acquire(lost.lock("lost", wait=5))
    await face.sleep(2)
    assert lease.held, "it was renewed"
    leadership = await face.call(lost.election("boss", "a").campaign)
    looks = client(face, three, who).election("boss").observe()
    step = looks.__next__ if hasattr(looks, "__next__") else looks.__anext__
    assert (await face.call(step)).value == "a"
    await face.call(leadership.publish, "b")
    assert (await face.call(step)).value == "b"
    await face.call(leadership.resign)
    assert (await face.call(step)).value is None
    assert [(await face.call(lost.fill(lease.token, 60, int).get)).computed for _ in range(2)] == [True, False]
    three.everywhere("DEL", "app:lost")
    for node in range(3):
        three.ask(node, "SET", "app:lost", "somebody else's", "PX", 5000)
    await face.until_lost(lease)
    for url in three.urls:
        log = ask(url, "ACL", "LOG")
        refused = {str(entry[entry.index("object") + 1]) for entry in log if "app" in entry or "operator" in entry}
        assert refused <= {"client|setinfo", "client"}, "and nothing is asked for that was not allowed"
        ask(url, "ACL", "LOG", "RESET")


async def test_names_outside_the_prefix_are_refused(face: Face, three: Cluster) -> None:
    user(three, "app", RULES["app"])
    stranger = client(face, three, prefix="else:", outage=0)
    with pytest.raises(ConfigError, match=r"Grant it: ACL SETUSER app '~else:\*' '~{else:\*'"):
        await face.acquire(stranger.lock("name", wait=2))


@pytest.mark.parametrize("grant", GRANTS)
async def test_nothing_in_the_rule_is_superfluous(face: Face, one: Cluster, grant: str) -> None:
    """Without this grant alone there is an error that shows what is missing; or what the document says is so."""
    rest = [it for it in RULES["app"] if it != grant]
    user(one, "app", rest)
    whole, refusal = None, None
    try:
        whole = await life(face, one, f"without.{GRANTS.index(grant)}")
    except HoldfastError as error:
        refusal = error
    if refusal is None:
        assert whole is (grant in OPTIONAL)
        assert grant in OPTIONAL | UNTOLD
    else:
        assert isinstance(refusal, ConfigError | NoQuorum)
        assert REFUSED.search(str(refusal)), refusal
        assert one.urls[0] in str(refusal)
        assert grant not in OPTIONAL


async def test_who_may_not_read_that_a_server_is_new_waits_for_its_guard(face: Face) -> None:
    with Cluster(Nodes(1)) as nodes:
        user(nodes, "app", [it for it in RULES["app"] if it != MARK])
        with pytest.raises(NoQuorum, match="guarded"):
            await face.ready(client(face, nodes), 0.5)
        await face.finish()


OWN = [it for it in RULES["operator"] if it not in RULES["app"]]


async def operation(face: Face, nodes: Cluster, name: str, who: str) -> list[str | None]:
    """All that operators do. Whose locks they are told of. Raises what they would see."""
    owner, operator = client(face, nodes, owner="holder"), client(face, nodes, who)
    for it in (owner, operator):
        await face.ready(it, 15)
    lease = await face.acquire(owner.lock(name, wait=5))
    other = await face.acquire(owner.lock(f"{name}.other", wait=5))
    try:
        await face.until(lambda: lease.votes == other.votes == len(nodes))
        status = await face.call(operator.inspect, name)
        assert (status.holder, status.fence) == (lease.token, lease.fence)
        assert await face.call(operator.is_locked, name)
        assert await face.call(operator.names, f"{name}*") == [name, f"{name}.other"]
        assert await face.call(owner.rate(name, 100, 1000).take)
        repaired = await face.call(operator.repair, 0)
        assert repaired.found > 0
        assert (repaired.lacking, repaired.nodes) == (0, nodes.urls)
        forced = await face.call(operator.force_release, name, "a test")
        assert len(nodes) // 2 < forced <= len(nodes), "the holder, told by the first nodes, may be faster at the others"
        await face.until_lost(lease)
        assert await face.call(operator.names, f"{name}*") == [f"{name}.other"], "and nothing else is taken away"
        assert other.held
        return [status.owner]
    finally:
        for it in (lease, other):
            with contextlib.suppress(LockLost):
                await face.release(it, True)


async def test_b56_the_operators_rule_is_enough_and_has_neither_keys_nor_other_prefixes(face: Face, three: Cluster) -> None:
    user(three, "app", RULES["app"])
    user(three, "operator", RULES["operator"])
    stranger = f"{10**15:016d}:{'a' * 32}:{1:08x}"
    three.everywhere("SET", "els:looks", stranger, "PX", 60000)
    assert await operation(face, three, "looks", "operator") == ["holder"]
    assert await face.call(client(face, three, "operator").names) == []
    assert three.everywhere("GET", "els:looks") == [stranger] * 3
    for url in three.urls:
        assert "keys" not in {str(entry[entry.index("object") + 1]) for entry in ask(url, "ACL", "LOG")}
        assert "NOPERM" in str(asks(url, [("AUTH", "operator", "pw"), ("KEYS", "*")])[1])
        ask(url, "ACL", "LOG", "RESET")


@pytest.mark.parametrize("grant", OWN)
async def test_nothing_in_the_operators_rule_is_superfluous(face: Face, one: Cluster, grant: str) -> None:
    user(one, "app", RULES["app"])
    user(one, "operator", [it for it in RULES["operator"] if it != grant])
    with pytest.raises((NoQuorum, AssertionError)) as caught:
        await operation(face, one, f"without.{OWN.index(grant)}", "operator")
    assert isinstance(caught.value, NoQuorum), caught.value
    assert REFUSED.search(str(caught.value)), caught.value


NEEDED = ["evalsha", "pexpire", "pttl", "get", "zadd", "hset", "del", "publish", "zrem", "zpopmin", "set", "exists"]


@pytest.mark.parametrize("command", NEEDED)
async def test_a_command_that_is_forbidden_is_an_error_at_the_first_contact(face: Face, one: Cluster, command: str) -> None:
    user(one, "app", [it for it in RULES["app"] if it != f"+{command}"])
    for begin in ("ready", "acquire"):
        locks = client(face, one, outage=5)
        began = face.now()
        with pytest.raises(ConfigError, match=f"user 'app' may not use {command.upper()}, which holdfast needs: ") as caught:
            await (face.ready(locks, 5) if begin == "ready" else face.acquire(locks.lock("x", wait=5)))
        assert face.now() - began < 2
        assert f"Grant it: ACL SETUSER app +{command}" in str(caught.value) and one.urls[0] in str(caught.value)
        assert [it.state for it in locks.nodes()] == ["unfit"]
    await face.finish()


def computed(face: Face) -> Callable[[], Any]:
    async def coroutine() -> int:
        return 1

    return (lambda: 1) if isinstance(face, Threads) else coroutine


# By primitive: commands that it needs, and a call of it.
Call = Callable[[Face, Any], Awaitable[Any]]
PRIMITIVES: dict[str, tuple[list[str], Call]] = {
    "lock": (["pttl"], lambda face, locks: face.acquire(locks.lock("x", wait=5))),
    "a try": (["pttl"], lambda face, locks: face.acquire(locks.lock("x", wait=0))),
    "several names": (["zadd"], lambda face, locks: face.acquire(locks.lock("x", "y", wait=5))),
    "read-write lock, write": (["zscore", "zremrangebyscore"], lambda face, locks: face.acquire(locks.rwlock("x").write(wait=5))),
    "read-write lock, read": (["zremrangebyscore", "pexpireat"], lambda face, locks: face.acquire(locks.rwlock("x").read(wait=5))),
    "read-write lock, a try": (["zscore"], lambda face, locks: face.acquire(locks.rwlock("x").read(wait=0))),
    "semaphore": (["zadd"], lambda face, locks: face.acquire(locks.semaphore("x", 2, wait=5))),
    "election": (["hset"], lambda face, locks: face.call(locks.election("x", "a").campaign)),
    "once": (["get"], lambda face, locks: face.call(locks.once("x", keep=60).run, computed(face))),
    "fill": (["get"], lambda face, locks: face.call(locks.fill("x", 60, computed(face)).get)),
    "rate": (["set"], lambda face, locks: face.call(locks.rate("x", 1, 10).take)),
    "latch, arrive": (["zcard", "zscore"], lambda face, locks: face.call(locks.latch("x", 2).arrive)),
    "latch, wait": (["zcard", "zremrangebyscore"], lambda face, locks: face.call(locks.latch("x", 2, wait=5).wait)),
    "barrier": (["zcard"], lambda face, locks: face.call(locks.barrier("x", 2, wait=5).wait, "a")),
}


@pytest.mark.parametrize("primitive", PRIMITIVES)
async def test_a_right_that_a_primitive_lacks_is_an_error_at_its_first_use(face: Face, three: Cluster, primitive: str) -> None:
    granted = [*RULES["app"], *MORE]
    commands, use = PRIMITIVES[primitive]
    for command in commands:
        user(three, "app", [it for it in granted if it != f"+{command}"])
        locks = client(face, three, outage=5)
        # Plain locks work without the rights that only some primitives need.
        if f"+{command}" in MORE:
            await face.release(await face.acquire(locks.lock("y", wait=5)))
        began = face.now()
        with pytest.raises(ConfigError, match=rf"user 'app' may not use (.* and )?{command.upper()}\b") as caught:
            await use(face, locks)
        assert face.now() - began < 2
        assert caught.value.fix == f"ACL SETUSER app +{command}"
        assert sum(url in str(caught.value) for url in three.urls) >= 2
        assert three.everywhere(*[it.strip("'") for it in caught.value.fix.split()]) == ["OK"] * 3
        pasted = client(face, three, outage=5)
        try:
            found = await asyncio.wait_for(use(face, pasted), 3)
            if hasattr(found, "release"):
                await face.release(found)
        except (NotAcquired, TimeoutError):
            # Nobody else arrives.
            pass
    await face.finish()
