"""Clients whose clocks are set while they hold locks. (Nodes': tests/sim/test_clocks.py.)"""

from __future__ import annotations

import asyncio
import time

import pytest

import holdfast
import holdfast.aio
from holdfast.embedded import Nodes


@pytest.mark.parametrize("step", [-86_400.0, 86_400.0])
async def test_a_clients_own_clock_may_be_set_to_anything(nodes: Nodes, step: float) -> None:
    with holdfast.Holdfast(*nodes.urls, ttl=0.9) as threads:
        async with holdfast.aio.Holdfast(*nodes.urls, ttl=0.9) as tasks:
            mine, theirs = threads.lock(f"mine {step}").acquire(), await tasks.lock(f"theirs {step}").acquire()
            for it in (threads._driver, threads._driver.io_thread, tasks._driver()):
                it.wall = lambda: time.time() + step
            await asyncio.sleep(1.5)  # two renewals each
            assert mine.held
            assert theirs.held
            mine.release()
            await theirs.release()
            with threads.lock(f"mine {step}", wait=5) as later:
                assert later.fence > mine.fence
            async with tasks.lock(f"theirs {step}", wait=5) as last:
                assert last.fence > theirs.fence
