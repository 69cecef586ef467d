"""The picture of five requests without a lock shows what happened: its trace, and any new one, satisfy what it claims."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "docs/pictures/interleaving.py"
PICTURE = SCRIPT.with_suffix(".svg")
SVG = "{http://www.w3.org/2000/svg}"

pytestmark = pytest.mark.timeout(150)


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("interleaving", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules["interleaving"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_it_can_be_made_again_on_real_processes(script: ModuleType, tmp_path: Path) -> None:
    output = tmp_path / "new.svg"
    command = [sys.executable, "-W", "error", str(SCRIPT), str(output)]
    told = subprocess.run(command, capture_output=True, text=True, check=True, timeout=140).stdout
    trace = script.traced(output.read_text())
    assert list(script.complaints(trace)) == []
    assert script.draw(trace) == output.read_text()
    assert re.fullmatch(r"all had looked after \d+ ms; the first wrote after \d+ ms\n", told)


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
    assert "each sees 0 items" in (root.findtext(f"{SVG}desc") or "")
    assert picture.count("http") == 1, "only the name space: nothing is loaded from anywhere"
    assert "prefers-color-scheme: dark" in picture
    assert not [it for it in ("/tmp", "/home", "/root", "/work", "127.0.0.1") if it in picture]
