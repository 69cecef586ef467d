"""Names spread over several sets of nodes; and names that move from one set to another while clients run."""

from __future__ import annotations

import asyncio
import gc
import random
import warnings
from collections.abc import AsyncIterator, Iterable, Iterator
from functools import partial
from typing import Any

import pytest
from contract.cluster import Cluster
from contract.faces import FACES, Face

from holdfast.embedded import Nodes
from holdfast.engine import registry
from holdfast.errors import ConfigError, LockBusy, LockLost, NoQuorum
from holdfast.face.lease import LeaseState
from holdfast.protocol.exclusive import keys_of

SETS = "ab"


class Some(Cluster):
    """Some of the nodes that run: a set."""

    def __init__(self, nodes: Nodes, which: slice) -> None:
        super().__init__(nodes)
        self._which = which

    def __len__(self) -> int:
        return len(self.urls)

    @property
    def urls(self) -> tuple[str, ...]:
        return self.nodes.urls[self._which]


@pytest.fixture(scope="module")
def six() -> Iterator[Nodes]:
    with Nodes(6) as nodes:
        yield nodes


@pytest.fixture
def sets(face: Face, request: pytest.FixtureRequest) -> dict[str, Any]:
    """Two sets of nodes that all tests of this module share, and that no test does any harm."""
    nodes: Nodes = request.getfixturevalue("six")
    return {"a": Some(nodes, slice(3)), "b": Some(nodes, slice(3, 6))}


@pytest.fixture
async def own(face: Face) -> AsyncIterator[dict[str, Cluster]]:
    """Two sets of nodes, of the test's own."""
    async with face.nodes(3) as a, face.nodes(3) as b:
        yield {"a": a, "b": b}


def lives(client: Any, shard: str, name: str) -> str:
    """A name like this one that lives on this set."""
    return next(it for it in (f"{name}/{number}" for number in range(1000)) if client.shard_of(it) == shard)


class Rollout:
    """Clients of before, in between, and of afterwards: set b is new. `name`: lives on a before, and on b afterwards."""

    def __init__(self, face: Face, sets: dict[str, Cluster], name: str, **options: Any) -> None:
        before = {"a": sets["a"]}
        self.face, self.a, self.b = face, sets["a"], sets["b"]
        self.old = face.spread(before, **options)
        self.both = face.spread(sets, before, **options)
        self.new = face.spread(sets, **options)
        self.name = lives(self.new, "b", name)

    async def ready(self) -> None:
        for client in (self.old, self.both, self.new):
            await self.face.ready(client)

    async def free(self) -> None:
        """Nothing is left of it, on any node."""
        await self.face.until(lambda: self.a.holders(self.name) == self.b.holders(self.name) == [None] * 3)
        assert self.a.waiters(self.name) == self.b.waiters(self.name) == [0] * 3

    async def fence(self, client: Any) -> int:
        lease = await self.face.acquire(client.lock(self.name, wait=10))
        assert lease.held
        assert lease.votes >= 2
        fence: int = lease.fence
        await self.face.release(lease, confirm=True)
        return fence


@pytest.fixture
async def rollout(face: Face, sets: dict[str, Cluster], name: str) -> Rollout:
    found = Rollout(face, sets, name)
    await found.ready()
    return found


# ------------------------------------------------ several sets


async def test_a_node_of_one_set_that_takes_all_the_time_takes_none_from_the_other(face: Face, own: dict[str, Cluster]) -> None:
    await own["a"].freeze(0)
    try:
        status = await face.ready(face.spread(own), 1)
    finally:
        await own["a"].thaw(0)
    assert [(it.shard, it.state) for it in status[1:]] == [("a", "up")] * 2 + [("b", "up")] * 3
    assert status[0].state != "up"


