"""What the scripts' tests stand on: one server, simulated or real, and words for asking it and for looking at it.

A test that is given a bench runs on every kind of server. What is asked of a bench must not depend on how fast a real server is: leases
that must still run are long, those that must have lapsed are short and slept over.
"""

from __future__ import annotations

import itertools
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, NamedTuple, Protocol

import hiredis

from holdfast.scripts import EXCLUSIVE, Script
from holdfast.testing.server import Server
from holdfast.testing.values import Dialect

K = 16_000  # ms: the fence horizon, as with max_ttl = 30 s
LONG = 30_000  # ms: a lease that runs for as long as any test
SHORT = 2  # ms: one that is over by the next `lapse`
NAME = b"n"
FREE = -2  # PTTL of a key that is not there
TOP = 2**53 - 1  # above it a node's Lua cannot count by ones
# Redis 6.2 counts each expiry from the moment of its own command, within one script, too. What a client believes ends 2 ms before the
# lease at the least (the drift), so that a record which ends a millisecond before its lease is no harm.
GRAIN = 2
SLACK = 5_000  # ms that a test may take on a machine that is busy with something else
Words = tuple[bytes | str | int, ...]
INBOXES = tuple(b"%032x" % (0xA0 + i) for i in range(4))


class Granted(NamedTuple):
    fence: int
    lower: int
    fresh: int


class Denied(NamedTuple):
    pttl: int
    place: int
    holder: bytes | None
    fence: int = 0


class Waiter(NamedTuple):
    """Its score in the queue, and its deadline, as ms from now."""

    score: float
    left: int


class Seen(NamedTuple):
    """Everything that a node holds for a name. Times in ms from now; -1: for ever, -2: there is no such key."""

    holder: bytes | None
    holder_left: int
    fence: bytes | None
    fence_left: int
    queue: dict[bytes, Waiter]
    queue_left: int
    waiters_left: int


def answered(reply: Any) -> Granted | Denied:
    """What an answer to a request says: the usual ones are one word."""
    if isinstance(reply, bytes):
        return Granted(int(reply), 0, 1)
    if isinstance(reply, int):
        return Granted(reply, 0, 0)
    if reply[0]:
        fence, lower, fresh = reply
        return Granted(fence, lower, fresh)
    return Denied(*reply[1:])


def about(ms: int, wanted: int) -> bool:
    """A time that runs down: `wanted` when it began, a little less by now."""
    return wanted - SLACK < ms <= wanted


def keys(name: bytes) -> tuple[bytes, bytes, bytes, bytes]:
    """The keys of a name (docs/protocol.md, section 4)."""
    tag = name.partition(b"{")[2].rpartition(b"}")[0].partition(b"}")[0]
    if tag:
        return name, b"{%b}:fence:%b" % (tag, name), b"{%b}:queue:%b" % (tag, name), b"{%b}:waiters:%b" % (tag, name)
    return name, b"{%b}:fence" % name, b"{%b}:queue" % name, b"{%b}:waiters" % name


def pack(*words: bytes | str | int) -> bytes:
    texts = [word if isinstance(word, bytes) else str(word).encode() for word in words]
    return b"*%d\r\n" % len(texts) + b"".join(b"$%d\r\n%b\r\n" % (len(text), text) for text in texts)


def spoken(data: bytes) -> list[Any]:
    """The words of a command that is packed."""
    reader = hiredis.Reader()
    reader.feed(data)
    words: Any = reader.gets()
    assert reader.gets() is False, "one command, and nothing behind it"
    return list(words)


class Client:
    """One connection in RESP3. `send` takes bytes; `receive` gives some, once there are any."""

    def __init__(self, send: Callable[[bytes], object], receive: Callable[[], bytes], close: Callable[[], object]) -> None:
        self._send, self._receive, self.close = send, receive, close
        self._reader, self._pushes = hiredis.Reader(), list[list[Any]]()

    def stream(self, *commands: Words) -> Iterator[Any]:
        """Say commands in one write: answers and pushes as they come, for as long as one is asked for."""
        self._send(b"".join(pack(*command) for command in commands))
        while True:
            while (reply := self._reader.gets()) is False:
                self._reader.feed(self._receive())
            yield reply

    def told(self, *commands: Words) -> list[Any]:
        """Say commands, and whatever they are answered with, pushes too."""
        mark = b"that was all"
        return list(itertools.takewhile(lambda reply: reply != mark, self.stream(*commands, ("PING", mark))))

    def batch(self, *commands: Words) -> list[Any]:
        """Say commands, each of which has one answer; an error is one. Pushes are kept for `heard`."""
        replies: list[Any] = []
        stream = self.stream(*commands)
        while len(replies) < len(commands):
            reply = next(stream)
            (self._pushes if isinstance(reply, hiredis.PushNotification) else replies).append(reply)
        return replies

    def say(self, *words: bytes | str | int) -> Any:
        [reply] = self.batch(words)
        if isinstance(reply, hiredis.ReplyError):
            raise reply
        return reply

    def subscribe(self, channel: bytes) -> None:
        self._send(pack("SUBSCRIBE", channel))  # confirmed by a push, which `heard` drops
        self.heard()

    def unsubscribe(self, channel: bytes) -> None:
        self._send(pack("UNSUBSCRIBE", channel))
        self.heard()

    def heard(self) -> list[tuple[Any, ...]]:
        """The pushes of messages and invalidations since the last time: none is under way any more."""
        self.say("PING")
        pushes, self._pushes = self._pushes, []
        return [tuple(push[1:]) for push in pushes if push[0] in (b"message", b"invalidate")]


