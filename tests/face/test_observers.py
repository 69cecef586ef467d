"""Events reach the log, each at the level that it deserves."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import Any

import pytest
from proof.books import word

from holdfast import events
from holdfast.errors import ConfigError, LockBusy
from holdfast.events import Event
from holdfast.face.observers import Observers, structured

LOCK: dict[str, Any] = {"name": "invoice", "token": "t", "waited": 0.5}
NODE: dict[str, Any] = {"node": "redis://a:6379"}
SAID: dict[Event, tuple[str, int, str]] = {
    events.NodeEvent(state="down", **NODE, cause=OSError("refused")): ("node", logging.WARNING, "redis://a:6379 is down: refused"),
    events.NodeEvent(state="refuses", **NODE, cause=OSError("full")): ("node", logging.WARNING, "redis://a:6379 refuses writes: full"),
    events.NodeEvent(state="guarded", **NODE, left=8.26, cause="it started"): ("node", logging.WARNING, "left alone for 8.3 s: it started"),
    events.NodeEvent(state="up", **NODE): ("node", logging.INFO, "redis://a:6379 is up"),
    events.NodeEvent(state="up", **NODE, down=59.9): ("node", logging.INFO, "redis://a:6379 is up"),
    events.NodeEvent(state="up", **NODE, down=75.2): ("node", logging.INFO, "redis://a:6379 is up (it could not be used for 75 s)"),
    events.NodeEvent(state="guarded", **NODE, left=8.0, down=60.0): ("node", logging.WARNING, "(it could not be used for 60 s)"),
    events.NodeEvent(state="warned", **NODE, warning="it evicts"): ("node", logging.WARNING, "redis://a:6379: it evicts"),
    events.Doubt(**LOCK, fence=7, remaining=3.123): ("lease", logging.WARNING, "'invoice' was not confirmed; 3.12 s are left (fence 7)"),
    events.Doubt(**LOCK, fence=7, remaining=3.0, why="a: full"): ("lease", logging.WARNING, "3.00 s are left (fence 7): a: full"),
    events.Ended(how="discarded", **LOCK, fence=7, remaining=9.84): ("lease", logging.WARNING, "on 'invoice' (fence 7) was discarded"),
    events.Ended(how="lost", **LOCK, fence=7, reason="gap"): ("lease", logging.ERROR, "'invoice' is lost: gap (fence 7)"),
    events.Ended(how="lost", **LOCK, fence=7, reason="refused", why="a: full"): ("lease", logging.ERROR, "refused (fence 7): a: full"),
    events.Ended(how="released", **LOCK, fence=7): ("lease", logging.DEBUG, "Released("),
    events.Ended(how="left", **LOCK, fence=7, remaining=3.5): ("lease", logging.DEBUG, "remaining=3.5"),
    events.Opened(**LOCK, error=OSError("refused")): ("lease", logging.WARNING, "'invoice' runs without its lock (fail_open): refused"),
    events.Forced(name="invoice", holder="t", nodes=3, reason="stuck"): ("lease", logging.WARNING, "was taken from t on 3 nodes: stuck"),
    events.Refused(**LOCK, error=LockBusy("invoice", 0.5, None, None)): ("lease", logging.DEBUG, "LockBusy("),
    events.Called(name="mails", kind="rate", how="refused", took=0.0, key_given=True): ("lease", logging.DEBUG, "allowed=False"),
    events.Called(name="report", kind="once", how="ran", took=1.5): ("lease", logging.DEBUG, "how='ran'"),
    events.Called(name="start", kind="latch", how="complete", took=1.5): ("lease", logging.DEBUG, "complete=True"),
}
# Of all other kinds of events, the log has all facts, at level DEBUG.
KINDS = [getattr(events, name) for name in events.__all__ if name not in ("Event", "LockEvent", "LeaseEvent")]
QUIET = [kind(**{it: f"<{it}>" for it in kind.fields}) for kind in KINDS if kind not in set(map(type, SAID))]
SAID |= {it: ("lease", logging.DEBUG, repr(it)) for it in QUIET}
# What operators search for: the name of what happened, and the facts of its own.
LOGGED = {
    "released": "Released held", "lost": "Lost reason held why", "left": "Left remaining held",
    "discarded": "Discarded remaining acquired", "up": "NodeUp down", "down": "NodeDown cause",
    "guarded": "NodeGuarded left cause down", "refuses": "NodeRefuses cause", "warned": "Warned warning about",
    "rate": "Allowed key_given allowed retry_after waited", "once": "Served kind how took", "latch": "Gathered kind waited complete",
}  # fmt: skip


@pytest.mark.parametrize("event", SAID, ids=lambda event: type(event).__name__)
def test_each_is_one_line_at_its_level(event: Event, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "holdfast")
    Observers().log(event)
    assert [(it.name, it.levelno) for it in caplog.records] == [(f"holdfast.{SAID[event][0]}", SAID[event][1])]
    assert SAID[event][2] in caplog.records[0].message


@pytest.mark.parametrize("event", SAID, ids=lambda event: type(event).__name__)
def test_each_record_has_the_facts_for_programs(event: Event, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "holdfast")
    Observers().log(event)
    facts = caplog.records[0].holdfast  # type: ignore[attr-defined]  # (what a log record has as its extra)
    assert json.loads(json.dumps(facts)) == facts == structured(event)
    name, *own = LOGGED.get(event.kind if isinstance(event, events.Called) else word(event), "").split() or [type(event).__name__]
    assert facts["event"] == name
    fields = {type(event): event.fields, events.Ended: events.LeaseEvent.fields, events.NodeEvent: ["node"], events.Called: ["name"]}
    assert facts.keys() == {"lock" if it == "name" else it for it in (*fields[type(event)], *own) if it != "at"} | {"event"}


def test_facts_for_programs_are_in_values_that_json_has() -> None:
    token = "1700000000000000:0123456789abcdef0123456789abcdef:00000001"
    held: dict[str, Any] = {"name": "a,b", "token": f"{token}:w", "waited": 0.5, "names": ("a", "b"), "fence": 7}
    facts = structured(events.Ended(how="lost", **held, fences={"a": 7, "b": 6}, reason="gap", held=1.5, want=9, kind="write"))
    assert facts == {
        "event": "Lost",
        "lock": "a,b",
        "token": "1700000000000000:00000001",
        "waited": 0.5,
        "kind": "write",
        "names": ["a", "b"],
        "want": 9,
        "fence": 7,
        "fences": {"a": 7, "b": 6},
        "reason": "gap",
        "held": 1.5,
        "why": "",
    }
    assert structured(events.Queued(**LOCK, holder=None))["holder"] is None
    assert structured(events.Queued(**LOCK, holder="worker-7"))["holder"] == "worker-7"
    assert structured(events.Queued(**LOCK, holder=token))["holder"] == "1700000000000000:00000001"
    busy = LockBusy("invoice\n", 0.5, None, None)
    assert structured(events.Refused(**LOCK, error=busy))["error"] == busy.message.replace("\n", "\\n")
    assert structured(events.Refused(**LOCK, error=None))["error"] is None


@pytest.mark.parametrize("wrong", [7, "print", [print, 7], [None], b"print"])
def test_what_cannot_be_called_is_no_observer(wrong: Any) -> None:
    with pytest.raises(ConfigError, match=r"^observer is"):
        Observers(wrong)


class Several(list[Callable[[Event], object]]):
    """A list that can be called."""

    def __call__(self, event: Event) -> None:
        """Listen."""


def test_observers_are_one_or_several_in_order() -> None:
    both = Several([print, repr])
    assert Observers(print).observers == (print,)
    assert Observers([print, repr]).observers == Observers((print, repr)).observers == (print, repr)
    assert Observers(both).observers == (both,), "what can be called is one observer"


@pytest.mark.parametrize("level", [logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR, logging.CRITICAL])
def test_what_the_log_does_not_take_is_not_handed_to_it(level: int, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(level, "holdfast")
    assert [it for it in SAID if Observers().logs(it)] == [it for it, (_, deserved, _) in SAID.items() if deserved >= level]


def test_the_engine_s_question_waits_for_no_lock_of_logging(caplog: pytest.LogCaptureFixture) -> None:
    teller, lock = Observers(), _Taken()
    caplog.set_level(logging.INFO, "holdfast")  # (this makes loggers forget which levels are on)
    before, logging._lock = logging._lock, lock  # type: ignore[attr-defined]  # (private, and without a type)
    try:
        assert all(teller.logs(it) is (deserved >= logging.INFO) for it, (_, deserved, _) in SAID.items())
    finally:
        logging._lock = before  # type: ignore[attr-defined]  # (private, and without a type)


class _Taken:
    """A lock that somebody else has."""

    def acquire(self, *_: object) -> None:
        raise AssertionError("this would wait")

    __enter__ = acquire

    def __exit__(self, *_: object) -> None:
        pass


def test_events_of_locks_that_go_well_are_made_only_for_those_who_listen(caplog: pytest.LogCaptureFixture) -> None:
    assert not Observers().wants_all and not Observers([]).wants_all
    assert Observers(print).wants_all
    assert Observers([print, repr]).wants_all
    caplog.set_level(logging.DEBUG, "holdfast.lease")
    assert Observers().wants_all


def test_neither_a_holder_nor_a_reason_can_forge_a_line(caplog: pytest.LogCaptureFixture) -> None:
    Observers().log(events.Forced(name="x", holder="\x1b[2J\nERROR", nodes=3, reason="stuck\nERROR forged" + "." * 1000))
    Observers().log(events.Forced(name="x", holder="", nodes=3, reason="stuck"))
    Observers().log(events.Forced(name="x", holder=None, nodes=0, reason="stuck"))
    first, second, third = (it.message for it in caplog.records)
    assert first == "'x' was taken from \\x1b[2J\\nERROR on 3 nodes: stuck\\nERROR forged" + "." * 1000
    assert second == "'x' was taken from '' on 3 nodes: stuck"
    assert third == "'x' was taken from nobody on 0 nodes: stuck"


TOKEN = "0000000001500000:0123456789abcdef0123456789abcdef:00000001"


@pytest.mark.parametrize("kind", ["", ":r", ":w"])
def test_no_line_has_a_whole_token(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    """Who knows it can release the lock."""
    caplog.set_level(logging.DEBUG, "holdfast")
    token = TOKEN + kind
    Observers().log(events.Forced(name="x", holder=token, nodes=3, reason=f"held by {token}"))
    for it in SAID:
        told = {name: token for name in ("token", "holder") if name in type(it).fields}
        error = {"error": LockBusy("x", 0.5, token, None)} if "error" in type(it).fields else {}
        Observers().log(it.replace(**told, **error))
    assert len(caplog.records) == len(SAID) + 1
    assert [it.message for it in caplog.records if token[17:49] in it.message or token[17:49] in str(vars(it))] == []
    assert "was taken from 0000000001500000:00000001 on 3 nodes" in caplog.records[0].message


def test_a_lock_s_name_cannot_forge_a_line(caplog: pytest.LogCaptureFixture) -> None:
    Observers().log(events.Ended(how="lost", name="x\nERROR forged", token="t", waited=0, fence=1, reason="gap"))
    assert "\n" not in caplog.records[0].message
