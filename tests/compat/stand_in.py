"""A plugin of pytest that puts holdfast's locks in the place of a peer's, and writes down which tests passed.

It runs in the process that runs a peer's own tests: see suites.py.
"""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

PEER, URLS = os.environ["PEER"], os.environ["PEER_URLS"].split(",")
outcomes: dict[str, bool] = {}

if PEER == "redis":
    import redis.asyncio.lock
    import redis.lock

    import holdfast.compat.redis.aio

    redis.lock.Lock = holdfast.compat.redis.Lock  # type: ignore[misc, assignment]  # (that is the purpose)
    redis.asyncio.lock.Lock = holdfast.compat.redis.aio.Lock  # type: ignore[misc, assignment]  # (and this)
else:
    import pottery
    import redis
    import redis.asyncio

    import holdfast.compat.pottery

    pottery.Redlock = holdfast.compat.pottery.Redlock
    pottery.AIORedlock = holdfast.compat.pottery.AIORedlock
    pottery.synchronize = holdfast.compat.pottery.synchronize

    @pytest.fixture(name="redis")
    def a_client() -> Iterator[Any]:
        """What pottery's tests call their client. The archive has no conftest.py."""
        for url in URLS:
            with redis.Redis.from_url(url) as each:
                each.flushdb()
        with redis.Redis.from_url(URLS[0], socket_timeout=1, db=0) as client:
            yield client

    @pytest.fixture
    async def aioredis() -> AsyncIterator[Any]:
        """The same for asyncio."""
        client = redis.asyncio.Redis.from_url(URLS[0], socket_timeout=1)
        await client.flushdb()
        yield client
        await client.aclose()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Note what came of each part of a test. One that fails in its setup has failed."""
    outcomes[report.nodeid] = report.passed and outcomes.get(report.nodeid, True)


def pytest_sessionfinish() -> None:
    """Write the outcomes down."""
    Path(os.environ["PEER_OUTCOMES"]).write_text(json.dumps(outcomes))
