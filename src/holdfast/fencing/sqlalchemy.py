"""Fences for SQLAlchemy: transactions that begin with their guard, and fenced rows.

Knows SQLAlchemy 2, and the statements of `sql`. Must not know databases, but for their dialects'
names.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NoReturn, overload
from weakref import WeakKeyDictionary, ref

from ..checks import shown
from ..errors import ConfigError, Misuse, StaleFence
from .bearer import Fences, fence_of, fences_of
from .sql import NARROW, FenceTable

try:
    from sqlalchemy import (
        BigInteger,
        Column,
        Connection,
        CursorResult,
        Delete,
        Engine,
        Insert,
        MetaData,
        Table,
        Text,
        Update,
        event,
        inspect,
        select,
    )
    from sqlalchemy.dialects.mysql import VARBINARY
    from sqlalchemy.orm import (
        Mapped,
        Mapper,
        ORMExecuteState,
        Session,
        declared_attr,
        has_inherited_table,
        mapped_column,
        object_session,
        scoped_session,
    )
    from sqlalchemy.orm.exc import StaleDataError
    from sqlalchemy.sql import visitors
except ImportError as missing:
    raise ImportError(
        'holdfast.fencing.sqlalchemy needs SQLAlchemy 2.0 or newer: pip install "holdfast[sqlalchemy]"',
        name="sqlalchemy",
    ) from missing

if TYPE_CHECKING:
    # Never imported here: it needs greenlet, which programs without asyncio may lack.
    from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session

__all__ = ["Fenced", "fence_table", "fenced", "guard"]

_TABLE = "holdfast_fences"
_INSIDE = "holdfast.fenced"  # in `session.info`: the block that the session is in
# In a row's `InstanceState.info`: its constructor ran, and it was not inserted yet.
_CONSTRUCTED = "holdfast.constructed"
# An execution option: the fence that a bulk INSERT gives to its rows.
_FENCE = "holdfast_fence"


def fence_table(metadata: MetaData, name: str = _TABLE) -> Table:
    """Declare the table in which `fenced` and `guard` remember fences.

    Use it for `metadata.create_all` and for migrations.

    Args:
        metadata: The metadata that the table is added to.
        name: The table's name, by default `holdfast_fences`.

    Returns:
        The table.

    Raises:
        sqlalchemy.exc.InvalidRequestError: The metadata has another table of this name.
    """
    text = Text().with_variant(Text(collation="C"), "postgresql").with_variant(VARBINARY(512), "mysql", "mariadb")
    numbers = (Column(it, BigInteger, nullable=False) for it in ("seen", "written"))
    return Table(name, metadata, Column("name", text, primary_key=True), *numbers)


def guard(
    connection: Connection, lease: Fences, *, table: str = _TABLE, read: bool = False, unfenced: bool = False
) -> None:
    """Guard a transaction of a connection, as `FenceTable.guard` does.

    Call it before the first read.

    Use `fenced` with a session: a session may hold objects that it read before this guard.

    Args:
        connection: The connection whose transaction will write.
        lease: A lease, or `{name: fence}`.
        table: The name of the fence table, see `fence_table`.
        read: The transaction only reads, see `FenceTable.guard`.
        unfenced: Let a lease without a fence pass unchecked, see `FenceTable.guard`.

    Raises:
        StaleFence: A later holder has been here. Roll back.
        Misuse: The connection commits each statement by itself, or the lease has no fence.
        ConfigError: The fence table cannot hold the fence or the name.
    """
    dialect = connection.dialect
    fences = _table(dialect.name, table=table, paramstyle=dialect.paramstyle)
    fences.guard(_Cursor(connection), lease, read=read, unfenced=unfenced)


@overload
def fenced(
    session: Session | scoped_session[Any],
    lease: Fences,
    *,
    table: str | None = ...,
    read: bool = ...,
    unfenced: bool = ...,
) -> AbstractContextManager[Session]: ...


@overload
def fenced(
    session: AsyncSession | async_scoped_session[Any],
    lease: Fences,
    *,
    table: str | None = ...,
    read: bool = ...,
    unfenced: bool = ...,
) -> AbstractAsyncContextManager[AsyncSession]: ...


def fenced(
    session: Session | scoped_session[Any] | AsyncSession | async_scoped_session[Any],
    lease: Fences,
    *,
    table: str | None = _TABLE,
    read: bool = False,
    unfenced: bool = False,
) -> AbstractContextManager[Session] | AbstractAsyncContextManager[AsyncSession]:
    """Run one transaction that begins with its guard: `with fenced(session, lease):`.

    Use `async with` for an AsyncSession. The block commits at its end, as `session.begin()` does,
    and rolls back if anything is raised. All objects that the session holds expire when the block
    begins, so that every read sees what earlier holders wrote. With asyncio, load an older object
    again before you read its
    attributes, with `await session.refresh(row)`.

    A session with one database is guarded before the body runs. A session with several (`binds`, or
    a `get_bind` of its own) is guarded in each database before its first statement there.

    Args:
        session: A Session, AsyncSession, scoped_session or async_scoped_session that has not begun
            a transaction.
        lease: A lease, or `{name: fence}`.
        table: The name of the fence table, see `fence_table`. None compares `Fenced` rows only.
        read: The block only reads, see `FenceTable.guard`.
        unfenced: Let a lease without a fence pass unchecked, see `FenceTable.guard`.

    Returns:
        A context manager that enters with the Session or AsyncSession.

    Raises:
        StaleFence: A later holder has been here. Nothing is written.
        Misuse: The session has begun a transaction already, or commits each statement by itself, or
            the lease has no fence.
        ConfigError: `session` is something else, or the fence table cannot hold the fence or the
            name.
    """
    block = _GuardedBlock(fences_of(lease, unfenced), table, read)
    if isinstance(session, Session | scoped_session):
        return _synchronous(session, block)
    # Nobody can have an AsyncSession before its module was imported.
    asynchronous = sys.modules.get("sqlalchemy.ext.asyncio")
    if asynchronous is None or not isinstance(session, asynchronous.AsyncSession | asynchronous.async_scoped_session):
        raise ConfigError(
            f"`fenced` takes a Session, AsyncSession, scoped_session or async_scoped_session, not {shown(session)}"
        )
    return _asynchronous(session, block)


def _inserted_fence(context: Any) -> int:
    """The fence of rows that a bulk INSERT makes.

    (Objects get theirs when the session flushes them.)
    """
    return int(context.execution_options.get(_FENCE, 0))


class Fenced:
    """A mixin for mapped classes: a column `fence`, and rows that change only inside of `fenced`.

    UPDATE and DELETE compare the fence that was read with the stored one (`version_id_col`), and
    UPDATE writes the holder's. If only a relationship of the row changed, an UPDATE of the fence
    alone compares it. A class that has `__mapper_args__` of its own merges them with these. Of
    classes that inherit from one another, the topmost is `Fenced`.

    `session.execute(update(Account)...)` and `delete(Account)` compare and stamp all rows that they
    change.
    They are Misuse where the fence of a row is unknown: if the class overrides `fence_name`, if the
    lease has several names, and if an UPDATE by primary keys is given a list. An upsert, or a
    change inside of another statement (a CTE), is Misuse too.

    INSERT is free outside of a block. Inside, new rows get the holder's fence. With `table=None`, a
    deleted
    row is not remembered: `session.merge` is Misuse if it finds no row, because a later holder may
    have deleted it.

    Raises:
        StaleFence: The row has seen a later holder. Nothing is written.
        StaleDataError: SQLAlchemy's. An earlier holder changed the row after it was read. Read it
            again.
        Misuse: The row changes outside of `fenced`, under another lock, or in one of the ways
            above.
        ConfigError: The class does not have the `__mapper_args__` of `Fenced`, or the column does
            not store the fence as it is.
    """

    fence: Mapped[int] = mapped_column(BigInteger, nullable=False, insert_default=_inserted_fence, server_default="0")

    @declared_attr.directive
    @classmethod
    def __mapper_args__(cls) -> dict[str, Any]:
        return {} if has_inherited_table(cls) else {"version_id_col": cls.fence, "version_id_generator": False}

    def fence_name(self) -> str | None:
        """Name the lock that protects this row, such as f"account:{self.id}".

        Returns:
            The name. None, the default, stands for the only name that the lease has.
        """
        return None


class _GuardedBlock:
    """What `fenced` knows while it is open."""

    def __init__(self, fences: dict[str, int], table: str | None, read: bool) -> None:
        self.fences, self.table, self.read = fences, table, read
        # The rows that were to be changed, by their primary keys, and the name and fence to do it with.
        self.rows: list[tuple[Mapper[Any], tuple[Any, ...], str, int]] = []
        self._guarded: list[Connection] = []
        self._failed: Exception | None = None
        self._listeners: tuple[tuple[str, Any], ...] = ()

    def begins(self, session: Session) -> None:
        if session.in_transaction():
            raise Misuse(
                "this session has begun a transaction, and the guard has to be its first statement: "
                "commit or roll back before `fenced`"
            )
        session.info[_INSIDE] = self
        if self.table is not None and _has_several_databases(session):
            # Which databases the body will use is not known yet. The session tells when it begins
            # in one.
            self._listeners = (("after_begin", self._guards_late), ("before_commit", self._refuses_commit))
            for name, listener in self._listeners:
                event.listen(session, name, listener)

    def guards(self, session: Session) -> None:
        if self.table is not None and not self._listeners:
            self._guard(session.connection())
        # After the guard: what listeners of `after_begin` have loaded before it is old, too.
        session.expire_all()

    def explains(self, session: Session) -> None:
        """A row was not as it had been read: raises StaleFence if that was a later holder."""
        self._stops_listening(session)
        with session.begin():
            for mapper, identity, name, fence in self.rows:
                query = select(_column(mapper)).where(*_is(mapper, identity))
                seen = session.scalar(query, bind_arguments={"mapper": mapper})
                if seen is not None and seen > fence:
                    raise StaleFence(name, fence, seen)

    def ends(self, session: Session) -> None:
        self._stops_listening(session)
        session.info.pop(_INSIDE, None)

    def stamps(self, mapper: Mapper[Any], row: Fenced) -> int:
        """The fence that a row gets; raises StaleFence if it has a later one."""
        if not self.fences:
            return row.fence
        wanted = row.fence_name()
        if wanted is not None and wanted not in self.fences:
            raise Misuse(f"{row!r} is protected by {wanted!r}, and the lease holds {', '.join(self.fences)}")
        held = fence_of(self.fences if wanted is None else {wanted: self.fences[wanted]})
        assert held is not None
        name, fence = held
        if row.fence > fence:
            raise StaleFence(name, fence, row.fence)
        self.rows.append((mapper, mapper.primary_key_from_instance(row), name, fence))
        return fence

    def stamps_all(self, mapper: Mapper[Any]) -> tuple[str, int] | None:
        """The name and fence of all rows that a bulk change concerns; None if the lease is OPEN."""
        if not self.fences:
            return None
        named = [
            it.class_.__name__ for it in mapper.self_and_descendants if it.class_.fence_name is not Fenced.fence_name
        ]
        if named:
            _refuse(mapper, f"does not know the locks of its rows (`{named[0]}.fence_name`)")
        if len(self.fences) > 1:
            _refuse(mapper, f"does not know which of several locks protects its rows ({', '.join(self.fences)})")
        return next(iter(self.fences.items()))

    def _guard(self, connection: Connection) -> None:
        assert self.table is not None
        self._guarded.append(connection)
        guard(connection, self.fences, table=self.table, read=self.read, unfenced=True)

    def _guards_late(self, session: Session, transaction: object, connection: Connection) -> None:
        """The session has begun in a database. (It says so again for each savepoint.)"""
        if not any(it is connection for it in self._guarded):
            try:
                self._guard(connection)
            except Exception as failed:
                self._failed = failed
                raise

    def _refuses_commit(self, session: Session) -> None:
        """The body may have caught what a late guard raised. It must not commit all the same."""
        if self._failed is not None:
            raise self._failed

    def _stops_listening(self, session: Session) -> None:
        for name, listener in self._listeners:
            event.remove(session, name, listener)
        self._listeners = ()


@contextmanager
def _synchronous(given: Session | scoped_session[Any], block: _GuardedBlock) -> Iterator[Session]:
    session: Session = given() if isinstance(given, scoped_session) else given
    block.begins(session)
    try:
        with session.begin():
            block.guards(session)
            yield session
    except StaleDataError:
        block.explains(session)
        raise
    finally:
        block.ends(session)


@asynccontextmanager
async def _asynchronous(
    given: AsyncSession | async_scoped_session[Any], block: _GuardedBlock
) -> AsyncIterator[AsyncSession]:
    # (An AsyncSession is not callable: a registry of them is.)
    session: AsyncSession = given() if callable(given) else given
    block.begins(session.sync_session)
    try:
        async with session.begin():
            await session.run_sync(block.guards)
            yield session
    except StaleDataError:
        await session.run_sync(block.explains)
        raise
    finally:
        block.ends(session.sync_session)


def _has_several_databases(session: Session) -> bool:
    """Whether `session.connection()` may be to another database than a statement's."""
    if type(session).get_bind is not Session.get_bind:
        return True
    # SQLAlchemy 2.0 keeps the binds of classes and tables to itself; 2.1 shows them.
    return bool(session.binds if hasattr(session, "binds") else getattr(session, "_Session__binds", True))


