"""The metrics of real clients, as Prometheus reads them."""

from __future__ import annotations

import asyncio
import gc
import os
import re
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from contract.cluster import Cluster
from metrics.prometheus_server import NEEDS_PROMETHEUS, PROMTOOL
from nemesis.processes import until as met
from opentelemetry.sdk.metrics import MeterProvider
from prometheus_client import CollectorRegistry, generate_latest

import holdfast.aio
from holdfast import Holdfast, LockBusy, events
from holdfast.embedded import Nodes
from holdfast.metrics import Metrics, by_function
from holdfast.otel import OtelMetrics
from holdfast.version import VERSION

EXPOSITION = Path(__file__).with_name("exposition.txt")


@pytest.fixture(scope="module")
def nodes() -> Iterator[Cluster]:
    with Cluster(Nodes(5)) as them:
        yield them


def client(nodes: Cluster, metrics: Any) -> Holdfast:
    return Holdfast(*nodes.urls, observer=metrics)


def series(registry: CollectorRegistry) -> list[str]:
    return [line for line in generate_latest(registry).decode().splitlines() if not line.startswith("#")]


def until(registry: CollectorRegistry, name: str, value: float, /, **labels: str) -> None:
    """Wait until a series has this value: observers are called on a thread of their own."""
    met(lambda: registry.get_sample_value(name, labels) == value, told=f"{name}{labels} is {value}")


def test_a_pair_is_counted(nodes: Cluster) -> None:
    registry = CollectorRegistry()
    metrics = Metrics(registry=registry)
    with client(nodes, metrics) as locks:
        with locks.lock("pair"):
            until(registry, "holdfast_held", 1, kind="exclusive")
        until(registry, "holdfast_held", 0, kind="exclusive")
        assert registry.get_sample_value("holdfast_acquire_total", {"kind": "exclusive", "outcome": "held"}) == 1
        assert registry.get_sample_value("holdfast_waiting", {"kind": "exclusive"}) == 0
        assert registry.get_sample_value("holdfast_hold_seconds_count", {"kind": "exclusive"}) == 1
        waited = {"kind": "exclusive", "contended": "no"}
        assert registry.get_sample_value("holdfast_acquire_wait_seconds_count", waited) == 1


def test_functions_may_be_told_apart(nodes: Cluster) -> None:
    registry = CollectorRegistry()
    with client(nodes, Metrics(registry=registry, names=by_function)) as locks:

        def feed(url: str) -> None: ...

        feed.__qualname__ = "feed"
        locks.locked("feed:{url}")(feed)("a")
        locks.once(lambda url: f"seen:{url}", keep=60)(feed)("b")
        locks.permitted("few", 2)(feed)("c")
        with locks.lock("z"):
            pass
        for kind, name in (("exclusive", "feed"), ("once", "feed"), ("permit", "feed"), ("exclusive", "")):
            until(registry, "holdfast_acquire_total", 1, kind=kind, outcome="held", name=name)
        until(registry, "holdfast_hold_seconds_count", 1, kind="exclusive", name="feed")
        until(registry, "holdfast_served_total", 1, kind="once", how="ran", name="feed")


def test_what_no_event_tells_is_read(nodes: Cluster) -> None:
    registry = CollectorRegistry()
    metrics = Metrics(registry=registry)
    with client(nodes, metrics) as locks:
        metrics.sample(locks.nodes(), locks.stats())
        assert registry.get_sample_value("holdfast_quorum_spare", {"shard": ""}) is None, "it has not connected yet: no alert"
        locks.ready()
        metrics.follow(locks)
        until(registry, "holdfast_quorum_spare", 2, shard="")
        for node in locks.nodes():
            assert registry.get_sample_value("holdfast_node_up", {"node": node.node, "shard": ""}) == 1
            assert registry.get_sample_value("holdfast_node_guard_seconds", {"node": node.node}) == 0
            assert abs(registry.get_sample_value("holdfast_node_clock_ahead_seconds", {"node": node.node}) or 9) < 5
        assert registry.get_sample_value("holdfast_longest_wait_seconds") == 0


def test_the_longest_wait_ends_when_the_last_caller_waits_no_longer(nodes: Cluster) -> None:
    """And not with the next sample, which may come seconds later."""
    registry = CollectorRegistry()
    metrics = Metrics(registry=registry)
    longest = "holdfast_longest_wait_seconds"
    with client(nodes, None) as other, client(nodes, metrics) as locks, other.lock("long"):
        with ThreadPoolExecutor() as pool:
            waits = pool.submit(locks.lock("long", wait=1).acquire)
            while locks.stats().longest_wait < 0.5:
                time.sleep(0.01)
            metrics.sample(locks.nodes(), locks.stats())
            assert (registry.get_sample_value(longest) or 0) >= 0.5
            with pytest.raises(LockBusy):
                waits.result()
        until(registry, longest, 0)


def test_following_ends_with_the_client(nodes: Cluster) -> None:
    metrics = Metrics(registry=CollectorRegistry())
    sampled = threading.Event()
    metrics.sample = lambda nodes, stats: sampled.set()  # type: ignore[method-assign] # in place of a subclass
    before = threading.active_count()
    with client(nodes, metrics) as locks:
        follow_quickly(metrics, locks)
        assert sampled.wait(10)
    del locks
    gc.collect()
    met(lambda: threading.active_count() <= before)


