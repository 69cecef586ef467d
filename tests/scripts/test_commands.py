"""Command by command: the simulated server answers as the real one of its kind does."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import hiredis
import pytest
from scripts.bench import Bench, Client, Words, real, simulated

from holdfast.testing.commands import COMMANDS
from holdfast.testing.values import REDIS_6_2, REDIS_7_0, VALKEY_9


@pytest.fixture
def pair(real_url: str) -> Iterator[tuple[Bench, Bench]]:
    """A real server, and a simulated one of the same kind at the same time of day."""
    with closing(real(real_url)) as left:
        version = tuple(int(part) for part in left.operator.say("HELLO", 3)[b"version"].split(b"."))
        dialect = REDIS_6_2 if version < (7,) else REDIS_7_0 if version < (7, 2) else VALKEY_9
        with closing(simulated(dialect, now=left.now() / 1000)) as right:
            yield left, right


def shown(reply: Any) -> Any:
    """A reply, with its kind; of an error, which each version words as it likes, the code."""
    if isinstance(reply, hiredis.ReplyError):
        return "error", str(reply).split()[0]
    if isinstance(reply, hiredis.PushNotification):
        return "push", list(reply)
    return type(reply).__name__, reply


def compare(left: Client, right: Client, *commands: Words) -> None:
    """Both are told the commands, one after the other, and answer alike."""
    for command in commands:
        assert [shown(it) for it in right.told(command)] == [shown(it) for it in left.told(command)], command


def words(text: str) -> list[Words]:
    """Commands as people type them. ~ stands for an empty word."""
    commands = text.strip().replace("\n", ";").split(";")
    return [tuple("" if word == "~" else word for word in command.split()) for command in commands]


STRINGS = words("""
    GET k; SET k v; GET k; SET k ~; GET k; EXISTS k; SET k v NX; SET l v NX; SET m v XX; SET k w XX; GET k; SET k x GET; SET n x GET
    SET k y XX GET; SET o y XX GET; SET k v NX XX; SET k v PX 5 PXAT 9; SET k v FOO; SET k v PX; SET k v NX NX; SET k v px 100000 nx
    SET k v PX 0; SET k v PX -1; SET k v PX x; SET k v PX 1.5; SET k v PX +5; SET k v PX 05; SET k v PX 9223372036854775808
    SET k v PXAT 0; SET k v PXAT 1; EXISTS k; GET k; SET k v PXAT 1 GET; GET; GET a b; SET k; get l; MGET k no l k; MGET
    SET k v PX 100000; SET k v
    PTTL k; DEL k k l; DEL nothing; EXISTS; DEL
    """)
KEYS = words("""
    SET k v; SET l v; EXISTS k l k no; TYPE k; TYPE no; PTTL k; PTTL no; PEXPIRE k 0; EXISTS k; SET k v; PEXPIRE k -5; EXISTS k
    SET k v; PEXPIREAT k 1; EXISTS k; PEXPIRE no 5; PEXPIRE l x; PEXPIREAT l x; DBSIZE; SCAN 0 COUNT 100; SCAN x; SCAN 0 COUNT x
    SCAN 0 FOO x; SCAN 0 MATCH l* COUNT 50; SCAN 0 MATCH x*; SCAN 0 TYPE string; SCAN 0 TYPE hash; FLUSHALL x; FLUSHALL SYNC; DBSIZE
    FLUSHALL; NOSUCH a b; TYPE; PEXPIRE k; DBSIZE x
    """)
HASHES = words("""
    HSET h a 1; HSET h a 2 b 3; HSET h a; HSET h a 1 b; HGET h a; HGET h no; HGET no no; HGETALL h; HGETALL no; TYPE h; HDEL h a no
    HDEL no a; HGETALL h; HDEL h b b; EXISTS h; HSET h a ~; HGET h a; PEXPIRE h 100000; HSET h b 1; HDEL h a b; HSET h a 1; PTTL h
    """)
ZSETS = words("""
    ZADD z 2 b 1 a; ZADD z 2 b; ZADD z 3 b 3 c; ZADD z x a; ZADD z 1; ZADD z 1 a 2; ZADD z nan a; ZADD z inf i; ZADD z 1e3 e
    ZADD z 9007199254740990 t 9007199254740991 u; ZADD z 0.5 h; ZADD z GT 1 b 9 b 1 new; ZSCORE z b; ZADD z gt 5 b; ZSCORE z b
    ZSCORE z no; ZSCORE no no; ZSCORE z t; ZSCORE z i; ZCARD z; ZCARD no; ZRANGE z 0 -1; ZRANGE z 0 -1 WITHSCORES; ZRANGE z 1 2
    ZRANGE z -2 -1; ZRANGE z -100 1; ZRANGE z 3 1; ZRANGE z 50 60; ZRANGE z 0 -100; ZRANGE z -3 100; ZRANGE z 0 x; ZRANGE no 0 -1
    ZRANGE z 0 -1 FOO; ZRANK z a; ZRANK z t; ZRANK z no; ZRANK no no; ZADD same 7 c 7 a 7 b 7 B; ZRANGE same 0 -1; ZPOPMIN same
    ZPOPMIN z; ZPOPMIN no; ZREM z b no c; ZREM z b; ZREM no a; ZREMRANGEBYSCORE z -inf 1; ZREMRANGEBYSCORE z 2 inf; EXISTS z
    ZREMRANGEBYSCORE no 0 1; ZREMRANGEBYSCORE z x 1; ZREMRANGEBYSCORE same 0 1; ZREM same a b c; TYPE same; EXISTS same; ZRANGE z 0
    """)
WRONG_TYPES = words("""
    SET s v; HSET h a 1; ZADD z 1 a; TYPE s; TYPE h; TYPE z; GET h; GET z; MGET s h z no
    SET h x NX; SET h x GET; HGET s a; HGETALL z; HSET s a 1
    HDEL z a; ZADD s 1 a; ZADD h x a; ZREM h a; ZPOPMIN s; ZRANGE h 0 -1; ZRANK s a; ZSCORE h a; ZCARD s; ZREMRANGEBYSCORE s 0 1
    SET h x; GET h; PTTL z
    """)
CHANNELS = words("""
    UNSUBSCRIBE; UNSUBSCRIBE no; SUBSCRIBE a b; SUBSCRIBE a; PUBLISH a x; PUBLISH c x; GET still-works; UNSUBSCRIBE a; PUBLISH a x
    SUBSCRIBE c; UNSUBSCRIBE b; UNSUBSCRIBE; PUBLISH c x; SUBSCRIBE; PUBLISH a; PUBLISH a b c
    """)
HANDSHAKE = [
    *words("""
    HELLO 4; HELLO 3 FOO; HELLO 3 AUTH default; HELLO 3 SETNAME; HELLO 3 AUTH nobody x; AUTH x; AUTH default x; AUTH nobody x; AUTH
    AUTH a b c; CLIENT GETNAME; CLIENT SETNAME me; CLIENT GETNAME; CLIENT SETNAME ~; CLIENT GETNAME; CLIENT NOSUCH; CLIENT
    CLIENT SETINFO LIB-NAME x; CLIENT SETINFO NO x; SELECT 0; SELECT 1; SET in-one 1; SELECT 0; GET in-one; SELECT 99; SELECT x; PING
    PING hi; PING a b; TIME x; INFO nosuch; QUICK
    """),
    ("CLIENT", "SETNAME", "a b"),
]
TRACKING = words("""
    CLIENT CACHING YES; CLIENT TRACKING x; CLIENT TRACKING ON FOO; CLIENT TRACKING ON OPTIN NOLOOP; CLIENT CACHING x
    CLIENT CACHING YES; GET k; SET k 1; CLIENT TRACKING OFF; CLIENT CACHING YES; CLIENT TRACKING ON OPTIN; CLIENT CACHING YES; GET k
    SET k 2; SET k 3; CLIENT CACHING YES; EXISTS k l; SET l 1; DEL l; CLIENT CACHING YES; PING; GET k; SET k 4; FLUSHALL
    CLIENT TRACKING OFF; CLIENT TRACKING ON; GET k; SET k 5; FLUSHALL; CLIENT TRACKING OFF; GET k; SET k 6
    """)
SCRIPTS: list[Words] = [
    ("EVAL", text, *rest)
    for text, *rest in (
        ("return 1", 0),
        ("return 1", "x"),
        ("return 1", -1),
        ("return 1", 2, "a"),
        ("return 1",),
        ("no lua", 0),
        ("return {KEYS[1], KEYS[2], ARGV[1], ARGV[2], #KEYS, #ARGV}", 2, "a", "b", "c", b"\0\xff"),
        ("return nil", 0),
        ("return false", 0),
        ("return true", 0),
        ("return {1, false, 'x', {2}, true}", 0),
        ("return {1, nil, 3}", 0),
        ("return {}", 0),
        ("return {a = 1}", 0),
        ("return 3.99", 0),
        ("return -3.99", 0),
        ("return 2^53 - 1", 0),
        ("return {2^53 - 2, -0.5}", 0),
        ("return tostring(2^53 - 2)", 0),
        ("return string.format('%.0f', 2^53 - 2)", 0),
        ("return {ok = 'fine'}", 0),
        ("return {err = 'MINE is bad'}", 0),
        ("return {err = 'MINE\\r\\nis bad'}", 0),
        ("return redis.error_reply('MINE is bad')", 0),
        ("return redis.status_reply('fine')", 0),
        ("return type", 0),
        ("x = 1", 0),
        ("return y", 0),
        ("error('boom')", 0),
        ("local a = nil + 1", 0),
        ("return redis.call('SET', KEYS[1], ARGV[1])", 1, "k", "v"),
        ("return redis.call('SET', KEYS[1], ARGV[1], 'NX')", 1, "k", "v"),
        ("return redis.call('SET', 'k', 'v').ok", 0),
        ("return redis.call('SET', 'k', 'v', 'NX') == false", 0),
        ("return redis.call('GET', 'nothing') == false", 0),
        ("return {redis.call('SET', 'k', 2^53 - 2), redis.call('GET', 'k')}", 0),
        ("return {redis.call('SET', 'k', 1.5), redis.call('GET', 'k')}", 0),
        ("return {redis.call('SET', 'k', 18 * 10^14), redis.call('GET', 'k')}", 0),
        ("return redis.call('HSET', 'h', 'a', 1)", 0),
        ("return redis.call('HGETALL', 'h')", 0),
        ("return redis.call('ZADD', 'z', '9007199254740990', 'a', 2, 'b')", 0),
        ("return redis.call('ZRANGE', 'z', 0, -1, 'WITHSCORES')", 0),
        ("return redis.call('ZSCORE', 'z', 'a')", 0),
        ("return redis.call('ZPOPMIN', 'z')", 0),
        ("return redis.call('ZPOPMIN', 'no')", 0),
        ("return redis.call('TYPE', 'z').ok", 0),
        ("return redis.call('PTTL', 'no')", 0),
        ("return redis.call('GET', 'h')", 0),
        ("return redis.pcall('GET', 'h').err", 0),
        ("return redis.pcall('GET', 'h')", 0),
        ("local e = redis.pcall('GET', 'h') return e ~= 0 and type(e)", 0),
        ("return select(2, pcall(redis.call, 'GET', 'h')) ~= nil", 0),
        ("return redis.call('GET')", 0),
        ("return redis.call('NOSUCH')", 0),
        ("return redis.call('GET', {})", 0),
        ("return redis.call('GET', true)", 0),
        ("return redis.call('SUBSCRIBE', 'x')", 0),
        ("return redis.call('EVAL', 'return 1', 0)", 0),
        ("return redis.call('PUBLISH', 'nobody', 'x')", 0),
        ("redis.call('SET', 'k', 'v', 'PXAT', 1) return {redis.call('EXISTS', 'k'), redis.call('PTTL', 'k')}", 0),
        ("redis.call('SET', 'k', 'v') redis.call('PEXPIRE', 'k', 0) return redis.call('EXISTS', 'k')", 0),
        ("local t = redis.call('TIME') return {#t, tonumber(t[1]) > 1700000000, tonumber(t[2]) < 1000000}", 0),
    )
]
SCRIPT: list[Words] = [
    ("SCRIPT", "FLUSH"),
    ("EVALSHA", "0" * 40, 0),
    ("SCRIPT", "LOAD", "return 7"),
    ("EVALSHA", "e0e1f9fabfc9d4800c877a703b823ac0578ff8db", 0),
    ("SCRIPT", "LOAD", "return 1"),
    ("EVALSHA", "e0e1f9fabfc9d4800c877a703b823ac0578ff8db", 0),
    ("SCRIPT", "EXISTS", "e0e1f9fabfc9d4800c877a703b823ac0578ff8db", "0" * 40),
    ("SCRIPT", "LOAD", "no lua"),
    ("SCRIPT", "NOSUCH"),
    ("SCRIPT",),
    ("SCRIPT", "FLUSH"),
    ("EVALSHA", "e0e1f9fabfc9d4800c877a703b823ac0578ff8db", 0),
    ("SCRIPT", "FLUSH", "ASYNC"),
    ("EVALSHA", "e0e1f9fabfc9d4800c877a703b823ac0578ff8db"),
]
CONVERSATIONS = {
    "strings": STRINGS,
    "keys": KEYS,
    "hashes": HASHES,
    "sorted sets": ZSETS,
    "wrong types": WRONG_TYPES,
    "channels": CHANNELS,
    "handshake": HANDSHAKE,
    "tracking": TRACKING,
    "scripts": SCRIPTS,
    "script": SCRIPT,
}


@pytest.mark.parametrize("topic", CONVERSATIONS)
def test_the_same_is_answered(pair: tuple[Bench, Bench], topic: str) -> None:
    left, right = (bench.connect() for bench in pair)
    compare(left, right, *CONVERSATIONS[topic])


def test_nothing_is_left_out() -> None:
    asked = {str(command[0]).upper().encode() for conversation in CONVERSATIONS.values() for command in conversation}
    assert COMMANDS.keys() <= asked


def test_patterns(pair: tuple[Bench, Bench]) -> None:
    names = (
        b"a",
        b"b",
        b"ab",
        b"a*b",
        b"a?b",
        b"a[b",
        b"a]b",
        b"a\\b",
        b"a\nb",
        b"^",
        b"-",
        b"a-c",
        b"",
        b"\xff",
        b"{n}:fence",
        b"a&&b",
        b"a.b",
    )
    patterns = [
        b"*",
        b"a*",
        b"*b",
        b"?",
        b"a?b",
        b"[ab]",
        b"[^ab]",
        b"[a-c]",
        b"a[*]b",
        b"a\\*b",
        b"a\\?b",
        b"a\\[b",
        b"a[[]b",
        b"a\\\\b",
        b"",
    ]
    patterns += [b"[\\^a]", b"a[?&]*", b"{n}:*", b"a.b", b"\xff", b"a[\\]]b", b"a[b", b"a\nb"]
    for bench in pair:
        bench.operator.batch(*[("SET", name, "v") for name in names])
    for pattern in patterns:
        found = [set(bench.operator.say("SCAN", 0, "COUNT", 1000, "MATCH", pattern)[1]) for bench in pair]
        assert found[0] == found[1], pattern


def test_pushes_come_in_the_same_order(pair: tuple[Bench, Bench]) -> None:
    streams = []
    for bench in pair:
        speaker, listener = bench.connect(b"mine", b"ours"), bench.connect(b"ours")
        script = "redis.call('PUBLISH', 'mine', '1') redis.call('PUBLISH', 'ours', '2') return 3"
        told = speaker.told(("PUBLISH", "mine", "0"), ("EVAL", script, 0), ("PING",), ("PUBLISH", "ours", "4"), ("GET", "k"))
        streams.append(([shown(it) for it in told], listener.heard()))
    assert streams[0] == streams[1]


def test_keys_are_tracked_in_scripts_too(pair: tuple[Bench, Bench]) -> None:
    look = ("EVAL", "return {redis.call('GET', KEYS[1]), redis.call('EXISTS', KEYS[2]), redis.call('ZRANGE', KEYS[2], 0, -1)}", 2, "n", "q")
    # What the tracking connection says (after asking for it), and then what another one says.
    stories: list[tuple[list[Words], list[Words]]] = [
        ([look], words("SET other 1; SET n 1 PX 100000; SET n 2; ZADD q 1 a; ZADD q 1 b; DEL n q")),
        ([look], words("SET n 3; DEL n q")),
        ([("GET", "n"), ("SET", "n", "its own change ends it")], words("SET n 4")),
        ([("GET", "n")], words("SET n 5 NX; PEXPIRE no 5; DEL no")),
        ([], words("PEXPIRE n 100000")),
        ([("GET", "n")], words("FLUSHALL")),
    ]
    heard: list[list[Any]] = []
    for bench in pair:
        tracker, told = bench.connect(), []
        tracker.say("CLIENT", "TRACKING", "ON", "OPTIN", "NOLOOP")
        for own, others in stories:
            tracker.batch(*[("CLIENT", "CACHING", "YES")] * bool(own), *own)
            for command in others:
                told += [bench.operator.batch(command), tracker.heard()]
        heard.append(told)
    assert heard[0] == heard[1]
    assert [([b"n"],)] in heard[0]  # it is no comparison of nothing with nothing


def test_who_tracks_a_key_hears_when_another_finds_that_it_ran_out(pair: tuple[Bench, Bench]) -> None:
    for bench in pair:
        tracker = bench.connect()
        tracker.say("CLIENT", "TRACKING", "ON", "OPTIN", "NOLOOP")
        bench.operator.say("SET", "n", "v", "PX", 200)
        assert tracker.batch(("CLIENT", "CACHING", "YES"), ("GET", "n"))[1] == b"v", "it is there still, so that it is tracked"
        bench.place.pass_time(0.22)
        assert bench.operator.say("GET", "n") is None  # by now at the latest the server has deleted it
        assert tracker.heard() == [([b"n"],)]


def test_a_password(pair: tuple[Bench, Bench]) -> None:
    before = words("PING; HELLO 3; HELLO 3 AUTH default wrong; AUTH wrong; GET k; SUBSCRIBE a; HELLO 3 AUTH nobody sesame; PING")
    after = words("PING; CLIENT GETNAME; AUTH sesame; AUTH default sesame; AUTH wrong; PING")
    conversation = [*before, *words("HELLO 3 AUTH default sesame SETNAME me"), *after]
    said = []
    for bench in pair:
        with bench.place.lock(bench.operator, b"sesame"):
            said.append(["a greeting" if isinstance(it, dict) else shown(it) for it in bench.bare().batch(*conversation)])
    assert said[0] == said[1]


def test_a_greeting(pair: tuple[Bench, Bench]) -> None:
    left, right = (bench.client.say("HELLO", 3, "AUTH", "default", "", "SETNAME", "me") for bench in pair)
    assert left.keys() == right.keys()
    for fact in (b"server", b"proto", b"mode", b"role"):
        assert left[fact] == right[fact]


def test_what_is_said_of_the_server(pair: tuple[Bench, Bench]) -> None:
    def facts(bench: Bench, *sections: str) -> dict[str, str]:
        text = bench.client.say("INFO", *sections)
        return dict(line.split(":", 1) for line in (text if isinstance(text, str) else text.decode()).splitlines() if ":" in line)

    wanted = "run_id", "uptime_in_seconds", "redis_version", "role", "maxmemory_policy"
    for bench in pair:
        assert {*wanted} <= facts(bench).keys()
        assert {*wanted, "cmdstat_info"} <= facts(bench, "all").keys()
        assert {*wanted} & facts(bench, "server").keys() == {"run_id", "uptime_in_seconds", "redis_version"}
        assert {*wanted} & facts(bench, "REPLICATION").keys() == {"role"}
        assert {*wanted} & facts(bench, "memory").keys() == {"maxmemory_policy"}
        assert int(facts(bench, "server")["uptime_in_seconds"]) < 600
    left, right = (bench.client.batch(("INFO", "server", "memory"))[0] for bench in pair)
    assert isinstance(left, Exception) == isinstance(right, Exception)
