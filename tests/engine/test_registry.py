"""The registry of clients: when a client notes its settings, which others it tells of, and of which of them it warns."""

from __future__ import annotations

from math import inf
from typing import Any

import pytest
from scripts.bench import spoken

from holdfast.engine import registry
from holdfast.engine.registry import EVERY, LIFE, OTHERS, RECENT, Registry, Straggler
from holdfast.engine.settings import DEFAULT_GUARD, Settings, settings
from holdfast.protocol.nodes import NodeSet
from holdfast.protocol.query import Query
from holdfast.protocol.semaphore import Slots
from holdfast.scripts import REGISTRY

NEW, OLD = "a1", "b2"
BOTH = (NEW, OLD)
INBOX = b"0123abcd" * 4
RUNS = ["a" * 40, "b" * 40, "c" * 40]
LONG = dict.fromkeys(RUNS, 1e6)  # all servers have run for long


def some(nodes: int = 3, failovers: tuple[float | None, ...] = (), **options: Any) -> Settings:
    usual: dict[str, Any] = {"ttl": 0.05, "max_ttl": 30.0, "prefix": "", "node_timeout": 0.5, "restart_guard": DEFAULT_GUARD}
    usual |= {"outage": None, "owner": "me:1"}
    bounds = [*failovers, *[None] * nodes][:nodes]
    urls = [f"redis://n{at}:1" + ("" if bound is None else f"?failover={bound:g}") for at, bound in enumerate(bounds)]
    return settings(urls, **(usual | options))


def a_registry(*spreads: str, **options: Any) -> Registry:
    return Registry(some(spreads=spreads, **options), INBOX, "1.2")


def note(runs: list[str] | None = None, **options: Any) -> bytes:
    """What a client of these servers notes. (Empty: one that it has not met.)"""
    runs = RUNS if runs is None else runs
    return registry.written(some(len(runs), **options), runs, "1.2")


def entry(text: bytes | str, *clients: tuple[str, float]) -> list[Any]:
    """What a node tells of the clients with this note."""
    found = text if isinstance(text, bytes) else f"v2 30000 3   {text} 1.2".encode()
    return [found, *[it for client, age in clients for it in (client.encode(), round(age * 1000))]]


def told(here: Registry, answers: dict[int, object], now: float = 10.0, runs: list[str] | None = None) -> list[tuple[int, str, str]]:
    """Of what the client warns when nodes answer this."""
    for node in answers:
        here.up(node, now)
    here.questions(RUNS if runs is None else runs, list(answers), now)
    query = Query({}, NodeSet(["n0", "n1", "n2"], 1.0, 10.0, 16_000), deadline=1.0)
    query.answers.update(answers)
    return list(here.told(query, None, LONG, now))


# ------------------------------------------------ what, and when


def test_a_client_notes_who_it_is_and_its_settings() -> None:
    here = Registry(some(2, (None, 15.0), prefix="app:ä", owner="host:7", spreads=BOTH, max_ttl=12.345), INBOX, "1.2")
    here.up(0, 5.0)
    said = spoken(here.questions([RUNS[2], RUNS[0]], [0], 5.0)[0])
    keys = [f"{{holdfast}}:{it}:app:ä".encode() for it in ("clients", "owner", "lists", "config")]
    keys[1] += INBOX
    mine = b"v2 12345 2 aaaaaaaa,cccccccc aaaaaaaa=15000 a1,b2 1.2"
    same = [b"93600000", b"32 1000 16", b"180000"]
    assert said == [b"EVALSHA", REGISTRY.sha, b"4", *keys, b"host:7 0123abcd", mine, mine, *same]
    here.up(0, 6.0)
    assert spoken(here.questions([RUNS[2], ""], [0], 6.0)[0])[8:10] == [b"v2 12345 2 cccccccc  a1,b2 1.2", mine], "what was there before"
    looks = spoken(registry.ask_registry("app:ä", mine))
    assert looks[3:9] == [*[keys[0], keys[1].removesuffix(INBOX), *keys[2:]], b"", mine], "a look notes nothing"
    assert LIFE > 25 * 3600, "a daily job is seen, on a day of 25 hours, too"
    assert EVERY * 2 < RECENT < registry.NAMED, "a client that misses a note is still known"


def test_whose_an_inbox_is_nodes_are_asked_for_all_at_once() -> None:
    one, two, three = (digit * 32 for digit in (b"1", b"2", b"3"))
    assert spoken(registry.owned("app:", [one, two])) == [b"MGET", b"{holdfast}:owner:app:" + one, b"{holdfast}:owner:app:" + two]
    assert registry.owners([one, two, three], [[b"a:1", None, None], [None, b"\xff", b"\x1b[2J"]]) == {one: "a:1"}
    assert registry.owners([one], [None, b"OK", [], [b"a:1", b"b:2"], [7], [b""]]) == {}, "what is no such answer tells nothing"


