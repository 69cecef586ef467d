"""A short soak ends as it began."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]

pytestmark = [
    pytest.mark.stories,
    pytest.mark.timeout(300),
    pytest.mark.skipif(sys.platform != "linux", reason="processes are measured by /proc"),
]


def soak(folder: Path, *options: str) -> tuple[int, str, dict[str, Any]]:
    """Its exit status, what it printed, and what it found. (On an idle machine it takes 20 s.)"""
    file = folder / "found.json"
    command = [sys.executable, "-m", "soak", "--minutes", "0.14", "--json", str(file), *options]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "tests")}
    ended = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=280)
    assert file.exists(), ended.stdout + ended.stderr
    return ended.returncode, ended.stdout + ended.stderr, json.loads(file.read_text())


def test_everything_is_back_where_it_was(tmp_path: Path) -> None:
    status, told, found = soak(tmp_path)
    assert status == 0, told
    assert found["complaints"] == []
    assert found["names"] > 1000, told
    assert found["faults"]["nodes killed"] >= 2, told
    assert found["faults"]["workers killed"] >= 2, told
