"""The census: what a client says of its settings, when, and which differences it finds in what another has said."""

from __future__ import annotations

from math import inf

import hiredis
import pytest

from holdfast.engine.census import AGAIN, LIFE, Census

RUNS = ["a" * 40, "b" * 40, "c" * 40]
PATIENCE = 0.5


def a_census(max_ttl: float = 30.0, prefix: str = "") -> Census:
    return Census(prefix, max_ttl, PATIENCE)


Failovers = tuple[float | None, ...]


def said(runs: list[str], max_ttl: float = 30.0, failovers: Failovers = ()) -> bytes:
    """What a client of these nodes writes. (Empty: a node that it has not met.)"""
    words = hiredis.Reader()
    words.feed(a_census(max_ttl).question(runs, 0.0, failovers))
    return words.gets()[2]


def difference(
    mine: list[str], theirs: object, young: list[str] | None = None, max_ttl: float = 30.0, failovers: Failovers = ()
) -> str:
    """What a client finds in what another has said."""
    census = a_census(max_ttl)
    census.question(mine, 0.0, failovers)
    return census.difference(theirs, young or [])


# ------------------------------------------------ what, and when


@pytest.mark.parametrize("prefix, key", [("", b"{holdfast}:config:"), ("app:ä", "{holdfast}:config:app:ä".encode())])
def test_it_writes_its_settings_for_an_hour_and_reads_what_was_there(prefix: str, key: bytes) -> None:
    words = hiredis.Reader()
    words.feed(a_census(12.345, prefix).question([RUNS[2], "", RUNS[0]], 0.0))
    assert words.gets() == [b"SET", key, b"v1 12345 3 aaaaaaaa,cccccccc", b"PX", b"3600000", b"GET"]
    assert words.gets() is False
    assert LIFE == 3600


def test_it_is_said_a_little_after_a_node_is_up() -> None:
    census = a_census()
    census.used(1e9)
    assert (census.due, census.round) == (inf, None)  # a client that has met nobody has nothing to say
    census.soon(10.0)
    census.soon(10.2)  # the others are told with the first
    assert census.due == 10.5
    census.question(RUNS, 10.6)
    assert census.due == inf
    census.soon(20.0)
    assert census.due == 20.5


def test_it_is_said_again_only_by_whoever_uses_it_after_a_while() -> None:
    census = a_census()
    census.question(RUNS, 10.0)
    census.used(10.0 + AGAIN - 0.001)
    assert census.due == inf
    census.used(10.0 + AGAIN)
    census.used(11.0 + AGAIN)
    assert census.due == 10.0 + AGAIN + PATIENCE
    census.question(RUNS, 12.0 + AGAIN)
    census.used(13.0 + AGAIN)
    assert census.due == inf
    assert AGAIN == 1200.0
    assert 2 * AGAIN < LIFE, "it is there as long as the client is in use"


# ------------------------------------------------ differences


def test_those_who_agree_have_nothing_to_tell() -> None:
    assert difference(RUNS, said(RUNS)) == ""
    assert difference(RUNS, said(RUNS[::-1])) == ""


@pytest.mark.parametrize(
    "theirs", [None, b"", b"v2 30000 3 aaaaaaaa", b"v1 x 3 ", b"v1 30000 3 AAAAAAAA", b"v1 1 1 a\n", "v1 1 1 a", 5, Exception("NOPERM")]
)
def test_what_no_client_of_this_version_says_is_passed_over(theirs: object) -> None:
    assert difference(RUNS, theirs) == ""


def test_who_has_said_nothing_finds_nothing() -> None:
    assert a_census().difference(said(RUNS, 20.0), []) == ""


def test_another_max_ttl_is_a_difference() -> None:
    # Rule G7.
    assert difference(RUNS, said(RUNS, 12.5)) == (
        "another client of these nodes has max_ttl=12.5, this one 30: only if all have the same are leases and fences safe. "
        "Set the larger one everywhere."
    )
    assert "max_ttl=30, this one 0.05" in difference(RUNS, said(RUNS), max_ttl=0.05)
    assert difference(RUNS, said(RUNS, 30.0004)) == "", "a thousandth of a second is the unit of leases"


