"""What all tests share."""

from __future__ import annotations

import asyncio
import gc
import os
import re
import signal
import time
from collections.abc import Generator, Iterator
from pathlib import Path

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

# What needs asyncio's own loop: these count its timers and turns, in places that uvloop has not.
ONLY_ASYNCIO = {
    "test_b34_nothing_remains_after_closing",
    "test_b48_1000_leases_that_are_held_and_renewed",
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


# A module or a test with one of these marks is not part of `./task test`, but of `./task test --all`; stories have a part of their own.
# The mark of a whole module is read from its text: nobody has to import it.
KINDS = {
    "slow": "waits for real time, or computes for more than half a second",
    "servers": "runs on several kinds of servers, on databases, or a second time with the other face",
    "pages": "reads the documentation, or runs it",
    "guards": "checks the sources, or is a fault that such a check must find",
    "worlds": "simulates many worlds, or explores one",
    "stories": "takes long on every server and event loop",
}
# Folders of tests that have a command of their own, and modules in them that need no process, node or browser: these run here, too.
APART = ("live", "cli", "serve", "clients", "metrics", "site/test_browser.py")
NEAR = ("cli/test_answers.py", "cli/test_holder.py", "serve/test_holds.py")
MARKED = re.compile(r"^pytestmark = \[?\s*pytest\.mark\.(\w+)", re.MULTILINE)
# What a test without such a mark may take: seconds of a core, which are six times the half that it should take, and seconds that it asks
# to sleep. Neither is read from the clock, so that no test fails because the machine is busy.
CORE, SLEEP = 3.0, 0.3


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--part", choices=("quick", "all"), help="quick: tests without a mark; all: also those with one, but no stories")


def pytest_configure(config: pytest.Config) -> None:
    for kind, why in KINDS.items():
        config.addinivalue_line("markers", f"{kind}: {why}")


def left_out(config: pytest.Config) -> set[str]:
    """The kinds of tests that this run leaves out."""
    return {"quick": {*KINDS}, "all": {"stories"}}.get(config.getoption("part"), set())


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave whole files out before anything imports them. None says that this is no reason."""
    out, tests = left_out(config), Path(__file__).parent
    apart = any(collection_path.is_relative_to(tests / it) for it in APART)
    if out and apart and not any((tests / it).is_relative_to(collection_path) for it in NEAR):
        return True
    if out and collection_path.name.startswith("test_") and (found := MARKED.search(collection_path.read_text())):
        return found[1] in out or None
    return None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Nothing is skipped at run time."""
    out = left_out(config)
    items[:] = [it for it in items if not any(mark.name in out for mark in it.iter_markers())]
    if loop == "uvloop":
        items[:] = [it for it in items if not (isinstance(it, pytest.Function) and it.originalname in ONLY_ASYNCIO)]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Fail a test of the quick part that is not quick."""
    if item.config.getoption("part") != "quick":
        return (yield)
    asked, sleep, began = 0.0, time.sleep, time.process_time()

    def counted(seconds: float) -> None:
        nonlocal asked
        asked += seconds if seconds >= 0.1 else 0.0  # (shorter ones wait for an event)
        sleep(seconds)

    time.sleep = counted
    try:
        result = yield
    finally:
        time.sleep = sleep
    if (core := time.process_time() - began) > CORE or asked > SLEEP:
        took = f"took {core:.1f} s of a core, and asked to sleep for {asked:.1f} s"
        pytest.fail(f"{took}: make it cheaper, or mark it (tests/conftest.py)")
    return result


@pytest.fixture(scope="session")
def nodes() -> Iterator[Nodes]:
    """Five real nodes for all tests that do them no harm. Who kills, restarts or freezes a node starts its own `Nodes`."""
    with Nodes(5) as nodes:
        yield nodes
