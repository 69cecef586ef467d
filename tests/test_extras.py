"""What `./task release extras` checks, and that it checks all of it.

That the extras work is for CI, because it takes a network and a minute.
"""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import extras
import pytest

pytestmark = pytest.mark.slow

DECLARED = set(tomllib.loads((extras.ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"])


def test_each_extra_has_a_program() -> None:
    assert extras.unknown(DECLARED) == []


def unlisted(page: str) -> set[str]:
    """The extras for users that the page about the installation lacks."""
    return {it for it in DECLARED - {"dev"} if f"| `holdfast[{it}]` |" not in page}


def test_the_page_about_the_installation_lists_every_extra() -> None:
    page = (extras.ROOT / "docs/installation.md").read_text()
    assert unlisted(page) == set()
    assert unlisted(page.replace("holdfast[otel]", "holdfast[hotel]")) == {"otel"}


@pytest.mark.parametrize("extra", extras.PROGRAMS)
def test_a_program_runs_where_everything_is_installed(extra: str, tmp_path: Path) -> None:
    if not extra:
        return  # it looks for what must not be installed
    words = [sys.executable, "-W", "error", "-c", extras.PROGRAMS[extra]]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
