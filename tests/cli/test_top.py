"""`holdfast top`: nodes, locks and queues, on a terminal, in a pipe, and as JSON."""

from __future__ import annotations

import asyncio
import fcntl
import signal
import struct
import termios
from pathlib import Path

import pytest
from cli.kit import Command, lines
from cli.test_terminal import Terminal
from nemesis.processes import until

from holdfast import Holdfast
from holdfast.aio import Holdfast as Tasks
from holdfast.cli import tree
from holdfast.cli.looking import HEAD
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


def last_screen(holdfast: Command, pattern: str, text: str, lines: int, columns: int, number: int = signal.SIGTERM) -> list[str]:
    """Run `holdfast top` on a terminal of this size until it has shown this twice, and end it. Returns the last screen that is whole."""
    terminal = Terminal(holdfast.environment)
    try:
        fcntl.ioctl(terminal.fd, termios.TIOCSWINSZ, struct.pack("4H", lines, columns, 0, 0))
        terminal.type(f"TERM=xterm holdfast top --every 100ms '{pattern}'\n")
        # The second screen, and back to the first one.
        terminal.expect(r"\x1b\[\?1049h")
        first = terminal.expect(f"(?s).*?{text}.*?{text}")
        tree.send(tree.children(terminal.pid)[0], number)
        shown = first + terminal.expect(r"(?s).*\x1b\[\?1049l")
        terminal.type('echo "<$?>"\n')
        terminal.expect("<0>")
    finally:
        terminal.close()
    return shown.split("\x1b[H\x1b[J")[-2].replace("\r\n", "\n").splitlines()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_on_a_terminal_it_uses_the_second_screen_and_leaves_it(number: signal.Signals, holdfast: Command, locks: Holdfast) -> None:
    leases = [locks.lock(f"top:{it:02}").acquire() for it in range(20)]
    try:
        rows = last_screen(holdfast, "top:*", "locks: 20;", 14, 60, number)
    finally:
        for it in leases:
            it.release()
    # The last line ends, so that one more would scroll the first one away.
    assert len(rows) <= 13
    assert [it[:6] for it in rows if it.startswith("top:")] == [f"top:{it:02}" for it in range(9)]
    assert max(map(len, rows)) <= 60


@pytest.mark.parametrize(
    "lines, columns, heads, listed",
    [(24, 80, "NAME HOLDER WAIT AGE LEFT KIND NODES FENCE", 5), (10, 38, "NAME HOLDER WAIT AGE", 0), (30, 160, " ".join(HEAD), 5)],
)
def test_a_number_is_never_cut(holdfast: Command, nodes: Nodes, locks: Holdfast, lines: int, columns: int, heads: str, listed: int) -> None:
    """Columns drop out from the right. A queue of 39 is 39 at any width."""
    name = "top:a-name-that-is-longer-than-its-column"

    async def wait() -> list[str]:
        async with Tasks(*nodes.urls) as waiting:
            tasks = [asyncio.create_task(waiting.lock(name).acquire()) for _ in range(39)]
            shown = await asyncio.to_thread(last_screen, holdfast, "top:a*", "waiting for them: 39", lines, columns)
            for it in tasks:
                it.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            return shown

    with locks.lock(name, note="a note of the holder that is rather long, too"):
        shown = asyncio.run(wait())
    assert max(map(len, shown)) <= columns
    assert len(shown) < lines
    (head,) = (it for it in shown if it.startswith("NAME"))
    assert head.split() == heads.split()
    (row,) = (it for it in shown if it.startswith("top:a-name"))
    assert row[head.index("WAIT") :].split()[0] == "39"
    assert row[head.index("HOLDER") :].startswith("the-test")
    assert sum(".../" in it or "unix://" in it for it in shown) == listed
    assert any(it.startswith("5 of 5 are up") for it in shown)
