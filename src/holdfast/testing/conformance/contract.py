"""What each script has to answer, asked of a live server.

Knows the scripts' contracts (docs/protocol.md, section 5). Must not know how they are carried out.
"""

from __future__ import annotations

from collections.abc import Callable
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
        wanted: What it has to be, or a function that says whether it is right.

    Raises:
        Unfit: They differ.
    """
    right = wanted(found) if callable(wanted) else found == wanted
    if not right:
        told = "" if callable(wanted) else f", not {wanted!r}"
        raise BadServer(f"{what} answers {found!r}{told}")


def running(ms: object) -> bool:
    """Say whether this is the rest of a lease that has just begun."""
    return isinstance(ms, int) and LEASE - 10_000 < ms <= LEASE


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
        zero, left, place, holder, told = self.request(name, second, "w", asker=self.two)
        expect("request of a lock that is held", (zero, place, holder, told), (0, 0, first, int(first[:16])))
        expect("the time that a lock is held for", left, running)
        expect("release", self.release(name, first), 1)
        fence = self.grants(self.two, second, name)
        expect("the fence of the next holder", fence, lambda it: it > int(first[:16]))
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
            expect("rw_request of a reader", request(it, self.one), lambda it: not isinstance(it, list) or it[0])
        expect("rw_request of a writer", request(writer, self.two)[0], 0)
        for it in readers:
            expect("rw_release", self.one.call(scripts.RW_RELEASE, keys, it, K), 1)
        self.grants(self.two, writer, name)
        expect("rw_force_release", self.one.call(scripts.RW_FORCE_RELEASE, keys, b"", K), writer)
        expect("the news for a writer", self.two.messages(), [b"x %b 0 %b" % (writer, name)])

    def operators(self) -> None:
        """Look at a lock, list it, and take it away."""
        name, token = self.name("operated"), self.one.token()
        self.request(name, token, "w")
        others = [beside(name, it) for it in (b"rwqueue", b"rwwaiters", b"readers", b"note")]
        seen = self.one.call(scripts.INSPECT, [*keys_of(name), *others], 10)
        expect("inspect", (seen[0], seen[2], seen[3:]), (token, token[:16], [0, 0, None]))
        expect("inspect", seen[1], running)
        item = self.one.call(scripts.SURVEY, (), b"%d:%b" % (len(name), name))
        expect("survey", (item[0], item[2:]), (token, [token[:16], 0, None, None]))
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
        self.request(name + b"[slot 1]", token, "t")
        number, holder, left = self.one.call(scripts.PERMITS, [name], 3)
        expect("permits", (int(number), holder), (1, token))
        expect("permits", left, running)
        self.release(name + b"[slot 1]", token)

    # ------------------------------------------------ registers

    def rates(self) -> None:
        """One call a minute, by either kind of limit; what is remembered of it, and put back."""
        key = beside(self.name("rate"), b"rate")
        limit = (1, MINUTE, 0, MINUTE, 0)
        taken = self.one.call(scripts.GCRA, [key], 0, 0, *limit)
        expect("gcra", (taken[0], taken[2:]), (1, [MINUTE, 0]))
        expect("gcra beyond the limit", self.one.call(scripts.GCRA, [key], 0, 0, *limit)[0], 0)
        now, (owed, parts) = self.one.call(scripts.RECALL, (), b"%d:%b" % (len(key), key))
        expect("recall of a rate", (MINUTE - 10_000_000 < owed <= MINUTE, parts), (True, 0))
        expect("mend of what is there", self.one.call(scripts.MEND, [key], now + MINUTE, now + owed, 0, b""), 0)
        other = beside(self.name("mended"), b"rate")
        written = self.one.call(scripts.MEND, [other], now + MINUTE, now + owed, 0, b"")
        expect("mend of what was forgotten", written, 1)
        expect("gcra after mend", self.one.call(scripts.GCRA, [other], 0, 0, *limit)[0], 0)
        expect("mend that comes too late", self.one.call(scripts.MEND, [other], 1, now + owed, 0, b""), -1)
        self.listed(scripts.REGISTERS, key, 1)
        window = beside(self.name("window"), b"window")
        first = self.one.call(scripts.WINDOW, [window], 1, 1, MINUTE, 0)
        expect("window", (first[0], first[3]), (1, 1))
        expect("window beyond the limit", self.one.call(scripts.WINDOW, [window], 1, 1, MINUTE, 0)[0], 0)

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
        term, version, left, value = self.two.call(scripts.WATCH, keys, b"", LEASE)
        expect("watch", (term, version, value), (5, 1, b"first"))
        expect("watch", left, running)

    def once(self) -> None:
        """A result, and a lower ballot."""
        name = self.name("once")
        key, fence, queue, _ = keys_of(name)
        result = beside(name, b"result")

        def store(ballot: int, value: bytes) -> Any:
            return self.one.call(scripts.STORE, [key, fence, queue, result], b"%016d" % ballot, K, LEASE, value)

        ballot = int(self.one.time() * 1e6)
        promised = self.one.call(scripts.LOOK, [key, fence, result], b"%016d" % ballot, K, b"")
        expect("look with a ballot", (promised[0], promised[3]), (1, None))
        expect("store", int(store(ballot, b"value")), ballot)
        expect("store of a lower ballot", int(store(ballot - 1, b"late")), ballot)
        found = self.one.call(scripts.LOOK, [key, fence, result], b"%016d" % 0, K, b"")
        expect("look", (found[0], found[3]), (0, b"%016d value" % ballot))
        expect("look", found[2], running)

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
        expect("peek", (int(number), int(ttl), value), (50, LEASE, b"value"))
        expect("peek", left, running)
        highest, kept = self.one.call(scripts.VOID, [fence, cache], 60, K, LEASE)
        expect("void", (int(highest) >= 50, kept > 0), (True, True))
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
        ((note, client, ms), *_) = register(b"two 2", b"v2 20000 1   bb 1")
        expect("registry of other settings", (note, client), (b"v2 30000 1   aa 1", b"one 1"))
        expect("registry of other settings", int(ms), lambda it: 0 <= it < LEASE)

    def checks(self) -> dict[str, Callable[[], None]]:
        """Return every check of this class, by its name."""
        names = "exclusive shared operators permits rates election once fill latch registry"
        return {it: getattr(self, it) for it in names.split()}


def _literal(prefix: str) -> bytes:
    """A pattern that this prefix alone matches."""
    return b"".join(b"\\" + bytes([it]) if it in b"*?[]^-\\" else bytes([it]) for it in prefix.encode())
