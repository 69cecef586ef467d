"""The loop of a world: the client that ships, in a process that is paused and crashed, with a clock of its own."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from swarm.stage import Stage
from testing.theatre import Theatre

from holdfast.engine.engine import Engine
from holdfast.protocol.claim import State
from holdfast.testing.world import Violation


@pytest.fixture
def stage() -> Theatre:
    return Theatre()


def test_a_paused_process_reads_everything_before_it_looks_at_the_time(stage: Theatre) -> None:
    claim = stage.world.do(stage.take(stage.one))
    stage.world.run(stage.one.clock.when(claim.wake) + 1e-5)  # its renewal is under way
    stage.one.process.pause(0.31)  # longer than node_timeout, shorter than the lease
    stage.later(0.4)
    assert claim.state is State.HELD
    assert all(link is not None for link in stage.one.links), "what lay unread was not late"


def test_a_paused_process_that_wakes_up_too_late_has_lost_the_lock(stage: Theatre) -> None:
    claim = stage.world.do(stage.take(stage.one))
    stage.one.process.pause(3.0)
    stage.later(2.0)
    assert claim.state is State.HELD  # so it believes, if anybody could ask
    stage.later(1.1)
    assert (claim.state, claim.reason) == (State.LOST, "slow")


def test_a_crashed_process_says_nothing_and_its_lease_runs_out(stage: Theatre) -> None:
    claim = stage.world.do(stage.take(stage.one))
    other = stage.two.process.run(stage.take(stage.two))
    stage.later(0.2)
    before = len(stage.world.record)
    stage.one.process.crash()
    stage.later(0.5)
    assert not other.done()
    stage.later(1.0)
    assert other.result().state is State.HELD
    assert claim.state is State.HELD, "nobody was there who could notice"
    assert not [it for it in stage.world.record[before + 1 :] if it[1] is stage.one]


def test_tasks_end_with_their_world(stage: Theatre) -> None:
    told: list[str] = []

    async def user() -> None:
        try:
            await stage.take(stage.one)
            await asyncio.sleep(10.0)
        except BaseException as error:
            told.append(type(error).__name__)
            raise

    stage.one.process.run(user())
    stage.later(0.5)
    stage.world.close()
    assert told == ["GeneratorExit"]


def test_time_passes_in_a_process_as_its_clock_says(stage: Theatre) -> None:
    stage.one.clock.becomes(2.0)
    task = stage.one.process.run(asyncio.sleep(1.0))
    stage.later(0.6)
    assert task.done()


def test_a_failure_of_the_engine_ends_the_run(stage: Theatre, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> None:
        raise KeyError("a bug")

    monkeypatch.setattr(Engine, "begin", fails)
    with pytest.raises(KeyError):
        stage.world.do(stage.take(stage.one))


def test_laws_see_the_end_of_a_client_that_had_something_to_say(stage: Theatre) -> None:
    claim = stage.world.do(stage.take(stage.one))
    stage.one.driver.steer(Engine.close)
    stage.one.driver._unsent = 1
    stage.one.driver._shut()
    stage.later(0.1)
    assert claim not in stage.laws.open


def test_running_a_stage_ends_everybody() -> None:
    class Short(Stage):
        aim = ("rain",)

        def _play(self) -> None:
            self.client()
            self.world.run(1.0)
            raise Violation("enough")

    stage = Short(0, 1, 1.0)
    with pytest.raises(Violation):
        stage.run()
    assert all(driver.gone for driver in stage.drivers)
    assert stage.void == ("rain",)
    with pytest.raises(NotImplementedError):
        Stage(0, 1, 1.0).run()
