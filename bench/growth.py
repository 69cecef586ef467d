"""How cost grows: the same work at several sizes, one axis after the other.

Knows which sizes there are, and which figures are shown over them. Must not know how anything is measured.
"""

from __future__ import annotations

import math
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from . import watching
from .catalogue import Contender, named
from .cluster import Cluster
from .runner import Case, Row

Figures = Mapping[str, Any]  # of a scenario: case, contender, figure: median, spread, rounds


@dataclass(frozen=True)
class Curve:
    """One figure over an axis: drawn in `file`. `grows`: how its growth is told, per unit of the axis (a line), or as a power of it."""

    figure: str
    heading: str
    file: str = ""
    line: str = ""  # what one more costs: "a node"


@dataclass(frozen=True)
class Axis:
    """`sizes`: what is gone through; `case`: the work at one size."""

    name: str
    title: str
    label: str
    sizes: Sequence[float]
    case: Callable[[float], Case]
    curves: Sequence[Curve]

    @property
    def scenario(self) -> str:
        """What it is called among the scenarios."""
        return f"growth-{self.name}"

    def cases(self) -> tuple[Case, ...]:
        """One for each size."""
        shown = tuple((it.figure, it.heading) for it in self.curves)
        return tuple(replace(self.case(size), name=self.of(size), figures=shown) for size in self.sizes)

    def of(self, size: float) -> str:
        """What the case of this size is called."""
        return f"{self.name}: {size:,g}" if size < 1e6 else f"{self.name}: {size:,.0f}"

    def points(self, figures: Figures, contender: str, what: str) -> list[tuple[float, float, float]]:
        """What was measured: size, figure, spread."""
        found = [(size, figures.get(self.of(size), {}).get(contender, {}).get(what)) for size in self.sizes]
        return [(size, it[0], it[1]) for size, it in found if it is not None]


def _pairs(nodes: float, delay: float = 0.0) -> Case:
    wanted = named("holdfast", "holdfast confirmed", "holdfast asyncio confirmed", "floor: sockets, scripts")
    return Case("", "pair", wanted, int(nodes), delay, after=trips)


def trips(row: Row, cluster: Cluster) -> Row:
    """How many round trips an acquire takes, where one was measured."""
    return {"trips": row["acquire"] / 1e6 / row["round_trip"]} if "round_trip" in row else {}


def _waiters(count: float) -> Case:
    wanted = named("holdfast asyncio", "floor: push by hand, asyncio")
    parameters = {"waiters": int(count) + 1, "processes": 1, "hold": 0.001, "think": 0.0}
    return Case("", "handover", wanted, 5, 0, "none", parameters, after=of_servers, seconds=3.0 if count > 100 else 1.0, patience=30)


def of_servers(row: Row, cluster: Cluster) -> Row:
    """Commands a node for each acquisition, and the microseconds of its CPU."""
    return watching.commands_each(row, cluster) | {"server": row["servers_cpu"] / len(cluster.wires) / row["asked"] * 1e6}


def _tasks(count: float) -> Case:
    wanted = named("holdfast asyncio confirmed", "floor: coalescing, scripts")
    parameters, seconds = {"tasks": int(count)}, 2.0 if count > 1000 else None
    return Case("", "many", wanted, 5, 0, "split", parameters, after=_of_pairs, seconds=seconds, patience=40)


def _of_pairs(row: Row, cluster: Cluster) -> Row:
    """The microseconds of a node's CPU for each pair, all that it does included."""
    return {"server": row["servers_cpu"] / len(cluster.wires) / row["count"] * 1e6}


def _ttl(leases: float) -> float:
    """Seconds, of leases that are held in great numbers: so long that renewing them leaves time to acquire more."""
    return 60.0 if leases <= 10_000 else 300.0


def _held(count: float) -> Case:
    wanted, ttl = named("holdfast asyncio"), _ttl(count)
    parameters = {"leases": int(count), "ttl": ttl, "max_ttl": ttl, "together": 1000}
    return Case(
        "", "held", wanted, 3, 0, "split", parameters,
        watch=remembered(ttl / 3),  # in which each is renewed once
        after=_of_each,
        patience=600,
    )  # fmt: skip


