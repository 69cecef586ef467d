"""The checker, with histories made by hand: each law broken once, and what breaks none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from nemesis.history import FAILED, FORKED, GRANTED, LOST, RELEASED, UNTIL, History, Tail


def line(what: str, at: float, token: str = "", **facts: Any) -> dict[str, Any]:
    return {"what": what, "at": at, "who": f"user {token}", "name": "a", "token": token, **facts}


def granted(token: str, since: float, until: float, fence: Any, **facts: Any) -> dict[str, Any]:
    return line(GRANTED, since, token, since=since, until=until, fence=fence, **facts)


def laws(*lines: dict[str, Any], since: float = 0.0) -> list[str]:
    history = History()
    for it in lines:
        history.add(it)
    return [it.law for it in history.judge(since)]


ONE, TWO = granted("1", 1.0, 2.0, 10), granted("2", 1.5, 2.5, 11)


@pytest.mark.parametrize(
    "between",
    [
        [line(RELEASED, 1.4, "1")],
        [line(LOST, 1.4, "1")],
        [line(UNTIL, 1.1, "1", until=1.5)],
        [line(UNTIL, 1.1, "1", until=3.0), line(RELEASED, 1.2, "1")],
        [line(RELEASED, 1.2, "1"), line(UNTIL, 1.3, "1", until=3.0)],
        [line(LOST, 1.3, "1"), line(RELEASED, 1.6, "1")],
    ],
    ids=["released", "lost", "run out", "renewed and released", "a line that is late", "lost, and released later"],
)
def test_one_after_the_other(between: list[dict[str, Any]]) -> None:
    assert laws(ONE, *between, TWO) == []


@pytest.mark.parametrize(
    "between",
    [[], [line(UNTIL, 1.1, "1", until=1.9)], [line(RELEASED, 1.6, "1")], [line(LOST, 1.6, "1")], [line(FORKED, 1.2, "1")]],
    ids=["never ended", "until later", "released later", "told later", "something else"],
)
def test_two_at_the_same_time(between: list[dict[str, Any]]) -> None:
    assert laws(ONE, *between, TWO) == ["exclusion"]
    assert laws(TWO, ONE, *between) == ["exclusion"], "whatever the order in which the files were read"


def test_a_renewed_lease_lasts_longer() -> None:
    assert laws(ONE, line(UNTIL, 1.9, "1", until=3.0), granted("2", 2.5, 3.5, 11)) == ["exclusion"]
    assert laws(ONE, granted("2", 2.5, 3.5, 11)) == []


@pytest.mark.parametrize("fence", [10, 9])
def test_a_fence_that_does_not_grow(fence: int) -> None:
    assert laws(ONE, granted("2", 2.0, 3.0, fence)) == ["fence"]
    assert laws(ONE, granted("2", 2.0, 3.0, fence, name="b")) == []


def test_fences_are_looked_at_in_the_order_of_grants_and_not_of_lines() -> None:
    """A client that was stopped writes down late what it was granted before."""
    assert laws(granted("2", 2.0, 3.0, 11), {**ONE, "at": 9.0}) == []


@pytest.mark.parametrize("fence", [None, 0, -1, 1.5, "7", True, 2**53])
def test_a_grant_without_a_fence(fence: Any) -> None:
    assert laws(granted("1", 1.0, 2.0, fence)) == ["no fence"]


def test_what_no_client_may_see() -> None:
    assert laws(line(FAILED, 1.0, told="KeyError()")) == ["failed"]


def test_only_what_is_new_is_judged_while_it_goes_on() -> None:
    assert laws(ONE, TWO, granted("3", 5.0, 6.0, 12), granted("4", 5.5, 6.0, 13), since=4.0) == ["exclusion"]


def test_when_a_name_was_last_of_use() -> None:
    history = History()
    for it in (ONE, line(UNTIL, 1.7, "1", until=3.0), line(LOST, 1.8, "1")):
        history.add(it)
    assert history.alive == {"a": 1.7}
    assert len(history.around(1.7)) == 2


def test_files_are_read_to_their_last_whole_line(tmp_path: Path) -> None:
    tail = Tail(tmp_path)
    with open(tmp_path / "c1.history", "w") as one, open(tmp_path / "c2.history", "w") as two:
        one.write(json.dumps(ONE) + "\n" + '{"what": "gra')
        two.write(json.dumps(TWO) + "\n")
        one.flush()
        two.flush()
        assert tail.take() == [ONE, TWO]
        assert tail.take() == []
        one.write('nted"}\n')
        one.flush()
        assert tail.take() == [{"what": "granted"}]