class _Cursor:
    """A connection of SQLAlchemy's as `FenceTable` wants it."""

    def __init__(self, connection: Connection) -> None:
        self._asked = connection
        self._last: CursorResult[Any]

    @property
    def connection(self) -> object:
        """The driver's own."""
        return self._asked.connection.driver_connection

    @property
    def rowcount(self) -> int:
        """How many rows the last statement has changed."""
        return self._last.rowcount

    def execute(self, operation: str, parameters: Any, /) -> None:
        """Execute a statement that is written for the driver."""
        self._last = self._asked.exec_driver_sql(operation, parameters)

    def fetchone(self) -> Any:
        """The next row of the last statement's."""
        return self._last.fetchone()


_table = lru_cache(64)(FenceTable)


# ---- objects: what the session flushes row by row

_wide: WeakKeyDictionary[Engine, set[str]] = WeakKeyDictionary()  # tables that have stored a fence as it is


def _block_of(row: Fenced) -> tuple[Session, _GuardedBlock | None]:
    session = object_session(row)
    # It is being flushed.
    assert session is not None
    return session, session.info.get(_INSIDE)


def _constructed(row: Fenced, args: object, kwargs: object) -> None:
    inspect(row).info[_CONSTRUCTED] = True


def _inserted(mapper: Mapper[Any], connection: Connection, row: Fenced) -> None:
    session, block = _block_of(row)
    constructed = inspect(row).info.pop(_CONSTRUCTED, False)
    row.fence = row.fence or 0
    if block is None:
        return
    if block.table is None and block.fences and not constructed:
        raise Misuse(
            f"{row!r} is not in the database, and may have been deleted by a later holder: `merge` would make it "
            "again. Pass a table to `fenced`, or `session.add` a new object if it never existed."
        )
    # A row that is deleted and made again in one flush is updated. Its fence is that of the deleted
    # object.
    replaced = session.identity_map.get(mapper.identity_key_from_instance(row))
    if replaced is not None and replaced is not row:
        block.stamps(mapper, replaced)
    row.fence = block.stamps(mapper, row)


