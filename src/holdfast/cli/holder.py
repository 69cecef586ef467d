"""The process that holds the lock while a command runs, and stops the command in time.

Knows the client, the command's process, and everything that descends from it. Must not know the
terminal's user: the supervisor speaks for it.

    shell
      └─ supervisor     passes signals on, guards the holder, ends with the command's status
          └─ holder    has the client; stops the command before the lease can end
              └─ command   and all that it starts

Whichever of the two is killed or stopped, the other one kills the command's whole tree before
anybody else can hold the lock. Only then, and only if the lease is still held, it is released.
"""

from __future__ import annotations

import enum
import os
import select
import signal
import threading
from collections import deque
from collections.abc import Callable
from math import inf
from typing import TYPE_CHECKING, Any, Never

from .. import LeaseState
from ..clock import clock
from ..errors import HoldfastError, LockLost
from . import command, tree, waiting
from .board import Board, Pipe
from .codes import LOST, NOT_EXECUTABLE, TOO_LONG, code_of
from .durations import told
from .held import variables
from .job import Ending, Failed, Job
from .output import NORMAL, VERBOSE, explained

if TYPE_CHECKING:
    from .. import Lease

# Seconds between two readings of the clock, which runs on while the machine sleeps. `poll` does not.
BEAT = 0.25
# Seconds between two passes over processes that should be dead.
_QUICK, _SLOW = 0.001, 0.1
_STUBBORN = 1.0  # seconds after which a process that does not die is named
_LAST_WORDS = 1.0  # seconds to send what is left to say
# Seconds after which a process that does not die is left, once the lock is not held any more.
GIVE_UP = 5.0
# The part of the margin at which a lease that is not renewed is left to run out.
_LEAVE = 0.75
_IGNORED = (*command.FORWARDED, *command.TERMINAL, signal.SIGPIPE)


class HolderPhase(enum.Enum):
    WAITING = "waiting"  # for the lock
    ASKED = "asked"  # held; the supervisor says whether to begin
    RUNNING = "running"
    LEFT = "left"  # the command has ended, and something of it is still there
    ENDING = "ending"  # nothing of it is there


