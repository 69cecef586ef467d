"""The handshake: what a client says first, and which servers it takes for a node."""

from __future__ import annotations

import pytest
from wire.servers import (
    HUGE,
    INBOX,
    MOVES,
    OK,
    OTHER,
    PLAIN,
    Asked,
    Ear,
    Server,
    a_connection,
    command,
    log,
    meet,
    reigning,
    up,
)

from holdfast.errors import ConfigError, message_of
from holdfast.wire import handshake
from holdfast.wire.address import parse
from holdfast.wire.connection import Connection, ConnectionState
from holdfast.wire.handshake import OLDEST, ConnectionSettings
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
    connection = a_connection(url)
    assert connection.take() == b""
    connection.connected(5.0)
    assert connection.take() == b"".join(command(*words) for words in [hello, *select, *PLAIN[1:]])
    assert connection.take() == b""


def test_manners_are_modest_by_default() -> None:
    manners = ConnectionSettings(INBOX)
    connection: Connection[Asked] = Connection(Ear(), 0, parse("redis://h"), manners)
    connection.connected(0.0)
    said = connection.take()
    assert command(b"CLIENT", b"SETNAME", b"holdfast") in said and command(b"CLIENT", b"SETINFO", b"LIB-VER", b"0") in said
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


REFUSALS = {  # what is refused: which answer that is, and what is to be done about it
    "HELLO": (0, "it refuses HELLO 3: check user and password, and that the server is Redis 6.2 or Valkey 7.2 at least (RESP3 is needed)"),
    "SELECT": (1, "it refuses the database"),
    "SUBSCRIBE": (6, "it refuses SUBSCRIBE or INFO: the user needs both"),
    "INFO server": (7, "it refuses SUBSCRIBE or INFO: the user needs both"),
    "INFO memory": (9, "it refuses SUBSCRIBE or INFO: the user needs both"),
    "SCRIPT LOAD": (11, "it does not take the scripts"),
    "TIME": (13, "TIME is refused"),
}


@pytest.mark.parametrize("which", REFUSALS)
def test_a_refusal_is_a_clear_cause(which: str) -> None:
    place, advice = REFUSALS[which]
    connection = a_connection("redis://:pw@h/1")
    connection.connected(0.0)
    answers = Server().answers(1)
    answers[place] = b"-NOPERM this user has no permissions\r\n"
    connection.received(b"".join(answers), 0.0)
    assert type(connection.bad) is ConfigError
    told, _, rule = message_of(connection.bad).partition(". Grant it: ")
    assert told == f"{advice}: NOPERM this user has no permissions"
    assert rule.startswith("ACL SETUSER default ") or which == "HELLO"
    assert connection.state is ConnectionState.GREETING  # it is not to be spoken to


def test_a_login_that_is_refused_is_told_as_such() -> None:
    connection = a_connection("redis://:pw@h")
    connection.connected(0.0)
    connection.received(b"-WRONGPASS invalid username-password pair\r\n", 0.0)
    assert message_of(connection.bad).startswith("it refuses our user or password: WRONGPASS invalid")


def test_a_server_that_knows_no_hello_repeats_the_password_and_we_do_not() -> None:
    connection = a_connection("redis://:pa55w0rd@h")
    connection.connected(0.0)
    connection.received(b"-ERR unknown command `HELLO`, with args beginning with: `3`, `AUTH`, `default`, `pa55w0rd`, \r\n", 0.0)
    assert message_of(connection.bad).endswith("(RESP3 is needed): ERR unknown command `HELLO`")


def test_a_server_that_speaks_tls_is_told_so() -> None:
    connection = a_connection()
    connection.connected(0.0)
    connection.received(memoryview(b"\x15\x03\x01\x00\x02\x02\x46"), 0.0)  # an alert
    assert type(connection.bad) is ConfigError and "it speaks TLS on this port: write rediss://" in str(connection.bad)


PASSING = {
    "loading": (11, "LOADING Redis is loading the dataset in memory"),
    "busy": (7, "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE."),
    "full": (0, "ERR max number of clients reached"),
    "a replica that lost its master": (11, "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'."),
    "a cluster that is down": (11, "CLUSTERDOWN The cluster is down"),
    "moving": (11, "TRYAGAIN Multiple keys request during rehashing of slot"),
}


