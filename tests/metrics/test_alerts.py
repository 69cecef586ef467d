"""The alert rules, run by Prometheus's own `promtool`: each fires for one series, and just does not for another."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import NamedTuple

import yaml
from cli.health import PAGE
from metrics.prometheus_server import NEEDS_PROMETHEUS, PROMTOOL

from holdfast.metrics import alerts

pytestmark = NEEDS_PROMETHEUS


class Case(NamedTuple):
    """Series that make an alert fire at a moment, and series that nearly do. A value every ten seconds."""

    alert: str
    fires: dict[str, str]
    quiet: dict[str, str]
    at: str


FAILED = 'holdfast_acquire_total{kind="exclusive",outcome="no_quorum"}'
CASES = (
    Case("HoldfastNoQuorum", {'holdfast_quorum_spare{shard=""}': "1 -1x20"}, {'holdfast_quorum_spare{shard=""}': "1 -1 0x20"}, "20s"),
    Case("HoldfastAcquireFails", {FAILED: "_x6 1x20"}, {FAILED: "1x20"}, "90s"),
    Case("HoldfastAcquireFails", {FAILED: "3x6 4x20"}, {'holdfast_acquire_total{kind="exclusive",outcome="busy"}': "0+1x20"}, "80s"),
    Case("HoldfastNoSpareNode", {'holdfast_quorum_spare{shard=""}': "0x60"}, {'holdfast_quorum_spare{shard=""}': "0x28 1 0x30"}, "6m"),
    Case(
        "HoldfastLeaseLost",
        {'holdfast_lost_total{kind="exclusive",reason="expired"}': "0x30 1x30"},
        {'holdfast_lost_total{kind="exclusive",reason="forced"}': "0x30 1x30"},
        "6m",
    ),
    Case(
        "HoldfastLeaseLost",
        {'holdfast_lost_total{kind="exclusive",reason="gap"}': "_x30 1x30"},
        {'holdfast_lost_total{kind="exclusive",reason="gap"}': "3x60"},
        "6m",
    ),
    Case("HoldfastLeaseForced", {"holdfast_forced_total": "0x30 1x30"}, {"holdfast_forced_total": "1x90"}, "6m"),
    Case(
        "HoldfastRenewalsLate",
        {'holdfast_renewals_total{outcome="ok"}': "0+97x180", 'holdfast_renewals_total{outcome="late"}': "0+3x180"},
        {'holdfast_renewals_total{outcome="ok"}': "0+99x180", 'holdfast_renewals_total{outcome="late"}': "0+1x180"},
        "25m",
    ),
    Case(
        "HoldfastMarginThin",
        {'holdfast_renewal_margin_ratio_bucket{le="0.2"}': "0+2x180", "holdfast_renewal_margin_ratio_count": "0+100x180"},
        {'holdfast_renewal_margin_ratio_bucket{le="0.2"}': "0+1x180", "holdfast_renewal_margin_ratio_count": "0+100x180"},
        "25m",
    ),
    Case(
        "HoldfastDangerousNode",
        {'holdfast_warnings_total{about="eviction"}': "_x30 1x60"},
        {'holdfast_warnings_total{about="eviction"}': "1x120"},
        "11m",
    ),
    Case("HoldfastNodeRestarted", {'holdfast_node_guard_seconds{node="a"}': "9"}, {'holdfast_node_guard_seconds{node="a"}': "0"}, "0s"),
    Case(
        "HoldfastClock",
        {'holdfast_node_clock_ahead_seconds{node="a"}': "-2.1x60"},
        {'holdfast_node_clock_ahead_seconds{node="a"}': "2x60"},
        "6m",
    ),
    Case("HoldfastWaitsLong", {"holdfast_longest_wait_seconds": "301x60"}, {"holdfast_longest_wait_seconds": "300x60"}, "6m"),
)


def firing(case: Case, series: dict[str, str], fires: bool) -> dict[str, object]:
    counted = f'count(ALERTS{{alertname="{case.alert}",alertstate="firing"}})'
    return {
        "name": f"{case.alert}: {series}",
        "interval": "10s",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [
            {"expr": counted, "eval_time": case.at, "exp_samples": [{"labels": "{}", "value": 1}] if fires else []},
        ],
    }


def judged(folder: Path, rules: str) -> subprocess.CompletedProcess[str]:
    """What promtool says about all cases."""
    (folder / "alerts.yaml").write_text(rules)
    tests = [firing(case, series, series is case.fires) for case in CASES for series in (case.fires, case.quiet)]
    told = {"rule_files": ["alerts.yaml"], "evaluation_interval": "10s", "tests": tests}
    (folder / "tests.yaml").write_text(yaml.safe_dump(told))
    return subprocess.run([PROMTOOL, "test", "rules", folder / "tests.yaml"], capture_output=True, text=True, timeout=60, check=False)


def test_the_rules_are_valid(tmp_path: Path) -> None:
    (tmp_path / "alerts.yaml").write_text(alerts())
    done = subprocess.run([PROMTOOL, "check", "rules", tmp_path / "alerts.yaml"], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "11 rules found" in done.stdout


def test_each_alert_fires_and_just_does_not(tmp_path: Path) -> None:
    done = judged(tmp_path, alerts())
    assert done.returncode == 0, done.stdout + done.stderr


def outcomes() -> list[tuple[str, str]]:
    """What docs/watching.md says of all faults, and tests/cli/test_health.py sees on real servers: outcome of an acquire, alerts."""
    text = " ".join(PAGE.read_text().split())
    return re.findall(r"an acquire (?:is|raises) (\S+), (.+?) fires?,", text)


def test_of_each_fault_just_the_alerts_fire_that_the_page_names(tmp_path: Path) -> None:
    """With the series that a client makes which asks for a lock twice a second: see `Seen` there."""
    tests = []
    for outcome, named in outcomes():
        away = "NoQuorum" in outcome
        series = {'holdfast_quorum_spare{shard=""}': f"1x5 {-1 if away else 0}x60", FAILED: f"_x5 {'1+2x60' if away else '_x60'}"}
        for alert in ("HoldfastNoQuorum", "HoldfastAcquireFails", "HoldfastNoSpareNode"):
            # Within 15 s of a total outage; a ticket has more time.
            at = "7m" if alert == "HoldfastNoSpareNode" else "65s"
            test = firing(Case(alert, series, {}, at), series, alert in named)
            tests.append({**test, "name": f"{outcome}: {alert}"})
    assert len(tests) == 6
    (tmp_path / "alerts.yaml").write_text(alerts())
    told = {"rule_files": ["alerts.yaml"], "evaluation_interval": "5s", "tests": tests}
    (tmp_path / "tests.yaml").write_text(yaml.safe_dump(told))
    done = subprocess.run([PROMTOOL, "test", "rules", tmp_path / "tests.yaml"], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_rule_has_a_case() -> None:
    rules = yaml.safe_load(alerts())["groups"][0]["rules"]
    assert {rule["alert"] for rule in rules} == {case.alert for case in CASES}
