"""Fences in an SQL database: a table that remembers them by name, or a column of the user's own table.

Knows SQL and what DB-API drivers have in common. Must not know whose transaction it is in, nor end it.

The guard is one statement that locks a record until the transaction ends, raises its fence, and finds it already higher if the holder is
late. What is asked is written once, as a generator that is sent the answers; who waits for them, a thread or a task, is all that differs.
"""

from __future__ import annotations

import re
import time
from collections.abc import Generator
from typing import Any, NamedTuple, Protocol

from .. import checks
from ..errors import ConfigError, Misuse, StaleFence
from .bearer import Fences, fence_of, fences_of

DIALECTS = ("postgresql", "sqlite", "mysql", "mariadb")
PARAMSTYLES = ("qmark", "format", "numeric", "numeric_dollar", "named", "pyformat")
_NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)?", re.ASCII)

# One statement, which takes the record's lock whether it changes it or not. A write that is not older than anything seen:
_WRITE = """
INSERT INTO {table} AS held (name, seen, written) VALUES (:name, :fence, :fence)
ON CONFLICT (name) DO UPDATE SET seen = excluded.seen, written = excluded.written WHERE excluded.seen >= held.seen"""
# A read that is not older than any write, and keeps older writes from coming after it:
_READ = """
INSERT INTO {table} AS held (name, seen, written) VALUES (:name, :fence, 0)
ON CONFLICT (name) DO UPDATE SET seen = CASE WHEN excluded.seen > held.seen THEN excluded.seen ELSE held.seen END
WHERE excluded.seen >= held.written"""
# MySQL's has no WHERE, and the count of rows that it gives depends on the connection. So it raises what may be raised, and a second one
# looks: FOR UPDATE, because a plain SELECT shows the state at the beginning of the transaction, in which nobody was later yet.
_MYSQL_WRITE = """
INSERT INTO {table} (name, seen, written) VALUES (:name, :fence, :fence)
ON DUPLICATE KEY UPDATE written = IF(seen <= :fence, :fence, written), seen = GREATEST(seen, :fence)"""
_MYSQL_READ = """
INSERT INTO {table} (name, seen, written) VALUES (:name, :fence, 0)
ON DUPLICATE KEY UPDATE seen = IF(written <= :fence, GREATEST(seen, :fence), seen)"""
_LOOK = "SELECT seen, written FROM {table} WHERE name = :name"
_FORGET = "DELETE FROM {table} WHERE seen < :fence"

_CREATE = {
    "postgresql": 'name text COLLATE "C" PRIMARY KEY, seen bigint NOT NULL, written bigint NOT NULL)',
    "sqlite": "name TEXT PRIMARY KEY, seen INTEGER NOT NULL, written INTEGER NOT NULL) WITHOUT ROWID",
    # (bytes: MySQL's text compares as equal what differs in spaces at its end)
    "mysql": "name varbinary(512) PRIMARY KEY, seen bigint NOT NULL, written bigint NOT NULL) ENGINE=InnoDB",
}

_STAMP = "UPDATE {table} SET {column} = :fence WHERE {key} = :key AND ({column} IS NULL OR {column} <= :fence)"
_STAMPED = "SELECT {column} FROM {table} WHERE {key} = :key"


class Cursor(Protocol):
    """What every DB-API cursor has; with asyncio, `execute` and `fetchone` are awaited."""

    @property
    def rowcount(self) -> int:
        """How many rows the last statement has changed."""

    def execute(self, operation: Any, parameters: Any, /) -> Any:
        """Execute a statement."""

    def fetchone(self) -> Any:
        """The next row of the last statement's."""