async def test_every_name_lives_on_one_set_and_each_set_has_its_own_majority(face: Face, sets: dict[str, Cluster], name: str) -> None:
    client = face.spread(sets)
    status = await face.ready(client)
    assert [(it.shard, it.state) for it in status] == [("a", "up")] * 3 + [("b", "up")] * 3
    assert [it.node for it in status] == list(client.urls) == [url for urls in client.shards.values() for url in urls]
    leases = {}
    for shard in SETS:
        leases[shard] = await face.acquire(client.lock(lives(client, shard, name)))
        await face.until(lambda: leases[shard].votes == 3)  # noqa: B023 (it is called in this turn of the loop)
        other = SETS[1 - SETS.index(shard)]
        assert sets[shard].holders(leases[shard].name) == [leases[shard].token] * 3
        assert sets[other].holders(leases[shard].name) == [None] * 3
    names = sorted(it.name for it in leases.values())
    assert await face.call(client.names, f"{name}*") == names
    assert (client.stats().held, client.stats().acquired) == (2, 2)
    for lease in leases.values():
        told = await face.call(client.inspect, lease.name)
        assert (told.state, told.holder, len(told.nodes)) == ("held", lease.token, 3)
        assert await face.call(client.locked_by, lease.name) == lease.token
        assert await face.call(client.is_locked, lease.name)
    assert await face.call(client.force_release, leases["b"].name, "a test") >= 2
    await face.until_lost(leases["b"])
    assert leases["a"].held
    await face.release(leases["a"], confirm=True)
    assert not await face.call(client.is_locked, leases["a"].name)
    with pytest.raises(LockLost):
        await face.release(leases["b"])


async def test_several_names_live_together_or_are_refused(face: Face, sets: dict[str, Cluster], name: str) -> None:
    # Rule SH1.
    client = face.spread(sets)
    a, b = (lives(client, shard, name) for shard in SETS)
    with pytest.raises(ConfigError, match=r"cannot be locked together: .*'a'.*'b'.*braces") as caught:
        client.lock(a, b)
    assert a in str(caught.value)
    assert b in str(caught.value)
    names = [f"{{{name}}}/{number}" for number in range(5)]
    lease = await face.acquire(client.lock(*names))
    assert list(lease.fences) == names
    await face.release(lease)


async def test_a_set_that_is_down_takes_only_its_own_names_with_it(face: Face, own: dict[str, Cluster], name: str) -> None:
    client = face.spread(own, ttl=0.5, max_ttl=1, outage=0.2)
    a, b = (lives(client, shard, name) for shard in SETS)
    await face.ready(client)
    await own["b"].kill(0, 1)
    with pytest.raises(NoQuorum):
        await face.acquire(client.lock(b, wait=5))
    lease = await face.acquire(client.lock(a))
    await face.release(lease)
    for call in (client.names, client.ready):
        with pytest.raises(NoQuorum):
            await face.call(call, *([0.5] if call == client.ready else []))


async def test_close_ends_all_sets(face: Face, sets: dict[str, Cluster], name: str) -> None:
    client = face.spread(sets)
    leases = [await face.acquire(client.lock(lives(client, shard, name))) for shard in SETS]
    await face.close(client)
    assert [it.held for it in leases] == [False, False]
    await face.until(lambda: all(sets[shard].holders(it.name) == [None] * 3 for shard, it in zip(SETS, leases, strict=True)))


@pytest.mark.parametrize("kind", FACES)
async def test_local_brings_several_sets(kind: str) -> None:
    face = FACES[kind]()
    client = face.kind.local(1, shards=2)  # type: ignore[attr-defined]  # (of a real face)
    try:
        assert list(client.shards) == ["1", "2"]
        assert [len(it) for it in client.shards.values()] == [1, 1]
        for shard in client.shards:
            lease = await face.acquire(client.lock(lives(client, shard, "local")))
            await face.release(lease)
    finally:
        await face.close(client)


# ------------------------------------------------ a name that moves


async def test_whoever_knows_both_sets_holds_the_name_on_both(face: Face, rollout: Rollout) -> None:
    lease = await face.acquire(rollout.both.lock(rollout.name))
    await face.until(lambda: lease.votes == 6)
    assert (lease.state, lease.held, lease.names, lease.contended) == (LeaseState.HELD, True, (rollout.name,), False)
    assert rollout.a.holders(rollout.name) == rollout.b.holders(rollout.name) == [lease.token] * 3
    assert await face.extend(lease, 20) > 18
    assert all(left > 18_000 for it in (rollout.a, rollout.b) for left in it.everywhere("PTTL", rollout.name))
    assert await face.release(lease, confirm=True) >= 2
    await rollout.free()
    assert lease.state is LeaseState.RELEASED


