"""Fences in SQLAlchemy, on each database: transactions that begin with their guard, rows that no late holder changes."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
from fencing import overtaking
from fencing.databases import Database
from sqlalchemy import Engine, String, create_engine, delete, event, insert, select, text, update
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, async_scoped_session, async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, sessionmaker
from sqlalchemy.orm.exc import StaleDataError

from holdfast import ConfigError, Misuse, StaleFence
from holdfast.fencing import FenceTable
from holdfast.fencing import sqlalchemy as module
from holdfast.fencing.sqlalchemy import Fenced, fence_table, fenced, guard

OPEN = SimpleNamespace(name="a", fence=None)
pytestmark = [pytest.mark.servers, pytest.mark.timeout(240)]  # servers start


class Base(DeclarativeBase):
    pass


fence_table(Base.metadata)


class Plain(Base):
    __tablename__ = "plain"
    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    value: Mapped[int]


class Account(Fenced, Base):
    __tablename__ = "account"
    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    value: Mapped[int]
    kind: Mapped[str] = mapped_column(String(20), default="account")


class Named(Fenced, Base):
    __tablename__ = "named"
    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    value: Mapped[int]

    def fence_name(self) -> str:
        return f"named:{self.id}"


@pytest.fixture
def engine(database: Database) -> Iterator[Engine]:
    engine = create_engine(database.url)
    Base.metadata.drop_all(engine)
    Base.metadata.create_all(engine)
    yield engine
    engine.dispose()


@pytest.fixture
def session(engine: Engine) -> Iterator[Session]:
    with Session(engine) as session:
        yield session


@pytest.fixture
async def asynchronous(database: Database) -> AsyncIterator[AsyncEngine]:
    if not database.asynchronous:
        pytest.skip("no driver for asyncio")
    engine = create_async_engine(database.asynchronous)
    yield engine
    await engine.dispose()


def values(engine: Engine, table: str = "plain") -> list[Any]:
    with engine.connect() as connection:
        return list(connection.execute(text(f"SELECT value FROM {table} ORDER BY id")).scalars())


# ------------------------------------------------ the transaction


def test_a_late_holder_s_transaction_is_rolled_back(engine: Engine, session: Session) -> None:
    with fenced(session, {"a": 7}) as same:
        assert same is session
        session.add(Plain(id=1, value=7))
    with Session(engine) as late:
        with pytest.raises(StaleFence) as refused, fenced(late, {"a": 5}):
            raise AssertionError("the body does not run")
        assert (refused.value.fence, refused.value.seen, late.in_transaction()) == (5, 7, False)
    with fenced(session, {"a": 7}):
        session.add(Plain(id=3, value=7))
    assert values(engine) == [7, 7]


def test_the_guard_is_the_first_statement(engine: Engine, session: Session) -> None:
    said: list[str] = []

    @event.listens_for(engine, "before_cursor_execute")
    def _before(connection: object, cursor: object, statement: str, *rest: object) -> None:
        said.append(statement)

    with fenced(session, {"a": 7}):
        session.add(Plain(id=1, value=1))
    said = [it for it in said if "holdfast_fences" in it or "plain" in it]
    assert "holdfast_fences" in said[0] and not [it for it in said[2:] if "holdfast_fences" in it]
    assert values(engine) == [1]


def test_a_body_that_fails_writes_nothing_and_was_not_there(engine: Engine, session: Session) -> None:
    def body() -> None:
        with fenced(session, {"a": 7}):
            session.add(Plain(id=1, value=7))
            session.flush()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        body()
    with fenced(session, {"a": 5}):
        pass
    assert values(engine) == []


def test_a_session_that_has_begun_is_refused(session: Session) -> None:
    session.execute(select(Plain)).all()
    with pytest.raises(Misuse, match="first statement"), fenced(session, {"a": 7}):
        raise AssertionError
    session.rollback()
    with fenced(session, {"a": 7}):
        with pytest.raises(Misuse, match="first statement"), fenced(session, {"a": 7}):
            raise AssertionError
        session.add(Account(id=1, value=1))
        session.flush()
        assert session.get_one(Account, 1).fence == 7, "the block around it is still there"


def test_an_engine_that_commits_each_statement_is_refused(engine: Engine) -> None:
    with Session(engine.execution_options(isolation_level="AUTOCOMMIT")) as session:
        with pytest.raises(Misuse, match="transaction of its own"), fenced(session, {"a": 7}):
            raise AssertionError


def test_an_open_lease_writes_only_where_that_was_said(engine: Engine, session: Session) -> None:
    with pytest.raises(Misuse, match="bears no fence"), fenced(session, OPEN):
        raise AssertionError
    with fenced(session, OPEN, unfenced=True):
        session.add(Account(id=1, value=1))
    with fenced(session, OPEN, unfenced=True):
        session.get_one(Account, 1).value = 2
    with fenced(session, OPEN, unfenced=True):
        assert session.get_one(Account, 1).fence == 0
    assert values(engine, "account") == [2]


def test_a_connection_without_a_session(engine: Engine) -> None:
    with engine.begin() as connection:
        guard(connection, {"a": 7})
        guard(connection, {"a": 9}, read=True)
    with engine.connect() as connection:
        with pytest.raises(StaleFence):
            guard(connection, {"a": 8})


def test_the_table_is_the_one_that_plain_drivers_use(database: Database, engine: Engine) -> None:
    with engine.begin() as connection:
        guard(connection, {"a ü": 7})
    connection = database.connect()
    with pytest.raises(StaleFence) as refused:
        FenceTable(database.dialect).guard(connection.cursor(), {"a ü": 6})
    connection.close()
    assert refused.value.seen == 7


# ------------------------------------------------ rows


def test_rows_carry_the_fence_and_refuse_late_holders(engine: Engine, session: Session) -> None:
    session.add(Account(id=1, value=0))
    session.commit()
    with fenced(session, {"a": 7}, table=None):
        session.get_one(Account, 1).value = 7
    with Session(engine) as late:
        for change in (lambda row: setattr(row, "value", 5), late.delete):
            with pytest.raises(StaleFence) as refused, fenced(late, {"a": 5}, table=None):
                change(late.get_one(Account, 1))
            assert (refused.value.name, refused.value.fence, refused.value.seen) == ("a", 5, 7)
    with fenced(session, {"a": 7}, table=None):
        session.get_one(Account, 1).value = 8
    with fenced(session, {"a": 9}, table=None):
        assert session.get_one(Account, 1).fence == 7
        session.delete(session.get_one(Account, 1))
    assert values(engine, "account") == []


@pytest.mark.parametrize("later, error", [(7, StaleFence), (4, StaleDataError)], ids=["later", "earlier"])
def test_a_row_that_was_changed_since_it_was_read(engine: Engine, session: Session, later: int, error: type[Exception]) -> None:
    """A holder that is late is refused as one. A holder that is not late reads the row again."""
    session.add(Account(id=1, value=0))
    session.commit()
    with Session(engine) as other:

        def body() -> None:
            with fenced(other, {"a": 5}, table=None):
                row = other.get_one(Account, 1)
                with fenced(session, {"a": later}, table=None):
                    session.get_one(Account, 1).value = later
                row.value = 5

        with pytest.raises(error) as raised:
            body()
        if isinstance(raised.value, StaleFence):
            assert (raised.value.fence, raised.value.seen) == (5, 7)
    assert values(engine, "account") == [later]


def test_a_change_outside_of_a_block_is_misuse(engine: Engine, session: Session) -> None:
    session.add(Account(id=1, value=0))
    session.commit()
    row = session.get_one(Account, 1)
    row.value = 1
    with pytest.raises(Misuse, match="only under its lock"):
        session.commit()
    session.rollback()
    session.delete(row)
    with pytest.raises(Misuse, match="only under its lock"):
        session.commit()
    session.rollback()
    row.value = row.value
    session.commit()
    assert values(engine, "account") == [0]


def test_a_change_in_bulk_compares_and_stamps_inside_of_a_block(engine: Engine, session: Session) -> None:
    session.add(Account(id=1, value=0))
    session.commit()
    for statement in (update(Account).values(value=1), delete(Account), update(Account.__table__).values(value=1)):
        with pytest.raises(Misuse, match=r"a bulk change of Account .* only inside of `fenced`"):
            session.execute(statement)
        session.rollback()
    session.execute(update(Plain).values(value=1))
    session.rollback()
    for fence, table in ((7, "holdfast_fences"), (8, None)):
        with fenced(session, {"a": fence}, table=table):
            row = session.get_one(Account, 1)
            session.execute(update(Account).where(Account.value < fence).values(value=fence))
            assert (row.value, row.fence) == (fence, fence)
        assert values(engine, "account") == [fence]
    with fenced(session, OPEN, unfenced=True):
        session.execute(update(Account).values(value=1))
    with fenced(session, {"a": 8}, table=None):
        session.execute(delete(Account))
    assert values(engine, "account") == []


def test_a_change_in_bulk_that_cannot_compare_is_misuse(engine: Engine, session: Session) -> None:
    session.add_all([Named(id=1, value=0), Account(id=1, value=0), Account(id=2, value=0)])
    session.commit()
    with (
        pytest.raises(Misuse, match=r"does not know the locks of its rows \(`Named.fence_name`\)"),
        fenced(session, {"named:1": 7}),
    ):
        session.execute(update(Named).values(value=1))
    with pytest.raises(Misuse, match="does not know the locks"), fenced(session, {"named:1": 7}):
        session.execute(insert(Named), [{"id": 3, "value": 0}])
    with (
        pytest.raises(Misuse, match=r"which of several locks protects its rows \(a, b\)"),
        fenced(session, {"a": 7, "b": 7}),
    ):
        session.execute(update(Account).values(value=1))
    with pytest.raises(Misuse, match="by primary keys"), fenced(session, {"a": 7}):
        session.execute(update(Account), [{"id": 1, "value": 1}, {"id": 2, "value": 2}])
    session.rollback()
    for statement in (update(WORLD.Savings).values(interest=1), delete(WORLD.Savings)):
        with pytest.raises(Misuse, match="names another table than late_account"), fenced(session, {"a": 7}):
            session.execute(statement)
    session.execute(insert(Named), [{"id": 3, "value": 0}])  # INSERT is free outside of a block
    session.commit()
    assert (values(engine, "account"), values(engine, "named")) == ([0, 0], [0, 0])


def test_rows_with_a_lock_each(engine: Engine, session: Session) -> None:
    session.add_all([Named(id=1, value=0), Named(id=2, value=0)])
    session.commit()
    with fenced(session, {"named:1": 7, "named:2": 8}, table=None):
        for number in (1, 2):
            session.get_one(Named, number).value = number
    assert {row.id: row.fence for row in session.scalars(select(Named))} == {1: 7, 2: 8}
    session.rollback()
    with pytest.raises(Misuse, match="is protected by 'named:2'"), fenced(session, {"named:1": 9}, table=None):
        session.get_one(Named, 2).value = 5
    session.add(Account(id=1, value=0))
    session.commit()
    with pytest.raises(Misuse, match="several names"), fenced(session, {"named:1": 9, "named:2": 9}, table=None):
        session.get_one(Account, 1).value = 5
    assert values(engine, "named") == [1, 2]


UNCOMPARED = """
from sqlalchemy import BigInteger, ForeignKey
from sqlalchemy.orm import DeclarativeBase, Mapped, configure_mappers, mapped_column
from holdfast import ConfigError
from holdfast.fencing.sqlalchemy import Fenced
class Base(DeclarativeBase):
    pass
