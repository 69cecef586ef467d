"""Pictures of what happened: the trace that each carries, and any new one, satisfy what it claims."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import NamedTuple
from xml.etree import ElementTree

import pytest

FOLDER = Path(__file__).parents[2] / "docs/pictures"
SVG = "{http://www.w3.org/2000/svg}"

pytestmark = pytest.mark.timeout(150)


class Picture(NamedTuple):
    """What the script prints when it has drawn the picture, and what the picture says to those who listen."""

    told: str
    described: str


PICTURES = {
    "acquire": Picture(r"held after \d+ µs", "hung node"),
    "interleaving": Picture(r"^all had looked after \d+ ms; the first wrote after \d+ ms\n$", "each sees 0 items"),
}


@pytest.fixture(params=PICTURES)
def script(request: pytest.FixtureRequest) -> ModuleType:
    """Each script in turn."""
    spec = importlib.util.spec_from_file_location(request.param, FOLDER / f"{request.param}.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[request.param] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_it_can_be_made_again_on_real_servers(script: ModuleType, tmp_path: Path) -> None:
    output = tmp_path / "new.svg"
    command = [sys.executable, "-W", "error", str(script.__file__), str(output)]
    told = subprocess.run(command, capture_output=True, text=True, check=True, timeout=140).stdout
    trace = script.traced(output.read_text())
    assert list(script.complaints(trace)) == []
    assert script.draw(trace) == output.read_text()
    assert re.search(PICTURES[script.__name__].told, told)


def test_the_committed_one_is_what_the_script_draws_of_its_trace(script: ModuleType) -> None:
    picture = (FOLDER / f"{script.__name__}.svg").read_text()
    trace = script.traced(picture)
    assert script.draw(trace) == picture
    assert list(script.complaints(trace)) == []


@pytest.mark.parametrize("name", PICTURES)
def test_it_needs_nothing_else_and_can_be_read_aloud(name: str) -> None:
    picture = (FOLDER / f"{name}.svg").read_text()
    root = ElementTree.fromstring(picture)
    assert root.get("role") == "img"
    assert root.findtext(f"{SVG}title")
    assert PICTURES[name].described in (root.findtext(f"{SVG}desc") or "")
    assert picture.count("http") == 1, "only the name space: nothing is loaded from anywhere"
    assert "prefers-color-scheme: dark" in picture
    assert not [it for it in ("/tmp", "/home", "/root", "/work", "127.0.0.1") if it in picture]
