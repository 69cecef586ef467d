"""What parts of the command answer that need neither nodes nor processes."""

from __future__ import annotations

import marshal
import os
import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast import LeaseState, errors
from holdfast.cli.board import Pipe
from holdfast.cli.codes import code_of
from holdfast.cli.command import found
from holdfast.cli.held import held_already, variables
from holdfast.cli.waiting import sentence

REFUSED, GONE = errors.ConfigError("NOPERM no"), OSError("gone")
CODES = [
    (errors.LockBusy("x", 1.0, "t", None), 75), (errors.RateLimited("x", 1.0, None, 1, 1.0, 1.0), 75),
    (errors.NotAllArrived("x", 1.0, 1, 2), 75), (errors.Cancelled("x", 1.0), 75), (errors.LockLost("x", "forced", 1), 76),
    (errors.NoQuorum("x", 1.0, {"a": GONE, "b": REFUSED}, 2), 69), (errors.NoQuorum("x", 1.0, {"a": REFUSED, "b": REFUSED}, 2), 77),
    (errors.ConfigError("ttl is 0"), 78), (REFUSED, 77), (errors.Misuse("closed"), 70), (errors.Misuse("user 'a' may not use SET"), 69),
    (ValueError("odd"), 70),
]  # fmt: skip


@pytest.mark.parametrize("error, code", CODES)
def test_an_error_has_an_exit_status(error: Exception, code: int) -> None:
    assert code_of(error) == code


def test_a_command_is_found_on_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, mode in (("one/plain", 0o644), ("two/plain", 0o755), ("two/run", 0o755), ("one/folder/x", 0o755)):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch(mode)
    monkeypatch.chdir(tmp_path / "two")
    one, two = str(tmp_path / "one"), str(tmp_path / "two")
    for name, path, where in (
        ("plain", f"{one}:{two}", (f"{two}/plain", 0)), ("plain", one, ("", 126)), ("none", f"{one}:{two}", ("", 127)),
        ("folder", one, ("", 126)), ("", one, ("", 127)), (f"{two}/run", one, (f"{two}/run", 0)), (f"{one}/plain", two, ("", 126)),
        (f"{two}/none", two, ("", 127)), ("two/run", two, ("", 127)), ("run", f"{one}:", ("./run", 0)), ("./run", "", ("./run", 0)),
    ):  # fmt: skip
        assert found(name, path) == where, (name, path)


def test_a_command_is_told_of_its_lock() -> None:
    def told(fences: dict[str, int], verb: str = "run", environment: dict[str, str] | None = None, **facts: Any) -> dict[str, str]:
        lease: Any = SimpleNamespace(**{"state": LeaseState.HELD, "slots": (), "names": [*fences], "fences": fences, **facts})
        lease.tokens = {it: f"t-{it}" for it in fences}
        job: Any = SimpleNamespace(name="a b", keys=("p:a b",), verb=verb)
        return variables(lease, job, environment or {})

    one = {"HOLDFAST_NAME": "a b", "HOLDFAST_FENCE": "4", "HOLDFAST_TOKEN": "t-a b", "HOLDFAST_FENCING_TOKEN": '"a b";fence="4"'}
    assert told({"a b": 4}) == {**one, "HOLDFAST_HELD": "p%3Aa%20b"}
    around = {"HOLDFAST_HELD": "x y", "HOLDFAST_SLOT": "3", "HOLDFAST_FENCES": "1"}
    left = {"HOLDFAST_HELD": "x y p%3Aa%20b", "HOLDFAST_SLOT": "", "HOLDFAST_FENCES": "", "HOLDFAST_TERM": "4"}
    assert told({"a b": 4}, "elect", around) == {**one, **left}
    assert told({"a b": 4, "c": 5}, slots=(0, 2)) == {
        "HOLDFAST_NAME": "a b", "HOLDFAST_NAMES": "a b\nc", "HOLDFAST_HELD": "p%3Aa%20b", "HOLDFAST_FENCES": "4\n5", "HOLDFAST_SLOT": "0 2",
        "HOLDFAST_TOKEN": "t-a b\nt-c", "HOLDFAST_FENCING_TOKEN": '"a b";fence="4", "c";fence="5"',
    }  # fmt: skip
    nothing = {"HOLDFAST_TOKEN": "", "HOLDFAST_NAME": "a b", "HOLDFAST_HELD": "x"}
    assert told({"a b": 4}, "run", {"HOLDFAST_HELD": "x", "HOLDFAST_TOKEN": "t"}, state=LeaseState.OPEN) == nothing
    assert held_already(("p:a b", "x", "z"), {"HOLDFAST_HELD": "y x p%3Aa%20b"}) == ["p:a b", "x"]
    assert held_already(("a",), {}) == []


def test_who_waits_is_told_of_the_line_and_the_holder() -> None:
    def told(**given: Any) -> str:
        status: Any = dict.fromkeys(("owner", "holder", "note", "ttl_left", "fence"))
        return sentence(SimpleNamespace(**{**status, "queue": [], "state": "held", **given}), "me")

    assert told(state="free") == ""
    assert told(state="free", queue=[SimpleNamespace(owner=it) for it in ("a", "me", "me")]) == ": 2 of 3 in line"
    whole = told(owner="web-1", note="build", ttl_left=4.0, fence=0)
    assert whole == "; held by web-1 (build), which ends in 4 s unless it is renewed, fence 0"
    assert [told(holder="theirs", fence=4), told()] == ["; held by theirs, fence 4", "; held by somebody"]
    assert told(owner="o" * 128, note="n" * 256) == f"; held by {'o' * 128} ({'n' * 256})"
    assert told(owner="o" * 129, note="n" * 257) == f"; held by {'o' * 128}... ({'n' * 256}...)"


def test_messages_of_a_pipe_come_whole_and_the_end_after_the_last() -> None:
    one, other = map(Pipe, socket.socketpair())
    one.send("a", 1)
    one.send("b", None)
    assert (other.received(), other.received(), other.ended) == ([("a", 1), ("b", None)], [], False)
    sent = 0
    while not one.owing:
        one.send("x" * 100_000)
        sent += 1
    came = other.received()
    while one.owing:
        one.flush()
        came += other.received()
    assert came == [("x" * 100_000,)] * sent
    one.send("last")
    one.close()
    assert (other.received(), other.ended) == ([("last",)], True)
    other.close()
    raw, end = socket.socketpair()
    pipe, data = Pipe(end), marshal.dumps(("x",))
    whole = len(data).to_bytes(4, "big") + data
    for part, messages in ((whole[:3], 0), (whole[3:4], 0), (whole[4:-1], 0), (whole[-1:] + whole, 2)):
        raw.send(part)
        assert pipe.received() == [("x",)] * messages
    os.close(raw.detach())
    pipe.close()
