"""A tool that reads the gateway's schema, in an environment of its own: its dependencies are not those of holdfast."""

from __future__ import annotations

import shutil
import subprocess
import sys
import venv
from pathlib import Path

MADE = Path(__file__).parents[2] / "build/serve"
PYTHON = ["schemathesis==4.32.5"]


def python() -> Path:
    """Return the folder of its programs. It is installed if it is not there, or is another one."""
    place, wanted = MADE / "python", f"{sys.version}\n{PYTHON}"
    if _told(place) != wanted:
        shutil.rmtree(place, ignore_errors=True)
        venv.create(place, with_pip=False, symlinks=True)
        _run(sys.executable, "-m", "pip", "-q", "--disable-pip-version-check", "--python", str(place / "bin/python"), "install", *PYTHON)
        (place / "stamp").write_text(wanted)
    return place / "bin"


def _told(place: Path) -> str:
    stamp = place / "stamp"
    return stamp.read_text() if stamp.exists() else ""


def _run(*words: str) -> None:
    done = subprocess.run(words, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, f"{' '.join(words)}: {done.stderr[-2000:]}"
