"""Other lock libraries on the same nodes, each in an environment of its own: they and holdfast exclude each other."""

from __future__ import annotations

import re
import select
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import redis
from contract.programs import Program
from nemesis.processes import until

from bench import environments
from holdfast import Holdfast
from holdfast.embedded import Nodes
from holdfast.events import Ended

HEAD = "import sys, redis\nurls = sys.argv[1:]\nservers = [redis.Redis.from_url(it) for it in urls]\n"
# Each line of input is a name of one of these; what it returned is a line of output.
LOOP = "for line in sys.stdin:\n    print(bool({'acquire': acquire, 'release': release}[line.strip()]()), flush=True)\n"


class Peer(NamedTuple):
    """Another library.

    `environment`: of the bench; `nodes`: how many servers it locks on; `prefix`: what holdfast puts
    before a name to reach the same key; `program`: defines `acquire`, one try, and `release`.
    """

    environment: str
    nodes: int
    prefix: str
    program: str


PEERS = {
    "pottery": Peer(
        "pottery",
        3,
        "redlock:",
        "from pottery import Redlock\n"
        "lock = Redlock(key='report', masters=set(servers), auto_release_time=20)\n"
        "acquire = lambda: lock.acquire(blocking=False)\n"
        "release = lambda: lock.release() or True\n",
    ),
    "redlock-py": Peer(
        "redlock-py",
        3,
        "",
        "from redlock import Redlock\n"
        "locks, held = Redlock(urls, retry_count=1), []\n"
        "def acquire():\n"
        "    held[:] = [locks.lock('report', 20_000)]\n"
        "    return held[0]\n"
        "release = lambda: locks.unlock(held[0]) or True\n",
    ),
    "python-redis-lock": Peer(
        "python-redis-lock",
        1,
        "lock:",
        "import redis_lock\n"
        "lock = redis_lock.Lock(servers[0], 'report', expire=20)\n"
        "acquire = lambda: lock.acquire(blocking=False)\n"
        "release = lambda: lock.release() or True\n",
    ),
}

PAGE = Path(__file__).parents[2] / "docs" / "moving-over.md"
BRIDGE = re.compile(r"^def signal\(.*?(?=^\w)", re.MULTILINE | re.DOTALL)
# A waiter of python-redis-lock. It begins when it is told to, and says when it has the lock.
WAITER = """
import sys, redis, redis_lock
lock = redis_lock.Lock(redis.Redis.from_url(sys.argv[1]), "report", expire=20)
sys.stdin.readline()
print(lock.acquire(), flush=True)
"""


class Other(Program):
    """A process that uses the other library."""

    def does(self, word: str) -> bool:
        """Let it `acquire` or `release`: what came of it."""
        self.tell(word)
        answer = self.hear()
        assert answer in ("True", "False"), answer
        return answer == "True"


@contextmanager
def using(environment: str, source: str, nodes: Nodes) -> Iterator[Other]:
    command = [str(environments.python(environment)), "-c", source, *nodes.urls]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield Other(process)
        finally:
            process.kill()


@contextmanager
def both(peer: Peer) -> Iterator[tuple[Holdfast, Other]]:
    with (
        Nodes(peer.nodes, tcp=True) as nodes,
        Holdfast(*nodes.urls, prefix=peer.prefix) as locks,
        using(peer.environment, HEAD + peer.program + LOOP, nodes) as other,
    ):
        yield locks, other


@pytest.mark.parametrize("peer", PEERS)
def test_a_peer_and_holdfast_exclude_each_other(peer: str) -> None:
    with both(PEERS[peer]) as (locks, other):
        lock = locks.lock("report", wait=10)
        lease = lock.acquire()
        assert not other.does("acquire")
        lease.release(confirm=True)
        assert other.does("acquire")
        assert lock.try_acquire() is None
        assert other.does("release")
        lock.acquire().release(confirm=True)


def woken(*, bridged: bool, within: float) -> bool:
    """Does a waiter of python-redis-lock get the lock within so many seconds after our client released it?

    `bridged`: our client has the observer that the page on moving over shows.
    """
    with Nodes(1, tcp=True) as nodes, redis.Redis.from_url(nodes.urls[0]) as server:
        names: dict[str, Any] = {"server": server, "Ended": Ended}
        exec(BRIDGE.findall(PAGE.read_text())[0], names)
        observer = names["signal"] if bridged else None
        locks = Holdfast(*nodes.urls, prefix="lock:", observer=observer)
        with locks, using("python-redis-lock", WAITER, nodes) as waiter:
            with locks.lock("report", wait=0):
                waiter.tell()
                until(lambda: server.info("clients")["blocked_clients"], 30)
            return bool(select.select([waiter.process.stdout], [], [], within)[0])


def test_a_waiter_of_python_redis_lock_is_woken_by_the_bridge_of_the_page() -> None:
    assert woken(bridged=True, within=10)


def test_without_the_bridge_it_waits_on() -> None:
    assert not woken(bridged=False, within=2)
