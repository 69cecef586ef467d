"""What `./task extras` checks, and that it checks all of it.

That the extras work is for CI, because it takes a network and a minute.
"""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path
from zipfile import ZipFile

import extras
import pytest

DECLARED = set(tomllib.loads((extras.ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"])


def test_each_extra_has_a_program() -> None:
    assert extras.unknown(DECLARED) == []


def test_an_extra_without_a_program_is_found() -> None:
    assert extras.unknown(DECLARED | {"new"}) == ["the extra 'new' has no program in tests/extras.py"]
    assert extras.unknown(DECLARED - {"redis"}) == ["the extra 'redis' does not exist"]


def test_a_wheel_says_its_extras(tmp_path: Path) -> None:
    with ZipFile(tmp_path / "a.whl", "w") as archive:
        archive.writestr("a-1.dist-info/METADATA", "Name: a\nProvides-Extra: one\nProvides-Extra: two\n\nDescription")
    assert extras.extras_of(tmp_path / "a.whl") == {"one", "two"}


@pytest.mark.parametrize("extra", extras.PROGRAMS)
def test_a_program_runs_where_everything_is_installed(extra: str, tmp_path: Path) -> None:
    if not extra:
        return  # it looks for what must not be installed
    words = [sys.executable, "-W", "error", "-c", extras.PROGRAMS[extra]]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_an_installation_that_fails_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: an environment without what an extra should have brought."""
    monkeypatch.setattr(
        extras, "_run", lambda words, cwd=tmp_path: subprocess.run(words, check=True, stdout=-1, stderr=-2, text=True)
    )
    monkeypatch.setattr(extras.shutil, "which", lambda name: None)
    told = extras.check(tmp_path / "holdfast-0-py3-none-any.whl", tmp_path, "redis")
    assert told is not None
    assert told.startswith("holdfast[redis]: ")
