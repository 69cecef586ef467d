"""The holder that was stopped: it wakes up when its time is over, writes without a look, and is refused."""

from __future__ import annotations

import os
import signal
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from contract.cluster import Cluster
from contract.programs import program

from holdfast import Holdfast
from holdfast.fencing import FenceTable

STORE = """
    import sqlite3
    from holdfast.fencing import FenceTable

    def write(lease, value):
        with sqlite3.connect(sys.argv[1]) as database:  # commits, or rolls back
            cursor = database.cursor()
            guard(cursor, lease)
            cursor.execute("UPDATE data SET value = ?", [value])

"""
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


class Store:
    """A file with one value."""

    def __init__(self, folder: Path) -> None:
        self.where = str(folder / "database")
        self._do(FenceTable("sqlite").ddl, "CREATE TABLE data (value TEXT)", "INSERT INTO data VALUES ('')")

    def _do(self, *statements: str, lease: Any = None) -> str:
        with closing(sqlite3.connect(self.where)) as database, database:
            if lease is not None:
                FenceTable("sqlite").guard(database.cursor(), lease)
            for it in statements:
                database.execute(it)
            return str(database.execute("SELECT value FROM data").fetchone()[0])

    def write(self, lease: Any, value: str) -> None:
        self._do(f"UPDATE data SET value = '{value}'", lease=lease)

    def read(self) -> str:
        return self._do()


@pytest.mark.parametrize("guarded", [True, False], ids=["guarded", "no guard"])
def test_s14_a_stopped_holder_that_wakes_up_late_writes_nothing(three: Cluster, tmp_path: Path, guarded: bool) -> None:
    store, guard = Store(tmp_path), 'FenceTable("sqlite").guard' if guarded else "lambda cursor, lease: None"
    source = f"{STORE}    guard = {guard}{HOLDER}"
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
