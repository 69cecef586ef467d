"""The bench, without its speeds: are figures what they say, do bars and pages name what is measured, would nonsense be noticed?

That every contender runs, and excludes, is what `./task bench --quick` checks in CI.
"""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from bench import (  # noqa: E402  (after its place is known)
    bars,
    catalogue,
    cluster,
    environments,
    figures,
    growth,
    quick,
    report,
    runner,
    scenarios,
    watching,
)
from bench.figures import Round, Rounds  # noqa: E402 (after its place is known)
from bench.work import handover  # noqa: E402 (after its place is known)

pytestmark = pytest.mark.slow

CASES = {case.name: case for scenario in scenarios.ALL.values() for case in scenario.cases}


def rows(*figures: tuple[str, int, float]) -> Rounds:
    """Of (contender, round, p50)."""
    return Rounds([{"case": "c", "contender": who, "round": round_, "p50": value} for who, round_, value in figures])


# ------------------------------------------------ figures


def test_a_figure_is_the_median_with_its_spread() -> None:
    figure = rows(("ours", 0, 10.0), ("ours", 1, 40.0), ("ours", 2, 20.0)).figure("c", "ours", "p50")
    assert figure == figures.Figure(20.0, 1.5, 3)
    assert rows().figure("c", "ours", "p50") is None


# ------------------------------------------------ bars


@pytest.mark.parametrize(
    "least, value, spread, outcome",
    [
        (False, 1.0, 0.0, "met"),
        (False, 1.1, 0.0, "missed"),
        (True, 1.0, 0.0, "met"),
        (True, 0.9, 0.0, "missed"),
        (False, 0.9, 0.1, "met"),
        (False, 0.9, 1.0, "within noise"),
        (False, 1.1, 0.5, "within noise"),
        (True, 0.9, 0.5, "within noise"),
        (False, 0.0, 0.0, "met"),
    ],
)
def test_a_bar_is_met_or_missed_or_nobody_can_tell(least: bool, value: float, spread: float, outcome: str) -> None:
    assert bars.outcome(value, spread, 1.0, least=least) == outcome


class Watchful(Round):
    """Says which figures a bar asks for that nobody measures."""

    def __init__(self, complaints: list[str]) -> None:
        self.complaints = complaints

    def __call__(self, case: str, contender: str, what: str) -> float:
        if case not in CASES:
            self.complaints.append(f"there is no case {case!r}")
        elif contender not in {it.name for it in CASES[case].contenders}:
            self.complaints.append(f"{contender!r} takes no part in {case!r}")
        elif what not in {name for name, _ in CASES[case].figures or report.FIGURES[CASES[case].work]}:
            self.complaints.append(f"{CASES[case].work} has no figure {what!r}")
        return 1.0

    def least(self, case: str, contenders: Iterable[str], what: str) -> float:
        return min([self(case, it, what) for it in contenders])


def unmeasured(every: Iterable[bars.Bar]) -> list[str]:
    complaints: list[str] = []
    for bar in every:
        bar.figure(Watchful(complaints))
        if bar.scenario not in scenarios.ALL:
            complaints.append(f"there is no scenario {bar.scenario!r}")
    return complaints


def test_every_bar_asks_for_what_is_measured() -> None:
    assert unmeasured(bars.ALL) == []


# ------------------------------------------------ contenders


def test_every_adapter_and_every_environment_is_there() -> None:
    for it in catalogue.ALL:
        assert (environments.MADE / f"{it.environment}.txt").exists()
        if it.face != catalogue.C:
            place, _, name = it.adapter.partition(":")
            module = ast.parse((ROOT / "bench" / f"{place.replace('.', '/')}.py").read_text())
            assert name in {node.name for node in module.body if isinstance(node, ast.ClassDef)}, it


def test_every_contender_takes_part_in_the_quick_check() -> None:
    assert {contender.name for _, contender in quick.jobs()} >= {it.name for it in catalogue.ALL}
    fought = {contender.name for case, contender in quick.jobs() if case.work == "handover"}
    assert fought >= {it.name for it in catalogue.ALL if it.kind != catalogue.FLOOR}


# ------------------------------------------------ hand-over


def sections(*turns: tuple[int, float]) -> handover.Log:
    """Of (who, when asked): each gets it 1 ms after the one before, and holds it for 1 ms."""
    return [(asked, 10 + 0.002 * i, 10 + 0.002 * i + 0.001, who) for i, (who, asked) in enumerate(turns)]


def test_hand_over_by_turns() -> None:
    log = sections(*[(i % 4, 9.0 + i / 1000) for i in range(40)])
    told = handover.figures(log, 3, ["evalsha"], 0.0, 4)
    assert told["p50"] == pytest.approx(1000, rel=1e-3)
    assert (told["overtaken"], told["unserved"], told["changes"], told["asked"]) == (0, 0, 1.0, 43)
    assert told["jain"] == pytest.approx(1.0, abs=0.01)


def test_two_holders_at_once_end_the_run() -> None:
    log = sections((0, 9.0), (1, 9.0), (2, 9.0))
    log[1] = (9.0, log[0][2] - 0.0001, log[1][2], 1)
    with pytest.raises(SystemExit, match="two holders at once, 1 times"):
        handover.figures(log, 0, [], 0.0, 3)


# ------------------------------------------------ persistence


