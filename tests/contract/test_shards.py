"""Names spread over several sets of nodes; and names that move from one set to another while clients run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
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
    """Clients of before, in between, and of afterwards, which all use a lock of this name."""

    def __init__(self, face: Face, before: dict[str, Cluster], after: dict[str, Cluster], name: str, **options: Any) -> None:
        self.face, self.name = face, name
        self.old = face.spread(before, owner="old", **options)
        self.both = face.spread(after, before, owner="both", **options)
        self.new = face.spread(after, owner="new", **options)

    async def ready(self) -> None:
        for client in (self.old, self.both, self.new):
            await self.face.ready(client)

    async def fence(self, client: Any) -> int:
        lease = await self.face.acquire(client.lock(self.name, wait=10))
        assert lease.held
        fence: int = lease.fence
        await self.face.release(lease, confirm=True)
        return fence


class Addition(Rollout):
    """Set b is new. `name`: lives on a before, and on b afterwards."""

    def __init__(self, face: Face, sets: dict[str, Cluster], name: str, **options: Any) -> None:
        super().__init__(face, {"a": sets["a"]}, sets, "", **options)
        self.a, self.b = sets["a"], sets["b"]
        self.name = lives(self.new, "b", name)

    async def free(self) -> None:
        """Nothing is left of it, on any node."""
        await self.face.until(lambda: self.a.holders(self.name) == self.b.holders(self.name) == [None] * 3)
        assert self.a.waiters(self.name) == self.b.waiters(self.name) == [0] * 3


@pytest.fixture
async def rollout(face: Face, sets: dict[str, Cluster], name: str) -> Addition:
    found = Addition(face, sets, name)
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


# What keeps something, and the key that it is kept in.
KEPT: dict[str, tuple[Callable[[Any, str, Any], Callable[..., Any]], str]] = {
    "once": (lambda client, name, does: partial(client.once(name, keep=60).run, does), "{{{}[once]}}:result"),
    "fill": (lambda client, name, does: client.fill(name, 60, does).get, "{{{}[fill]}}:cache"),
    "latch": (lambda client, name, _: client.latch(name, 1).arrive, "{{{}}}:latch"),
    "barrier": (lambda client, name, _: partial(client.barrier(name, 1).wait, "a"), "{{{}}}:barrier"),
    "rate": (lambda client, name, _: client.rate(name, 1, 1000).take, "{{{}}}:rate:1/1000/1"),
}


@pytest.mark.parametrize("kind", KEPT)
async def test_what_is_kept_lives_where_its_name_does(face: Face, sets: dict[str, Cluster], name: str, kind: str) -> None:
    client, (uses, key) = face.spread(sets), KEPT[kind]
    await face.ready(client)
    for shard in SETS:
        mine = lives(client, shard, name)
        await face.call(uses(client, mine, face.function(lambda: 1)))
        found = {it: [int(it == shard)] * 3 for it in SETS}
        await face.until(lambda: {it: sets[it].everywhere("EXISTS", key.format(mine)) for it in SETS} == found)  # noqa: B023 (it is called in this turn of the loop)


# ------------------------------------------------ a name that moves


async def test_whoever_knows_both_sets_holds_the_name_on_both(face: Face, rollout: Addition) -> None:
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
async def test_whoever_knows_both_sets_keeps_out_everybody(face: Face, rollout: Addition, holder: str, others: Iterable[str]) -> None:
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


async def test_a_name_that_stays_is_held_on_its_set_alone(face: Face, rollout: Addition) -> None:
    stays = lives(rollout.new, "a", "stays")
    before = rollout.b.calls()
    lease = await face.acquire(rollout.both.lock(stays))
    assert rollout.b.holders(stays) == [None] * 3
    assert rollout.a.holders(stays).count(lease.token) >= 2
    await face.release(lease)
    assert rollout.b.calls() == before


@pytest.mark.parametrize("first, second", [("old", "both"), ("both", "old"), ("both", "new"), ("new", "both"), ("both", "both")])
async def test_a_release_lets_in_whoever_waits(face: Face, rollout: Addition, first: str, second: str) -> None:
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


async def test_fences_grow_whoever_holds_it(face: Face, rollout: Addition) -> None:
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


@pytest.mark.parametrize("by", ["old", "new", "both"])
async def test_lost_on_one_set_is_lost(face: Face, rollout: Addition, by: str) -> None:
    # Rule SH2.
    lost: list[Any] = []
    lease = await face.acquire(rollout.both.lock(rollout.name, on_lost=lost.append))
    await face.until(lambda: lease.votes == 6)
    assert await face.call(getattr(rollout, by).force_release, rollout.name, "a test") >= 2
    await face.until_lost(lease)
    assert (lease.state, lease.held, lease.votes, lease.remaining) == (LeaseState.LOST, False, 0, 0.0)
    with pytest.raises(LockLost, match="forced") as caught:
        lease.check()
    assert (caught.value.reason, caught.value.fence) == ("forced", lease.fence)
    await face.until(lambda: lost == [lease])
    await rollout.free()
    with pytest.raises(LockLost):
        await face.release(lease)


async def test_what_cannot_be_had_on_one_set_is_kept_on_none(face: Face, own: dict[str, Cluster], name: str) -> None:
    rollout = Addition(face, own, name, ttl=0.5, max_ttl=1, outage=0.2)
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
    rollout = Addition(face, own, name)
    await rollout.ready()
    await rollout.a.kill(0)
    await rollout.b.kill(2)
    fences = [await rollout.fence(it) for it in (rollout.old, rollout.both, rollout.both, rollout.new)]
    assert fences == sorted(set(fences))


async def test_who_is_stopped_while_it_waits_leaves_nothing(face: Face, rollout: Addition) -> None:
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


async def test_a_lease_is_handed_over_on_both_sets(face: Face, rollout: Addition) -> None:
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
        await face.finish()


async def test_a_value_is_computed_again_where_its_key_moves_to(face: Face, rollout: Addition) -> None:
    for client, computed in ((rollout.old, True), (rollout.old, False), (rollout.both, True), (rollout.new, False)):
        found = await face.call(client.fill(rollout.name, 60, face.function(lambda: 1)).get)
        assert found.computed is computed


# ------------------------------------------------ rates whose names move


async def takes(face: Face, client: Any, name: str, times: int = 6, **options: Any) -> int:
    """How many of so many calls are allowed, of five in a long time."""
    rate = client.rate(name, 5, 1000, **options)
    allowed = 0
    for _ in range(times):
        allowed += bool(await face.call(rate.take))
    return allowed


@pytest.mark.parametrize("algorithm", ["gcra", "fixed window"])
async def test_calls_count_for_all_clients_while_a_name_moves(face: Face, rollout: Addition, algorithm: str) -> None:
    # Rule RA10.
    assert await takes(face, rollout.old, rollout.name, 2, algorithm=algorithm) == 2
    assert await takes(face, rollout.both, rollout.name, algorithm=algorithm) == 3
    assert await takes(face, rollout.old, rollout.name, algorithm=algorithm) == 0
    assert await takes(face, rollout.new, rollout.name, algorithm=algorithm) == 2, "three of five are counted on the new set, too"
    assert await takes(face, rollout.both, rollout.name, algorithm=algorithm) == 0


async def test_a_call_that_the_new_set_refuses_is_not_counted_on_the_old_one(face: Face, rollout: Addition) -> None:
    assert await takes(face, rollout.new, rollout.name) == 5
    assert await takes(face, rollout.both, rollout.name) == 0
    await face.sleep(0.1)
    assert await takes(face, rollout.old, rollout.name) == 5


async def test_looking_and_starting_over_while_a_name_moves(face: Face, rollout: Addition) -> None:
    rate = rollout.both.rate(rollout.name, 5, 1000)
    assert await takes(face, rollout.old, rollout.name, 1) == 1
    assert (await face.call(rate.peek)).remaining == 4
    assert await takes(face, rollout.new, rollout.name, 3) == 3
    assert (await face.call(rate.peek)).remaining == 2
    await face.call(rate.reset)
    assert await takes(face, rollout.both, rollout.name) == 5
    told = await face.call(rate.peek)
    assert (told.allowed, told.remaining) == (False, 0)


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


async def test_clients_change_one_after_the_other(face: Face, rollout: Addition) -> None:
    # Rule SH4.
    register = Register()
    for clients in ([rollout.old, rollout.both], [rollout.both, rollout.both], [rollout.both, rollout.new]):
        await asyncio.gather(*[register.work(face, it, rollout.name) for it in clients * 6])
    assert (register.entries, register.overlaps, register.stale) == (36, 0, 0)
    await rollout.free()


async def test_clients_that_leave_out_a_step_are_seen(face: Face, rollout: Addition) -> None:
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
    # Rule G8.
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
