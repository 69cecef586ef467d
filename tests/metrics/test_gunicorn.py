"""Metrics of a service with four worker processes under gunicorn: sums are right, and stay so when a worker is killed."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from contract.cluster import Cluster

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


class Service:
    """A service that listens on a Unix socket."""

    def __init__(self, folder: Path) -> None:
        self.socket = folder / "socket"

    def get(self, path: str) -> str:
        """The body of the answer, on a connection of its own, so that any worker may answer."""
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(20)
            connection.connect(str(self.socket))
            connection.sendall(f"GET {path} HTTP/1.0\r\n\r\n".encode())
            with connection.makefile("rb") as file:
                return file.read().decode().partition("\r\n\r\n")[2]

    def value(self, series: str) -> float:
        found = re.search(rf"^{re.escape(series)} (\S+)$", self.get("/metrics"), re.M)
        return float(found[1]) if found else 0.0

    def until(self, series: str, value: float) -> None:
        end = time.monotonic() + 20
        while (now := self.value(series)) != value:
            assert time.monotonic() < end, f"{series} is {now}, not {value}"
            time.sleep(0.02)


@contextlib.contextmanager
def served(folder: Path, nodes: Cluster, *flags: str) -> Iterator[Service]:
    (folder / "application.py").write_text(APPLICATION)
    (folder / "configuration.py").write_text(CONFIGURATION)
    (folder / "shared").mkdir()
    service = Service(folder)
    environment = os.environ | {
        "NODES": " ".join(nodes.urls),
        "PROMETHEUS_MULTIPROC_DIR": str(folder / "shared"),
    }
    command = [sys.executable, "-m", "gunicorn", "-w", "4", "-b", f"unix:{service.socket}", "-c", "configuration.py", *flags, "application"]
    with (folder / "log").open("w") as log, subprocess.Popen(command, cwd=folder, env=environment, stderr=log) as process:
        try:
            end = time.monotonic() + 30
            while not service.socket.exists():
                assert process.poll() is None, (folder / "log").read_text()
                assert time.monotonic() < end, (folder / "log").read_text()
                time.sleep(0.02)
            yield service
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(20)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("flags", [(), ("--preload",)], ids=["each worker loads", "preload"])
def test_four_workers_add_up(tmp_path: Path, flags: tuple[str, ...]) -> None:
    with Cluster(Nodes(3)) as nodes, served(tmp_path, nodes, *flags) as service:
        end = time.monotonic() + 30
        asked, workers = 0, set[str]()
        while len(workers) < 4:
            assert time.monotonic() < end, f"only these workers answer: {workers}"
            workers.add(service.get("/"))
            asked += 1
        service.until('holdfast_acquire_total{kind="exclusive",outcome="held"}', asked)
        service.until('holdfast_held{kind="exclusive"}', 0)
        holders = [service.get("/hold") for _ in range(6)]
        service.until('holdfast_held{kind="exclusive"}', 6)
        service.until('holdfast_quorum_spare{shard=""}', 1)
        killed = holders[0]
        os.kill(int(killed), signal.SIGKILL)
        service.until('holdfast_held{kind="exclusive"}', 6 - holders.count(killed))
        service.until('holdfast_acquire_total{kind="exclusive",outcome="held"}', asked + 6)