def test_the_settings_are_noted_at_once_and_then_twice_a_minute() -> None:
    here = a_registry()
    assert (here.due, here.questions(RUNS, [0, 1, 2], 5.0)) == (inf, {})
    here.up(0, 10.0)
    here.up(2, 10.0)
    assert (here.due, [*here.questions(RUNS, [0, 2], 10.0)]) == (10.0, [0, 2])
    assert here.due == 10.0 + EVERY
    here.up(1, 20.0)
    assert [*here.questions(RUNS, [0, 1, 2], 20.0)] == [1]
    assert (here.due, here.questions(RUNS, [0, 1, 2], 39.9)) == (10.0 + EVERY, {})
    assert [*here.questions(RUNS, [0, 1], 41.0)] == [0], "one that is away is asked when it is back"
    assert here.due == 20.0 + EVERY
    here.end()
    assert here.due == inf, "a client that is closed notes nothing any more"


def test_they_are_noted_with_the_first_use_or_after_a_moment() -> None:
    here = a_registry()
    here.up(0, 11.0)
    here.up(2, 11.5)
    assert (here.fresh, here.due, here.questions(RUNS, [0, 2], 10.5)) == ({0, 2}, 11.0, {})
    assert ([*here.questions(RUNS, [0, 2], 11.0)], here.fresh, here.due) == ([0], {2}, 11.5)
    here.used(11.2)
    assert (here.due, [*here.questions(RUNS, [0, 2], 11.2)], here.fresh) == (11.2, [2], set())
    here.up(1, 13.0)
    assert (here.questions(RUNS, [0, 2], 14.0), here.fresh) == ({}, set()), "it is away again"


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
        # A set that is only in the former list: a client with one list does not know the current one.
        (BOTH, True, "b2", True),
        (BOTH, True, "b2,a1", False),
        (("0", "0"), True, "0", True),  # all nodes of the only set were replaced
        (("0", "0"), False, "0", False),
        ((NEW, NEW), True, "a1", True),  # the nodes of one set were, which is called what it was
    ],
)
@pytest.mark.parametrize("earlier", [False, True])
def test_who_does_not_know_the_current_list(known: tuple[str, ...], leaving: bool, text: str, strange: bool, earlier: bool) -> None:
    here = a_registry(*known, leaving=leaving)
    # A client of an earlier version notes nothing but its lists.
    told(here, {0: [entry(text.encode() if earlier else text, ("web-1:7 0000000a", 12.5))]})
    assert here.seen(0, 10.0)[0] == ((Straggler("web-1:7", 12.5),) if strange else ())


@pytest.mark.parametrize(
    "note, strange",
    [
        ("3 aaaaaaaa,bbbbbbbb,cccccccc  0", True),  # the former list
        ("3 bbbbbbbb,cccccccc,dddddddd  0", False),
        ("3 bbbbbbbb  0", False),
        ("5 bbbbbbbb,cccccccc,dddddddd  0", True),
        ("4 aaaaaaaa,bbbbbbbb,cccccccc,dddddddd  0,0", False),
    ],
)
def test_while_a_node_is_replaced_who_does_not_know_the_next_list(note: str, strange: bool) -> None:
    here = Registry(some(4, spreads=("0", "0"), lists=((1, 2, 3), (0, 1, 2))), INBOX, "1.2")
    told(here, {1: [entry(f"v2 30000 {note} 1.2".encode(), ("web-1:7 0000000a", 12.5))]}, runs=[*RUNS, "d" * 40])
    assert here.seen(1, 10.0) == ((Straggler("web-1:7", 12.5),) if strange else (), ())


def test_a_node_s_stragglers_are_shown_as_old_as_they_are_by_now_and_the_latest_first() -> None:
    here = a_registry(*BOTH)
    assert here.seen(1, 10.0) == (None, ())
    answer = [entry("b2", ("a:1 00000001", 90.0), ("b:2 00000002", 5.0)), entry("c3"), entry("d4", ("c:3 00000003", 30.0))]
    told(here, {1: answer})
    assert here.seen(1, 40.0)[0] == (Straggler("b:2", 35.0), Straggler("c:3", 60.0), Straggler("a:1", 120.0))
    assert here.seen(0, 40.0)[0] is None
    told(here, {1: []}, 70.0)
    assert here.seen(1, 70.0) == ((), ())