class Place(Protocol):
    """Where a server is."""

    def connect(self) -> Client:
        """A new connection, on which nothing was said."""

    def pass_time(self, seconds: float) -> None:
        """Let its clock run."""

    def silence(self, client: Client) -> AbstractContextManager[None]:
        """Refuse whatever a client wants to publish."""

    def lock(self, operator: Client, password: bytes) -> AbstractContextManager[None]:
        """Ask every new connection for a password."""


class Bench:
    """One server, empty, with the scripts loaded."""

    def __init__(self, place: Place, scripts: tuple[Script, ...]) -> None:
        self.place, (self.request_script, self.release_script) = place, scripts
        self._clients: list[Client] = []
        self._serial = 0
        self.eternal: set[bytes] = set()  # keys that a test itself has made without an expiry
        self.operator = self.connect()  # sees and says what no lock client does
        self.operator.batch(("FLUSHALL",), ("CONFIG", "RESETSTAT"))
        self.client = self.connect()
        self.base = self.now() * 1000 + 10**9  # tickets: above every clock floor

    def bare(self) -> Client:
        """A new connection, on which nothing was said."""
        self._clients.append(self.place.connect())
        return self._clients[-1]

    def connect(self, *inboxes: bytes) -> Client:
        client = self.bare()
        client.say("HELLO", 3)
        client.batch(*[("SCRIPT", "LOAD", script.source) for script in (self.request_script, self.release_script)])
        for inbox in inboxes:
            client.subscribe(inbox)
        return client

    def close(self) -> None:
        for client in self._clients:
            client.close()

    def now(self) -> int:
        """The server's clock in ms."""
        seconds, micros = self.operator.say("TIME")
        return int(seconds) * 1000 + int(micros) // 1000

    def lapse(self) -> None:
        """Let SHORT leases run out."""
        self.place.pass_time(SHORT / 1000 + 0.003)

    def token(self, ticket: int, inbox: bytes = INBOXES[0]) -> bytes:
        """A token of its own, for a ticket that is counted from `base`."""
        self._serial += 1
        return b"%016d:%b:%08x" % (self.base + ticket, inbox, self._serial)

    # The scripts

    def load(self, *scripts: Script) -> None:
        self.operator.batch(*[("SCRIPT", "LOAD", script.source) for script in scripts])

    def told(self, data: bytes) -> Any:
        """Say the bytes of a recipe; what the node answers."""
        reply = self.client.say(*spoken(data))
        self.mortal()
        return reply

    def words(self, token: bytes, ttl: int = LONG, mode: str = "w", P: int = 0, K: int = K, name: bytes = NAME, clock: int = 0) -> Words:
        """A request's command; P is the ticket unless given; `clock`: the time by the ticket's clock, in microseconds."""
        P = P or int(token[:16])
        expiry = max(P // 1000 + K, clock // 1000 + K * 5 // 4)
        return "EVALSHA", self.request_script.sha, 4, *keys(name), token, ttl, mode, b"%016d" % P, K, expiry

    def request(self, token: bytes, ttl: int = LONG, mode: str = "w", *, client: Client | None = None, **given: Any) -> Granted | Denied:
        reply = (client or self.client).say(*self.words(token, ttl, mode, **given))
        self.mortal()
        return answered(reply)

    def release_words(self, token: bytes, K: int = K, name: bytes = NAME) -> Words:
        return "EVALSHA", self.release_script.sha, 4, *keys(name), token, K

    def release(self, token: bytes, *, client: Client | None = None, **given: Any) -> int:
        answer: int = (client or self.client).say(*self.release_words(token, **given))
        self.mortal()
        return answer

    def mute(self) -> AbstractContextManager[None]:
        """Nothing that `client`'s scripts publish is allowed."""
        return self.place.silence(self.client)

    def settle(self, until: Callable[[], bool]) -> None:
        """Wait for something that a real server does in its own time."""
        deadline = time.monotonic() + 10
        while not until():
            assert time.monotonic() < deadline
            time.sleep(0.001)

    # What a test sees

    def mortal(self) -> None:
        """Nothing stays for ever: every key of the server expires."""
        cursor, found = self.operator.say("SCAN", 0, "COUNT", 10_000)
        assert cursor == b"0"
        left = self.operator.batch(*[("PTTL", key) for key in found])
        assert not {key for key, ms in zip(found, left, strict=True) if ms == -1} - self.eternal

    def see(self, name: bytes = NAME) -> Seen:
        name, fence, queue, waiters = keys(name)
        # The fence's expiry first: what is read later has less time left, and a fence must outlive its holder.
        commands = ("PTTL", fence), ("PTTL", name), ("GET", name), ("GET", fence), ("PTTL", queue), ("PTTL", waiters), ("HGETALL", waiters)
        fence_left, holder_left, holder, F, queue_left, waiters_left, deadlines = self.operator.batch(*commands)
        line = self.operator.say("ZRANGE", queue, 0, -1, "WITHSCORES")
        now = self.now()
        assert {token for token, _ in line} == deadlines.keys(), "the queue and the waiters' deadlines go together"
        places = {token: Waiter(score, int(deadlines[token]) - now) for token, score in line}
        return Seen(holder, holder_left, F, fence_left, places, queue_left, waiters_left)

    def cost(self, act: Callable[[], object]) -> dict[str, int]:
        """How many commands, by name, a script calls when `act` calls it once."""
        before = self._calls()
        act()
        after = self._calls()
        return {name: calls - before.get(name, 0) for name, calls in after.items() if calls > before.get(name, 0)}

    def _calls(self) -> dict[str, int]:
        text = self.operator.say("INFO", "commandstats")
        lines = (text if isinstance(text, str) else text.decode()).split()
        stats = dict(line.removeprefix("cmdstat_").split(":calls=") for line in lines if ":calls=" in line)
        return {name: int(numbers.partition(",")[0]) for name, numbers in stats.items() if name not in ("info", "evalsha")}


class Simulated:
    """A simulated server, whose clock stands still unless it is told to pass."""

    def __init__(self, server: Callable[..., Server], dialect: Dialect, now: float) -> None:
        self.now = now
        self.server = server(lambda: self.now, "0" * 40, dialect=dialect)

    def connect(self) -> Client:
        unread: list[bytes] = []
        connection = self.server.connect(unread.append)
        return Client(connection.feed, lambda: unread.pop(0), connection.disconnect)

    def pass_time(self, seconds: float) -> None:
        self.now += seconds

    @contextmanager
    def silence(self, client: Client) -> Iterator[None]:
        self.server.refuse[b"PUBLISH"] = b"NOPERM this user has no permissions to access one of the channels used as arguments"
        yield
        del self.server.refuse[b"PUBLISH"]

    @contextmanager
    def lock(self, operator: Client, password: bytes) -> Iterator[None]:
        self.server.password = password
        yield
        self.server.password = None


class Real:
    """A real server."""

    def __init__(self, url: str) -> None:
        self.path = url.removeprefix("unix://")

    def connect(self) -> Client:
        end = socket.socket(socket.AF_UNIX)
        end.settimeout(10)
        end.connect(self.path)
        return Client(end.sendall, lambda: end.recv(1 << 16), end.close)

    def pass_time(self, seconds: float) -> None:
        time.sleep(seconds)

    @contextmanager
    def silence(self, client: Client) -> Iterator[None]:
        client.say("ACL", "SETUSER", "mute", "on", "nopass", "~*", "+@all", "resetchannels")
        client.say("AUTH", "mute", "")
        yield
        client.say("AUTH", "default", "")

    @contextmanager
    def lock(self, operator: Client, password: bytes) -> Iterator[None]:
        operator.say("CONFIG", "SET", "requirepass", password)
        yield
        operator.say("CONFIG", "SET", "requirepass", "")


def simulated(
    dialect: Dialect, scripts: tuple[Script, ...] = EXCLUSIVE, kind: Callable[..., Server] = Server, now: float = 1_800_000_000.0
) -> Bench:
    return Bench(Simulated(kind, dialect, now), scripts)


def real(url: str) -> Bench:
    return Bench(Real(url), EXCLUSIVE)
