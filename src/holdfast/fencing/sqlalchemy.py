"""Fences for SQLAlchemy: transactions that begin with their guard, and rows that only a holder changes.

Knows SQLAlchemy 2, and the statements of `sql`. Must not know databases, but for their dialects' names.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, contextmanager
from functools import lru_cache
from typing import Any, NamedTuple, overload

from sqlalchemy import BigInteger, Column, Connection, CursorResult, MetaData, Table, Text, event, select
from sqlalchemy.dialects.mysql import VARBINARY
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Mapped, Mapper, ORMExecuteState, Session, declared_attr, has_inherited_table, mapped_column, object_session
from sqlalchemy.orm.exc import StaleDataError

from ..errors import Misuse, StaleFence
from .bearer import Fences, fence_of, fences_of
from .sql import FenceTable

__all__ = ["Fenced", "fence_table", "fenced", "guard"]

_TABLE = "holdfast_fences"
_INSIDE = "holdfast.fenced"  # in `session.info`: the block that the session is in


def fence_table(metadata: MetaData, name: str = _TABLE) -> Table:
    """The table that `fenced` and `guard` remember fences in, for `metadata.create_all` and for migrations."""
    text = Text().with_variant(Text(collation="C"), "postgresql").with_variant(VARBINARY(512), "mysql", "mariadb")
    numbers = (Column(it, BigInteger, nullable=False) for it in ("seen", "written"))
    return Table(name, metadata, Column("name", text, primary_key=True), *numbers)


def guard(connection: Connection, lease: Fences, *, table: str = _TABLE, read: bool = False, unfenced: bool = False) -> None:
    """`FenceTable.guard` on a connection of SQLAlchemy's, in its transaction."""
    cursor = _Cursor(connection)
    _table(connection.dialect.name, table, connection.dialect.paramstyle).guard(cursor, lease, read=read, unfenced=unfenced)


@overload
def fenced(
    session: Session, lease: Fences, *, table: str | None = ..., read: bool = ..., unfenced: bool = ...
) -> AbstractContextManager[Session]: ...


@overload
def fenced(
    session: AsyncSession, lease: Fences, *, table: str | None = ..., read: bool = ..., unfenced: bool = ...
) -> AbstractAsyncContextManager[AsyncSession]: ...


def fenced(
    session: Session | AsyncSession, lease: Fences, *, table: str | None = _TABLE, read: bool = False, unfenced: bool = False
) -> AbstractContextManager[Session] | AbstractAsyncContextManager[AsyncSession]:
    """One transaction that begins with its guard: `with fenced(session, lease): …`, and with `async` for an AsyncSession.

    A late holder gets StaleFence, the body does not run, and nothing is written. It commits at the end of the block, as `session.begin()`
    does. The session must not have begun before (Misuse; so add to it inside): what was read then may be older than an earlier holder's
    last write. `table`: see `fence_table`; None leaves the check to the rows (`Fenced`) alone. `read`, `unfenced`: see `FenceTable.guard`.
    """
    block = _Block(fences_of(lease, unfenced), table, read)
    return _asynchronous(session, block) if isinstance(session, AsyncSession) else _synchronous(session, block)


class Fenced:
    """A mixin for mapped classes: a column `fence`, and rows that change only inside of `fenced`, and for no late holder.

    UPDATE and DELETE compare the fence that was read with the one that is there, at no cost (it is SQLAlchemy's `version_id_col`), and
    UPDATE writes the holder's. A row that has seen a later holder raises StaleFence; one that somebody else, who is not later, has changed
    since it was read raises SQLAlchemy's StaleDataError: read it again. A change outside of `fenced` is Misuse, and so are bulk
    UPDATE and DELETE, which compare nothing, unless the block's guard has its table. INSERT is free.
    A class that has `__mapper_args__` of its own merges them with these.
    """

    fence: Mapped[int] = mapped_column(BigInteger, nullable=False, default=0, server_default="0")

    @declared_attr.directive
    @classmethod
    def __mapper_args__(cls) -> dict[str, Any]:
        return {} if has_inherited_table(cls) else {"version_id_col": cls.fence, "version_id_generator": False}

    def fence_name(self) -> str | None:
        """The name of the lock that protects this row, such as f"account:{self.id}". None: the only one that the lease has."""
        return None


