"""Results as JSON, as tables for a terminal, and as the targets for the documentation.

Knows what was measured, and how to say it. Must not know how it was measured.

The JSON: `scenarios` by name, each with `made` (when, by which command, on what), `figures` (case, contender, figure: median, spread,
rounds), `bars` and `left_out` (who could not be measured, and why). A run replaces the scenarios that it has measured, and no others.
"""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from . import bars, growth
from .catalogue import BY_NAME, FLOOR, OURS, PEER
from .figures import Figure, Rounds, Row, short
from .scenarios import ALL, IMPORTS, Scenario

COLUMNS = 100  # of prose on the page
FIGURES = {  # what is shown of a work's figures: name, heading
    "pair": (("p50", "pair, µs"), ("p99", "p99"), ("acquire", "acquire, µs"), ("cpu", "client CPU, µs")),
    "primitives": (
        ("lock", "exclusive lock, µs"), ("read", "read lock, µs"), ("write", "write lock, µs"), ("permit", "permit of 4, µs"),
        ("rate", "rate, one call, µs"),
    ),
    "persistence": (
        ("pair", "pair, nothing on disk, µs"),
        ("pair_everysec", "everysec, times that"),
        ("pair_always", "always, times that"),
        ("once", "once, nothing on disk, µs"),
        ("once_everysec", "everysec, times that"),
        ("once_always", "always, times that"),
        ("fsync", "a write and fsync here, µs"),
    ),
    "many": (("cpu", "client CPU of a pair, µs"), ("rate", "locks/s"), ("p50", "p50, µs"), ("p99", "p99")),
    "crowd": (("rate", "locks/s"), ("p50", "pair, µs"), ("p99", "p99"), ("cpu", "client CPU, µs")),
    "busy": (("mean", "acquire, mean µs"), ("p50", "p50"), ("p99", "p99")),
    "computing": (("p50", "release to next holder, µs"), ("p99", "p99")),
    "handover": (
        ("p50", "gap, µs"), ("p99", "p99"), ("rate", "sections/s"), ("commands", "commands a node"), ("jain", "Jain's index"),
        ("longest", "longest wait, s"), ("unserved", "never served"), ("overtaken", "passed over"),
    ),
    "waiting": (("commands", "commands a second and node"),),
    "faults": (
        ("healthy", "healthy, µs"), ("p50", "after, µs"), ("healthy_p99", "healthy p99"), ("p99", "after p99"), ("first", "first one, µs"),
        ("failed", "errors"),
    ),
    "held": (
        ("cpu", "CPU, % of a core"), ("threads", "threads"), ("memory", "MiB"), ("commands", "commands/s a node"),
        ("writes", "writes/s a node"), ("lost", "lost"),
    ),
    "start": (("p50", "ms"), ("memory", "MiB")),
    "servertime": (("p50", "µs a call"),),
    "handshake": (("cpu", "CPU of the node, µs"), ("bytes", "bytes to the node"), ("memory", "KB of the node, just after")),
    "multitude": (("memory", "KB a client"), ("connections", "connections a node"), ("late", "later, s")),
    "beside": (("p50", "acquire, µs"), ("p99", "p99"), ("longest", "longest"), ("lag", "lag, µs")),
}  # fmt: skip
KINDS = {it.name: it.kind for it in IMPORTS} | {name: it.kind for name, it in BY_NAME.items()}