def remembered(seconds: float) -> watching.Watch:
    """What the nodes see in so many seconds, and what they keep in memory meanwhile."""

    def watch(process: subprocess.Popen[str], cluster: Cluster) -> Row:
        before = [int(it.info("memory")["used_memory"]) for it in cluster.wires]
        row = watching.counted(seconds, steps=2)(process, cluster)
        after = [int(it.info("memory")["used_memory"]) for it in cluster.wires]
        return row | {"remembered": sorted(now - then for now, then in zip(after, before, strict=True))[len(before) // 2]}

    return watch


def _of_each(row: Row, cluster: Cluster) -> Row:
    """Of each lease: bytes here and on a node, and the microseconds of CPU that a renewal takes here."""
    told = watching.held_seen(row, cluster)
    leases, renewed = row["leases"], told["commands"] * row["watched"]
    if leases >= 1000:  # below that, what was there before is more than what is counted
        told |= {"bytes": row["memory"] * 2**20 / leases, "node_bytes": row["remembered"] / leases}
    return told | ({"renewal": row["cpu"] / 100 * row["watched"] / renewed * 1e6} if renewed else {})


# Of each case: so many leases that a node is busy with them, and its clients are not too busy to renew them.
SHARED = {"leases": 1000, "ttl": 4.0, "max_ttl": 4.0, "together": 100}


def _clients(count: float) -> Case:
    return Case(
        "", "held", named("holdfast asyncio"), 3, 0, "split", SHARED | {"clients": int(count)},
        watch=watching.counted(15.0, steps=2),
        after=_of_renewals,
        patience=60,
    )  # fmt: skip


def _of_renewals(row: Row, cluster: Cluster) -> Row:
    """The microseconds of a node's CPU that a renewal takes, all that it does included, and of its client's."""
    told = watching.held_seen(row, cluster)
    renewed = told["commands"] * row["watched"]
    here = row["cpu"] / 100 * row["watched"]
    return told | {"server": row["worked"] / len(cluster.wires) / renewed * 1e6, "renewal": here / renewed * 1e6}


AXES = {
    it.scenario: it
    for it in (
        Axis(
            "nodes",
            "An uncontended pair over the number of nodes, loopback, one core",
            "nodes",
            (1, 3, 5, 7, 9),
            _pairs,
            (Curve("p50", "pair, µs", "growth-nodes", "a node"), Curve("cpu", "client CPU, µs", "", "a node")),
        ),
        Axis(
            "waiters",
            "Hand-over over the number of those who wait, five nodes",
            "waiters",
            (1, 3, 10, 30, 100, 300, 1000),
            _waiters,
            (
                Curve("p50", "gap, µs", "growth-waiters"),
                Curve("commands", "commands a node"),
                Curve("server", "CPU of a node for each, µs"),
            ),
        ),
        Axis(
            "tasks",
            "Many locks at once over the number of tasks, each with a name of its own, five nodes",
            "tasks",
            (1, 10, 100, 1000, 10000),
            _tasks,
            (
                Curve("cpu", "client CPU of a pair, µs", "growth-tasks"),
                Curve("server", "CPU of a node, µs"),
                Curve("rate", "locks/s"),
                Curve("p50", "pair, µs"),
            ),
        ),
        Axis(
            "delay",
            "An uncontended pair over what is added to each round trip, five nodes",
            "milliseconds more",
            (0, 1, 2, 5, 10),
            lambda ms: _pairs(5, ms),
            (
                Curve("acquire", "acquire, µs", "growth-delay", "a millisecond"),
                Curve("p50", "pair, µs", "", "a millisecond"),
                Curve("trips", "acquire, in round trips"),
            ),
        ),
        Axis(
            "clients",
            "Renewals of 1,000 leases (ttl 4 s) over the number of clients that share them, three nodes",
            "clients",
            (1, 10, 100, 1000),
            _clients,
            (
                Curve("server", "CPU of a node for a renewal, µs", "growth-clients"),
                Curve("renewal", "client CPU of a renewal, µs"),
                Curve("writes", "writes a second and node"),
            ),
        ),
        Axis(
            "names",
            "Leases that are held and renewed (ttl 60 s; 100,000: 300 s), three nodes, over their number",
            "leases",
            (1, 10, 100, 1000, 10_000, 100_000),
            _held,
            (
                Curve("renewal", "CPU of one renewal, µs"),
                Curve("bytes", "bytes of a lease, client"),
                Curve("node_bytes", "bytes of a lease, node"),
            ),
        ),
    )
}


def contenders(axis: Axis) -> tuple[Contender, ...]:
    """Who takes part."""
    return axis.cases()[0].contenders


def line(points: Sequence[tuple[float, float, float]]) -> tuple[float, float]:
    """The straight line that is nearest to all points, in proportion: its value at nought, and what each unit adds."""
    weights = [1 / value**2 for _, value, _ in points]
    total = sum(weights)
    x = sum(w * it[0] for w, it in zip(weights, points, strict=True)) / total
    y = sum(w * it[1] for w, it in zip(weights, points, strict=True)) / total
    spread = sum(w * (it[0] - x) ** 2 for w, it in zip(weights, points, strict=True))
    slope = sum(w * (it[0] - x) * (it[1] - y) for w, it in zip(weights, points, strict=True)) / spread
    return y - slope * x, slope


def power(points: Sequence[tuple[float, float, float]]) -> float:
    """The power of the size with which a figure grows, from the first point to the last: 0 not at all, 1 in proportion."""
    first, last = points[0], points[-1]
    return math.log(last[1] / first[1]) / math.log(last[0] / first[0])
