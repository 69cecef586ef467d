"""The seeds that every run of the tests lives through. `./task sim` runs more, and its `--help` tells of which worlds."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from swarm.__main__ import main
from swarm.explore import SWARM, WORLDS, explore

from holdfast.engine.health import Health
from holdfast.protocol.claim import Claim
from holdfast.testing.timeline import timeline
from holdfast.testing.world import Violation

pytestmark = pytest.mark.worlds

TESTS = str(Path(__file__).parent.parent)
# How many seeds of each world; more, until what it is aimed at has happened,
EACH = {"": 2, "shared": 3, "skewed": 3, "promoted": 3, "sets": 4}
# but no more than these.
MOST = 10
# Seeds that find a fault of `tests/faults.toml`, or have found one: in 5 of the shared ones, a write-back was under way when a writer
# began its downgrade, and what it raised looked like a gap.
KEPT = {"one": [52], "a late cede": [65], "readers, calm": [5], SWARM: [31]}


def lives(seed: int, kind: str, quick: bool = False) -> bool:
    """Live through a seed's world: the test fails if a law is broken. Whether the world counts."""
    stage = explore(seed, kind=kind, quick=quick)
    try:
        stage.run()
    except Violation as violation:
        pytest.fail("\n".join([f"seed {seed} --{kind} ({stage.name}): {violation}", *timeline(stage.world, 30)]), pytrace=False)
    return not stage.void


@pytest.mark.parametrize(
    "kind, world",
    [
        pytest.param(kind, world, id=world, marks=[pytest.mark.stories] if kind in ("shared", "skewed", "sets") else [])
        for kind, worlds in WORLDS.items()
        for world in worlds
    ],
)
def test_no_law_is_broken(kind: str, world: str) -> None:
    first, step = WORLDS[kind].index(world), len(WORLDS[kind])
    count = 0
    for turn in range(MOST):
        count += lives(first + turn * step, kind, quick=kind == "shared")
        if count and turn + 1 >= EACH[kind]:
            break
    assert count, "what these worlds are aimed at never happens"
    for seed in KEPT.get(world, ()):
        lives(seed, kind)


def test_no_law_is_broken_in_the_swarm() -> None:
    seeds = [*range(12), *KEPT[SWARM]]
    assert sum(lives(it, SWARM) for it in seeds) > len(seeds) // 2


def test_nodes_whose_clocks_are_wrong_are_found_out_if_they_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither is their vote refused, nor what they grant looked at."""
    # Rule F4.
    monkeypatch.setattr(Health, "_judge_clocks", lambda *_: None)
    monkeypatch.setattr(Claim, "latest", lambda *_: 2**53)
    with pytest.raises(Violation, match=r"^(fence|counted): "):
        explore(20, kind="skewed").run()


def test_the_same_seed_is_the_same_history_in_another_process_too() -> None:
    """Also where texts hash otherwise."""
    told = []
    for hashes in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": hashes, "PYTHONPATH": TESTS}
        command = [sys.executable, "-m", "swarm", "--quick", "--replay", str(WORLDS[""].index("mortal"))]
        told.append(subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout)
    assert told[0] == told[1]
    assert len(told[0].splitlines()) > 200


def test_a_world_in_which_nothing_happened_does_not_count(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("swarm.scenes.LateCede.aim", ("the moon falls down",))
    assert main(["--seeds", "14..15"]) == 2
    assert "1 more do not count" in capsys.readouterr().out


def test_the_first_violation_ends_it_and_is_told(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.protocol.quorum.majority", lambda nodes: 1)
    assert main(["--seeds", "0..9"]) == 1
    told = capsys.readouterr().out.splitlines()
    assert told[0].startswith("seed 0 (three), at ")
    assert "majority: " in told[0]
    assert told[-1] == "All of it: ./task sim replay 0"
    assert 30 < len(told) < 80
    assert main(["--replay", "0"]) == 1
    assert len(capsys.readouterr().out.splitlines()) > 30


def test_a_failing_engine_is_told(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.protocol.claim.Claim.check", lambda *_: 1 // 0)
    assert main(["--seeds", "0..9"]) == 1
    assert "ZeroDivisionError" in capsys.readouterr().out
