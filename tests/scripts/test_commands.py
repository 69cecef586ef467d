"""Command by command: the simulated server answers as the real one of its kind does."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import hiredis
import pytest
from scripts.bench import Bench, Client, Words, real, simulated
from scripts.dialects import REDIS_6_2, VALKEY_9

from holdfast.testing.commands import COMMANDS
from holdfast.testing.values import REDIS_7_0


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
    """Commands as people type them. ~ stands for an empty word, and ^ for a space in one."""
    commands = text.strip().replace("\n", ";").split(";")
    return [tuple("" if word == "~" else word.replace("^", " ") for word in command.split()) for command in commands]


def script(line: str) -> Words:
    """A line of a script: its text, the number of its keys, and words, which may have bytes in them that nobody types."""
    text, _, rest = line.removeprefix("> ").rpartition(" |")
    return "EVAL", text, *[word.encode().decode("unicode_escape").encode("latin-1") for word in rest.split()]


def conversations(text: str) -> dict[str, list[Words]]:
    """What `commands.txt` has, by topic."""
    found: dict[str, list[Words]] = {}
    for topic in re.split(r"\n\n", text)[1:]:
        head, *lines = topic.strip().splitlines()
        found[head.strip("[]")] = [it for line in lines for it in ([script(line)] if line.startswith("> ") else words(line))]
    return found


CONVERSATIONS = conversations((Path(__file__).parent / "commands.txt").read_text())


@pytest.mark.parametrize("topic", CONVERSATIONS)
def test_the_same_is_answered(pair: tuple[Bench, Bench], topic: str) -> None:
    left, right = (bench.connect() for bench in pair)
    compare(left, right, *CONVERSATIONS[topic])


def test_nothing_is_left_out() -> None:
    asked = {str(command[0]).upper().encode() for conversation in CONVERSATIONS.values() for command in conversation}
    assert COMMANDS.keys() <= asked


def test_patterns(pair: tuple[Bench, Bench]) -> None:
    names = [rb"a\b", b"a\nb", b"", b"\xff", *rb"a b ab a*b a?b a[b a]b ^ - a-c {n}:fence a&&b a.b".split()]
    patterns = [b"a\nb", b"", b"\xff", *rb"* a* *b ? a?b [ab] [^ab] [a-c] a[*]b a\*b a\?b a\[b a[[]b a\\b".split()]
    patterns += rb"[\^a] a[?&]* {n}:* a.b a[\]]b a[b".split()
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
