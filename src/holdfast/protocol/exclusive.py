"""The exclusive lock: its keys on a node, and its scripts' arguments as bytes.

Knows `scripts/request.lua` and `scripts/release.lua`. Must not know which nodes there are, or what
they answer.
"""

from __future__ import annotations

import re
from copy import copy
from functools import lru_cache
from typing import Self

from .. import checks
from ..errors import ConfigError
from ..scripts import RELEASE, REQUEST, RETIRE
from ..wire.resp import evalsha
from .command import Recipe

LONGEST = 512  # bytes of a name
# Seconds: a lease that is not over before anybody can use it.
SHORTEST = 0.05
# Texts, which `re` compiles at their first use. Few names look like these.
_PART = rb"\[(slot \d+|election|once( [^\[\]]+)?|fill)\]\Z"  # what other primitives lock ends like this
_OURS = (
    rb"(?s)\{[^}]+\}:(fence|queue|waiters|readers|rfence|rwqueue|rwwaiters|permits|rate|window|leader|watchers"
    rb"|result|cache|latch|barrier|arrived|awaited|note)"
)


class Exclusive(Recipe):
    """The commands of an exclusive lock. Immutable.

    Args:
        name: The name as the user wrote it.
        prefix: The prefix of all keys of this client.
        ttl: The usual length of a lease, in seconds.
        horizon: K, the fence horizon in ms.
        slot: The number of the semaphore's slot that this lock is, if it is one.
        own: The other primitive that this lock belongs to, if any: election, once (with the slot of
            its schedule) or fill. A slot or such a lock has a name that no user's lock can have.
    """

    __slots__ = ("_k", "_lease", "_release", "_request", "_ttl", "slot")

    def __init__(
        self, name: str, *, prefix: str = "", ttl: float, horizon: int, slot: int | None = None, own: str = ""
    ) -> None:
        self.label, self.horizon, self._ttl, self.slot = name, horizon, ttl, slot
        # The name under which a lease shows its fence.
        self.name, self.part = key_of(name, prefix), name
        # The slot of a schedule is no part of it.
        self.primitive = own.partition(" ")[0] or ("exclusive" if slot is None else "permit")
        if own or slot is not None:
            which = f"[{own or f'slot {slot}'}]"
            self.name, self.part = self.name + which.encode(), self.part + which
        self._prepare()

    @classmethod
    def of_key(cls, key: bytes, horizon: int) -> Exclusive:
        """Return the lock with this key, to answer nodes about a lock that is not in use here."""
        self = cls.__new__(cls)
        self.label = self.part = key.decode("utf-8", "backslashreplace")
        self.name, self.horizon, self._ttl, self.slot = key, horizon, 0.0, None
        self.primitive = "exclusive"
        self._prepare()
        return self

    def _prepare(self) -> None:
        self.statement = None
        self.basic = True
        # Everything that does not change from one command to the next is packed once.
        one, two, three, four = keys_of(self.name)
        keys = _KEYS % (len(one), one, len(two), two, len(three), three, len(four), four)
        self._request, self._release = _REQUEST + keys, _RELEASE + keys
        self._k, self._lease = _number(self.horizon), _lease(self._ttl)

    def lasting(self) -> Self:
        """The same lock, for a caller that may give it back at a later time."""
        other = copy(self)
        other.basic = False
        return other

    def request(self, token: bytes, ttl: float, mode: bytes, fence: int, clock: int = 0) -> bytes:
        """Return the bytes of a request.

        Args:
            token: The token that asks.
            ttl: Seconds.
            mode: WAIT, TRY or CEDE.
            fence: The proposed fence.
            clock: The time by the ticket's clock, in microseconds.
        """
        lease = self._lease if ttl == self._ttl else _lease(ttl)
        # A node's clock may be half the horizon ahead of ours, or behind it. The record has to last
        # there until the first renewal, and for no longer than twice the horizon.
        kept = max(clock // 1000 + self.horizon * 5 // 4, fence // 1000 + self.horizon)
        proposed, expiry = b"%016d" % fence, b"%d" % kept
        return b"%b$%d\r\n%b\r\n%b$1\r\n%b\r\n$%d\r\n%b\r\n%b$%d\r\n%b\r\n" % (
            self._request, len(token), token, lease, mode,
            len(proposed), proposed, self._k, len(expiry), expiry)  # fmt: skip

    def release(self, token: bytes, held: bool = True, rest: float = 0.0) -> bytes:
        """Return the bytes of a release.

        Args:
            token: The token to give back.
            held: Whether its claim was ever held.
            rest: In how many seconds the lock is to be free (rule RT1).
        """
        if rest:
            name, _, queue, waiters = keys_of(self.name)
            left = b"%d" % max(1, round(rest * 1000))
            return evalsha(RETIRE, name, queue, waiters, token, left)
        return b"%b$%d\r\n%b\r\n%b" % (self._release, len(token), token, self._k)


def key_of(name: str, prefix: str = "", parts: bool = False) -> bytes:
    """Return the key of a lock.

    Args:
        name: The name of the lock.
        prefix: The prefix of all keys of the client.
        parts: Also accept the names of locks that belong to other primitives.

    Raises:
        ConfigError: The name could collide with another lock's keys, or is empty or too long.
    """
    checks.name(name, "a lock's name", most=LONGEST)
    key = (prefix + name).encode()
    if not name:
        raise ConfigError("a lock needs a name", "bad_name")
    if b"}" in key and not _tag_in(key):
        why = "it has a '}' but no hash tag like '{tag}' before it; leave the '}' out"
    elif key.endswith(b"]") and not parts and re.search(_PART, key):
        why = "it looks like a slot of a semaphore, or like another primitive's lock"
    elif key.startswith(b"{") and re.match(_OURS, key):
        why = "it looks like the keys in which locks keep their queues and fences"
    else:
        return key
    raise ConfigError(f"{name!r} cannot be a lock's name: {why}", "bad_name")


def tag_of(name: str) -> bytes:
    """Return the part of a name that decides where it lives: its hash tag, or all of it."""
    key = name.encode()
    return _tag_in(key) or key


def _tag_in(key: bytes) -> bytes:
    """Return the hash tag that the server finds in a key, or nothing."""
    tag, end, _ = key.partition(b"{")[2].partition(b"}")
    return tag if end else b""


def user_name(name: str) -> str:
    """Return the name of the semaphore, election, once or fill that this lock belongs to.

    Any other name is returned as it is.
    """
    found = re.search(_PART, name.encode())
    return name if found is None else name.encode()[: found.start()].decode()


def keys_of(key: bytes) -> tuple[bytes, bytes, bytes, bytes]:
    """Return the four keys of a lock, all in one slot, and none of them another lock's."""
    if b"{" in key:
        return key, beside(key, b"fence"), beside(key, b"queue"), beside(key, b"waiters")
    # The same, faster, for most names.
    return key, b"{%b}:fence" % key, b"{%b}:queue" % key, b"{%b}:waiters" % key


def beside(key: bytes, kind: bytes) -> bytes:
    """Return a key that belongs to another one: in the same slot, and no lock's."""
    tag = _tag_in(key)
    return b"{%b}:%b:%b" % (tag, kind, key) if tag else b"{%b}:%b" % (key, kind)


def undo(key: bytes, token: bytes, horizon: int) -> bytes:
    """Return the bytes that give back an unwanted grant of a lock with this key."""
    return Exclusive.of_key(key, horizon).release(token)


# A client has one horizon, and few ttls.
@lru_cache(64)
def _number(number: int) -> bytes:
    data = b"%d" % number
    return b"$%d\r\n%b\r\n" % (len(data), data)


@lru_cache(64)
def _lease(ttl: float) -> bytes:
    return _number(round(ttl * 1000))


_KEYS = b"$%d\r\n%b\r\n" * 4
_REQUEST = b"*13\r\n$7\r\nEVALSHA\r\n$40\r\n%b\r\n$1\r\n4\r\n" % REQUEST.sha
_RELEASE = b"*9\r\n$7\r\nEVALSHA\r\n$40\r\n%b\r\n$1\r\n4\r\n" % RELEASE.sha