def _changed(mapper: Mapper[Any], connection: Connection, row: Fenced) -> None:
    session, block = _block_of(row)
    if not session.is_modified(row):
        return
    block = _needed(block, row)
    row.fence = block.stamps(mapper, row)
    # The session sends an UPDATE, which compares, only if a column changes. A change of a
    # relationship changes none if the row has this holder's fence already.
    if block.fences and not any(inspect(row).attrs[it.key].history.added for it in mapper.column_attrs):
        _compare(mapper, connection, row)


def _deleted(mapper: Mapper[Any], connection: Connection, row: Fenced) -> None:
    _needed(_block_of(row)[1], row).stamps(mapper, row)


def _compare(mapper: Mapper[Any], connection: Connection, row: Fenced) -> None:
    """Lock a row that no UPDATE is sent for, and see that it still has the fence that was read."""
    column = _column(mapper)
    here = _is(mapper, mapper.primary_key_from_instance(row))
    found = connection.execute(column.table.update().where(*here, column == row.fence).values({column: row.fence}))
    if found.rowcount != 1:
        raise StaleDataError(f"{row!r} was changed or deleted since it was read")


def _stored(mapper: Mapper[Any], connection: Connection, row: Fenced) -> None:
    """Read back the first fence that goes into a table.

    MySQL without its strict mode stores the largest number that a narrow column holds, and all
    fences would be equal.
    """
    if connection.dialect.name not in ("mysql", "mariadb") or not row.fence:
        return
    column, known = _column(mapper), _wide.setdefault(connection.engine, set())
    if column.table.key not in known:
        found = connection.scalar(select(column).where(*_is(mapper, mapper.primary_key_from_instance(row))))
        if found != row.fence:
            raise ConfigError(f"{column} has stored {found} for the fence {row.fence}: {NARROW}")
        known.add(column.table.key)


