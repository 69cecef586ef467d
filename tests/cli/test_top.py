"""`holdfast top`: nodes, locks and queues, on a terminal, in a pipe, and as JSON."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import termios
from pathlib import Path

import pytest
from cli.kit import Command, lines, until

from holdfast import Holdfast
from holdfast.embedded import Nodes


def test_in_a_pipe_it_looks_once(holdfast: Command, locks: Holdfast) -> None:
    with locks.lock("top:a", note="a note"):
        done = holdfast.run("top", "top:*")
    assert done.returncode == 0
    assert "\x1b" not in done.stdout
    first = done.stdout.splitlines()
    assert first[0] == "# looks every 1 s: nodes do not report changes"
    assert sum("unix://" in it for it in first) == 5
    assert "locks: 1; waiting for them: 0" in first
    (row,) = (it for it in first if it.startswith("top:a "))
    assert "the-test" in row
    assert row.endswith("a note")


def test_the_longest_queue_comes_first(holdfast: Command, locks: Holdfast) -> None:
    with locks.lock("top:b"), locks.lock("top:c"):
        with holdfast.started("run", "top:c", "true"):
            until(lambda: locks.inspect("top:c").queue)
            (told,) = lines(holdfast.run("top", "--json", "top:*").stdout)
    assert [(it["name"], it["waiting"]) for it in told["locks"]] == [("top:c", 1), ("top:b", 0)]
    assert told["locks"][0]["waits_since"] is not None
    assert (told["quorum"], told["up"], told["complete"]) == (3, 5, True)


def test_it_looks_as_often_as_it_is_told_to(holdfast: Command) -> None:
    done = holdfast.run("top", "--json", "--count", "3", "--every", "100ms", "top:*")
    moments = [it["at"] for it in lines(done.stdout)]
    assert len(moments) == 3
    assert moments == sorted(moments)
    assert holdfast.run("top", "--count", "0").returncode == 64
    assert holdfast.run("top", "--every", "1ms").returncode == 78


def test_without_a_majority_it_says_so_and_shows_the_nodes(tmp_path: Path) -> None:
    with Nodes(3) as nodes:
        nodes.kill(0)
        nodes.kill(1)
        done = Command(tmp_path, nodes.environment).run("top", "--json")
    (told,) = lines(done.stdout)
    assert done.returncode == 69
    assert (told["complete"], told["up"], told["spare"]) == (False, 1, -1)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_on_a_terminal_it_uses_the_second_screen_and_leaves_it(number: signal.Signals, holdfast: Command, locks: Holdfast) -> None:
    pid, fd = pty.fork()
    if pid == 0:
        os.execve(holdfast.words()[0], holdfast.words("top", "--every", "100ms", "top:*"), {**holdfast.environment, "TERM": "xterm"})
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("4H", 14, 60, 0, 0))
    shown = b""

    def read() -> bytes:
        nonlocal shown
        try:
            while select.select([fd], [], [], 0)[0]:
                shown += os.read(fd, 65536)
        except OSError:
            pass  # the other end is closed
        return shown

    leases = [locks.lock(f"top:{it:02}").acquire() for it in range(20)]
    try:
        until(lambda: b"locks: 20;" in read())
        until(lambda: read().count(b"locks: 20;") > 2)
        os.kill(pid, number)
        until(lambda: b"\x1b[?1049l" in read())
        assert os.waitpid(pid, 0)[1] == 0
    finally:
        for it in leases:
            it.release()
        os.close(fd)
    assert shown.startswith(b"\x1b[?1049h")
    last = shown.split(b"\x1b[H\x1b[J")[-2].decode()
    rows = last.splitlines()
    assert len(rows) <= 14, "it fits on the screen"
    assert [it[:6] for it in rows if it.startswith("top:")] == ["top:00", "top:01", "top:02", "top:03"][: len(rows)]
    assert max(len(it) for it in rows if it.startswith("top:")) <= 60
