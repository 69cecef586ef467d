"""Checks the model of the lock protocol with Spin: `./task model spec`. Exits with 1 if a verdict is not the expected one.

Each run translates `spec/lock.pml`, compiles the verifier and visits every state within the bounds of
the run. The first runs are of the whole protocol, and must find nothing. In each of the others one rule
is missing, and Spin must find a history that breaks the property for which the rule is there. `--whole`
adds larger runs, which take many minutes.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent
MEMORY = 2900  # megabytes for one run; two run at a time
DEFAULTS = {"CLIENTS": 2, "N": 3, "FENCES": 1, "BREAKS": 0, "RESTARTS": 0, "RENEWALS": 0, "LAPSES": 0, "DELETES": 0}
HOLDS = "holds"


@dataclass(frozen=True)
class Run:
    """One run of the verifier: its bounds, the rule that is missing, and the verdict that is expected.

    `cycles` looks for endless runs, and for nothing else.
    """

    name: str
    bounds: dict[str, int]
    without: str = "0"
    expected: str = HOLDS
    cycles: bool = False
    model: str = "lock.pml"


@dataclass(frozen=True)
class Result:
    """What the verifier found, and what it took."""

    verdict: str
    states: int
    depth: int
    seconds: float


NONE: dict[str, int] = {}
BREAK = {"BREAKS": 1, "FENCES": 0}
RESTART = {"RESTARTS": 1, "FENCES": 0}
EXTENSION = {"RENEWALS": 1, "LAPSES": 1, "FENCES": 0}
THREE = {"CLIENTS": 3, "FENCES": 0}
CYCLES = "endless run"

# The whole protocol: what has to hold in every state, and that no run is endless.
QUICK = [
    Run("two clients", NONE),
    Run("two clients", NONE, cycles=True),
    Run("three clients", THREE),
    Run("three clients", THREE, cycles=True),
    Run("two clients, a broken connection", {"BREAKS": 1}),
    Run("two clients, a broken connection", BREAK, cycles=True),
    Run("two clients, a restart and its guard", {"RESTARTS": 1}),
    Run("two clients, an extension", {"RENEWALS": 1, "LAPSES": 1}),
    Run("two clients, an extension", EXTENSION, cycles=True),
    Run("two clients, a deleted fence record", {"DELETES": 1}),
    Run("two clients, a deleted fence record", {"DELETES": 1}, cycles=True),
]
LARGE = [
    Run("three clients, fences", {"CLIENTS": 3}),
    Run("two clients, a restart and its guard", RESTART, cycles=True),
    Run("two clients, a restart and an extension", {"RESTARTS": 1, "RENEWALS": 1, "FENCES": 0}),
    Run("two clients, a broken connection, an extension", {**EXTENSION, **BREAK}),
]

# Each rule that can be taken away: the bounds of the run without it, and what Spin has to find.
MISSING: dict[str, tuple[dict[str, int], str]] = {
    "C1": (NONE, "S1"),
    "C2": (EXTENSION, "V"),
    "C3": (EXTENSION, "V"),
    "C5": (EXTENSION, "V"),
    "C6": ({"RENEWALS": 1, "LAPSES": 1}, "S2"),
    "F1": (NONE, "S2"),
    "F1_floor": ({"RESTARTS": 1}, "S2"),
    "F8": (NONE, "S2"),
    "F9": ({"CLIENTS": 3}, "served"),
    "F11": ({"DELETES": 1}, "S2"),
    "G1": (RESTART, "S1"),
    "K5": ({**EXTENSION, **BREAK}, "V"),
    "Q1": (THREE, CYCLES),
    "Q3": (NONE, "served"),
    "Q4": (NONE, "served"),
    "Q5": ({**EXTENSION, **BREAK}, "V"),
    "Q7": (THREE, "served"),
    "Q8": (THREE, "served"),
    "Q9": ({"RENEWALS": 1, "FENCES": 0}, "V"),
    "Q10": (BREAK, "V"),
    "Q11": ({"BREAKS": 2, "FENCES": 0}, "served"),
    "Q12": ({"N": 1, "BREAKS": 1, "FENCES": 0}, "served"),
    "Q16": (NONE, "V"),
}


# A shorter guard: with all its parts, and without each.
PARTS = ("WRITES", "MOST", "PROMPT", "LASTS", "READS", "AGAIN", "USED", "AGED")
MARK = [Run("a guard that asks for marks", {"RESTARTS": 2}, model="mark.pml")] + [
    Run(f"marks without {part}", {"RESTARTS": 2}, part, "S1", model="mark.pml") for part in PARTS
]


def broken() -> list[Run]:
    """The runs in which one rule is missing."""
    runs = []
    for rule, (bounds, expected) in MISSING.items():
        runs.append(Run(f"without {rule}", bounds, rule, expected, cycles=expected == CYCLES))
    return runs


def command(*words: str, folder: Path, seconds: float) -> str:
    """Run a program in a folder and return what it printed. Raises RuntimeError if it takes longer, or fails."""
    try:
        done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"{words[0]} did not end within {seconds:.0f} s") from None
    if done.returncode != 0:
        raise RuntimeError(f"{words[0]} failed: {(done.stderr or done.stdout).strip()[-500:]}")
    return done.stdout


def verdict(printed: str) -> str:
    """What the verifier found: the property that fails, or that all hold. Raises RuntimeError if it did not finish."""
    if found := re.search(r"assertion violated \(?(\w+)\)? \(at depth", printed):
        return found[1]
    if "non-progress cycle" in re.sub(r"non-progress cycles\s+[-+]", "", printed):
        return CYCLES
    if "errors: 0" not in printed or "max search depth too small" in printed or "Search not completed" in printed:
        raise RuntimeError(f"the search was not completed: {printed.strip()[-500:]}")
    return HOLDS


def check(run: Run, seconds: float) -> Result:
    """Visit every state of one run, or all up to the first that breaks a property."""
    began = time.monotonic()
    defines = [f"-D{name}={value}" for name, value in (DEFAULTS | run.bounds).items()]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        command("spin", *defines, f"-DWITHOUT={run.without}", "-a", str(FOLDER / run.model), folder=folder, seconds=seconds)
        kind = ["-DNP", "-DNOFAIR"] if run.cycles else ["-DSAFETY"]
        # Most runs without a rule end within a second, so the optimizer would take longer than it saves.
        level = "-O1" if run.expected == HOLDS else "-O0"
        settings = [level, "-w", "-DCOLLAPSE", "-DVECTORSZ=4096", f"-DMEMLIM={MEMORY}", *kind]
        command("gcc", *settings, "-o", "pan", "pan.c", folder=folder, seconds=seconds)
        printed = command("./pan", "-m1000000", *(["-l"] if run.cycles else []), folder=folder, seconds=seconds)
    states = re.search(r"([\d.e+]+) states, stored", printed)
    depth = re.search(r"depth reached (\d+)", printed)
    if states is None or depth is None:
        raise RuntimeError(f"unexpected output of the verifier: {printed.strip()[-500:]}")
    return Result(verdict(printed), int(float(states[1])), int(depth[1]), time.monotonic() - began)


def main(arguments: list[str] | None = None) -> int:
    """Run all checks, two at a time, and print one line for each."""
    summary, _, more = (__doc__ or "").partition("\n")
    parser = argparse.ArgumentParser(prog="./task model spec", description=summary, epilog=more)
    parser.add_argument("--whole", action="store_true", help="also the larger runs")
    parser.add_argument("--only", default="", metavar="TEXT", help="only runs with this text in their names")
    options = parser.parse_args(arguments)
    for program in ("spin", "gcc"):
        if shutil.which(program) is None:
            print(f"{program} is not installed. Debian and Ubuntu: sudo apt-get install spin gcc libc6-dev")
            return 69
    runs = [it for it in (*QUICK, *((*LARGE, *MARK) if options.whole else ()), *broken()) if options.only in it.name]
    if not runs:
        parser.error(f"no run has {options.only!r} in its name")
    limit = 7200.0 if options.whole else 600.0
    print(f"{'run':46} {'looks for':13} {'states':>11} {'depth':>6} {'seconds':>8}  verdict", flush=True)
    failed = 0
    with ThreadPoolExecutor(min(2, os.cpu_count() or 1)) as pool:
        for run, pending in [(run, pool.submit(check, run, limit)) for run in runs]:
            looks_for = "endless runs" if run.cycles else "V, S1, S2, L1"
            try:
                result = pending.result()
            except RuntimeError as error:
                failed += 1
                print(f"{run.name:46} {looks_for:13} {error}", flush=True)
                continue
            told = result.verdict if result.verdict in (HOLDS, CYCLES) else f"{result.verdict} fails"
            if result.verdict != run.expected:
                failed += 1
                told = f"{result.verdict}, but expected: {run.expected}"
            figures = f"{result.states:>11,} {result.depth:>6} {result.seconds:>8.1f}"
            print(f"{run.name:46} {looks_for:13} {figures}  {told}", flush=True)
    print(f"{len(runs) - failed} of {len(runs)} as expected")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