def _needed(block: _GuardedBlock | None, row: object) -> _GuardedBlock:
    if block is None:
        raise Misuse(f"{row!r} changes only under its lock: do it inside of `with fenced(session, lease)`")
    return block


def _is(mapper: Mapper[Any], identity: Sequence[Any]) -> list[Any]:
    """The conditions that only the row with this primary key meets."""
    return [column == it for column, it in zip(mapper.primary_key, identity, strict=True)]


def _column(mapper: Mapper[Any]) -> Any:
    """The column `fence` of a class's table, or of that of the class it inherits from."""
    assert mapper.version_id_col is not None
    return mapper.version_id_col


# ---- statements: what a session executes beside its objects

_CHANGES = {"insert", "update", "delete"}
_UPSERTS = {"on_conflict_do_update", "on_duplicate_key_update"}
_mappers: tuple[ref[Mapper[Any]], ...] = ()  # (replaced, never changed: other threads may be reading it)


def _mapped(mapper: Mapper[Any], class_: type) -> None:
    """A class was declared.

    Until there is one, no session is watched: a watched statement costs microseconds.
    """
    global _mappers
    _mappers = (*(it for it in _mappers if it() is not None), ref(mapper))
    if not event.contains(Session, "do_orm_execute", _executed):
        event.listen(Session, "do_orm_execute", _executed)


