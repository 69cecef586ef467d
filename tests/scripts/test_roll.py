"""The script of the roll, on simulated and on real servers: who is kept, for how long, how many, and who is told of; and its faults."""

from __future__ import annotations

from typing import Any

import pytest
from recipes.test_inspection import words
from scripts.bench import Bench, about, simulated
from scripts.faulty import planted

from holdfast.engine import roll
from holdfast.engine.roll import CLIENTS, LIFE, LISTS, TOLD, Roll
from holdfast.scripts import ROLL
from holdfast.testing.server import VALKEY_9

LISTS_KEY, CLIENTS_KEY = (it.decode() for it in roll.keys(""))
SCRIPT = {"roll": ROLL}  # what stands for it while a fault is planted


def say(bench: Bench, data: bytes) -> Any:
    """What the node answers."""
    evalsha, _, *rest = words(data)
    bench.operator.say("SCRIPT", "LOAD", SCRIPT["roll"].source)
    answer = bench.client.say(evalsha, SCRIPT["roll"].sha, *rest)
    bench.mortal()
    return answer


def sign(bench: Bench, who: str, *known: str) -> Any:
    owner, inbox = who.split()
    return say(bench, Roll("", owner, inbox.encode() * 4, known, False, 1).question())


def look(bench: Bench, *known: str) -> dict[bytes, list[bytes]]:
    """Which other lists are known, and by whom."""
    return {text: rest[::2] for text, *rest in say(bench, roll.look("", known))}


