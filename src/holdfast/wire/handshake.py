"""How a client introduces itself to a server, and what it makes of the answers: which server is
this, and can it be a node?

Knows what servers of several products say of themselves. Must not know what else is said on a
connection, or when.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from math import inf

from ..errors import ConfigError, readable
from ..scripts import PROBE
from . import rights
from .address import Address

# The oldest server: GET as an option of SET, PXAT.
OLDEST = (6, 2)
# The first bytes from a server that expects TLS and got none.
TLS_ALERT = b"\x15\x03"
# An operator's word about a server that is new: the run id that this key holds began empty, and has
# never granted a lock. A snapshot, a replica or a restart that inherits the key has another run id.
ADOPTED = b"{holdfast}:adopted"
# Errors after which the connection has to start over.
ALONE = ("NOSCRIPT", "LOADING", "NOAUTH", "MASTERDOWN")
# Redis 6.2 puts its own words before the error code of a command that a script has called.
# (A text, which `re` compiles at its first use.)
READ_ONLY = "(?:^|-)READONLY "
# A cluster's answers for a key that lives on another of its shards.
ELSEWHERE = ("MOVED ", "ASK ")
# Servers that speak the protocol of Redis and report a Redis version for compatibility. INFO names
# the product in a field of its own.
OTHERS = {
    "dragonfly_version": "Dragonfly",
    "garnet_version": "Garnet",
    "kvrocks_version": "Apache Kvrocks",
    "pika_version": "Pika",
    "redict_version": "Redict",
}
# What is kept of all that a server says of itself.
FACTS = frozenset((
    "connected_slaves",
    "executable",
    "features",
    "master_replid",
    "master_replid2",
    "maxmemory_policy",
    # Only if the server refuses writes for want of replicas (min-replicas-to-write).
    "min_slaves_good_slaves",
    "redis_mode",
    "redis_version",
    "role",
    "run_id",
    "second_repl_offset",
    "server_mode",
    "server_name",
    "uptime_in_seconds",
    "valkey_version",
    *OTHERS,
))  # fmt: skip
# By the server's error code, then by what was asked.
_ADVICE = {
    "NOAUTH": "it refuses us, password required (redis://user:password@host, or credentials=)",
    "WRONGPASS": "it refuses our user or password",
    "HELLO": (
        "it refuses HELLO 3: check user and password, and that the server is Redis 6.2 or Valkey 7.2 at least "
        "(RESP3 is needed)"
    ),
    "SELECT": "it refuses the database",
    "INFO": "it refuses SUBSCRIBE or INFO: the user needs both",
    "SCRIPT LOAD": "it does not take the scripts",
}
ASKED_AGAIN = "where the node is will be asked again"
SHARDED = (
    "it belongs to a cluster {}, where a name has one shard and no majority: name servers that are independent of "
    "each other"
)
_WHOLE = "-?[0-9]{1,18}"


class Greeting:
    """A question of the connection's own, whose answer no claim waits for. `word`: which."""

    __slots__ = ("data", "sent", "word")
    again = False
    owner = None
    expected = b"\n"

    def __init__(self, word: str, sent: float, data: bytes) -> None:
        self.word = word
        self.sent = sent
        self.data = data


class ConnectionSettings:
    """How a client's connections behave, all alike.

    `inbox`: the channel of its engine; `name`: of its connections; `guard`: seconds, None: off;
    `short_guard`: seconds, None: always the whole one; `marked`: seconds for which a mark lasts;
    `patience`: seconds that a node may owe an answer, which
    changes with the claims that live; `timeout`: seconds that a connection may take to be made, and
    that a greeting may take to be answered; `prompt`: seconds within which a node's clock has to be
    told, or it is asked again; `prefix`: of the client's keys; `scripts`: the sources that each
    connection loads, to which the engine adds what its client uses later; `jitter`: 0 to 1, this
    client's own; `reigns`: how the keys begin under which nodes keep notes of promotions; `basic`:
    the bytes of a probe for plain locks; `probe`: of the probe for what this client uses.
    """

    def __init__(
        self,
        inbox: bytes,
        *,
        name: bytes = b"holdfast",
        version: bytes = b"0",
        guard: float | None = None,
        short_guard: float | None = None,
        marked: float = inf,
        patience: float = 1.0,
        timeout: float = 1.0,
        prompt: float = inf,
        keep: float = 60.0,
        scripts: Sequence[bytes] = (),
        jitter: float = 0.5,
        prefix: str = "",
    ) -> None:
        self.inbox = inbox
        self.name = name
        self.version = version
        self.guard = guard
        self.short_guard = short_guard
        self.marked = marked
        self.patience = patience
        self.keep = keep
        self.scripts = list(scripts)
        self.jitter = jitter
        self.timeout = timeout
        self.prompt = prompt
        self.prefix = prefix
        self.reigns = b"{%b}:reign:" % prefix.encode()
        # What probes ask at least, and what they ask.
        self.basic = self.probe = rights.question(prefix)


