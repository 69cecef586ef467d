"""Fences in an SQL database: a table of names, or a column of the user's own table.

Knows SQL and what DB-API drivers have in common. Must not know whose transaction it is in, nor end
it.

The guard is one statement. It locks a record until the transaction ends and raises its fence. If
the holder is late, the statement finds a higher fence. Each guard is written once, as a generator.
It yields what a cursor's method has returned: a result, or with asyncio an awaitable of one.
"""

from __future__ import annotations

import re
import time
from collections.abc import Generator, Mapping, Sequence
from decimal import Decimal
from typing import Any, Protocol

from .. import checks
from ..errors import ConfigError, Misuse, StaleFence
from .bearer import Fences, fence_of, fences_of

DIALECTS = ("postgresql", "sqlite", "mysql", "mariadb")
PARAMSTYLES = ("qmark", "format", "numeric", "numeric_dollar", "named", "pyformat")
NARROW = "its column is too narrow, a fence needs a whole number of 64 bits (bigint)"
_NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)?", re.ASCII)

# One statement, which takes the record's lock whether it changes it or not. A write that is not
# older than anything seen:
_WRITE = """
INSERT INTO {table} AS held (name, seen, written) VALUES (:name, :fence, :fence)
ON CONFLICT (name) DO UPDATE SET seen = excluded.seen, written = excluded.written WHERE excluded.seen >= held.seen"""
# A read that is not older than any write, and keeps older writes from coming after it:
_READ = """
INSERT INTO {table} AS held (name, seen, written) VALUES (:name, :fence, 0)
ON CONFLICT (name) DO UPDATE SET seen = CASE WHEN excluded.seen > held.seen THEN excluded.seen ELSE held.seen END
WHERE excluded.seen >= held.written"""
# MySQL's statement has no WHERE, and the count of rows that it returns depends on the connection. So
# this one raises what may be raised, and a second one reads the row. It needs FOR UPDATE: a plain
# SELECT shows the state at the beginning of the transaction, before a later holder came.
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
    # Bytes: MySQL treats texts as equal that differ only in spaces at their end.
    "mysql": "name varbinary(512) PRIMARY KEY, seen bigint NOT NULL, written bigint NOT NULL) ENGINE=InnoDB",
}

# All rows that have the key are locked and shown, whether their fence is raised or is a later
# holder's. A condition on the fence would leave a later holder's row out, and the guard would not
# see it beside another row with the key.
_STAMP = """
UPDATE {table} SET {column} = CASE WHEN {column} > :fence THEN {column} ELSE :fence END WHERE {key} = :key"""
_STAMPED = "SELECT {column} FROM {table} WHERE {key} = :key"


class Cursor(Protocol):
    """A DB-API cursor. With asyncio, `execute` and `fetchone` are awaited."""

    @property
    def rowcount(self) -> int:
        """How many rows the last statement has changed, or -1 if the driver does not count."""

    def execute(self, operation: Any, parameters: Any, /) -> Any:
        """Execute a statement.

        Args:
            operation: The statement.
            parameters: Its parameters, as a tuple or a dict.

        Returns:
            Anything. holdfast does not read it.

        Raises:
            Exception: The driver's own error.
        """

    def fetchone(self) -> Any:
        """Fetch the next row of the last statement.

        Returns:
            A tuple or a mapping. None after the last row.
        """


