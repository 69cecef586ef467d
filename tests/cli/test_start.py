"""What starting the command costs: modules that it does not load, and the instrument of `./task start-up`."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest
from cli.kit import Command

from bench import command as bench

# What takes long to load, and what `run` needs nothing of. (json: only for --json and --status-fd.)
HEAVY = {"asyncio", "concurrent.futures", "ssl", "subprocess", "redis", "json", "tempfile", "tomllib", "sqlalchemy", "rich", "click"}
HEAVY |= {"ast", "dataclasses", "dis", "inspect", "logging", "pathlib", "string", "tokenize", "traceback"}


def loaded(holdfast: Command, *words: str) -> set[str]:
    """The modules that all processes of the command load."""
    line = [sys.executable, "-X", "importtime", "-m", "holdfast", *words]
    done = subprocess.run(line, env=holdfast.environment, capture_output=True, text=True, check=True)
    return set(re.findall(r"(?m)^import time: +\d+ \| +\d+ \| +(\S+)$", done.stderr))


def test_run_loads_nothing_that_it_does_not_need(holdfast: Command) -> None:
    # What both runs load. In one, a node may be late on a busy machine: the first line of the log loads `logging`.
    found = loaded(holdfast, "run", "start", "--", "true") & loaded(holdfast, "run", "start", "--", "true")
    assert "holdfast.cli.holder" in found, "the holder's modules are counted, too"
    assert found & HEAVY == set()


# ------------------------------------------------ the instrument


def test_the_time_of_children_counts() -> None:
    busy = "import time; until = time.process_time() + 0.1\nwhile time.process_time() < until: pass"
    inner = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {busy!r}], check=True)"
    found = bench.spent([sys.executable, "-c", inner], dict(os.environ))
    assert found.cpu >= 0.1
    assert found.wall > 0.1
    with pytest.raises(RuntimeError, match="ended with 3"):
        bench.spent([sys.executable, "-c", "raise SystemExit(3)"], dict(os.environ))


def test_bars_compare_medians() -> None:
    def rows(*cpu: float) -> list[bench.Spent]:
        return [bench.Spent(it, 1.0) for it in cpu]

    found = {bench.OURS: rows(0.05, 0.04, 9.0), bench.BY_HAND: rows(0.2), bench.HELP: rows(0.03), bench.IMPORTS: rows(0.03)}
    handed = [0.001] * 98 + [0.002, 0.9]
    bars = [(round(it.found, 2), it.most) for it in bench.bars(found, handed)]
    assert bars == [(50.0, 60.0), (0.25, 0.35), (1.0, 1.15), (900.0, 3.0)]
    del found[bench.BY_HAND]
    assert len(bench.bars(found, handed)) == 3


def test_a_command_that_waits_is_timed_from_the_release() -> None:
    found = bench.handed_over(2)
    assert len(found) == 2
    assert all(0 < it < 10 for it in found)
