"""redlock-py: asks redis-py clients in turn; tries three times, so waiting is a loop around it."""

from __future__ import annotations

from typing import Any

from redlock import Redlock

from ..work.adapter import TTL


class Threads:
    asks = ("set", "eval")

    def __init__(self, parameters: dict[str, Any]) -> None:
        self.locks: Any = Redlock(parameters["urls"])
        self.ttl = round(parameters.get("ttl", TTL) * 1000)

    def open(self) -> None:
        for it in self.locks.servers:
            it.ping()

    def lock(self, name: str) -> str:
        return name

    def acquire(self, name: str) -> Any:
        while not (held := self.locks.lock(name, self.ttl)):
            pass
        return held

    def release(self, held: Any) -> None:
        self.locks.unlock(held)

    def close(self) -> None:
        for it in self.locks.servers:
            it.close()
