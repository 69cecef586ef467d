"""Surveys: what is asked about many locks, and what all answers mean together."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from operations.inspection.test_commands import ALIEN, MINE, ONE, THREE, TWO, script
from scripts.bench import spoken

from holdfast.operations.survey import commands as survey
from holdfast.operations.survey.commands import Row, SurveyAnswer
from holdfast.protocol.quorum import Quorum

MOMENT = datetime(2023, 11, 14, 22, 13, 20, 10, tzinfo=UTC)


def view(
    value: bytes | None = None,
    left: int = -2,
    fence: int = 0,
    waiting: int = 0,
    first: bytes | None = None,
    note: bytes | None = None,
) -> SurveyAnswer:
    return SurveyAnswer(value, left, fence, waiting, first, note)


def row(key: bytes, *views: SurveyAnswer, nodes: int = 3, prefix: str = "") -> Row | None:
    return survey.row(key, prefix, dict(enumerate(views)), Quorum(range(nodes)), MINE)


def held(key: bytes, value: bytes) -> Row:
    found = row(key, *[view(value, 900, 5)] * 3)
    assert found is not None
    return found


def test_what_is_asked_about_some_locks() -> None:
    assert spoken(survey.look([b"a:b", b"", b"7:x"])) == [b"EVAL", script("survey"), b"0", b"3:a:b0:3:7:x"]


def test_what_a_node_says_of_each_lock() -> None:
    reply = [ONE, 900, b"5", 2, TWO, b"note", None, -2, None, 0, None, None]
    assert survey.told(reply, 2) == [view(ONE, 900, 5, 2, TWO, b"note"), view()]
    assert survey.told([ALIEN, -1, b"many", 1, b"alien", 7], 1) == [view(ALIEN, -1, 0, 1, None, 7)]  # type: ignore[arg-type]  # (what a node may answer)


@pytest.mark.parametrize(
    "reply",
    [
        None,
        [ONE, 900, b"5", 0, None],
        [ONE, b"900", b"5", 0, None, None],
        [ONE, 900, 5, 0, None, None],
        [7, 900, b"5", 0, None, None],
        [ONE, 900, b"5", 0, None, None] * 2,
    ],
)
def test_what_the_script_does_not_say(reply: object) -> None:
    assert survey.told(reply, 1) is None


def test_a_lock_that_a_majority_has() -> None:
    note = b"5 1 900 %b build 4711" % ONE
    views = [view(ONE, 5000, 5, 2, THREE, b"9 1 900 %b else" % TWO), view(ONE, 3000, 5, 1, TWO, note), view()]
    assert row(b"app:x", *views, prefix="app:") == Row(
        name="x",
        kind="exclusive",
        group=None,
        slot=None,
        state="held",
        holder=ONE.decode(),
        owner="me",
        note="build 4711",
        left=3.0,
        fence=5,
        waiting=2,
        waits_since=MOMENT + timedelta(microseconds=1),
        nodes=2,
        asked=MOMENT,
    )


def test_a_lock_that_a_majority_has_not() -> None:
    assert row(b"x", view(ONE, 900, 5), view(), view()) is None, "it is free"
    split = row(b"x", view(ONE, 900, 5), view(TWO, 900, 6), view())
    assert split is not None
    assert (split.state, split.holder, split.owner, split.left, split.fence, split.nodes) == ("split", None, None, None, 6, 2)
    assert split.asked is None
    unknown = row(b"x", view(ONE, 900, 5), view())
    assert unknown is not None and unknown.state == "split", "the third node may have it too"
    assert survey.holder_of({0: view(ONE), 1: view(ONE)}, Quorum(range(3))) == ONE
    assert survey.holder_of({0: view(ONE), 1: view(TWO)}, Quorum(range(3))) is None


def test_a_lease_that_never_ends_and_one_of_somebody_else() -> None:
    found = row(b"x", *[view(ALIEN, -1)] * 3)
    assert found is not None
    assert (found.holder, found.left, found.owner, found.asked, found.fence) == ("alien\\xff", None, None, None, None)


@pytest.mark.parametrize(
    "key, value, kind, group, slot",
    [
        (b"x", ONE, "exclusive", None, None),
        (b"x", ONE + b":w", "write", None, None),
        (b"x", b"shared", "read", None, None),
        (b"x", b"no token:w", "exclusive", None, None),
        (b"gpus[slot 7]", ONE, "permit", "gpus", 7),
        (b"[slot 0]", ONE, "permit", "", 0),
        (b"x[slot 7]y", ONE, "exclusive", None, None),
        (b"boss[election]", ONE, "election", None, None),
        (b"report[once]", ONE, "once", None, None),
        (b"report[once 2026-11-23]", ONE, "once", None, None),
        (b"price[fill]", ONE, "fill", None, None),
    ],
)
def test_what_a_lock_is_for(key: bytes, value: bytes, kind: str, group: str | None, slot: int | None) -> None:
    found = held(key, value)
    assert (found.name, found.kind, found.group, found.slot) == (key.decode(), kind, group, slot)


def test_readers_have_no_fence_and_no_owner() -> None:
    found = held(b"x", b"shared")
    assert (found.holder, found.owner, found.fence, found.asked, found.left) == ("shared", None, None, None, 0.9)