def _configured(mapper: Mapper[Any], class_: type) -> None:
    """A class is about to be used: see that the session compares its fence."""
    column = mapper.version_id_col
    if (
        column is None
        or mapper.version_id_generator is not False
        or mapper.get_property_by_column(column).key != "fence"
    ):
        raise ConfigError(
            f"the fences of {class_.__name__} would not be compared: merge its `__mapper_args__` with "
            "`Fenced.__mapper_args__`, and if it inherits from a mapped class, give `Fenced` to the topmost one"
        )


def _executed(state: ORMExecuteState) -> Any:
    """A session executes a statement: compare and stamp if it changes `Fenced` rows."""
    statement = state.statement
    block: _GuardedBlock | None = state.session.info.get(_INSIDE)
    if isinstance(statement, Insert | Update | Delete):
        mapper = _mapper_of(statement.table)
        if mapper is not None:
            _see_upsert(statement, mapper)
        _see_inner(statement)
        if mapper is not None:
            return (
                _inserts_all(state, block, mapper)
                if isinstance(statement, Insert)
                else _changes_all(state, block, mapper, statement)
            )
    elif state.is_insert or state.is_update or state.is_delete or statement.__visit_name__ == "orm_from_statement":
        # A lambda, or the source of objects. (The first releases of SQLAlchemy 2.0 do not call the
        # latter an update.)
        _see_inner(statement)
    elif block is not None and not (state.is_column_load or state.is_relationship_load):
        # To look for changes inside of a SELECT takes as long as the statement does, so it is done
        # in blocks only.
        _see_inner(statement)
    return None


