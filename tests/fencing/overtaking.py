"""Ways in which a late holder might write with SQLAlchemy, each tried on a real database.

Knows the public names of `holdfast.fencing.sqlalchemy`, which it is handed, so that the same ways can be tried
with a fault in it. Must not know how rows are compared. A way raises AssertionError, or pytest's own failure, if
a lower fence wrote after a higher one, or if an update is lost.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import Column, Engine, ForeignKey, Table, create_engine, delete, func, insert, lambda_stmt, select, update
from sqlalchemy.dialects import mysql, postgresql, sqlite
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, aliased, mapped_column, relationship

from holdfast import ConfigError, Misuse, StaleFence

Way = Callable[[Any, Engine], None]


def schema(names: Any) -> Any:
    """The public names of the module, with classes that were declared with them."""

    class Base(DeclarativeBase):
        pass

    tagged = Table(
        "late_tagged",
        Base.metadata,
        Column("account", ForeignKey("late_account.id"), primary_key=True),
        Column("tag", ForeignKey("late_tag.id"), primary_key=True),
    )

    class Plain(Base):
        __tablename__ = "late_plain"
        id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
        value: Mapped[int]

    class Tag(Base):
        __tablename__ = "late_tag"
        id: Mapped[int] = mapped_column(primary_key=True)

    class Entry(Base):
        __tablename__ = "late_entry"
        id: Mapped[int] = mapped_column(primary_key=True)
        account: Mapped[int] = mapped_column(ForeignKey("late_account.id"))

    class Account(names.Fenced, Base):  # type: ignore[misc]  # (a base made at run time)
        __tablename__ = "late_account"
        id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
        value: Mapped[int]
        entries: Mapped[list[Entry]] = relationship()
        tags: Mapped[list[Tag]] = relationship(secondary=tagged)

    class Savings(Account):
        __tablename__ = "late_savings"
        id: Mapped[int] = mapped_column(ForeignKey("late_account.id"), primary_key=True)
        interest: Mapped[int]

    class Named(names.Fenced, Base):  # type: ignore[misc]  # (a base made at run time)
        __tablename__ = "late_named"
        id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
        value: Mapped[int]

        def fence_name(self) -> str:
            return f"named:{self.id}"

    names.fence_table(Base.metadata)
    return SimpleNamespace(
        fenced=names.fenced,
        metadata=Base.metadata,
        Account=Account,
        Entry=Entry,
        Named=Named,
        Plain=Plain,
        Savings=Savings,
        Tag=Tag,
        tagged=tagged,
    )


def try_(way: Way, world: Any, engine: Engine) -> None:
    """One way, beginning with an account of 100 that nobody has changed yet."""
    world.metadata.drop_all(engine)
    world.metadata.create_all(engine)
    with Session(engine) as session, session.begin():
        session.add_all([world.Account(id=1, value=100), world.Plain(id=1, value=100), world.Named(id=1, value=100)])
        session.add(world.Savings(id=2, value=100, interest=1))
    try:
        way(world, engine)
    finally:
        world.metadata.drop_all(engine)


def write(world: Any, engine: Engine, fence: int, *, table: str | None = None, number: int = 1, value: int = 0) -> None:
    """Change one account by the rules."""
    with Session(engine) as session, world.fenced(session, {"a": fence}, table=table):
        session.get_one(world.Account, number).value = value or fence


def refusal(world: Any, session: Session, fence: int, body: Callable[[Session], None], table: str | None = None) -> StaleFence:
    """Run a body that a late holder must not finish."""
    with session as late, pytest.raises(StaleFence) as refused, world.fenced(late, {"a": fence}, table=table):
        body(late)
    return refused.value


def refuses(world: Any, engine: Engine, statement: Any, why: str, *tables: str | None) -> None:
    """A statement passes neither with a fence, on these tables, nor without one."""
    for table in tables:
        with Session(engine) as late, pytest.raises(Misuse, match=why), world.fenced(late, {"a": 5}, table=table):
            late.execute(statement)
    with Session(engine) as late, pytest.raises(Misuse, match=why):
        late.execute(statement)


def stored(world: Any, engine: Engine) -> tuple[int, int]:
    """The value and the fence of the account."""
    with Session(engine) as session:
        row = session.get_one(world.Account, 1)
        return row.value, row.fence


def by_objects_that_were_kept(world: Any, engine: Engine) -> None:
    """Two sessions that keep their objects after a commit each add 10, one after the other."""
    table = "holdfast_fences"
    for kind in (world.Plain, world.Account):
        with Session(engine, expire_on_commit=False) as one, Session(engine, expire_on_commit=False) as other:
            kept = []
            for session in (one, other):
                kept.append(session.get_one(kind, 1))
                session.commit()
            name = kind.__tablename__
            with world.fenced(one, {name: 7}, table=table):
                one.get_one(kind, 1).value += 10
            with world.fenced(other, {name: 8}, table=table):
                other.get_one(kind, 1).value += 10
            with world.fenced(one, {name: 9}, table=table):
                assert kept[0].value == 120, "an update of a live holder is not seen"
                kept[0].value += 10
        with Session(engine) as session:
            assert session.get_one(kind, 1).value == 130, "an update of a live holder is lost"


def by_a_relationship(world: Any, engine: Engine) -> None:
    """The late holder has written before, so that the row's own columns do not change again."""
    for number, name, kind in ((1, "entries", world.Entry), (2, "tags", world.Tag)):
        write(world, engine, 7, number=number)

        def appends(late: Session, number: int = number, name: str = name, kind: Any = kind) -> None:
            row = late.get_one(world.Account, number)
            write(world, engine, 9, number=number)
            getattr(row, name).append(kind())

        refused = refusal(world, Session(engine), 7, appends)
        assert (refused.fence, refused.seen) == (7, 9)
        with Session(engine) as session:
            assert session.scalar(select(func.count()).select_from(kind)) == 0, f"{name} of a late holder"
        with Session(engine) as session, world.fenced(session, {"a": 9}, table=None):
            row = session.get_one(world.Account, number)
            getattr(row, name).append(kind())
        with Session(engine) as session:
            assert session.scalar(select(func.count()).select_from(kind)) == 1


