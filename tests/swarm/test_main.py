"""`./task sim`, `replay` and `shrink`: what they say of worlds, and with which exit status."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from swarm import __main__ as script
from swarm.__main__ import main
from swarm.campaign import live

pytestmark = pytest.mark.stories


def test_a_world_is_told_between_two_moments_and_drawn(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    drawing = tmp_path / "world.svg"
    assert main(["--replay", "5", "--swarm", "--from", "0.1", "--to", "0.2", "--svg", str(drawing)]) == 0
    told = capsys.readouterr().out.splitlines()
    assert told[-1] == f"drawn from 0.100 to 0.200 s: {drawing}"
    times = [float(line.split()[0]) for line in told[:-2]]
    assert times
    assert all(0.1 <= it <= 0.2 for it in times)
    assert drawing.read_text().startswith("<svg")


def test_a_failing_world_is_shrunk_and_can_be_replayed_as_it_says(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.protocol.quorum.majority", lambda nodes: max(1, nodes // 2))
    assert main(["--shrink", "0", "--swarm", "--runs", "40"]) == 1
    told = capsys.readouterr().out.splitlines()
    assert re.match(r"\d+ of \d+ faults are left, after \d+ runs: ", told[-2])
    found = re.search(r"replay 0 --swarm --only '(.*)' --plan '(.*)'$", told[-1])
    assert found is not None
    assert main(["--replay", "0", "--swarm", "--only", found[1], "--plan", found[2]]) == 1
    again = capsys.readouterr().out.splitlines()
    # What is wrong, and when.
    assert told[-3] in again


def test_a_law_that_never_looks_is_a_failure(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(script, "ENOUGH", 1)
    # One world alone has not something of everything.
    assert main(["--seeds", "3..4", "--swarm"]) == 2
    assert "laws that had nothing to look at: " in capsys.readouterr().out


def test_what_is_not_the_same_each_time_is_told(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.protocol.quorum.majority", lambda nodes: 1)
    monkeypatch.setattr(script, "live", lambda stage: replace(live(stage), wrong="another: thing"))
    assert main(["--seeds", "0..2", "--swarm"]) == 1
    assert "And it is not the same each time" in capsys.readouterr().out
