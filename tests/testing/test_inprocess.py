"""Nodes in this process: real clients of both faces cannot tell them from servers, in what they are for."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from nemesis.processes import until
from proof.misuse import misuse

import holdfast.aio
import holdfast.testing
from holdfast import Holdfast, LockBusy, Misuse, NoQuorum
from holdfast.errors import ConfigError
from holdfast.testing import memory


def folder_of(nodes: holdfast.testing.MemoryNodes) -> Path:
    return Path(nodes.urls[0].removeprefix("unix://")).parent


def test_two_clients_for_threads_have_the_lock_one_after_the_other() -> None:
    with memory() as nodes, Holdfast(*nodes.urls) as one, Holdfast(*nodes.urls) as two:
        with one.lock("x", wait=10) as lease:
            assert two.lock("x").try_acquire() is None
            with pytest.raises(LockBusy):
                two.lock("x", wait=0.05).acquire()
            fences: list[int] = []

            def waits() -> None:
                with two.lock("x", wait=20) as later:
                    fences.append(later.fence)

            waiting = threading.Thread(target=waits)
            waiting.start()
            until(lambda: one.inspect("x").queue)
        waiting.join()
        assert fences[0] > lease.fence
        until(lambda: [it.state for it in one.nodes()] == ["up"] * 3)


def test_a_client_of_another_process() -> None:
    source = "from holdfast import Holdfast\nwith Holdfast() as locks: print(locks.lock('x').try_acquire())"
    with memory() as nodes, Holdfast(*nodes.urls) as locks, locks.lock("x", wait=10):
        environment = {**os.environ, **nodes.environment}
        ran = subprocess.run([sys.executable, "-c", source], env=environment, capture_output=True, text=True, timeout=60)
        assert (ran.stdout, ran.stderr) == ("None\n", "")


# ------------------------------------------------ what happens to nodes


def test_a_dead_minority_is_not_missed_and_a_dead_majority_is() -> None:
    with memory() as nodes, Holdfast(*nodes.urls, ttl=2, outage=0.3) as locks:
        locks.ready(20)
        nodes.kill(0)
        nodes.kill(0)
        with locks.lock("x", wait=10) as lease:
            assert lease.votes == 2
        nodes.kill(1)
        with pytest.raises(NoQuorum):
            locks.lock("x", wait=10).acquire()
        for steer in (nodes.freeze, nodes.thaw):
            with pytest.raises(Misuse, match="is dead"):
                steer(1)


def test_a_node_that_was_restarted_is_empty_and_guarded() -> None:
    with memory() as nodes, Holdfast(*nodes.urls, ttl=20) as locks:
        lease = locks.lock("x", wait=10).acquire()
        before = nodes.run_ids
        assert len(before) == 3
        nodes.restart(0)
        assert len(nodes.run_ids & before) == 2
        until(lambda: locks.nodes()[0].state == "guarded")
        assert lease.held
        nodes.kill(1)
        nodes.restart(1)  # one that is dead
        until(lambda: locks.nodes()[1].state == "guarded")


def test_a_frozen_node_says_nothing_until_it_is_thawed() -> None:
    with memory(1) as nodes, Holdfast(*nodes.urls, ttl=20, node_timeout=5) as locks:
        locks.ready(20)
        nodes.freeze(0)
        with pytest.raises(NoQuorum):
            locks.lock("x", wait=0.2).acquire()
        nodes.thaw(0)
        with locks.lock("x", wait=20):
            pass


def test_a_slow_node_answers_later() -> None:
    with memory(1) as nodes, Holdfast(*nodes.urls, node_timeout=3) as locks:
        locks.ready(20)
        nodes.slow(0, 0.2)
        began = time.monotonic()
        with locks.lock("x", wait=20):
            assert time.monotonic() - began >= 0.38, "two trips, but for what a timer goes off early"
        nodes.slow(0, 0)
        with pytest.raises(ConfigError, match="seconds"):
            nodes.slow(0, -1)
        with pytest.raises(IndexError):
            nodes.kill(1)


# ------------------------------------------------ beginning and end


def test_nothing_is_left_when_they_are_closed() -> None:
    threads = set(threading.enumerate())
    nodes = memory()
    folder = folder_of(nodes)
    assert folder.stat().st_mode & 0o777 == 0o700
    assert len(list(folder.iterdir())) == 3
    with Holdfast(*nodes.urls) as locks:
        locks.ready(20)
        nodes.close()
        nodes.close()
        until(lambda: [it.state for it in locks.nodes()] == ["down"] * 3)
    assert not folder.exists()
    assert not [it for it in set(threading.enumerate()) - threads if it.name == "holdfast-memory"]
    with pytest.raises(Misuse, match="were closed"):
        nodes.kill(0)


def test_dropped_nodes_are_cleaned_up() -> None:
    nodes = memory()
    folder = folder_of(nodes)
    del nodes
    gc.collect()
    assert not folder.exists()


def test_nodes_that_nobody_closed_end_with_the_interpreter() -> None:
    source = "from holdfast.testing import memory\nnodes = memory()\nprint(nodes.urls[0])"
    ran = subprocess.run([sys.executable, "-W", "error", "-c", source], capture_output=True, text=True, timeout=60)
    assert ran.stderr == ""
    assert not Path(ran.stdout.strip().removeprefix("unix://")).parent.exists()


def test_a_forked_child_uses_them_and_leaves_them_alone() -> None:
    source = """
