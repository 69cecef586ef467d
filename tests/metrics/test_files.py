"""The dashboard and the alert rules speak of metrics and pages that exist."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path
from types import ModuleType

import pytest
import yaml

from holdfast.metrics import alerts, dashboard
from holdfast.metrics.table import ALL

ROOT = Path(__file__).parent.parent.parent


def writer() -> ModuleType:
    spec = importlib.util.spec_from_file_location("grafana", ROOT / "deploy/grafana.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def expressions() -> list[str]:
    """Of all panels and all rules."""
    panels = [target["expr"] for panel in json.loads(dashboard())["panels"] for target in panel.get("targets", ())]
    return panels + [rule["expr"] for rule in yaml.safe_load(alerts())["groups"][0]["rules"]]


def unknown(expression: str) -> list[str]:
    """Names of series in an expression that no metric has."""
    names = {metric.name for metric in ALL}
    names |= {metric.name + ending for metric in ALL if metric.kind == "histogram" for ending in ("_bucket", "_count", "_sum")}
    return [name for name in re.findall(r"holdfast_\w+", expression) if name not in names]


def unlabelled(expression: str) -> list[str]:
    """Labels that an expression asks of a metric that does not have them."""
    labels = {metric.name: {*metric.labels, "job", "instance", "le"} for metric in ALL}
    found = []
    for name, chosen in re.findall(r"(holdfast_\w+)\{([^}]*)\}", expression):
        metric = re.sub(r"_(bucket|count|sum)$", "", name)
        found += [label for label in re.findall(r"(\w+)\s*[=!]~?\"", chosen) if label not in labels[metric]]
    return found


def test_the_dashboard_is_what_its_program_writes() -> None:
    assert dashboard() == writer().text(), "run: python deploy/grafana.py"


def test_every_expression_asks_for_what_there_is() -> None:
    for expression in expressions():
        assert unknown(expression) == []
        assert unlabelled(expression) == []
    assert unknown("rate(holdfast_losts_total[5m])") == ["holdfast_losts_total"], "the check can fail"
    assert unlabelled('holdfast_node_rtt_seconds{kind="read"}') == ["kind"], "the check can fail"


def test_no_panel_has_more_than_eight_lines_of_its_own() -> None:
    panels = json.loads(dashboard())["panels"]
    assert all(len(panel.get("targets", ())) <= 8 for panel in panels)
    assert len({panel["id"] for panel in panels}) == len(panels)


@pytest.mark.parametrize("page", ["watching.md", "errors.md"])
def test_every_alert_is_on_the_pages(page: str) -> None:
    text = (ROOT / "docs" / page).read_text()
    for rule in yaml.safe_load(alerts())["groups"][0]["rules"]:
        assert rule["alert"] in text
        assert rule["annotations"]["runbook"] == f"holdfast/errors#{rule['alert'].lower()}"
        assert re.search(rf"^### {rule['alert']}$", (ROOT / "docs/errors.md").read_text(), re.M)


def test_every_metric_is_on_its_page() -> None:
    text = (ROOT / "docs/watching.md").read_text()
    rows = dict(re.findall(r"^\| (`holdfast_.*?) \| (\w+) \|", text, re.M))
    kinds = {name: kind for names, kind in rows.items() for name in re.findall(r"`(\w+)`", names)}
    assert kinds == {metric.name: metric.kind.replace("updown", "gauge") for metric in ALL}
