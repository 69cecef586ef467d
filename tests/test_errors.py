"""Errors are one tree, carry their facts, survive pickling, and say what to do next."""

from __future__ import annotations

import copy
import pickle
import re
from typing import get_args

import pytest

from holdfast import errors
from holdfast.errors import (
    ITSELF,
    BadFence,
    Cancelled,
    ConfigError,
    HoldfastError,
    LockBusy,
    LockLost,
    Misuse,
    NoQuorum,
    NotAcquired,
    NotAllArrived,
    RateLimited,
    StaleFence,
    is_closed,
    message_of,
    outcome_of,
)

FACTS = ("LockBusy", "RateLimited", "NotAllArrived", "NoQuorum", "Cancelled", "LockLost", "StaleFence")
PLAIN = [getattr(errors, name) for name in errors.__all__ if name not in FACTS]
EVERY = [
    *(kind("so it is") for kind in PLAIN),
    *(Misuse("so it is", reason) for reason in get_args(errors.MisuseReason)),
    ConfigError("so it is", "bad_name"),
    LockBusy("a", 1.5, None, None),
    RateLimited("a", 1.5, None, 10, 60.0, 3.5),
    NotAllArrived("a", 1.5, 2, 3, ("x", "y")),
    NoQuorum("a", 1.5, {"n1": OSError("refused"), "n2": ConfigError("too old")}, 2),
    Cancelled("a", 1.5),
    LockLost("a", "gap", 7),
    StaleFence("a", 8, 9),
]


def test_who_was_overtaken_is_to_look() -> None:
    """(Nobody outside sees it: whoever waits for what a holder makes catches it.)"""
    error = errors.Overtaken("a", 1.5)
    assert isinstance(error, NotAcquired) and (error.name, error.waited) == ("a", 1.5)
    assert message_of(error) == "another client may already have produced the result that 'a' was awaited for (waited 1.500 s)"


def test_B53_the_tree_is_as_drawn() -> None:
    """At the head of the module: who is whose child, and what else it is."""
    drawn, line = {}, [("", 0)]
    for row in (errors.__doc__ or "").splitlines():
        found = re.match(r"    ([│├└─ ]*)(\w+)(?:\s+\(also (\w+)\))?", row)
        if found is None or found[2] not in errors.__all__:
            continue
        depth = len(found[1])
        while line[-1][1] >= depth and len(line) > 1:
            line.pop()
        drawn[found[2]] = ([line[-1][0]] if line[-1][0] else []) + ([found[3]] if found[3] else [])
        line.append((found[2], depth))
    assert drawn.pop("HoldfastError") == []
    assert {type(error) for error in EVERY} == {getattr(errors, name) for name in errors.__all__}
    assert {"HoldfastError", *drawn} == set(errors.__all__)
    for name, parents in drawn.items():
        assert [it.__name__ for it in getattr(errors, name).__bases__] == parents


def test_each_error_is_caught_only_as_what_it_is() -> None:
    for error in EVERY:
        assert isinstance(error, TimeoutError) is (type(error) in (LockBusy, RateLimited, NotAllArrived))
        assert isinstance(error, ValueError) is (type(error) in (ConfigError, BadFence))
        assert isinstance(error, RuntimeError) is isinstance(error, Misuse)
        assert isinstance(error, OSError) is (type(error) in (LockBusy, RateLimited, NotAllArrived)), (
            "no connection of anybody's has failed"
        )


@pytest.mark.parametrize("error", EVERY, ids=lambda error: type(error).__name__)
def test_an_error_survives_pickling_and_copying(error: HoldfastError) -> None:
    for twin in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(twin) is type(error)
        assert str(twin) == str(error)
        # Exceptions in `causes` compare by identity: their text has to do.
        assert str(vars(twin)) == str(vars(error))


