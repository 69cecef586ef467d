"""The simulated server: what nobody can ask of a real one. (How it answers commands is compared with real ones in tests/scripts.)"""

from __future__ import annotations

import dataclasses
from typing import Any

import hiredis
import pytest
from scripts.bench import pack

from holdfast.testing.server import ServedConnection, Server

NOW = 1_800_000_000.0
MORE = object()


class Clock:
    """Stands still, unless `step` lets it run on by so much whenever somebody looks."""

    def __init__(self) -> None:
        self.now, self.step = NOW, 0.0

    def __call__(self) -> float:
        self.now += self.step
        return self.now


class Client:
    """What a client sees: `talk` says commands in one write; `heard` is all that has come since it was last looked at."""

    def __init__(self, server: Server) -> None:
        self.came: list[bytes] = []
        self.connection: ServedConnection = server.connect(self.came.append)
        self.reader = hiredis.Reader(notEnoughData=MORE)

    def say(self, *words: bytes | str | int) -> Any:
        [reply] = self.talk(words)
        return reply

    def talk(self, *commands: tuple[bytes | str | int, ...]) -> list[Any]:
        self.connection.feed(b"".join(pack(*command) for command in commands))
        return self.heard()

    def heard(self) -> list[Any]:
        self.reader.feed(b"".join(self.came))
        self.came.clear()
        return list(iter(self.reader.gets, MORE))


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def server(clock: Clock) -> Server:
    return Server(clock, "a" * 40)


@pytest.fixture
def client(server: Server) -> Client:
    return Client(server)


def info(client: Client, *sections: str) -> str:
    return str(client.say("INFO", *sections), "ascii")


def error(reply: object) -> str:
    assert isinstance(reply, hiredis.ReplyError)
    return str(reply)


# Bytes


def test_what_one_feed_makes_is_delivered_at_once(client: Client) -> None:
    client.connection.feed(pack("PING") * 3)
    assert client.came == [b"+PONG\r\n+PONG\r\n+PONG\r\n"]


def test_answers_and_pushes_come_in_the_order_of_the_stream(server: Server, client: Client) -> None:
    other = Client(server)
    other.say("SUBSCRIBE", "c")
    other.connection.feed(pack("GET", "k"))
    client.talk(("PUBLISH", "c", "1"), ("SET", "k", "v"), ("PUBLISH", "c", "2"))
    other.connection.feed(pack("GET", "k"))
    assert other.heard() == [None, [b"message", b"c", b"1"], [b"message", b"c", b"2"], b"v"]


def test_who_is_delivered_to_may_speak_at_once(server: Server, client: Client) -> None:
    """A driver without a network between: it answers a push while the server is still delivering others."""
    said: list[bytes] = []

    def answer(data: bytes) -> None:
        said.append(data)
        if b"ask" in data:
            listener.feed(pack("PUBLISH", "d", "answer"))

    listener = server.connect(answer)
    listener.feed(pack("SUBSCRIBE", "c"))
    client.say("SUBSCRIBE", "d")
    assert client.talk(("PUBLISH", "c", "ask"), ("PING",)) == [1, b"PONG", [b"message", b"d", b"answer"]]
    assert said[-1] == b":1\r\n"


# Connections that end


def test_nothing_is_delivered_after_the_end(server: Server, client: Client) -> None:
    client.say("SUBSCRIBE", "c")
    client.connection.disconnect()
    other = Client(server)
    assert other.say("PUBLISH", "c", "x") == 0
    assert client.talk(("PING",)) == []


def test_what_was_sent_before_the_end_may_be_executed_after_it(server: Server, client: Client) -> None:
    client.connection.feed(pack("SET", "k", "v")[:-5])
    client.connection.disconnect()
    client.connection.feed(pack("SET", "k", "v")[-5:] + pack("SUBSCRIBE", "c"))
    other = Client(server)
    assert other.say("GET", "k") == b"v"
    assert other.say("PUBLISH", "c", "x") == 0
    assert client.heard() == []


def test_an_ended_connection_is_not_told_of_changes(server: Server, client: Client) -> None:
    client.talk(("CLIENT", "TRACKING", "ON"), ("GET", "k"))
    client.connection.disconnect()
    other = Client(server)
    other.talk(("SET", "k", "v"), ("FLUSHALL",))
    assert client.came == []
    assert list(server.connections) == [other.connection]


# Time


def test_a_key_is_there_until_its_deadline_has_passed(clock: Clock, client: Client) -> None:
    client.say("SET", "k", "v", "PX", 100)
    clock.now = NOW + 0.1
    assert client.talk(("GET", "k"), ("PTTL", "k")) == [b"v", 0]
    clock.now = NOW + 0.101
    assert client.talk(("GET", "k"), ("PTTL", "k"), ("DBSIZE",)) == [None, -2, 0]