@pytest.mark.parametrize("answer", [None, b"OK", 5, Exception("NOPERM")])
def test_what_is_no_list_tells_nothing(answer: object) -> None:
    here = a_registry(*BOTH)
    assert told(here, {0: answer}) == []
    assert here.seen(0, 10.0)[0] is None, "that is not the same as nobody"


NOTES = [b"", b"B2", b"a1,", b"123456789", b"v3 1", b"v1 1 1 a\n", b"v2 x 3   0 1", b"v2 1 1  aaaaaaaa=ff 0 1", b"v2 1 1  a=b=1 0 1"]
NOTES += [b"v2 1 1  =1 0 1", b"v2 30000 3 AAAAAAAA  0 1", b"v2 1 1   0 \x1b[2J", b"v1 30000 5 aaaaaaaa,", b"v2 " + b"9" * 99]
CLIENTS = [b"web 1:7 0000000a", b"\x1b[31mevil 0000000a", b"b\xff:2 0000000a", b"x" * 129 + b" 0000000a", b"web-1:7 0000000A", b"web-1:7"]
FOREIGN: list[object] = [5, [], [5], [note(), 5, 5]]
FOREIGN += [[it, b"web-1:7 0000000a", 1] for it in NOTES] + [[note(max_ttl=20.0), it, 1] for it in CLIENTS]


@pytest.mark.parametrize("entry", FOREIGN)
def test_what_no_client_says_is_left_out(entry: object) -> None:
    """What others wrote there is neither believed nor printed, and fails no client."""
    here = a_registry(*BOTH)
    assert told(here, {0: [entry, [b"b2", b"a:1 00000001", 1, b"c:1 00000001", b"1"]]})[0][2].count("others: a:1.") == 1
    assert here.seen(0, 10.0) == ((Straggler("a:1", 0.001),), ())


# ------------------------------------------------ other settings


def difference(mine: bytes, theirs: bytes, age: float = 1.0, lasted: dict[str, float] | None = None) -> str:
    """What a client finds in another's note."""
    found = registry.differences([entry(theirs, ("you:2 0000000b", age))], mine, None, LONG if lasted is None else lasted)
    assert found is not None
    return " ".join(registry.shown(found)[1])


def test_another_max_ttl_is_a_difference() -> None:
    # Rule G7.
    assert difference(note(), note(max_ttl=12.5)) == (
        "max_ttl=12.5 at you:2, and 30 at this client: only if all have the same are leases and fences safe. Set the larger one everywhere."
    )


def test_another_number_of_nodes_is_a_difference() -> None:
    five = [*RUNS, "d" * 40, "e" * 40]
    same = ": their majorities need not meet. Name the same nodes everywhere."
    assert difference(note(), note(five)) == f"5 nodes at you:2, and 3 at this client{same}"
    assert difference(note(five), note()) == f"3 nodes at you:2, and 5 at this client{same}"
    for ours, theirs in ((BOTH, BOTH), (BOTH[:1], BOTH[1:])):
        assert difference(note(spreads=ours), note(five, spreads=theirs)) == f"5 nodes at you:2, and 3 at this client{same}"


def test_a_joint_shard_has_more_nodes_and_tells_of_no_other_client() -> None:
    joint = note([*RUNS, "d" * 40], spreads=(*BOTH, "c3"))
    for spreads in (BOTH, BOTH[:1], BOTH[1:]):
        assert difference(note(spreads=spreads), joint) == difference(joint, note(spreads=spreads)) == ""
    assert told(a_registry(*BOTH, "c3"), {0: [entry("b2", ("a:1 00000001", 5.0))]}) == []


def test_another_failover_is_a_difference() -> None:
    # Rule G7.
    same = note(failovers=(15.0, None, 0.0))
    assert difference(same, note(RUNS[::-1], failovers=(0.0, None, 15.0))) == "", "in whatever order"
    assert difference(note(failovers=(20.0, None, 0.0)), same) == (
        "failover=15 at you:2 for the server with run_id aaaaaaaa…, and failover=20 at this client: "
        "only if all have the same are locks safe after a failover. Set the larger one everywhere."
    )
    assert "failover=0 at you:2 for the server with run_id cccccccc…, and no failover" in difference(note(failovers=(15.0,)), same)
    assert "no failover at you:2 for the server with run_id aaaaaaaa…, and failover=15" in difference(same, note())
    assert difference(note(["", *RUNS[1:]]), note(failovers=(15.0,))) == "", "of a node that one of them has not met"


