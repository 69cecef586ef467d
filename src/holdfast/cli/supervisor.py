"""The process that everybody sees: it passes signals on, guards the holder, and ends as the command
ended.

Knows processes, signals and the terminal. Must not know locks or nodes: it has no thread, no socket
to a node, and no lease. It reads the deadline of the lease from the board, and kills the command by
its own clock if the holder does not.
"""

from __future__ import annotations

import gc
import os
import resource
import select
import signal
import socket
import time
from collections.abc import Callable
from math import inf
from typing import Any, Never

from ..clock import clock
from ..errors import ConfigError
from . import command, tree
from .board import Board, Pipe
from .codes import BUG, BUSY, LOST, SIGNALLED
from .holder import BEAT, GIVE_UP, hold
from .job import Job
from .output import NORMAL, VERBOSE, Output
from .waiting import in_foreground

# Of these a command dies as if it had been started without us: a shell's loop ends on Ctrl-C.
_DIED_OF = (*command.ENDING, signal.SIGPIPE)
# Of these it dies if somebody presses Ctrl-C, or Ctrl-backslash.
_KEYS = (signal.SIGINT, signal.SIGQUIT)
# Seconds from one term to the next with `--again`: a command that fails at once keeps nobody busy.
_ROUND = 1.0
# The part of the holder's margin that is left when the supervisor acts.
_LATER = 0.5


