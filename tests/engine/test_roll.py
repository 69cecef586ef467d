"""The roll: when a client signs it, which clients it tells of, and of which of them it warns."""

from __future__ import annotations

from math import inf
from typing import Any

import pytest
from proof import patches
from recipes.test_inspection import words

from holdfast.engine import roll
from holdfast.engine.roll import EVERY, LIFE, RECENT, Roll, Straggler
from holdfast.scripts import ROLL

NEW, OLD = "a1", "b2"
BOTH = (NEW, OLD)
INBOX = b"0123abcd" * 4


def a_roll(*spreads: str, leaving: bool = False, nodes: int = 3) -> Roll:
    return Roll("", "me:1", INBOX, spreads, leaving, nodes)


def entry(text: str, *clients: tuple[str, float]) -> list[Any]:
    """What a node tells of the clients that know these lists."""
    return [text.encode(), *[it for client, age in clients for it in (client.encode(), round(age * 1000))]]


# ------------------------------------------------ what, and when


def test_it_is_signed_with_what_the_client_is_and_knows() -> None:
    said = words(Roll("app:ä", "host:7", INBOX, BOTH, False, 3).question())
    keys = ["{holdfast}:lists:app:ä".encode(), "{holdfast}:clients:app:ä".encode(), "{holdfast}:owner:app:ä".encode()]
    mine = [*keys[:2], keys[2] + INBOX]
    same = [b"a1,b2", b"93600000", b"16 1000 16"]
    assert said == [b"EVALSHA", ROLL.sha, b"3", *mine, b"host:7 0123abcd", *same, b"host:7", b"180000"]
    assert words(a_roll().question())[7] == b"0", "one set of nodes is one list, too"
    assert words(roll.look("app:ä", BOTH))[3:] == [*keys, b"", *same, b"", b"180000"], "a look signs nothing"
    assert words(roll.look("", ()))[7] == b"0"
    assert LIFE > 25 * 3600, "a daily job is seen, on a day of 25 hours, too"


def test_whose_an_inbox_is_nodes_are_asked_for_all_at_once() -> None:
    one, two, three = (digit * 32 for digit in (b"1", b"2", b"3"))
    assert words(roll.owned("app:", [one, two])) == [b"MGET", b"{holdfast}:owner:app:" + one, b"{holdfast}:owner:app:" + two]
    assert roll.owners([one, two, three], [[b"a:1", None, None], [None, b"\xff", None]]) == {one: "a:1", two: "\ufffd"}
    assert roll.owners([one], [None, b"OK", [], [b"a:1", b"b:2"], [7]]) == {}, "what is no such answer tells nothing"
    assert roll.NAMED > 2 * EVERY, "a client that misses one signature is still known"


def test_it_is_signed_at_once_and_then_once_a_minute() -> None:
    here = a_roll()
    assert (here.due, here.asks([0, 1, 2], 5.0)) == (inf, [])
    here.up(0, 10.0)
    here.up(2, 10.0)
    assert (here.due, here.asks([0, 2], 10.0)) == (10.0, [0, 2])
    assert here.due == 10.0 + EVERY
    here.up(1, 30.0)
    assert here.asks([0, 1, 2], 30.0) == [1]
    assert (here.due, here.asks([0, 1, 2], 69.9)) == (10.0 + EVERY, [])
    assert here.asks([0, 1, 2], 71.0) == [0, 2]
    assert here.due == 30.0 + EVERY


def test_a_node_that_is_away_is_asked_when_it_is_back() -> None:
    here = a_roll()
    here.up(0, 10.0)
    here.up(1, 10.0)
    assert here.asks([0], 10.0) == [0]
    assert here.due == 10.0 + EVERY
    assert here.asks([], 100.0) == []
    assert here.due == inf, "nobody is woken for nothing"
    here.up(1, 200.0)
    assert here.asks([0, 1], 200.0) == [1]


def test_it_is_signed_with_the_first_use_or_after_a_moment() -> None:
    here = a_roll()
    here.up(0, 11.0)
    here.up(2, 11.5)
    assert (here.fresh, here.due, here.asks([0, 2], 10.5)) == ({0, 2}, 11.0, [])
    assert (here.asks([0, 2], 11.0), here.fresh, here.due) == ([0], {2}, 11.5)
    here.used(11.2)
    assert (here.due, here.asks([0, 2], 11.2), here.fresh) == (11.2, [2], set())
    here.used(12.0)
    assert here.due == 11.0 + EVERY
    here.up(1, 13.0)
    assert (here.asks([0, 2], 14.0), here.fresh) == ([], set()), "it is away again"


def test_a_client_that_is_closed_signs_no_more() -> None:
    here = a_roll()
    here.up(0, 10.0)
    here.end()
    assert here.due == inf


# ------------------------------------------------ who must not go on