@pytest.mark.parametrize("holder, others", [("old", ["both"]), ("both", ["old", "both", "new"]), ("new", ["both"])])
async def test_whoever_knows_both_sets_keeps_out_everybody(face: Face, rollout: Rollout, holder: str, others: Iterable[str]) -> None:
    # Rule SH2.
    lease = await face.acquire(getattr(rollout, holder).lock(rollout.name))
    for other in others:
        client = getattr(rollout, other)
        assert await face.try_acquire(client.lock(rollout.name)) is None
        with pytest.raises(LockBusy):
            await face.acquire(client.lock(rollout.name, wait=0.1))
        assert await face.call(client.is_locked, rollout.name)
    assert lease.held
    await face.release(lease)
    await rollout.free()


async def test_a_name_that_stays_is_held_on_its_set_alone(face: Face, rollout: Rollout) -> None:
    stays = lives(rollout.new, "a", "stays")
    before = rollout.b.calls()
    lease = await face.acquire(rollout.both.lock(stays))
    assert rollout.b.holders(stays) == [None] * 3
    assert rollout.a.holders(stays).count(lease.token) >= 2
    await face.release(lease)
    assert rollout.b.calls() == before


@pytest.mark.parametrize("first, second", [("old", "both"), ("both", "old"), ("both", "new"), ("new", "both"), ("both", "both")])
async def test_a_release_lets_in_whoever_waits(face: Face, rollout: Rollout, first: str, second: str) -> None:
    lease = await face.acquire(getattr(rollout, first).lock(rollout.name))
    waiter = asyncio.create_task(face.acquire(getattr(rollout, second).lock(rollout.name, wait=30)))
    await face.until(lambda: 1 in (*rollout.a.waiters(rollout.name), *rollout.b.waiters(rollout.name)))
    fence = lease.fence
    await face.release(lease)
    got = await waiter
    assert got.held
    assert got.contended
    assert got.fence > fence
    await face.release(got)
    await rollout.free()


def ahead(cluster: Cluster, name: str, by: float) -> int:
    """Have these nodes grant fences that are ahead of all clocks, as after clients whose clocks were."""
    seconds, micros = cluster.ask(0, "TIME")
    fence = int(seconds) * 10**6 + int(micros) + int(by * 1e6)
    cluster.everywhere("SET", keys_of(name.encode())[1].decode(), fence, "PX", 60_000)
    return fence


async def test_fences_grow_whoever_holds_it(face: Face, rollout: Rollout) -> None:
    """One holder after another, while a roll-out goes on; some sets are ahead of the others."""
    # Rule SH3.
    found, clients = [], {"o": rollout.old, "b": rollout.both, "n": rollout.new}
    ahead(rollout.a, rollout.name, 2.0)
    for it in "obob":
        found.append(await rollout.fence(clients[it]))
    ahead(rollout.b, rollout.name, 4.0)
    for it in "bobobbnbnbnn":
        found.append(await rollout.fence(clients[it]))
    assert found == sorted(set(found))


async def test_a_fence_that_is_ahead_on_the_old_set_is_written_to_the_new_one(face: Face, rollout: Rollout) -> None:
    least = ahead(rollout.a, rollout.name, 3.0)
    lease = await face.acquire(rollout.both.lock(rollout.name))
    assert lease.fence > least
    assert lease.fences == {rollout.name: lease.fence}
    written = [int(it or 0) for it in rollout.b.everywhere("GET", keys_of(rollout.name.encode())[1].decode())]
    assert sum(it >= lease.fence for it in written) >= 2
    assert (await face.call(rollout.both.inspect, rollout.name)).fence == lease.fence
    await face.release(lease)


@pytest.mark.parametrize("where", ["a", "b"])
async def test_lost_on_one_set_is_lost(face: Face, rollout: Rollout, where: str) -> None:
    lost: list[Any] = []
    lease = await face.acquire(rollout.both.lock(rollout.name, on_lost=lost.append))
    await face.until(lambda: lease.votes == 6)
    assert await face.call({"a": rollout.old, "b": rollout.new}[where].force_release, rollout.name, "a test") >= 2
    await face.until_lost(lease)
    assert (lease.state, lease.held, lease.votes, lease.remaining) == (LeaseState.LOST, False, 0, 0.0)
    with pytest.raises(LockLost, match="forced") as caught:
        lease.check()
    assert (caught.value.reason, caught.value.fence) == ("forced", lease.fence)
    await face.until(lambda: lost == [lease])
    await rollout.free()
    with pytest.raises(LockLost):
        await face.release(lease)


