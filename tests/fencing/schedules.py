"""Writers with fences, interleaved step by step on a real database: what hypothesis draws, and what must hold.

Knows transactions. Must not know how a guard works. Nothing runs at once: where a writer would have to wait for another one the database
says so at once, and the writer rolls back and begins anew, so that every run is repeatable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from typing import Any

from fencing.databases import Database, run
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st
from seeds import FROZEN

from holdfast import StaleFence

Guard = Callable[[Any, int], None]  # a cursor, a fence

MOST = 4  # writers at a time
NUMBER = {"sqlite": "INTEGER PRIMARY KEY AUTOINCREMENT", "postgresql": "serial PRIMARY KEY", "mariadb": "int AUTO_INCREMENT PRIMARY KEY"}
SCHEMA = (
    "DROP TABLE IF EXISTS data",
    "DROP TABLE IF EXISTS written",
    "CREATE TABLE data (id int PRIMARY KEY, value bigint, fence bigint)",
    "CREATE TABLE written (number {number}, fence bigint)",
)
CLEAN = ("DELETE FROM data", "DELETE FROM written", "DELETE FROM holdfast_fences", "INSERT INTO data VALUES (1, 0, NULL)")


class Writer:
    """One holder that writes once. `looks`: it reads before its guard, which fixes what its transaction sees where there are snapshots."""

    def __init__(self, connection: Any, guard: Guard, fence: int, looks: bool, database: Database) -> None:
        self.fence, self.looks, self.refused, self.done = fence, looks, None, False
        self.fresh = True  # it has done nothing since it last rolled back, so that it is in nobody's way
        self._connection, self._guard, self._database = connection, guard, database
        self._steps: Iterator[None] = iter(())
        self.refused: StaleFence | None
        self._again()

    def step(self) -> None:
        """The next thing that it does."""
        self.fresh = False
        try:
            next(self._steps)
        except self._database.busy:
            self._again()
        except StaleFence as refused:
            self._connection.rollback()
            self.refused, self.done = refused, True
        except StopIteration:
            self.done = True

    def _again(self) -> None:
        self._connection.rollback()
        self.fresh = True
        self._steps = self._writes(self._connection.cursor())

    def _writes(self, cursor: Any) -> Iterator[None]:
        if self.looks:
            if self._database.dialect == "sqlite":
                cursor.execute("BEGIN")
            cursor.execute("SELECT value FROM data")
            cursor.fetchall()
            yield
        self._guard(cursor, self.fence)
        yield
        cursor.execute(f"UPDATE data SET value = {self.fence} WHERE id = 1")
        cursor.execute(f"INSERT INTO written (fence) VALUES ({self.fence})")
        yield
        self._connection.commit()


def explore(database: Database, level: str, guard: Guard, examples: int) -> None:
    """Many schedules of a few writers: AssertionError if one wrote after a higher fence, or was refused without one."""
    database.run(*(it.format(number=NUMBER[database.dialect]) for it in SCHEMA))
    with ExitStack() as stack:
        clerk, *connections = [stack.enter_context(closing(database.at(level))) for _ in range(1 + MOST)]

        @settings(
            max_examples=examples,
            deadline=None,
            derandomize=FROZEN,
            database=None,
            phases=[Phase.explicit, Phase.generate],
            report_multiple_bugs=False,
        )
        # One waits between its guard and its write while another one does all that it does: the window that a guard closes.
        @example([(1, False), (2, False)], [0, 1, 1, 1, 0, 0])
        @given(
            st.lists(st.tuples(st.integers(1, MOST), st.booleans()), min_size=2, max_size=MOST),
            st.lists(st.integers(0, MOST - 1), min_size=6, max_size=24),
        )
        def schedules(writers: list[tuple[int, bool]], order: list[int]) -> None:
            for connection in connections:
                connection.rollback()  # (a schedule that failed is played again)
            run(clerk, *CLEAN)
            play([Writer(it, guard, *writer, database) for it, writer in zip(connections, writers, strict=False)], order)
            written = [fence for (fence,) in run(clerk, "SELECT fence FROM written ORDER BY number")]
            (value,) = run(clerk, "SELECT value FROM data")[0]
            assert written == sorted(written), "a lower fence wrote after a higher one"
            assert value == max(fence for fence, _ in writers), "the last holder's write is not there"

        schedules()


def play(writers: Sequence[Writer], order: Sequence[int]) -> None:
    """Each writer's steps in this order; then the rest of each."""
    for number in order:
        writer = writers[number % len(writers)]
        if not writer.done:
            writer.step()
    for writer in writers:
        for _ in range(20 * len(writers)):
            if writer.done:
                break
            writer.step()
            # Who is in the way goes on, too. Who has rolled back waits: where readers share a lock that each wants alone, they would
            # keep each other from writing for ever.
            for other in writers:
                if other is not writer and not other.done and not other.fresh:
                    other.step()
        assert writer.done, "writers keep each other from writing"
        if writer.refused is not None:
            seen = writer.refused.seen
            assert seen is not None and seen > writer.fence, f"fence {writer.fence} was refused although only {seen} was seen"
            assert seen in [it.fence for it in writers]
