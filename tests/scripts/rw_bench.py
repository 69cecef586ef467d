"""The bench of the scripts' tests, for those of the read-write lock: its words, and what a node holds for one."""

from __future__ import annotations

from typing import NamedTuple

from scripts.bench import INBOXES, LONG, NAME, Bench, K, Place, Real, Simulated, Waiter, Words, keys

from holdfast.scripts import SHARED, Script
from holdfast.testing.server import Server
from holdfast.testing.values import Dialect

READ, WRITE = "r", "w"


class Seen(NamedTuple):
    """Everything that a node holds for a name. Times in ms from now; -1: for ever, -2: there is no such key."""

    holder: bytes | None
    holder_left: int
    readers: dict[bytes, int]
    readers_left: int
    fence: bytes | None
    fence_left: int
    rfence: bytes | None
    rfence_left: int
    queue: dict[bytes, Waiter]
    queue_left: int
    waiters_left: int


def rw_keys(name: bytes) -> tuple[bytes, ...]:
    """The keys of a read-write lock, as docs/protocol.md has them."""
    name, fence, *_ = keys(name)
    return name, fence, *[fence.replace(b"}:fence", b"}:" + it) for it in (b"rwqueue", b"rwwaiters", b"readers", b"rfence")]


class RWBench(Bench):
    """One server, empty, with the scripts of read-write locks loaded."""

    def __init__(self, place: Place, scripts: tuple[Script, ...] = SHARED) -> None:
        super().__init__(place, scripts)

    def reader(self, ticket: int, inbox: bytes = INBOXES[0]) -> bytes:
        return self.token(ticket, inbox) + b":r"

    def writer(self, ticket: int, inbox: bytes = INBOXES[0]) -> bytes:
        return self.token(ticket, inbox) + b":w"

    def words(self, token: bytes, ttl: int = LONG, mode: str = "w", P: int = 0, K: int = K, name: bytes = NAME, clock: int = 0) -> Words:
        P = P or int(token[:16])
        return "EVALSHA", self.request_script.sha, 6, *rw_keys(name), token, K, ttl, mode, b"%016d" % P

    def release_words(self, token: bytes, K: int = K, name: bytes = NAME) -> Words:
        return "EVALSHA", self.release_script.sha, 6, *rw_keys(name), token, K

    def see(self, name: bytes = NAME) -> Seen:  # type: ignore[override]  # (another kind of state)
        name, fence, queue, waiters, readers, rfence = rw_keys(name)
        # The fences' expiries first: what is read later has less time left, and a fence must outlive its holder.
        left = [("PTTL", it) for it in (fence, rfence, name, readers, queue, waiters)]
        said = self.operator.batch(*left, ("GET", name), ("GET", fence), ("GET", rfence), ("HGETALL", waiters))
        line, reading = self.operator.batch(*[("ZRANGE", it, 0, -1, "WITHSCORES") for it in (queue, readers)])
        now, deadlines = self.now(), said[9]
        assert {token for token, _ in line} == deadlines.keys(), "the queue and the waiters' deadlines go together"
        places = {token: Waiter(score, int(deadlines[token]) - now) for token, score in line}
        leases = {token: int(deadline) - now for token, deadline in reading}
        fence_left, rfence_left, holder_left, readers_left, queue_left, waiters_left, holder, F, readF, _ = said
        return Seen(holder, holder_left, leases, readers_left, F, fence_left, readF, rfence_left, places, queue_left, waiters_left)


def simulated(dialect: Dialect, scripts: tuple[Script, ...] = SHARED, kind: type[Server] = Server, now: float = 1_800_000_000.0) -> RWBench:
    return RWBench(Simulated(kind, dialect, now), scripts)


def real(url: str) -> RWBench:
    return RWBench(Real(url))
