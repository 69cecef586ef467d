"""What starting the command costs: modules that it does not load, and the instrument of `./task bench start-up`."""

from __future__ import annotations

import re
import subprocess
import sys

from cli.kit import Command

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
