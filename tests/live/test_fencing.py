"""The holder that was stopped: it wakes up when its time is over, writes without a look, and is refused."""

from __future__ import annotations

import os
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import redis
from contract.cluster import Cluster
from contract.programs import program

from holdfast import Holdfast
from holdfast.embedded import Nodes
from holdfast.fencing import FenceTable
from holdfast.fencing.redis import FencedRedis

STORE = {
    "sqlite": """
    import sqlite3
    from holdfast.fencing import FenceTable

    def write(lease, value):
        with sqlite3.connect(sys.argv[1]) as database:  # commits, or rolls back
            cursor = database.cursor()
            guard(cursor, lease)
            cursor.execute("UPDATE data SET value = ?", [value])

    guard = FenceTable("sqlite").guard
    """,
    "redis": """
    import redis
    from holdfast.fencing.redis import FencedRedis

    def write(lease, value):
        with redis.Redis.from_url(sys.argv[1]) as client:
            FencedRedis(client, lease).set("data", value)
    """,
}
HOLDER = """
    lease = Holdfast(ttl=0.6).lock("stopped").acquire()
    write(lease, "first")
    say(lease.fence)
    sys.stdin.readline()
    try:
        write(lease, "late")
    except StaleFence as refused:
        say("refused", refused.name, refused.fence == lease.fence, refused.seen)
    else:
        say("written")
    os._exit(0)
"""


class Sqlite:
    """A file."""

    def __init__(self, folder: Path) -> None:
        self.where = str(folder / "database")
        with closing(sqlite3.connect(self.where)) as database:
            database.execute(FenceTable("sqlite").ddl)
            database.execute("CREATE TABLE data (value TEXT)")
            database.execute("INSERT INTO data VALUES ('')")
            database.commit()

    def write(self, lease: object, value: str) -> None:
        with closing(sqlite3.connect(self.where)) as database:
            FenceTable("sqlite").guard(database.cursor(), lease)  # type: ignore[arg-type]  # (the mistake)
            database.execute("UPDATE data SET value = ?", [value])
            database.commit()

    def read(self) -> str:
        with closing(sqlite3.connect(self.where)) as database:
            return str(database.execute("SELECT value FROM data").fetchone()[0])


class Redis:
    """A server of its own."""

    def __init__(self, url: str) -> None:
        self.where = url

    def write(self, lease: object, value: str) -> None:
        with redis.Redis.from_url(self.where) as client:
            FencedRedis(client, lease).set("data", value)  # type: ignore[arg-type]  # (the mistake)

    def read(self) -> str:
        with redis.Redis.from_url(self.where, decode_responses=True) as client:
            return str(client.get("data"))


@pytest.fixture(scope="module")
def server() -> Iterator[Nodes]:
    with Nodes(1) as nodes:
        yield nodes


@pytest.mark.parametrize("kind, guarded", [("sqlite", True), ("redis", True), ("sqlite", False)], ids=["sqlite", "redis", "no guard"])
def test_s14_a_stopped_holder_that_wakes_up_late_writes_nothing(
    three: Cluster, server: Nodes, tmp_path: Path, kind: str, guarded: bool
) -> None:
    store = Sqlite(tmp_path) if kind == "sqlite" else Redis(server.urls[0])
    source = STORE[kind].rstrip() + ("" if guarded else "\n    guard = lambda cursor, lease: None") + HOLDER
    with Holdfast(*three.urls) as client, program(source, three, store.where) as holder:
        fence = int(holder.hear())
        holder.signal(signal.SIGSTOP)
        os.waitid(os.P_PID, holder.pid, os.WSTOPPED | os.WNOWAIT)
        with client.lock("stopped", wait=20) as lease:
            assert lease.fence > fence
            store.write(lease, "second")
        holder.tell()
        holder.signal(signal.SIGCONT)
        if guarded:
            holder.expect(f"refused stopped True {lease.fence}")
            assert store.read() == "second"
        else:  # what the guard is for
            holder.expect("written")
            assert store.read() == "late"
