"""Many at once: the order is kept, and all are renewed."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

from live.test_aio_kit import Eye, calm, connected, driver_of, eye, idle, some
from proof.books import word

from holdfast import events
from holdfast.aio import Lease
from holdfast.embedded import Nodes

__all__ = ["eye"]


@calm
async def test_b48_1000_leases_that_are_held_and_renewed(nodes: Nodes, eye: Eye) -> None:
    """Renewed for as long as they are held, by no task and one timer, and not one of them is in doubt."""
    heard = Counter[str]()

    def observer(event: events.Event) -> None:
        heard[word(event)] += 1

    async with await connected(nodes, ttl=4, observer=observer) as locks:
        loop: Any = asyncio.get_running_loop()
        names = [some("held") for _ in range(1000)]
        lost: list[Lease] = []
        leases = await asyncio.gather(*[locks.lock(name, on_lost=lost.append).acquire() for name in names])
        began = [lease._want.until for lease in leases]
        assert asyncio.all_tasks() == {asyncio.current_task()}
        await asyncio.sleep(2.2)  # each renewed at least once
        assert sum(not it.cancelled() and it._callback == driver_of(locks)._timer._tick for it in loop._scheduled) <= 1
        assert asyncio.all_tasks() == {asyncio.current_task()}
        assert lost == [] and all(it.held for it in leases)
        assert all(it._want.until > before for it, before in zip(leases, began, strict=True))
        assert heard["Renewed"] >= 1000
        assert not heard["Doubt"] and not heard["down"] and not heard["lost"]
        await asyncio.gather(*[it.release() for it in leases])
        await eye.gone(*names)
        assert idle(locks)
