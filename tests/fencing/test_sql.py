"""The guards of SQL, on real databases: no lower fence after a higher one, whatever the order and the isolation."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import aiosqlite
import pytest
from fencing import schedules
from fencing.databases import NEEDS_MARIADB, Database

from holdfast import ConfigError, Misuse, StaleFence
from holdfast.fencing import FenceColumn, FenceTable
from holdfast.fencing.sql import PARAMSTYLES, _Statement

OPEN = SimpleNamespace(name="a", fence=None)
pytestmark = [pytest.mark.servers, pytest.mark.timeout(240)]  # servers start, and transactions are many


@pytest.fixture(autouse=True)
def empty(request: pytest.FixtureRequest) -> None:
    if "database" in request.fixturenames:
        database: Database = request.getfixturevalue("database")
        gc.collect()  # a connection that an earlier test has dropped keeps its locks
        database.run("DROP TABLE IF EXISTS holdfast_fences", FenceTable(database.dialect).ddl)


@pytest.fixture
def cursor(database: Database) -> Iterator[Any]:
    with closing(database.connect()) as connection:
        yield connection.cursor()


def record(database: Database, name: str = "a") -> tuple[Any, ...] | None:
    rows = database.run(f"SELECT seen, written FROM holdfast_fences WHERE name = '{name}'")
    return rows[0] if rows else None


# ------------------------------------------------ the table


def test_a_late_holder_is_refused_and_everybody_else_is_not(database: Database, cursor: Any) -> None:
    fences = FenceTable(database.dialect)
    for fence in (5, 5, 7, 7):
        fences.guard(cursor, {"a": fence})
        cursor.connection.commit()
    with pytest.raises(StaleFence) as refused:
        fences.guard(cursor, {"a": 6})
    assert (refused.value.name, refused.value.fence, refused.value.seen, refused.value.reason) == ("a", 6, 7, "stale")
    cursor.connection.rollback()
    fences.guard(cursor, {"b": 6})
    cursor.connection.commit()
    assert (record(database), record(database, "b")) == ((7, 7), (6, 6))


def test_what_was_rolled_back_was_not_seen(database: Database, cursor: Any) -> None:
    fences = FenceTable(database.dialect)
    for fence in (9, 5):
        fences.guard(cursor, {"a": fence})
        cursor.connection.rollback()
    assert record(database) is None


def test_readers_are_refused_below_writes_and_writers_below_everything(database: Database, cursor: Any) -> None:
    # Rule X5.
    fences = FenceTable(database.dialect)

    def passes(fence: int, read: bool) -> bool:
        try:
            fences.guard(cursor, {"a": fence}, read=read)
        except StaleFence:
            cursor.connection.rollback()
            return False
        cursor.connection.commit()
        return True

    assert passes(5, read=True) and passes(3, read=True), "readers do not disturb one another"
    assert record(database) == (5, 0)
    assert not passes(4, read=False) and passes(6, read=False)
    assert not passes(5, read=True) and passes(6, read=True) and passes(9, read=True) and passes(7, read=True)
    assert not passes(8, read=False) and passes(9, read=False)
    assert record(database) == (9, 9)


def test_several_names_are_guarded_all_or_none(database: Database, cursor: Any) -> None:
    fences = FenceTable(database.dialect)
    fences.guard(cursor, {"b": 9})
    cursor.connection.commit()
    with pytest.raises(StaleFence, match="'b'"):
        fences.guard(cursor, {"b": 8, "a": 8})
    cursor.connection.rollback()
    assert record(database) is None
    fences.guard(cursor, {"b": 10, "a": 8})
    cursor.connection.commit()
    assert (record(database), record(database, "b")) == ((8, 8), (10, 10))


@pytest.mark.parametrize("name", ["Ünï:½ %s ? :name $1 'x\"", "a ", "A", "x" * 512], ids=ascii)
def test_a_name_is_literal(database: Database, cursor: Any, name: str) -> None:
    fences = FenceTable(database.dialect)
    fences.guard(cursor, {"a": 9})
    fences.guard(cursor, {name: 5})
    with pytest.raises(StaleFence) as refused:
        fences.guard(cursor, {name: 4})
    assert refused.value.seen == 5


def test_an_open_lease_asks_nothing(database: Database, cursor: Any) -> None:
    for guard in (FenceTable(database.dialect).guard, lambda *a, **o: FenceColumn(database.dialect, "none").guard(a[0], 1, *a[1:], **o)):
        with pytest.raises(Misuse, match="bears no fence"):
            guard(cursor, OPEN)
        guard(cursor, OPEN, unfenced=True)


def test_a_guard_that_is_a_transaction_of_its_own_is_misuse(database: Database, cursor: Any) -> None:
    database.run("DROP TABLE IF EXISTS data", "CREATE TABLE data (id int PRIMARY KEY, fence bigint)", "INSERT INTO data VALUES (1, NULL)")
    connection = cursor.connection
    if database.dialect == "sqlite":
        connection.isolation_level = None
    elif database.dialect == "postgresql":
        connection.autocommit = True
    else:
        connection.autocommit(True)
    with pytest.raises(Misuse, match="transaction of its own"):
        FenceTable(database.dialect).guard(cursor, {"a": 5})
    with pytest.raises(Misuse, match="transaction of its own"):
        FenceColumn(database.dialect, "data").guard(cursor, 1, {"a": 5})
    cursor.execute("BEGIN")
    FenceTable(database.dialect).guard(cursor, {"a": 5})
    FenceColumn(database.dialect, "data").guard(cursor, 1, {"a": 5})


def test_other_drivers_are_asked_in_their_own_words_or_not_at_all() -> None:
    class Cursor:
        rowcount = 1

        def __init__(self, connection: object) -> None:
            self.connection = connection

        def execute(self, operation: str, parameters: Any, /) -> None:
            pass

        def fetchone(self) -> None:
            pass

    fences = FenceTable("postgresql")
    fences.guard(Cursor(SimpleNamespace()), {"a": 5})
    fences.guard(Cursor(SimpleNamespace(is_in_transaction=lambda: True)), {"a": 5})
    with pytest.raises(Misuse, match="transaction of its own"):
        fences.guard(Cursor(SimpleNamespace(is_in_transaction=lambda: False)), {"a": 5})


def test_a_driver_that_does_not_count_is_not_believed(database: Database, cursor: Any) -> None:
    class Mute:
        """`rowcount` may be -1, says the DB-API."""

        rowcount = -1
        execute = staticmethod(cursor.execute)
        fetchone = staticmethod(cursor.fetchone)

    database.run("DROP TABLE IF EXISTS data", "CREATE TABLE data (id int PRIMARY KEY, fence bigint)", "INSERT INTO data VALUES (1, NULL)")
    fences, column = FenceTable(database.dialect), FenceColumn(database.dialect, "data")
    fences.guard(Mute(), {"a": 5})
    fences.guard(Mute(), {"a": 5})
    column.guard(Mute(), 1, {"a": 5})
    with pytest.raises(StaleFence):
        fences.guard(Mute(), {"a": 4})
    with pytest.raises(StaleFence):
        column.guard(Mute(), 1, {"a": 4})


def test_old_records_are_forgotten(database: Database, cursor: Any) -> None:
    fences, now = FenceTable(database.dialect), round(time.time() * 1_000_000)
    fences.guard(cursor, {"old": now - 3_600_000_000, "young": now - 60_000_000})
    fences.forget(cursor, older_than=1800)
    cursor.connection.commit()
    assert (record(database, "old"), record(database, "young")) == (None, (now - 60_000_000,) * 2)


@pytest.mark.parametrize("style", PARAMSTYLES)
def test_parameters_are_marked_as_the_driver_wants(style: str) -> None:
    statement, parameters = _Statement("SET x = :fence WHERE id = :key AND x <= :fence", "sqlite", style).with_values(key=1, fence=5)
    marks = {
        "qmark": "SET x = ? WHERE id = ? AND x <= ?",
        "format": "SET x = %s WHERE id = %s AND x <= %s",
        "numeric": "SET x = :1 WHERE id = :2 AND x <= :3",
        "numeric_dollar": "SET x = $1 WHERE id = $2 AND x <= $3",
        "named": "SET x = :fence WHERE id = :key AND x <= :fence",
        "pyformat": "SET x = %(fence)s WHERE id = %(key)s AND x <= %(fence)s",
    }
    assert statement == marks[style]
    assert parameters == ({"key": 1, "fence": 5} if style in ("named", "pyformat") else (5, 1, 5))


def test_a_guard_is_shown_as_what_it_guards() -> None:
    shown = ["<FenceTable 'holdfast_fences' sqlite>", "<FenceColumn of 'data' sqlite>"]
    assert [repr(it) for it in (FenceTable("sqlite"), FenceColumn("sqlite", "data"))] == shown


@pytest.mark.parametrize(
    "make",
    [
        lambda: FenceTable("oracle"),
        lambda: FenceTable("sqlite", paramstyle="percent"),
        lambda: FenceTable("sqlite", table="a; DROP TABLE b"),
        lambda: FenceColumn("sqlite", "a.b.c"),
        lambda: FenceColumn("sqlite", "a", key="id = 1 OR id"),
        lambda: FenceColumn("sqlite", "a", column=""),
    ],
)
def test_what_makes_no_statement(make: Callable[[], object]) -> None:
    with pytest.raises(ConfigError):
        make()


# ------------------------------------------------ the column


def test_a_row_refuses_late_holders(database: Database, cursor: Any) -> None:
    database.run("DROP TABLE IF EXISTS data", "CREATE TABLE data (id int PRIMARY KEY, fence bigint)", "INSERT INTO data VALUES (1, NULL)")
    column = FenceColumn(database.dialect, "data")
    for fence in (5, 5, 7):
        column.guard(cursor, 1, {"a": fence})
        cursor.connection.commit()
    with pytest.raises(StaleFence) as refused:
        column.guard(cursor, 1, {"a": 6})
    assert (refused.value.name, refused.value.fence, refused.value.seen) == ("a", 6, 7)
    cursor.connection.rollback()
    with pytest.raises(LookupError, match="data has no row 2"):
        column.guard(cursor, 2, {"a": 6})
    with pytest.raises(Misuse, match="several names"):
        column.guard(cursor, 1, {"a": 8, "b": 8})


def test_a_row_that_comes_between_the_two_questions_is_stamped() -> None:
    rows, asked = iter([(4,), None, (5,), None]), list[str]()
    cursor: Any = SimpleNamespace(execute=lambda statement, _: asked.append(statement[:6]), fetchone=lambda: next(rows))
    FenceColumn("mysql", "data").guard(cursor, 1, {"a": 5})
    assert asked == ["UPDATE", "SELECT", "UPDATE", "SELECT"]


def test_a_key_that_several_rows_share_is_misuse(database: Database, cursor: Any) -> None:
    """A later holder's row stands beside another row with the same key, which the late holder would stamp."""
    database.run("DROP TABLE IF EXISTS shared", "CREATE TABLE shared (number int PRIMARY KEY, id int, fence bigint)")
    database.run("INSERT INTO shared VALUES (1, 1, NULL), (2, 1, 9)")
    with pytest.raises(Misuse, match="several rows of shared have 1 as id"):
        FenceColumn(database.dialect, "shared").guard(cursor, 1, {"a": 5})
    cursor.connection.rollback()
    assert database.run("SELECT fence FROM shared ORDER BY number") == [(None,), (9,)]


