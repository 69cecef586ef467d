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


def test_worlds_of_a_read_write_lock(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert main(["--replay", "0", "--shared", "--quick"]) == 0
    assert "seed 0, readers, calm: " in capsys.readouterr().out
    monkeypatch.setattr("holdfast.protocol.quorum.majority", lambda nodes: max(1, nodes // 2))
    assert main(["--seeds", "0..10", "--shared", "--quick"]) == 1
    told = capsys.readouterr().out.splitlines()[-1]
    found = re.search(r"replay (\d+) --quick --shared$", told)
    assert found is not None
    assert main(["--replay", found[1], "--quick", "--shared"]) == 1
    assert main(["--shrink", found[1], "--quick", "--shared", "--runs", "5"]) == 1


def test_what_cannot_be_shrunk_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--shrink", "14"]) == 2
    assert main(["--shrink", "1", "--swarm"]) == 2
    told = capsys.readouterr().out.splitlines()
    assert told == ["seed 14 is a scene, and as small as it can be", "seed 1 (swarm): no law is broken"]


@pytest.mark.parametrize("changes", ["clients", "clients='many'", "moons=2", "clients=1+1", "nodes=)"])
def test_changes_that_a_plan_has_not_are_refused(changes: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--replay", "1", "--plan", changes])
    assert "error: argument --plan" in capsys.readouterr().err


def test_a_law_that_never_looks_is_a_failure(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(script, "ENOUGH", 1)
    # One world alone has not something of everything.
    assert main(["--seeds", "3..4", "--swarm"]) == 2
    assert "laws that had nothing to look at: " in capsys.readouterr().out


def test_where_no_operator_is_no_law_has_to_look_at_what_he_does(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(script, "ENOUGH", 1)
    assert main(["--seeds", "0..10", "--shared"]) == 0
    monkeypatch.setattr(script, "HANDS", ())
    assert main(["--seeds", "0..10", "--shared"]) == 2
    told = capsys.readouterr().out
    # Whether a lease is lost to a gap in ten worlds is chance; an operator's hand is needed for the
    # law "gap".
    assert re.search("laws that had nothing to look at: gap(, unfounded)?\n", told)


def test_what_is_not_the_same_each_time_is_told(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.protocol.quorum.majority", lambda nodes: 1)
    monkeypatch.setattr(script, "live", lambda stage: replace(live(stage), wrong="another: thing"))
    assert main(["--seeds", "0..2", "--swarm"]) == 1
    assert "And it is not the same each time" in capsys.readouterr().out