async def test_an_operator_takes_it_away_on_both(face: Face, rollout: Rollout) -> None:
    lease = await face.acquire(rollout.both.lock(rollout.name))
    await face.until(lambda: lease.votes == 6)
    assert await face.call(rollout.both.force_release, rollout.name, "a test") >= 2
    await face.until_lost(lease)
    await rollout.free()
    assert not lease.held


async def test_renewed_on_both_sets(face: Face, sets: dict[str, Cluster], name: str) -> None:
    rollout = Rollout(face, sets, name, ttl=0.6)
    lease = await face.acquire(rollout.both.lock(rollout.name))
    await face.sleep(1.5)
    assert lease.held
    assert all(left > 0 for it in sets.values() for left in it.everywhere("PTTL", rollout.name))
    await face.release(lease)
    await rollout.free()


async def test_max_hold_and_a_lease_that_is_not_renewed_end_on_both_sets(face: Face, sets: dict[str, Cluster], name: str) -> None:
    rollout = Rollout(face, sets, name, ttl=0.4)
    for options, reason in (({"max_hold": 0.6}, "max_hold"), ({"renew": False}, "expired")):
        lease = await face.acquire(rollout.both.lock(rollout.name, **options))
        await face.until_lost(lease)
        with pytest.raises(LockLost, match=reason):
            lease.check()
        await rollout.free()


async def test_what_cannot_be_had_on_one_set_is_kept_on_none(face: Face, own: dict[str, Cluster], name: str) -> None:
    rollout = Rollout(face, own, name, ttl=0.5, max_ttl=1, outage=0.2)
    await rollout.ready()
    await own["b"].kill(0, 1)
    with pytest.raises(NoQuorum):
        await face.acquire(rollout.both.lock(rollout.name, wait=10))
    await face.until(lambda: rollout.a.holders(rollout.name) == [None] * 3)
    lease = await face.acquire(rollout.both.lock(rollout.name, fail_open=True, wait=10))
    assert (lease.state, lease.fence) == (LeaseState.OPEN, None)
    lease.check()
    assert await face.release(lease) == 0
    await face.until(lambda: rollout.a.holders(rollout.name) == [None] * 3)


async def test_a_minority_of_each_set_may_be_away(face: Face, own: dict[str, Cluster], name: str) -> None:
    rollout = Rollout(face, own, name)
    await rollout.ready()
    await rollout.a.kill(0)
    await rollout.b.kill(2)
    fences = [await rollout.fence(it) for it in (rollout.old, rollout.both, rollout.both, rollout.new)]
    assert fences == sorted(set(fences))


async def test_who_is_stopped_while_it_waits_leaves_nothing(face: Face, rollout: Rollout) -> None:
    lease = await face.acquire(rollout.new.lock(rollout.name))
    with pytest.raises(LockBusy) as caught:
        await face.acquire(rollout.both.lock(rollout.name, wait=0.2))
    assert caught.value.holder == lease.token
    await face.until(lambda: rollout.a.holders(rollout.name) == [None] * 3)
    waiter = asyncio.create_task(face.acquire(rollout.both.lock(rollout.name)))
    await face.until(lambda: 1 in rollout.b.waiters(rollout.name))
    await face.close(rollout.both)
    with pytest.raises(Exception, match="closed"):
        await waiter
    await face.until(lambda: rollout.a.holders(rollout.name) == [None] * 3)
    await face.release(lease)
    await rollout.free()


async def test_entered_again(face: Face, rollout: Rollout) -> None:
    lock = rollout.both.lock(rollout.name, reentrant=True)

    def script() -> Any:
        outer = face.block(lock)
        lease = yield outer.enter
        inner = face.block(lock)
        again = yield inner.enter
        assert (again.fence, again.held) == (lease.fence, True)
        yield outer.leave
        assert again.held
        assert None not in rollout.a.holders(rollout.name)[:2] or None not in rollout.b.holders(rollout.name)[:2]
        yield inner.leave

    await face.user(rollout.both, script())
    await rollout.free()


async def test_a_lease_is_handed_over_on_both_sets(face: Face, rollout: Rollout) -> None:
    given = await face.acquire(rollout.both.lock(rollout.name))
    lease = await face.call(rollout.both.adopt, await face.call(given.hand_over))
    assert lease.fence == given.fence
    for client in (rollout.old, rollout.new):
        assert await face.try_acquire(client.lock(rollout.name)) is None
    await face.release(lease)
    await rollout.free()