def follow_quickly(metrics: Metrics, locks: Any) -> None:
    from holdfast.metrics.following import follow

    follow(locks, metrics.sample, 0.01)


async def test_asyncio_is_followed_in_its_loop(nodes: Cluster) -> None:
    registry = CollectorRegistry()
    metrics = Metrics(registry=registry)
    async with holdfast.aio.Holdfast(*nodes.urls, observer=metrics) as locks:
        async with locks.lock("aio"):
            follow_quickly(metrics, locks)
            async with asyncio.timeout(10):
                while registry.get_sample_value("holdfast_quorum_spare", {"shard": ""}) != 2:
                    await asyncio.sleep(0.005)


def test_an_asyncio_client_is_not_followed_without_a_loop(nodes: Cluster) -> None:
    metrics = Metrics(registry=CollectorRegistry())
    with pytest.raises(RuntimeError, match="no running event loop"):
        metrics.follow(holdfast.aio.Holdfast(*nodes.urls))


def test_one_kind_on_five_nodes_has_few_series(nodes: Cluster) -> None:
    registry = CollectorRegistry()
    metrics = Metrics(registry=registry)
    with client(nodes, metrics) as locks:
        for name in ("a", "b"):
            with locks.lock(name):
                with pytest.raises(LockBusy):
                    locks.lock(name, wait=0).acquire()
        locks.ready()
        metrics.sample(locks.nodes(), locks.stats())
    assert 60 < len(series(registry)) <= 160


def test_one_event_of_each_kind_changes_what_dashboards_are_made_of() -> None:
    """`exposition.txt` has all series with their buckets. Dashboards and alerts of users break with a change."""
    registry = CollectorRegistry()
    metrics = Metrics(registry=registry)
    held: dict[str, Any] = {"name": "a", "token": "t", "waited": 0.5, "fence": 7}
    node: Any = SimpleNamespace(node="n", shard="", state="up", guard_left=None, rtt=0.001, ahead=-0.25, lists=(0,))
    for event in (
        *[events.Attempt(name="a", token="t", waited=0.0)] * 3,
        events.Acquired(**held),
        events.Renewed(**held, remaining=9.0, left=6.0),
        events.Renewed(**held, remaining=9.0, left=-1.0),
        events.Doubt(**held, remaining=9.0),
        events.Ended(**held, how="lost", reason="forced", held=60.0),
        events.Refused(name="a", token="t", waited=0.5, error=None, outcome="busy"),
        events.Opened(name="a", token="t", waited=0.5, error=OSError("refused")),
        events.Forced(name="a", holder=None, nodes=3, reason="a test"),
        events.Called(name="a", kind="rate", how="allowed", took=0.1),
        *[events.Called(name="a", kind=it, how="kept", took=0.1) for it in ("once", "fill", "latch")],
        events.NodeEvent(node="n", state="down", cause=OSError("refused")),
        events.NodeEvent(node="n", state="warned", about="eviction"),
    ):
        metrics(event)
    metrics.sample([node, SimpleNamespace(**{**vars(node), "node": "m", "state": "connecting"})], SimpleNamespace(longest_wait=1.5))
    told = generate_latest(registry).decode().replace(VERSION, "of this release")
    told = re.sub(r'\n\w+_bucket\{.*?le="(.*?)"\} (\S+)', r" \1:\2", told)  # behind the line before
    assert [it for it in told.splitlines() if "_created" not in it and "# HELP" not in it] == EXPOSITION.read_text().splitlines()


def test_too_few_values_are_refused() -> None:
    with pytest.raises(ValueError, match="most=0"):
        Metrics(registry=CollectorRegistry(), most=0)


@pytest.mark.parametrize("most", [{"most": 1}, {}])
def test_as_many_names_are_told_apart_as_are_wanted(most: dict[str, int]) -> None:
    for metrics in (Metrics(registry=CollectorRegistry(), names=str, **most), OtelMetrics(provider=MeterProvider(), names=str, **most)):
        assert metrics._names is not None
        assert len({metrics._names(str(it)) for it in range(99)} - {"other"}) == most.get("most", 50)


@NEEDS_PROMETHEUS
def test_promtool_accepts_the_exposition(nodes: Cluster) -> None:
    registry = CollectorRegistry()
    metrics = Metrics(registry=registry)
    with client(nodes, metrics) as locks:
        with locks.lock("a"):
            pass
        metrics.sample(locks.nodes(), locks.stats())
    done = subprocess.run([PROMTOOL, "check", "metrics"], input=generate_latest(registry), capture_output=True, timeout=30, check=False)
    complaints = [line for line in done.stderr.decode().splitlines() if "_created" not in line and "holdfast_acquire_total" not in line]
    assert complaints == [], done.stderr.decode()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_a_child_holds_nothing_of_its_parent(nodes: Cluster) -> None:
    registry = CollectorRegistry()
    with client(nodes, Metrics(registry=registry)) as locks, locks.lock("parent"):
        until(registry, "holdfast_held", 1, kind="exclusive")
        reading, writing = os.pipe()
        if (child := os.fork()) == 0:
            held = registry.get_sample_value("holdfast_held", {"kind": "exclusive"})
            os.write(writing, str(held).encode())
            os._exit(0)
        os.close(writing)
        assert os.read(reading, 100) == b"None"
        os.close(reading)
        os.waitpid(child, 0)
        assert registry.get_sample_value("holdfast_held", {"kind": "exclusive"}) == 1
