"""python-redis-lock: one node; waiters are woken by BLPOP."""

from __future__ import annotations

from typing import Any

import redis
import redis_lock

from ..work.adapter import TTL


class Threads:
    asks = ("set", "blpop", "evalsha")

    def __init__(self, parameters: dict[str, Any]) -> None:
        self.client: Any = redis.Redis.from_url(parameters["urls"][0])
        self.expire, self.renews = round(parameters.get("ttl", TTL)), bool(parameters.get("renew"))

    def open(self) -> None:
        self.client.ping()

    def lock(self, name: str) -> Any:
        return redis_lock.Lock(self.client, name, expire=self.expire, auto_renewal=self.renews)

    def acquire(self, lock: Any) -> Any:
        if not lock.acquire():
            raise RuntimeError("not acquired")
        return lock

    def release(self, lock: Any) -> None:
        lock.release()

    def close(self) -> None:
        self.client.close()
