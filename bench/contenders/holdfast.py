"""holdfast: as it is by default, and with releases that wait for the answers of a majority, as everybody else's do."""

from __future__ import annotations

from typing import Any

import holdfast
import holdfast.aio

from ..work.adapter import TTL


def options(parameters: dict[str, Any]) -> dict[str, Any]:
    return {"ttl": parameters.get("ttl", TTL), "max_ttl": parameters.get("max_ttl", 30.0)}


class Threads:
    asks = ("evalsha",)

    def __init__(self, parameters: dict[str, Any]) -> None:
        self.locks = holdfast.Holdfast(parameters["urls"], **options(parameters))
        self.lock = self.locks.lock

    def open(self) -> None:
        self.locks.ready()

    def acquire(self, lock: holdfast.Lock) -> holdfast.Lease:
        return lock.acquire()

    def holds(self, lease: holdfast.Lease) -> bool:
        try:
            lease.check()
        except holdfast.LockLost:
            return False
        return True

    def release(self, lease: holdfast.Lease) -> None:
        lease.release()

    def close(self) -> None:
        self.locks.close()


class ThreadsConfirmed(Threads):
    def release(self, lease: holdfast.Lease) -> None:
        lease.release(confirm=True)


class Asyncio:
    asks = ("evalsha",)

    def __init__(self, parameters: dict[str, Any]) -> None:
        self.locks = holdfast.aio.Holdfast(parameters["urls"], **options(parameters))
        self.lock = self.locks.lock

    async def open(self) -> None:
        await self.locks.ready()

    async def acquire(self, lock: holdfast.aio.Lock) -> holdfast.aio.Lease:
        return await lock.acquire()

    async def release(self, lease: holdfast.aio.Lease) -> None:
        await lease.release()

    async def close(self) -> None:
        await self.locks.close()


class AsyncioConfirmed(Asyncio):
    async def release(self, lease: holdfast.aio.Lease) -> None:
        await lease.release(confirm=True)
