"""What is done once by whole processes: many at the same time, some that are killed or stopped while they run."""

from __future__ import annotations

import asyncio
import signal
import time
from pathlib import Path

import pytest
from contract.cluster import Cluster
from contract.programs import program, run

import holdfast.aio
from holdfast import Holdfast, current
from holdfast.embedded import Nodes
from holdfast.engine.engine import Engine
from holdfast.errors import NoQuorum
from holdfast.events import NodeEvent

TTL = 1.0
WORKERS, JOBS = 50, 10


CROWD = f"""
import random

def locked(locks, job, done, body):
    with open(done, "a+") as file:
        file.seek(0)
        seen = any(it.split()[0] == str(job) for it in file)
    if not seen:
        with locks.lock(f"lock:{{job}}"):
            return body()

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
        told[job] = DOES
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


def crowd(three: Cluster, folder: Path, does: str) -> tuple[list[str], list[str]]:
    """Fifty processes, each of which wants every job done, in another order. What each was told; who ran what."""
    done = folder / "done"
    source = CROWD.replace("DOES", does)
    status, out, errors = run(source, three, done, patience=120)
    assert (status, errors) == (0, "")
    return out.split("\n")[:-1], done.read_text().splitlines()


@pytest.mark.timeout(180)
def test_fifty_workers_run_each_job_once(three: Cluster, tmp_path: Path) -> None:
    told, done = crowd(three, tmp_path, 'locks.once(f"job:{job}", keep=600).run(body)')
    assert len(told) == WORKERS
    assert len(done) == JOBS, "each job is run once"
    ran = dict(line.split() for line in done)
    assert set(told) == {" ".join(f"{job}:{ran[str(job)]}" for job in range(JOBS))}, "and everybody is told who did it"


@pytest.mark.timeout(180)
def test_a_lock_is_the_wrong_answer(three: Cluster, tmp_path: Path) -> None:
    """It keeps them apart, and each of them runs: whoever looks whether it was done before it has the lock is too early."""
    _, done = crowd(three, tmp_path, "locked(locks, job, done, body)")
    assert len(done) > JOBS, len(done)


def test_a_runner_that_is_killed_is_replaced_within_its_ttl(three: Cluster) -> None:
    source = """
    locks = Holdfast(ttl=1, max_ttl=2)
    def body():
        say(current().fence)
        time.sleep(600)
    locks.once("killed", keep=600).run(body)
    """
    with Holdfast(*three.urls, ttl=TTL, max_ttl=2) as client, program(source, three) as runner:
        client.ready()
        fence = int(runner.hear())
        runner.signal(signal.SIGKILL)
        killed = time.monotonic()
        once = client.once("killed", keep=600, wait=60)
        assert once.run(lambda: current().fence) > fence
        assert time.monotonic() - killed > TTL / 3, "not before its lease is over"


def test_a_runner_that_is_stopped_is_told_when_it_goes_on(three: Cluster) -> None:
    """Somebody else has done it meanwhile, and that is the result."""
    source = """
    locks = Holdfast(ttl=1, max_ttl=2)
    def body():
        say("running")
        sys.stdin.readline()
        return "the first"
    try:
        say(locks.once("stopped", keep=600).run(body))
    except LockLost as lost:
        say(lost.reason)
    say(locks.once("stopped", keep=600).run(body))
    """
    with Holdfast(*three.urls, ttl=TTL, max_ttl=2) as client, program(source, three) as runner:
        client.ready()
        runner.expect("running")
        runner.signal(signal.SIGSTOP)
        assert client.once("stopped", keep=600, wait=60).run(lambda: "the second") == "the second"
        runner.tell()
        runner.signal(signal.SIGCONT)
        assert runner.hear() in ("slow", "expired", "gap")
        runner.expect("the second")


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


def test_threads_and_tasks_are_told_the_same(three: Cluster) -> None:
    async def twice() -> list[str]:
        async def body() -> str:
            return "a task"

        async with holdfast.aio.Holdfast(*three.urls) as locks:
            once = locks.once("both", keep=600)
            return await asyncio.gather(once.run(body), once.run(body))

    with Holdfast(*three.urls) as client:
        assert asyncio.run(twice()) == ["a task"] * 2
        assert client.once("both", keep=600).run(lambda: "a thread") == "a task"


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


LARGE = 900_000  # bytes; a hundred of them are more than a server keeps for a connection that subscribes: by default 32 MB


async def many_tasks(three: Cluster, key: str) -> list[NodeEvent]:
    """A hundred tasks of one process want one large result, and one large value. The connections that were lost meanwhile."""
    lost: list[NodeEvent] = []

    def observes(event: object) -> None:
        if isinstance(event, NodeEvent) and event.state == "down":
            lost.append(event)

    async with holdfast.aio.Holdfast(*three.urls, observer=observes) as locks:
        await locks.ready()

        async def makes() -> str:
            return "a" * LARGE

        once, fill = locks.once(key, keep=60), locks.fill(key, 60, makes)
        for _ in range(2):
            told = await asyncio.gather(*[once.run(makes) for _ in range(100)])
            assert {len(it) for it in told} == {LARGE}
            found = await asyncio.gather(*[fill.get() for _ in range(100)])
            assert {len(it.value) for it in found} == {LARGE}
    return lost


def test_a_large_result_that_many_tasks_want_at_once_costs_no_connection(three: Cluster) -> None:
    assert asyncio.run(many_tasks(three, "large")) == []


def test_a_question_for_each_task_is_found(three: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    consult = Engine.consult
    monkeypatch.setattr(Engine, "consult", lambda engine, asks, now, enough=None, share=None: consult(engine, asks, now, enough))
    try:
        lost = asyncio.run(many_tasks(three, "larger"))
    except NoQuorum:
        return
    assert lost, "the servers have hung up"
