"""The thread that keeps a client: how much it can carry, how it sends and receives, and which places it tries."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from contract.cluster import Cluster
from contract.programs import run
from live.kit import connected, io_thread_of
from nemesis.processes import until

from holdfast import Holdfast
from holdfast.drivers import sockets
from holdfast.embedded import Nodes

ONLY_LINUX = pytest.mark.skipif(not os.path.exists("/proc/self/task"), reason="only Linux lists a process's threads and files")


@pytest.fixture(scope="module")
def ports() -> Iterator[Cluster]:
    """The same, with names of hosts in their addresses."""
    with Cluster(Nodes(3, tcp=True)) as cluster:
        yield cluster


def things() -> tuple[int, int]:
    """How many threads and open files this process has."""
    return len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd"))


# ------------------------------------------------ how much it carries


def test_more_files_than_select_can_count(three: Cluster) -> None:
    source = """
    import resource
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 1500:
        say("too few")
        sys.exit()
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 1500), hard))
    kept = [os.open(os.devnull, os.O_RDONLY) for _ in range(1200)]
    assert max(kept) > 1024
    with Holdfast() as locks, locks.lock("files", wait=10) as lease:
        say(lease.held)
    """
    status, out, errors = run(source, three)
    if out == "too few\n":
        pytest.skip("this system allows too few open files")
    assert (status, out, errors) == (0, "True\n", "")


# ------------------------------------------------ how it sends and receives


def test_a_connection_that_is_gone_has_no_number_that_may_be_anothers_by_now() -> None:
    with Cluster(Nodes(3)) as nodes, connected(nodes) as client:
        io_thread = io_thread_of(client)
        link = io_thread.sockets.by_node[0]
        assert link is not None and link.file == link.sock.fileno() >= 0
        nodes.nodes.kill(0)
        # The I/O thread forgets the connection first and its number last: look when it has done both.
        until(lambda: io_thread.sockets.by_node[0] is not link and link.file == -1)
        assert link.sock.fileno() == -1


# ------------------------------------------------ addresses


@ONLY_LINUX
def test_s03_a_slow_name_server_is_not_asked_again_and_again(ports: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(address: Any) -> list[tuple[int, Any]]:
        asked.append(address)
        time.sleep(0.8)
        return real(address)

    real, asked = sockets.places, list[Any]()
    monkeypatch.setattr(sockets, "places", slow)
    urls = [it.replace("127.0.0.1", "localhost") for it in ports.urls]
    before = things()[0]
    with Holdfast(*urls, node_timeout=0.05, outage=20) as client:
        waiter = threading.Thread(target=lambda: client.lock("slow", wait=15).acquire().release())
        waiter.start()
        time.sleep(0.6)
        assert things()[0] <= before + 6, "one for each node, beside the waiter, the I/O thread and the log"
        waiter.join(15)
    assert len(asked) <= 6
