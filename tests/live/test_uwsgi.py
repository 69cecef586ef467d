"""Under uWSGI, which forks its workers from the master without telling Python, unless it is told to.

The client is used in the master, so that a worker inherits it with open connections and a thread that is not there.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from contract.cluster import Cluster
from nemesis.processes import Running, free_port, until

UWSGI = Path(sys.executable).with_name("uwsgi")

pytestmark = pytest.mark.skipif(not UWSGI.exists(), reason="pyuwsgi has no wheel for this system")

APPLICATION = """
import os, time
from holdfast import Holdfast
from holdfast.errors import Misuse

locks = Holdfast(ttl=30, node_timeout=1)
leases = [locks.lock(f"master:{os.getpid()}").acquire()]
loaded = os.getpid()
locks.ready()
# uWSGI's fork must not hit a moment in which holdfast's thread runs: the child would wait for the interpreter for ever.
time.sleep(0.3)

def application(environ, start_response):
    start_response("200 OK", [("Content-Type", "text/plain")])
    # What has a note is the I/O thread's business, which is not there in the worker.
    with locks.lock("request", wait=10, note="a worker's") as lease:
        lease.check()
        fence = lease.fence
    inherited = loaded != os.getpid()
    try:
        mine = leases[0].held
    except Misuse:
        mine = None
    return [f"{fence} {inherited} {mine}".encode()]
"""

CONFIGURATIONS = {
    "by default": ([], "True None"),
    "apps loaded in workers": (["--lazy-apps"], "False True"),
    "threads": (["--enable-threads", "--threads", "2"], "True None"),
    "workers that come and go": (["--cheaper", "1", "--enable-threads"], "True None"),
    "python is told": (["--py-call-osafterfork", "--enable-threads"], "True None"),
}


@contextlib.contextmanager
def served(nodes: Cluster, where: Path, *options: str) -> Iterator[str]:
    """An address at which uWSGI serves the application, with two workers."""
    (where / "application_with_locks.py").write_text(APPLICATION)
    address = f"127.0.0.1:{free_port()}"
    given = {**os.environ, "HOLDFAST_NODES": " ".join(nodes.urls), "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [str(UWSGI), "--http-socket", address, "--master", "--processes", "2", "--need-app", "--die-on-term", *options]
    command += ["--wsgi", "application_with_locks"]
    with open(where / "log", "wb") as log:
        running = Running(*command, cwd=where, env=given, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True)
    try:
        until(lambda: "spawned uWSGI worker" in (where / "log").read_text(), told=f"{where}/log tells of a worker")
        yield f"http://{address}/"
    finally:
        # The master, and workers that it may have left behind.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(running.process.pid, signal.SIGKILL)
        running.process.wait(10)


def asked(url: str) -> str:
    with urllib.request.urlopen(url, timeout=20) as answer:
        text: str = answer.read().decode()
        return text


@pytest.mark.parametrize("configuration", CONFIGURATIONS)
def test_a_client_that_was_used_in_the_master_works_in_a_worker(three: Cluster, tmp_path: Path, configuration: str) -> None:
    options, expected = CONFIGURATIONS[configuration]
    with served(three, tmp_path, *options) as url:
        answers = [asked(url).split(" ", 1) for _ in range(10)]
    assert [it for _, it in answers] == [expected] * 10
    fences = [int(it) for it, _ in answers]
    assert fences == sorted(set(fences))
