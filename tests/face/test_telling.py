"""Events reach the log, each at the level that it deserves, and the user's observer, whose errors hurt nobody."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from holdfast import events
from holdfast.errors import LockBusy
from holdfast.events import Event
from holdfast.face.telling import Teller, guarded, log

LOCK: dict[str, Any] = {"name": "invoice", "token": "t", "waited": 0.5}
NODE: dict[str, Any] = {"node": "redis://a:6379"}
SAID: dict[Event, tuple[str, int, str]] = {
    events.NodeDown(**NODE, cause=OSError("refused")): ("node", logging.WARNING, "redis://a:6379 is down: refused"),
    events.NodeGuarded(**NODE, left=8.26): ("node", logging.WARNING, "left alone for 8.3 s: it started lately and may have forgotten"),
    events.NodeGuarded(**NODE, left=8.0, cause="it was promoted"): ("node", logging.WARNING, "left alone for 8.0 s: it was promoted"),
    events.NodeUp(**NODE): ("node", logging.INFO, "redis://a:6379 is up"),
    events.Warned(**NODE, warning="it evicts"): ("node", logging.WARNING, "redis://a:6379: it evicts"),
    events.Doubt(**LOCK, fence=7, remaining=3.123): ("lease", logging.WARNING, "'invoice' was not confirmed; 3.12 s are left (fence 7)"),
    events.Lost(**LOCK, fence=7, reason="gap"): ("lease", logging.ERROR, "'invoice' is lost: gap (fence 7)"),
    events.Attempt(**LOCK): ("lease", logging.DEBUG, "Attempt("),
    events.Queued(**LOCK, holder="h"): ("lease", logging.DEBUG, "holder='h'"),
    events.Acquired(**LOCK, fence=7): ("lease", logging.DEBUG, "fence=7"),
    events.Renewed(**LOCK, fence=7, remaining=1): ("lease", logging.DEBUG, "Renewed("),
    events.Released(**LOCK, fence=7): ("lease", logging.DEBUG, "Released("),
    events.Opened(**LOCK, error=OSError("refused")): ("lease", logging.WARNING, "'invoice' runs without its lock (fail_open): refused"),
    events.Forced(name="invoice", holder="t", nodes=3, reason="stuck"): ("lease", logging.WARNING, "was taken from t on 3 nodes: stuck"),
    events.Refused(**LOCK, error=LockBusy("invoice", 0.5, None, None)): ("lease", logging.DEBUG, "LockBusy("),
}


def test_every_event_is_here() -> None:
    kinds = {getattr(events, name) for name in events.__all__} - {events.Event, events.LockEvent, events.LeaseEvent, events.NodeEvent}
    assert {type(it) for it in SAID} == kinds


@pytest.mark.parametrize("event", SAID, ids=lambda event: type(event).__name__)
def test_each_is_one_line_at_its_level(event: Event, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "holdfast")
    heard: list[Event] = []
    Teller(heard.append)(event)
    assert heard == [event]
    assert [(it.name, it.levelno) for it in caplog.records] == [(f"holdfast.{SAID[event][0]}", SAID[event][1])]
    assert SAID[event][2] in caplog.records[0].message


def test_without_an_observer_there_is_only_the_log(caplog: pytest.LogCaptureFixture) -> None:
    teller = Teller(None)
    teller(events.Lost(**LOCK, fence=7, reason="expired"))
    assert [it.levelno for it in caplog.records] == [logging.ERROR]


def test_events_of_locks_that_go_well_are_made_only_for_those_who_listen(caplog: pytest.LogCaptureFixture) -> None:
    assert not Teller(None).wants_all
    assert Teller(print).wants_all
    caplog.set_level(logging.DEBUG, "holdfast.lease")
    assert Teller(None).wants_all


def test_what_a_stranger_raises_is_logged_with_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    def raises(event: Any) -> None:
        raise ZeroDivisionError

    Teller(raises)(events.NodeUp(**NODE))
    (record,) = [it for it in caplog.records if it.levelno == logging.ERROR]
    assert (record.name, record.exc_info and record.exc_info[0]) == ("holdfast", ZeroDivisionError)
    assert "raises" in record.message
    assert guarded(lambda: 5) == 5
    assert guarded(int, "x") is None


def test_an_end_that_a_stranger_asks_for_is_not_swallowed() -> None:
    def ends(event: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Teller(ends)(events.NodeUp(**NODE))


def test_a_lock_s_name_cannot_forge_a_line(caplog: pytest.LogCaptureFixture) -> None:
    log(events.Lost(name="x\nERROR forged", token="t", waited=0, fence=1, reason="gap"))
    assert "\n" not in caplog.records[0].message
