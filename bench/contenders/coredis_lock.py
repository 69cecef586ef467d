"""coredis: its Lock, for one node."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import Any

import coredis
from coredis.patterns.lock import Lock

from ..work.adapter import TTL


class Asyncio:
    asks = ("set", "evalsha")

    def __init__(self, parameters: dict[str, Any]) -> None:
        self.client: Any = coredis.Redis.from_url(parameters["urls"][0])
        self.ttl = parameters.get("ttl", TTL)

    async def open(self) -> None:
        self._stack = AsyncExitStack()
        await self._stack.enter_async_context(self.client)
        await self.client.ping()

    def lock(self, name: str) -> Any:
        return Lock(self.client, name, timeout=self.ttl)

    async def acquire(self, lock: Any) -> Any:
        if not await lock.acquire():
            raise RuntimeError("not acquired")
        return lock

    async def release(self, lock: Any) -> None:
        await lock.release()

    async def close(self) -> None:
        await self._stack.aclose()
