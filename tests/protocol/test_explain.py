"""What people are told of votes, where no conversation shows it (`tests/protocol/claim/verdicts.txt`): a right that is missing."""

from __future__ import annotations

from protocol.conversation import Mute, node_set

from holdfast.errors import ConfigError, LockBusy
from holdfast.protocol import explain
from holdfast.protocol.answer import Denied
from holdfast.protocol.vote import Vote


def in_vain(*votes: Vote) -> Exception:
    return explain.in_vain(Mute(), b"a" * 32, votes, node_set(len(votes), {}), 0.5, 2.0)  # type: ignore[arg-type]  # (a stand-in)


def test_a_right_that_a_majority_lacks_is_told_at_once() -> None:
    missing = ConfigError("no right")
    missing.fix = "ACL SETUSER app +zscore"
    lacking, denied = Vote(), Vote()
    lacking.failed(missing)
    denied.denies(Denied(5000, 2, b"value"), 1.0)
    error = in_vain(lacking, lacking, Vote())
    assert isinstance(error, ConfigError) and error.fix == missing.fix
    assert isinstance(in_vain(lacking, denied, denied), LockBusy)
