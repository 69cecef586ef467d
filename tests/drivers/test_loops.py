"""The driver for asyncio in a loop that has much else to do: what its connections share, and that a busy loop is no fault of a node."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
from drivers.bench import Bench
from drivers.on_asyncio import AsyncioBench

from holdfast.drivers.aio.sockets import CHUNK, _buffer_of
from holdfast.wire.connection import ConnectionState


@pytest.fixture
def bench() -> Iterator[Bench]:
    """A driver that has connected to nobody yet."""
    bench = AsyncioBench()
    yield bench
    bench.close()


def greeting(bench: Bench) -> None:
    """Every node has been greeted, and none has answered."""
    bench.silent |= {0, 1, 2}
    bench.ready()
    bench.settle()
    assert lines(bench) == {ConnectionState.GREETING}


def lines(bench: Bench) -> set[ConnectionState]:
    return {it.state for it in bench.engine.connections}


def turns(bench: Bench, *seconds: float) -> None:
    """Turns of the loop, before each of which something else took so long."""
    for it in seconds:
        bench.time.now += it
        bench.turn()


def answered(bench: Bench) -> None:
    """What the nodes had said arrives, and they are in use, on their first connections."""
    assert bench.ends == []
    bench.arrives(0, 1, 2)
    bench.settle()
    assert lines(bench) == {ConnectionState.UP}
    assert [it.connection for it in bench.nodes] == [1, 1, 1]


# ------------------------------------------------ the scenarios


def test_one_long_turn_is_no_fault_of_a_node(bench: Bench) -> None:
    """A connection was being made, and the loop came to its timer two seconds too late. The turns after that are short."""
    greeting(bench)
    turns(bench, 3.0, 0.0, 0.0, 0.0, 0.0)
    answered(bench)


def test_many_turns_of_half_a_second_are_no_fault_of_a_node(bench: Bench) -> None:
    """As if thousands of clients were connecting in this loop. Its timer happens to be in time."""
    greeting(bench)
    turns(bench, 0.5, 0.52, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5)
    answered(bench)


def test_a_node_that_is_silent_is_given_up_in_a_loop_that_has_time(bench: Bench) -> None:
    greeting(bench)
    bench.passes(1.2)
    assert {node for node, _ in bench.ends} == {0, 1, 2}


def test_all_connections_of_a_loop_read_into_one_buffer(bench: Bench) -> None:
    """64 KB for each of them would be most of what a client costs."""
    bench.connect()
    buffers = [it.get_buffer(-1) for it in bench.driver.sockets.links]
    assert [len(it) for it in buffers] == [CHUNK] * 3
    assert len({id(it) for it in buffers}) == 1


def test_nothing_that_was_read_is_kept_in_the_buffer(bench: Bench) -> None:
    """What one node sends in two pieces survives what another one sends in between."""
    bench.connect()
    call = bench.acquire()
    bench.silent |= {0, 1, 2}
    bench.settle()
    answers = [bytes(bench._kept[number]) for number in range(3)]
    for number in range(3):
        bench._kept[number].clear()
    for at in range(max(map(len, answers))):
        for number in range(3):
            bench.says(number, answers[number][at : at + 1])
            bench.settle()
    call.result()


# ------------------------------------------------ whose a buffer is


def test_a_buffer_is_one_loops_and_gone_with_it() -> None:
    """Two loops may read at the same moment, in two threads."""

    async def buffer() -> tuple[Any, Any]:
        loop = asyncio.get_running_loop()
        assert _buffer_of(loop) is _buffer_of(loop)
        return weakref.ref(loop), _buffer_of(loop)

    (one, first), (two, second) = asyncio.run(buffer()), asyncio.run(buffer())
    assert first is not second
    gc.collect()
    assert one() is two() is None