class Supervisor:
    """The front's state, and what it does at each turn of its loop."""

    def __init__(
        self, job: Job, output: Output, signals: command.Signals, now: Callable[[], float] = clock
    ) -> None:
        # Besides the nodes, each of the two processes has up to nine files open.
        least = 9 + len(job.client.urls)
        if 0 <= (may := resource.getrlimit(resource.RLIMIT_NOFILE)[0]) < least:
            raise ConfigError(f"this process may open {may} files, and needs {least}: ulimit -n {least}, or more")
        self._clock = now
        self._job, self._output, self._signals = job, output, signals
        self._me = os.getpid()
        self._others = set(tree.children(self._me))
        self._terminal, self._modes = _terminal()
        self._wake_in, self._wake = os.pipe()
        for it in (self._wake_in, self._wake):
            os.set_blocking(it, False)
        # The signal that ends us before the command began.
        self._ending = 0
        # Has any such signal come? Then no other term follows this one.
        self._last = False
        self._interrupted = False

    def run(self) -> Never:
        """Run the job, with `again` until a signal or an error ends it. Then end this process."""
        while True:
            began = self._clock()
            self._holder = self._command = 0
            self._own_group = True
            self._round = 0
            self._done: dict[str, Any] | None = None
            self._killed = ""
            self._begin()
            self._watch()
            code = self._code()
            if not self._job.again or self._last or not self._goes_on(code):
                self._leave(code)
            # Keys such as Ctrl-C are for this process until the next command begins.
            self._take_terminal()
            self._command = 0
            self._rest(began + _ROUND)
            if self._last:
                self._leave(SIGNALLED + self._ending)

    def _rest(self, until: float) -> None:
        """Do nothing until then, or until a signal ends this process."""
        poll = select.poll()
        poll.register(self._wake_in, select.POLLIN)
        while not self._last and (left := until - self._clock()) > 0.0:
            poll.poll(left * 1000)
            self._hear_signals()

    def _goes_on(self, code: int) -> bool:
        done = self._done
        if done is None or (done["signal"] in _KEYS and in_foreground(self._terminal, self._command)):
            # Keys reach the command alone.
            return False
        return done["status"] is not None or done["signal"] is not None or code == LOST

    def _begin(self) -> None:
        """Fork the holder. Signals are blocked meanwhile, so that none is lost."""
        tree.adopt()
        self._board = Board()
        # What is loaded stays: the holder copies none of it, and neither process takes it apart.
        gc.freeze()
        ours, theirs = socket.socketpair()
        signal.pthread_sigmask(signal.SIG_BLOCK, [*command.FORWARDED, signal.SIGCHLD])
        pid = os.fork()
        if pid == 0:
            for it in (self._wake_in, self._wake):
                os.close(it)
            ours.close()
            hold(self._job, Pipe(theirs), self._board, self._me, self._terminal, self._signals)
        self._holder = pid
        theirs.close()
        self._line = Pipe(ours)
        signal.signal(signal.SIGTTOU, signal.SIG_IGN)
        for it in (*command.FORWARDED, signal.SIGCHLD):
            if it not in self._signals.ignored:
                signal.signal(it, lambda *_: None)
        signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [*command.FORWARDED, signal.SIGCHLD])

    # ------------------------------------------------ the loop

    def _watch(self) -> None:
        poll = select.poll()
        poll.register(self._wake_in, select.POLLIN)
        poll.register(self._line.fileno(), select.POLLIN)
        while not self._line.ended:
            self._turn(poll)
        self._line.close()
        self._bury()

    def _turn(self, poll: select.poll) -> None:
        """Wait for news, look at the clock, and do what there is to do."""
        poll.poll(max(0.0, min(BEAT, self._deadline() - self._clock())) * 1000)
        # First of all: the machine may have slept, or this process may have been stopped.
        if self._clock() >= self._deadline():
            self._rescue()
        self._hear_signals()
        for message in self._line.received():
            self._from_holder(*message)
        tree.reap({self._holder, *self._others})

    def _deadline(self) -> float:
        until = self._board.until
        return until - _LATER * self._job.margin if until else inf

    def _rescue(self) -> None:
        """Kill the command, and then the holder, which did not act in time."""
        self._killed = "the process that holds the lock did not run"
        _until_gone(lambda: tree.kill(self._holder))
        if not tree.LINUX and self._command:
            tree.send(-self._command, signal.SIGKILL)
        tree.send(self._holder, signal.SIGKILL)
        self._board.until = 0.0

    def _bury(self) -> None:
        """The holder is gone, or nearly. If it did not say how it ended, kill all that it left.

        It closes its files before its children become ours, so it has to be seen dead as well.
        """
        if self._done is None:
            _until_gone(lambda: tree.kill(self._me, self._others))
            if not tree.LINUX and self._command:
                tree.send(-self._command, signal.SIGKILL)
        os.waitpid(self._holder, 0)
        tree.reap(self._others)

    def _hear_signals(self, but: int = 0) -> None:
        """Do what the signals ask for that have come, all but one."""
        try:
            numbers = os.read(self._wake_in, 4096)
        except BlockingIOError:
            return
        for number in numbers:
            if number in command.FORWARDED and number != but and not self._is_theirs(number):
                self._last = self._last or number in command.ENDING
                if number in command.ENDING and not self._command:
                    self._ending = number
                self._interrupted = self._interrupted or number == signal.SIGINT
                if number == signal.SIGTSTP and not self._command:
                    # Suspended while it waits: it does not begin before it is continued.
                    os.kill(self._me, signal.SIGSTOP)
                    continue
                self._line.send("signal", int(number))

    def _is_theirs(self, number: int) -> bool:
        """Has the terminal sent this to the command already, which shares our group?"""
        if self._own_group or not self._command or not in_foreground(self._terminal, os.getpgrp()):
            return False
        if number == signal.SIGTSTP:
            os.kill(self._me, signal.SIGSTOP)
        return number in (signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP, signal.SIGWINCH)

    def _from_holder(self, what: str, *facts: Any) -> None:
        match what:
            case "waiting":
                text, waited = facts
                self._output.note("waiting", {"name": self._job.name, "waited": waited})
                (self._output.over if self._output.terminal else self._output.say)(text)
            case "ask":
                # The command never begins after a signal that ends us.
                self._hear_signals()
                if not self._ending:
                    self._output.clear()
                    self._line.send("go")
            case "running":
                self._command, self._own_group = facts
            case "event":
                event, more, text, level = facts
                self._output.note(event, {"name": self._job.name, **more})
                if text:
                    self._output.say(text, level)
            case "stopped" if facts == (self._round,):
                # (Else it was stopped before we continued it, and goes on.)
                self._stop()
            case "done":
                (self._done,) = facts

    # ------------------------------------------------ the terminal

    def _stop(self) -> None:
        """The command was stopped: stop with it, so that the shell sees a stopped job."""
        if self._terminal < 0 or not self._own_group:
            return
        self._output.say(f"suspended; {self._job.name!r} stays held", VERBOSE)
        if os.getsid(0) == self._me:
            # Nobody could continue us.
            self._continue()
            return
        self._take_terminal()
        os.kill(0, signal.SIGSTOP)
        # What woke us is passed on by `_continue`. A second time, it could end the next stop unseen.
        self._hear_signals(but=signal.SIGCONT)
        if in_foreground(self._terminal, os.getpgrp()):
            self._give_terminal()
        self._continue()

    def _continue(self) -> None:
        self._round += 1
        self._line.send("continue", self._round)

    def _give_terminal(self) -> None:
        try:
            os.tcsetpgrp(self._terminal, self._command)
        except OSError:
            # The command has ended meanwhile.
            return

    def _take_terminal(self) -> bool:
        """Have the terminal back, if the command has it."""
        if self._command and self._own_group and in_foreground(self._terminal, self._command):
            os.tcsetpgrp(self._terminal, os.getpgrp())
            return True
        return False

    # ------------------------------------------------ the end

    def _code(self) -> int:
        """The exit status, and the last words about it."""
        done = self._done
        self._output.clear()
        if self._killed or done is None:
            ran = bool(self._command)
            why = self._killed or f"the process that {'held' if ran else 'waited for'} the lock was killed"
            ends = f"The command was killed too; the lock ends by itself within {self._job.ttl:g} s"
            self._output.say(f"{self._job.name!r}: {why}. {ends if ran else 'The command was not started'}")
            done = {
                "status": None,
                "signal": signal.SIGKILL if ran else None,
                "code": LOST if ran else BUG,
                "reason": "holder",
            }
            self._done = done
        elif done["text"]:
            skipped = done["code"] == BUSY and self._job.conflict == 0
            self._output.say(done["text"], VERBOSE if skipped or done["code"] is None else NORMAL)
        return self._status(done)

    def _status(self, done: dict[str, Any]) -> int:
        code = done["code"]
        if code == BUSY:
            return self._job.conflict
        if code is not None:
            return int(code)
        if done["signal"] is not None:
            return SIGNALLED + int(done["signal"])
        if done["status"] is not None:
            return int(done["status"])
        return SIGNALLED + self._ending if self._ending else int(done.get("otherwise", 0))

    def _leave(self, code: int) -> Never:
        done = self._done or {}
        had_terminal = self._take_terminal()
        if done.get("signal") is not None and self._modes is not None:
            _restore(self._terminal, self._modes)
        self._output.note("exited", _exited(self._job.name, code, done))
        number = done.get("signal") if done.get("code") is None else None
        if self._ending and not self._command:
            number = self._ending
        if number in _DIED_OF:
            # Ctrl-C on a terminal reaches the whole job: so it did for the command, and so it does here.
            whole = had_terminal and number in _KEYS and not self._interrupted
            die_of(int(number), 0 if whole else self._me)
        # Everything was written when it was said. To take the interpreter apart would cost a tenth
        # of all that the command costs.
        os._exit(code)