COLUMNS = {"sqlite": "text", "postgresql": "real", "mariadb": "int"}  # which store a fence as something else, and say nothing


def test_a_fence_that_is_not_stored_as_it_is(database: Database, cursor: Any) -> None:
    if database.dialect == "mariadb":
        cursor.execute("SET SESSION sql_mode = ''")
    fence = 1_795_290_426_499_701
    database.run("DROP TABLE IF EXISTS narrow", f"CREATE TABLE narrow (id int PRIMARY KEY, fence {COLUMNS[database.dialect]})")
    database.run("INSERT INTO narrow VALUES (1, NULL)")
    with pytest.raises(ConfigError, match=r"narrow\.fence has stored .* for the fence 1795290426499701: its column is too narrow"):
        FenceColumn(database.dialect, "narrow").guard(cursor, 1, {"a": fence})
    cursor.connection.rollback()


@NEEDS_MARIADB
@pytest.mark.parametrize("read", [False, True])
def test_a_table_that_does_not_store_what_it_is_told(database: Database, cursor: Any, read: bool) -> None:
    if database.dialect != "mariadb":
        return
    cursor.execute("SET SESSION sql_mode = ''")
    fences = FenceTable("mariadb")
    columns = "name varbinary(3) PRIMARY KEY, seen int NOT NULL, written int NOT NULL"
    database.run("DROP TABLE holdfast_fences", f"CREATE TABLE holdfast_fences ({columns}) ENGINE=InnoDB")
    with pytest.raises(ConfigError, match="has stored 2147483647 for the fence 1795290426499701: its column is too narrow"):
        fences.guard(cursor, {"a": 1_795_290_426_499_701}, read=read)
    cursor.connection.rollback()
    with pytest.raises(ConfigError, match="does not store the name 'long' as it is"):
        fences.guard(cursor, {"long": 5}, read=read)
    cursor.connection.rollback()
    fences.guard(cursor, {"a": 5}, read=read)


