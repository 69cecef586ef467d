"""Fences in an SQL database: a table that remembers them by name, or a column of the user's own table.

Knows SQL and what DB-API drivers have in common. Must not know whose transaction it is in, nor end it.

The guard is one statement that locks a record until the transaction ends, raises its fence, and finds it already higher if the holder is
late. What is asked is written once, as a generator that is sent the answers; who waits for them, a thread or a task, is all that differs.
"""

from __future__ import annotations

import re
import time
from collections.abc import Generator, Mapping, Sequence
from decimal import Decimal
from typing import Any, NamedTuple, Protocol

from .. import checks
from ..errors import ConfigError, Misuse, StaleFence
from .bearer import Fences, fence_of, fences_of

DIALECTS = ("postgresql", "sqlite", "mysql", "mariadb")
PARAMSTYLES = ("qmark", "format", "numeric", "numeric_dollar", "named", "pyformat")
NARROW = "its column is too narrow, a fence needs a whole number of 64 bits (bigint)"
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

# All rows that have the key are locked and shown, whether their fence is raised or is a later holder's. A condition
# on the fence would leave a later holder's row out, and the guard would not see it beside another row with the key.
_STAMP = """
UPDATE {table} SET {column} = CASE WHEN {column} > :fence THEN {column} ELSE :fence END WHERE {key} = :key"""
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
    """A table that remembers the highest fence of each lock's name, for any data in the same database.

    Call `guard` first in the transaction, then read, then write, then commit, all on one connection. `ddl` is the
    statement that creates the table. An instance never changes, and all threads and tasks may share it.

    Args:
        dialect: `postgresql`, `sqlite`, `mysql` or `mariadb`.
        table: The table's name, with or without a schema.
        paramstyle: How the driver marks parameters, such as `psycopg.paramstyle`. The default is `?` for SQLite
            and `%s` elsewhere.

    Raises:
        ConfigError: An argument is none of these.
    """

    def __init__(self, dialect: str, *, table: str = "holdfast_fences", paramstyle: str | None = None) -> None:
        self.dialect, self.table = _known(dialect, DIALECTS, "a dialect"), _identifier(table)
        family = "mysql" if dialect == "mariadb" else dialect
        self._mysql = family == "mysql"
        self.ddl = f"CREATE TABLE IF NOT EXISTS {table} ({_CREATE[family]}"

        def said(text: str) -> _Statement:
            return _Statement(text.format(table=table).strip(), dialect, paramstyle)

        self._write, self._read = (
            (said(_MYSQL_WRITE), said(_MYSQL_READ)) if self._mysql else (said(_WRITE), said(_READ))
        )
        self._look = said(_LOOK + (" FOR UPDATE" if self._mysql else ""))
        self._forget = said(_FORGET)

    def guard(self, cursor: Cursor, lease: Fences, *, read: bool = False, unfenced: bool = False) -> None:
        """Refuse a late holder, and keep later holders waiting until this transaction ends.

        The same fence may come again, as often as its holder likes. The database's own errors are yours to handle:
        above READ COMMITTED, a transaction that met another one fails, and you repeat all of it.

        Args:
            cursor: A cursor of the transaction that will write.
            lease: A lease, or `{name: fence}`.
            read: The transaction only reads. The reader of a read-write lock is refused below the highest fence
                that wrote, and writes below the reader's fence are refused from now on.
            unfenced: Let a lease without a fence (`fail_open`) pass unchecked.

        Raises:
            StaleFence: A later holder has been here. Roll back.
            Misuse: The connection commits each statement by itself, as far as its driver tells, so that the guard
                was over before the write. Or the lease has no fence.
            ConfigError: The table does not store the fence or the name as they are.
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
        """Delete the records of names that nobody has used for `older_than` seconds.

        A record that is deleted refuses nobody, so choose days more than anything of yours can be late. A fence
        tells its age because it counts microseconds. Numbers that do not, of other locks, would all be deleted.

        Args:
            cursor: A cursor of a transaction that you commit.
            older_than: Seconds, or a timedelta.
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
            rows = yield self._look.asks(rows=1, name=key)
            if not rows:
                raise ConfigError(
                    f"{self.table} does not store the name {checks.shown(name)} as it is: "
                    "create it with `FenceTable.ddl`"
                )
            seen, written = rows[0]
            if fence < (written if read else seen):
                raise StaleFence(name, fence, written if read else seen)
            # Without its strict mode, MySQL stores the largest number that a narrow column holds: all fences are equal.
            if seen < fence or not (read or written == fence):
                raise ConfigError(
                    f"{self.table} has stored {min(seen, written or seen)} for the fence {fence}: {NARROW}"
                )

    def _forgetting(self, older_than: checks.Seconds) -> _Asking:
        oldest = time.time() - checks.seconds(older_than, "older_than")
        yield self._forget.asks(fence=round(oldest * 1_000_000))

    def __repr__(self) -> str:
        return f"<FenceTable {self.table!r} {self.dialect}>"


