"""The command in a real terminal: job control of a real bash, on a pseudo-terminal."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import shutil
import signal
import termios
import time
from collections.abc import Iterator

import pytest
from cli.kit import Command
from nemesis.processes import PATIENCE, until

from holdfast import Holdfast
from holdfast.cli import tree
from holdfast.embedded import Nodes

PROMPT = "READY> "


class Terminal:
    """A bash in a terminal, and what it has written."""

    def __init__(self, environment: dict[str, str]) -> None:
        bash = shutil.which("bash")
        assert bash is not None
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execve(bash, ["bash", "--norc", "--noprofile", "-i"], {**environment, "PS1": PROMPT, "TERM": "dumb"})
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, b"\x18\0\x78\0\0\0\0\0")
        self.text = ""
        self.expect(re.escape(PROMPT))
        self.do("bind 'set enable-bracketed-paste off'")

    def type(self, text: str) -> None:
        """Press keys."""
        os.write(self.fd, text.encode())

    def expect(self, pattern: str) -> str:
        """Wait for a text, and take all up to it. Returns what it has matched."""
        deadline = time.monotonic() + PATIENCE
        while (found := re.search(pattern, self.text)) is None:
            left = deadline - time.monotonic()
            assert left > 0, f"{pattern!r} did not come; the terminal shows {self.text!r}"
            if select.select([self.fd], [], [], min(left, 0.2))[0]:
                self.text += os.read(self.fd, 65536).decode(errors="replace")
        self.text = self.text[found.end() :]
        return found[0]

    def do(self, line: str) -> str:
        """Type a line, and wait for the prompt. Returns what was written."""
        self.type(f'{line}; echo "<$?>"\n')
        self.expect(r"echo \"<\$\?>\"\r\n")
        shown = self.expect(rf"(?s).*?<\d+>\r\n{PROMPT}")
        return shown.removesuffix(PROMPT).strip()

    def close(self) -> None:
        """End everything in it."""
        for it in tree.descendants(self.pid):
            tree.send(it.pid, signal.SIGKILL)
        tree.send(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self.fd)


@pytest.fixture
def terminal(holdfast: Command) -> Iterator[Terminal]:
    """A bash in a terminal."""
    found = Terminal(holdfast.environment)
    yield found
    found.close()


def test_the_command_reads_the_terminal_stops_and_goes_on(terminal: Terminal, nodes: Nodes) -> None:
    before = terminal.do("stty -g")
    terminal.type("holdfast run job cat\n")
    terminal.expect(r"job cat\r\n")
    with Holdfast(*nodes.urls) as locks:
        until(lambda: locks.is_locked("job"))
        terminal.type("one\n")
        terminal.expect("one\r\none\r\n")
        terminal.type("\x1a")
        terminal.expect(rf"Stopped.*\r\n{PROMPT}")
        assert locks.is_locked("job"), "a suspended job keeps its lock"
        terminal.type("fg\n")
        terminal.expect(r"holdfast run job cat\r\n")
        terminal.type("two\n")
        terminal.expect("two\r\ntwo\r\n")
        terminal.type("\x1a")
        terminal.expect(rf"Stopped.*\r\n{PROMPT}")
        # In the background, reading stops it.
        terminal.type("bg\n")
        terminal.expect(PROMPT)
        until(lambda: "Stopped" in terminal.do("sleep 0.1; jobs"))
        terminal.type("fg\n")
        terminal.expect(r"holdfast run job cat\r\n")
        terminal.type("three\n")
        terminal.expect("three\r\nthree\r\n")
        terminal.type("\x04")
        terminal.expect(PROMPT)
        until(lambda: not locks.is_locked("job"))
    assert terminal.do("stty -g") == before


@pytest.mark.parametrize("key, status", [("\x03", 130), ("\x1c", 131)], ids=["Ctrl-C", "Ctrl-backslash"])
def test_a_key_ends_the_command(terminal: Terminal, key: str, status: int) -> None:
    terminal.type("holdfast run x -c 'echo began; exec sleep 60'\n")
    terminal.expect(r"began\r\n")
    terminal.type(key)
    terminal.expect(PROMPT)
    assert terminal.do("echo $?").startswith(str(status))


@pytest.mark.parametrize("when", ["while the second leads", "between two"])
def test_ctrl_c_ends_terms_that_follow_each_other(terminal: Terminal, when: str) -> None:
    terminal.type("holdfast elect --again terms -c 'echo led; test -e ~/on || { : > ~/on; exit; }; exec sleep 60'\n")
    terminal.expect(r"led;.*\r\nled\r\n")
    if when == "between two":
        until(lambda: os.tcgetpgrp(terminal.fd) == tree.children(terminal.pid)[0])
    else:
        terminal.expect(r"led\r\n")
    terminal.type("\x03")
    terminal.expect(PROMPT)
    assert terminal.do("echo $?").startswith("130")


def test_ctrl_c_ends_a_loop_around_the_command(terminal: Terminal) -> None:
    terminal.type("while holdfast run x -c 'echo again; exec sleep 60'; do :; done\n")
    terminal.expect(r"again\r\n")
    terminal.type("\x03")
    terminal.expect(PROMPT)
    assert terminal.do("echo over") == "over\r\n<0>"


def test_ctrl_c_ends_a_script_around_it(terminal: Terminal, holdfast: Command) -> None:
    script = holdfast.folder / "script"
    script.write_text("holdfast run x -c 'echo began; exec sleep 60'\necho went on\n")
    terminal.type(f"bash {script}\n")
    terminal.expect(r"began\r\n")
    terminal.type("\x03")
    terminal.expect(PROMPT)
    assert terminal.do("echo over") == "over\r\n<0>"


def test_ctrl_z_while_it_waits_keeps_the_command_from_beginning(terminal: Terminal, nodes: Nodes) -> None:
    with Holdfast(*nodes.urls) as locks:
        with locks.lock("turn", wait=0):
            terminal.type("holdfast run turn echo ran\n")
            terminal.expect(r"echo ran\r\n")
            until(lambda: locks.inspect("turn").queue)
            terminal.type("\x1a")
            terminal.expect(rf"Stopped.*\r\n{PROMPT}")
        until(lambda: locks.is_locked("turn"))
        assert terminal.do("sleep 0.3; true") == "<0>", "it did not run"
        terminal.type("fg\n")
        terminal.expect(r"\r\nran\r\n")


def test_a_pipeline_shares_the_terminal(terminal: Terminal) -> None:
    """The other end of the pipe reads the terminal, which must not stop it."""
    terminal.type("holdfast run x echo text | sh -c 'read line; read key </dev/tty; echo \"<$line> <$key>\"'\n")
    terminal.expect(r"\"<\$line> <\$key>\"'\r\n")
    time.sleep(0.5)
    terminal.type("key\n")
    terminal.expect("<text> <key>\r\n")
    terminal.expect(PROMPT)


def test_the_terminal_is_as_it_was_when_the_command_is_killed(terminal: Terminal) -> None:
    before = terminal.do("stty -g")
    terminal.type("holdfast run x -c 'stty raw -echo; kill -KILL $$'\n")
    terminal.expect(PROMPT)
    assert terminal.do("stty -g") == before


def test_who_holds_it_is_shown_in_one_line_that_is_written_over(terminal: Terminal, nodes: Nodes) -> None:
    with Holdfast(*nodes.urls, owner="somebody-else") as locks:
        with locks.lock("shown", wait=0):
            terminal.type("holdfast run shown echo ran\n")
            terminal.expect(r"\r\x1b\[Kholdfast: waiting [\d.]+ s for 'shown': 1 of 1 in line; held by somebody-else")
            terminal.expect(r"\r\x1b\[Kholdfast: waiting [\d.]+ s for 'shown'")
        terminal.expect(r"\r\x1b\[Kran\r\n")