@pytest.mark.parametrize("which", PASSING)
def test_a_refusal_that_time_will_mend_is_no_config_error(which: str) -> None:
    place, refusal = PASSING[which]
    connection = a_connection("redis://:pw@h/1")
    connection.connected(0.0)
    answers = Server().answers(1)
    answers[place] = f"-{refusal}\r\n".encode()
    connection.received(b"".join(answers), 0.0)
    assert type(connection.bad) is ConnectionError and str(connection.bad) == refusal


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


def test_a_server_that_confirms_no_subscription_is_refused() -> None:
    # Rule T2.
    connection = a_connection()
    meet(connection, 0.0, Server(confirms=False))
    assert "SUBSCRIBE" in str(connection.bad) and connection.state is ConnectionState.GREETING
    connection.broke(1.0)
    up(connection, 2.0)
    connection.broke(3.0)
    meet(connection, 4.0, Server(confirms=False))  # each connection has a subscription of its own
    assert "SUBSCRIBE" in str(connection.bad) and connection.state is ConnectionState.GREETING


@pytest.mark.parametrize("which", OTHER)
def test_a_server_that_is_neither_redis_nor_valkey_is_refused_by_name(which: str) -> None:
    facts, product, name = OTHER[which]
    connection = a_connection()
    meet(connection, 0.0, Server(dict(facts), product=product))
    assert type(connection.bad) is ConfigError and connection.state is ConnectionState.GREETING
    assert str(connection.bad).startswith(f"its server is {name}, which is neither Redis nor Valkey")


@pytest.mark.parametrize("hello", [b"+OK\r\n", b"%1\r\n+server\r\n:5\r\n", b"%1\r\n+proto\r\n:3\r\n"])
def test_a_server_that_does_not_name_itself_is_judged_by_its_version(hello: bytes) -> None:
    connection = a_connection()
    connection.connected(0.0)
    connection.received(b"".join([hello, *Server().answers()[1:]]), 0.0)
    assert (connection.state, connection.bad) == (ConnectionState.GUARDED, None)


@pytest.mark.parametrize("version", ["6.2", "6.2.0", "6.10.1", "7.0.15", "10.0", "255.255.255"])
def test_a_server_that_is_new_enough(version: str) -> None:
    assert OLDEST == (6, 2)
    up(a_connection(), 0.0, Server({"redis_version": version}))


def test_what_a_wrong_place_says_does_not_last() -> None:
    connection = reigning(url=MOVES)
    meet(connection, 100.0, Server({"role": "slave"}))
    assert isinstance(connection.bad, ConnectionError)
    assert str(connection.bad) == "the server that was found for it is a replica: where the node is will be asked again"
    for told in (b"-READONLY You can't write\r\n", b"-ERR Error running script: -READONLY no\r\n"):
        connection = a_connection(url=MOVES)
        up(connection, 100.0)
        connection.say(Asked(b"?"))
        connection.received(told, 100.1)
        assert isinstance(connection.bad, ConnectionError)
        assert str(connection.bad).startswith("it has become a replica: where the node is will be asked")
    connection = a_connection(url=MOVES)
    up(connection, 100.0)
    connection.say(Asked(b"?", 109.0))
    connection.received(b"-NOREPLICAS Not enough\r\n", 109.0)
    assert connection.bad is None, "it is asked again where the node is, in any case"


@pytest.mark.parametrize(
    "error, cause",
    [
        ("READONLY You can't write against a read only replica. script: on @user_script:1.", "it has become a replica"),
        ("ERR Error running script (call to f_1): @user_script:1: -READONLY You can't write against a replica.", "it has become a replica"),
        ("MOVED 3999 127.0.0.1:6381", "it belongs to a cluster with several shards"),
        ("ASK 3999 127.0.0.1:6381", "it belongs to a cluster with several shards"),
    ],
)
def test_a_node_that_has_become_something_else_is_hung_up_with_the_cause(error: str, cause: str) -> None:
    connection = a_connection()
    up(connection)
    connection.say(Asked(b"?"))
    connection.received(f"-{error}\r\n".encode(), 1.0)
    assert type(connection.bad) is ConfigError
    assert message_of(connection.bad).startswith(cause) and message_of(connection.bad).endswith(error)
    assert log(connection) == []


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


def test_a_sentinel_is_no_node() -> None:
    connection = a_connection()
    meet(connection, 100.0, Server({"redis_mode": "sentinel", "role": "sentinel"}))
    assert isinstance(connection.bad, ConfigError) and "it is a Sentinel: write redis+sentinel://host:26379/NAME" in str(connection.bad)