class Holder:
    """The holder's state, and what it does at each turn of its loop."""

    def __init__(
        self,
        job: Job,
        line: Pipe,
        board: Board,
        supervisor: int,
        terminal: int,
        signals: command.Signals,
        now: Callable[[], float] = clock,
    ) -> None:
        self._clock = now
        self._job, self._line, self._board, self._terminal = job, line, board, terminal
        self._supervisor, self._supervisor_group = supervisor, os.getpgid(supervisor)
        self._me = os.getpid()
        self._phase = HolderPhase.WAITING
        self._cancel, self._finished = threading.Event(), threading.Lock()
        self._finished.acquire()
        self._news: deque[tuple[Any, ...]] = deque()
        self._lease: Lease | None = None
        self._began = self._released = 0.0
        self._ending = Ending(None)
        # Why the command was told to end, and why it is being killed.
        self._told = self._killing = ""
        self._warned = False
        # Is a renewal late? Is the lock left to run out?
        self._doubted = False
        self._left = False
        # When to kill, for another reason than the end of the lease; and since when we do.
        self._kill_at = inf
        self._killing_since, self._pass = inf, _QUICK
        self._named = False
        self._own_group = True
        # How often the supervisor has continued the command.
        self._round = 0
        self._wake_in, self._wake = os.pipe()
        for it in (self._wake_in, self._wake):
            os.set_blocking(it, False)
        self._gate_in, self._gate = os.pipe()
        self._command = self._fork(signals)

    def _fork(self, signals: command.Signals) -> int:
        pid = os.fork()
        if pid == 0:
            try:
                for it in (self._line.fileno(), self._gate, self._wake_in, self._wake):
                    os.close(it)
                command.become(self._job.path, self._job.argv, self._gate_in, self._me, self._supervisor, signals)
            finally:
                os._exit(NOT_EXECUTABLE)
        os.close(self._gate_in)
        try:
            os.setpgid(pid, pid)
        except OSError:
            # The child was faster, or is dead already.
            pass
        return pid

    # ------------------------------------------------ the loop

    def run(self) -> None:
        """Hold the lock while the command runs, until the supervisor has been told how it ended."""
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])
        threading.Thread(target=self._work, daemon=True).start()
        poll = select.poll()
        poll.register(self._wake_in, select.POLLIN)
        self._over = False
        while not self._over:
            poll.register(self._line.fileno(), select.POLLIN | (select.POLLOUT if self._line.owing else 0))
            if self._line.ended:
                poll.unregister(self._line.fileno())
            self._turn(poll)
        self._say_last()

    def _turn(self, poll: select.poll) -> None:
        """Wait for news, look at the clock, and do what there is to do."""
        poll.poll(max(0.0, self._pause()) * 1000)
        # First of all: the machine may have slept, or this process may have been stopped.
        self._guard(self._clock())
        self._hear()
        self._line.flush()

    def _pause(self) -> float:
        if self._killing:
            return self._pass
        return BEAT if self._lease is None else min(BEAT, self._next - self._clock())

    def _hear(self) -> None:
        try:
            os.read(self._wake_in, 4096)
        except BlockingIOError:
            pass
        known = self._line.ended
        for message in () if known else self._line.received():
            self._from_supervisor(*message)
        if self._line.ended and not known:
            self._supervisor_died()
        while self._news:
            self._from_work(*self._news.popleft())
        self._from_children()

    def _tell(self, event: str, text: str = "", level: int = NORMAL, **facts: Any) -> None:
        self._line.send("event", event, facts, text, level)

    def _say_last(self) -> None:
        poll = select.poll()
        poll.register(self._line.fileno(), select.POLLOUT)
        until = self._clock() + _LAST_WORDS
        while self._line.owing and self._clock() < until and not self._line.ended:
            poll.poll(_LAST_WORDS * 1000)
            self._line.flush()

    # ------------------------------------------------ the thread that asks the nodes

    def _work(self) -> None:
        error: BaseException | None = None
        facts: dict[str, Any] = {}
        locks = self._job.client
        try:
            scout = waiting.HolderWatch(locks, self._job, lambda *it: self._post("waiting", *it))
            facts = self._job.work(
                locks, self._cancel, lambda lease: self._post("lost"), lambda lease: self._body(lease, scout)
            )
        except BaseException as trouble:
            error = trouble
        if self._lease is None:
            # Nobody got the lock: have the nodes forget that we asked.
            locks.close()
        self._post("done", error, facts)

    def _body(self, lease: Lease, scout: waiting.HolderWatch) -> Ending:
        scout.end()
        self._post("held", lease)
        self._finished.acquire()
        return self._ending

    def _post(self, *news: Any) -> None:
        self._news.append(news)
        try:
            os.write(self._wake, b"\0")
        except BlockingIOError:
            # The pipe is full, so the loop wakes in any case.
            return

    def _from_work(self, what: str, *facts: Any) -> None:
        match what:
            case "waiting":
                text, waited = facts
                self._line.send("waiting", text, waited)
            case "held":
                self._held(*facts)
            case "done":
                self._done(*facts)
            # "lost" only wakes the loop: `_guard` sees it.

    def _held(self, lease: Lease) -> None:
        self._lease = lease
        self._phase = HolderPhase.ASKED
        if self._cancel.is_set() or self._line.ended:
            self._finish(Ending(None, reason="signal"))
        else:
            self._line.send("ask")

    def _done(self, error: BaseException | None, facts: dict[str, Any]) -> None:
        ending = error.ending if isinstance(error, Failed) else self._ending
        code, text, reason = None, "", ending.reason
        if ending.reason and ending.reason != "signal":
            code = TOO_LONG if ending.reason == "max_hold" else LOST
        elif self._warned:
            code, reason = LOST, "danger"
        elif isinstance(error, LockLost):
            code, reason, text = LOST, error.reason, explained(error)
        elif error is not None and not isinstance(error, Failed) and not self._cancel.is_set():
            code, text = code_of(error), explained(error)
        if error is not None and not isinstance(error, HoldfastError | Failed):
            text = f"{type(error).__name__}: {error}"
        self._line.send(
            "done",
            {
                "status": ending.status,
                "signal": ending.signal,
                "code": code,
                "reason": reason,
                "text": text,
                **self._tenure(),
                **facts,
            },
        )
        self._close_gate()
        self._over = True

    def _tenure(self) -> dict[str, Any]:
        """How long the lock was waited for and held. Tells that it is free now."""
        lease = self._lease
        if lease is None:
            return {"fence": None, "waited": None, "held": 0.0}
        held = 0.0 if not self._began else (self._released or self._clock()) - self._began
        if lease.state is LeaseState.RELEASED and not self._left:
            self._tell("released", f"released {self._job.name!r} after {told(held)}", VERBOSE, held=held)
        return {**_facts_of(lease), "held": held}

    # ------------------------------------------------ what the supervisor says

    def _from_supervisor(self, what: str, *facts: Any) -> None:
        match what:
            case "go" if self._phase is HolderPhase.ASKED:
                self._start()
            case "signal":
                self._pass_on(*facts)
            case "continue":
                (self._round,) = facts
                self._send(signal.SIGCONT)

    def _pass_on(self, number: int) -> None:
        if self._phase is HolderPhase.RUNNING:
            self._send(number, group=self._job.scope == "group")
        elif number in command.ENDING and self._phase in (HolderPhase.WAITING, HolderPhase.ASKED):
            self._cancel.set()
            self._close_gate()
            if self._phase is HolderPhase.ASKED:
                self._finish(Ending(None, reason="signal"))

    def _supervisor_died(self) -> None:
        """The supervisor was killed: the command goes first, and then the lock."""
        if self._phase is HolderPhase.WAITING:
            self._cancel.set()
            self._close_gate()
        elif self._phase is HolderPhase.ASKED:
            self._finish(Ending(None, reason="supervisor"))
        elif self._phase is not HolderPhase.ENDING:
            self._kill("supervisor")

    # ------------------------------------------------ the command

    def _start(self) -> None:
        lease = self._lease
        assert lease is not None
        now = self._clock()
        self._began, self._phase = now, HolderPhase.RUNNING
        # TERM comes when it has run for `max_hold`.
        self._kill_at = now + self._job.max_hold + self._job.kill_after
        if lease.state is not LeaseState.OPEN:
            self._board.until = now + lease.remaining
        foreground = waiting.in_foreground(self._terminal, self._supervisor_group)
        self._own_group = not (foreground and waiting.shares(self._supervisor, self._supervisor_group))
        if foreground and self._own_group:
            # The terminal belongs to the command before it begins. (We ignore SIGTTOU.)
            os.tcsetpgrp(self._terminal, self._command)
        self._line.send("running", self._command, self._own_group)
        if lease.state is LeaseState.OPEN:
            what = f"no majority of the nodes answers: running the command without {self._job.name!r}"
            self._tell("opened", what, waited=lease.waited)
        else:
            self._tell("held", f"have {self._job.name!r} after {told(lease.waited)}", VERBOSE, **_facts_of(lease))
        command.open_gate(
            self._gate, variables(lease, self._job, os.environ), 0 if self._own_group else self._supervisor_group
        )
        self._gate = -1
        self._guard(self._clock())

    def _close_gate(self) -> None:
        if self._gate >= 0:
            os.close(self._gate)
            self._gate = -1

    def _send(self, number: int, group: bool = True) -> None:
        """Send a signal to the command's group, or to the command alone."""
        # When the command has ended, its number may be another process's.
        running = self._phase is HolderPhase.RUNNING
        if running and not group:
            tree.send(self._command, number)
        elif running and self._own_group:
            tree.send(-self._command, number)
        else:
            for it in tree.descendants(self._me):
                tree.send(it.pid, number)

    def _from_children(self) -> None:
        if self._phase is HolderPhase.RUNNING:
            tree.reap(without=(self._command,))
            while (found := tree.news(self._command)) is not None:
                if found.what == "ended":
                    self._command_ended(found)
                    break
                self._line.send(found.what, self._round)
        if self._phase is HolderPhase.LEFT and tree.childless():
            self._finish(self._ending)

    def _command_ended(self, found: tree.News) -> None:
        self._phase = HolderPhase.LEFT
        self._ending = Ending(
            found.status, found.signal, self._killing or (self._told if self._told == "max_hold" else "")
        )
        if self._job.leftovers == "leave" and not self._killing:
            self._finish(self._ending)
        elif not tree.childless() and self._job.leftovers == "kill" and not self._killing:
            rest = tree.descendants(self._me)
            names = ", ".join(f"{it.pid} ({it.name})" for it in rest[:5])
            more = f" and {len(rest) - 5} more" if len(rest) > 5 else ""
            self._tell("leftovers", f"the command has ended, and left {names}{more}: ending them too", count=len(rest))
            for it in rest:
                tree.send(it.pid, signal.SIGTERM)
                tree.send(it.pid, signal.SIGCONT)
            self._kill_at = min(self._kill_at, self._clock() + self._job.kill_after)

    # ------------------------------------------------ the deadlines

    def _guard(self, now: float) -> None:
        """Look at the clock and the lease, and stop the command in time."""
        lease = self._lease
        self._next = now + BEAT
        if lease is None or self._phase not in (HolderPhase.RUNNING, HolderPhase.LEFT):
            return
        if self._killing:
            self._kill_again(now)
            return
        end = self._end_of(lease, now)
        if end == -inf:
            return
        term = min(end, self._kill_at) - self._job.kill_after
        if now >= min(end, self._kill_at):
            self._kill(
                "danger" if end <= self._kill_at else "max_hold" if self._phase is HolderPhase.RUNNING else "leftovers"
            )
        elif now >= term and not self._told and self._phase is HolderPhase.RUNNING:
            self._terminate("danger" if end < self._kill_at else "max_hold", end - now)
        elif now < term and self._told == "danger":
            # The renewals are back. The command was told to end, and may run on.
            self._told = ""
        self._next = min(self._next, *[it for it in (term, end, self._kill_at) if it > now], now + BEAT)

    def _end_of(self, lease: Lease, now: float) -> float:
        """Until when the lease lets the command run; -inf if it is lost, and the command killed."""
        if lease.state is LeaseState.OPEN:
            return inf
        left = lease.remaining
        if left > 0.0:
            self._say_doubt(lease, left)
            self._board.until = now + left
            return now + left - self._job.margin
        reason = reason_of(lease)
        if self._job.on_lost == "term" and reason not in ("expired", "refused"):
            if self._told != reason:
                self._kill_at = min(self._kill_at, now + self._job.kill_after)
                self._terminate(reason, 0.0)
            if now < self._kill_at:
                return inf
        self._kill(reason)
        return -inf

    def _say_doubt(self, lease: Lease, left: float) -> None:
        """Tell when a renewal was not confirmed in time, once until the next one is."""
        doubted, self._doubted = self._doubted, lease.state is LeaseState.DOUBT
        if self._doubted and not doubted:
            self._tell("doubt", f"{self._job.name!r} could not be renewed yet ({told(left)} left)", VERBOSE, left=left)

    def _terminate(self, why: str, left: float) -> None:
        self._told = why
        self._warned = self._warned or why != "max_hold"
        what = f"the lease of {self._job.name!r} is in danger ({told(max(left, 0.0))} left)"
        if why == "max_hold":
            what = f"{self._job.name!r} was held for as long as --max-hold allows"
        elif why != "danger":
            what = f"{self._job.name!r} is lost ({why})"
        self._tell("terminated", f"{what}: telling the command to end", reason=why)
        for number in (signal.SIGTERM, signal.SIGCONT):
            self._send(number)

    def _kill(self, why: str) -> None:
        """Begin to kill everything that the command has started."""
        if self._killing:
            return
        self._killing, self._killing_since = why, self._clock()
        self._kill_again(self._killing_since)
        if why != "leftovers":
            self._tell(
                "killed",
                f"{self._job.name!r}: {_WHY.get(why, f'the lease is lost ({why})')}; killed the command",
                reason=why,
            )
        if self._phase is HolderPhase.LEFT and why != "leftovers":
            self._ending = self._ending._replace(reason=why)

    def _kill_again(self, now: float) -> None:
        rest = tree.kill(self._me)
        if self._own_group and not tree.LINUX and self._phase is HolderPhase.RUNNING:
            tree.send(-self._command, signal.SIGKILL)
        self._pass = min(_SLOW, self._pass * 2) if rest else _QUICK
        if not rest:
            return
        if not self._named and now - self._killing_since > _STUBBORN:
            self._named = True
            self._tell("stuck", f"killed, and still there: {_stuck(rest)}. Trying again and again", count=len(rest))
        self._keep_or_leave(now, rest)

    def _keep_or_leave(self, now: float, rest: list[tree.ProcessEntry]) -> None:
        """Something does not die: keep the lock while it can be renewed, and never release it."""
        lease = self._lease
        assert lease is not None
        if lease.held:
            left, least = lease.remaining, _LEAVE * self._job.margin
            self._board.until = now + left
            if left > least:
                self._pass = min(self._pass, left - least)
                return
            # A loss would have the nodes release what a late renewal may have prolonged.
            try:
                lease.leave()
            except LockLost:
                # The next pass sees it.
                return
            self._left = True
            self._board.until = 0.0
            what = f"{self._job.name!r} cannot be renewed. It is left to run out"
            self._tell("left", f"{what}, because this is still there: {_stuck(rest)}", count=len(rest))
        elif now - self._killing_since > GIVE_UP:
            what = f"killed, and still there: {_stuck(rest)}"
            self._tell("given_up", f"{what}. {self._job.name!r} is not held any more", count=len(rest))
            self._finish(Ending(None, reason=self._killing))

    def _finish(self, ending: Ending) -> None:
        """Nothing of the command is there: let the lock go."""
        if self._killing and self._killing != "leftovers" and not ending.reason:
            ending = ending._replace(reason=self._killing)
        self._ending, self._phase = ending, HolderPhase.ENDING
        self._board.until = 0.0
        self._released = self._clock()
        self._close_gate()
        self._finished.release()