def _until_gone(kill: Callable[[], object]) -> None:
    """Kill again and again, until nothing is left in two passes.

    A process that the kernel does not let die is left after a while: it runs no more of its own.
    """
    pause, clean = 0.001, 0
    until = time.monotonic() + GIVE_UP
    while clean < 2 and time.monotonic() < until:
        clean = 0 if kill() else clean + 1
        time.sleep(pause)
        pause = min(0.1, pause * 2)


def _exited(name: str, code: int, done: dict[str, Any]) -> dict[str, Any]:
    tenure = {it: done.get(it) for it in ("fence", "waited", "held")}
    lock = {"name": name, **tenure, "reason": done.get("reason") or None}
    return {"code": code, "command": {"status": done.get("status"), "signal": done.get("signal")}, "lock": lock}


def die_of(number: int, target: int) -> None:
    """Die of a signal, without a core file. Returns if it cannot be done, as for the first process
    of a container.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    signal.set_wakeup_fd(-1)
    signal.signal(number, signal.SIG_DFL)
    os.kill(target, number)


def _terminal() -> tuple[int, Any]:
    """A descriptor of the terminal that controls this process, or -1; and its modes."""
    import termios

    try:
        found = os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        return -1, None
    try:
        return found, termios.tcgetattr(found)
    except termios.error:
        return found, None


def _restore(terminal: int, modes: Any) -> None:
    import termios

    try:
        termios.tcsetattr(terminal, termios.TCSADRAIN, modes)
    except termios.error:
        return
