"""The conversations that clients in other languages are tested with are those of this library."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import vectors

pytestmark = pytest.mark.slow

TESTS = Path(__file__).parent


def written(folder: Path, *options: str) -> str:
    """What the command would write."""
    file = folder / "claim.json"
    environment = {**os.environ, "PYTHONPATH": str(TESTS)}
    command = [sys.executable, "-m", "vectors", "--to", str(file), *options]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return file.read_text()


def test_the_vectors_are_those_of_the_tests_of_the_claim(tmp_path: Path) -> None:
    assert written(tmp_path) == vectors.FILE.read_text(), "run ./task vectors"


def test_the_vectors_show_what_a_client_does() -> None:
    talks = json.loads(vectors.FILE.read_text())
    assert len(talks) > 300
    steps = [step for talk in talks for step in talk["steps"]]
    assert {step["event"] for step in steps} == {
        "begin", "answer", "push", "changed", "flushed", "connected", "disconnected", "stands", "corrected", "tick", "end"
    }  # fmt: skip
    assert {step["state"] for step in steps} == {"waiting", "held", "lost", "over"}
    assert {said["what"] for step in steps for said in step["sends"]} == {"w", "k", "t", "c", "release"}