# ------------------------------------------------ asyncio


async def test_tasks_have_the_same_guards(tmp_path: Path) -> None:
    fences, column = FenceTable("sqlite"), FenceColumn("sqlite", "data")
    async with aiosqlite.connect(tmp_path / "database") as connection:
        cursor = await connection.cursor()
        await cursor.execute(fences.ddl)
        await cursor.execute("CREATE TABLE data (id int PRIMARY KEY, fence bigint)")
        await cursor.execute("INSERT INTO data VALUES (1, NULL)")
        await fences.aguard(cursor, {"a": 5})
        await column.aguard(cursor, 1, {"a": 5})
        with pytest.raises(StaleFence):
            await fences.aguard(cursor, {"a": 4})
        with pytest.raises(StaleFence):
            await column.aguard(cursor, 1, {"a": 4})
        await fences.aguard(cursor, OPEN, unfenced=True)
        await column.aguard(cursor, 1, OPEN, unfenced=True)
        await fences.aforget(cursor, older_than=1800)
        assert await (await cursor.execute("SELECT * FROM holdfast_fences")).fetchall() == []
    async with aiosqlite.connect(tmp_path / "database", isolation_level=None) as connection:
        cursor = await connection.cursor()
        await cursor.execute(fences.ddl)
        with pytest.raises(Misuse, match="transaction of its own"):
            await fences.aguard(cursor, {"a": 5})


