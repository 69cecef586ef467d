"""The servers of the scripts' tests, and conversations with them: text files are tests, too."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import conversations
import pytest
from scripts import bench as benches
from scripts import talk
from scripts.bench import Bench
from scripts.kinds import DIALECTS, REAL, STARTED, kinds, marks, url


class File(conversations.File):
    """A file of conversations with one node."""

    def collect(self) -> Iterator[conversations.Item]:
        for it in super().collect():
            for mark in marks(next(kind for kind in (*DIALECTS, *REAL) if f"[{kind}" in it.name)):
                it.add_marker(mark)
            yield it


pytest_collect_file = conversations.collects(Path(__file__).parent, talk.ways, File)


def pytest_sessionfinish() -> None:
    for nodes in STARTED:
        nodes.close()


@pytest.fixture(params=kinds(*REAL))
def real_url(request: pytest.FixtureRequest) -> str:
    """The address of a real server: each in its turn."""
    return url(request.param)


@pytest.fixture(params=kinds(*DIALECTS, *REAL))
def bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    """A server, empty: each kind in its turn."""
    dialect = DIALECTS.get(request.param)
    bench = benches.simulated(dialect) if dialect else benches.real(url(request.param))
    yield bench
    bench.close()
