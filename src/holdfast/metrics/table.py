"""What is measured: each metric with its name, labels and unit, and which events change it.

Knows events, names and numbers. Must not know who measures, or which library exports: Prometheus
and OpenTelemetry get the same metrics from this one table.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

from .. import events

__all__ = ["ALL", "HOLD_BUCKETS", "MARGIN_BUCKETS", "WAIT_BUCKETS", "Metric", "changes"]

# Seconds. A free lock on a local network takes less than one millisecond; a queue may last for minutes.
WAIT_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
# Seconds. From a counter that is incremented to a job of four hours.
HOLD_BUCKETS = (0.001, 0.01, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 1800, 3600, 14400)
# Shares of the ttl. Two thirds are left when a renewal is on time.
MARGIN_BUCKETS = (0.05, 0.1, 0.2, 0.33, 0.5, 0.6, 0.66, 0.9)


class Metric(NamedTuple):
    """One metric.

    Attributes:
        name: Its name for Prometheus. OpenTelemetry has dots in place of underscores.
        kind: "counter" only grows, "updown" is changed by differences, "gauge" is set, "histogram"
            counts observations by size.
        help: What it measures, in one sentence.
        labels: The names of its labels.
        unit: Its unit as OpenTelemetry writes it: "s", "1" for a ratio, or "{lock}".
        buckets: The upper bounds of a histogram's buckets.
        processes: How Prometheus merges a gauge of several processes (`multiprocess_mode`).
        named: Whether it gets the label `name` if the user asked for it with `names=`.
    """

    name: str
    kind: Literal["counter", "updown", "gauge", "histogram"]
    help: str
    labels: tuple[str, ...] = ()
    unit: str = "1"
    buckets: tuple[float, ...] = ()
    processes: Literal["livesum", "livemax", "livemin", "livemostrecent"] = "livesum"
    named: bool = False


ACQUIRE = Metric(
    "holdfast_acquire_total",
    "counter",
    "Requests for a lock that ended, by outcome.",
    ("kind", "outcome"),
    "{request}",
    named=True,
)
WAIT = Metric(
    "holdfast_acquire_wait_seconds",
    "histogram",
    "How long it took until a lock was held.",
    ("kind", "contended"),
    "s",
    WAIT_BUCKETS,
    named=True,
)
HOLD = Metric(
    "holdfast_hold_seconds", "histogram", "How long a lock was held.", ("kind",), "s", HOLD_BUCKETS, named=True
)
HELD = Metric("holdfast_held", "updown", "Locks that are held now.", ("kind",), "{lock}", named=True)
WAITING = Metric("holdfast_waiting", "updown", "Requests that wait now.", ("kind",), "{request}", named=True)
LONGEST_WAIT = Metric(
    "holdfast_longest_wait_seconds",
    "gauge",
    "How long the oldest request has waited so far.",
    unit="s",
    processes="livemax",
)
LOST = Metric(
    "holdfast_lost_total", "counter", "Leases that were lost, by reason.", ("kind", "reason"), "{lock}", named=True
)
RENEWALS = Metric(
    "holdfast_renewals_total", "counter", "Renewals that were confirmed, or late.", ("outcome",), "{renewal}"
)
MARGIN = Metric(
    "holdfast_renewal_margin_ratio",
    "histogram",
    "The share of its time that a lease had left when its renewal was confirmed.",
    buckets=MARGIN_BUCKETS,
)
OPENED = Metric("holdfast_opened_total", "counter", "Bodies that ran without their lock (fail_open).", unit="{lock}")
FORCED = Metric("holdfast_forced_total", "counter", "Locks that an operator took away.", unit="{lock}")
NODE_UP = Metric(
    "holdfast_node_up", "gauge", "1 if the node is in use, 0 if not.", ("node", "shard"), processes="livemostrecent"
)
NODE_GUARD = Metric(
    "holdfast_node_guard_seconds",
    "gauge",
    "Seconds until a node that restarted is used again.",
    ("node",),
    "s",
    processes="livemostrecent",
)
NODE_RTT = Metric(
    "holdfast_node_rtt_seconds",
    "gauge",
    "The mean time that the node took for its last answers.",
    ("node",),
    "s",
    processes="livemostrecent",
)
NODE_CLOCK = Metric(
    "holdfast_node_clock_ahead_seconds",
    "gauge",
    "The node's clock less this process's clock.",
    ("node",),
    "s",
    processes="livemostrecent",
)
NODE_DOWN = Metric("holdfast_node_down_total", "counter", "How often the node went down.", ("node",), "{time}")
QUORUM_SPARE = Metric(
    "holdfast_quorum_spare",
    "gauge",
    "Nodes in use less a majority: how many more may fail. Below 0 no lock can be acquired.",
    ("shard",),
    "{node}",
    processes="livemin",
)
WARNINGS = Metric(
    "holdfast_warnings_total", "counter", "Dangers that were reported about nodes, by kind.", ("about",), "{warning}"
)
RATE = Metric("holdfast_rate_total", "counter", "Decisions of rate limits.", ("outcome",), "{call}")
SERVED = Metric(
    "holdfast_served_total",
    "counter",
    "Results of `once` and `fill`, by how the caller got them.",
    ("kind", "how"),
    "{call}",
    named=True,
)
BUILD = Metric("holdfast_build_info", "gauge", "The version of holdfast.", ("version",), processes="livemax")

# All of the above, in this order.
ALL = tuple(it for it in list(globals().values()) if isinstance(it, Metric))


def changes(event: events.Event) -> Iterator[tuple[Any, ...]]:
    """Yield each metric that an event changes, with the value and those of its labels.

    The label `name` is not among them, because the user says what it is.

    Args:
        event: What happened.
    """
    match event:
        case events.Attempt():
            yield WAITING, 1, event.kind
        case events.Acquired():
            yield WAITING, -1, event.kind
            yield HELD, 1, event.kind
            yield ACQUIRE, 1, event.kind, "held"
            yield WAIT, event.waited, event.kind, "yes" if event.contended else "no"
        case events.Renewed():
            yield RENEWALS, 1, "ok"
            yield MARGIN, max(0.0, event.left) / event.remaining
        # A discarded lease is held until it is lost.
        case events.Ended() if event.how != "discarded":
            yield HELD, -1, event.kind
            yield HOLD, event.held, event.kind
            if event.how == "lost":
                yield LOST, 1, event.kind, event.reason
        case events.Refused():
            yield WAITING, -1, event.kind
            yield ACQUIRE, 1, event.kind, event.outcome
        case events.Doubt():
            yield RENEWALS, 1, "late"
        case events.Opened():
            yield OPENED, 1
        case events.Forced():
            yield FORCED, 1
        case events.NodeEvent(state="down"):
            yield NODE_DOWN, 1, event.node
        case events.NodeEvent(state="warned"):
            yield WARNINGS, 1, event.about
        case events.Called(kind="rate"):
            yield RATE, 1, event.how
        case events.Called(kind="once" | "fill"):
            yield SERVED, 1, event.kind, event.how
