"""`./task bench lost-updates`: clients update a register under a lock, and are stopped for longer than their leases. How many are lost?

Knows the command line, and how results are shown. Must not know how the experiment is done.
"""

from __future__ import annotations

import argparse
import json
import random
import shlex
import signal
import sys
import tempfile
import textwrap
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from .. import environments, plot, report
from ..catalogue import BY_NAME
from ..cluster import Open, described
from . import experiment
from .experiment import AIMED, NOBODY, RANDOM, WAYS, Outcome, Way

STORY = """\
Five clients, each a process of its own, share one lock and one register, a list in an SQLite file. Each locks, reads the list, thinks for
up to 0.1 s, adds a number, writes the list back, unlocks, and begins again. Leases last 2 s. When a write returns it is acknowledged; in
the end each number that was acknowledged has to be in the list. That is done for holdfast and two of its peers in several ways, all at
once, on the same five servers: with nobody stopped; with one of the five stopped (SIGSTOP) for 3 to 4.5 s at any moment, about every 5 s;
and with such pauses just before a write, after whatever the client has checked, where a collection of garbage may put them, too."""
STATUS = """\
exit status: 0 if holdfast has lost nothing with a fence, and nothing with nobody stopped, and the experiment has seen what it is about:
late writes that were refused, and updates that were lost where there is no fence; else 1; 130 if interrupted."""

PLACE = environments.ROOT / "docs/lost-updates"
COLUMNS = 100  # of prose in the page
DOCUMENT = environments.ROOT / "docs/reliability.md"
OUT = environments.ROOT / "build/lost-updates"
CONDITIONS = (NOBODY, RANDOM, AIMED)
QUICK = tuple(it for it in WAYS if it.name in ("holdfast", "holdfast, fence", "holdfast asyncio, body cancelled, and fence"))


def results(outcomes: Sequence[Outcome], made: Mapping[str, Any]) -> dict[str, Any]:
    """What is written as JSON."""
    return {"made": dict(made), "outcomes": [asdict(it) for it in outcomes]}


def rows(found: Mapping[str, Any]) -> list[list[str]]:
    """The table, its heading first: what was lost of what was acknowledged."""
    told = {(it["way"], it["condition"]): it for it in found["outcomes"]}
    conditions = [it for it in CONDITIONS if any(key[1] == it for key in told)]
    table = [["", *conditions, "refused by the storage", "stopped by the lock"]]
    for way in dict.fromkeys(key[0] for key in told):
        mine = [told[way, it] for it in conditions]
        table.append([way, *map(_cell, mine), *(f"{sum(it[what] for it in mine):,}" for what in ("refused", "stopped"))])
    return table


def _cell(outcome: Mapping[str, Any]) -> str:
    if outcome["error"]:
        return f"({outcome['error']})"
    return f"{outcome['lost']:,} of {outcome['acknowledged']:,}" + (f" ({_share(outcome):.1f} %)" if outcome["lost"] else "")


def _share(outcome: Mapping[str, Any]) -> float:
    return 100 * float(outcome["lost"]) / float(max(1, outcome["acknowledged"]))


def charts(found: Mapping[str, Any]) -> dict[str, str]:
    """Two plots, by the names of their files."""
    drawn = {}
    for name, condition, title in (
        ("random", RANDOM, "Clients stopped at random, for longer than their leases"),
        ("aimed", AIMED, "The same pauses just before a write"),
    ):
        mine = [it for it in found["outcomes"] if it["condition"] == condition and not it["error"]]
        marks = [(it["way"], _kind(it["way"]), _share(it), 0.0) for it in mine]
        if marks:
            drawn[f"{name}.svg"] = plot.chart(title, "acknowledged updates lost, %", marks, linear=True)
    return drawn


def _kind(way: str) -> str:
    return BY_NAME[way.partition(",")[0]].kind


def block(what: str, found: Mapping[str, Any]) -> str:
    """What stands in the page between two marks."""
    if what == "made":
        made = found["made"]
        pauses = [it["pauses"] for it in found["outcomes"] if it["pauses"]]
        each = f"{made['seconds']:g} s for each column, {min(pauses)} to {max(pauses)} pauses in each cell"
        told = f"`{made['command']}`, {made['when']}, {each}; {made['machine']}."
        return textwrap.fill(told, COLUMNS, break_on_hyphens=False)
    return report.markdown(rows(found))


def run(
    ways: Sequence[Way], conditions: Sequence[str], *, clients: int, seconds: float, seed: int, blind: bool
) -> tuple[list[Outcome], str]:
    """All of it; and what the servers are."""
    outcomes: list[Outcome] = []
    with Open(5) as nodes, tempfile.TemporaryDirectory(prefix="holdfast-updates-") as folder:
        for condition in conditions:
            print(f"{condition}: {len(ways)} ways to lock, {clients} clients each, {seconds:g} s", flush=True)
            more = experiment.perform(condition, ways, nodes, Path(folder), clients=clients, seconds=seconds, seed=seed, blind=blind)
            for it in more:
                print(f"  {it.way}: {_cell(asdict(it))} lost; {it.pauses} pauses, {it.refused} refused, {it.stopped} stopped", flush=True)
            outcomes += more
        return outcomes, nodes.version


def main() -> int:
    """The command line."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="./task bench lost-updates", description=STORY, epilog=STATUS, formatter_class=form)
    parser.add_argument("--seconds", type=float, help="for each of the three conditions (default: 120)")
    parser.add_argument("--quick", action="store_true", help="only what is certain: pauses before a write, with and without a fence")
    parser.add_argument("--seed", type=int, default=random.randrange(10_000), help="of the pauses, and of how long clients think")
    parser.add_argument("--docs", action="store_true", help="rewrite docs/reliability.md, its plots and its JSON with the results")
    parser.add_argument("--plant", action="store_true", help="show no fences where fences are to be shown: has to be noticed")
    options = parser.parse_args()
    for ending in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(ending, signal.default_int_handler)  # clean up, as after Ctrl-C
    ways, conditions = (QUICK, (AIMED,)) if options.quick else (WAYS, CONDITIONS)
    seconds, clients = options.seconds or (8.0 if options.quick else 120.0), 3 if options.quick else experiment.CLIENTS
    try:
        outcomes, server = run(ways, conditions, clients=clients, seconds=seconds, seed=options.seed, blind=options.plant)
    except KeyboardInterrupt:
        print("\ninterrupted; everything that was started is gone", file=sys.stderr)
        return 130
    made = {
        "when": time.strftime("%Y-%m-%d", time.gmtime()), "seconds": seconds, "seed": options.seed, "machine": described(server),
        "command": shlex.join(["./task", "bench", "lost-updates", *sys.argv[1:]]),
    }  # fmt: skip
    found = results(outcomes, made)
    _write(found, PLACE if options.docs else OUT)
    if options.docs:
        DOCUMENT.write_text(report.filled(DOCUMENT.read_text(), lambda what: block(what, found)))
    print(f"\n{report.aligned(rows(found))}\n")
    wrong = experiment.complaints(outcomes)
    print("\n".join(wrong) or "With a fence nothing is lost, whoever is stopped and when.")
    return int(bool(wrong))


def _write(found: Mapping[str, Any], place: Path) -> None:
    place.mkdir(parents=True, exist_ok=True)
    (place / "results.json").write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")
    for name, drawn in charts(found).items():
        (place / name).write_text(drawn)


if __name__ == "__main__":
    sys.exit(main())