def test_what_has_run_out_does_not_come_back(clock: Clock, client: Client) -> None:
    client.say("SET", "k", "v", "PX", 100)
    clock.now += 1
    client.say("GET", "k")
    clock.now -= 1
    assert client.say("GET", "k") is None


def test_what_has_run_out_is_free(clock: Clock, client: Client) -> None:
    for command in (
        ("SET", "k", "v", "PX", 100),
        ("HSET", "h", "a", 1),
        ("PEXPIRE", "h", 100),
        ("ZADD", "z", 1, "a"),
        ("PEXPIRE", "z", 100),
    ):
        client.say(*command)
    clock.now += 1
    assert client.say("SET", "k", "w", "NX") == b"OK"
    assert client.talk(("HSET", "h", "b", 1), ("HGETALL", "h"), ("PTTL", "h")) == [1, {b"b": b"1"}, -1]
    assert client.talk(("ZADD", "z", 1, "b"), ("ZRANGE", "z", 0, -1), ("PTTL", "z")) == [1, [b"b"], -1]
    assert client.say("PEXPIRE", "nothing", 100) == 0


def test_the_time_is_exact_to_the_microsecond(clock: Clock, client: Client) -> None:
    for micros in (0, 1, 499_999, 500_001, 999_999):
        clock.now = NOW + micros / 1e6
        assert client.say("TIME") == [b"1800000000", b"%d" % micros]


def test_expiry_stands_still_during_a_script(clock: Clock, client: Client) -> None:
    clock.step = 1.0
    script = """
        redis.call('SET', 'k', 'v', 'PX', 100)
        local first = redis.call('TIME')[1]
        local there, left = redis.call('EXISTS', 'k'), redis.call('PTTL', 'k')
        return {there, left, redis.call('TIME')[1] - first}
    """
    assert client.say("EVAL", script, 0) == [1, 100, 1]
    assert client.say("EXISTS", "k") == 0


def test_the_uptime_follows_the_clock(clock: Clock) -> None:
    client = Client(Server(clock, "a" * 40, uptime=1000))
    for passed, uptime in ((0, 1000), (5, 1005), (-3600, -2600)):
        clock.now = NOW + passed
        assert f"uptime_in_seconds:{uptime}\r\n" in info(client)


def test_a_server_deletes_by_itself_when_it_is_told_to(clock: Clock, server: Server, client: Client) -> None:
    client.talk(("SET", "k", "v", "PX", 100), ("SET", "l", "v"), ("CLIENT", "TRACKING", "ON", "NOLOOP"), ("GET", "k"), ("GET", "l"))
    server.expire()
    assert client.heard() == []
    clock.now += 1
    server.expire()
    assert client.heard() == [[b"invalidate", [b"k"]]]
    assert list(server.data[0].values) == [b"l"]


def test_noloop_also_keeps_from_a_client_what_its_own_command_found_run_out(clock: Clock, server: Server, client: Client) -> None:
    client.talk(("SET", "k", "v", "PX", 100), ("CLIENT", "TRACKING", "ON", "NOLOOP"), ("GET", "k"))
    clock.now += 1
    assert client.talk(("GET", "k"), ("PING",)) == [None, b"PONG"]


# Restarts


def test_one_that_saved_its_data_has_it_as_it_was_then(clock: Clock, server: Server, client: Client) -> None:
    client.talk(("SET", "k", "v", "PX", 500), ("HSET", "h", "a", "1"), ("ZADD", "z", "1", "a"), ("SELECT", 3), ("SET", "in three", "v"))
    saved = server.saved()
    client.talk(("SELECT", 0), ("SET", "k", "later"), ("HSET", "h", "a", "later"), ("ZADD", "z", "2", "a", "1", "later"), ("DEL", "h"))
    again = Client(Server(clock, "b" * 40, data=saved))
    assert again.talk(("GET", "k"), ("PTTL", "k"), ("HGETALL", "h")) == [b"v", 500, {b"a": b"1"}]
    assert again.say("ZRANGE", "z", 0, -1, "WITHSCORES") == [[b"a", 1.0]]
    again.say("SELECT", 3)
    assert again.say("GET", "in three") == b"v"


