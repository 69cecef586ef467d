"""The seeds that every run of the tests lives through. `./task sim --seeds 0..1000` runs more."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest
from swarm.__main__ import main
from swarm.explore import NAMES, WORLDS, explore, swarm
from swarm.stage import Stage

from holdfast.testing.timeline import timeline
from holdfast.testing.world import Violation

pytestmark = pytest.mark.worlds

EACH = 2  # seeds of each kind of world
TESTS = str(Path(__file__).parent.parent)


def lives(seed: int) -> bool:
    """Live through a seed's world: the test fails if a law is broken. Whether the world counts."""
    stage = explore(seed)
    try:
        stage.run()
    except Violation as violation:
        pytest.fail("\n".join([f"seed {seed} ({stage.name}): {violation}", *timeline(stage.world, 30)]), pytrace=False)
    return not stage.void


@pytest.mark.parametrize("world", WORLDS)
def test_no_law_is_broken(world: str) -> None:
    first = WORLDS.index(world)
    count = sum([lives(first + turn * len(WORLDS)) for turn in range(EACH)])
    assert count * 2 >= EACH, "what these worlds are aimed at hardly ever happens"


SWARM = range(12)


def test_no_law_is_broken_in_the_swarm() -> None:
    count = 0
    for seed in SWARM:
        stage = explore(seed, wild=True)
        try:
            stage.run()
        except Violation as violation:
            pytest.fail("\n".join([f"seed {seed} --swarm: {violation}", *timeline(stage.world, 30)]), pytrace=False)
        count += not stage.void
    assert count > len(SWARM) // 2


def test_the_swarm_is_of_every_size() -> None:
    plans = [swarm(seed) for seed in range(100)]
    assert {it.nodes for it in plans} == {1, 3, 4, 5, 7}
    assert {it.clients for it in plans} == set(range(2, 9))
    assert {it.names for it in plans} == set(range(1, len(NAMES) + 1))
    assert {it.slow > 0.0 for it in plans} == {True, False}
    assert swarm(7) == swarm(7) != swarm(8)


def test_a_world_of_the_swarm_counts_if_enough_happened_in_it() -> None:
    stage = explore(0, wild=True)
    assert stage.void == ("a hold", "300 messages", "a fault")
    stage.world.saw("held")
    stage.world.chance.strikes("restarts")
    stage.world.delivered = 300
    assert not stage.void
    stage.world.close()


def run_all(stages: Iterable[Stage]) -> None:
    for stage in stages:
        stage.run()


@pytest.mark.parametrize("name", [0, 1], ids=["fence", "exclusion"])
def test_the_swarm_finds_what_is_wrong(name: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The laws look at each name by itself, and at all of them."""
    if name:
        monkeypatch.setattr("holdfast.protocol.quorum.majority", lambda nodes: max(1, nodes // 2))
    else:
        monkeypatch.setattr("holdfast.protocol.quorum.agreed", lambda least, fences: max(fences) if len(fences) >= least else 0)
    with pytest.raises(Violation, match="majority|exclusion|counted" if name else "fence"):
        run_all(explore(seed, wild=True) for seed in range(30))


@pytest.mark.parametrize("world", ["mortal", "hands on three", "a late cede"])
def test_the_same_seed_is_the_same_history(world: str) -> None:
    seed = WORLDS.index(world)
    histories = []
    for each in (seed, seed, seed + len(WORLDS)):
        stage = explore(each, quick=True)
        stage.run()
        histories.append(stage.world.fingerprint())
    assert histories[0] == histories[1] != histories[2]


def test_in_another_process_too() -> None:
    """Also where texts hash otherwise."""
    told = []
    for hashes in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": hashes, "PYTHONPATH": TESTS}
        command = [sys.executable, "-m", "swarm", "--quick", "--replay", "3"]
        told.append(subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout)
    assert told[0] == told[1]
    assert len(told[0].splitlines()) > 200


def test_exploring_tells_what_was_seen(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seeds", "14..17", "--quick"]) == 0
    told = capsys.readouterr().out
    assert "no law is broken" in told
    assert "  cedes cut" in told


def test_exploring_the_swarm(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert main(["--swarm", "--seeds", "1..2"]) in (0, 2)
    monkeypatch.setattr("holdfast.protocol.quorum.majority", lambda nodes: 1)
    assert main(["--swarm", "--seeds", "0..9"]) == 1
    assert capsys.readouterr().out.splitlines()[-1].endswith(" --swarm")


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


@pytest.mark.parametrize("seeds", ["9", "9..9", "a..b", "..3", "-1..3"])
def test_what_is_no_range_is_refused(seeds: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([f"--seeds={seeds}"])
    assert "a range such as 0..100" in capsys.readouterr().err
