"""What is done once by whole processes at the same time, by tasks that block their loop, and on nodes that all die."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest
from contract.cluster import Cluster
from contract.programs import run

import holdfast.aio
from holdfast import Holdfast
from holdfast.embedded import Nodes

WORKERS, JOBS = 50, 10


CROWD = f"""
import random

def work(number, done):
    # Fifty processes on a few cores keep each other from answering. A client that works for longer than node_timeout also
    # looks at the persistence of its nodes, and warns of these.
    locks, told = Holdfast(node_timeout=10), {{}}
    for job in random.Random(number).sample(range({JOBS}), {JOBS}):
        def body():
            with open(done, "a") as file:
                file.write(f"{{job}} {{number}}\\n")
            time.sleep(0.02)
            return number
        told[job] = locks.once(f"job:{{job}}", keep=600).run(body)
    locks.close()
    return told

reads = []
for number in range({WORKERS}):
    reading, writing = os.pipe()
    if os.fork() == 0:
        told = work(number, sys.argv[1])
        os.write(writing, " ".join(f"{{job}}:{{told[job]}}" for job in sorted(told)).encode())
        os._exit(0)
    os.close(writing)
    reads.append(reading)
for reading in reads:
    say(os.read(reading, 1 << 16).decode())
"""


@pytest.mark.timeout(180)
def test_fifty_workers_run_each_job_once(three: Cluster, tmp_path: Path) -> None:
    """Each wants every job done, in another order."""
    status, out, errors = run(CROWD, three, tmp_path / "done", patience=120)
    assert (status, errors) == (0, "")
    told, done = out.split("\n")[:-1], (tmp_path / "done").read_text().splitlines()
    assert len(told) == WORKERS
    assert len(done) == JOBS, "each job is run once"
    ran = dict(line.split() for line in done)
    assert set(told) == {" ".join(f"{job}:{ran[str(job)]}" for job in range(JOBS))}, "and everybody is told who did it"


def outcomes(nodes: Nodes) -> tuple[bool, bool]:
    """Do a result and a count outlive the restart of all nodes at once? No guard: this asks what nodes remember."""
    with Holdfast(*nodes.urls, restart_guard=None) as client:
        client.once("kept", keep=600).run(lambda: "the result")
        counted = client.rate("counted", 3, 600)
        assert all(counted.take() for _ in range(3))
        # What a majority has answered may still be on its way to the rest: `kill` would drop it there.
        assert client.once("kept", keep=600).result()
    for node in range(len(nodes)):
        nodes.kill(node)
    for node in range(len(nodes)):
        nodes.restart(node)
    with Holdfast(*nodes.urls, restart_guard=None) as client:
        client.ready(wait=30)
        return bool(client.once("kept", keep=600).result()), not client.rate("counted", 3, 600).take()


def test_nodes_that_save_everything_remember_results_and_counts_though_all_of_them_die() -> None:
    with Nodes(3, arguments=("--appendonly", "yes", "--appendfsync", "always")) as nodes:
        assert outcomes(nodes) == (True, True)


def test_nodes_that_save_nothing_forget_them() -> None:
    with Nodes(3) as nodes:
        assert outcomes(nodes) == (False, False)


def test_a_task_that_keeps_its_loop_from_running_past_its_lease(three: Cluster) -> None:
    """Nobody could stop it, and nobody else has looked: its result is kept, and its task is not cancelled later on."""

    async def story() -> object:
        async def body() -> str:
            time.sleep(0.8)  # (the fault that is meant)
            return "late"

        async with holdfast.aio.Holdfast(*three.urls, ttl=0.5, max_ttl=2) as locks:
            await locks.ready()
            once = locks.once("blocked", keep=600)
            told = await once.run(body)
            await asyncio.sleep(0.3)
            return told, (await once.result()).value

    assert asyncio.run(story()) == ("late", "late")