import os
from holdfast import Holdfast
from holdfast.errors import Misuse
from holdfast.testing import memory
nodes = memory()
if os.fork() == 0:
    with Holdfast(*nodes.urls) as locks, locks.lock("x", wait=20):
        pass
    nodes.close()
    try:
        nodes.kill(0)
    except Misuse:
        os._exit(7)
print(os.waitstatus_to_exitcode(os.wait()[1]), flush=True)
with Holdfast(*nodes.urls) as locks, locks.lock("x", wait=20):
    print("held")
"""
    ran = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, timeout=60)
    assert (ran.stdout, ran.stderr) == ("7\nheld\n", "")


def test_two_sets_of_them_are_strangers() -> None:
    with memory(1) as one, memory(1) as two:
        assert not one.run_ids & two.run_ids
        with Holdfast(shards={"a": one.urls, "b": two.urls}) as locks:
            for name in "abcdefgh":
                with locks.lock(name, wait=10):
                    pass


@pytest.mark.parametrize("count", [0, -1, True, 2.0, "3", None])
def test_no_nodes_is_an_error(count: Any) -> None:
    with pytest.raises(ConfigError, match="at least one"):
        memory(count)


def test_without_lua_an_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lupa", None)
    with pytest.raises(ConfigError, match="pip install"):
        memory()


def test_another_process_may_not_steer(monkeypatch: pytest.MonkeyPatch) -> None:
    with memory() as nodes:
        with monkeypatch.context() as patched:
            patched.setattr(os, "getpid", lambda: -1)
            with misuse("wrong_process"):
                nodes.kill(0)
        nodes.kill(0)


async def test_many_tasks_in_several_loops_meet() -> None:
    """Nodes, and what they push, are one thread's; clients are everybody's."""
    counted = 0

    async def adds(locks: holdfast.aio.Holdfast) -> None:
        nonlocal counted
        for _ in range(5):
            async with locks.lock("counter", wait=60):
                before = counted
                await asyncio.sleep(0)
                counted = before + 1

    async def main() -> None:
        async with holdfast.aio.Holdfast(*nodes.urls) as locks:
            await asyncio.gather(*[adds(locks) for _ in range(4)])

    with memory() as nodes:
        threads = [threading.Thread(target=lambda: asyncio.run(main())) for _ in range(2)]
        for thread in threads:
            thread.start()
        await main()
        await asyncio.to_thread(lambda: [it.join() for it in threads])
    assert counted == 60
