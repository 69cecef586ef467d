"""The lists of stages, and the quick part: every task that tests is in the lists, and what is slow is not in the quick part."""

from __future__ import annotations

import re
import subprocess
import sys
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


def test_there_are_few_tasks() -> None:
    assert len({it.split()[0] for it in PARTS}) == 14


def test_what_stages_name_exists() -> None:
    for it in {found for line in [*PUSH, *NIGHT] for found in re.findall(r"tests/[\w/.]+", line.command)}:
        assert (ROOT / it).exists(), it


# Names of files, and what becomes of their test in the quick part. A module that is left out is not even imported.
QUICK = {
    "test_quick.py": ("def test_it(): pass", "passed"),
    "test_asleep.py": ("import time\ndef test_it(): time.sleep(0.2); time.sleep(0.2)", "failed"),
    "test_busy.py": ("from time import process_time as now\ndef test_it():\n    end = now() + 0.5\n    while now() < end: pass", "failed"),
    "test_waits_for_an_event.py": ("import time\ndef test_it():\n    for _ in range(10): time.sleep(0.05)", "passed"),
    "test_slow.py": ("import pytest\npytestmark = pytest.mark.slow\nraise OSError", ""),
    "test_story.py": ("import pytest\npytestmark = [\n    pytest.mark.stories,\n]\nraise OSError", ""),
    "test_one.py": ("import pytest\n@pytest.mark.worlds\ndef test_it(): raise OSError", ""),
    "live/test_apart.py": ("raise OSError", ""),
}


def test_the_quick_part_has_no_marked_test_and_none_that_is_slow(tmp_path: Path) -> None:
    (tmp_path / "live").mkdir()
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = --strict-markers -p no:cacheprovider\n")
    text = (ROOT / "tests/conftest.py").read_text()
    assert "CORE, SLEEP = 3.0, 0.3" in text
    (tmp_path / "conftest.py").write_text(text.replace("CORE, SLEEP = 3.0, 0.3", "CORE, SLEEP = 0.2, 0.3"))
    for name, (source, _) in QUICK.items():
        (tmp_path / name).write_text(source)
    command = [sys.executable, "-m", "pytest", "-rA", "--part", "quick", "--import-mode=importlib", "."]
    told = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False).stdout
    ended = {name: outcome.lower() for outcome, name in re.findall(r"^(PASSED|FAILED|ERROR) ([\w/.]+)", told, re.MULTILINE)}
    assert ended == {name: outcome for name, (_, outcome) in QUICK.items() if outcome}, told
