"""pottery: Redlock over redis-py clients, by a pool of threads, or a gathered coroutine for each node."""

from __future__ import annotations

from typing import Any

import redis
import redis.asyncio
from pottery import AIORedlock, Redlock

from ..work.adapter import TTL


class Threads:
    asks = ("set", "evalsha")

    def __init__(self, parameters: dict[str, Any]) -> None:
        self.masters: Any = {redis.Redis.from_url(url) for url in parameters["urls"]}
        self.ttl = parameters.get("ttl", TTL)

    def open(self) -> None:
        for it in self.masters:
            it.ping()

    def lock(self, name: str) -> Any:
        return Redlock(key=name, masters=self.masters, auto_release_time=self.ttl)

    def acquire(self, lock: Any) -> Any:
        if not lock.acquire():
            raise RuntimeError("not acquired")
        return lock

    def holds(self, lock: Any) -> bool:
        return bool(lock.locked())

    def release(self, lock: Any) -> None:
        lock.release()

    def close(self) -> None:
        for it in self.masters:
            it.close()


class Asyncio:
    asks = ("set", "evalsha")

    def __init__(self, parameters: dict[str, Any]) -> None:
        pool: Any = redis.asyncio.BlockingConnectionPool  # the default one refuses tasks beyond its connections
        pools = [pool.from_url(url, max_connections=50, timeout=60) for url in parameters["urls"]]
        self.masters: Any = {redis.asyncio.Redis(connection_pool=it) for it in pools}
        self.ttl = parameters.get("ttl", TTL)

    async def open(self) -> None:
        for it in self.masters:
            await it.ping()

    def lock(self, name: str) -> Any:
        return AIORedlock(key=name, masters=self.masters, auto_release_time=self.ttl)

    async def acquire(self, lock: Any) -> Any:
        if not await lock.acquire():
            raise RuntimeError("not acquired")
        return lock

    async def release(self, lock: Any) -> None:
        await lock.release()

    async def close(self) -> None:
        for it in self.masters:
            await it.aclose()
