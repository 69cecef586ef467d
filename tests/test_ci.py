"""The lists of stages have every task that tests."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from stages import NIGHT, PUSH

ROOT = Path(__file__).parent.parent
pytestmark = pytest.mark.guards


def tasks(text: str) -> set[str]:
    """The tasks that a text names, each with its part, if it has one: such as "test live" and "guests"."""
    found = re.findall(r"\./task ([a-z]+)(?: ([a-z]+(?:-[a-z]+)*)\b(?! for)(?=[ \n`]|$))?", text)
    return {f"{task} {part}".strip() if f"{task} {part}" in PARTS else task for task, part in found}


HELP = subprocess.run([ROOT / "task", "help"], capture_output=True, text=True, check=True).stdout
# Each line of the help has one task, and two blanks behind it.
PARTS = set(re.findall(r"^\./task ([a-z]+(?: [a-z-]+)?)  ", HELP, re.MULTILINE))
# Which tasks test nothing: they make, show or measure, or are part of another one.
OTHERS = {"help", "vectors", "nightly", "test docs", "lint types", "sim replay", "sim shrink", "site picture", "site man"}
OTHERS |= {it for it in PARTS if it.startswith("demo") or (it.startswith("bench ") and it != "bench guardian")}
# What only the night runs.
ONLY_AT_NIGHT = {"bench", "bench guardian", "model", "model spec", "test servers", "test upgrade"}
ONLY_AT_NIGHT |= {it for it in PARTS if it.startswith("nemesis")}


def test_the_lists_have_every_task_that_tests() -> None:
    every = {it for it in PARTS if "--" not in it} - OTHERS
    night, push = (tasks("\n".join(it.command for it in lines)) for lines in (NIGHT, PUSH))
    assert night == every
    assert every - push == ONLY_AT_NIGHT
