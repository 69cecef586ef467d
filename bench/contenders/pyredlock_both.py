"""pyredlock: asks redis-py clients in turn; tries three times, so waiting is a loop around it."""

from __future__ import annotations

from typing import Any

import redis
import redis.asyncio
from pyredlock import Redlock

from ..work.adapter import TTL


class Threads:
    asks = ("set", "eval")

    def __init__(self, parameters: dict[str, Any]) -> None:
        self.servers: list[Any] = [redis.Redis.from_url(url) for url in parameters["urls"]]
        self.locks: Any = Redlock(self.servers, async_mode=False)
        self.ttl = round(parameters.get("ttl", TTL) * 1000)

    def open(self) -> None:
        for it in self.servers:
            it.ping()

    def lock(self, name: str) -> str:
        return name

    def acquire(self, name: str) -> Any:
        while True:
            held, lock = self.locks.lock(name, self.ttl)
            if held:
                return lock

    def release(self, held: Any) -> None:
        self.locks.unlock(held)

    def close(self) -> None:
        for it in self.servers:
            it.close()


class Asyncio:
    asks = ("set", "eval")

    def __init__(self, parameters: dict[str, Any]) -> None:
        pool: Any = redis.asyncio.BlockingConnectionPool  # the default one refuses tasks beyond its connections
        pools = [pool.from_url(url, max_connections=50, timeout=60) for url in parameters["urls"]]
        self.servers: list[Any] = [redis.asyncio.Redis(connection_pool=it) for it in pools]
        self.locks: Any = Redlock(self.servers)
        self.ttl = round(parameters.get("ttl", TTL) * 1000)

    async def open(self) -> None:
        for it in self.servers:
            await it.ping()

    def lock(self, name: str) -> str:
        return name

    async def acquire(self, name: str) -> Any:
        while True:
            held, lock = await self.locks.alock(name, self.ttl)
            if held:
                return lock

    async def release(self, held: Any) -> None:
        await self.locks.aunlock(held)

    async def close(self) -> None:
        for it in self.servers:
            await it.close()