def greeting(address: Address, settings: ConnectionSettings) -> Iterator[tuple[str, Sequence[bytes]]]:
    """Yield what a client says first: what its answer is known by, and the words.

    A probe and the question for the time follow.
    """
    hello = [b"HELLO", b"3"]
    if address.user or address.password:
        hello += [b"AUTH", (address.user or "default").encode(), address.password.encode()]
    yield "HELLO", hello
    if address.database:
        yield "SELECT", (b"SELECT", b"%d" % address.database)
    yield "CLIENT SETNAME", (b"CLIENT", b"SETNAME", settings.name)
    yield "CLIENT SETINFO", (b"CLIENT", b"SETINFO", b"LIB-NAME", b"holdfast")
    yield "CLIENT SETINFO", (b"CLIENT", b"SETINFO", b"LIB-VER", settings.version)
    yield "CLIENT TRACKING", (b"CLIENT", b"TRACKING", b"ON", b"OPTIN", b"NOLOOP")
    yield "SUBSCRIBE", (b"SUBSCRIBE", settings.inbox)
    for section in (b"server", b"replication", b"memory"):
        yield "INFO", (b"INFO", section)
    yield "ADOPTED", (b"GET", ADOPTED)
    yield "SCRIPT LOAD", (b"SCRIPT", b"LOAD", PROBE.source)


def unfit(
    facts: dict[str, str], product: str, address: Address, subscribed: bool
) -> ConfigError | ConnectionError | None:
    """Why the server can never be a node, if that is so, or not now."""
    stranger = other_product(facts, product)
    version = facts.get("valkey_version") or facts.get("redis_version", "")
    if stranger and not address.unproven:
        return ConfigError(
            f"its server is {stranger}, which is neither Redis nor Valkey. Nobody has shown that locks are "
            "safe on it: use Redis 6.2 or "
            "newer, or Valkey 7.2 or newer"
        )
    if _version(facts.get("redis_version", "")) < OLDEST:
        return ConfigError(
            f"its server is {version or 'of no known version'}: Redis 6.2 or Valkey 7.2 is the oldest that works"
        )
    if facts.get("role") != "master":
        if address.moves:
            # A failover is under way, or who was asked does not know of it yet.
            return ConnectionError(f"the server that was found for it is a replica: {ASKED_AGAIN}")
        return ConfigError("it is a replica: use masters that are independent of each other")
    if not subscribed or not facts.get("run_id") or number(facts.get("uptime_in_seconds")) is None:
        return ConfigError(
            "it is no Redis or Valkey server, or a proxy hides what it says of itself (SUBSCRIBE, INFO)"
        )
    return None


def sentinel(facts: dict[str, str]) -> ConfigError | None:
    """Why a Sentinel is no node, if the server is one."""
    if mode(facts) != "sentinel":
        return None
    return ConfigError("it is a Sentinel: write redis+sentinel://host:26379/NAME for the group that it watches")


def told_of(info: str) -> dict[str, str]:
    """Return what is kept of a section of INFO."""
    lines = (it.partition(":") for it in info.splitlines())
    return {key: readable(value) for key, _, value in lines if key in FACTS}


def _version(text: str) -> tuple[int, ...]:
    return tuple(number(it) or 0 for it in text.split(".")[:2])


def time_of(reply: object) -> float | None:
    """Seconds since 1970, by the answer to TIME; None if it is none."""
    seconds, microseconds = (
        (number(it) for it in reply) if isinstance(reply, list) and len(reply) == 2 else (None, None)
    )
    return None if seconds is None or microseconds is None else seconds + microseconds / 1e6


