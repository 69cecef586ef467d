"""The lists of stages, and the quick part: every task that tests is in the lists, and what is slow is not in the quick part."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from stages import NIGHT, PUSH, Stage

ROOT = Path(__file__).parent.parent
pytestmark = pytest.mark.guards


def tasks(lines: list[Stage]) -> set[str]:
    """The tasks that these stages run."""
    return {found for it in lines for found in re.findall(r"\./task ([a-z]+(?:-[a-z]+)*)", it.command)}


# Which tasks test nothing: they make, show or measure, or are part of another one.
OTHERS = {"clean", "demo", "docs", "example", "failover", "help", "lost-updates", "man", "nightly", "picture", "replay", "shrink"}
OTHERS |= {"sizes", "start-up", "types", "vectors", "walkthrough"}
# What only the night runs.
ONLY_AT_NIGHT = {"bench", "cli-kills", "conformance", "nemesis", "serve-kills", "soak", "spec"}
ONLY_AT_NIGHT |= {"model", "upgrade"}


def test_the_lists_have_every_task_that_tests() -> None:
    found = re.search(r"^    (demo \| .*)\) ;;$", (ROOT / "task").read_text(), re.MULTILINE)
    assert found is not None
    every = set(found[1].split(" | ")) - OTHERS
    assert tasks(NIGHT) == every
    assert every - tasks(PUSH) == ONLY_AT_NIGHT


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