class FenceTable:
    """A table of its own that remembers, for each name, the highest fence it has seen; for whatever else lies in the same database.

    `dialect`: postgresql, sqlite, mysql or mariadb; `table`: its name; `paramstyle`: how the driver marks parameters (its module says so,
    such as `psycopg.paramstyle`; default: `?` for SQLite, `%s` elsewhere). `ddl` creates it. Immutable, and safe everywhere.

    The duty of whoever guards: `guard` first in the transaction, then read, then write, then commit, all on one connection.
    """

    def __init__(self, dialect: str, *, table: str = "holdfast_fences", paramstyle: str | None = None) -> None:
        self.dialect, self.table = _known(dialect, DIALECTS, "a dialect"), _identifier(table)
        family = "mysql" if dialect == "mariadb" else dialect
        self._mysql = family == "mysql"
        self.ddl = f"CREATE TABLE IF NOT EXISTS {table} ({_CREATE[family]}"

        def said(text: str) -> _Statement:
            return _Statement(text.format(table=table).strip(), dialect, paramstyle)

        self._write, self._read = (said(_MYSQL_WRITE), said(_MYSQL_READ)) if self._mysql else (said(_WRITE), said(_READ))
        self._look = said(_LOOK + (" FOR UPDATE" if self._mysql else ""))
        self._forget = said(_FORGET)

    def guard(self, cursor: Cursor, lease: Fences, *, read: bool = False, unfenced: bool = False) -> None:
        """Refuse a late holder, and keep all later ones waiting until this transaction ends.

        `cursor`: of the transaction that will write; `lease`: a lease, or `{name: fence}`; `read`: what follows only reads (for the
        readers of a read-write lock: refused below the highest fence that *wrote*, and writes below it are refused from now on);
        `unfenced`: a lease that is OPEN may go on without a check.

        Raises StaleFence if a later holder has been here: roll back. The same fence may come again, as often as it likes. Raises Misuse
        if the connection commits each statement by itself (as far as its driver tells), for then the guard was over before the write.
        The database's own errors are the caller's: above READ COMMITTED a transaction that met another one fails, and is repeated whole.
        """
        if fences := fences_of(lease, unfenced):
            _asked(cursor, self._guarding(fences, read))
            _in_transaction(cursor)

    async def aguard(self, cursor: Cursor, lease: Fences, *, read: bool = False, unfenced: bool = False) -> None:
        """`guard`, with a cursor whose methods are awaited (psycopg's AsyncCursor, aiosqlite, aiomysql, asyncmy)."""
        if fences := fences_of(lease, unfenced):
            await _awaited(cursor, self._guarding(fences, read))
            _in_transaction(cursor)

    def forget(self, cursor: Cursor, older_than: checks.Seconds) -> None:
        """Delete the records of names that no holder of the last `older_than` seconds was here for.

        A record that is gone refuses nobody: let it be days longer than anything of yours can be late. A fence tells its age because it
        counts microseconds (of holdfast's locks; other numbers would all be deleted).
        """
        _asked(cursor, self._forgetting(older_than))

    async def aforget(self, cursor: Cursor, older_than: checks.Seconds) -> None:
        """`forget`, with a cursor whose methods are awaited."""
        await _awaited(cursor, self._forgetting(older_than))

    def _guarding(self, fences: dict[str, int], read: bool) -> _Asking:
        for name, fence in fences.items():
            key = name.encode() if self._mysql else name
            raised = yield (self._read if read else self._write).asks(name=key, fence=fence)
            if raised == 1 and not self._mysql:  # (a driver that does not count says -1)
                continue
            seen, written = yield self._look.asks(row=True, name=key)
            if fence < (written if read else seen):
                raise StaleFence(name, fence, written if read else seen)

    def _forgetting(self, older_than: checks.Seconds) -> _Asking:
        oldest = time.time() - checks.seconds(older_than, "older_than")
        yield self._forget.asks(fence=round(oldest * 1_000_000))

    def __repr__(self) -> str:
        return f"<FenceTable {self.table!r} {self.dialect}>"


