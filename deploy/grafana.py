"""Writes the dashboard for Grafana that comes with holdfast: python deploy/grafana.py

The dashboard is a table of panels here, because the JSON that Grafana reads repeats itself. A test
compares the file with what this program writes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

FILE = Path(__file__).parent.parent / "src/holdfast/metrics/grafana.json"
SOURCE = {"type": "prometheus", "uid": "${DS_PROMETHEUS}"}
# The columns of Grafana's grid, and the height of a panel in its units.
COLUMNS, HEIGHT = 24, 8
CHOSEN = 'job=~"$job",instance=~"$instance"'
KIND = f'{CHOSEN},kind=~"$kind"'


class Panel(NamedTuple):
    """One panel.

    Attributes:
        title: What it answers.
        says: What a reader should know about it.
        lines: The expressions, each with the legend of its lines.
        unit: Grafana's name of the unit.
        shape: "timeseries", "stat" or "heatmap".
        steps: From which values on it is green, orange or red, if that can be said.
    """

    title: str
    says: str
    lines: Mapping[str, str]
    unit: str = "short"
    shape: str = "timeseries"
    steps: Sequence[tuple[float | None, str]] = ((None, "green"),)


def rated(metric: str, by: str, where: str = KIND) -> str:
    return f"sum by ({by}) (rate({metric}{{{where}}}[$__rate_interval]))"


def quantile(of: float, metric: str, by: str) -> str:
    return f"histogram_quantile({of}, {rated(metric + '_bucket', f'le, {by}')})"


ROWS: Mapping[str, Sequence[Panel]] = {
    "Is it safe?": (
        Panel(
            "Nodes that may still fail",
            "Nodes in use less a majority, seen by the client that sees the fewest. Below 0 no lock can be acquired.",
            {f"min by (shard) (holdfast_quorum_spare{{{CHOSEN}}})": "{{shard}}"},
            shape="stat",
            steps=((None, "red"), (0, "orange"), (1, "green")),
        ),
        Panel(
            "Nodes that restarted: seconds until they are used again",
            "A node that restarted may have forgotten leases. It is used again when every such lease has ended.",
            {f"max by (node) (holdfast_node_guard_seconds{{{CHOSEN}}})": "{{node}}"},
            "s",
        ),
        Panel(
            "Leases lost, by reason",
            "Each of them may have let two programs work at once for a moment. `forced` and `max_hold` are intended.",
            {f"sum by (reason) (increase(holdfast_lost_total{{{KIND}}}[$__rate_interval]))": "{{reason}}"},
        ),
        Panel(
            "What leases had left when they were renewed",
            "The share of the ttl. Two thirds are usual; what comes near 0 is lost soon.",
            {f"sum by (le) (increase(holdfast_renewal_margin_ratio_bucket{{{CHOSEN}}}[$__rate_interval]))": "{{le}}"},
            "percentunit",
            "heatmap",
        ),
    ),
    "Is it quick?": (
        Panel(
            "Waiting time of free locks",
            "Half of the requests (p50) and 99 in 100 (p99) had the lock within this time. Nobody else held it.",
            {
                f"histogram_quantile({of}, "
                + rated("holdfast_acquire_wait_seconds_bucket", "le", f'{KIND},contended="no"')
                + ")": name
                for of, name in ((0.5, "p50"), (0.99, "p99"))
            },
            "s",
        ),
        Panel(
            "Waiting time of locks that somebody held",
            "As before, for requests that found the lock held or wanted.",
            {
                f"histogram_quantile({of}, "
                + rated("holdfast_acquire_wait_seconds_bucket", "le", f'{KIND},contended="yes"')
                + ")": name
                for of, name in ((0.5, "p50"), (0.99, "p99"))
            },
            "s",
        ),
        Panel(
            "Round trip to each node",
            "The mean over a client's last answers; the median of all clients.",
            {f"quantile by (node) (0.5, holdfast_node_rtt_seconds{{{CHOSEN}}})": "{{node}}"},
            "s",
        ),
        Panel(
            "Requests that wait, and the longest wait",
            "How many wait now; and how long the oldest one has waited, in seconds.",
            {
                f"sum by (kind) (holdfast_waiting{{{KIND}}})": "{{kind}} waiting",
                f"max(holdfast_longest_wait_seconds{{{CHOSEN}}})": "longest wait (s)",
            },
        ),
    ),
    "Who works?": (
        Panel("Locks that are held", "By kind.", {f"sum by (kind) (holdfast_held{{{KIND}}})": "{{kind}}"}),
        Panel(
            "Requests per second, by outcome",
            "`busy` is an answer, `no_quorum` is an outage. With `fail_open`, bodies run without their lock.",
            {
                rated("holdfast_acquire_total", "outcome"): "{{outcome}}",
                f"sum(rate(holdfast_opened_total{{{CHOSEN}}}[$__rate_interval]))": "ran without its lock",
            },
            "reqps",
        ),
        Panel(
            "How long locks are held",
            "Half of the leases (p50) and 99 in 100 (p99), by kind.",
            {
                quantile(0.5, "holdfast_hold_seconds", "kind"): "{{kind}} p50",
                quantile(0.99, "holdfast_hold_seconds", "kind"): "{{kind}} p99",
            },
            "s",
        ),
        Panel(
            "Rate limits, once and cached values",
            "Decisions of rate limits, and how callers got the results of `once` and `fill`, per second.",
            {
                rated("holdfast_rate_total", "outcome", CHOSEN): "rate: {{outcome}}",
                rated("holdfast_served_total", "kind, how"): "{{kind}}: {{how}}",
            },
            "ops",
        ),
    ),
    "The nodes": (
        Panel(
            "Nodes in use",
            "The share of the clients that use the node.",
            {f"avg by (node) (holdfast_node_up{{{CHOSEN}}})": "{{node}}"},
            "percentunit",
        ),
        Panel(
            "Clocks of the nodes",
            "The node's clock less the client's. At a quarter of the guard the node is no longer used.",
            {f"avg by (node) (holdfast_node_clock_ahead_seconds{{{CHOSEN}}})": "{{node}}"},
            "s",
        ),
        Panel(
            "How often nodes went down",
            "Counted by every client.",
            {f"sum by (node) (increase(holdfast_node_down_total{{{CHOSEN}}}[$__rate_interval]))": "{{node}}"},
        ),
        Panel(
            "Renewals that were late, and warnings",
            "The share of renewals that were not confirmed in time, and warnings about nodes by kind.",
            {
                f'sum(rate(holdfast_renewals_total{{{CHOSEN},outcome="late"}}[$__rate_interval]))'
                f" / sum(rate(holdfast_renewals_total{{{CHOSEN}}}[$__rate_interval]))": "late renewals",
                f"sum by (about) (increase(holdfast_warnings_total{{{CHOSEN}}}[$__rate_interval]))": "{{about}}",
            },
        ),
    ),
}


def panel(it: Panel, number: int, x: int, y: int, width: int) -> dict[str, Any]:
    thresholds = {"mode": "absolute", "steps": [{"color": color, "value": value} for value, color in it.steps]}
    heat = it.shape == "heatmap"
    targets = [
        {
            "datasource": SOURCE,
            "expr": expression,
            "legendFormat": legend,
            "refId": chr(ord("A") + at),
            "format": "heatmap" if heat else "time_series",
        }
        for at, (expression, legend) in enumerate(it.lines.items())
    ]
    told: dict[str, Any] = {
        "id": number,
        "type": it.shape,
        "title": it.title,
        "description": it.says,
        "datasource": SOURCE,
        "gridPos": {"x": x, "y": y, "w": width, "h": HEIGHT},
        "targets": targets,
        "fieldConfig": {"defaults": {"unit": it.unit, "thresholds": thresholds}, "overrides": []},
    }
    if heat:
        told["options"] = {"calculate": False, "yAxis": {"unit": it.unit}, "color": {"scheme": "Oranges", "mode": "scheme"}}
    return told


def panels() -> Iterator[dict[str, Any]]:
    number, y = 1, 0
    for title, them in ROWS.items():
        where = {"x": 0, "y": y, "w": COLUMNS, "h": 1}
        yield {"id": number, "type": "row", "title": title, "collapsed": False, "panels": [], "gridPos": where}
        number, y = number + 1, y + 1
        width = COLUMNS // len(them)
        for at, it in enumerate(them):
            yield panel(it, number, at * width, y, width)
            number += 1
        y += HEIGHT


def variable(name: str, metric: str, where: str) -> dict[str, Any]:
    asked = f"label_values({metric}{{{where}}}, {name})"
    return {
        "name": name,
        "type": "query",
        "datasource": SOURCE,
        "query": {"query": asked, "refId": name},
        "definition": asked,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
        "refresh": 2,
        "sort": 1,
    }


def dashboard() -> dict[str, Any]:
    source = {"name": "DS_PROMETHEUS", "label": "Prometheus"}
    return {
        "__inputs": [{**source, "type": "datasource", "pluginId": "prometheus", "pluginName": "Prometheus"}],
        "__requires": [{"type": "grafana", "id": "grafana", "name": "Grafana", "version": "10.0.0"}],
        "uid": "holdfast",
        "title": "holdfast: distributed locks",
        "tags": ["holdfast", "locks"],
        "schemaVersion": 38,
        "version": 1,
        "editable": True,
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {
            "list": [
                variable("job", "holdfast_build_info", ""),
                variable("instance", "holdfast_build_info", 'job=~"$job"'),
                variable("kind", "holdfast_held", 'job=~"$job"'),
            ]
        },
        "panels": list(panels()),
    }


def text() -> str:
    return json.dumps(dashboard(), indent=1) + "\n"


if __name__ == "__main__":
    FILE.write_text(text())
    print(f"{FILE.name}: {sum(it['type'] != 'row' for it in dashboard()['panels'])} panels")