class Parent(Base):
    __tablename__ = "parent"
    id: Mapped[int] = mapped_column(primary_key=True)
class Account({bases}):
    __tablename__ = "account"
    id: Mapped[int] = mapped_column({key}primary_key=True)
    own: Mapped[int]
    {rest}
try:
    configure_mappers()
except ConfigError as error:
    print(error)
"""
REFUSED = {
    "child": {"bases": "Fenced, Parent", "key": 'ForeignKey("parent.id"), ', "rest": ""},
    "overriding": {"bases": "Fenced, Base", "key": "", "rest": '__mapper_args__ = {"eager_defaults": True}'},
    "another column": {
        "bases": "Fenced, Base",
        "key": "",
        "rest": """
    version: Mapped[int] = mapped_column()
    __mapper_args__ = {"version_id_col": version, "version_id_generator": False}
""",
    },
}
MERGING = {
    "bases": "Fenced, Base",
    "key": "",
    "rest": """
    fence: Mapped[int] = mapped_column("fencing", BigInteger, default=0)
    __mapper_args__ = {"eager_defaults": True, "version_id_col": fence, "version_id_generator": False}
""",
}


@pytest.mark.parametrize("declared", REFUSED.values(), ids=REFUSED)
def test_a_class_whose_fence_would_not_be_compared_is_refused(declared: dict[str, str]) -> None:
    assert run(UNCOMPARED.format(**declared)).startswith("the fences of Account would not be compared: merge its `__mapper_args__`")


def test_a_class_that_merges_its_arguments_is_not() -> None:
    assert run(UNCOMPARED.format(**MERGING)) == ""


# ------------------------------------------------ other sessions


async def test_registries_of_asynchronous_sessions(asynchronous: AsyncEngine, engine: Engine) -> None:
    registry = async_scoped_session(async_sessionmaker(asynchronous), scopefunc=asyncio.current_task)
    async with fenced(registry, {"a": 7}) as session:
        assert session is registry()
        registry.add(Account(id=1, value=7))
    await registry.remove()
    assert values(engine, "account") == [7]


async def test_an_asynchronous_session_with_several_databases(asynchronous: AsyncEngine, engine: Engine) -> None:
    elsewhere = create_async_engine("sqlite+aiosqlite://")
    for fence, error in ((7, None), (5, StaleFence)):
        async with AsyncSession(bind=elsewhere, binds={Plain: asynchronous}) as session:
            with pytest.raises(error) if error else nullcontext():
                async with fenced(session, {"a": fence}):
                    await session.merge(Plain(id=1, value=fence))
    await elsewhere.dispose()
    assert values(engine) == [7]


@pytest.mark.parametrize("given", [None, object(), sessionmaker()], ids=["None", "object", "sessionmaker"])
def test_what_is_no_session(given: Any) -> None:
    with pytest.raises(ConfigError, match="`fenced` takes a Session"):
        fenced(given, {"a": 7})


# ------------------------------------------------ what is installed, and what it costs


def run(program: str) -> str:
    done = subprocess.run([sys.executable, "-W", "error", "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_without_sqlalchemy_the_error_says_what_to_install() -> None:
    for missing in ("sqlalchemy", "sqlalchemy.orm"):
        said = run(
            f"""