async def test_names_of_several_former_sets_move_together(face: Face, sets: dict[str, Cluster], name: str) -> None:
    former = {"x": sets["a"], "y": sets["b"]}
    async with face.nodes(1) as c:
        client, other = face.spread({"c": c}, former), face.spread(former)
        names = [lives(other, shard, name) for shard in "xy"]
        with pytest.raises(ConfigError):
            other.lock(*names)
        lease = await face.acquire(client.lock(*names))
        assert set(lease.fences) == set(lease.tokens) == set(names)
        for each in names:
            assert await face.try_acquire(other.lock(each)) is None
        await face.release(lease, confirm=True)
        for each in names:
            got = await face.acquire(other.lock(each, wait=5))
            assert got.fence > lease.fences[each]
            await face.release(got)
        await asyncio.gather(*[_often(face, client, random.Random(it).sample(names, 2)) for it in range(4)])
        await face.finish()


# ------------------------------------------------ rates whose names move


async def takes(face: Face, client: Any, name: str, times: int = 6, **options: Any) -> int:
    """How many of so many calls are allowed, of five in a long time."""
    rate = client.rate(name, 5, 1000, **options)
    allowed = 0
    for _ in range(times):
        allowed += bool(await face.call(rate.take))
    return allowed


@pytest.mark.parametrize("algorithm", ["gcra", "fixed window"])
async def test_calls_count_for_all_clients_while_a_name_moves(face: Face, rollout: Rollout, algorithm: str) -> None:
    # Rule RA10.
    assert await takes(face, rollout.old, rollout.name, 2, algorithm=algorithm) == 2
    assert await takes(face, rollout.both, rollout.name, algorithm=algorithm) == 3
    assert await takes(face, rollout.old, rollout.name, algorithm=algorithm) == 0
    assert await takes(face, rollout.new, rollout.name, algorithm=algorithm) == 2, "three of five are counted on the new set, too"
    assert await takes(face, rollout.both, rollout.name, algorithm=algorithm) == 0


async def test_a_call_that_the_new_set_refuses_is_not_counted_on_the_old_one(face: Face, rollout: Rollout) -> None:
    assert await takes(face, rollout.new, rollout.name) == 5
    assert await takes(face, rollout.both, rollout.name) == 0
    await face.sleep(0.1)
    assert await takes(face, rollout.old, rollout.name) == 5


async def test_looking_and_starting_over_while_a_name_moves(face: Face, rollout: Rollout) -> None:
    rate = rollout.both.rate(rollout.name, 5, 1000)
    assert await takes(face, rollout.old, rollout.name, 1) == 1
    assert (await face.call(rate.peek)).remaining == 4
    assert await takes(face, rollout.new, rollout.name, 3) == 3
    assert (await face.call(rate.peek)).remaining == 2
    await face.call(rate.reset)
    assert await takes(face, rollout.both, rollout.name) == 5
    told = await face.call(rate.peek)
    assert (told.allowed, told.remaining) == (False, 0)


async def test_waiting_while_a_name_moves(face: Face, rollout: Rollout) -> None:
    began = face.now()
    for number in range(6):
        client = (rollout.old, rollout.both)[number % 2]
        assert await face.call(client.rate(rollout.name, 5, 1, burst=1).acquire)
    assert face.now() - began >= 0.9


async def test_a_rate_that_stays_is_counted_on_its_set_alone(face: Face, rollout: Rollout) -> None:
    before = rollout.b.calls()
    assert await takes(face, rollout.both, lives(rollout.new, "a", f"{rollout.name}/stays")) == 5
    assert rollout.b.calls() == before


CANNOT_MOVE: dict[str, Any] = {
    "semaphore": lambda client, name: client.semaphore(name, 2),
    "read-write lock": lambda client, name: client.rwlock(name),
    "election": lambda client, name: client.election(name),
    "latch": lambda client, name: client.latch(name, 2),
    "barrier": lambda client, name: client.barrier(name, 2),
}


