"""The picture on the README's first screen shows what happened: the trace that it carries, and any new one, satisfy what it claims."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "docs/pictures/acquire.py"
PICTURE = SCRIPT.with_suffix(".svg")
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("acquire", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules["acquire"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_it_can_be_made_anew_on_real_servers(script: ModuleType, tmp_path: Path) -> None:
    output = tmp_path / "new.svg"
    told = subprocess.run([sys.executable, "-W", "error", str(SCRIPT), str(output)], capture_output=True, text=True, check=True).stdout
    trace = script.traced(output.read_text())
    assert list(script.complaints(trace)) == []
    assert f"held after {trace.held:.0f} µs" in told
    assert script.draw(trace) == output.read_text()


def test_the_committed_one_is_what_the_script_draws_of_its_trace(script: ModuleType) -> None:
    picture = PICTURE.read_text()
    trace = script.traced(picture)
    assert script.draw(trace) == picture
    assert list(script.complaints(trace)) == []


def test_it_needs_nothing_else_and_can_be_read_aloud() -> None:
    picture = PICTURE.read_text()
    root = ElementTree.fromstring(picture)
    assert root.get("role") == "img"
    assert root.findtext(f"{SVG}title")
    assert "hung node" in (root.findtext(f"{SVG}desc") or "")
    assert picture.count("http") == 1  # the name space: nothing is loaded from anywhere
    assert "prefers-color-scheme: dark" in picture
    assert not [it for it in ("/tmp", "/home", "/root", "/work", "127.0.0.1") if it in picture]
