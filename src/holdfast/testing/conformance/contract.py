"""What each script has to answer, asked of a live server.

Knows the scripts' contracts (docs/protocol.md, section 5). Must not know how they are carried out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ... import scripts
from ...protocol.exclusive import beside, keys_of
from ...protocol.readwrite import rw_keys_of
from ...scripts import Script
from .connection import BadServer, BareConnection, Word, evaluation

# Milliseconds: the fence horizon, a lease that outlives this check, and how long values are kept.
K = 16_000
LEASE = 20_000
MINUTE = 60_000_000  # microseconds


def expect(what: str, found: object, wanted: object) -> None:
    """Compare an answer with what it has to be.

    Args:
        what: What was asked.
        found: The answer.
        wanted: What it has to be.

    Raises:
        BadServer: They differ.
    """
    if found != wanted:
        raise BadServer(f"{what} answers {found!r}, not {wanted!r}")


@dataclass(frozen=True, eq=False)
class Within:
    """Equals each number above `low` and up to `high`."""

    low: int
    high: int

    def __eq__(self, number: object) -> bool:
        return isinstance(number, int) and self.low < number <= self.high


# The rest of a lease that has just begun, in milliseconds, and of a minute, in microseconds.
RUNNING = Within(LEASE - 10_000, LEASE)
WAITING = Within(MINUTE - 10_000_000, MINUTE)


def request(name: bytes, token: bytes, mode: str, ttl: int = LEASE, P: int = 0) -> tuple[Word, ...]:
    """Return the command that asks for an exclusive lock.

    Args:
        name: Its key.
        token: The token.
        mode: w waits, t tries once, k repeats.
        ttl: Milliseconds (default 20,000).
        P: The fence that is proposed (default: the ticket).
    """
    P = P or int(token[:16])
    return evaluation(scripts.REQUEST, keys_of(name), token, ttl, mode, b"%016d" % P, K, P // 1000 + K)


class Contract:
    """Two clients of one server, and a name for each check.

    Args:
        one: A connection that was greeted.
        two: Another one.
        prefix: How every key begins.
    """

    def __init__(self, one: BareConnection, two: BareConnection, prefix: str) -> None:
        self.one, self.two, self._prefix = one, two, prefix

    def name(self, word: str) -> bytes:
        """Return a key that no other check uses."""
        return f"{self._prefix}{word}".encode()

    def request(self, name: bytes, token: bytes, mode: str, *, asker: BareConnection | None = None, P: int = 0) -> Any:
        """Ask for an exclusive lock."""
        return (asker or self.one).ask(*request(name, token, mode, P=P))

    def release(self, name: bytes, token: bytes) -> Any:
        """Give an exclusive lock back."""
        return self.one.call(scripts.RELEASE, keys_of(name), token, K)

    def grants(self, asker: BareConnection, token: bytes, name: bytes) -> int:
        """Return the fence that a push has granted."""
        heard = asker.messages()
        expect("the push to a waiter", len(heard), 1)
        kind, whose, fence, key = heard[0].split(b" ", 3)
        expect("the push to a waiter", (kind, whose, key), (b"g", token, name))
        return int(fence)

    # ------------------------------------------------ locks

    def exclusive(self) -> None:
        """Grant, renew, deny, hand on, give back."""
        name, first, second = self.name("lock"), self.one.token(), self.two.token()
        expect("request of a free lock", self.request(name, first, "w"), first[:16])
        expect("a renewal", self.request(name, first, "k"), int(first[:16]))
        denied = self.request(name, second, "w", asker=self.two)
        expect("request of a lock that is held", denied, [0, RUNNING, 0, first, int(first[:16])])
        expect("release", self.release(name, first), 1)
        fence = self.grants(self.two, second, name)
        expect("the fence of the next holder", fence, Within(int(first[:16]), 10**16))
        expect("a renewal after a push", self.request(name, second, "k", asker=self.two, P=fence), fence)
        expect("release", self.release(name, second), 1)
        expect("release of a lock that is free", self.release(name, second), 0)

    def shared(self) -> None:
        """Two readers, and a writer who waits for both."""
        name, keys = self.name("shared"), rw_keys_of(self.name("shared"))
        readers, writer = [self.one.token(b":r"), self.one.token(b":r")], self.two.token(b":w")

        def request(token: bytes, asker: BareConnection) -> Any:
            return asker.call(scripts.RW_REQUEST, keys, token, K, LEASE, "w", b"%016d" % int(token[:16]))

        for it in readers:
            expect("rw_request of a reader", request(it, self.one), it[:16])
        expect("rw_request of a writer", request(writer, self.two), [0, RUNNING, 0, it, int(it[:16])])
        for it in readers:
            expect("rw_release", self.one.call(scripts.RW_RELEASE, keys, it, K), 1)
        self.grants(self.two, writer, name)
        expect("rw_force_release", self.one.call(scripts.RW_FORCE_RELEASE, keys, b"", K), writer)
        expect("the news for a writer", self.two.messages(), [b"x %b 0 %b" % (writer, name)])

    def operators(self) -> None:
        """Look at a lock, list it, and take it away."""
        name, token = self.name("operated"), self.one.token()
        expect("request of a free lock", self.request(name, token, "w"), token[:16])
        others = [beside(name, it) for it in (b"rwqueue", b"rwwaiters", b"readers", b"note")]
        seen = self.one.call(scripts.INSPECT, [*keys_of(name), *others], 10)
        expect("inspect", seen, [token, RUNNING, token[:16], 0, 0, None])
        item = self.one.call(scripts.SURVEY, (), b"%d:%b" % (len(name), name))
        expect("survey", item, [token, RUNNING, token[:16], 0, None, None])
        self.listed(scripts.NAMES, name, 2)
        expect("force_release of another value", self.one.call(scripts.FORCE_RELEASE, keys_of(name), K, b"x"), None)
        expect("force_release", self.one.call(scripts.FORCE_RELEASE, keys_of(name), K, b""), token)

    def listed(self, script: Script, key: bytes, before: int) -> None:
        """Search the keys of the prefix, as an operator does, for one key."""
        pattern = _literal(self._prefix) + b"*"
        if key.startswith(b"{"):
            pattern = b"{" + pattern
        cursor: Any = b"0"
        while True:
            found = self.one.call(script, (), cursor, pattern, 1000)
            if key in found[before:]:
                return
            cursor = found[0]
            if cursor in (b"0", 0):
                raise BadServer(f"{script.name} does not find {key!r}")

    def permits(self) -> None:
        """Slots of a semaphore."""
        name, token = self.name("permits"), self.one.token()
        expect("request of a slot", self.request(name + b"[slot 1]", token, "t"), token[:16])
        number, holder, left = self.one.call(scripts.PERMITS, [name], 3)
        expect("permits", (int(number), holder, left), (1, token, RUNNING))
        expect("release of a slot", self.release(name + b"[slot 1]", token), 1)

    # ------------------------------------------------ registers

    def rates(self) -> None:
        """One call a minute, by either kind of limit; what is remembered of it, and put back."""
        key = beside(self.name("rate"), b"rate")
        limit = (1, MINUTE, 0, MINUTE, 0)
        now = int(self.one.time() * 1e6)
        moment = Within(now - 1, now + MINUTE)
        full = [0, moment, WAITING, 0]
        expect("gcra", self.one.call(scripts.GCRA, [key], 0, 0, *limit), [1, moment, MINUTE, 0])
        expect("gcra beyond the limit", self.one.call(scripts.GCRA, [key], 0, 0, *limit), full)
        now, (owed, parts) = self.one.call(scripts.RECALL, (), b"%d:%b" % (len(key), key))
        expect("recall of a rate", (now, owed, parts), (moment, WAITING, 0))
        expect("mend of what is there", self.one.call(scripts.MEND, [key], now + MINUTE, now + owed, 0, b""), 0)
        other = beside(self.name("mended"), b"rate")
        written = self.one.call(scripts.MEND, [other], now + MINUTE, now + owed, 0, b"")
        expect("mend of what was forgotten", written, 1)
        expect("gcra after mend", self.one.call(scripts.GCRA, [other], 0, 0, *limit), full)
        expect("mend that comes too late", self.one.call(scripts.MEND, [other], 1, now + owed, 0, b""), -1)
        self.listed(scripts.REGISTERS, key, 1)
        window = beside(self.name("window"), b"window")
        expect("window", self.one.call(scripts.WINDOW, [window], 1, 1, MINUTE, 0), [1, moment, MINUTE, 1])
        again = self.one.call(scripts.WINDOW, [window], 1, 1, MINUTE, 0)
        expect("window beyond the limit", again, [0, moment, WAITING, 1])

    def election(self) -> None:
        """A statement, an older one, and a watcher."""
        name = self.name("election")
        keys = [beside(name, b"leader"), beside(name, b"watchers")]

        def announce(term: int, version: int, value: bytes) -> Any:
            return self.one.call(scripts.ANNOUNCE, keys, term, version, LEASE, LEASE, value)

        token = self.two.token()
        expect("watch of nothing", self.two.call(scripts.WATCH, keys, token, LEASE), [0, 0, 0, b""])
        expect("announce", announce(5, 1, b"first"), 1)
        expect("the news of a leader", self.two.messages(), [b"n %b 0 %b" % (token, keys[0])])
        expect("announce of an earlier term", announce(4, 9, b"late"), 0)
        expect("watch", self.two.call(scripts.WATCH, keys, b"", LEASE), [5, 1, RUNNING, b"first"])

    def once(self) -> None:
        """A result, and a lower ballot."""
        name = self.name("once")
        key, fence, queue, _ = keys_of(name)
        result = beside(name, b"result")

        def store(ballot: int, value: bytes) -> Any:
            return self.one.call(scripts.STORE, [key, fence, queue, result], b"%016d" % ballot, K, LEASE, value)

        ballot = int(self.one.time() * 1e6)
        promised = self.one.call(scripts.LOOK, [key, fence, result], b"%016d" % ballot, K, b"")
        expect("look with a ballot", promised, [1, ballot, -2, None])
        expect("store", int(store(ballot, b"value")), ballot)
        expect("store of a lower ballot", int(store(ballot - 1, b"late")), ballot)
        found = self.one.call(scripts.LOOK, [key, fence, result], b"%016d" % 0, K, b"")
        expect("look", found, [0, 0, RUNNING, b"%016d value" % ballot])

    def fill(self) -> None:
        """A value, an older one, and a note that it was dropped."""
        name = self.name("fill")
        cache, queue, fence = (beside(name, it) for it in (b"cache", b"queue", b"fence"))

        def put(number: int, value: bytes) -> Any:
            return self.one.call(scripts.PUT, [name, cache, queue], number, LEASE, 0, LEASE, value)

        expect("peek of nothing", self.one.call(scripts.PEEK, [cache]), None)
        expect("put", put(50, b"value"), 1)
        expect("put of an earlier holder", put(49, b"late"), 0)
        left, number, ttl, value = self.one.call(scripts.PEEK, [cache])
        expect("peek", (left, int(number), int(ttl), value), (RUNNING, 50, LEASE, b"value"))
        highest, kept = self.one.call(scripts.VOID, [fence, cache], 60, K, LEASE)
        expect("void", (int(highest), kept), (Within(49, int(self.one.time() * 1e6)), RUNNING))
        expect("peek of a note", list(map(int, self.one.call(scripts.PEEK, [cache]))), [0, 60])

    def latch(self) -> None:
        """Two arrivals, and a waiter."""
        name = self.name("latch")
        keys = [beside(name, it) for it in (b"latch", b"arrived", b"awaited", b"arrived")]
        token = self.two.token()

        def arrive(asker: BareConnection, ids: bytes, count: int = 2, waiter: bytes = b"") -> Any:
            return asker.call(scripts.ARRIVE, keys, count, 0, LEASE, 0, b"", 0, waiter, LEASE, ids)

        over, _, known, ids = arrive(self.two, b"a", waiter=token)
        expect("arrive", (int(over), known, ids), (0, 0, b"a"))
        expect("arrive with another count", int(arrive(self.one, b"b", count=3)), 2)
        over, _, known, ids = arrive(self.one, b"b")
        expect("arrive of the last one", (int(over), known, ids), (1, 0, b""))
        expect("the news that a latch is open", self.two.messages(), [b"n %b 0 %b" % (token, keys[0])])

    def registry(self) -> None:
        """Two clients with different settings."""
        keys = [self.name(it) for it in ("clients", "owner", "lists", "config")]

        def register(me: bytes, note: bytes) -> Any:
            return self.one.call(scripts.REGISTRY, keys, me, note, note, LEASE, b"16 1000 16", LEASE)

        expect("registry", register(b"one 1", b"v2 30000 1   aa 1"), [])
        age = Within(-1, LEASE - 1)
        wanted = [[b"v2 30000 1   aa 1", b"one 1", age], [b"aa", b"one 1", age], [b"v1 30000 1 ,", b"", age]]
        expect("registry of other settings", register(b"two 2", b"v2 20000 1   bb 1"), wanted)

    def checks(self) -> dict[str, Callable[[], None]]:
        """Return every check of this class, by its name."""
        names = "exclusive shared operators permits rates election once fill latch registry"
        return {it: getattr(self, it) for it in names.split()}


def _literal(prefix: str) -> bytes:
    """A pattern that this prefix alone matches."""
    return b"".join(b"\\" + bytes([it]) if it in b"*?[]^-\\" else bytes([it]) for it in prefix.encode())
