"""What all tests share."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
from collections.abc import Generator, Iterator

import pytest

from holdfast.embedded import Nodes

# HOLDFAST_LOOP=uvloop has everything of asyncio run on uvloop: pytest-asyncio's tests, and what calls `asyncio.run` itself.
if (loop := os.environ.get("HOLDFAST_LOOP", "asyncio")) == "uvloop":
    import uvloop

    asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())
elif loop != "asyncio":
    raise pytest.UsageError(f"HOLDFAST_LOOP is asyncio or uvloop, not {loop}")

# A shell has what it starts in the background ignore these, and so would all programs that tests start and interrupt.
for number, usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGQUIT, signal.SIG_DFL), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, usual)

# What needs asyncio's own loop: these count its timers and turns, in places that uvloop has not,
ONLY_ASYNCIO = {
    "test_b34_nothing_remains_after_closing",
    "test_one_write_a_node_and_turn",
    "test_what_a_claim_costs",
    "test_200_waiters_are_served_in_the_order_in_which_they_came",
    "test_b48_1000_leases_that_are_held_and_renewed",
    # and this one what a warning raises (see `on_uvloop` in ./task).
    "test_ended_notices_what_is_left_over",
    # Its programs run on asyncio's loop, and are so quick that uvloop has read their greeting before the tests' proxy speaks TLS.
    "test_a_fork_leaves_the_parents_connections_alone",
}


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Leave the tests themselves, a million objects that all stay, out of each search for garbage, which took half a second."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Nothing is skipped at run time."""
    if loop == "uvloop":
        items[:] = [it for it in items if not (isinstance(it, pytest.Function) and it.originalname in ONLY_ASYNCIO)]


@pytest.fixture(scope="session")
def nodes() -> Iterator[Nodes]:
    """Five real nodes for all tests that do them no harm. Who kills, restarts or freezes a node starts its own `Nodes`."""
    with Nodes(5) as nodes:
        yield nodes