def _mapper_of(target: Any) -> Mapper[Any] | None:
    """Return the mapper of the `Fenced` class whose table this is, or is an alias of."""
    tables = [it for it in visitors.iterate(target) if isinstance(it, Table)]
    found = [it for known in _mappers if (it := known()) is not None and any(table in it.tables for table in tables)]
    # Classes that inherit share their parent's table, and the parent's mapper knows all of them.
    return min(found, key=lambda it: len(list(it.iterate_to_root())), default=None)


def _see_upsert(statement: Any, mapper: Mapper[Any]) -> None:
    replaces = any("REPLACE" in str(it).upper() for it, _ in statement._prefixes)
    if replaces or any(it.__visit_name__ in _UPSERTS for it in visitors.iterate(statement)):
        _refuse(mapper, "that inserts or updates compares no fences")


def _see_inner(statement: Any) -> None:
    """Refuse a change of `Fenced` rows inside of a statement.

    For MySQL, refuse a change of columns of another table, too.
    """
    parts: Iterator[Any] = visitors.iterate(statement)
    targets = [it.table for it in parts if it is not statement and it.__visit_name__ in _CHANGES]
    if isinstance(statement, Update):
        columns: Any = statement._values or {}
        targets += [it.table for it in columns if getattr(it, "table", statement.table) != statement.table]
    for target in targets:
        mapper = _mapper_of(target)
        if mapper is not None:
            _refuse(mapper, "inside of another statement compares no fences")


def _inserts_all(state: ORMExecuteState, block: _GuardedBlock | None, mapper: Mapper[Any]) -> None:
    held = block.stamps_all(mapper) if block is not None else None
    if held is not None:
        state.update_execution_options(**{_FENCE: held[1]})


def _changes_all(state: ORMExecuteState, block: _GuardedBlock | None, mapper: Mapper[Any], statement: Any) -> Any:
    if block is None:
        _refuse(mapper, "compares fences only inside of `fenced`")
    held = block.stamps_all(mapper)
    if held is None:
        return None
    name, fence = held
    column = _column(mapper)
    if isinstance(state.parameters, list):
        _refuse(mapper, "by primary keys compares no fences")
    # A class's statement has a copy of its table, which equals it.
    if statement.table != column.table:
        _refuse(mapper, f"that names another table than {column.table} compares no fences")
    where = statement.whereclause
    compared = statement.where(column <= fence)
    result = state.invoke_statement(compared.values({column.key: fence}) if isinstance(statement, Update) else compared)
    # Rows of later holders were left out. (FOR UPDATE: what is there now, even where the
    # transaction reads a snapshot.)
    later = select(column).where(column > fence, *([] if where is None else [where])).limit(1).with_for_update()
    with state.session.no_autoflush:
        seen = state.session.scalar(later, bind_arguments={"mapper": mapper, **state.bind_arguments})
    if seen is not None:
        raise StaleFence(name, fence, seen)
    return result


def _refuse(mapper: Mapper[Any], why: str) -> NoReturn:
    raise Misuse(f"a bulk change of {mapper.class_.__name__} {why}: change the objects one by one inside of `fenced`")


event.listen(Fenced, "init", _constructed, propagate=True)
event.listen(Fenced, "before_insert", _inserted, propagate=True)
event.listen(Fenced, "before_update", _changed, propagate=True)
event.listen(Fenced, "before_delete", _deleted, propagate=True)
event.listen(Fenced, "after_insert", _stored, propagate=True)
event.listen(Fenced, "after_update", _stored, propagate=True)
event.listen(Fenced, "instrument_class", _mapped, propagate=True)
event.listen(Fenced, "mapper_configured", _configured, propagate=True)