import sys
sys.modules[{missing!r}] = None
try:
    import holdfast.fencing.sqlalchemy
except ImportError as error:
    print(error, error.name)
"""
        )
        assert said == 'holdfast.fencing.sqlalchemy needs SQLAlchemy 2.0 or newer: pip install "holdfast[sqlalchemy]" sqlalchemy\n'


WATCHED = """
from sqlalchemy import event
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column
from holdfast.fencing import sqlalchemy as module
def watched():
    return len(list(Session().dispatch.do_orm_execute))
class Base(DeclarativeBase):
    pass
class Plain(Base):
    __tablename__ = "plain"
    id: Mapped[int] = mapped_column(primary_key=True)
print(watched())
class Account(module.Fenced, Base):
    __tablename__ = "account"
    id: Mapped[int] = mapped_column(primary_key=True)
class Other(Base, module.Fenced):
    __tablename__ = "other"
    id: Mapped[int] = mapped_column(primary_key=True)
print(watched(), sorted(it().class_.__name__ for it in module._mappers))
"""


def test_no_statement_is_watched_before_a_class_needs_it() -> None:
    assert run(WATCHED) == "0\n1 ['Account', 'Other']\n"


# ------------------------------------------------ asyncio


async def test_tasks_have_the_same(asynchronous: AsyncEngine, engine: Engine) -> None:
    async with AsyncSession(asynchronous, expire_on_commit=False) as session:
        async with fenced(session, {"a": 7}) as same:
            assert same is session
            session.add(Account(id=1, value=7))
        with pytest.raises(StaleFence):
            async with fenced(session, {"a": 5}):
                raise AssertionError("the body does not run")
        row = await session.get_one(Account, 1)
        with pytest.raises(Misuse, match="first statement"):
            async with fenced(session, {"a": 7}):
                raise AssertionError
        await session.commit()
        with Session(engine) as other, fenced(other, {"a": 9}, table=None):
            other.get_one(Account, 1).value = 9
        with pytest.raises(StaleFence) as refused:
            async with fenced(session, {"a": 8}):
                row.value = 8
        assert refused.value.seen == 9
        assert not session.info, "it is in no block any more, so no change is let through"
    async with asynchronous.execution_options(isolation_level="AUTOCOMMIT").connect() as connection:
        with pytest.raises(Misuse, match="transaction of its own"):
            await connection.run_sync(guard, {"b": 7})
    assert values(engine, "account") == [9]


# ------------------------------------------------ late holders

WORLD = overtaking.schema(module)


@pytest.mark.parametrize("way", overtaking.WAYS)
def test_a_late_holder_finds_no_way(engine: Engine, way: str) -> None:
    overtaking.try_(overtaking.WAYS[way], WORLD, engine)
