"""The exclusive lock: its keys on a node, and its scripts' arguments as bytes.

Knows `scripts/request.lua` and `scripts/release.lua`. Must not know which nodes there are, or what they answer.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache

from .. import checks
from ..errors import ConfigError
from ..scripts import RELEASE, REQUEST

LONGEST = 512  # bytes of a name
SHORTEST = 0.05  # seconds: a lease that is not over before anybody can use it
_TAG = re.compile(rb"[^{]*\{([^}]+)\}", re.DOTALL)  # in which the server finds a hash tag
_PART = re.compile(rb"\[(slot \d+|election|once( [^\[\]]+)?|fill)\]\Z")  # what other primitives lock ends like this
_OURS = re.compile(
    rb"\{[^}]+\}:(fence|queue|waiters|readers|rfence|rwqueue|rwwaiters|permits|rate|window|leader|watchers|result|cache|latch|barrier"
    rb"|arrived|awaited)",
    re.DOTALL,
)


class Exclusive:
    """What an exclusive lock says to a node. `name`: as the user wrote it; `horizon`: K, the fence horizon in ms. Immutable.

    `slot`: which of a semaphore's slots it is, if it is one; `own`: what else it is for, election, once (and which slot of its schedule)
    or fill. Either is a lock of its own, whose name no user's lock can have.
    """

    __slots__ = ("_k", "_lease", "_release", "_request", "_ttl", "horizon", "label", "name", "part", "slot")
    kind = b""
    rider: Callable[[int, float], bytes] | None = None

    def __init__(self, name: str, *, prefix: str = "", ttl: float, horizon: int, slot: int | None = None, own: str = "") -> None:
        self.label, self.horizon, self._ttl, self.slot = name, horizon, ttl, slot
        self.name, self.part = key_of(name, prefix), name  # part: what its fences are of
        if own or slot is not None:
            which = f"[{own or f'slot {slot}'}]"
            self.name, self.part = self.name + which.encode(), self.part + which
        self._prepare()

    @classmethod
    def of_key(cls, key: bytes, horizon: int) -> Exclusive:
        """The lock that has this key on the nodes: for what they say of locks that nobody here wants any more."""
        self = cls.__new__(cls)
        self.label = self.part = key.decode("utf-8", "backslashreplace")
        self.name, self.horizon, self._ttl, self.slot = key, horizon, 0.0, None
        self._prepare()
        return self

    def _prepare(self) -> None:
        # everything that does not change from one command to the next is packed once
        one, two, three, four = keys_of(self.name)
        keys = _KEYS % (len(one), one, len(two), two, len(three), three, len(four), four)
        self._request, self._release = _REQUEST + keys, _RELEASE + keys
        self._k, self._lease = _number(self.horizon), _lease(self._ttl)

    def request(self, token: bytes, ttl: float, mode: bytes, fence: int, clock: int = 0) -> bytes:
        """The bytes of a request; `ttl` in seconds, `fence` the one proposed, `clock` the time by the ticket's clock, in microseconds."""
        lease = self._lease if ttl == self._ttl else _lease(ttl)
        # A node's clock may be half the horizon ahead of ours, or behind it. The record has to last there until the first renewal, and
        # for no longer than twice the horizon.
        kept = max(clock // 1000 + self.horizon * 5 // 4, fence // 1000 + self.horizon)
        proposed, expiry = b"%016d" % fence, b"%d" % kept
        return b"%b$%d\r\n%b\r\n%b$1\r\n%b\r\n$%d\r\n%b\r\n%b$%d\r\n%b\r\n" % (
            self._request, len(token), token, lease, mode, len(proposed), proposed, self._k, len(expiry), expiry)  # fmt: skip

    def release(self, token: bytes) -> bytes:
        """The bytes of a release."""
        return b"%b$%d\r\n%b\r\n%b" % (self._release, len(token), token, self._k)


def key_of(name: str, prefix: str = "", parts: bool = False) -> bytes:
    """The key of a lock. ConfigError for a name that could meet another lock's keys. `parts`: those of other primitives are meant, too."""
    checks.text(name, "a lock's name", most=LONGEST)
    key = (prefix + name).encode()
    if not name:
        raise ConfigError("a lock needs a name")
    if b"}" in key and not _TAG.match(key):
        raise ConfigError(f"{name!r} cannot be a lock's name: it has a '}}' but no hash tag like '{{tag}}' before it; leave the '}}' out")
    if key.endswith(b"]") and not parts and _PART.search(key):
        raise ConfigError(f"{name!r} cannot be a lock's name: it looks like a slot of a semaphore, or like another primitive's lock")
    if key.startswith(b"{") and _OURS.match(key):
        raise ConfigError(f"{name!r} cannot be a lock's name: it looks like the keys in which locks keep their queues and fences")
    return key


def tag_of(name: str) -> bytes:
    """What decides where a name lives: the hash tag that a server finds in it, else all of it."""
    key = name.encode()
    tag = _TAG.match(key)
    return key if tag is None else tag[1]


def user_name(name: str) -> str:
    """The name of the semaphore, election, once or fill that this lock is of; any other name as it is."""
    found = _PART.search(name.encode())
    return name if found is None else name.encode()[: found.start()].decode()


def keys_of(key: bytes) -> tuple[bytes, bytes, bytes, bytes]:
    """The four keys of a lock, all in one slot, and none of them another lock's."""
    if b"{" in key:
        return key, beside(key, b"fence"), beside(key, b"queue"), beside(key, b"waiters")
    return key, b"{%b}:fence" % key, b"{%b}:queue" % key, b"{%b}:waiters" % key  # (the same, for names as most are, in less time)


def beside(key: bytes, kind: bytes) -> bytes:
    """A key that belongs to another one: in the same slot, and no lock's."""
    tag = _TAG.match(key) if b"{" in key else None
    return b"{%b}:%b" % (key, kind) if tag is None else b"{%b}:%b:%b" % (tag[1], kind, key)


def undo(key: bytes, token: bytes, horizon: int) -> bytes:
    """The bytes that give back a grant of a lock with this key, which nobody here wants."""
    return Exclusive.of_key(key, horizon).release(token)


@lru_cache(64)  # (a client has one horizon, and few ttls)
def _number(number: int) -> bytes:
    data = b"%d" % number
    return b"$%d\r\n%b\r\n" % (len(data), data)


@lru_cache(64)
def _lease(ttl: float) -> bytes:
    return _number(round(ttl * 1000))


_KEYS = b"$%d\r\n%b\r\n" * 4
_REQUEST = b"*13\r\n$7\r\nEVALSHA\r\n$40\r\n%b\r\n$1\r\n4\r\n" % REQUEST.sha
_RELEASE = b"*9\r\n$7\r\nEVALSHA\r\n$40\r\n%b\r\n$1\r\n4\r\n" % RELEASE.sha