_WHY = {
    "danger": "the lease could not be renewed in time",
    "max_hold": "--max-hold and --kill-after are over",
    "supervisor": "the process that was started as `holdfast` is gone",
}


def _stuck(rest: list[tree.ProcessEntry]) -> str:
    """Processes that do not die, for people: the first five, and where in the kernel they wait."""
    return ", ".join(f"{it.pid} ({it.name}, waits in {tree.waits_in(it.pid)})" for it in rest[:5])


def reason_of(lease: Lease) -> str:
    """Return why a lease is lost."""
    try:
        lease.check()
    except LockLost as lost:
        return lost.reason
    except HoldfastError:
        return "closed"
    return "expired"


def _facts_of(lease: Lease) -> dict[str, Any]:
    fences = list(lease.fences.values())
    return {"fence": fences[0] if len(fences) == 1 else None, "waited": lease.waited}


def hold(job: Job, line: Pipe, board: Board, supervisor: int, terminal: int, signals: command.Signals) -> Never:
    """Be the holder, from the fork to the end of this process.

    Args:
        job: What to do.
        line: The holder's end of the line to the supervisor.
        board: The board that both can see.
        supervisor: The process id of the supervisor.
        terminal: A descriptor of the terminal, or -1.
        signals: As they were when the program began.
    """
    code = 1
    try:
        os.setpgid(0, 0)
        for it in _IGNORED:
            signal.signal(it, signal.SIG_IGN)
        tree.adopt()
        holder = Holder(job, line, board, supervisor, terminal, signals)
        signal.pthread_sigmask(signal.SIG_SETMASK, signals.mask)
        holder.run()
        code = 0
    finally:
        # The client's connections end with the process. What had to be sent has been.
        os._exit(code)
