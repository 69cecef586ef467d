"""Metrics of a service with four worker processes under gunicorn: sums are right, and stay so when a worker is killed."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from integrations.stage import staged
from nemesis.processes import until

from holdfast.embedded import Nodes

APPLICATION = '''
import os
from prometheus_client import CollectorRegistry, generate_latest, multiprocess
from holdfast import Holdfast
from holdfast.metrics import Metrics

metrics = Metrics()
locks = Holdfast(*os.environ["NODES"].split(), observer=metrics)
metrics.follow(locks)
kept = []

def application(environment, start):
    path = environment["PATH_INFO"]
    if path == "/metrics":
        registry = CollectorRegistry()
        multiprocess.MultiProcessCollector(registry)
        body = generate_latest(registry)
    elif path == "/hold":
        kept.append(locks.lock(f"held:{os.getpid()}:{len(kept)}").acquire())
        body = str(os.getpid()).encode()
    else:
        with locks.lock("counted"):
            body = str(os.getpid()).encode()
    start("200 OK", [("Content-Length", str(len(body)))])
    return [body]
'''

CONFIGURATION = """
from prometheus_client import multiprocess

def child_exit(server, worker):
    multiprocess.mark_process_dead(worker.pid)
"""


@contextlib.contextmanager
def served(folder: Path, nodes: Nodes, *flags: str) -> Iterator[Callable[[str], str]]:
    """Yields what asks the service: each time on a connection of its own, so that any worker may answer."""
    (folder / "application.py").write_text(APPLICATION)
    (folder / "configuration.py").write_text(CONFIGURATION)
    (folder / "shared").mkdir()
    with staged(folder, {"NODES": " ".join(nodes.urls), "PROMETHEUS_MULTIPROC_DIR": str(folder / "shared")}) as stage:
        words = ("gunicorn", "-w", "4", "-b", "127.0.0.1:{port}", "-c", "configuration.py", *flags, "application")
        url = stage.serve(*words, path="/metrics")
        yield lambda path: httpx.get(url + path, timeout=20).text


def has(get: Callable[[str], str], series: str, value: float) -> None:
    """Wait until a series has this value."""

    def found() -> bool:
        at = re.search(rf"^{re.escape(series)} (\S+)$", get("/metrics"), re.MULTILINE)
        return (float(at[1]) if at else 0.0) == value

    until(found, told=f"{series} is {value}")


@pytest.mark.timeout(120)
@pytest.mark.parametrize("flags", [(), ("--preload",)], ids=["each worker loads", "preload"])
def test_four_workers_add_up(tmp_path: Path, flags: tuple[str, ...]) -> None:
    with Nodes(3) as nodes, served(tmp_path, nodes, *flags) as get:
        asked, workers = 0, set[str]()
        end = time.monotonic() + 30
        while len(workers) < 4:
            assert time.monotonic() < end, f"only these workers answer: {workers}"
            workers.add(get("/"))
            asked += 1
        has(get, 'holdfast_acquire_total{kind="exclusive",outcome="held"}', asked)
        has(get, 'holdfast_held{kind="exclusive"}', 0)
        holders = [get("/hold") for _ in range(6)]
        has(get, 'holdfast_held{kind="exclusive"}', 6)
        has(get, 'holdfast_quorum_spare{shard=""}', 1)
        killed = holders[0]
        os.kill(int(killed), signal.SIGKILL)
        has(get, 'holdfast_held{kind="exclusive"}', 6 - holders.count(killed))
        has(get, 'holdfast_acquire_total{kind="exclusive",outcome="held"}', asked + 6)