def test_an_error_has_its_facts_on_the_other_side() -> None:
    busy = pickle.loads(pickle.dumps(LockBusy("a", 0.25, "host:1", 2.0)))
    assert (busy.name, busy.waited, busy.holder, busy.ttl_left) == ("a", 0.25, "host:1", 2.0)
    assert (busy.errno, busy.strerror, busy.filename) == (None, None, None), "(a TimeoutError has these)"
    limited = pickle.loads(pickle.dumps(RateLimited("mail", 0.25, "user:7", 10, 60.0, 3.5)))
    assert (limited.name, limited.waited, limited.key, limited.limit) == ("mail", 0.25, "user:7", 10)
    assert (limited.period, limited.retry_after) == (60.0, 3.5)
    told = "'mail' of 'user:7' is used up: 10 in 60 s are allowed, and more in 3.500 s at the earliest; waited 0.250"
    assert str(limited).startswith(told)
    some = pickle.loads(pickle.dumps(NotAllArrived("a", 0.25, 2, 3)))
    assert (some.name, some.waited, some.arrived, some.count) == ("a", 0.25, 2, 3)
    assert (some.ids, str(some).startswith("2 of 3 have arrived at 'a'; waited 0.250 s for the others.")) == ((), True)
    some = pickle.loads(pickle.dumps(NotAllArrived("a", 0.25, 7, 9, ("x\n", *"bcdefg"))))
    assert some.ids == ("x\n", *"bcdefg")
    assert "('a', 'b', 'c', 'd', 'e')" in str(NotAllArrived("a", 0.25, 5, 9, tuple("abcde")))
    assert str(some).startswith(r"7 of 9 have arrived at 'a' ('x\\n', 'b', 'c', 'd', 'e' and 2 more); waited 0.250 s")
    unknown = pickle.loads(pickle.dumps(NoQuorum("a", 1.5, {"n1": ConnectionResetError("gone")}, 2)))
    assert (unknown.name, unknown.waited, type(unknown.causes["n1"])) == ("a", 1.5, ConnectionResetError)
    lost = pickle.loads(pickle.dumps(StaleFence("a", 7, 9)))
    assert (lost.name, lost.reason, lost.fence, lost.seen) == ("a", "stale", 7, 9)
    bad = pickle.loads(pickle.dumps(BadFence("no fence", "x")))
    assert (message_of(bad), bad.said, BadFence("no fence").said) == ("no fence", "x", None)


@pytest.mark.parametrize("error", EVERY, ids=lambda error: type(error).__name__)
def test_the_text_of_an_error_ends_in_the_address_of_its_page(error: HoldfastError) -> None:
    reason = error.reason if isinstance(error, Misuse | ConfigError) else "other"
    assert error.page == f"holdfast/errors#{type(error).__name__.lower() if reason == 'other' else reason}"
    assert str(error) in (f"{error.message} [{error.page}]", f"{error.message}\n[{error.page}]")
    assert error.args == (error.message,), "the address is not stored: a pickled error has it once"
    assert str(pickle.loads(pickle.dumps(error))).count("holdfast/errors#") == 1
    assert message_of(error) == error.message and message_of(OSError("refused")) == "refused"


OUTCOMES = [
    (LockBusy("a", 1.0, None, None), "busy"),
    (RateLimited("a", 1.0, None, 1, 60.0, 5.0), "busy"),
    (NotAllArrived("a", 1.0, 1, 2), "busy"),
    (NoQuorum("a", 1.0, {}, 2), "no_quorum"),
    (Cancelled("a", 1.0), "gave_up"),
    (None, "gave_up"),
    (KeyboardInterrupt(), "gave_up"),
    (ConfigError("no"), "error"),
    (ValueError("no"), "error"),
]


@pytest.mark.parametrize("error, outcome", OUTCOMES)
def test_how_a_call_ended_in_one_word(error: BaseException | None, outcome: str) -> None:
    assert outcome_of(error) == outcome


def test_a_message_of_several_lines_has_the_address_on_a_line_of_its_own() -> None:
    told = str(NoQuorum("a", 1.0, {"n1": ConfigError("too old"), "n2": OSError("refused")}, 2))
    assert told.splitlines()[1:] == ["  n1: too old", "  n2: refused", "[holdfast/errors#noquorum]"]
    assert str(ConfigError("")) == "[holdfast/errors#configerror]"


def test_an_error_of_a_closed_client_is_told_from_others() -> None:
    assert [it for it in EVERY if is_closed(it)] == [it for it in EVERY if isinstance(it, Misuse) and it.reason == "closed"]
    assert is_closed(errors.closed()) and not is_closed(KeyError())


@pytest.mark.parametrize("error", EVERY[-6:], ids=lambda error: type(error).__name__)
def test_B53_a_message_names_the_lock_and_says_what_to_do(error: HoldfastError) -> None:
    words = str(error)
    assert "'a'" in words
    assert any(advice in words for advice in ("Wait longer", "Clear it", "Look at these nodes, then try again", "Stop what it protected"))