@pytest.mark.parametrize("kind", CANNOT_MOVE)
async def test_what_cannot_move_is_refused_when_it_is_described(face: Face, rollout: Rollout, kind: str) -> None:
    before = rollout.a.calls(), rollout.b.calls()
    with pytest.raises(ConfigError, match=f"{kind} '{rollout.name}' moves"):
        CANNOT_MOVE[kind](rollout.both, rollout.name)
    assert (rollout.a.calls(), rollout.b.calls()) == before
    for client in (rollout.old, rollout.new):
        CANNOT_MOVE[kind](client, rollout.name)


async def _often(face: Face, client: Any, names: list[str]) -> None:
    for _ in range(5):
        lease = await face.acquire(client.lock(*names, wait=30))
        await face.release(lease)


# ------------------------------------------------ a roll-out while everybody works


class Register:
    """What the lock protects: notes who is inside, and refuses a fence that is not larger than all before."""

    def __init__(self) -> None:
        self.inside, self.overlaps, self.entries = 0, 0, 0
        self.last = self.stale = 0

    async def work(self, face: Face, client: Any, name: str) -> None:
        lease = await face.acquire(client.lock(name, wait=60))
        self.overlaps += self.inside > 0
        self.inside += 1
        self.stale += lease.fence <= self.last
        self.last = max(self.last, lease.fence)
        await face.sleep(0.004)
        self.inside -= 1
        self.entries += 1
        await face.release(lease)


async def test_clients_change_one_after_the_other(face: Face, rollout: Rollout) -> None:
    register = Register()
    for clients in ([rollout.old, rollout.both], [rollout.both, rollout.both], [rollout.both, rollout.new]):
        await asyncio.gather(*[register.work(face, it, rollout.name) for it in clients * 6])
    assert (register.entries, register.overlaps, register.stale) == (36, 0, 0)
    await rollout.free()


async def test_clients_that_leave_out_a_step_are_seen(face: Face, rollout: Rollout) -> None:
    # Rule SH4.
    register = Register()
    await asyncio.gather(*[register.work(face, it, rollout.name) for it in [rollout.old, rollout.new] * 6])
    assert register.overlaps


def left(nodes: Iterable[Any], shard: str = "") -> set[str] | None:
    """The stragglers on the nodes of a set; None if a node has not told of any."""
    found = [it.stragglers for it in nodes if shard in ("", it.shard)]
    return None if None in found else {it.owner for them in found for it in them}


@pytest.mark.parametrize("change", ["a set is added", "all nodes are replaced"])
async def test_a_client_that_was_not_redeployed_is_shown_until_it_was(
    face: Face, sets: dict[str, Cluster], name: str, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Step 2 of a change: whoever knows both lists sees who knows only the old one, on the nodes that the old one names."""
    monkeypatch.setattr(registry, "EVERY", 0.3)
    options = {"prefix": f"{name}:", "max_ttl": 2, "ttl": 1}
    before = {"a": sets["a"]}
    after = sets if change == "a set is added" else {"a": sets["b"]}
    new_client, moves = face.spread(after, **options), partial(face.spread, after, before, **options)
    await face.ready(new_client)
    olds = [face.spread(before, owner=f"old:{it}", **options) for it in range(2)]
    for it in olds:
        await face.ready(it)
    both = moves(owner="both:1")
    shown = await face.ready(both)
    where = shown[0].shard if change == "a set is added" else shown[-1].shard
    assert left(shown, where) == {"old:0", "old:1"}
    await face.until(lambda: left(both.nodes(), where) == {"old:0", "old:1"})
    assert left(both.nodes()) == {"old:0", "old:1"}, "whoever knows only the new list is none, nor who knows both"
    ages = {it.owner: it.seen for node in both.nodes() for it in node.stragglers}
    assert all(0 <= it < 30 for it in ages.values())
    await face.close(olds[1])
    await face.sleep(1.0)
    seen = {it.owner: it.seen for node in both.nodes() for it in node.stragglers}
    assert seen["old:1"] > seen["old:0"], "the one that has ended reports no more"


async def test_a_lease_that_is_dropped_ends_with_its_ttl_on_both_sets(face: Face, sets: dict[str, Cluster], name: str) -> None:
    rollout = Rollout(face, sets, name, ttl=2)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        await face.acquire(rollout.both.lock(rollout.name))
        gc.collect()
        await face.until(lambda: told)
    assert [str(it.message).partition(" (fence")[0] for it in told] == [f"the lease on {rollout.name!r}"]
    await rollout.free()
