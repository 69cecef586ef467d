"""aioredlock: a gathered coroutine a node over aioredis 1.3; renews by a task a lock; three tries, so waiting is a loop around it."""

from __future__ import annotations

from typing import Any

from aioredlock import Aioredlock, LockError

from ..work.adapter import TTL


class Asyncio:
    asks = ("evalsha",)

    def __init__(self, parameters: dict[str, Any]) -> None:
        self.locks: Any = Aioredlock(parameters["urls"], internal_lock_timeout=parameters.get("ttl", TTL))

    async def open(self) -> None:
        pass

    def lock(self, name: str) -> str:
        return name

    async def acquire(self, name: str) -> Any:
        while True:
            try:
                return await self.locks.lock(name)
            except LockError:
                continue

    async def release(self, held: Any) -> None:
        await self.locks.unlock(held)

    async def close(self) -> None:
        await self.locks.destroy()