def test_busy_tells_who_and_for_how_long() -> None:
    error = LockBusy("a", 0.25, "host:1", 2.0)
    assert (error.name, error.waited, error.holder, error.ttl_left) == ("a", 0.25, "host:1", 2.0)
    assert str(error).startswith("'a' is held by host:1 for up to 2.0 s more unless renewed (waited 0.250 s). Wait longer")
    assert error.owner is None
    error.held_by("web-3:118")
    assert (error.owner, error.holder) == ("web-3:118", "host:1")
    assert str(error).startswith("'a' is held by web-3:118 for up to 2.0 s more unless renewed (waited 0.250 s). Wait longer")
    twin = pickle.loads(pickle.dumps(error))
    assert (twin.owner, str(twin)) == (error.owner, str(error))
    error.held_by("web-3:118", "build\n4711")
    assert (error.owner, error.note) == ("web-3:118", "build\n4711")
    assert str(error).startswith("'a' is held by web-3:118 (build\\n4711) for up to 2.0 s more")
    error.held_by(None, "build")
    assert (error.owner, error.note) == (None, "build")
    assert str(error).startswith("'a' is held by host:1 (build) for up to 2.0 s more")
    mine = LockBusy("a", 0.25, "host:1", 2.0, who=ITSELF)
    assert mine.note is None
    mine.held_by("host:1")
    assert "held by this client itself for" in str(mine)
    mine.held_by("host:1", "build")
    assert "held by this client itself (build) for" in str(mine)
    unknown = str(LockBusy("a", 0.25, None, None))
    assert "held by another client (waited 0.250 s)" in unknown
    named = LockBusy("a", 0.25, "host:1", None, who="a friend", advice="Ask her.")
    assert message_of(named) == "'a' is held by a friend (waited 0.250 s). Ask her."
    assert named.holder == "host:1"


def test_busy_shows_a_holder_on_one_short_line_and_keeps_it_whole() -> None:
    value = "\x1b[2Jworker\n" * 1000
    error = LockBusy("a", 0.25, value, 2.0)
    assert error.holder == value
    assert str(error).isprintable() and "\\x1b[2Jworker\\n" in str(error) and len(str(error)) < 250


@pytest.mark.parametrize(
    "text, told",
    [
        ("", ""),
        ("as it is: é 漢 🔒 \\", "as it is: é 漢 🔒 \\"),
        ("a\nb\r\tc\x00\x7f", "a\\nb\\r\\tc\\x00\\x7f"),
        ("\x1b[31m\x9b", "\\x1b[31m\\x9b"),
        ("\u202eevil\u2028\u200b", "\\u202eevil\\u2028\\u200b"),
        ("half of a pair \ud800", "half of a pair \\ud800"),
    ],
    ids=["nothing", "printable", "lines", "colours", "directions", "half"],
)
def test_what_cannot_be_printed_is_escaped(text: str, told: str) -> None:
    assert errors.readable(text) == told


@pytest.mark.parametrize(
    "text, most, told",
    [("abcde", 5, "abcde"), ("abcdef", 5, "abcde..."), ("\n\n\n", 5, "\\n\\n\\..."), ("\n" * 9, 5, "\\n\\n\\...")],
)
def test_a_long_text_is_cut(text: str, most: int, told: str) -> None:
    assert errors.readable(text, most) == told


def test_no_quorum_tells_what_is_wrong_with_each_node() -> None:
    error = NoQuorum("a", 1.0, {"n1": OSError("refused")}, 2, "extend")
    assert (error.name, error.waited, str(error.causes["n1"])) == ("a", 1.0, "refused")
    assert str(error).startswith("could not extend 'a': fewer than 2 nodes are usable")
    assert message_of(error).endswith("\n  n1: refused")
    assert str(NoQuorum("a", 1.0, {}, 2)).startswith("could not acquire 'a': fewer than 2 nodes are usable (waited 1.000 s).")
    assert "No node has reported a problem: allow more time" in str(NoQuorum("a", 1.0, {}, 2))
    assert "no node is usable" in str(NoQuorum("a", 1.0, {}, 1))
    assert "too few nodes of the former or the new list are usable" in str(NoQuorum("a", 1.0, {}, 1, lists=2))


@pytest.mark.parametrize("reason", ["expired", "refused", "gap", "forced", "max_hold", "slow", "closed", "dropped", "ticket"])
def test_a_loss_tells_why_in_words(reason: str) -> None:
    error = LockLost("a", reason, 7)
    assert (error.name, error.reason, error.fence) == ("a", reason, 7)
    assert f"({reason}): {reason}." not in str(error)
    assert len(str(error)) > 70
    assert message_of(error).endswith("Stop what it protected; its fence was 7.")
    assert ("(a: it is full)" in str(LockLost("a", reason, 7, why="a: it is full"))) is (reason in ("expired", "refused"))


def test_a_loss_may_be_told_in_other_words() -> None:
    assert "(stale): what it protects refuses fences below 9." in str(StaleFence("a", 8, 9))
    assert "(stale): what it protects has seen a later holder." in str(StaleFence("a", 8))
    assert "(odd): odd." in str(LockLost("a", "odd", None))
