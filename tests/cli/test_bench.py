"""`holdfast bench`: this machine against these nodes, and what it says that it measured."""

from __future__ import annotations

import json
import platform

import pytest
from cli.kit import Command

from holdfast import Holdfast
from holdfast.cli.bench import PREFIX, bar, handed, times
from holdfast.embedded import Nodes


def test_what_is_measured_is_labelled(holdfast: Command, nodes: Nodes) -> None:
    done = holdfast.run("bench", "--seconds", "2", "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["python"] == platform.python_version()
    assert [it["node"] for it in told["nodes"]] == list(nodes.urls)
    for it in ("round_trip", "acquire", "pair", "hand_over"):
        assert told[it]["samples"] > 0
        assert 0 < told[it]["p50"] <= told[it]["p99"] < 2
    assert told["acquire"]["p50"] < told["pair"]["p50"]
    assert told["round_trips_a_lock"] == pytest.approx(told["acquire"]["p50"] / told["round_trip"]["p50"], abs=0.01)
    with Holdfast(*nodes.urls) as locks:
        assert locks.names(f"{PREFIX}*") == [], "nothing is left"


def test_people_get_a_line_and_a_bar_for_each(holdfast: Command) -> None:
    shown = holdfast.run("bench", "--seconds", "1").stdout
    assert "round trips here" in shown.splitlines()[-1]
    for it in ("round trip: PING", "acquire a free lock", "acquire and release", "hand-over"):
        assert it in shown
    assert "█" * 8 in shown, "the longest bar is that of the longest time"


def test_without_nodes_it_says_so(holdfast: Command) -> None:
    assert holdfast.run("bench", "--nodes", "redis://127.0.0.1:1").returncode == 69
    assert holdfast.run("bench", "--seconds", "1ms").returncode == 78


def test_percentiles() -> None:
    assert [times(range(it)) for it in (0, 1, 2, 99)] == [None, (1, 0, 0), (2, 1, 1), (99, 49, 98)]
    assert times(map(float, range(1000, 0, -1))) == (1000, 501.0, 991.0)


def test_a_gap_counts_only_between_the_two() -> None:
    # A process that has it twice in a row has handed nothing over.
    assert handed([(0.0, 1.0), (2.0, 3.0)], [(3.5, 4.0), (5.0, 6.0)]) == [0.5]
    assert handed([(7.0, 8.0)], [(3.5, 4.0), (5.0, 6.0)]) == [1.0]
    assert handed([], [(3.5, 4.0)]) == []


def test_a_bar_has_eight_characters() -> None:
    assert {len(bar(it / 100)) for it in range(120)} == {8}
    assert [bar(it) for it in (0.0, 1 / 64, 0.49, 0.5, 1.0)] == ["▏       ", "▏       ", "███▉    ", "████    ", "████████"]