def configured(nodes: cluster.Cluster) -> list[tuple[str, str]]:
    """What each node says of its append-only file."""
    options = (b"appendonly", b"appendfsync")
    said = [[wire.say(b"CONFIG", b"GET", it)[1].decode() for it in options] for wire in nodes.all]
    return [(whether, when) for whether, when in said]


def test_a_third_of_the_nodes_writes_nothing_a_third_each_second_and_a_third_always() -> None:
    waits = [sys.executable, "-c", "print('ready', flush=True); input()"]
    pipe = subprocess.PIPE
    with cluster.Cluster(3) as nodes, subprocess.Popen(waits, stdin=pipe, stdout=pipe, text=True) as process:
        watching.persisting(process, nodes)
        process.communicate(timeout=30)
        assert process.returncode == 0, "it was not sent on"
        assert [whether for whether, _ in configured(nodes)] == ["no", "yes", "yes"]
        assert [when for _, when in configured(nodes)][1:] == ["everysec", "always"]
        assert watching.disk({}, nodes)["fsync"] > 0


def untrue(operations: str, sources: str, told: dict[str, dict[str, list[float]]]) -> list[str]:
    """What the pages say of persistence, and was not measured."""
    found = []
    for kind in ("everysec", "always"):
        [row] = re.findall(rf"^.*`appendfsync {kind}` \|.*$", operations, re.MULTILINE)
        for what, said in zip(("pair", "once"), row.split(" | ")[2:], strict=True):
            factor = said.split()[0]
            # "1.1" stands for 1.0 to 1.2, and "3" for 2.5 to 3.5.
            slack = 0.1 if "." in factor else 0.5
            measured = [it[f"{what}_{kind}"][0] for it in told.values()]
            if not all(float(factor) - slack <= it <= float(factor) + slack for it in measured):
                found.append(f"{what}, {kind}: {said.strip(' |')}, but it was {measured}")
    [pair] = re.findall(r"`appendfsync always` \|[^|]*\| ([^|]*?) as long", operations)
    return found if f"takes {pair} as long" in sources else [*found, "docs/sources.md says something else"]


def test_what_is_said_of_persistence_is_what_was_measured() -> None:
    results = json.loads((ROOT / "docs/performance.json").read_text())["scenarios"]
    told = results["persistence"]["figures"]["persistence, 5 nodes"]
    operations, sources = (ROOT / "docs/nodes.md").read_text(), (ROOT / "docs/sources.md").read_text()
    assert untrue(operations, sources, told) == []
    assert len(untrue(operations.replace("4 times", "6 times"), sources, told)) == 2
    assert len(untrue(operations.replace("1.1 times", "1.5 times"), sources, told)) == 2
    assert untrue(operations, sources.replace("4 times", "3 times"), told) == ["docs/sources.md says something else"]


# ------------------------------------------------ pages


def test_the_page_is_what_its_results_make_it() -> None:
    page, results = (ROOT / "docs/performance.md").read_text(), json.loads((ROOT / "docs/performance.json").read_text())
    assert report.rewritten(page, results) == page  # nobody has changed a figure by hand
    changed = page.replace(", by ", ", not by ", 1)
    assert changed != page
    assert report.rewritten(changed, results) == page


def test_a_table_has_its_figures_and_a_missed_bar_says_by_how_much() -> None:
    row = {"case": "server time, request", "contender": "scripts request", "round": 0, "p50": 24.0, "neighbours": 0.5}
    plain = row | {"contender": "plain request", "p50": 2.0}
    made = {"command": "./task bench", "when": "today", "rounds": 1, "machine": "this"}
    told = report.summary([row, plain], scenarios.SERVER, made)
    assert ["scripts request", "24.0"] in report.table(scenarios.ALL["server"], told, "server time, request")
    new = report.rewritten("<!-- bench: missed -->\nold\n<!-- bench: end -->\n", {"scenarios": {"server": told}})
    assert "old" not in new
    assert "- request on a free name / SET NX PX: 12.0 (≤ 11.0), by 9%" in new


# ------------------------------------------------ growth


def test_all_sizes_of_an_axis_are_one_table_with_what_each_costs_more() -> None:
    axis = growth.AXES["growth-nodes"]
    rows_ = [
        {"case": axis.of(size), "contender": "holdfast", "round": 0, "p50": 10.0 + 5 * size, "cpu": 4.0 * size, "neighbours": 0.0}
        for size in axis.sizes
    ]
    told = report.summary(
        rows_, scenarios.ALL["growth-nodes"], {"command": "./task bench growth", "when": "today", "rounds": 1, "machine": "this"}
    )
    rows = report.over(axis, told["figures"])
    assert rows[0] == ["nodes", "holdfast: pair, µs", "holdfast: client CPU, µs"]
    assert rows[-1] == ["9", "55.0", "36.0"]
    slopes = report.slopes(axis, told["figures"])
    assert slopes == "- holdfast, pair, µs: 10.0, and 5.00 a node\n- holdfast, client CPU, µs: 0, and 4.00 a node"
    assert axis.points(told["figures"], "nobody", "p50") == []


def test_every_axis_takes_part_in_the_quick_check() -> None:
    tried = {case.name.partition(":")[0] for case, _ in quick.jobs()}
    assert tried >= {it.name for it in growth.AXES.values()}
    row = {"cpu": 1.0, "lost": 0}
    assert quick.complaint(runner.Case("names: 1,000", "held", ()), row) == "a lease has None bytes on a node"
    assert quick.complaint(runner.Case("names: 1,000", "held", ()), row | {"node_bytes": 300.0}) is None