def summary(rows: Sequence[Row], scenario: Scenario, made: Mapping[str, Any]) -> dict[str, Any]:
    """What a scenario's rows say."""
    rounds = Rounds(rows)
    figures: dict[str, Any] = {}
    for case in scenario.cases:
        shown = [what for what, _ in case.figures or FIGURES[case.work]]
        figures[case.name] = {
            contender: {what: _rounded(found) for what in shown if (found := rounds.figure(case.name, contender, what)) is not None}
            for contender in rounds.contenders(case.name)
        }
    trips = [it["round_trip"] * 1e3 for it in rows if "round_trip" in it]
    return {
        "made": {
            **made,
            "neighbours": sorted(it.get("neighbours", 0.0) for it in rows)[len(rows) // 2],
            **({"round_trips": {case.name: _trip(rows, case.name) for case in scenario.cases if case.delay}} if trips else {}),
        },
        "figures": figures,
        "bars": [_bar(it) for it in bars.verdicts(rounds, [scenario.name]) if it.figure is not None],
        "left_out": _left_out(rows),
    }


def _bar(verdict: bars.Verdict) -> dict[str, Any]:
    bar = verdict.bar
    told = {"text": bar.text, "bound": bar.bound, "aim": bar.aim, "least": bar.least}
    return {**told, "figure": _rounded(verdict.figure)}


def _trip(rows: Sequence[Row], case: str) -> float:
    trips = sorted(it["round_trip"] * 1e3 for it in rows if it["case"] == case and "round_trip" in it)
    return round(float(trips[len(trips) // 2]), 3)


def _left_out(rows: Sequence[Row]) -> dict[str, str]:
    """Who failed, with what, and in how many of his measurements."""
    failed: dict[tuple[str, str], list[str]] = {}
    for it in rows:
        if "error" in it:
            failed.setdefault((it["case"], it["contender"]), []).append(it["error"])
    count = {key: sum((it["case"], it["contender"]) == key for it in rows) for key in failed}
    return {f"{case}: {who}": f"{errors[-1]} ({len(errors)} of {count[case, who]})" for (case, who), errors in failed.items()}


def _rounded(figure: Figure | None) -> list[float] | None:
    return None if figure is None else [float(f"{figure.value:.4g}"), round(figure.spread, 3), figure.rounds]


def _figure(found: Sequence[float]) -> Figure:
    return Figure(found[0], found[1], int(found[2]))


# ------------------------------------------------ tables


def _cell(found: Sequence[float] | None) -> str:
    return "–" if found is None else str(_figure(found))


def table(scenario: Scenario, told: Mapping[str, Any], name: str) -> list[list[str]]:
    """One case as rows of text, its heading first; with the ratio to the first floor that there is."""
    case = next(it for it in scenario.cases if it.name == name)
    shown = case.figures or FIGURES[case.work]
    figures = told["figures"].get(name, {})
    rows = [["", *(heading for _, heading in shown)]]
    order = {OURS: 0, FLOOR: 1, PEER: 2}
    for contender in sorted(figures, key=lambda it: order[KINDS.get(it, FLOOR)]):
        rows.append([contender, *(_cell(figures[contender].get(what)) for what, _ in shown)])
    return rows


def over(axis: growth.Axis, figures: Mapping[str, Any]) -> list[list[str]]:
    """What was measured over an axis, as rows of text: a row for each size, a column for each contender and figure."""
    columns = [(who, curve) for curve in axis.curves for who in _who(axis, figures, curve)]
    short_of = {who: who.removeprefix("holdfast ").replace("floor: ", "floor of ") for who, _ in columns}
    rows = [[axis.label, *(f"{short_of[who]}: {curve.heading}" for who, curve in columns)]]
    for size in axis.sizes:
        told = figures.get(axis.of(size), {})
        rows.append([f"{size:,g}" if size < 1e5 else f"{size:,.0f}", *(_cell(told.get(who, {}).get(it.figure)) for who, it in columns)])
    return rows


def _who(axis: growth.Axis, figures: Mapping[str, Any], curve: growth.Curve) -> list[str]:
    """Those of whom there is such a figure."""
    return [it.name for it in growth.contenders(axis) if axis.points(figures, it.name, curve.figure)]


def slopes(axis: growth.Axis, figures: Mapping[str, Any]) -> str:
    """How each figure grows: where it is a line, by how much; else with which power of the size."""
    told = []
    for curve in axis.curves:
        for who in _who(axis, figures, curve):
            points = [it for it in axis.points(figures, who, curve.figure) if it[1] > 0]
            if len(points) > 1 and (curve.line or axis.sizes[0] > 0):
                told.append(f"- {who}, {curve.heading}: {_growth(curve, points)}")
    return "\n".join(told)


def _growth(curve: growth.Curve, points: Sequence[tuple[float, float, float]]) -> str:
    if curve.line:
        start, slope = growth.line(points)
        return f"{short(max(start, 0.0))}, and {short(slope)} {curve.line}"
    return f"from {short(points[0][1])} to {short(points[-1][1])}: the size to the power of {growth.power(points):.2f}"


def bar_rows(told: Iterable[Mapping[str, Any]]) -> list[list[str]]:
    """The bars as rows of text, the heading first."""
    rows = [["bar", "bound", "measured", "spread", ""]]
    for bar in told:
        value, spread, count = bar["figure"]
        bound = f"{'≥' if bar['least'] else '≤'} {short(bar['bound'])}" + (f" (aim {short(bar['aim'])})" if bar["aim"] else "")
        outcome = bars.outcome(value, spread, bar["bound"], least=bar["least"])
        off = _off(bar) if outcome == "missed" else ""
        rows.append([bar["text"], bound, short(value), f"{spread:.0%} of {count}", outcome + off])
    return rows


def _off(bar: Mapping[str, Any]) -> str:
    """By how much it is missed."""
    value, bound = bar["figure"][0], bar["bound"]
    if not bound or not value:
        return ""
    return f", by {abs(value / bound - 1):.0%}"


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """For a terminal."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join(
        "  ".join(it.ljust(width) if i == 0 else it.rjust(width) for i, (it, width) in enumerate(zip(row, widths, strict=True)))
        for row in rows
    )


def markdown(rows: Sequence[Sequence[str]]) -> str:
    """For the documentation; what is ours is bold."""
    lines = ["| " + " | ".join(rows[0]) + " |", "| " + " | ".join(["---", *["---:"] * (len(rows[0]) - 1)]) + " |"]
    for row in rows[1:]:
        first = f"**{row[0]}**" if KINDS.get(row[0].partition(",")[0]) == OURS else row[0]
        lines.append("| " + " | ".join([first, *row[1:]]) + " |")
    return "\n".join(lines)


# ------------------------------------------------ the documentation


def merged(path: Path, told: Mapping[str, Any]) -> dict[str, Any]:
    """What the file says, with these scenarios instead of its own."""
    before = json.loads(path.read_text())["scenarios"] if path.exists() else {}
    return {"scenarios": {name: {**before, **told}[name] for name in (*ALL, *sorted(set(told) - set(ALL))) if name in {**before, **told}}}


def rewritten(document: str, results: Mapping[str, Any]) -> str:
    """The page about speed, with all its blocks made anew from the results."""
    return filled(document, lambda what: _block(what, results))


def filled(document: str, block: Callable[[str], str]) -> str:
    """A document with what lies between each `<!-- bench: WHAT -->` and `<!-- bench: end -->` made anew: `block` gives it for WHAT."""
    return re.sub(
        r"(<!-- bench: (?!end)([^>]*?) -->\n).*?(<!-- bench: end -->)",
        lambda found: f"{found[1]}{block(found[2])}\n{found[3]}",
        document,
        flags=re.DOTALL,
    )


def _block(what: str, results: Mapping[str, Any]) -> str:
    assert what == "missed", what
    scenarios = results["scenarios"]
    missed = [row for name in scenarios for row in bar_rows(scenarios[name]["bars"])[1:] if row[-1].startswith("missed")]
    items = (f"- {row[0]}: {row[2]} ({row[1]}){row[-1].removeprefix('missed')}, spread {row[3]} rounds." for row in missed)
    return _wrapped(items) or "Nothing."


def _wrapped(items: Iterable[str]) -> str:
    """Return the items of a list in lines that the page may have."""
    return "\n".join(textwrap.fill(it, COLUMNS, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False) for it in items)


def origin(made: Mapping[str, Any]) -> str:
    """When, by which command and on what a scenario was measured."""
    trips = "".join(f". A PING took {ms} ms ({case})" for case, ms in made.get("round_trips", {}).items())
    rounds = f"{made['rounds']} round{'s' * (made['rounds'] != 1)}"
    return f"`{made['command']}`, {made['when']}, {rounds}, {made['machine']}; others used {made['neighbours']:.2f} cores meanwhile{trips}"
