"""The script of the registry, on simulated and on real servers: who is kept, for how long, how many, and who is told of."""

from __future__ import annotations

from typing import Any

from scripts.bench import Bench, about, spoken

from holdfast.engine import registry
from holdfast.engine.registry import ALL_CLIENTS, LIFE, NOTES, TOLD
from holdfast.scripts import REGISTRY

KEY, LISTS_KEY, CONFIG_KEY = "{holdfast}:clients:", "{holdfast}:lists:", "{holdfast}:config:"
INDEX = KEY + ":"
OF_F1 = f"{INDEX}v2 30000 1 aaaaaaaa aaaaaaaa=5000 f1 1"


def note(lists: str) -> bytes:
    return f"v2 30000 1 aaaaaaaa aaaaaaaa=5000 {lists} 1".encode()


def say(bench: Bench, data: bytes) -> Any:
    """What the node answers."""
    bench.load(REGISTRY)
    return bench.told(data)


def register(bench: Bench, who: str, lists: str, was: str = "") -> Any:
    """A client notes its settings. Returns who differs, by the note."""
    inbox = who.split()[1].encode() * 4
    answer = say(bench, registry._question("", note(lists), inbox, who.encode(), note(was or lists)))
    return {text: rest[::2] for text, *rest in answer if text.startswith(b"v2")}


def look(bench: Bench, lists: str) -> dict[bytes, list[bytes]]:
    """Who has noted other settings."""
    return {text: rest[::2] for text, *rest in say(bench, registry.ask_registry("", note(lists))) if text.startswith(b"v2")}


