"""Tools that read the gateway's schema, in environments of their own: their dependencies are not those of holdfast."""

from __future__ import annotations

import shutil
import subprocess
import sys
import venv
from pathlib import Path

MADE = Path(__file__).parents[2] / "build/serve"
PYTHON = ["mypy==2.4.1", "openapi-python-client==0.29.1", "schemathesis==4.32.5"]
NODE = ["openapi-fetch@0.17.0", "openapi-typescript@7.13.0", "typescript@5.9.3"]


def python() -> Path:
    """The folder of Python's tools. They are installed if they are not there, or are others."""
    place, wanted = MADE / "python", f"{sys.version}\n{PYTHON}"
    if _told(place) != wanted:
        shutil.rmtree(place, ignore_errors=True)
        venv.create(place, with_pip=False, symlinks=True)
        _run(sys.executable, "-m", "pip", "-q", "--disable-pip-version-check", "--python", str(place / "bin/python"), "install", *PYTHON)
        (place / "stamp").write_text(wanted)
    return place / "bin"


def node() -> Path:
    """The folder of Node's tools, with `node_modules`."""
    place, wanted = MADE / "node", str(NODE)
    if _told(place) != wanted:
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        (place / "package.json").write_text('{"private": true, "type": "module"}')
        _run("npm", "--prefix", str(place), "install", "--silent", "--no-audit", "--no-fund", *NODE)
        (place / "stamp").write_text(wanted)
    return place


def _told(place: Path) -> str:
    stamp = place / "stamp"
    return stamp.read_text() if stamp.exists() else ""


def _run(*words: str) -> None:
    done = subprocess.run(words, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, f"{' '.join(words)}: {done.stderr[-2000:]}"
