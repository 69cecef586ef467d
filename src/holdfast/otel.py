"""Traces and metrics for OpenTelemetry.

Needs the extra `holdfast[otel]`, which brings the API only: without an SDK that your application
sets up, nothing is recorded. Knows events, outcomes and the API of OpenTelemetry. Must not know the
protocol, or how clients talk to nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

try:
    from opentelemetry import metrics, trace
    from opentelemetry.metrics import Counter, Histogram, Meter, MeterProvider, UpDownCounter
    from opentelemetry.trace import Link, Span, SpanContext, SpanKind, Status, StatusCode, TracerProvider
except ImportError as missing:
    raise ImportError(
        'holdfast.otel needs the API of OpenTelemetry: pip install "holdfast[otel]"', name="opentelemetry"
    ) from missing

from . import events
from .metrics.table import ALL, Metric
from .metrics.tally import Change, MetricTally
from .version import VERSION

__all__ = ["OtelMetrics", "Tracing"]

# As many leases can be held before the oldest is forgotten: its loss is then a span without a link.
_REMEMBERED = 10_000
_NAMES = {"kind": "holdfast.lock.kind", "name": "holdfast.lock.name"}


class OtelMetrics(MetricTally):
    """Metrics for OpenTelemetry: an observer for `Holdfast(observer=…)`.

    They are those of `holdfast.metrics.Metrics`, with dots in their names.

    Args:
        provider: Where the metrics go. Default: the global provider.
        names: From the name of a lock to the attribute `holdfast.lock.name`. Default: no such
            attribute, because each different value would be a time series.
        most: How many different values of that attribute may appear. Further ones are "other".
            Default: 50.

    Raises:
        ValueError: `most` is less than 1.
    """

    def __init__(
        self, *, provider: MeterProvider | None = None, names: Callable[[str], str] | None = None, most: int = 50
    ) -> None:
        meter = (provider or metrics.get_meter_provider()).get_meter("holdfast", VERSION)
        self._instruments = {metric.name: _instrument(meter, metric) for metric in ALL}
        super().__init__(names, most)

    def _bind(self, metric: Metric, labels: dict[str, str]) -> Change:
        instrument = self._instruments[metric.name]
        attributes = {_NAMES.get(label, f"holdfast.{label}"): value for label, value in labels.items()}
        match instrument:
            case Counter() | UpDownCounter():
                return partial(instrument.add, attributes=attributes)
            case Histogram():
                return partial(instrument.record, attributes=attributes)
            case _:
                return partial(instrument.set, attributes=attributes)


def otel_name(metric: Metric) -> str:
    """Return the name of a metric as OpenTelemetry writes names.

    Args:
        metric: A metric of the table.

    Returns:
        The name: without what Prometheus writes for units and totals, and with dots.
    """
    name = metric.name.removesuffix("_total").removesuffix("_ratio")
    if name.endswith("_seconds"):
        name = name.removesuffix("_seconds") + ("_duration" if metric.kind == "histogram" else "")
    return name.replace("_", ".")


def _instrument(meter: Meter, metric: Metric) -> Any:
    name = otel_name(metric)
    match metric.kind:
        case "counter":
            return meter.create_counter(name, metric.unit, metric.help)
        case "updown":
            return meter.create_up_down_counter(name, metric.unit, metric.help)
        case "histogram":
            buckets = list(metric.buckets)
            return meter.create_histogram(name, metric.unit, metric.help, explicit_bucket_boundaries_advisory=buckets)
        case "gauge":
            return meter.create_gauge(name, metric.unit, metric.help)


class Tracing:
    """Spans for OpenTelemetry: `Holdfast(around=Tracing())`.

    The client also calls it as an observer, so that it traces losses.

    Args:
        provider: Where the spans go. Default: the global provider.
        hold: Whether each lease is a span of its own, from held to released. Default: no. Such a
            span stays open for as long as the lock is held.
        record_names: Whether spans have the names of locks. Default: yes.
    """

    def __init__(
        self, *, provider: TracerProvider | None = None, hold: bool = False, record_names: bool = True
    ) -> None:
        self._tracer = (provider or trace.get_tracer_provider()).get_tracer("holdfast", VERSION)
        self._hold = hold
        self._record_names = record_names
        # By the number of the acquisition and its fence: the span that asked for it, and the span
        # that holds it.
        self._leases: dict[tuple[int, int], tuple[SpanContext, Span | None]] = {}

    def begin(self, kind: str, names: Sequence[str]) -> _Scope:
        """Begin a span in the caller's thread or task. holdfast calls this.

        Args:
            kind: What is asked for, such as "exclusive" or "rate".
            names: The names that it is asked for.

        Returns:
            What holdfast tells the end.
        """
        told: dict[str, Any] = {
            "db.system.name": "redis",
            "holdfast.lock.kind": kind,
            "holdfast.lock.names_count": len(names),
        }
        if self._record_names:
            told["holdfast.lock.name"] = ", ".join(names)
        doing = kind if kind in ("once", "fill", "rate") else "acquire"
        return _Scope(self, self._tracer.start_span(f"holdfast {doing}", kind=SpanKind.CLIENT, attributes=told), told)

    def __call__(self, event: events.Event) -> None:
        """End the span of a lease, or trace its loss. This is what makes it an observer.

        Args:
            event: What happened.
        """
        if not isinstance(event, events.Ended) or event.how == "discarded":
            return
        asked, held = self._leases.pop((event.want, event.fence), (None, None))
        if event.how == "lost":
            self._lost(event, asked, held)
        if held is not None:
            held.end()

    def _lost(self, event: events.Ended, asked: SpanContext | None, held: Span | None) -> None:
        told: dict[str, Any] = {
            "holdfast.reason": event.reason,
            "holdfast.lock.kind": event.kind,
            "holdfast.fence": str(event.fence),
        }
        if self._record_names:
            told["holdfast.lock.name"] = event.name
        error = Status(StatusCode.ERROR, f"the lease was lost: {event.reason}")
        if held is not None:
            held.add_event("lost", told)
            held.set_status(error)
            return
        links = [] if asked is None else [Link(asked)]
        span = self._tracer.start_span("holdfast lost", links=links, attributes=told)
        span.set_status(error)
        span.end()

    def held(self, lease: tuple[int, int], asked: Span, told: Mapping[str, Any]) -> None:
        """Remember a lease until an event says that it has ended.

        Args:
            lease: The number of the acquisition, and its fence.
            asked: The span of the request.
            told: The attributes of that span.
        """
        # A nested use of a lease is no other lease.
        if lease in self._leases:
            return
        held = None
        if self._hold:
            context = trace.set_span_in_context(asked)
            held = self._tracer.start_span("holdfast hold", context=context, attributes=dict(told))
        self._leases[lease] = (asked.get_span_context(), held)
        if len(self._leases) > _REMEMBERED:
            _, oldest = self._leases.pop(next(iter(self._leases)))
            if oldest is not None:
                oldest.end()


class _Scope:
    """The span of one call."""

    __slots__ = ("_span", "_told", "_tracing")

    def __init__(self, tracing: Tracing, span: Span, told: dict[str, Any]) -> None:
        self._tracing = tracing
        self._span = span
        self._told = told

    def end(self, outcome: str, facts: Mapping[str, Any]) -> None:
        """End the span.

        Args:
            outcome: How the call ended, in one word.
            facts: What is known by then.
        """
        span = self._span
        span.set_attribute("holdfast.outcome", outcome)
        for fact in ("contended", "votes", "waited", "retry_after"):
            if fact in facts:
                span.set_attribute(f"holdfast.{fact}", facts[fact])
        if outcome == "held":
            # A fence has more digits than a number of JSON keeps.
            span.set_attribute("holdfast.fence", str(facts["fence"]))
            self._tracing.held((facts["want"], facts["fence"]), span, self._told)
        error = facts.get("error")
        # A busy lock is an answer. What the body of a `once` raises is shown, too.
        if error is not None and outcome not in ("busy", "gave_up"):
            span.set_attribute("error.type", type(error).__qualname__)
            span.set_status(Status(StatusCode.ERROR, type(error).__qualname__))
        span.end()