def number(text: object) -> int | None:
    """The whole number that a text is, if it is one that a server would write."""
    if isinstance(text, bytes):
        text = text.decode("ascii", "replace")
    return int(text) if isinstance(text, str) and re.fullmatch(_WHOLE, text) else None


def mode(facts: dict[str, str]) -> str:
    """How the server says that it runs: standalone, cluster or sentinel."""
    return facts.get("server_mode") or facts.get("redis_mode", "")


def replicas(facts: dict[str, str]) -> int:
    """How many replicas the server has, as far as it says."""
    return number(facts.get("connected_slaves")) or 0


def clustered(facts: dict[str, str]) -> bool:
    """Whether the server belongs to a cluster."""
    return mode(facts) == "cluster"


def reign(facts: dict[str, str]) -> str:
    """What the server's time as a primary is known by, if it was promoted: its replication id,
    which is new with each promotion. Else "".

    A server that never was a replica has no second replication id. (One that was restarted with its
    data may have one, too. That it is left alone for a guard costs once, and then stands in a
    note.)
    """
    offset = number(facts.get("second_repl_offset"))
    if (offset is None or offset < 0) and not facts.get("master_replid2", "").strip("0"):
        return ""
    return facts.get("master_replid") or facts["run_id"]


def other_product(facts: dict[str, str], product: str) -> str:
    """The name of the server's product, if it is neither Redis nor Valkey."""
    for field, name in OTHERS.items():
        if field in facts:
            return name
    # KeyDB says that it is Redis 6.3, a version that Redis never had. Its program and its features
    # give it away.
    if facts.get("executable", "").rpartition("/")[2].startswith("keydb") or "cluster_mget" in facts.get(
        "features", ""
    ):
        return "KeyDB"
    for name in (product, facts.get("server_name", "")):
        if name and name not in ("redis", "valkey"):
            return name
    return ""


def cluster_size(reply: object) -> int:
    """How many shards serve slots in the node's cluster.

    0 if the server does not tell, or the user may not ask.
    """
    text = reply.decode("utf-8", "replace") if isinstance(reply, bytes) else ""
    found = re.search(r"^cluster_size:([0-9]{1,9})\r?$", text, re.MULTILINE)
    return int(found[1]) if found else 0


def foreign(data: bytes | bytearray | memoryview, error: Exception) -> Exception:
    """Return the error for bytes that are not of the servers' protocol."""
    if bytes(data[:2]) == TLS_ALERT:
        return ConfigError("it speaks TLS on this port: write rediss:// for redis://, or valkeys:// for valkey://")
    return ConnectionError(f"it does not speak the servers' protocol: {error}")


def refused(word: str, told: str, user: str, prefix: str) -> Exception:
    """Return the error for a greeting that a node has refused."""
    if rights.passing(told) is not None:
        return ConnectionError(told)
    # A server that does not know HELLO repeats all of it, the password too.
    if word == "HELLO":
        told = told.partition(", with args")[0]
    advice = _ADVICE.get(told.partition(" ")[0]) or _ADVICE.get(word, f"{word} is refused")
    if told.startswith("NOPERM") and word != "HELLO":
        commands = ("SUBSCRIBE", "INFO") if word == "INFO" else (word,)
        return rights.granted(f"{advice}: {told}", dict.fromkeys(commands, told), user, prefix)
    return ConfigError(f"{advice}: {told}")


def ends(refusal: Exception, moves: bool) -> Exception | None:
    """Why the connection has to end after a node refused a command, if it has to.

    `moves`: the node's place is found before each connection.
    """
    told = str(refusal)
    # Restarted behind a proxy, flushed, or not ready.
    if told.startswith(ALONE):
        return refusal
    if moves and re.search(READ_ONLY, told):
        return ConnectionError(f"it has become a replica: {ASKED_AGAIN}: {told}")
    if re.search(READ_ONLY, told):
        return ConfigError(
            f"it has become a replica, and a replica takes no locks. Name the address of its primary: {told}"
        )
    if told.startswith(ELSEWHERE):
        return ConfigError(f"{SHARDED.format('with several shards')}: {told}")
    return None
