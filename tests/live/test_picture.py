"""Pictures of what happened: the trace that each carries, and any new one, satisfy what it claims."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import pytest

FOLDER = Path(__file__).parents[2] / "docs/pictures"

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


def test_the_committed_one_is_what_the_script_draws_of_its_trace(script: ModuleType) -> None:
    picture = (FOLDER / f"{script.__name__}.svg").read_text()
    trace = script.traced(picture)
    assert script.draw(trace) == picture
    assert list(script.complaints(trace)) == []
