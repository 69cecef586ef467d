"""A server's answers to the greeting, as bytes, and a connection that hears them.

`Server` makes the bytes, `Ear` writes down what the connection hears.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from holdfast.scripts import PROBE
from holdfast.wire.address import parse
from holdfast.wire.connection import Connection, ConnectionState
from holdfast.wire.handshake import OTHERS, ConnectionSettings
from holdfast.wire.resp import Refusal

INBOX = b"0123456789abcdef" * 2
SCRIPTS = (b"return 1", b"return 2")
GUARD = 32.0
OK = b"+OK\r\n"


def bulk(data: bytes) -> bytes:
    return b"$%d\r\n%b\r\n" % (len(data), data)


def array(*items: bytes) -> bytes:
    return b"*%d\r\n" % len(items) + b"".join(items)


def push(*items: bytes) -> bytes:
    return b">%d\r\n" % len(items) + b"".join(map(bulk, items))


def message(text: bytes) -> bytes:
    return push(b"message", INBOX, text)


def invalidate(keys: bytes) -> bytes:
    """A node tells that keys have changed that it was asked to watch."""
    return b">2\r\n" + bulk(b"invalidate") + keys


MORE = ("server_mode", "redis_mode", "executable", "features", "server_name", *OTHERS)  # what some servers say of themselves, too
# What they say in the sections that the client asks for: of the server, of its replication, and of its memory.
SECTIONS = (
    ("redis_version", "valkey_version", "run_id", "uptime_in_seconds", *MORE),
    ("role", "connected_slaves", "master_replid", "master_replid2", "second_repl_offset"),
    ("maxmemory_policy",),
)
LOADED = b"".join(bulk(b"%040d" % number) for number in range(len(SCRIPTS)))


@dataclass
class Server:
    """What a server answers to the greeting. `facts`: on top of those of a sound one; None: it does not tell."""

    facts: dict[str, object] = field(default_factory=dict)
    time: tuple[bytes, bytes] = (b"1700000000", b"500000")
    setinfo: bytes = OK
    tracking: bytes = OK
    confirms: bool = True
    verbatim: bool = True  # its INFO is text for people, as RESP3 has it
    adopted: bytes = b"_\r\n"  # of which run an operator has said that it is new; most often none
    product: bytes = b"redis"
    probed: bytes = array()  # commands that it refuses, and why

    def info(self, *names: str) -> bytes:
        sound = {
            "redis_version": "7.0.15",
            "run_id": "a" * 40,
            "uptime_in_seconds": 10**6,
            "role": "master",
            "maxmemory_policy": "noeviction",
        }
        facts = {**sound, **self.facts}
        lines = "".join(f"{name}:{facts[name]}\r\n" for name in names if facts.get(name) is not None)
        text = ("# Section\r\n" + lines).encode()
        return b"=%d\r\ntxt:%b\r\n" % (len(text) + 4, text) if self.verbatim else bulk(text)

    def answers(self, database: int = 0) -> list[bytes]:
        """One for each thing said, in order: the confirmation of the subscription is a push, the others are answers."""
        return [
            b"%%2\r\n+server\r\n+%b\r\n+proto\r\n:3\r\n" % self.product,
            *([OK] if database else []),
            OK,
            self.setinfo,
            self.setinfo,
            self.tracking,
            b">3\r\n" + bulk(b"subscribe") + bulk(INBOX) + b":1\r\n" if self.confirms else b"",
            *(self.info(*names) for names in SECTIONS),
            self.adopted,
            bulk(PROBE.sha),
            self.probed,
            array(*map(bulk, self.time)),
        ]

    def greets(self, database: int = 0) -> bytes:
        return b"".join(self.answers(database))


@dataclass
class Asked:
    """A question; `again`: a release; `watch`: the node is to tell of changes."""

    data: bytes
    sent: float = 0.0
    again: bool = False
    watch: bool = False
    expected: bytes = b"\n"
    owner: object = "a caller"


@dataclass
class Ear:
    """Writes down what the connection tells."""

    spoke: bool = False
    log: list[tuple[object, ...]] = field(default_factory=list)

    def heard(self, node: int, question: Asked, reply: object, now: float) -> None:
        self.log.append((node, question.data, f"refused: {reply}" if isinstance(reply, Refusal) else reply, now))

    def told(self, node: int, message: bytes, now: float) -> None:
        self.log.append((node, message, now))

    def changed(self, node: int, key: bytes | None, now: float) -> None:
        self.log.append((node, ("changed", key), now))


def a_connection(
    url: str = "redis://h", *, moves: bool = False, scripts: tuple[bytes, ...] = SCRIPTS, keep: float = 30.0, **options: Any
) -> Connection[Asked]:
    """A connection. `moves`: a function of the user's finds the place."""
    options = {"jitter": 1.0, **options}
    manners = ConnectionSettings(INBOX, name=b"holdfast:me", version=b"1.2", scripts=scripts, keep=keep, **options)
    return Connection(Ear(), 7, parse(url).but(moves=True) if moves else parse(url), manners)


def log(connection: Connection[Asked]) -> list[tuple[object, ...]]:
    assert isinstance(connection.listener, Ear)
    return connection.listener.log


def meet(connection: Connection[Asked], now: float = 0.0, server: Server | None = None) -> None:
    """Connect, and have the server answer the greeting."""
    connection.dial(now)
    connection.connected(now, asked=now)
    connection.take()
    connection.received((server or Server()).greets(), now)


def up(connection: Connection[Asked], now: float = 0.0, server: Server | None = None) -> None:
    """Meet, leave the guard, and have the scripts taken."""
    meet(connection, now, server)
    assert (connection.state, connection.bad) == (ConnectionState.GUARDED, None)
    connection.opened(now)
    connection.take()
    connection.received(LOADED, now)
    assert (connection.state, connection.bad, list(connection.ledger)) == (ConnectionState.UP, None, [])


def promoted(replid: str = "c" * 40, **facts: object) -> Server:
    """A server that was a replica until it was promoted."""
    return Server({"master_replid": replid, "master_replid2": "d" * 40, "second_repl_offset": 277, **facts})


PLAIN = [
    (b"HELLO", b"3"),
    (b"CLIENT", b"SETNAME", b"holdfast:me"),
    (b"CLIENT", b"SETINFO", b"LIB-NAME", b"holdfast"),
    (b"CLIENT", b"SETINFO", b"LIB-VER", b"1.2"),
    (b"CLIENT", b"TRACKING", b"ON", b"OPTIN", b"NOLOOP"),
    (b"SUBSCRIBE", INBOX),
    (b"INFO", b"server"),
    (b"INFO", b"replication"),
    (b"INFO", b"memory"),
    (b"GET", b"{holdfast}:adopted"),
    (b"SCRIPT", b"LOAD", PROBE.source),
    (b"EVALSHA", PROBE.sha, b"1", b"{holdfast}:probe"),
    (b"TIME",),
]


HUGE = b"-ERR \x1b[2J" + b"no" * 10**6 + b"\r\n"


# What the node's clock says at each greeting here.
CLOCK = 1700000000.5
