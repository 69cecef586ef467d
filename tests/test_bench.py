"""The bench, without its speeds: are figures what they say, do bars and pages name what is measured, would nonsense be noticed?

That every contender runs, and excludes, is what `./task bench --quick` checks in CI.
"""

from __future__ import annotations

import ast
import json
import re
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

HAS_C = pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler (CI has one)")
ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from bench import (  # noqa: E402  (after its place is known)
    bars,
    catalogue,
    cluster,
    delay,
    environments,
    figures,
    growth,
    plot,
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


def test_a_ratio_is_taken_within_a_round() -> None:
    told = rows(("ours", 0, 10.0), ("theirs", 0, 20.0), ("ours", 1, 100.0), ("theirs", 1, 200.0), ("ours", 2, 1.0))
    ratios = bars._each(bars._over("c", "ours", "theirs"), told)
    assert ratios == [0.5, 0.5]  # the last round has nothing to compare with


def test_a_figure_is_the_median_with_its_spread() -> None:
    figure = rows(("ours", 0, 10.0), ("ours", 1, 40.0), ("ours", 2, 20.0)).figure("c", "ours", "p50")
    assert figure == figures.Figure(20.0, 1.5, 3)
    assert rows().figure("c", "ours", "p50") is None


def test_rows_with_an_error_have_no_figures() -> None:
    told = Rounds([{"case": "c", "contender": "ours", "round": 0, "error": "hung", "p50": 1.0}])
    assert told.figure("c", "ours", "p50") is None
    assert told.each() == []


def test_the_best_of_several_is_of_those_that_were_measured() -> None:
    [round_] = rows(("a", 0, 3.0), ("b", 0, 2.0)).each()
    assert round_.least("c", ("a", "b", "nobody"), "p50") == 2.0
    with pytest.raises(LookupError):
        round_.least("c", ("nobody",), "p50")


@pytest.mark.parametrize(
    "value, text", [(0.0, "0"), (0.00123, "1.2e-03"), (0.0833, "0.0833"), (1.25, "1.25"), (12.34, "12.3"), (1234567.0, "1,234,567")]
)
def test_numbers_are_short(value: float, text: str) -> None:
    assert figures.short(value) == text


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


class Asked(Round):
    """Notes whom a bar asks for."""

    def __init__(self) -> None:
        self.needed: list[tuple[str, str]] = []

    def __call__(self, case: str, contender: str, what: str) -> float:
        self.needed.append((case, contender))
        return 1.0

    def least(self, case: str, contenders: Iterable[str], what: str) -> float:
        return 1.0  # of several, not all are needed


def test_nobody_whom_a_bar_needs_is_measured_seldom() -> None:
    asked = Asked()
    for bar in bars.ALL:
        bar.figure(asked)
    assert [(case, who) for case, who in asked.needed if who in CASES[case].seldom] == []
    assert not {it for it in bars.IN_TURN if it in CASES["pair, 5 nodes, 1 ms"].seldom}


@pytest.mark.parametrize(
    "bar, complaint",
    [
        (bars.Bar("pair", "", bars._plain("pair, 6 nodes", "holdfast", "p50"), 1.0), "there is no case"),
        (bars.Bar("pair", "", bars._plain("pair, 5 nodes", "redis-py Lock", "p50"), 1.0), "takes no part"),
        (bars.Bar("pair", "", bars._plain("pair, 5 nodes", "holdfast", "jain"), 1.0), "has no figure"),
        (bars.Bar("pears", "", lambda _: 1.0, 1.0), "there is no scenario"),
    ],
)
def test_a_bar_that_asks_for_nothing_that_is_measured_is_found(bar: bars.Bar, complaint: str) -> None:
    [found] = unmeasured([bar])
    assert complaint in found


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


@pytest.mark.parametrize(
    "work, row, complaint",
    [
        ("pair", {"p50": 1.0}, None),
        ("pair", {"error": "hung"}, "hung"),
        ("pair", {"p50": 0.0}, "p50 is 0.0"),
        ("pair", {}, "p50 is None"),
        ("held", {"cpu": 0.0, "lost": 0}, None),
        ("held", {"cpu": 0.0, "lost": 2}, "2 leases were lost"),
        ("handover", {"p50": 1.0, "commands": 0.0}, "nobody has sent a command"),
    ],
)
def test_the_quick_check_complains(work: str, row: dict[str, Any], complaint: str | None) -> None:
    assert quick.complaint(runner.Case("c", work, ()), row) == complaint


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


def test_who_is_passed_over_and_who_never_gets_it_is_counted() -> None:
    log = sections((0, 9.0), (1, 9.9), (2, 9.5), (1, 9.98), (1, 9.99))
    told = handover.figures(log, 0, [], 0.0, 5)
    assert told["overtaken"] == 1  # 1 was served before 2, who had asked before it; 10 ms earlier is not clearly earlier
    assert told["unserved"] == 3
    assert told["jain"] == pytest.approx(16 / (5 * 10))


def test_two_holders_at_once_end_the_run() -> None:
    log = sections((0, 9.0), (1, 9.0), (2, 9.0))
    log[1] = (9.0, log[0][2] - 0.0001, log[1][2], 1)
    with pytest.raises(SystemExit, match="two holders at once, 1 times"):
        handover.figures(log, 0, [], 0.0, 3)


class Fake:
    """A lock in this process; or, `useless`, none at all."""

    asks = ("set",)

    def __init__(self, parameters: dict[str, Any]) -> None:
        self.mutex = threading.Lock()
        self.useless = parameters["useless"]

    def open(self) -> None: ...

    def lock(self, name: str) -> str:
        return name

    def acquire(self, lock: str) -> str:
        if not self.useless:
            self.mutex.acquire()
        return lock

    def release(self, held: str) -> None:
        if not self.useless:
            self.mutex.release()

    def close(self) -> None: ...


def test_a_lock_that_does_not_exclude_is_found() -> None:
    fight = {"waiters": 4, "processes": 1, "hold": 0.005, "think": 0.0, "seconds": 0.1, "useless": False}
    assert handover.threads(Fake, fight)["count"] > 1
    with pytest.raises(SystemExit, match="two holders at once"):
        handover.threads(Fake, fight | {"useless": True})


# ------------------------------------------------ processes


@HAS_C
def test_a_contender_that_fails_says_why_and_one_that_hangs_is_ended() -> None:
    assert runner._last("Traceback:\n  File x\nValueError: no\n  more of it\n") == "ValueError: no"
    held = runner.Case("c", "pair", (), pin="none", patience=-0.5)
    stage = runner.Stage()
    try:
        fine = catalogue.BY_NAME["floor: C, plain"]
        row = runner.once(stage, held, fine, 1.0)
        assert row["error"] == "not done after 0 s"
        nobody = catalogue.Contender("nobody", catalogue.PEER, catalogue.THREADS, "no-such-environment", "contenders.nobody:Threads")
        with pytest.raises(FileNotFoundError):
            runner.once(stage, held, nobody, 1.0)
    finally:
        stage.close()


# ------------------------------------------------ delay


@HAS_C
def test_the_forwarder_adds_its_delay_and_passes_everything_on() -> None:
    with cluster.Open(1) as nodes, delay.Delay(nodes.urls, 0.02) as slow:
        assert slow.round_trip >= 0.02
        host, port = slow.urls[0].removeprefix("redis://").split(":")
        payload = b"x" * 3_000_000
        with socket.create_connection((host, int(port)), timeout=30) as end:
            command = b"*2\r\n$4\r\nECHO\r\n$%d\r\n%b\r\n" % (len(payload), payload)
            sender = threading.Thread(target=end.sendall, args=(command,))
            sender.start()
            came = b""
            while len(came) < len(payload) + 12:
                came += end.recv(1 << 20)
            sender.join()
            assert came == b"$%d\r\n%b\r\n" % (len(payload), payload)
            end.sendall(b"*1\r\n$4\r\nQUIT\r\n")
            assert end.recv(100) == b"+OK\r\n"
            assert end.recv(100) == b""  # an end is passed on, too


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
    page, results = (ROOT / "docs/benchmarks.md").read_text(), json.loads((ROOT / "docs/performance.json").read_text())
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


def test_results_are_merged_by_scenario(tmp_path: Path) -> None:
    file = tmp_path / "results.json"
    file.write_text(json.dumps({"scenarios": {"pair": {"old": 1}, "many": {"old": 2}}}))
    merged = report.merged(file, {"many": {"new": 3}})
    assert merged == {"scenarios": {"pair": {"old": 1}, "many": {"new": 3}}}


def test_a_plot_is_an_image_with_a_bar_for_each() -> None:
    marks = [("ours", catalogue.OURS, 20.0, 0.1), ("theirs", catalogue.PEER, 2000.0, 3.0), ("none", catalogue.FLOOR, 0.0, 0.0)]
    root = ElementTree.fromstring(plot.chart("a < b", "µs", marks))
    bars_ = root.findall("{http://www.w3.org/2000/svg}rect")
    assert len(bars_) == 2
    assert float(bars_[1].get("width", 0)) > float(bars_[0].get("width", 0)) > 0


# ------------------------------------------------ growth


def test_how_a_figure_grows_is_told_by_a_line_or_a_power() -> None:
    assert growth.line([(1, 15.0, 0.0), (3, 25.0, 0.0), (9, 55.0, 0.0)]) == pytest.approx((10.0, 5.0))
    assert growth.power([(1, 3.0, 0.0), (10, 9.0, 0.0), (100, 300.0, 0.0)]) == pytest.approx(1.0)
    assert growth.power([(1, 3.0, 0.0), (100, 3.0, 0.0)]) == 0.0


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


def test_a_plot_over_sizes_has_a_line_for_each() -> None:
    found = [
        ("ours", catalogue.OURS, [(0, 5.0, 0.0), (1, 10.0, 0.1), (100, 900.0, 0.1)]),
        ("floor", catalogue.FLOOR, [(1, 1.0, 0.0), (100, 2.0, 0.0)]),
    ]
    root = ElementTree.fromstring(plot.lines("a < b", "µs", "nodes", found))
    drawn = root.findall("{http://www.w3.org/2000/svg}polyline")
    assert len(drawn) == 2
    heights = [float(it.partition(",")[2]) for it in (drawn[0].get("points") or "").split()]
    assert heights == sorted(heights, reverse=True), "what costs more stands higher"
    assert len(root.findall("{http://www.w3.org/2000/svg}circle")) == 5


def test_an_unknown_scenario_is_refused() -> None:
    told = subprocess.run([sys.executable, "-m", "bench", "pears"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert told.returncode == 2
    assert "there is no scenario 'pears'" in told.stderr
