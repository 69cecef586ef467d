"""Pictures of what happened: the trace that each carries satisfies what it claims."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "docs/pictures"


@pytest.mark.parametrize("name", ["acquire", "interleaving"])
def test_the_committed_one_is_what_the_script_draws_of_its_trace(name: str) -> None:
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    script = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    picture = (FOLDER / f"{name}.svg").read_text()
    trace = script.traced(picture)
    assert script.draw(trace) == picture
    assert list(script.complaints(trace)) == []
