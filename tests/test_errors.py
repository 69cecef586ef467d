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


@pytest.mark.parametrize("error", EVERY, ids=lambda error: type(error).__name__)
def test_an_error_survives_pickling_and_copying(error: HoldfastError) -> None:
    for twin in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(twin) is type(error)
        assert str(twin) == str(error)
        # Exceptions in `causes` compare by identity: their text has to do.
        assert str(vars(twin)) == str(vars(error))


# Each fact is an argument, and an attribute also on the other side.
CARRIED: list[tuple[type[HoldfastError], dict[str, object]]] = [
    (LockBusy, {"name": "a", "waited": 0.25, "holder": "host:1", "ttl_left": 2.0}),
    (RateLimited, {"name": "mail", "waited": 0.25, "key": "user:7", "limit": 10, "period": 60.0, "retry_after": 3.5}),
    (NotAllArrived, {"name": "a", "waited": 0.25, "arrived": 7, "count": 9, "ids": ("x\n", *"bcdefg")}),
    (errors.Overtaken, {"name": "a", "waited": 1.5}),
    (LockLost, {"name": "a", "reason": "gap", "fence": 7}),
    (StaleFence, {"name": "a", "fence": 7, "seen": 9}),
]


@pytest.mark.parametrize("kind, facts", CARRIED)
def test_an_error_has_its_facts_on_the_other_side(kind: type[HoldfastError], facts: dict[str, object]) -> None:
    error = pickle.loads(pickle.dumps(kind(**facts)))
    assert {name: getattr(error, name) for name in facts} == facts
    # (A TimeoutError has these.)
    assert [getattr(error, it, None) for it in ("errno", "strerror", "filename")] == [None] * 3


def test_the_causes_of_nodes_and_what_was_no_fence_are_there_on_the_other_side() -> None:
    unknown = pickle.loads(pickle.dumps(NoQuorum("a", 1.5, {"n1": ConnectionResetError("gone")}, 2)))
    assert (unknown.name, unknown.waited, type(unknown.causes["n1"])) == ("a", 1.5, ConnectionResetError)
    bad = pickle.loads(pickle.dumps(BadFence("no fence", "x")))
    assert (message_of(bad), bad.said, BadFence("no fence").said) == ("no fence", "x", None)


TOLD = [
    (
        RateLimited("mail", 0.25, "user:7", 10, 60.0, 3.5),
        "'mail' of 'user:7' is used up: 10 in 60 s are allowed, and more in 3.500 s at the",
    ),
    (NotAllArrived("a", 0.25, 2, 3), "2 of 3 have arrived at 'a'; waited 0.250 s for the others."),
    (NotAllArrived("a", 0.25, 5, 9, tuple("abcde")), "5 of 9 have arrived at 'a' ('a', 'b', 'c', 'd', 'e'); waited"),
    (NotAllArrived("a", 0.25, 7, 9, ("x\n", *"bcdefg")), r"7 of 9 have arrived at 'a' ('x\\n', 'b', 'c', 'd', 'e' and 2 more); waited"),
    (LockBusy("a", 0.25, "host:1", 2.0), "'a' is held by host:1 for up to 2.0 s more unless renewed (waited 0.250 s). Wait longer"),
    (LockBusy("a", 0.25, None, None), "'a' is held by another client (waited 0.250 s)"),
    (LockBusy("a", 0.25, "host:1", None, who="a friend", advice="Ask her."), "'a' is held by a friend (waited 0.250 s). Ask her."),
    (errors.Overtaken("a", 1.5), "another client may already have produced the result that 'a' was awaited for (waited 1.500 s)"),
    (NoQuorum("a", 1.0, {"n1": OSError("refused")}, 2, "extend"), "could not extend 'a': fewer than 2 nodes are usable"),
    (NoQuorum("a", 1.0, {}, 2), "could not acquire 'a': fewer than 2 nodes are usable (waited 1.000 s)."),
    (NoQuorum("a", 1.0, {}, 1), "could not acquire 'a': no node is usable"),
    (NoQuorum("a", 1.0, {}, 1, lists=2), "could not acquire 'a': too few nodes of the former or the new list are usable"),
    (StaleFence("a", 8, 9), "'a' is lost (stale): what it protects refuses fences below 9."),
    (StaleFence("a", 8), "'a' is lost (stale): what it protects has seen a later holder."),
    (LockLost("a", "odd", None), "'a' is lost (odd): odd."),
]


@pytest.mark.parametrize("error, told", TOLD)
def test_an_error_begins_with_what_happened(error: HoldfastError, told: str) -> None:
    assert message_of(error).startswith(told)


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


@pytest.mark.parametrize(
    "holder, owner, note, shown",
    [
        ("host:1", "web-3:118", None, "web-3:118"),
        ("host:1", "web-3:118", "build\n4711", r"web-3:118 (build\n4711)"),
        ("host:1", None, "build", "host:1 (build)"),
        (ITSELF, "host:1", None, "this client itself"),
        (ITSELF, "host:1", "build", "this client itself (build)"),
    ],
)
def test_busy_tells_who_and_for_how_long(holder: str, owner: str | None, note: str | None, shown: str) -> None:
    error = LockBusy("a", 0.25, "host:1", 2.0, **{"who": holder} if holder == ITSELF else {})
    error.held_by(owner, note)
    for it in (error, pickle.loads(pickle.dumps(error))):
        assert (it.owner, it.note, it.holder) == (owner, note, "host:1")
        assert str(it).startswith(f"'a' is held by {shown} for up to 2.0 s more")


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


def test_no_quorum_without_a_cause_says_so() -> None:
    assert "No node has reported a problem: allow more time" in str(NoQuorum("a", 1.0, {}, 2))


@pytest.mark.parametrize("reason", ["expired", "refused", "gap", "forced", "max_hold", "slow", "closed", "dropped", "ticket"])
def test_a_loss_tells_why_in_words(reason: str) -> None:
    error = LockLost("a", reason, 7)
    assert (error.name, error.reason, error.fence) == ("a", reason, 7)
    assert f"({reason}): {reason}." not in str(error)
    assert len(str(error)) > 70
    assert message_of(error).endswith("Stop what it protected; its fence was 7.")
    assert ("(a: it is full)" in str(LockLost("a", reason, 7, why="a: it is full"))) is (reason in ("expired", "refused"))
