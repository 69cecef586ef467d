"""Fills between processes: one computes for all of them, and is replaced when it is killed."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from contract.cluster import Cluster
from contract.programs import Program, program

from holdfast.embedded import Nodes

# Each computation leaves a line in a file that all processes share; every thread says what it got, and how.
CALLERS = """
path, seconds, threads = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
locks = Holdfast(*URLS, ttl=2, max_ttl=10)
locks.ready()

def compute():
    with open(path, "a") as file:
        file.write(f"{os.getpid()}\\n")
    time.sleep(seconds)
    return os.getpid()

fill = locks.fill("price", 60, compute)

def call():
    found = fill.get()
    told.append(f"{found.value} {found.computed} {found.waited > 0}")

told, callers = [], [threading.Thread(target=call) for _ in range(threads)]
say("ready")
sys.stdin.readline()
for it in callers:
    it.start()
for it in callers:
    it.join()
say(";".join(told))
sys.stdin.readline()
"""


@pytest.fixture
def five() -> Iterator[Cluster]:
    with Cluster(Nodes(5)) as cluster:
        yield cluster


def told(running: Program) -> list[list[str]]:
    return [it.split() for it in running.hear().split(";")]


def computed(path: Path) -> list[int]:
    """Which processes have begun to compute, in order."""
    return [int(it) for it in path.read_text().split()] if path.exists() else []


def test_one_computes_for_all_threads_of_all_processes(five: Cluster, tmp_path: Path) -> None:
    path = tmp_path / "computed"
    with contextlib.ExitStack() as stack:
        programs = [stack.enter_context(program(CALLERS, five, path, 0.5, 25)) for _ in range(4)]
        for running in programs:
            running.expect("ready")
        for running in programs:
            running.tell()
        answers = [it for running in programs for it in told(running)]
        [pid] = computed(path)
        assert len(answers) == 100
        assert {int(value) for value, _, _ in answers} == {pid}
        assert [did for _, did, _ in answers].count("True") == 1
        for running in programs:
            running.tell()
            assert running.end() == 0


def test_a_computer_that_is_killed_is_replaced_within_a_lease(five: Cluster, tmp_path: Path) -> None:
    path = tmp_path / "computed"
    with contextlib.ExitStack() as stack:
        dying = stack.enter_context(program(CALLERS, five, path, 60, 1))
        others = [stack.enter_context(program(CALLERS, five, path, 0.1, 10)) for _ in range(2)]
        for running in (dying, *others):
            running.expect("ready")
        dying.tell()
        while not computed(path):
            time.sleep(0.01)
        for running in others:
            running.tell()
        time.sleep(0.5)  # they stand in line by now
        dying.signal(signal.SIGKILL)
        answers = [it for running in others for it in told(running)]
        first, second = computed(path)
        assert (first, second in [it.pid for it in others]) == (dying.pid, True)
        assert {int(value) for value, _, _ in answers} == {second}
        assert [did for _, did, _ in answers].count("True") == 1