class FenceTable:
    """A table with the highest fence of each lock's name, for any data in the same database.

    Call `guard` first in the transaction, then read, then write, then commit, all on one
    connection. `ddl` is the statement that creates the table. An instance never changes, and all
    threads and tasks may share it.

    Args:
        dialect: `postgresql`, `sqlite`, `mysql` or `mariadb`.
        table: The table's name, with or without a schema.
        paramstyle: How the driver marks parameters, such as `psycopg.paramstyle`. The default is
            `?` for SQLite and `%s` elsewhere.

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

        The same fence may come again, as often as its holder likes. The database's own errors are
        yours to handle: above READ COMMITTED, a transaction that met another one fails, and you
        repeat all of it.

        Args:
            cursor: A cursor of the transaction that will write.
            lease: A lease, or `{name: fence}`.
            read: The transaction only reads. The reader of a read-write lock is refused below the
                highest fence that wrote, and writes below the reader's fence are refused from now
                on.
            unfenced: Let a lease without a fence (`fail_open`) pass unchecked.

        Raises:
            StaleFence: A later holder has been here. Roll back.
            Misuse: The connection commits each statement by itself, as far as its driver tells, so
                that the guard was over before the write. Or the lease has no fence.
            ConfigError: The table does not store the fence or the name as they are.
        """
        _called(self._guarding(cursor, fences_of(lease, unfenced), read))

    async def aguard(self, cursor: Cursor, lease: Fences, *, read: bool = False, unfenced: bool = False) -> None:
        """Refuse a late holder, as `guard` does, with a cursor whose methods are awaited.

        Such cursors are those of psycopg's AsyncCursor, aiosqlite, aiomysql and asyncmy.

        Args:
            cursor: A cursor of the transaction that will write.
            lease: A lease, or `{name: fence}`.
            read: The transaction only reads, see `guard`.
            unfenced: Let a lease without a fence (`fail_open`) pass unchecked.

        Raises:
            StaleFence: A later holder has been here. Roll back.
            Misuse: The connection commits each statement by itself, as far as its driver tells. Or
                the lease has no fence.
            ConfigError: The table does not store the fence or the name as they are.
        """
        await _awaited(self._guarding(cursor, fences_of(lease, unfenced), read))

    def forget(self, cursor: Cursor, older_than: checks.Seconds) -> None:
        """Delete the records of names that nobody has used for `older_than` seconds.

        A record that is deleted refuses nobody, so choose days more than anything of yours can be
        late. A fence tells its age because it counts microseconds. Numbers that do not, of other
        locks, would all be deleted.

        Args:
            cursor: A cursor of a transaction that you commit.
            older_than: Seconds, or a timedelta.

        Raises:
            ConfigError: `older_than` is no such time.
        """
        cursor.execute(*self._forgetting(older_than))

    async def aforget(self, cursor: Cursor, older_than: checks.Seconds) -> None:
        """Delete old records, as `forget` does, with a cursor whose methods are awaited.

        Args:
            cursor: A cursor of a transaction that you commit.
            older_than: Seconds, or a timedelta.

        Raises:
            ConfigError: `older_than` is no such time.
        """
        await cursor.execute(*self._forgetting(older_than))

    def _guarding(self, cursor: Cursor, fences: dict[str, int], read: bool) -> _Calls:
        for name, fence in fences.items():
            key = name.encode() if self._mysql else name
            yield cursor.execute(*(self._read if read else self._write).with_values(name=key, fence=fence))
            # A driver that does not count says -1.
            if cursor.rowcount == 1 and not self._mysql:
                continue
            yield cursor.execute(*self._look.with_values(name=key))
            row = yield cursor.fetchone()
            if row is None:
                raise ConfigError(
                    f"{self.table} does not store the name {checks.shown(name)} as it is: "
                    "create it with `FenceTable.ddl`"
                )
            seen, written = _values(row)
            if fence < (written if read else seen):
                raise StaleFence(name, fence, written if read else seen)
            # Without its strict mode, MySQL stores the largest number that a narrow column holds:
            # all fences are equal.
            if seen < fence or not (read or written == fence):
                raise ConfigError(
                    f"{self.table} has stored {min(seen, written or seen)} for the fence {fence}: {NARROW}"
                )
        if fences:
            _check_transaction(cursor)

    def _forgetting(self, older_than: checks.Seconds) -> tuple[str, _Parameters]:
        oldest = time.time() - checks.seconds(older_than, "older_than")
        return self._forget.with_values(fence=round(oldest * 1_000_000))

    def __repr__(self) -> str:
        return f"<FenceTable {self.table!r} {self.dialect}>"


