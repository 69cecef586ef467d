"""Fences in Redis: one step, checked against a model; expiry that lets nobody in."""

from __future__ import annotations

import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import redis
import redis.asyncio
import redis.asyncio.cluster
import redis.cluster
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast import ConfigError, Misuse, StaleFence
from holdfast.embedded import Nodes
from holdfast.fencing.redis import FencedRedis

pytestmark = pytest.mark.servers

RECORD = "holdfast:seen:a"
WEEK = 7 * 86400


@pytest.fixture(scope="module")
def store() -> Iterator[Nodes]:
    with Nodes(1) as nodes:
        yield nodes


@pytest.fixture
def client(store: Nodes) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(store.urls[0], decode_responses=True) as client:
        client.flushall()
        yield client


def now() -> int:
    """The fence of a lease that was acquired this moment."""
    return round(time.time() * 1_000_000)


def test_a_late_holder_is_refused_and_nothing_is_written(client: redis.Redis) -> None:
    # Rule X1.
    mine, later = now(), now() + 5
    assert FencedRedis(client, {"a": mine}).set("key", "mine") == "OK"
    assert FencedRedis(client, {"a": later}).set("key", "later") == "OK"
    with pytest.raises(StaleFence) as refused:
        FencedRedis(client, {"a": mine}).set("key", "mine")
    assert (refused.value.name, refused.value.fence, refused.value.seen) == ("a", mine, later)
    assert (client.get("key"), client.hgetall(RECORD)) == ("later", {"seen": str(later), "written": str(later)})
    assert FencedRedis(client, {"a": later}).set("key", "again") == "OK"
    assert FencedRedis(client, {"b": mine}).set("key", "another name") == "OK"


def test_the_commands(client: redis.Redis) -> None:
    mine = FencedRedis(client, {"a": now()})
    assert mine.set("key", "x", ttl=30) == "OK" and 29_000 < client.pttl("key") <= 30_000
    assert mine.hset("hash", {"one": 1, "two": "2"}) == 2 and client.hgetall("hash") == {"one": "1", "two": "2"}
    assert mine.execute("RPUSH", "list", "x", "y") == 2
    assert mine.execute("GET", "nobody") is None
    assert mine.delete("key", "hash", "list", "nobody") == 3
    assert mine.eval("return {KEYS[1], #KEYS, ARGV[2], #ARGV}", ["k"], ["x", "y"]) == ["k", 1, "y", 2]
    assert mine.eval("return 7") == 7
    assert mine.eval("return {#ARGV, ARGV[9000]}", arguments=range(9000)) == [9000, "8999"]
    with pytest.raises(redis.ResponseError, match="nonexistent global variable 'keep'"):
        mine.eval("return keep")  # (the names of the guard are none of the work's)


def test_errors_of_the_work_are_the_caller_s(client: redis.Redis) -> None:
    mine = FencedRedis(client, {"a": now()})
    mine.set("key", "x")
    for script in ("return redis.call('LPUSH', KEYS[1], 'x')", "return redis.pcall('LPUSH', KEYS[1], 'x')"):
        with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
            mine.eval(script, ["key"])


async def test_tasks_have_the_same(store: Nodes, client: redis.Redis) -> None:
    fence = now()
    async with redis.asyncio.Redis.from_url(store.urls[0]) as asynchronous:
        assert await FencedRedis(asynchronous, {"a": fence}).set("key", "x")
        with pytest.raises(StaleFence):
            await FencedRedis(asynchronous, {"a": fence - 1}).delete("key")
    assert client.get("key") == "x"


def test_a_pipeline_is_misuse(store: Nodes, client: Any) -> None:
    """A late holder queues its write, and nobody looks at the script's answer."""
    fence = now()
    FencedRedis(client, {"a": fence}).set("key", "later")
    with client.pipeline() as pipeline:
        with pytest.raises(Misuse, match="a pipeline answers later"):
            FencedRedis(pipeline, {"a": fence - 1}).set("key", "late")
        assert len(pipeline) == 0
    with pytest.raises(Misuse, match="a pipeline answers later"):
        FencedRedis(redis.asyncio.Redis.from_url(store.urls[0]).pipeline(), {"a": now()})
    for kind in (redis.cluster.ClusterPipeline, redis.asyncio.cluster.ClusterPipeline):
        with pytest.raises(Misuse, match="a pipeline answers later"):
            FencedRedis(kind.__new__(kind), {"a": now()})