def signed(bench: Bench, key: str, member: str, age: float) -> None:
    """Somebody signed so many seconds ago."""
    seconds, micros = bench.operator.say("TIME")
    bench.operator.say("ZADD", key, int(seconds) * 1000 + int(micros) // 1000 - round(age * 1000), member)
    bench.operator.say("PEXPIRE", key, 100_000)


def test_whoever_signs_is_told_of_those_that_know_other_lists(bench: Bench) -> None:
    assert sign(bench, "a:1 00000001", "f1") == []
    assert sign(bench, "b:2 00000002", "f1") == [], "of those that know the same, nothing"
    [[text, client, age, other, older]] = sign(bench, "c:3 00000003", "f2", "f1")
    assert (text, {client, other}) == (b"f1", {b"a:1 00000001", b"b:2 00000002"})
    assert 0 <= age <= 5000 and 0 <= older <= 5000
    assert look(bench, "f1") == {b"f2,f1": [b"c:3 00000003"]}
    assert look(bench, "f3").keys() == {b"f1", b"f2,f1"}


def test_a_look_signs_nothing(bench: Bench) -> None:
    assert look(bench, "f1") == {}
    assert bench.operator.say("SCAN", 0, "COUNT", 1000)[1] == []


def test_all_of_it_is_forgotten_when_nobody_has_signed_for_so_long(bench: Bench) -> None:
    sign(bench, "a:1 00000001", "f1")
    assert all(about(bench.operator.say("PTTL", it), LIFE * 1000) for it in (LISTS_KEY, f"{CLIENTS_KEY}:f1"))


def test_each_client_is_forgotten_by_itself(bench: Bench) -> None:
    signed(bench, f"{CLIENTS_KEY}:f1", "old:1 00000001", LIFE + 60)
    signed(bench, f"{CLIENTS_KEY}:f1", "older:1 00000002", LIFE + 70)
    signed(bench, f"{CLIENTS_KEY}:f1", "recent:1 00000003", LIFE - 60)
    signed(bench, LISTS_KEY, "f2", LIFE + 60)
    sign(bench, "a:1 00000004", "f1")
    assert look(bench, "f3") == {b"f1": [b"recent:1 00000003", b"a:1 00000004"]}
    assert bench.operator.say("ZRANGE", f"{CLIENTS_KEY}:f1", 0, -1) == [b"recent:1 00000003", b"a:1 00000004"]


def test_a_client_that_is_too_old_is_not_told_of_though_nobody_has_dropped_it(bench: Bench) -> None:
    signed(bench, LISTS_KEY, "f1", 60)
    signed(bench, f"{CLIENTS_KEY}:f1", "old:1 00000001", LIFE + 60)
    assert look(bench, "f3") == {b"f1": []}


def test_what_was_signed_by_a_clock_that_was_ahead_is_signed_again(bench: Bench) -> None:
    """Or a client that has ended would be seen to live for as long as the clock was ahead."""
    signed(bench, LISTS_KEY, "f2", -5000)
    for it in ("early:1 00000001", "earlier:2 00000002"):
        signed(bench, f"{CLIENTS_KEY}:f1", it, -5000)
    sign(bench, "a:1 00000003", "f1")
    assert look(bench, "f3") == {b"f1": [b"a:1 00000003"]}


def test_a_node_keeps_the_latest_of_many_clients_and_lists(bench: Bench) -> None:
    for number in range(CLIENTS + 5):
        signed(bench, f"{CLIENTS_KEY}:f1", f"c{number}:1 {number:08x}", CLIENTS + 10 - number)
    for number in range(LISTS + 3):
        signed(bench, LISTS_KEY, f"{number:x}{number:x}", LISTS + 10 - number)
    sign(bench, "last:1 ffffffff", "f1")
    assert bench.operator.say("ZCARD", f"{CLIENTS_KEY}:f1") == CLIENTS
    assert bench.operator.say("ZCARD", LISTS_KEY) == LISTS
    told = look(bench, "f3")[b"f1"]
    assert (len(told), told[-1]) == (TOLD, b"last:1 ffffffff"), "the latest"


def test_a_node_knows_for_three_minutes_whose_an_inbox_is(bench: Bench) -> None:
    # Rule G9.
    sign(bench, "a:1 00000001", "f1")
    sign(bench, "b:2 00000002", "f2")
    inboxes = [b"00000001" * 4, b"00000003" * 4, b"00000002" * 4]
    command, *asked = words(roll.owned("", inboxes))
    told = bench.client.say(command, *asked)
    assert told == [b"a:1", None, b"b:2"]
    assert 170_000 < bench.operator.say("PTTL", asked[0]) <= 180_000
    bench.operator.say("PEXPIRE", asked[0], 1000)
    sign(bench, "a:1 00000001", "f1")
    assert bench.operator.say("PTTL", asked[0]) > 170_000


# ------------------------------------------------ planted faults

FAULTS = {
    "tells of its own list": ("if text ~= ARGV[2] then", "if true then"),
    "signs when it only looks": ("if ARGV[1] ~= '' then", "if true then"),
    "keeps no client for long": ("tonumber(first[2]) < now - life", "tonumber(first[2]) < now - life / 2"),
    "keeps a client for ever": ("tonumber(first[2]) < now - life", "false"),
    "tells of those that were not dropped": ("if age <= life then", "if true then"),
    "believes a clock that was ahead": ("tonumber(last[2]) > now", "false"),
    "keeps any number": ("call('ZRANK', key, member) >= tonumber(most)", "false"),
    "tells of the first": ("-tonumber(told), -1, 'WITHSCORES'", "0, tonumber(told) - 1, 'WITHSCORES'"),
    "has one set for all lists": ("note(KEYS[2] .. ':' .. ARGV[2], ARGV[1], clients)", "note(KEYS[2] .. ':f1', ARGV[1], clients)"),
    "an owner stays": ("ARGV[5], 'PX', ARGV[6])", "ARGV[5])"),
    "an owner is noted under another's key": ("call('SET', KEYS[3]", "call('SET', KEYS[3] .. '0'"),
    "keys stay": ("call('PEXPIRE', key, ARGV[3])", ""),
}
TESTS = [
    test_whoever_signs_is_told_of_those_that_know_other_lists,
    test_a_look_signs_nothing,
    test_all_of_it_is_forgotten_when_nobody_has_signed_for_so_long,
    test_each_client_is_forgotten_by_itself,
    test_a_client_that_is_too_old_is_not_told_of_though_nobody_has_dropped_it,
    test_what_was_signed_by_a_clock_that_was_ahead_is_signed_again,
    test_a_node_keeps_the_latest_of_many_clients_and_lists,
    test_a_node_knows_for_three_minutes_whose_an_inbox_is,
]


@pytest.mark.parametrize("fault", FAULTS)
def test_a_script_with_a_fault_is_found(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = FAULTS[fault]
    monkeypatch.setitem(SCRIPT, "roll", planted(ROLL, old, new))
    found = []
    for test in TESTS:
        try:
            test(simulated(VALKEY_9))
        except Exception as error:
            found.append(f"{test.__name__}: {error}")
    assert found
