"""redlock-ng: asks redis-py clients in turn, each for 0.1 s at most."""

from __future__ import annotations

from typing import Any

# For mypy, `redlock` is examples/redlock.py, which has another class of this name.
from redlock import AsyncRedlock, Redlock  # type: ignore[attr-defined]

from ..work.adapter import TTL


class Threads:
    asks = ("set", "eval")

    def __init__(self, parameters: dict[str, Any]) -> None:
        self.locks: Any = Redlock(parameters["urls"])
        self.ttl = round(parameters.get("ttl", TTL) * 1000)

    def open(self) -> None:
        for it in self.locks.client.instances:
            it.ping()

    def lock(self, name: str) -> str:
        return name

    def acquire(self, name: str) -> Any:
        return self.locks.acquire(name, self.ttl, blocking=True)

    def release(self, held: Any) -> None:
        self.locks.release(held)

    def close(self) -> None:
        for it in self.locks.client.instances:
            it.close()


class Asyncio:
    asks = ("set", "eval")

    def __init__(self, parameters: dict[str, Any]) -> None:
        self.locks: Any = AsyncRedlock(parameters["urls"])
        self.ttl = round(parameters.get("ttl", TTL) * 1000)

    async def open(self) -> None:
        for it in self.locks.client.instances:
            await it.ping()

    def lock(self, name: str) -> str:
        return name

    async def acquire(self, name: str) -> Any:
        while (held := await self.locks.acquire(name, self.ttl)) is None:
            pass
        return held

    async def release(self, held: Any) -> None:
        await self.locks.release(held)

    async def close(self) -> None:
        for it in self.locks.client.instances:
            await it.aclose()