def by_a_column_of_a_subclass(world: Any, engine: Engine) -> None:
    """Its table is another one than that of the fence, which does not change."""
    write(world, engine, 7, number=2)

    def earns(late: Session) -> None:
        row = late.get_one(world.Savings, 2)
        write(world, engine, 9, number=2)
        row.interest = 5

    refusal(world, Session(engine), 7, earns)
    with Session(engine) as session:
        assert session.get_one(world.Savings, 2).interest == 1


def by_an_upsert(world: Any, engine: Engine) -> None:
    """INSERT that changes a row if there is one."""
    write(world, engine, 9)
    row = {"id": 1, "value": 5}
    if engine.dialect.name == "postgresql":
        upserts = [postgresql.insert(world.Account).values(row).on_conflict_do_update(index_elements=["id"], set_=row)]
    elif engine.dialect.name == "sqlite":
        upserts = [
            sqlite.insert(world.Account).values(row).on_conflict_do_update(index_elements=["id"], set_=row),
            insert(world.Account).prefix_with("OR REPLACE").values(row),
            insert(world.Account.__table__).prefix_with("or replace").values(row),
        ]
    else:
        upserts = [mysql.insert(world.Account).values(row).on_duplicate_key_update(value=5)]
    for upsert in upserts:
        refuses(world, engine, upsert, "inserts or updates", None, "holdfast_fences")
    assert stored(world, engine) == (9, 9)


def by_a_change_inside_of_a_query(world: Any, engine: Engine) -> None:
    """UPDATE … RETURNING as the source of a SELECT, or of an INSERT somewhere else."""
    write(world, engine, 9)
    changes = [
        update(world.Account).values(value=5).returning(world.Account.id),
        update(world.Account.__table__).values(value=5).returning(world.Account.__table__.c.id),
        delete(world.Account).returning(world.Account.id),
        postgresql.insert(world.Account)
        .values(id=1, value=5)
        .on_conflict_do_update(index_elements=["id"], set_={"value": 5})
        .returning(world.Account.id),
    ]
    for change in changes:
        inner = change.cte("changed")
        for statement in (
            select(inner.c.id),
            select(world.Plain).where(world.Plain.id.in_(select(inner.c.id))),
            select(world.Plain).add_cte(inner),
            insert(world.Plain).from_select(["id", "value"], select(inner.c.id, inner.c.id)),
            select(world.Account).from_statement(change),
            lambda_stmt(lambda change=change: change, track_closure_variables=False),
        ):
            with Session(engine) as late, pytest.raises(Misuse, match="inside of another"), world.fenced(late, {"a": 5}, table=None):
                late.execute(statement)
        for statement in (select(world.Account).from_statement(change), insert(world.Plain).from_select(["id", "value"], inner.select())):
            with Session(engine) as late, pytest.raises(Misuse, match="inside of another"):
                late.execute(statement)
    assert stored(world, engine) == (9, 9)


def by_another_name(world: Any, engine: Engine) -> None:
    """The statement names an alias, or the columns of another table than its own."""
    write(world, engine, 9)
    table = world.Account.__table__
    both = update(world.Plain).where(world.Plain.id == world.Account.id).values({world.Account.value: 5})
    for statement in (update(aliased(world.Account)).values(value=5), update(table.alias()).values(value=5), delete(table.alias()), both):
        refuses(world, engine, statement, "a bulk change of Account", None)
    assert stored(world, engine) == (9, 9)


