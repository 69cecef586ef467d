"""The driver for asyncio: nobody waits for news that there will not be."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from typing import Any

import pytest
from drivers.bench import TTL, Call, closing
from drivers.on_asyncio import AsyncioBench

from holdfast.drivers import sockets
from holdfast.protocol.claim import State


@pytest.fixture
def bench() -> Iterator[AsyncioBench]:
    """A driver that is connected to three nodes."""
    with closing(AsyncioBench()) as bench:
        yield bench


# ------------------------------------------------ the scenarios


def test_a_release_of_a_lease_that_was_lost_returns(bench: AsyncioBench) -> None:
    """One lease may have parts on two shards: this one was lost while the release of the other part was waited for."""
    call = bench.acquired()
    claim: Any = call.lease._want
    bench.silent |= {0, 1, 2}
    bench.passes(TTL)
    assert (claim.state, call.lease.fell) == (State.LOST, 1)
    release = bench._call(Call(), lambda: bench.driver.release(claim, True))
    bench.settle()
    release.result()
    assert not len(bench.driver.waiting)


def test_a_release_that_is_to_be_confirmed_waits_for_the_nodes(bench: AsyncioBench) -> None:
    call = bench.acquired()
    bench.silent |= {0, 1, 2}
    release = bench._call(Call(), lambda: bench.driver.release(call.lease._want, True))
    bench.settle()
    assert not release.done
    bench.arrives(0, 1)
    bench.settle()
    release.result()
    assert call.lease._want.freed == 2


def test_s16_a_loop_that_was_blocked_looks_at_its_leases_before_it_reads(bench: AsyncioBench) -> None:
    """What may work on without the lock is told in the first turn, and not when all has been read that lay unread."""
    call = bench.acquired()
    claim: Any = call.lease._want
    bench.passes(2.8)
    bench.silent |= {0, 1, 2}
    bench.passes(0.2)
    bench.time.now = claim.until + 0.5
    bench.turn()
    assert (claim.state, call.lease.fell) == (State.LOST, 1)


def test_s03_connections_that_never_come_do_not_pile_up(bench: AsyncioBench) -> None:
    """A black hole: each dial is given up after `node_timeout`, and nothing of it remains."""
    dials = list[Any]()

    async def swallows(sock: Any, where: Any) -> None:
        dials.append(where)
        await bench.loop.create_future()

    bench.loop.sock_connect = swallows  # type: ignore[method-assign]  # (a fake in its place)
    hung_up(bench)
    bench.passes(15.0)
    assert len(dials) > 5
    assert len(asyncio.all_tasks(bench.loop)) <= 1


def test_late_news_of_an_old_connection_concerns_nobody(bench: AsyncioBench) -> None:
    """One that was replaced: neither what it still says, nor that it is lost."""
    old = bench.driver.sockets.links[0]
    hung_up(bench)
    bench.passes(1.0)
    new = bench.driver.sockets.links[0]
    assert new is not old
    old.get_buffer(-1)[:5] = b"+OK\r\n"
    old.buffer_updated(5)
    old.connection_lost(None)
    assert bench.driver.sockets.links[0] is new
    assert [it.state for it in bench.driver.status()] == ["up"] * 3


def hung_up(bench: AsyncioBench) -> None:
    """The first node's connection is given up."""
    bench.driver.do(bench.engine.upkeep.lost, 0, bench.time(), ConnectionError("hung up"))


def test_a_socket_that_was_closed_meanwhile_needs_no_reset() -> None:
    class Gone:
        """What uvloop has of such a socket."""

        family = socket.AF_INET

        def setsockopt(self, *option: object) -> None:
            raise ValueError("negative file descriptor")

    gone: Any = Gone()
    sockets.reset(gone)
