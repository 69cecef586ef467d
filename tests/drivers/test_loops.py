"""The driver for asyncio in a loop that has much else to do: what its connections share, and that a busy loop is no fault of a node.

Each fault below is planted into the driver's shipped source, and the scenario has to notice it.
"""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest
from drivers.bench import Bench, Damage
from drivers.on_asyncio import AsyncioBench
from proof import patches

from holdfast.drivers.aio.sockets import CHUNK, _buffer_of
from holdfast.errors import ConfigError
from holdfast.wire.connection import Connection, ConnectionState


@contextmanager
def made(damage: Damage | None = None) -> Iterator[Bench]:
    """A driver that has connected to nobody yet."""
    bench = AsyncioBench(damage)
    try:
        yield bench
    finally:
        bench.close()


@pytest.fixture
def bench() -> Iterator[Bench]:
    with made() as bench:
        yield bench


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


def one_long_turn_is_no_fault_of_a_node(bench: Bench) -> None:
    """A connection was being made, and the loop came to its timer two seconds too late. The turns after that are short."""
    greeting(bench)
    turns(bench, 3.0, 0.0, 0.0, 0.0, 0.0)
    answered(bench)


def many_turns_of_half_a_second_are_no_fault_of_a_node(bench: Bench) -> None:
    """As if thousands of clients were connecting in this loop. Its timer happens to be in time."""
    greeting(bench)
    turns(bench, 0.5, 0.52, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5)
    answered(bench)


def a_node_that_is_silent_is_given_up_in_a_loop_that_has_time(bench: Bench) -> None:
    greeting(bench)
    bench.passes(1.2)
    assert {node for node, _ in bench.ends} == {0, 1, 2}


def all_connections_of_a_loop_read_into_one_buffer(bench: Bench) -> None:
    """64 KB for each of them would be most of what a client costs."""
    bench.connect()
    buffers = [it.get_buffer(-1) for it in bench.driver.sockets.links]
    assert [len(it) for it in buffers] == [CHUNK] * 3
    assert len({id(it) for it in buffers}) == 1


def nothing_that_was_read_is_kept_in_the_buffer(bench: Bench) -> None:
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


Scenario = Callable[[Bench], None]
SCENARIOS: tuple[Scenario, ...] = (
    one_long_turn_is_no_fault_of_a_node,
    many_turns_of_half_a_second_are_no_fault_of_a_node,
    a_node_that_is_silent_is_given_up_in_a_loop_that_has_time,
    all_connections_of_a_loop_read_into_one_buffer,
    nothing_that_was_read_is_kept_in_the_buffer,
)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_in_a_loop(scenario: Scenario, bench: Bench) -> None:
    scenario(bench)


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


# ------------------------------------------------ the planted faults


class Planted(NamedTuple):
    """A fault of the driver, and the scenario that has to notice it."""

    damage: Damage
    seen_by: Scenario


FAULTS = {
    "a late timer is no excuse": Planted(
        Damage("        self._excuse(now, due)\n", ""),
        one_long_turn_is_no_fault_of_a_node,
    ),
    "slow turns are no excuse": Planted(
        Damage("        self._excuse(self.clock(), now)\n", ""),
        many_turns_of_half_a_second_are_no_fault_of_a_node,
    ),
    "every turn is an excuse": Planted(
        Damage("if now > due + self.engine.upkeep.patience / 8:", "if True:\n            due = min(due, now - 1)"),
        a_node_that_is_silent_is_given_up_in_a_loop_that_has_time,
    ),
    "a buffer for each connection": Planted(
        Damage("self._buffer = _buffer_of(driver.loop)", "self._buffer = bytearray(CHUNK)"),
        all_connections_of_a_loop_read_into_one_buffer,
    ),
    "what was read stays in the buffer": Planted(
        Damage("            self.driver.received(self, data)", "            self.driver.loop.call_soon(self.driver.received, self, data)"),
        nothing_that_was_read_is_kept_in_the_buffer,
    ),
}


@pytest.mark.parametrize("scenario", SCENARIOS[:2])
def test_a_connection_that_takes_no_excuse_is_noticed(scenario: Scenario, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "self.wake = max(self.wake, now + min(lag, self.manners.timeout))"
    patches.method(monkeypatch, Connection, "excuse", text, "pass")
    with pytest.raises(AssertionError):
        scenario(bench)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_noticed(fault: str) -> None:
    damage, scenario = FAULTS[fault]
    with made(damage) as bench, pytest.raises((AssertionError, ConfigError)):
        scenario(bench)
