"""The read-write lock: its keys on a node, and its scripts' arguments as bytes.

Knows `scripts/rw_request.lua` and `scripts/rw_release.lua`. Must not know which nodes there are, or what they answer.
"""

from __future__ import annotations

from ..core.command import READER, WRITER
from ..core.ticket import kind_of
from ..scripts import RW_RELEASE, RW_REQUEST
from ..wire.resp import pack
from . import exclusive
from .exclusive import key_of, keys_of


class ReadWrite:
    """What one side of a read-write lock says to a node. `kind`: of its tokens, READER or WRITER; the rest as of an `Exclusive`."""

    __slots__ = ("_keys", "horizon", "kind", "label", "name")

    def __init__(self, name: str, kind: bytes, *, prefix: str = "", horizon: int) -> None:
        self.label, self.kind, self.horizon = name, kind, horizon
        self.name = key_of(name, prefix)
        self._keys = rw_keys_of(self.name)

    def request(self, token: bytes, ttl: float, mode: bytes, fence: int) -> bytes:
        """The bytes of a request; `ttl` in seconds, `fence` the one proposed."""
        lease = b"%d" % round(ttl * 1000)
        return pack(b"EVALSHA", RW_REQUEST.sha, b"6", *self._keys, token, b"%d" % self.horizon, lease, mode, b"%016d" % fence)

    def release(self, token: bytes) -> bytes:
        """The bytes of a release."""
        return pack(b"EVALSHA", RW_RELEASE.sha, b"6", *self._keys, token, b"%d" % self.horizon)


def rw_keys_of(key: bytes) -> tuple[bytes, bytes, bytes, bytes, bytes, bytes]:
    """The six keys of a read-write lock. Its queue is not that of exclusive locks: their scripts cannot hand on to a reader."""
    name, fence, *_ = keys_of(key)
    tag, _, rest = fence.partition(b"}:fence")
    queue, waiters, readers, rfence = [b"%b}:%b%b" % (tag, it, rest) for it in (b"rwqueue", b"rwwaiters", b"readers", b"rfence")]
    return name, fence, queue, waiters, readers, rfence


def undo(key: bytes, token: bytes, horizon: int) -> bytes:
    """The bytes that give back a grant of a lock with this key, of whatever kind, which nobody here wants."""
    if not kind_of(token):
        return exclusive.undo(key, token, horizon)
    return pack(b"EVALSHA", RW_RELEASE.sha, b"6", *rw_keys_of(key), token, b"%d" % horizon)


__all__ = ["READER", "WRITER", "ReadWrite", "rw_keys_of", "undo"]