class _Row(NamedTuple):
    """A row that was to be changed, and what by."""

    mapper: Mapper[Any]
    identity: tuple[Any, ...]
    name: str
    fence: int


class _Block:
    """What `fenced` knows while it is open."""

    def __init__(self, fences: dict[str, int], table: str | None, read: bool) -> None:
        self.fences, self.table, self.read = fences, table, read
        self.rows: list[_Row] = []

    def begins(self, session: Session) -> None:
        if session.in_transaction():
            raise Misuse(
                "this session has begun a transaction, and the guard has to be its first statement: commit or roll back before `fenced`"
            )
        session.info[_INSIDE] = self

    def guards(self, session: Session) -> None:
        if self.table is not None:
            guard(session.connection(), self.fences, table=self.table, read=self.read, unfenced=True)

    def explains(self, session: Session) -> None:
        """A row was not as it had been read: raises StaleFence if that was a later holder."""
        with session.begin():
            for mapper, identity, name, fence in self.rows:
                same = [column == it for column, it in zip(mapper.primary_key, identity, strict=True)]
                seen = session.scalar(select(mapper.version_id_col).where(*same))  # type: ignore[arg-type]  # (it has one: see `Fenced`)
                if seen is not None and seen > fence:
                    raise StaleFence(name, fence, seen)

    def ends(self, session: Session) -> None:
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
        self.rows.append(_Row(mapper, mapper.primary_key_from_instance(row), name, fence))
        return fence


@contextmanager
def _synchronous(session: Session, block: _Block) -> Iterator[Session]:
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
async def _asynchronous(session: AsyncSession, block: _Block) -> AsyncIterator[AsyncSession]:
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


class _Cursor:
    """A connection of SQLAlchemy's as `FenceTable` wants it."""

    def __init__(self, connection: Connection) -> None:
        self._asked = connection
        self._result: CursorResult[Any] | None = None

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
        self._result = self._asked.exec_driver_sql(operation, parameters)

    def fetchone(self) -> Any:
        """The next row of the last statement's."""
        return self._last.fetchone()

    @property
    def _last(self) -> CursorResult[Any]:
        assert self._result is not None
        return self._result


@lru_cache(64)
def _table(dialect: str, table: str, paramstyle: str) -> FenceTable:
    return FenceTable(dialect, table=table, paramstyle=paramstyle)


def _block_of(row: Fenced) -> tuple[Session, _Block | None]:
    session = object_session(row)
    assert session is not None  # (it is being flushed)
    return session, session.info.get(_INSIDE)


def _inserted(mapper: Mapper[Any], connection: Connection, row: Fenced) -> None:
    block = _block_of(row)[1]
    row.fence = row.fence or 0
    if block is not None:
        row.fence = block.stamps(mapper, row)


def _changed(mapper: Mapper[Any], connection: Connection, row: Fenced) -> None:
    session, block = _block_of(row)
    if session.is_modified(row):
        row.fence = _needed(block, row).stamps(mapper, row)


def _deleted(mapper: Mapper[Any], connection: Connection, row: Fenced) -> None:
    _needed(_block_of(row)[1], row).stamps(mapper, row)


def _in_bulk(state: ORMExecuteState) -> None:
    mapper = state.bind_mapper
    if mapper is not None and (state.is_update or state.is_delete) and issubclass(mapper.class_, Fenced):
        block = state.session.info.get(_INSIDE)
        if block is None or block.table is None:
            raise Misuse(f"a bulk change compares no fences of {mapper.class_.__name__}: do it inside of `fenced`, with a table")


def _needed(block: _Block | None, row: object) -> _Block:
    if block is None:
        raise Misuse(f"{row!r} changes only under its lock: do it inside of `with fenced(session, lease)`")
    return block


event.listen(Fenced, "before_insert", _inserted, propagate=True)
event.listen(Fenced, "before_update", _changed, propagate=True)
event.listen(Fenced, "before_delete", _deleted, propagate=True)
event.listen(Session, "do_orm_execute", _in_bulk)