def signed(bench: Bench, key: str, member: str, age: float) -> None:
    """Somebody signed so many seconds ago."""
    seconds, micros = bench.operator.say("TIME")
    bench.operator.say("ZADD", key, int(seconds) * 1000 + int(micros) // 1000 - round(age * 1000), member)
    bench.operator.say("PEXPIRE", key, 100_000)


def test_whoever_registers_is_told_of_those_with_other_settings(bench: Bench) -> None:
    assert register(bench, "a:1 00000001", "f1") == {}
    assert register(bench, "b:2 00000002", "f1") == {}, "of those with the same settings, nothing"
    answer = say(bench, registry._question("", note("f2"), b"00000003" * 4, b"c:3 00000003", note("f2")))
    [[client, age, other, older]] = [rest for text, *rest in answer if text == note("f1")]
    assert {client, other} == {b"a:1 00000001", b"b:2 00000002"}
    assert 0 <= age <= 5000 and 0 <= older <= 5000
    assert look(bench, "f1") == {note("f2"): [b"c:3 00000003"]}
    assert look(bench, "f3").keys() == {note("f1"), note("f2")}


def test_a_client_whose_settings_change_is_told_of_with_the_new_ones_only(bench: Bench) -> None:
    register(bench, "a:1 00000001", "f1")
    register(bench, "b:2 00000002", "f1")
    register(bench, "a:1 00000001", "f2", was="f1")
    assert look(bench, "f3") == {note("f1"): [b"b:2 00000002"], note("f2"): [b"a:1 00000001"]}
    register(bench, "b:2 00000002", "f2", was="f1")
    assert bench.operator.say("ZRANGE", INDEX, 0, -1) == [note("f2")], "nobody has the other settings any more"


def test_clients_of_an_earlier_version_are_told_and_tell(bench: Bench) -> None:
    register(bench, "a:1 00000001", "f1,f2")
    assert bench.operator.say("ZRANGE", LISTS_KEY, 0, -1) == [b"f1,f2"]
    assert bench.operator.say("ZRANGE", f"{KEY}:f1,f2", 0, -1) == [b"a:1 00000001"]
    assert bench.operator.say("GET", CONFIG_KEY) == b"v1 30000 1 aaaaaaaa, aaaaaaaa=5000"
    assert about(bench.operator.say("PTTL", CONFIG_KEY), 3_600_000)
    signed(bench, LISTS_KEY, "f3", 60)
    signed(bench, f"{KEY}:f3", "old:1 00000009", 60)
    bench.operator.say("SET", CONFIG_KEY, "v1 20000 1 bbbbbbbb", "PX", 100_000)
    told = {text: rest[::2] for text, *rest in say(bench, registry.ask_registry("", note("f1,f2")))}
    assert told == {b"f3": [b"old:1 00000009"], b"v1 20000 1 bbbbbbbb": [b""]}


def test_a_look_notes_nothing(bench: Bench) -> None:
    assert look(bench, "f1") == {}
    assert bench.operator.say("SCAN", 0, "COUNT", 1000)[1] == []


def test_all_of_it_is_forgotten_when_nobody_has_registered_for_so_long(bench: Bench) -> None:
    register(bench, "a:1 00000001", "f1")
    assert all(about(bench.operator.say("PTTL", it), LIFE * 1000) for it in (INDEX, OF_F1))


def test_each_client_is_forgotten_by_itself(bench: Bench) -> None:
    signed(bench, OF_F1, "old:1 00000001", LIFE + 60)
    signed(bench, OF_F1, "older:1 00000002", LIFE + 70)
    signed(bench, OF_F1, "recent:1 00000003", LIFE - 60)
    signed(bench, INDEX, note("f2").decode(), LIFE + 60)
    register(bench, "a:1 00000004", "f1")
    assert look(bench, "f3") == {note("f1"): [b"recent:1 00000003", b"a:1 00000004"]}
    assert bench.operator.say("ZRANGE", OF_F1, 0, -1) == [b"recent:1 00000003", b"a:1 00000004"]


def test_a_client_that_is_too_old_is_not_told_of_though_nobody_has_dropped_it(bench: Bench) -> None:
    signed(bench, INDEX, note("f1").decode(), 60)
    signed(bench, OF_F1, "old:1 00000001", LIFE + 60)
    assert look(bench, "f3") == {}


def test_what_was_signed_by_a_clock_that_was_ahead_is_signed_again(bench: Bench) -> None:
    """Or a client that has ended would be seen to live for as long as the clock was ahead."""
    signed(bench, INDEX, note("f2").decode(), -5000)
    for it in ("early:1 00000001", "earlier:2 00000002"):
        signed(bench, OF_F1, it, -5000)
    register(bench, "a:1 00000003", "f1")
    assert look(bench, "f3") == {note("f1"): [b"a:1 00000003"]}


def test_a_node_keeps_the_latest_of_many_clients_and_lists(bench: Bench) -> None:
    for number in range(ALL_CLIENTS + 5):
        signed(bench, OF_F1, f"c{number}:1 {number:08x}", ALL_CLIENTS + 10 - number)
    for number in range(NOTES + 3):
        signed(bench, INDEX, note(f"{number:x}").decode(), NOTES + 10 - number)
    register(bench, "last:1 ffffffff", "f1")
    assert bench.operator.say("ZCARD", OF_F1) == ALL_CLIENTS
    assert bench.operator.say("ZCARD", INDEX) == NOTES
    told = look(bench, "f3")[note("f1")]
    assert (len(told), told[-1]) == (TOLD, b"last:1 ffffffff"), "the latest"


def test_a_node_knows_for_three_minutes_whose_an_inbox_is(bench: Bench) -> None:
    # Rule G9.
    register(bench, "a:1 00000001", "f1")
    register(bench, "b:2 00000002", "f2")
    inboxes = [b"00000001" * 4, b"00000003" * 4, b"00000002" * 4]
    command, *asked = spoken(registry.owned("", inboxes))
    told = bench.client.say(command, *asked)
    assert told == [b"a:1", None, b"b:2"]
    assert 170_000 < bench.operator.say("PTTL", asked[0]) <= 180_000
    bench.operator.say("PEXPIRE", asked[0], 1000)
    register(bench, "a:1 00000001", "f1")
    assert bench.operator.say("PTTL", asked[0]) > 170_000
