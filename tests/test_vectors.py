"""The conversations that clients in other languages are tested with are those of this library."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import vectors

pytestmark = pytest.mark.slow

TESTS = Path(__file__).parent


def written(folder: Path, *options: str) -> dict[str, str]:
    """What the command would write."""
    environment = {**os.environ, "PYTHONPATH": str(TESTS)}
    command = [sys.executable, "-m", "vectors", "--to", str(folder), *options]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return {it.name: it.read_text() for it in folder.iterdir()}


def test_the_vectors_are_those_of_this_library(tmp_path: Path) -> None:
    assert written(tmp_path) == {it.name: it.read_text() for it in vectors.FOLDER.glob("*.json")}, "run ./task vectors"