class FenceColumn:
    """A column of your own table that remembers the highest fence that each row has seen.

    It knows no names: one lock protects each row. An instance never changes, and all threads and
    tasks may share it.

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
        # PostgreSQL shows the rows in the statement that changes them. MySQL cannot, and SQLite
        # only since 3.35.
        self._returning = dialect == "postgresql"
        stamp = _STAMP.format(**names).strip() + (f" RETURNING {column}" if self._returning else "")
        self._stamp = _Statement(stamp, dialect, paramstyle)
        self._stamped = _Statement(
            _STAMPED.format(**names) + ("" if dialect == "sqlite" else " FOR UPDATE"), dialect, paramstyle
        )

    def guard(self, cursor: Cursor, key: object, lease: Fences, *, unfenced: bool = False) -> None:
        """Stamp the row with the fence, and keep others from it until this transaction ends.

        Then read it, and write.

        Args:
            cursor: A cursor of the transaction that will write.
            key: Which row.
            lease: A lease of one name, or `{name: fence}`.
            unfenced: Let a lease without a fence (`fail_open`) pass unchecked.

        Raises:
            StaleFence: The row has seen a later holder. Roll back.
            LookupError: No row has this key.
            Misuse: Several rows have this key, the lease has several names or no fence, or the
                connection commits each statement by itself, as far as its driver tells. Roll back.
            ConfigError: The column does not store the fence as it is. Roll back.
        """
        if borne := fence_of(lease, unfenced):
            _called(self._guarding(cursor, key, *borne))

    async def aguard(self, cursor: Cursor, key: object, lease: Fences, *, unfenced: bool = False) -> None:
        """Stamp the row, as `guard` does, with a cursor whose methods are awaited.

        Args:
            cursor: A cursor of the transaction that will write.
            key: Which row.
            lease: A lease of one name, or `{name: fence}`.
            unfenced: Let a lease without a fence (`fail_open`) pass unchecked.

        Raises:
            StaleFence: The row has seen a later holder. Roll back.
            LookupError: No row has this key.
            Misuse: Several rows have this key, the lease has several names or no fence, or the
                connection commits each statement by itself, as far as its driver tells. Roll back.
            ConfigError: The column does not store the fence as it is. Roll back.
        """
        if borne := fence_of(lease, unfenced):
            await _awaited(self._guarding(cursor, key, *borne))

    def _guarding(self, cursor: Cursor, key: object, name: str, fence: int) -> _Calls:
        stored: Any = None
        # The second time is for a row that came between the two statements of the first.
        for _ in range(2):
            yield cursor.execute(*self._stamp.with_values(key=key, fence=fence))
            if not self._returning:
                yield cursor.execute(*self._stamped.with_values(key=key))
            row = yield cursor.fetchone()
            if row is None:
                raise LookupError(f"{self.table} has no row {checks.shown(key)} (compared with its column {self._key})")
            if (yield cursor.fetchone()) is not None:
                raise Misuse(
                    f"several rows of {self.table} have {checks.shown(key)} as {self._key}: "
                    "a fence is compared with one row, so pass the key of one, or use a FenceTable"
                )
            (stored,) = _values(row)
            if stored == fence:
                _check_transaction(cursor)
                return
            if isinstance(stored, int | float | Decimal) and stored > fence:
                raise StaleFence(name, fence, int(stored))
        raise ConfigError(
            f"{self.table}.{self._column} has stored {checks.shown(stored)} for the fence {fence}: {NARROW}"
        )

    def __repr__(self) -> str:
        return f"<FenceColumn of {self.table!r} {self.dialect}>"


_Parameters = dict[str, object] | tuple[object, ...]
_Calls = Generator[Any, Any, None]


class _Statement:
    """A statement with parameters as the driver marks them, made of a text with `:names`."""

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

    def with_values(self, **values: object) -> tuple[str, _Parameters]:
        """Return the statement and its parameters, for `execute`."""
        return self._text, values if self._named else tuple(values[it] for it in self._order)


def _called(calls: _Calls) -> None:
    """Send each result back to the generator that has yielded it."""
    result: Any = None
    try:
        while True:
            result = calls.send(result)
    except StopIteration:
        return


async def _awaited(calls: _Calls) -> None:
    """Do the same as `_called` with a cursor whose methods are awaited."""
    result: Any = None
    try:
        while True:
            result = await calls.send(result)
    except StopIteration:
        return


def _values(row: Any) -> Sequence[Any]:
    """Return a row's values in the order of the columns. Some cursors return mappings."""
    return list(row.values()) if isinstance(row, Mapping) else row


def _check_transaction(cursor: object) -> None:
    """Raise Misuse if the connection is in no transaction after a statement.

    Then the guard held nothing. Not all drivers tell.
    """
    connection: Any = getattr(cursor, "connection", None)
    # In this order: sqlite3, aiosqlite and MySQL Connector. asyncpg. psycopg 2 and 3, where 0 is
    # idle. PyMySQL, aiomysql and asyncmy, where the first bit tells.
    if hasattr(connection, "in_transaction"):
        begun = connection.in_transaction
    elif hasattr(connection, "is_in_transaction"):
        begun = connection.is_in_transaction()
    elif hasattr(getattr(connection, "info", None), "transaction_status"):
        begun = connection.info.transaction_status != 0
    elif hasattr(connection, "server_status"):
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
            "a name in the schema has letters, digits and _, with a schema's and a dot before it; "
            f"not {checks.shown(name)}"
        )
    return name
