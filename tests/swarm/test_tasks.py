"""Tasks in virtual time: they are heard when they fail, and when they never end."""

from __future__ import annotations

import pytest
from swarm.tasks import TaskWorld

from holdfast.testing.world import Violation


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