def test_another_number_of_nodes_is_a_difference() -> None:
    five = [*RUNS, "d" * 40, "e" * 40]
    assert difference(RUNS, said(five)) == (
        "another client uses 5 nodes, this one 3: their majorities need not meet. Name the same nodes everywhere."
    )
    assert "uses 3 nodes, this one 5" in difference(five, said(RUNS))


def test_failover_is_said_of_the_nodes_that_have_one() -> None:
    assert said([RUNS[2], RUNS[1], RUNS[0]], failovers=(15.0, None, 0.0)).endswith(b" aaaaaaaa=0,cccccccc=15000")
    assert said([RUNS[0], ""], failovers=(None, 15.0)) == b"v1 30000 2 aaaaaaaa", "the one that it has not met"


def test_another_failover_is_a_difference() -> None:
    same = (15.0, None, 0.0)
    assert difference(RUNS, said(RUNS, failovers=same), failovers=same) == ""
    assert difference(RUNS, said(RUNS[::-1], failovers=same[::-1]), failovers=same) == "", "in whatever order"
    assert difference(RUNS, said(RUNS, failovers=same), failovers=(20.0, None, 0.0)) == (
        "another client has failover=15 for the server with run_id aaaaaaaa…, this one failover=20: "
        "only if all have the same are locks safe after a failover. Set the larger one everywhere."
    )
    assert "has failover=0 for the server with run_id cccccccc…, this one no failover" in difference(
        RUNS, said(RUNS, failovers=same), failovers=(15.0, None, None)
    )
    assert "has no failover for the server with run_id aaaaaaaa…, this one failover=15" in difference(
        RUNS, said(RUNS), failovers=same
    )


def test_a_failover_of_a_node_that_one_of_them_has_not_met_is_no_difference() -> None:
    theirs = said(["", *RUNS[1:]], failovers=(15.0, None, None))
    assert difference(RUNS, theirs, failovers=(15.0, None, None)) == ""
    assert difference(["", *RUNS[1:]], said(RUNS, failovers=(15.0, None, None)), failovers=(15.0, None, None)) == ""


def test_another_node_is_a_difference() -> None:
    assert difference(RUNS, said([*RUNS[:2], "d" * 40])) == (
        "another client uses other nodes besides this one: their majorities need not meet. Name the same nodes everywhere."
    )


@pytest.mark.parametrize(
    "mine, theirs",
    [([RUNS[0], "", RUNS[2]], RUNS), (RUNS, [RUNS[0], "", RUNS[2]]), (["", "", RUNS[0]], ["", RUNS[1], ""])],
)
def test_a_node_that_one_has_not_met_is_no_difference(mine: list[str], theirs: list[str]) -> None:
    assert difference(mine, said(theirs)) == ""


def test_what_one_has_not_met_cannot_be_what_the_other_has_too_many() -> None:
    assert "other nodes" in difference([RUNS[0], "", RUNS[2]], said([RUNS[1], "d" * 40, RUNS[0]]))


def test_a_server_that_restarted_is_no_difference() -> None:
    """What was written before it did still names its run before."""
    new = "d" * 40
    assert difference([*RUNS[:2], new], said(RUNS), young=[new]) == ""
    assert "other nodes" in difference([*RUNS[:2], new], said(RUNS), young=[RUNS[0]])
    assert "other nodes" in difference([RUNS[0], "e" * 40, new], said(RUNS), young=[new])
    assert difference([RUNS[0], "e" * 40, new], said(RUNS), young=[new, "e" * 40]) == ""


def test_whoever_cannot_reach_a_server_says_nothing_of_its_run() -> None:
    """It may have restarted meanwhile, and another client have met it: what is known of the run before would be a difference."""
    new = "d" * 40
    assert difference([*RUNS[:2], ""], said([*RUNS[:2], new])) == ""
    assert difference(RUNS, said([*RUNS[:2], new])) != ""


def test_a_difference_is_news_once() -> None:
    census = Census("", 30.0, 1.0)
    assert [census.news(it) for it in ("max_ttl", "max_ttl", "nodes", "max_ttl")] == [True, False, True, False]
