"""The handshake: what a client says first, and which servers it takes for a node.

What becomes of a refusal is told by conversations: `tests/wire/handshake/*.txt`.
"""

from __future__ import annotations

import pytest
from scripts.bench import pack
from wire.servers import HUGE, INBOX, OK, PLAIN, Asked, Ear, Server, a_connection, log, meet

from holdfast.errors import ConfigError, message_of
from holdfast.wire import handshake
from holdfast.wire.address import parse
from holdfast.wire.connection import Connection, ConnectionState
from holdfast.wire.handshake import ConnectionSettings
from holdfast.wire.resp import Malformed, Refusal


@pytest.mark.parametrize(
    "url, hello, select",
    [
        ("redis://h", (b"HELLO", b"3"), []),
        ("redis://h/0", (b"HELLO", b"3"), []),
        ("redis://:p%20w@h", (b"HELLO", b"3", b"AUTH", b"default", b"p w"), []),
        ("redis://me@h", (b"HELLO", b"3", b"AUTH", b"me", b""), []),
        ("redis://m%C3%A9:%00%C3%BC@h/12", (b"HELLO", b"3", b"AUTH", "mé".encode(), b"\0" + "ü".encode()), [(b"SELECT", b"12")]),
        ("unix:///s?db=1", (b"HELLO", b"3"), [(b"SELECT", b"1")]),
    ],
)
def test_the_greeting_is_one_write(url: str, hello: tuple[bytes, ...], select: list[tuple[bytes, ...]]) -> None:
    # Rule T2.
    connection = a_connection(url)
    assert connection.take() == b""
    connection.connected(5.0)
    assert connection.take() == b"".join(pack(*words) for words in [hello, *select, *PLAIN[1:]])
    assert connection.take() == b""


def test_manners_are_modest_by_default() -> None:
    manners = ConnectionSettings(INBOX)
    connection: Connection[Asked] = Connection(Ear(), 0, parse("redis://h"), manners)
    connection.connected(0.0)
    said = connection.take()
    assert pack(b"CLIENT", b"SETNAME", b"holdfast") in said and pack(b"CLIENT", b"SETINFO", b"LIB-VER", b"0") in said
    assert (manners.guard, manners.patience, manners.keep, manners.scripts, manners.jitter) == (None, 1.0, 60.0, [], 0.5)


@pytest.mark.parametrize("database", [0, 1])
@pytest.mark.parametrize("verbatim", [True, False])
@pytest.mark.parametrize("setinfo", [OK, b"-ERR Unknown subcommand or wrong number of arguments for 'SETINFO'\r\n", b"-NOPERM no\r\n"])
@pytest.mark.parametrize("tracking", [OK, b"-NOPERM this user has no permissions to run the 'client|tracking' command\r\n"])
def test_a_sound_server_is_introduced(database: int, verbatim: bool, setinfo: bytes, tracking: bytes) -> None:
    connection = a_connection(f"redis://h/{database}")
    connection.connected(100.0)
    connection.received(Server({"valkey_version": "8.1.0"}, verbatim=verbatim, setinfo=setinfo, tracking=tracking).greets(database), 101.0)
    assert (connection.state, connection.bad, list(connection.ledger), log(connection)) == (ConnectionState.GUARDED, None, [], [])
    assert connection.server.facts == {
        "redis_version": "7.0.15",
        "valkey_version": "8.1.0",
        "run_id": "a" * 40,
        "uptime_in_seconds": "1000000",
        "role": "master",
        "maxmemory_policy": "noeviction",
    }
    assert connection.server.run_id == "a" * 40
    assert connection.server.ahead == 1700000000.5 - 100.5  # the node's clock less ours, in the middle between asking and hearing
    assert connection.server.blur == 0.5  # by which that may be wrong: half of what asking took


def test_of_what_a_server_says_of_itself_little_is_kept() -> None:
    connection = a_connection()
    meet(connection, 0.0, Server({"valkey_version": "9\x1b[2J" + "x" * 10**6}))
    assert connection.server.facts["valkey_version"].startswith("9\\x1b[2Jxxx") and len(connection.server.facts["valkey_version"]) < 500