def test_another_node_is_a_difference() -> None:
    # Rule G7.
    assert difference(note(), note([*RUNS[:2], "d" * 40])) == OTHERS.format("you:2")
    assert "other nodes" in difference(note([RUNS[0], "", RUNS[2]]), note([RUNS[1], "d" * 40, RUNS[0]]))


def test_a_client_that_has_ended_makes_no_difference() -> None:
    other, strange = note(max_ttl=12.5), [entry("b2", ("a:1 00000001", RECENT + 1.0))]
    assert difference(note(), other, age=RECENT) and not difference(note(), other, age=RECENT + 1.0)
    assert told(a_registry(*BOTH), {0: strange}) == [], "though it may come back, and so is shown"


def test_a_server_that_restarted_is_no_difference() -> None:
    """What was noted before it did still names its run before, and another client may be some seconds late."""
    new = "d" * 40
    mine = note([*RUNS[:2], new])
    assert difference(mine, note(), age=5.0, lasted={**LONG, new: 6.0}) == ""
    assert difference(mine, note(), age=5.0, lasted={**LONG, new: 5.0 + EVERY}) == ""
    assert "other nodes" in difference(mine, note(), age=5.0, lasted={**LONG, new: 6.0 + EVERY})


# ------------------------------------------------ warnings


def test_other_nodes_are_warned_of_when_they_are_seen_twice() -> None:
    """After a failover, clients meet the new server one after the other."""
    here, theirs = a_registry(), [entry(note([*RUNS[:2], "d" * 40]), ("you:2 0000000b", 1.0))]
    assert told(here, {0: theirs}) == []
    assert [text for _, _, text in told(here, {0: theirs}, 40.0)] == [OTHERS.format("you:2")]
    assert told(here, {0: theirs}, 70.0) == []


def test_a_warning_names_three() -> None:
    many = [(f"web-{it}:7 {it:08x}", it + 1.0) for it in range(5)]
    assert "others: web-0:7, web-1:7, web-2:7 and 2 more. " in told(a_registry(*BOTH), {0: [entry("b2", *many)]})[0][2]


def test_a_client_does_not_remember_every_client_that_differs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of three, one that remembers two is warned of the first again."""
    monkeypatch.setattr(registry, "MOST", 2)
    here = a_registry(*BOTH)
    strangers = {it: {0: [entry("b2", (f"{it}:1 00000001", 1.0))]} for it in "abc"}
    for answers in strangers.values():
        told(here, answers)
    assert told(here, strangers["a"]) != []
    assert told(here, strangers["c"]) == []


# ------------------------------------------------ permits


def pool(permits: int = 3, name: str = "pool") -> Slots:
    return Slots(name, permits, 1, 10.0, horizon=16_000)


def due(here: Registry) -> list[tuple[str, int]]:
    """What is to be noted now."""
    return [(slots.label, len(slots)) for slots, _ in here.sizes()]


def test_a_size_is_noted_when_permits_are_wanted_and_again_after_a_third_of_the_time() -> None:
    here = a_registry()
    assert due(here) == []
    here.wanted(pool(), 100.0)
    here.wanted(pool(), 100.1)
    here.wanted(pool(4, "other"), 100.1)
    slots, data = next(iter(here.sizes()))
    assert data == slots.tells(30.0)
    here.wanted(pool(), 109.9)
    assert due(here) == []
    here.wanted(pool(), 110.0)
    here.wanted(pool(4), 110.0)
    assert due(here) == [("pool", 3), ("pool", 4)], "another size at once"


def test_a_client_does_not_remember_every_semaphore_that_a_template_has_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of four, one that remembers two notes the first again."""
    monkeypatch.setattr(registry, "MOST", 2)
    here = a_registry()
    for name in "abcbd":
        here.wanted(pool(3, name), 100.0)
    due(here)
    for name in "abcd":
        here.wanted(pool(3, name), 101.0)
    assert ("a", 3) in due(here)


@pytest.mark.parametrize(
    "answers, node",
    [
        ({}, None),
        ({0: None, 1: b"3", 2: b"3"}, None),
        ({2: b"4", 1: b"3", 0: b"5"}, 0),
        ({0: b"3", 2: b"4"}, 2),
        ({0: b"no number", 1: 4, 2: b"44444"}, None),
    ],
)
def test_the_first_node_that_tells_of_another_size_is_enough(answers: dict[int, object], node: int | None) -> None:
    here = a_registry()
    query = Query({}, NodeSet(["n0", "n1", "n2"], 1.0, 10.0, 16_000), deadline=1.0)
    query.answers.update(answers)
    assert [(at, kind) for at, kind, _ in here.told(query, pool(), {}, 1.0)] == ([] if node is None else [(node, "permits")])
