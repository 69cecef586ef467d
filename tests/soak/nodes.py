"""What the nodes have in their hands.

Knows INFO and SCAN. Must not know what the keys mean, but for those that stay for longer: what clients say of themselves.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

# What clients say of themselves.
SETTINGS = tuple(b"{holdfast}:%b" % it for it in (b"config:", b"lists:", b"clients:", b"owner:", b"adopted", b"mark"))


class Sample(NamedTuple):
    """One node. `keys`, and how many of them have an `expiry`; `memory` in MiB; `clients` that are connected, this one not counted."""

    keys: int
    expiry: int
    memory: float
    clients: int


class Node:
    """One node, asked from outside."""

    def __init__(self, url: str) -> None:
        self._client: Any = redis.Redis.from_url(url, socket_timeout=0.5, retry=Retry(NoBackoff(), 0))

    def sample(self) -> Sample | None:
        """How it is now. None if it does not answer."""
        try:
            told = self._client.info()
        except (redis.ConnectionError, redis.TimeoutError):
            return None
        held = told.get("db0", {"keys": 0, "expires": 0})
        return Sample(held["keys"], held["expires"], told["used_memory"] / 2**20, told["connected_clients"] - 1)

    def left(self) -> list[bytes]:
        """The keys that are there, but for the settings and the mark, which expire. (-1: it does not; -2: it has, meanwhile.)"""
        return [key for key in self._client.scan_iter(count=1000) if not key.startswith(SETTINGS) or self._client.pttl(key) == -1]