# ------------------------------------------------ in any order, at any isolation


def guards(dialect: str) -> dict[str, schedules.Guard]:
    fences, column = FenceTable(dialect), FenceColumn(dialect, "data")
    return {
        "table": lambda cursor, fence: fences.guard(cursor, {"a": fence}),
        "column": lambda cursor, fence: column.guard(cursor, 1, {"a": fence}),
    }


@pytest.mark.parametrize("kind", ["table", "column"])
def test_no_lower_fence_writes_after_a_higher_one(database: Database, kind: str) -> None:
    # Rule X2.
    for level in database.levels:
        schedules.explore(database, level, guards(database.dialect)[kind], examples=12)


# ------------------------------------------------ what it costs


def test_a_guard_costs_as_many_statements_as_the_docs_say(database: Database, cursor: Any) -> None:
    class Counting:
        """A cursor that counts."""

        connection = cursor.connection
        fetchone = staticmethod(cursor.fetchone)
        asked = 0

        @property
        def rowcount(self) -> int:
            return int(cursor.rowcount)

        def execute(self, *words: Any) -> None:
            self.asked += 1
            cursor.execute(*words)

    database.run("DROP TABLE IF EXISTS data", "CREATE TABLE data (id int PRIMARY KEY, fence bigint)", "INSERT INTO data VALUES (1, NULL)")
    table, column = Counting(), Counting()
    for fence in (5, 6):
        FenceTable(database.dialect).guard(table, {"a": fence})
        FenceColumn(database.dialect, "data").guard(column, 1, {"a": fence})
    assert table.asked == 2 * (2 if database.dialect == "mariadb" else 1)
    assert column.asked == 2 * (1 if database.dialect == "postgresql" else 2)