def by_a_bulk_change(world: Any, engine: Engine) -> None:
    """The later holder has changed an object, and no table."""
    write(world, engine, 9)
    for entity in (world.Account, world.Account.__table__):
        first = (entity.c if isinstance(entity, Table) else entity).id == 1
        for statement in (update(entity).values(value=5), delete(entity).where(first), update(entity).where(first).values(value=5)):
            for table in (None, "holdfast_fences"):
                with Session(engine) as late, pytest.raises(StaleFence) as refused, world.fenced(late, {"a": 5}, table=table):
                    late.execute(statement)
                assert (refused.value.name, refused.value.fence, refused.value.seen) == ("a", 5, 9)
    assert stored(world, engine) == (9, 9)


def by_objects_after_a_bulk_insert(world: Any, engine: Engine) -> None:
    """The later holder makes rows in one statement, and the late one changes them."""
    inserts: list[tuple[Any, Any]] = [
        (insert(world.Account), [{"id": 11, "value": 9}, {"id": 12, "value": 9}]),
        (insert(world.Account).values([{"id": 13, "value": 9}, {"id": 14, "value": 9}]), None),
        (insert(world.Account.__table__).values(id=15, value=9), None),
        (insert(world.Account).from_select(["id", "value"], select(world.Account.id + 15, world.Account.value)), None),
    ]
    for statement, parameters in inserts:
        with Session(engine) as session, world.fenced(session, {"a": 9}):
            session.execute(statement, parameters)
    for number in (11, 12, 13, 14, 15, 16):
        with pytest.raises(StaleFence):
            write(world, engine, 5, number=number)


def by_making_again_what_was_deleted(world: Any, engine: Engine) -> None:
    """`merge` looks for the row, does not find it, and inserts it."""
    with Session(engine, expire_on_commit=False) as late:
        row = late.get_one(world.Account, 1)
    with Session(engine) as session, world.fenced(session, {"a": 9}, table=None):
        session.delete(session.get_one(world.Account, 1))
    for it in (row, world.Account(id=1, value=5)):
        with Session(engine) as late, pytest.raises(Misuse, match="deleted by a later"), world.fenced(late, {"a": 5}, table=None):
            late.merge(it)
    with Session(engine) as session:
        assert session.get(world.Account, 1) is None


def by_replacing_a_row(world: Any, engine: Engine) -> None:
    """One flush deletes an object and adds another one with its key, which SQLAlchemy makes an UPDATE of."""
    write(world, engine, 9)

    def replaces(late: Session) -> None:
        late.delete(late.get_one(world.Account, 1))
        late.add(world.Account(id=1, value=5))

    refusal(world, Session(engine), 5, replaces)
    assert stored(world, engine) == (9, 9)


def by_another_database(world: Any, engine: Engine) -> None:
    """The session's own database is another one than that of the class."""
    elsewhere = create_engine("sqlite://")
    table = "holdfast_fences"

    class Routing(Session):
        def get_bind(self, mapper: Any = None, **rest: Any) -> Any:
            return elsewhere if mapper is None else engine

    def sets(session: Session, fence: int = 5) -> None:
        session.get_one(world.Plain, 1).value = fence

    def sets_in_a_savepoint(session: Session) -> None:
        with session.begin_nested():
            sets(session)

    def catches(session: Session) -> None:
        with pytest.raises(StaleFence):
            session.get(world.Plain, 1)
        session.merge(world.Plain(id=1, value=5))

    makers: list[Callable[[], Session]] = [
        lambda: Session(bind=elsewhere, binds={world.Plain: engine}),
        lambda: Session(binds={world.Plain: engine}),
        Routing,
    ]
    for make in makers:
        with make() as session, world.fenced(session, {"a": 9}, table=table):
            sets(session, 9)
            with session.begin_nested():
                sets(session, 9)
        for body in (sets, sets_in_a_savepoint, catches):
            refusal(world, make(), 5, body, table)
    elsewhere.dispose()
    with Session(engine) as session:
        assert session.get_one(world.Plain, 1).value == 9
    assert engine.pool.checkedout() == 0, "a connection is kept"  # type: ignore[attr-defined]  # (of this kind of pool)


def by_a_narrow_column(world: Any, engine: Engine) -> None:
    """MySQL without its strict mode stores 2,147,483,647 for every fence."""
    if engine.dialect.name not in ("mysql", "mariadb"):
        return
    with engine.begin() as connection:
        connection.exec_driver_sql("ALTER TABLE late_account MODIFY fence int NOT NULL DEFAULT 0")
    loose = create_engine(engine.url, connect_args={"sql_mode": ""})
    for fence in (1_795_290_426_499_702, 1_795_290_426_499_701):
        for row in (world.Account(id=1, value=9), world.Account(id=3, value=9)):
            with Session(loose) as session, pytest.raises(ConfigError, match=r"late_account\.fence has stored 2147483647 for the fence"):
                with world.fenced(session, {"a": fence}):
                    session.merge(row)
    loose.dispose()
    assert stored(world, engine) == (100, 0)


WAYS: dict[str, Way] = {name.removeprefix("by_").replace("_", " "): it for name, it in list(globals().items()) if name.startswith("by_")}