def test_a_client_that_answers_later_is_misuse(client: redis.Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted, too: a pipeline that is not known as one queues the write, and is refused then."""

    class Later(redis.Redis):
        def execute_command(self, *words: Any, **options: Any) -> Any:
            return self

    with Later() as later, pytest.raises(Misuse, match="instead of running the script now"):
        FencedRedis(later, {"a": now()}).set("key", "x")


def test_several_names_all_or_none(client: redis.Redis) -> None:
    fence = now()
    FencedRedis(client, {"b": fence}).set("key", "x")
    with pytest.raises(StaleFence, match="'b'"):
        FencedRedis(client, {"a": fence - 1, "b": fence - 1}).set("key", "y")
    assert (client.exists(RECORD), client.get("key")) == (0, "x")
    FencedRedis(client, {"a": fence - 1, "b": fence}).set("key", "y")
    assert (client.hget(RECORD, "seen"), client.get("key")) == (str(fence - 1), "y")


def test_an_open_lease_writes_only_where_that_was_said(client: redis.Redis) -> None:
    lease = SimpleNamespace(name="a", fence=None)
    with pytest.raises(Misuse, match="bears no fence"):
        FencedRedis(client, lease)
    assert FencedRedis(client, lease, unfenced=True).set("key", "x") == "OK"


def test_records_lie_where_the_caller_wants(client: redis.Redis) -> None:
    FencedRedis(client, {"a": now()}, record="{{{0}}}:seen".format).set("{a}:data", "x")
    assert client.exists("{a}:seen") == 1


def test_a_record_outlives_the_fence_and_the_last_use(client: redis.Redis) -> None:
    old, ahead = now() - 3600 * 1_000_000, now() + 3600 * 1_000_000
    FencedRedis(client, {"a": old}).set("key", "x")
    assert client.ttl(RECORD) == pytest.approx(WEEK, abs=5), "from its last use"
    FencedRedis(client, {"a": ahead}).set("key", "x")
    assert client.ttl(RECORD) == pytest.approx(WEEK + 3600, abs=5), "by a clock that is ahead"
    FencedRedis(client, {"a": ahead}, keep=None).set("key", "x")
    assert client.ttl(RECORD) == -1


def test_a_fence_that_is_older_than_what_is_remembered_is_refused(client: redis.Redis) -> None:
    with pytest.raises(StaleFence) as refused:
        FencedRedis(client, {"a": now() - (WEEK + 5) * 1_000_000}).set("key", "x")
    assert refused.value.seen == pytest.approx(now() - WEEK * 1_000_000, abs=5_000_000)
    assert client.dbsize() == 0
    FencedRedis(client, {"a": now() - (WEEK - 5) * 1_000_000}).set("key", "x")
    FencedRedis(client, {"b": 5}, keep=None).set("key", "x")


def test_keep_is_a_time(client: redis.Redis) -> None:
    with pytest.raises(ConfigError, match="keep is 1 or more seconds"):
        FencedRedis(client, {"a": 5}, keep=0)


STEPS = st.lists(st.tuples(st.integers(1, 6), st.sampled_from(["write", "read"])), max_size=12)


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS)
def test_any_order(client: redis.Redis, steps: list[tuple[int, str]]) -> None:
    """Write and read with these fences; what passes is what a page of Python lets pass."""
    client.flushall()
    base = now()
    seen = written = 0
    for number, what in steps:
        fence = base + number
        holder = FencedRedis(client, {"a": fence}, read=what == "read")
        try:
            holder.execute("GET", "key") if what == "read" else holder.set("key", fence)
            refused = None
        except StaleFence as error:
            refused = error.seen
        least = written if what == "read" else seen
        assert refused == (least if fence < least else None), (number, what)
        if refused is None:
            seen, written = max(seen, fence), fence if what == "write" else written
    assert client.get("key") == (str(written) if written else None)


def test_an_expired_record_lets_nobody_in_who_was_refused_before(client: redis.Redis) -> None:
    """One second of memory: whoever was refused is refused afterwards, because the fence is older than that by then."""
    fence = now()
    FencedRedis(client, {"a": fence}, keep=1).set("key", "x")
    patience = time.monotonic() + 10
    while client.exists(RECORD):
        with pytest.raises(StaleFence):
            FencedRedis(client, {"a": fence - 1}, keep=1).set("key", "y")
        assert time.monotonic() < patience
        time.sleep(0.05)
    with pytest.raises(StaleFence):
        FencedRedis(client, {"a": fence - 1}, keep=1).set("key", "y")
    assert client.get("key") == "x"
