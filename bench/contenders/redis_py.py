"""redis-py: its Lock, for one node; and plain Redlock written over its clients, which asks the nodes in turn as its users do."""

from __future__ import annotations

import secrets
from time import sleep
from typing import Any

import redis
import redis.asyncio

from ..work.adapter import TTL

UNLOCK = "if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('del',KEYS[1]) else return 0 end"


class Threads:
    asks = ("set", "evalsha")

    def __init__(self, parameters: dict[str, Any]) -> None:
        self.client: Any = redis.Redis.from_url(parameters["urls"][0])
        self.ttl = parameters.get("ttl", TTL)

    def open(self) -> None:
        self.client.ping()

    def lock(self, name: str) -> Any:
        return self.client.lock(name, timeout=self.ttl)

    def acquire(self, lock: Any) -> Any:
        lock.acquire()
        return lock

    def holds(self, lock: Any) -> bool:
        return bool(lock.owned())

    def release(self, lock: Any) -> None:
        lock.release()

    def close(self) -> None:
        self.client.close()


class Asyncio:
    asks = ("set", "evalsha")

    def __init__(self, parameters: dict[str, Any]) -> None:
        pool: Any = redis.asyncio.BlockingConnectionPool  # the default one refuses tasks beyond its connections
        self.client: Any = redis.asyncio.Redis(connection_pool=pool.from_url(parameters["urls"][0], max_connections=50, timeout=60))
        self.ttl = parameters.get("ttl", TTL)

    async def open(self) -> None:
        await self.client.ping()

    def lock(self, name: str) -> Any:
        return self.client.lock(name, timeout=self.ttl)

    async def acquire(self, lock: Any) -> Any:
        await lock.acquire()
        return lock

    async def release(self, lock: Any) -> None:
        await lock.release()

    async def close(self) -> None:
        await self.client.aclose()


class InTurn:
    asks = ("set", "evalsha")

    def __init__(self, parameters: dict[str, Any]) -> None:
        self.clients: list[Any] = [redis.Redis.from_url(url) for url in parameters["urls"]]
        self.quorum = len(self.clients) // 2 + 1
        self.ttl = round(parameters.get("ttl", TTL) * 1000)

    def open(self) -> None:
        self.unlocks = [it.register_script(UNLOCK) for it in self.clients]

    def lock(self, name: str) -> str:
        return name

    def acquire(self, name: str) -> tuple[str, str]:
        token = secrets.token_hex(16)
        while True:
            if sum(bool(it.set(name, token, nx=True, px=self.ttl)) for it in self.clients) >= self.quorum:
                return name, token
            self.release((name, token))
            sleep(0.1 + secrets.randbelow(100) / 1000)

    def release(self, held: tuple[str, str]) -> None:
        name, token = held
        for unlock in self.unlocks:
            unlock([name], [token])

    def close(self) -> None:
        for it in self.clients:
            it.close()
