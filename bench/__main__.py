"""`./task bench [scenario…]`: measures, prints tables and bars, writes JSON and plots.

Knows the command line. Must not know how anything is measured.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from . import catalogue, environments, growth, plot, quick, report, runner, scenarios
from .cluster import Cluster, described
from .scenarios import Scenario

ROOT = environments.ROOT
DOCUMENT, RESULTS, PLOTS = ROOT / "docs/performance.md", ROOT / "docs/performance.json", ROOT / "docs/performance"
OUT = ROOT / "build/bench"


def main() -> int:
    """Exit status: 0, or 1 if `--quick` has found something wrong; a bar that is missed is no failure."""
    parser = argparse.ArgumentParser(prog="./task bench", description="holdfast, its peers and floors made by hand, side by side.")
    parser.add_argument("scenario", nargs="*", help=f"default: all of {', '.join(scenarios.ALL)}; growth: all of those")
    parser.add_argument("--rounds", type=int, help="of each scenario, instead of its own number")
    parser.add_argument("--seconds", type=float, default=0.5, help="that each contender is measured for (default: 0.5)")
    parser.add_argument("--delay", type=float, default=0.0, metavar="MS", help="milliseconds more for a round trip, such as 0.3, 1 or 5")
    parser.add_argument("--only", metavar="TEXT", help="contenders whose name contains this, and the floors")
    parser.add_argument("--quick", action="store_true", help="does everything still run, and are results sane? Says nothing of speed")
    parser.add_argument("--show", action="store_true", help="print the figures of docs/performance.json, and measure nothing")
    parser.add_argument("--docs", action="store_true", help="rewrite docs/performance.md, its plots and docs/performance.json")
    parser.add_argument("--out", type=Path, default=OUT, help="where results and plots are put (default: build/bench)")
    options = parser.parse_args()
    options.scenario = [name for it in options.scenario for name in (growth.AXES if it == "growth" else [it])]
    if unknown := [it for it in options.scenario if it not in scenarios.ALL]:
        parser.error(f"there is no scenario {unknown[0]!r}; there are {', '.join(scenarios.ALL)}")
    if options.show:
        for name, told in report.merged(RESULTS, {})["scenarios"].items():
            if name in (options.scenario or scenarios.ALL):
                _show(scenarios.ALL[name], told)
        return 0
    if options.quick:
        _prepare(it.environment for it in catalogue.ALL)
        return quick.main(_say)
    chosen = [scenarios.ALL[it] for it in options.scenario or scenarios.ALL]
    if options.delay:
        chosen = [it for it in (scenarios.delayed(it, options.delay) for it in chosen) if it.cases]
    _prepare(it.environment for scenario in chosen for case in scenario.cases for it in case.contenders)
    results = {}
    options.out.mkdir(parents=True, exist_ok=True)
    for scenario in chosen:
        told, rows = _measured(scenario, options)
        results[scenario.name] = told
        (options.out / f"{scenario.name}.rows.json").write_text("".join(json.dumps(row) + "\n" for row in rows))
        _show(scenario, told)
    _write({"scenarios": results}, options.out / "results.json", options.out, [it.name for it in chosen])
    if options.docs and not options.delay:
        whole = report.merged(RESULTS, results)
        _write(whole, RESULTS, PLOTS, list(whole["scenarios"]))
        DOCUMENT.write_text(report.rewritten(DOCUMENT.read_text(), whole))
        _say(f"rewrote {DOCUMENT.relative_to(ROOT)}, {RESULTS.relative_to(ROOT)} and {PLOTS.relative_to(ROOT)}/")
    return 0


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _prepare(wanted: Iterable[str]) -> None:
    """Make the environments first: nobody's measurement shall meet an installation."""
    for name in dict.fromkeys(wanted):
        if not (environments.MADE / name).exists():
            _say(f"making the environment of {name}")
        try:
            environments.python(name)
        except environments.Unavailable as reason:
            _say(f"left out: {reason}")


def _measured(scenario: Scenario, options: argparse.Namespace) -> tuple[dict[str, Any], list[runner.Row]]:
    rounds, began = options.rounds or scenario.rounds, time.time()
    cases = [_only(it, options.only) for it in scenario.cases]
    rows = list(runner.measure([it for it in cases if it.contenders], rounds, options.seconds, _say))
    made = {
        "when": time.strftime("%Y-%m-%d", time.gmtime(began)),
        "seconds": round(time.time() - began),
        "rounds": rounds,
        "command": f"./task bench {shlex.join(it for it in sys.argv[1:] if it not in (*scenarios.ALL, 'growth'))} {scenario.name}".replace(
            "  ", " "
        ),
        "machine": _machine(),
    }
    return report.summary(rows, scenario, made), rows


def _only(case: runner.Case, text: str | None) -> runner.Case:
    if text is None:
        return case
    from dataclasses import replace

    return replace(case, contenders=tuple(it for it in case.contenders if text in it.name or it.kind == catalogue.FLOOR))


def _machine() -> str:
    with Cluster(1) as cluster:
        return described(cluster.nodes.version)


def _show(scenario: Scenario, told: dict[str, Any]) -> None:
    print(f"\n{scenario.title}  ({report.origin(told['made'])})")
    if axis := growth.AXES.get(scenario.name):
        print(f"\n{report.aligned(report.over(axis, told['figures']))}\n\n{report.slopes(axis, told['figures'])}")
    else:
        for case in told["figures"]:
            print(f"\n{case}\n{report.aligned(report.table(scenario, told, case))}")
    for who, why in told["left_out"].items():
        print(f"\nleft out: {who}: {why}")
    if told["bars"]:
        print(f"\n{report.aligned(report.bar_rows(told['bars']))}")
    sys.stdout.flush()


def _write(results: dict[str, Any], file: Path, plots: Path, names: Iterable[str]) -> None:
    file.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n")
    plots.mkdir(parents=True, exist_ok=True)
    for axis in (growth.AXES[it] for it in names if it in growth.AXES):
        told = results["scenarios"][axis.scenario]["figures"]
        for curve in (it for it in axis.curves if it.file):
            found = [(it.name, it.kind, axis.points(told, it.name, curve.figure)) for it in growth.contenders(axis)]
            if found := [it for it in found if it[2]]:
                (plots / f"{curve.file}.svg").write_text(plot.lines(axis.title, curve.heading, axis.label, found))


if __name__ == "__main__":
    sys.exit(main())
