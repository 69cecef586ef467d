"""The read-write lock: its keys on a node, and its scripts' arguments as bytes.

Knows `scripts/rw_request.lua` and `scripts/rw_release.lua`. Must not know which nodes there are, or what they answer.
"""

from __future__ import annotations

from ..core.command import READER, WRITER
from ..core.ticket import kind_of
from ..scripts import RW_RELEASE, RW_REQUEST
from ..wire.resp import pack
from . import exclusive
from .exclusive import beside, key_of


class ReadWrite:
    """What one side of a read-write lock says to a node. `kind`: of its tokens, READER or WRITER; the rest as of an `Exclusive`."""

    __slots__ = ("_release", "_request", "horizon", "kind", "label", "name")
    rider = None

    def __init__(self, name: str, kind: bytes, *, prefix: str = "", horizon: int) -> None:
        self.label, self.kind, self.horizon = name, kind, horizon
        self.name = key_of(name, prefix)
        keys = b"".join(map(_bulk, rw_keys_of(self.name)))
        self._request, self._release = _REQUEST + keys, _RELEASE + keys

    @property
    def part(self) -> str:
        """What its fences are of: the lock."""
        return self.label

    def request(self, token: bytes, ttl: float, mode: bytes, fence: int, clock: int = 0) -> bytes:
        """The bytes of a request; `ttl` in seconds, `fence` the one proposed. (The script looks at the node's own clock.)"""
        lease, k = b"%d" % round(ttl * 1000), b"%d" % self.horizon
        return b"%b$%d\r\n%b\r\n$%d\r\n%b\r\n$%d\r\n%b\r\n$1\r\n%b\r\n$16\r\n%016d\r\n" % (
            self._request, len(token), token, len(k), k, len(lease), lease, mode, fence)  # fmt: skip

    def release(self, token: bytes) -> bytes:
        """The bytes of a release."""
        return self._release + _bulk(token) + _bulk(b"%d" % self.horizon)


def rw_keys_of(key: bytes) -> tuple[bytes, bytes, bytes, bytes, bytes, bytes]:
    """The six keys of a read-write lock. Its queue is not that of exclusive locks: their scripts cannot hand on to a reader."""
    fence, queue, waiters, readers, rfence = [beside(key, it) for it in (b"fence", b"rwqueue", b"rwwaiters", b"readers", b"rfence")]
    return key, fence, queue, waiters, readers, rfence


def undo(key: bytes, token: bytes, horizon: int) -> bytes:
    """The bytes that give back a grant of a lock with this key, of whatever kind, which nobody here wants."""
    if not kind_of(token):
        return exclusive.undo(key, token, horizon)
    return pack(b"EVALSHA", RW_RELEASE.sha, b"6", *rw_keys_of(key), token, b"%d" % horizon)


def _bulk(data: bytes) -> bytes:
    return b"$%d\r\n%b\r\n" % (len(data), data)


_REQUEST = b"*14\r\n$7\r\nEVALSHA\r\n$40\r\n%b\r\n$1\r\n6\r\n" % RW_REQUEST.sha
_RELEASE = b"*11\r\n$7\r\nEVALSHA\r\n$40\r\n%b\r\n$1\r\n6\r\n" % RW_RELEASE.sha


__all__ = ["READER", "WRITER", "ReadWrite", "rw_keys_of", "undo"]
