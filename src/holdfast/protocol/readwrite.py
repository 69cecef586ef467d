"""The read-write lock: its keys on a node, and its scripts' arguments as bytes.

Knows `scripts/rw_request.lua` and `scripts/rw_release.lua`. Must not know which nodes there are, or
what they answer.
"""

from __future__ import annotations

from ..scripts import RW_RELEASE, RW_REQUEST
from ..wire.resp import evalsha
from . import exclusive
from .command import READER, WRITER, Recipe
from .exclusive import beside, key_of
from .ticket import kind_of


class ReadWrite(Recipe):
    """The commands of one side of a read-write lock.

    `kind` is that of its tokens, READER or WRITER. The other parameters are those of an
    `Exclusive`.
    """

    __slots__ = ("_release", "_request", "kind")

    def __init__(self, name: str, kind: bytes, *, prefix: str = "", horizon: int) -> None:
        self.label, self.part, self.kind, self.horizon = name, name, kind, horizon
        self.name, self.primitive = key_of(name, prefix), "read" if kind == READER else "write"
        self.basic, self.statement = False, None
        keys = b"".join(map(_bulk, rw_keys_of(self.name)))
        self._request, self._release = _REQUEST + keys, _RELEASE + keys

    def request(self, token: bytes, ttl: float, mode: bytes, fence: int, clock: int = 0) -> bytes:
        """Return the bytes of a request.

        `ttl` is in seconds, and `fence` is the proposed one. `clock` is not used, because the
        script reads the node's own clock.
        """
        lease, k = b"%d" % round(ttl * 1000), b"%d" % self.horizon
        return b"%b$%d\r\n%b\r\n$%d\r\n%b\r\n$%d\r\n%b\r\n$1\r\n%b\r\n$16\r\n%016d\r\n" % (
            self._request, len(token), token, len(k), k, len(lease), lease, mode, fence)  # fmt: skip

    def release(self, token: bytes, held: bool = True, rest: float = 0.0) -> bytes:
        """Return the bytes of a release, which is at once in any case."""
        return self._release + _bulk(token) + _bulk(b"%d" % self.horizon)


def rw_keys_of(key: bytes) -> tuple[bytes, bytes, bytes, bytes, bytes, bytes]:
    """Return the six keys of a read-write lock.

    Its queue is not that of exclusive locks: their scripts cannot hand on to a reader.
    """
    kinds = (b"fence", b"rwqueue", b"rwwaiters", b"readers", b"rfence")
    fence, queue, waiters, readers, rfence = [beside(key, it) for it in kinds]
    return key, fence, queue, waiters, readers, rfence


def undo(key: bytes, token: bytes, horizon: int) -> bytes:
    """Return the bytes that give back an unwanted grant of a lock of any kind with this key."""
    if not kind_of(token):
        return exclusive.undo(key, token, horizon)
    return evalsha(RW_RELEASE, *rw_keys_of(key), token, b"%d" % horizon)


def _bulk(data: bytes) -> bytes:
    return b"$%d\r\n%b\r\n" % (len(data), data)


_REQUEST = b"*14\r\n$7\r\nEVALSHA\r\n$40\r\n%b\r\n$1\r\n6\r\n" % RW_REQUEST.sha
_RELEASE = b"*11\r\n$7\r\nEVALSHA\r\n$40\r\n%b\r\n$1\r\n6\r\n" % RW_RELEASE.sha


__all__ = ["READER", "WRITER", "ReadWrite", "rw_keys_of", "undo"]