class FenceColumn:
    """A column of your own table that remembers the highest fence that each row has seen, and costs no table of its own.

    `table`, `key`, `column`: names in your schema; the column is a whole number of 64 bits, null or 0 at first. It knows no names: each row
    is protected by one lock. `dialect` and `paramstyle` as for `FenceTable`.
    """

    def __init__(self, dialect: str, table: str, *, key: str = "id", column: str = "fence", paramstyle: str | None = None) -> None:
        self.dialect, self.table = _known(dialect, DIALECTS, "a dialect"), _identifier(table)
        names = {"table": table, "key": _identifier(key), "column": _identifier(column)}
        self._stamp = _Statement(_STAMP.format(**names), dialect, paramstyle)
        self._stamped = _Statement(_STAMPED.format(**names) + ("" if dialect == "sqlite" else " FOR UPDATE"), dialect, paramstyle)

    def guard(self, cursor: Cursor, key: object, lease: Fences, *, unfenced: bool = False) -> None:
        """Stamp the row with the fence, and keep all others from it until this transaction ends; then read it, and write.

        Raises StaleFence if the row has seen a later holder: roll back. Raises LookupError if there is no such row, and Misuse as
        `FenceTable.guard` does.
        """
        if borne := fence_of(lease, unfenced):
            _asked(cursor, self._guarding(key, *borne))
            _in_transaction(cursor)

    async def aguard(self, cursor: Cursor, key: object, lease: Fences, *, unfenced: bool = False) -> None:
        """`guard`, with a cursor whose methods are awaited."""
        if borne := fence_of(lease, unfenced):
            await _awaited(cursor, self._guarding(key, *borne))
            _in_transaction(cursor)

    def _guarding(self, key: object, name: str, fence: int) -> _Asking:
        while (yield self._stamp.asks(key=key, fence=fence)) < 1:
            row = yield self._stamped.asks(row=True, key=key)
            if row is None:
                raise LookupError(f"{self.table} has no row {checks.shown(key)}")
            if row[0] == fence:  # MySQL does not count a row that has it already
                return
            if row[0] is not None and row[0] > fence:
                raise StaleFence(name, fence, row[0])
            # The row came between the two statements. It is ours to change now.

    def __repr__(self) -> str:
        return f"<FenceColumn of {self.table!r} {self.dialect}>"


class _Question(NamedTuple):
    """A statement to execute. `row`: the answer is its first row; else, how many rows it changed."""

    statement: str
    parameters: dict[str, object] | tuple[object, ...]
    row: bool


_Asking = Generator[_Question, Any, None]


class _Statement:
    """A statement in the driver's way of marking parameters, made of one with `:names`."""

    def __init__(self, text: str, dialect: str, paramstyle: str | None) -> None:
        style = _known(paramstyle or ("qmark" if dialect == "sqlite" else "format"), PARAMSTYLES, "a paramstyle")
        self._named = style in ("named", "pyformat")
        self._order: list[str] = []

        def mark(found: re.Match[str]) -> str:
            self._order.append(found[1])
            number = len(self._order)
            return {
                "qmark": "?",
                "format": "%s",
                "numeric": f":{number}",
                "numeric_dollar": f"${number}",
                "named": found[0],
                "pyformat": f"%({found[1]})s",
            }[style]

        self._text = re.sub(r":(\w+)", mark, text)

    def asks(self, *, row: bool = False, **values: object) -> _Question:
        return _Question(self._text, values if self._named else tuple(values[it] for it in self._order), row)


def _asked(cursor: Cursor, asking: _Asking) -> None:
    """Execute what is asked, and hand back the answers."""
    answer = None
    try:
        while True:
            question = asking.send(answer)
            cursor.execute(question.statement, question.parameters)
            answer = cursor.fetchone() if question.row else cursor.rowcount
    except StopIteration:
        return


async def _awaited(cursor: Cursor, asking: _Asking) -> None:
    """The same, where a cursor's methods are awaited."""
    answer = None
    try:
        while True:
            question = asking.send(answer)
            await cursor.execute(question.statement, question.parameters)
            answer = await cursor.fetchone() if question.row else cursor.rowcount
    except StopIteration:
        return


def _in_transaction(cursor: object) -> None:
    """Raise Misuse if the connection, after a statement, is in no transaction, so that the guard held nothing. Not all drivers tell."""
    connection: Any = getattr(cursor, "connection", None)
    if hasattr(connection, "in_transaction"):  # sqlite3, aiosqlite, MySQL Connector
        begun = connection.in_transaction
    elif hasattr(connection, "is_in_transaction"):  # asyncpg
        begun = connection.is_in_transaction()
    elif hasattr(getattr(connection, "info", None), "transaction_status"):  # psycopg, 2 and 3: 0 is idle
        begun = connection.info.transaction_status != 0
    elif hasattr(connection, "server_status"):  # PyMySQL, aiomysql, asyncmy: the first bit
        begun = connection.server_status & 1
    else:
        return
    if not begun:
        raise Misuse("the guard was a transaction of its own, and is over: switch autocommit off, or BEGIN before it")


def _known(word: object, words: tuple[str, ...], what: str) -> str:
    if word not in words:
        raise ConfigError(f"{what} is one of {', '.join(words)}, not {checks.shown(word)}")
    return str(word)


def _identifier(name: object) -> str:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ConfigError(f"a name in the schema has letters, digits and _, with a schema's and a dot before it; not {checks.shown(name)}")
    return name
