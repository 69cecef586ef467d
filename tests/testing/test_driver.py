"""The simulated client obeys a driver's contract: it reads before it looks at the time, cleans up without waiting, and dies silently."""

from __future__ import annotations

from typing import Any

import pytest
from swarm.stage import Hold, Stage

from holdfast.protocol.claim import Claim, State
from holdfast.protocol.timing import Timing
from holdfast.testing.driver import Driver, Witness
from holdfast.testing.network import Node
from holdfast.testing.world import DriftingClock, TaskCancelled, Violation


class Theatre(Stage):
    """Three nodes and two clients, connected."""

    def __init__(self, nodes: int = 3) -> None:
        super().__init__(0, nodes, 1.0)
        self.holds: list[Hold] = []
        self.one, self.two = self.client(), self.client()
        self.world.run(1.5)

    def later(self, seconds: float) -> None:
        """Let this time pass."""
        self.world.run(self.world.now + seconds)

    async def take(self, driver: Driver, **options: Any) -> Claim:
        """Acquire the lock, and keep it."""
        hold = Hold()
        self.holds.append(hold)
        await driver.acquire(hold, [self.recipe(1.0)], Timing(1.0, **options))
        return hold.claim

    def holders(self) -> list[bytes]:
        return [node.holder(b"L") for node in self.nodes]


@pytest.fixture
def stage() -> Theatre:
    return Theatre()


def test_a_stopped_process_reads_everything_before_it_looks_at_the_time(stage: Theatre) -> None:
    claim = stage.world.do(stage.take(stage.one))
    stage.world.run(stage.one.clock.when(claim.wake) + 1e-5)  # its renewal is under way
    stage.one.stop(0.31)  # longer than node_timeout, shorter than the lease
    stopped = [stage.one.stopped]
    stage.later(0.4)
    assert [*stopped, stage.one.stopped] == [True, False]
    assert claim.state is State.HELD
    assert all(link is not None for link in stage.one.links), "what lay unread was not late"
    assert stage.one.stops == 1


def test_a_stopped_process_that_wakes_up_too_late_has_lost_the_lock(stage: Theatre) -> None:
    claim = stage.world.do(stage.take(stage.one))
    stage.one.stop(3.0)
    stage.later(2.0)
    assert claim.state is State.HELD  # so it believes, if anybody could ask
    stage.later(1.1)
    assert (claim.state, claim.reason) == (State.LOST, "slow")


def test_a_stop_may_end_early(stage: Theatre) -> None:
    stage.one.stop(50.0)
    stage.one.stop(10.0)
    stage.later(20.0)
    stopped = [stage.one.stopped]
    stage.one.go_on(now=True)
    assert [*stopped, stage.one.stopped] == [True, False]
    stage.later(0.1)
    assert stage.world.do(stage.take(stage.one)).state is State.HELD


def test_the_tasks_of_a_stopped_process_stand_still(stage: Theatre) -> None:
    woken: list[float] = []

    async def user() -> None:
        await stage.world.sleep(1.0)
        woken.append(stage.world.now)

    began = stage.world.now
    stage.one.run(user())
    stage.later(0.5)
    stage.one.stop(4.0)
    stage.later(5.0)
    assert woken == [began + 4.5]


def test_a_killed_process_says_nothing_and_its_lease_runs_out(stage: Theatre) -> None:
    claim = stage.world.do(stage.take(stage.one))
    other = stage.two.run(stage.take(stage.two))
    stage.later(0.2)
    before = len(stage.world.record)
    stage.one.kill()
    stage.later(0.5)
    assert not other.done
    stage.later(1.0)
    assert other.result().state is State.HELD
    assert claim.state is State.HELD, "nobody was there who could notice"
    assert not [it for it in stage.world.record[before + 1 :] if it[1] is stage.one]


def test_tasks_die_with_their_process(stage: Theatre) -> None:
    told: list[str] = []

    async def user() -> None:
        try:
            await stage.take(stage.one)
            await stage.world.sleep(10.0)
        except BaseException as error:
            told.append(type(error).__name__)
            raise

    stage.one.run(user())
    stage.later(0.5)
    stage.one.kill()
    stage.later(20.0)
    assert told == ["GeneratorExit"]
    assert stage.holders() == [b""] * 3


def test_a_lease_that_nobody_has_any_more_is_not_renewed(stage: Theatre) -> None:
    claim = stage.world.do(stage.take(stage.one))
    stage.holds.clear()
    stage.later(0.5)
    assert claim.state is State.HELD
    stage.later(1.0)
    assert claim.state is State.LOST


def test_closing_waits_no_longer_than_node_timeout(stage: Theatre) -> None:
    stage.world.do(stage.take(stage.one))
    for node in stage.nodes:
        node.vanish(60.0)
    began = stage.world.now
    stage.world.do(stage.one.close())
    assert stage.world.now == pytest.approx(began + stage.settings.node_timeout, rel=0.01)


def test_events_are_kept(stage: Theatre) -> None:
    stage.nodes[0].stop()
    stage.later(2.0)
    assert [it.state for it in stage.one.told if type(it).__name__ == "NodeEvent"][-1] == "down"


def test_a_witness_sees_everything() -> None:
    stage, told = Stage(0, 1, 1.0), list[str]()

    class Told(Witness):
        def began(self, driver: Driver, claim: Claim) -> None:
            told.append("began")

        def sends(self, driver: Driver, node: Node, data: bytes) -> None:
            told.append("sends")

    driver = Driver(stage.world, stage.nodes, stage.settings, DriftingClock(stage.world, 0.0), Told())
    stage.world.do(driver.ready(5.0))
    told.clear()
    stage.world.do(driver.acquire(Hold(), [stage.recipe(1.0)], Timing(1.0)))
    assert told == ["began", "sends"]
    stage.world.close()


def test_a_user_who_is_cancelled_twice(stage: Theatre) -> None:
    async def user() -> None:
        try:
            await stage.world.sleep(10.0)
        except TaskCancelled:
            await stage.world.sleep(10.0)

    task = stage.one.run(user())
    stage.later(1.0)
    task.cancel()
    stage.later(1.0)
    task.cancel()
    stage.later(0.1)
    assert task.done


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
    assert all(driver.dead for driver in stage.drivers)
    assert stage.void == ("rain",)
    with pytest.raises(NotImplementedError):
        Stage(0, 1, 1.0).run()