@pytest.mark.parametrize(
    "known, leaving, text, strange",
    [
        # A set that is in the current list.
        (BOTH, False, "b2", True),  # knows only the former list
        (BOTH, False, "a1", False),  # knows only the current one, as all will
        (BOTH, False, "b2,a1", False),  # goes back
        (BOTH, False, "c3", True),
        (BOTH, False, "c3,d4", True),
        ((NEW,), False, "a1,b2", False),
        ((NEW,), False, "b2", True),
        ((), False, "0,0", False),
        ((), False, "a1,0", False),
        ((), False, "a1", True),
        # A set that is only in the former list: whoever knows one list does not know the current one.
        (BOTH, True, "b2", True),
        (BOTH, True, "b2,a1", False),
        (("0", "0"), True, "0", True),  # all nodes of the only set were replaced
        (("0", "0"), False, "0", False),
        ((NEW, NEW), True, "a1", True),  # the nodes of one set were, which is called what it was
    ],
)
def test_who_does_not_know_the_current_list(known: tuple[str, ...], leaving: bool, text: str, strange: bool) -> None:
    told = roll.found([entry(text, ("web-1:7 0000000a", 12.5))], known, leaving)
    assert told == ((Straggler("web-1:7", 12.5),) if strange else ())


def test_those_that_signed_last_come_first() -> None:
    answer = [entry("b2", ("a:1 00000001", 90.0), ("b:2 00000002", 5.0)), entry("c3"), entry("d4", ("c:3 00000003", 30.0))]
    assert roll.found(answer, BOTH, False) == (Straggler("b:2", 5.0), Straggler("c:3", 30.0), Straggler("a:1", 90.0))


@pytest.mark.parametrize(
    "answer",
    [None, b"OK", 5, Exception("NOPERM"), [5], [[]], [[5]], [[b"B2"]], [[b"a1,"]], [[b"b2", b"a:1 00000001"]], [[b"123456789"]]],
)
def test_what_the_script_does_not_say_tells_nothing(answer: object) -> None:
    assert roll.found(answer, BOTH, False) is None
    here = a_roll(*BOTH)
    assert here.told(0, answer, 10.0) == ""
    assert here.stragglers(0, 10.0) is None, "that is not the same as nobody"


def test_what_is_no_client_is_left_out() -> None:
    assert roll.found([[b"b2", 5, 5, b"a:1 00000001", b"5", b"b\xff:2 00000002", 7000]], BOTH, False) == (Straggler("b\ufffd:2", 7.0),)


def test_a_node_s_stragglers_are_shown_as_old_as_they_are_by_now() -> None:
    here = a_roll(*BOTH)
    assert here.stragglers(1, 10.0) is None
    here.told(1, [entry("b2", ("web-1:7 0000000a", 12.5))], 10.0)
    assert here.stragglers(1, 40.0) == (Straggler("web-1:7", 42.5),)
    assert here.stragglers(0, 40.0) is None
    here.told(1, [], 70.0)
    assert here.stragglers(1, 70.0) == ()


# ------------------------------------------------ warnings


def test_a_straggler_that_lives_is_warned_of_once() -> None:
    here = a_roll(*BOTH)
    told = here.told(0, [entry("b2", ("web-1:7 0000000a", 12.5))], 10.0)
    assert told.startswith("it is used by clients that know only the former shards, or others: web-1:7. As long as they run, do not")
    assert here.told(1, [entry("b2", ("web-1:7 0000000a", 12.5))], 10.0) == ""
    assert here.told(0, [entry("b2", ("web-1:7 0000000a", 2.5))], 70.0) == ""
    assert "others: web-1:7. " in here.told(0, [entry("b2", ("web-1:7 0000000a", 62.5), ("web-1:7 0000000b", 1.0))], 130.0)


def test_a_client_that_has_ended_is_shown_and_not_warned_of() -> None:
    here = a_roll(*BOTH)
    assert here.told(0, [entry("b2", ("cron:7 0000000a", RECENT + 0.001))], 10.0) == ""
    assert here.stragglers(0, 10.0) == (Straggler("cron:7", RECENT + 0.001),)
    assert "cron:7" in here.told(0, [entry("b2", ("cron:7 0000000a", 1.0))], 90.0), "it has come back"


def test_a_warning_names_three() -> None:
    many = [(f"web-{it}:7 {it:08x}", it + 1.0) for it in range(5)]
    assert "others: web-0:7, web-1:7, web-2:7 and 2 more. " in a_roll(*BOTH).told(0, [entry("b2", *many)], 10.0)


def test_a_client_that_is_not_moving_is_told_something_else() -> None:
    told = a_roll(NEW).told(0, [entry("b2", ("web-1:7 0000000a", 12.5))], 10.0)
    assert told == (
        "it is used by clients that spread names over other shards: web-1:7. They and this client may hold the same "
        "name. Name the same shards everywhere; while they change, name the former ones as `previous`."
    )


def warned(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Which of three clients are warned of again, by a client that remembers two."""
    monkeypatch.setattr(roll, "MOST", 2)
    here = a_roll(*BOTH)
    for it in "abc":
        here.told(0, [entry("b2", (f"{it}:1 00000001", 1.0))], 10.0)
    return [it for it in "abc" if here.told(0, [entry("b2", (f"{it}:1 00000001", 1.0))], 10.0)]


def test_a_client_does_not_remember_every_straggler(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "a" in warned(monkeypatch)
    patches.method(monkeypatch, Roll, "told", "while len(self._warned) > MOST:", "while False:")
    assert warned(monkeypatch) == []
