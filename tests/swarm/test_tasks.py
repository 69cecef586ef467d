"""Tasks in virtual time: they sleep, wait for each other, and are heard when they fail."""

from __future__ import annotations

import pytest
from swarm.tasks import TaskWorld

from holdfast.testing.world import Violation


async def naps(world: TaskWorld, *seconds: float) -> float:
    for each in seconds:
        await world.sleep(each)
    return world.now


def test_tasks_sleep_in_virtual_time() -> None:
    world = TaskWorld(0)
    task = world.spawn(naps(world, 1000.0, 500.0))
    world.run(1400.0)
    assert not task.done()
    world.run(1600.0)
    assert task.result() == 1500.0
    assert world.do(naps(world, 1.0)) == 1601.0


def test_a_task_may_wait_for_another_and_hears_what_it_raised() -> None:
    world = TaskWorld(0)

    async def fails() -> None:
        await world.sleep(1.0)
        raise KeyError("gone")

    async def waits() -> str:
        with pytest.raises(KeyError):
            await world.spawn(fails())
        return "heard"

    assert world.do(waits()) == "heard"


def test_what_a_task_raises_ends_the_run_if_nobody_waits_for_it() -> None:
    world = TaskWorld(0)

    async def fails() -> None:
        raise KeyError("gone")

    world.spawn(fails())
    with pytest.raises(KeyError):
        world.run()


def test_what_is_never_done_is_a_violation() -> None:
    world = TaskWorld(0)

    async def waits() -> None:
        await world.loop.create_future()

    with pytest.raises(Violation, match="still not done"):
        world.do(waits(), within=5.0)
    world.close()
