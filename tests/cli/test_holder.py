"""What the holder tells the command, and what the command leaves, without a process: the rest of these tests run the command itself."""

from __future__ import annotations

import signal
from math import inf
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.cli import holder, supervisor, tree


def running(**job: Any) -> Any:
    """A holder whose command runs, at second 10."""
    it: Any = object.__new__(holder.Holder)
    it._lease, it._phase, it._killing, it._told, it._kill_at = object(), holder.HolderPhase.RUNNING, "", "", inf
    it._job, it._me, it._clock = SimpleNamespace(kill_after=1.0, **job), 1, lambda: 10.0
    it._line = SimpleNamespace(send=lambda *_: None)
    return it


def test_a_command_is_told_each_time_that_its_lease_is_in_danger(monkeypatch: pytest.MonkeyPatch) -> None:
    """The renewals come back in between."""
    told: list[str] = []
    it = running()
    monkeypatch.setattr(holder.Holder, "_end_of", lambda self, lease, now: self.end)
    monkeypatch.setattr(holder.Holder, "_terminate", lambda self, why, left: told.append(why) or setattr(self, "_told", why))
    for it.end in (10.5, 20.0, 10.5):
        it._guard(10.0)
    assert told == ["danger", "danger"]


def test_the_supervisor_acts_after_the_holder_should_have_and_before_the_lease_is_over() -> None:
    it, late = running(margin=0.2), object.__new__(supervisor.Supervisor)
    it._board, it._say_doubt = SimpleNamespace(), lambda *_: None
    late._job, late._board = it._job, it._board
    end = it._end_of(SimpleNamespace(state=None, remaining=5.0), 10.0)
    assert end < late._deadline() < it._board.until == 15.0


def test_what_the_command_leaves_is_continued_so_that_it_can_end_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that is stopped gets no TERM before it is continued."""
    sent: list[tuple[int, int]] = []
    it = running(leftovers="kill")
    monkeypatch.setattr(tree, "childless", lambda: False)
    monkeypatch.setattr(tree, "descendants", lambda root: [SimpleNamespace(pid=pid, name="it") for pid in (7, 8)])
    monkeypatch.setattr(tree, "send", lambda pid, number: sent.append((pid, number)))
    it._command_ended(tree.News("ended", status=0))
    assert sent == [(pid, number) for pid in (7, 8) for number in (signal.SIGTERM, signal.SIGCONT)]
    assert it._kill_at == 11.0


def test_what_does_not_die_is_named_once_and_its_lease_is_left_when_little_of_the_margin_is(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    it = running(margin=1.0, name="x")
    it._own_group, it._pass, it._named, it._killing_since, it._board = False, 0.0, False, 8.0, SimpleNamespace()
    it._lease = SimpleNamespace(held=True, leave=lambda: None)
    monkeypatch.setattr(tree, "kill", lambda root: [SimpleNamespace(pid=7, name="it")])
    monkeypatch.setattr(holder.Holder, "_tell", lambda self, event, *_, **__: told.append(event))
    for it._lease.remaining in (1.0, 0.8, 0.7):
        it._kill_again(10.0)
    assert told == ["stuck", "left"]
