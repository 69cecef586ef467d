"""Spans and metrics of real clients, as an exporter of OpenTelemetry receives them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from contract.cluster import Cluster
from nemesis.processes import until
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

import holdfast.aio
from holdfast import Holdfast, LockBusy, NoQuorum, otel
from holdfast.embedded import Nodes
from holdfast.metrics.table import ALL
from holdfast.otel import OtelMetrics, Tracing, otel_name


@pytest.fixture(scope="module")
def nodes() -> Iterator[Cluster]:
    with Cluster(Nodes(3)) as them:
        yield them


class Traced:
    """A tracing, and what it has exported."""

    def __init__(self, **options: Any) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.tracing = Tracing(provider=self.provider, **options)
        self.tracer = self.provider.get_tracer("test")

    def client(self, nodes: Cluster, **options: Any) -> Holdfast:
        return Holdfast(*nodes.urls, around=self.tracing, **options)

    def aio(self, nodes: Cluster) -> holdfast.aio.Holdfast:
        return holdfast.aio.Holdfast(*nodes.urls, around=self.tracing)

    def spans(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.exporter.get_finished_spans() if span.name == name]

    def soon(self, name: str) -> ReadableSpan:
        """The first span of this name, which events may end a moment later."""
        found: list[ReadableSpan] = until(lambda: self.spans(name), told=name)
        return found[0]


def about(span: ReadableSpan) -> dict[str, Any]:
    assert span.attributes is not None
    return dict(span.attributes)


def is_child(span: ReadableSpan, parent: ReadableSpan) -> bool:
    assert span.parent is not None
    assert parent.context is not None
    return span.parent.span_id == parent.context.span_id


def test_a_request_is_a_span_in_its_callers_context(nodes: Cluster) -> None:
    traced = Traced()
    with traced.client(nodes) as locks, traced.tracer.start_as_current_span("request"), locks.lock("invoice:42") as lease:
        fence = lease.fence
    (asked,), (request,) = traced.spans("holdfast acquire"), traced.spans("request")
    assert is_child(asked, request)
    assert asked.kind is SpanKind.CLIENT
    told = about(asked)
    assert told.pop("holdfast.votes") >= 2
    assert told.pop("holdfast.waited") >= 0
    assert told == {
        "db.system.name": "redis",
        "holdfast.lock.kind": "exclusive",
        "holdfast.lock.name": "invoice:42",
        "holdfast.lock.names_count": 1,
        "holdfast.outcome": "held",
        "holdfast.fence": str(fence),
        "holdfast.contended": False,
    }


def test_names_can_be_left_out(nodes: Cluster) -> None:
    traced = Traced(record_names=False, hold=True)
    with traced.client(nodes) as locks, locks.lock("secret"):
        pass
    traced.soon("holdfast hold")
    assert not any("secret" in str(about(span)) for span in traced.exporter.get_finished_spans())


def test_busy_is_an_answer_and_no_error(nodes: Cluster) -> None:
    traced = Traced()
    with traced.client(nodes) as locks, locks.lock("busy"):
        with pytest.raises(LockBusy):
            locks.lock("busy", wait=0).acquire()
    _, busy = sorted(traced.spans("holdfast acquire"), key=lambda span: span.start_time or 0)
    assert about(busy)["holdfast.outcome"] == "busy"
    assert busy.status.status_code is StatusCode.UNSET


def test_no_quorum_is_an_error() -> None:
    traced = Traced()
    with Cluster(Nodes(3)) as dying:
        with traced.client(dying, outage=0.2, node_timeout=0.2) as locks:
            for node in range(3):
                dying.nodes.kill(node)
            with pytest.raises(NoQuorum):
                locks.lock("nobody", wait=1).acquire()
    (asked,) = traced.spans("holdfast acquire")
    assert asked.status.status_code is StatusCode.ERROR
    assert about(asked)["error.type"] == "NoQuorum"


def test_a_lease_can_be_a_span(nodes: Cluster) -> None:
    traced = Traced(hold=True)
    with traced.client(nodes) as locks:
        with locks.lock("held", reentrant=True), locks.lock("held", reentrant=True):
            assert traced.spans("holdfast hold") == []
        hold = traced.soon("holdfast hold")
    assert is_child(hold, min(traced.spans("holdfast acquire"), key=lambda span: span.start_time or 0))
    assert len(traced.spans("holdfast hold")) == 1, "a nested use is no other lease"
    assert traced.tracing._leases == {}


@pytest.mark.parametrize("hold", [False, True])
def test_a_loss_is_traced(nodes: Cluster, hold: bool) -> None:
    traced = Traced(hold=hold)
    with traced.client(nodes) as locks:
        lease = locks.lock("forced").acquire()
        locks.force_release("forced", "a test", only=lease.token)
        lost = traced.soon("holdfast hold" if hold else "holdfast lost")
    (asked,) = traced.spans("holdfast acquire")
    assert lost.status.status_code is StatusCode.ERROR
    assert "forced" in str(lost.status.description)
    if hold:
        assert [event.name for event in lost.events] == ["lost"]
        assert is_child(lost, asked)
    else:
        assert asked.context is not None
        assert [link.context.span_id for link in lost.links] == [asked.context.span_id]


def test_the_oldest_leases_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(otel, "_REMEMBERED", 2)
    traced = Traced(hold=True)
    for fence in range(5):
        traced.tracing.begin("exclusive", ["a"]).end("held", {"want": 1, "fence": fence})
    assert (len(traced.spans("holdfast hold")), list(traced.tracing._leases)) == (3, [(1, 3), (1, 4)])


def test_once_fill_and_rate_are_spans(nodes: Cluster) -> None:
    traced = Traced()
    with traced.client(nodes) as locks:
        locks.once("job", keep=60).run(lambda: 1)
        locks.fill("price", 60, lambda: 7).get()
        locks.rate("mails", 2, 60).take()
    assert [about(span)["holdfast.outcome"] for span in traced.exporter.get_finished_spans()] == ["ran", "ran", "allowed"]
    assert [span.name for span in traced.exporter.get_finished_spans()] == ["holdfast once", "holdfast fill", "holdfast rate"]


async def test_tasks_threads_and_decorators_have_their_own_parents(nodes: Cluster) -> None:
    traced = Traced()
    sync = traced.client(nodes)
    async with traced.aio(nodes) as locks:

        @locks.locked("decorated")
        async def decorated() -> None:
            pass

        async def work(name: str, does: Callable[[], Any]) -> None:
            with traced.tracer.start_as_current_span(name):
                await does()

        def blocking() -> None:
            with sync.lock("in a thread"):
                pass

        async def plain() -> None:
            async with locks.lock("plain"):
                pass

        await asyncio.gather(
            work("task", plain),
            work("decorator", decorated),
            work("thread", lambda: asyncio.to_thread(blocking)),
        )
    sync.close()
    parents = {about(span)["holdfast.lock.name"]: span for span in traced.spans("holdfast acquire")}
    for name, parent in {"plain": "task", "decorated": "decorator", "in a thread": "thread"}.items():
        assert is_child(parents[name], traced.spans(parent)[0]), name


async def test_no_span_is_left_after_a_cancelled_wait(nodes: Cluster) -> None:
    traced = Traced(hold=True)
    async with traced.aio(nodes) as locks, locks.lock("held"):
        waiter = asyncio.create_task(locks.lock("held").acquire())
        async with asyncio.timeout(10):
            while locks.stats().waiting == 0:
                await asyncio.sleep(0.005)
        waiter.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiter
        ended = [about(span)["holdfast.outcome"] for span in traced.spans("holdfast acquire")]
        assert sorted(ended) == ["gave_up", "held"]
    traced.soon("holdfast hold")
    assert traced.tracing._leases == {}


def test_the_metrics_are_those_of_the_table(nodes: Cluster) -> None:
    reader = InMemoryMetricReader()
    metrics = OtelMetrics(provider=MeterProvider([reader]))
    with Holdfast(*nodes.urls, observer=metrics) as locks:
        with locks.lock("pair"):
            pass
        locks.ready()
        metrics.sample(locks.nodes(), locks.stats())
        until(lambda: "holdfast.hold.duration" in exported(reader))
        found = exported(reader)
    assert found["holdfast.acquire"] == [({"holdfast.lock.kind": "exclusive", "holdfast.outcome": "held"}, 1)]
    assert found["holdfast.held"] == [({"holdfast.lock.kind": "exclusive"}, 0)]
    assert found["holdfast.quorum.spare"] == [({"holdfast.shard": ""}, 1)]
    assert found.keys() <= {otel_name(metric) for metric in ALL}


def exported(reader: InMemoryMetricReader) -> dict[str, list[tuple[dict[str, Any], Any]]]:
    data = reader.get_metrics_data()
    return {
        metric.name: [(dict(point.attributes), getattr(point, "value", getattr(point, "count", None))) for point in metric.data.data_points]
        for resource in (data.resource_metrics if data else ())
        for scope in resource.scope_metrics
        for metric in scope.metrics
    }


def test_names_are_written_with_dots() -> None:
    names = [otel_name(metric) for metric in ALL]
    assert len(set(names)) == len(names)
    assert {"holdfast.acquire", "holdfast.acquire.wait.duration", "holdfast.node.rtt", "holdfast.renewal.margin"} < set(names)