def test_what_a_server_says_of_its_replicas_and_promotions(server: Server, client: Client) -> None:
    said = info(client, "replication").split()
    assert {"role:master", "connected_slaves:0", "second_repl_offset:-1", "master_replid2:" + "0" * 40} <= set(said)
    server.replicas = 2
    server.role = b"slave"
    assert {"role:slave", "connected_slaves:2"} <= set(info(client, "replication").split())
    first = server.reigns[-1].decode()
    server.promote()
    told = set(info(client, "replication").split())
    assert {"role:master", "second_repl_offset:1", f"master_replid2:{first}"} <= told
    assert f"master_replid:{first}" not in told


# Faults


def test_a_refused_command_is_answered_with_the_line(server: Server, client: Client) -> None:
    server.refuse[b"SET"] = b"OOM command not allowed when used memory > 'maxmemory'."
    assert error(client.say("set", "k", "v")) == "OOM command not allowed when used memory > 'maxmemory'."
    assert client.say("GET", "k") is None
    del server.refuse[b"SET"]
    assert client.say("SET", "k", "v") == b"OK"


def test_also_in_a_script(server: Server, client: Client) -> None:
    server.refuse[b"SET"] = b"READONLY You can't write against a read only replica."
    told = error(client.say("EVAL", "redis.call('DEL', 'k')\nlocal answer = redis.call('SET', 'k', 'v')", 0))
    assert told.startswith("READONLY You can't write against a read only replica.") and told.endswith(":2.")
    assert client.say("EVAL", "return redis.pcall('SET', 'k', 'v').err", 0) == b"READONLY You can't write against a read only replica."
    del server.refuse[b"SET"]
    client.say("SET", "k", "v")
    server.refuse[b"SET"] = b"OOM command not allowed when used memory > 'maxmemory'."
    assert client.say("EVAL", "redis.call('DEL', 'k')\nreturn redis.call('SET', 'k', 'w')", 0) == b"OK", "it has written"
    server.refuse[b"EVAL"] = b"BUSY Redis is busy running a script."
    assert error(client.say("EVAL", "return 1", 0)).startswith("BUSY")


def test_what_info_says_can_be_changed(server: Server, client: Client) -> None:
    server.role, server.policy = b"slave", b"allkeys-lru"
    assert "role:slave\r\n" in info(client) and "maxmemory_policy:allkeys-lru\r\n" in info(client)
    assert client.say("HELLO", 3)[b"role"] == b"slave"


def test_scripts_leave_nothing_behind(client: Client) -> None:
    for script in ("x = 1", "KEYS = 1", "redis = nil", "redis.call = nil", "string.format = nil", "_G.x = 1", "setmetatable(string, {})"):
        assert error(client.say("EVAL", script, 0)).startswith("ERR ")
    assert client.talk(("EVAL", "return {#KEYS, #ARGV}", 1, "k", "a", "b"), ("EVAL", "return {#KEYS, #ARGV}", 0)) == [[1, 2], [0, 0]]


def test_servers_share_a_lua_and_no_scripts(clock: Clock) -> None:
    clients = [Client(Server(clock, run_id * 40)) for run_id in "ab"]
    assert clients[0].connection.server.lua is clients[1].connection.server.lua
    sha = clients[0].say("SCRIPT", "LOAD", "return redis.call('SET', KEYS[1], ARGV[1])")
    assert clients[0].say("EVALSHA", sha, 1, "k", "v") == b"OK"
    assert error(clients[1].say("EVALSHA", sha, 1, "k", "v")).startswith("NOSCRIPT")
    clients[1].say("SCRIPT", "LOAD", "return redis.call('SET', KEYS[1], ARGV[1])")
    assert clients[1].say("GET", "k") is None


def test_a_bug_in_a_command_does_not_pass_for_a_script_s_error(server: Server, client: Client) -> None:
    def broken(connection: ServedConnection) -> bytes:
        raise ZeroDivisionError

    server.commands = {**server.commands, b"PING": dataclasses.replace(server.commands[b"PING"], run=broken)}
    with pytest.raises(ZeroDivisionError):
        client.say("EVAL", "return redis.pcall('PING')", 0)
    assert client.say("EVAL", "return 1", 0) == 1


def test_bytes_that_are_no_command_are_a_bug_of_who_sends_them(client: Client) -> None:
    with pytest.raises(hiredis.ProtocolError):
        client.connection.feed(b"?\r\n")


def test_databases_are_apart(server: Server, client: Client) -> None:
    other = Client(server)
    client.talk(("SELECT", 2), ("SET", "k", "v"))
    assert other.talk(("GET", "k"), ("SELECT", 2), ("GET", "k"), ("EVAL", "return redis.call('GET', 'k')", 0)) == [None, b"OK", b"v", b"v"]
    other.talk(("SELECT", 0), ("FLUSHALL",))
    assert client.say("DBSIZE") == 0