@pytest.mark.parametrize("place, word", [(0, "HELLO"), (7, "INFO")])
def test_what_a_node_refuses_with_is_short_and_can_be_printed(place: int, word: str) -> None:
    connection = a_connection()
    connection.connected(0.0)
    answers = Server().answers()
    answers[place] = HUGE
    connection.received(b"".join(answers), 0.0)
    assert type(connection.bad) is ConfigError
    bad = message_of(connection.bad)
    assert "ERR \\x1b[2Jnono" in bad and bad.endswith("...") and len(bad) < 600


def test_a_passing_refusal_is_short_too() -> None:
    connection = a_connection()
    connection.connected(0.0)
    connection.received(b"-LOADING " + HUGE[1:], 0.0)
    assert type(connection.bad) is ConnectionError and len(str(connection.bad)) < 500


UNFIT: dict[str, tuple[dict[str, object], str]] = {
    "too old": ({"redis_version": "6.0.16"}, "its server is 6.0.16: Redis 6.2 or Valkey 7.2 is the oldest that works"),
    "much too old": ({"redis_version": "5.9"}, "its server is 5.9:"),
    "a valkey as old": ({"redis_version": "6.1.0", "valkey_version": "0.9"}, "its server is 0.9:"),
    "of no version": ({"redis_version": None}, "its server is of no known version:"),
    "of a strange version": ({"redis_version": "x.7"}, "its server is x.7:"),
    "a replica": ({"role": "slave"}, "it is a replica: use masters that are independent of each other"),
    "of no role": ({"role": None}, "it is a replica:"),
    "of no run_id": ({"run_id": None}, "it is no Redis or Valkey server, or a proxy hides what it says of itself (SUBSCRIBE, INFO)"),
    "of no uptime": ({"uptime_in_seconds": None}, "it is no Redis or Valkey server, or a proxy hides"),
    "of an uptime that is none": ({"uptime_in_seconds": "long"}, "it is no Redis or Valkey server, or a proxy hides"),
    "of an uptime in another notation": ({"uptime_in_seconds": "1e9"}, "it is no Redis or Valkey server, or a proxy hides"),
    "of an uptime in other digits": ({"uptime_in_seconds": "\u0661\u0662"}, "it is no Redis or Valkey server, or a proxy hides"),
    "of an endless uptime": ({"uptime_in_seconds": "1" * 5000}, "it is no Redis or Valkey server, or a proxy hides"),
    "of a version in other digits": ({"redis_version": "\u00b2.8"}, "its server is \u00b2.8:"),
    "of an empty run_id": ({"run_id": ""}, "it is no Redis or Valkey server, or a proxy hides"),
}


@pytest.mark.parametrize("which", UNFIT)
def test_a_server_that_cannot_work_is_a_clear_cause(which: str) -> None:
    # Rule T9.
    facts, cause = UNFIT[which]
    connection = a_connection()
    meet(connection, 0.0, Server(facts))
    assert type(connection.bad) is ConfigError
    assert str(connection.bad).startswith(cause)
    assert connection.state is ConnectionState.GREETING


@pytest.mark.parametrize(
    "facts, reign",
    [
        ({"run_id": "a"}, ""),
        ({"run_id": "a", "second_repl_offset": "-1", "master_replid2": "0" * 40}, ""),
        ({"run_id": "a", "second_repl_offset": "7"}, "a"),
        ({"run_id": "a", "master_replid": "c", "master_replid2": "d"}, "c"),
    ],
)
def test_what_the_time_of_a_promoted_server_is_known_by(facts: dict[str, str], reign: str) -> None:
    assert handshake.reign(facts) == reign


def test_how_many_replicas_and_shards_there_are() -> None:
    assert [handshake.replicas(it) for it in ({}, {"connected_slaves": "2"})] == [0, 2]
    assert [handshake.cluster_size(it) for it in (b"cluster_size:3\r\n", b"cluster_state:ok\r\n", None)] == [3, 0, 0]


def test_after_which_refusals_a_connection_ends() -> None:
    over = Refusal("LOADING Redis is loading")
    assert handshake.ends(over, moves=False) is over
    assert handshake.ends(Refusal("ERR no"), moves=False) is None


def test_what_is_not_of_the_protocol() -> None:
    assert type(handshake.foreign(b"HTTP/1.1 400", Malformed("no"))) is ConnectionError
    assert type(handshake.foreign(handshake.TLS_ALERT, Malformed("no"))) is ConfigError
