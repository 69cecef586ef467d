"""Errors are one tree, carry their facts, survive pickling, and say what to do next."""

from __future__ import annotations

import copy
import pickle

import pytest

from holdfast import errors
from holdfast.errors import ConfigError, HoldfastError, LockBusy, LockLost, Misuse, NoQuorum, NotAcquired, StaleFence

PLAIN = [getattr(errors, name) for name in errors.__all__ if name not in ("LockBusy", "NoQuorum", "LockLost", "StaleFence")]
EVERY = [
    *(kind("so it is") for kind in PLAIN),
    LockBusy("a", 1.5, None, None),
    NoQuorum("a", 1.5, {"n1": OSError("refused"), "n2": ConfigError("too old")}, 2),
    LockLost("a", "gap", 7),
    StaleFence("a", "stale", None, "9 was seen"),
]


def test_all_errors_are_one_tree() -> None:
    assert {type(error) for error in EVERY} == {getattr(errors, name) for name in errors.__all__}
    assert all(isinstance(error, HoldfastError) for error in EVERY)
    assert issubclass(LockBusy, NotAcquired)
    assert issubclass(NoQuorum, NotAcquired)
    assert issubclass(StaleFence, LockLost)
    assert issubclass(LockBusy, TimeoutError)
    assert issubclass(Misuse, RuntimeError)
    assert issubclass(ConfigError, ValueError)
    assert not issubclass(NoQuorum, TimeoutError)


@pytest.mark.parametrize("error", EVERY, ids=lambda error: type(error).__name__)
def test_an_error_survives_pickling_and_copying(error: HoldfastError) -> None:
    for twin in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(twin) is type(error)
        assert str(twin) == str(error)
        # Exceptions in `causes` compare by identity: their text has to do.
        assert str(vars(twin)) == str(vars(error))


def test_busy_tells_who_and_for_how_long() -> None:
    error = LockBusy("a", 0.25, "host:1", 2.0)
    assert (error.name, error.waited, error.holder, error.ttl_left) == ("a", 0.25, "host:1", 2.0)
    assert "'a' is held by host:1, whose lease runs for 2.0 s more" in str(error)
    unknown = str(LockBusy("a", 0.25, None, None))
    assert "held by somebody else; waited 0.250 s" in unknown


def test_no_quorum_tells_what_is_wrong_with_each_node() -> None:
    error = NoQuorum("a", 1.0, {"n1": OSError("refused")}, 2, "extend")
    assert (error.name, error.waited, str(error.causes["n1"])) == ("a", 1.0, "refused")
    assert str(error).startswith("could not extend 'a': fewer than 2 nodes answered")
    assert str(error).endswith("\n  n1: refused")
    assert str(NoQuorum("a", 1.0, {}, 2)).endswith("none has told why")


@pytest.mark.parametrize("reason", ["expired", "gap", "forced", "max_hold", "slow", "closed"])
def test_a_loss_tells_why_in_words(reason: str) -> None:
    error = LockLost("a", reason, 7)
    assert (error.name, error.reason, error.fence) == ("a", reason, 7)
    assert len(str(error)) > 70
    assert str(error).endswith("Stop what it protected; its fence was 7.")


def test_a_loss_may_be_told_in_other_words() -> None:
    assert "(stale): 9 was seen." in str(StaleFence("a", "stale", 8, "9 was seen"))
    assert "(odd): odd." in str(LockLost("a", "odd", None))