class FenceColumn:
    """A column of your own table that remembers the highest fence that each row has seen.

    It knows no names: one lock protects each row. An instance never changes, and all threads and tasks may share it.

    Args:
        dialect: `postgresql`, `sqlite`, `mysql` or `mariadb`.
        table: Your table's name, with or without a schema.
        key: The column that finds the row. No two rows have the same.
        column: The column for the fence: a whole number of 64 bits, null or 0 at first.
        paramstyle: As for `FenceTable`.

    Raises:
        ConfigError: An argument is none of these.
    """

    def __init__(
        self, dialect: str, table: str, *, key: str = "id", column: str = "fence", paramstyle: str | None = None
    ) -> None:
        self.dialect, self.table = _known(dialect, DIALECTS, "a dialect"), _identifier(table)
        names = {"table": table, "key": _identifier(key), "column": _identifier(column)}
        self._key, self._column = key, column
        # PostgreSQL shows the rows in the statement that changes them. MySQL cannot, and SQLite only since 3.35.
        self._returning = dialect == "postgresql"
        stamp = _STAMP.format(**names).strip() + (f" RETURNING {column}" if self._returning else "")
        self._stamp = _Statement(stamp, dialect, paramstyle)
        self._stamped = _Statement(
            _STAMPED.format(**names) + ("" if dialect == "sqlite" else " FOR UPDATE"), dialect, paramstyle
        )

    def guard(self, cursor: Cursor, key: object, lease: Fences, *, unfenced: bool = False) -> None:
        """Stamp the row with the fence, and keep others from it until this transaction ends. Then read it, and write.

        Args:
            cursor: A cursor of the transaction that will write.
            key: Which row.
            lease: A lease of one name, or `{name: fence}`.
            unfenced: Let a lease without a fence (`fail_open`) pass unchecked.

        Raises:
            StaleFence: The row has seen a later holder. Roll back.
            LookupError: No row has this key.
            Misuse: Several rows have this key, the lease has several names or no fence, or the connection commits
                each statement by itself, as far as its driver tells. Roll back.
            ConfigError: The column does not store the fence as it is. Roll back.
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
        stored: Any = None
        # The second time is for a row that came between the two statements of the first.
        for _ in range(2):
            rows = yield self._stamp.asks(rows=2 if self._returning else 0, key=key, fence=fence)
            if not self._returning:
                rows = yield self._stamped.asks(rows=2, key=key)
            if not rows:
                raise LookupError(f"{self.table} has no row {checks.shown(key)} (compared with its column {self._key})")
            if len(rows) > 1:
                raise Misuse(
                    f"several rows of {self.table} have {checks.shown(key)} as {self._key}: a fence is compared with one row, "
                    "so pass the key of one, or use a FenceTable"
                )
            (stored,) = rows[0]
            if stored == fence:
                return
            if isinstance(stored, int | float | Decimal) and stored > fence:
                raise StaleFence(name, fence, int(stored))
        raise ConfigError(
            f"{self.table}.{self._column} has stored {checks.shown(stored)} for the fence {fence}: {NARROW}"
        )

    def __repr__(self) -> str:
        return f"<FenceColumn of {self.table!r} {self.dialect}>"


class _Question(NamedTuple):
    """A statement to execute. `rows`: the answer is a list of at most so many rows. 0: how many rows it changed."""

    statement: str
    parameters: dict[str, object] | tuple[object, ...]
    rows: int


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

    def asks(self, *, rows: int = 0, **values: object) -> _Question:
        return _Question(self._text, values if self._named else tuple(values[it] for it in self._order), rows)


def _asked(cursor: Cursor, asking: _Asking) -> None:
    """Execute what is asked, and hand back the answers."""
    answer: Any = None
    try:
        while True:
            question = asking.send(answer)
            cursor.execute(question.statement, question.parameters)
            answer = cursor.rowcount
            if question.rows:
                answer = []
                while len(answer) < question.rows and (row := cursor.fetchone()) is not None:
                    answer.append(_values(row))
    except StopIteration:
        return


async def _awaited(cursor: Cursor, asking: _Asking) -> None:
    """The same, where a cursor's methods are awaited."""
    answer: Any = None
    try:
        while True:
            question = asking.send(answer)
            await cursor.execute(question.statement, question.parameters)
            answer = cursor.rowcount
            if question.rows:
                answer = []
                while len(answer) < question.rows and (row := await cursor.fetchone()) is not None:
                    answer.append(_values(row))
    except StopIteration:
        return


def _values(row: Any) -> Sequence[Any]:
    """A row's values, in the order of the columns. (Cursors may be set to give mappings.)"""
    return list(row.values()) if isinstance(row, Mapping) else row


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
        raise ConfigError(
            f"a name in the schema has letters, digits and _, with a schema's and a dot before it; not {checks.shown(name)}"
        )
    return name
