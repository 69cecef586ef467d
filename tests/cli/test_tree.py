"""What is known of a process: above all that nobody is told a status that a command did not have."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
from nemesis.processes import until

from holdfast.cli import tree


@pytest.fixture
def child() -> Iterator[int]:
    with subprocess.Popen(["sleep", "60"]) as process:
        yield process.pid
        process.kill()


def _changed(child: int, what: str) -> None:
    """Bring a child to a state, of which the last change was not told yet."""
    if what == "nothing":
        return
    os.kill(child, signal.SIGSTOP)
    if what == "continued":
        assert until(lambda: tree.news(child)) == tree.News("stopped", signal=signal.SIGSTOP)
        os.kill(child, signal.SIGCONT)
    until(lambda: os.waitid(os.P_PID, child, os.WSTOPPED | os.WCONTINUED | os.WNOHANG | os.WNOWAIT))


def test_each_change_is_told_once_and_the_end_for_ever(child: int) -> None:
    assert tree.news(child) is None
    _changed(child, "stopped")
    assert tree.news(child) == tree.News("stopped", signal=signal.SIGSTOP)
    assert tree.news(child) is None
    os.kill(child, signal.SIGCONT)
    assert until(lambda: tree.news(child)) == tree.News("continued")
    assert tree.news(child) is None
    os.kill(child, signal.SIGTERM)
    assert until(lambda: tree.news(child)) == tree.News("ended", signal=signal.SIGTERM)
    assert tree.news(child) == tree.News("ended", signal=signal.SIGTERM)


@pytest.mark.parametrize("before", ["nothing", "stopped", "continued"])
def test_a_child_that_dies_while_it_is_asked_for_has_not_exited_with_0(
    before: str, child: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between two questions, a child can die: the kernel has nothing but its death to tell then, and refuses the second."""
    _changed(child, before)
    ask, asked = os.waitid, 0

    def dies_after_the_first(*question: Any) -> Any:
        nonlocal asked
        answer = ask(*question)
        if not asked:
            os.kill(child, signal.SIGKILL)
            until(lambda: ask(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT))
        asked += 1
        return answer

    monkeypatch.setattr(os, "waitid", dies_after_the_first)
    told: list[tree.News | None] = []
    until(lambda: told.append(tree.news(child)) or (told[-1] is not None and told[-1].what == "ended"))
    assert told[-1] == tree.News("ended", signal=signal.SIGKILL)


def test_a_status_that_somebody_took_is_not_made_up() -> None:
    child = os.posix_spawnp("true", ["true"], os.environ)
    os.waitpid(child, 0)
    with pytest.raises(ChildProcessError):
        tree.news(child)
