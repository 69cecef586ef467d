"""The bytes that floors send, for a name and a token.

Knows plain Redlock's two commands and holdfast's. Must not know connections.
"""

from __future__ import annotations

import hashlib
import os
from time import time_ns

from holdfast.protocol.command import KEEP
from holdfast.protocol.exclusive import Exclusive

UNLOCK = b"if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('del',KEYS[1]) else return 0 end"
HORIZON = 16_000  # ms: as with a `max_ttl` of 30 s
TTL = 10.0


class Plain:
    """SET NX PX, and the script that deletes what still is one's own."""

    __slots__ = ("_release", "_request")
    _serial = 0

    def __init__(self, name: str) -> None:
        key = name.encode()
        sha = hashlib.sha1(UNLOCK, usedforsecurity=False).hexdigest().encode()
        self._request = b"*6\r\n$3\r\nSET\r\n$%d\r\n%b\r\n$32\r\n%%b\r\n$2\r\nNX\r\n$2\r\nPX\r\n$5\r\n10000\r\n" % (len(key), key)
        self._release = b"*5\r\n$7\r\nEVALSHA\r\n$40\r\n%b\r\n$1\r\n1\r\n$%d\r\n%b\r\n$32\r\n%%b\r\n" % (sha, len(key), key)

    def token(self) -> bytes:
        """A fresh one."""
        Plain._serial += 1
        return b"%032x" % (os.getpid() << 64 | Plain._serial)

    def request(self, token: bytes) -> bytes:
        """For one node."""
        return self._request % token

    def release(self, token: bytes) -> bytes:
        """For one node."""
        return self._release % token

    @staticmethod
    def granted(answer: object) -> bool:
        """Is this a yes?"""
        return answer == b"OK"


class Scripts:
    """holdfast's `request`, with a ticket, and its `release`."""

    __slots__ = ("_recipe",)
    inbox = os.urandom(16).hex().encode()
    _ticket = _serial = 0

    def __init__(self, name: str) -> None:
        self._recipe = Exclusive(name, ttl=TTL, horizon=HORIZON)

    def token(self) -> bytes:
        """A fresh one."""
        Scripts._ticket = max(Scripts._ticket + 1, time_ns() // 1000)
        Scripts._serial += 1
        return b"%016d:%b:%08x" % (Scripts._ticket, Scripts.inbox, Scripts._serial)

    def request(self, token: bytes) -> bytes:
        """For one node."""
        return self._recipe.request(token, TTL, b"w", int(token[:16]))

    def renewal(self, token: bytes) -> bytes:
        """For one node that has granted the token."""
        return self._recipe.request(token, TTL, KEEP, int(token[:16]))

    def release(self, token: bytes) -> bytes:
        """For one node."""
        return self._recipe.release(token)

    @staticmethod
    def granted(answer: object) -> bool:
        """Is this a yes?"""
        return isinstance(answer, bytes)
