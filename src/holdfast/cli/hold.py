"""`hold` and `check`: a lock for a shell script, and whether it is still held.

Knows the client, and what a command is told of its lock. Must not know how commands are supervised.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import threading
from argparse import Namespace
from collections.abc import Collection

from .. import Holdfast, Lease, LeaseState
from ..clock import clock
from ..errors import BadFence, Cancelled
from ..fencing.http import fences_in
from . import tree
from .codes import BUSY, DONE, LOST, SIGNALLED
from .configuration import configuration
from .holder import BEAT, reason_of
from .job import MARGIN
from .options import Usage
from .output import Output, quiet
from .running import check_kinds, keys_of, lease_of, note_of
from .supervisor import die_of
from .warnings import warnings_to
from .work import described

_ENDS = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)


def hold(options: Namespace) -> int:
    """Hold a lock until stdin ends, or a signal comes."""
    check_kinds(options)
    if options.guard is not None:
        _check_guarded(options.guard)
    options.note = note_of(options, "holdfast hold")
    output = Output()
    quiet(output)
    keeper = _Keeper(options, output)
    config = configuration(vars(options), os.environ)
    # Connections are closed by the end of the process; what is released was confirmed before.
    locks = config.client(observer=warnings_to(output, options.name))
    code = keeper.hold(locks, lease_of(config, locks.settings.max_ttl))
    locks.close()
    if keeper.signal:
        die_of(keeper.signal, os.getpid())
    return code


def _check_guarded(pid: int) -> None:
    """Refuse to guard what cannot be stopped."""
    try:
        # 0 and less are whole groups of processes.
        if pid < 1:
            raise ProcessLookupError
        os.kill(pid, 0)
    except (OSError, OverflowError):
        raise Usage(f"--guard {pid}: there is no such process that this user could stop") from None


class _Keeper:
    """Holds a lock in this process, and listens to stdin and signals meanwhile."""

    def __init__(self, options: Namespace, output: Output) -> None:
        self._options, self._output = options, output
        self.signal = 0
        self._cancel = threading.Event()
        self._wake_in, self._wake = os.pipe()
        os.set_blocking(self._wake, False)
        for it in _ENDS:
            # What `nohup`, or a shell for its background, has this process ignore stays so.
            if signal.getsignal(it) is not signal.SIG_IGN:
                signal.signal(it, self._ended)
        signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)

    def _ended(self, number: int, frame: object) -> None:
        self.signal = number
        self._cancel.set()

    def _watch_stdin(self) -> None:
        """End the wait when nobody can write to stdin any more: its script is gone."""
        poll = select.poll()
        # (A file, or /dev/null, has an end too, and nobody who could go.)
        poll.register(0, 0)

        def watch() -> None:
            if any(event & select.POLLHUP for _, event in poll.poll()):
                self._cancel.set()

        # (If nobody could write from the beginning, the lock is acquired and released.)
        if not poll.poll(0):
            threading.Thread(target=watch, daemon=True).start()

    def _lost(self, lease: Lease) -> None:
        os.write(self._wake, b"\0")

    def hold(self, locks: Holdfast, ttl: float) -> int:
        """Acquire, say so, hold, and release.

        Returns:
            The exit status.
        """
        lock = described(locks, self._options, ttl, self._lost)
        keys_of(self._options, locks)
        self._watch_stdin()
        try:
            lease = lock.acquire(self._cancel)
        except Cancelled:
            return SIGNALLED + self.signal if self.signal else BUSY
        facts = {"name": lease.name, "fences": lease.fences, "tokens": lease.tokens, "ttl": ttl, "pid": os.getpid()}
        if len(lease.fences) == 1:
            facts |= {"fence": lease.fence, "token": lease.token}
        try:
            print(json.dumps(facts), flush=True)
        except OSError:
            lease.release(confirm=True)
            raise
        kept = self._keep(lease, ttl)
        if not kept:
            self._output.say(f"{lease.name!r} is lost ({reason_of(lease)}). Stop what it protected")
            return LOST
        lease.release(confirm=True)
        return DONE

    def _keep(self, lease: Lease, ttl: float) -> bool:
        """Wait for the end. False: the lease is lost, and the guarded process was stopped."""
        poll = select.poll()
        poll.register(0, select.POLLIN)
        poll.register(self._wake_in, select.POLLIN)
        margin, warned = MARGIN + ttl / 50, False
        while not self.signal:
            ready = dict(poll.poll(BEAT * 1000))
            left = lease.remaining
            if lease.state is not LeaseState.OPEN and left <= margin:
                self._stop(signal.SIGKILL)
                # So that `check()` tells why: the lease may have a moment left.
                until = clock() + left
                while lease.held and clock() < until:
                    select.poll().poll(1)
                return False
            if lease.state is not LeaseState.OPEN and left <= margin + ttl / 3 and not warned:
                warned = True
                self._stop(signal.SIGTERM)
            if self._wake_in in ready:
                os.read(self._wake_in, 4096)
            if 0 in ready and not os.read(0, 4096):
                return True
        return True

    def _stop(self, number: int) -> None:
        """Stop the process of --guard, and all that it has started but this one."""
        guarded = self._options.guard
        if guarded is None:
            return
        below = tree.descendants(guarded, without=(os.getpid(),))
        # The process itself first, so that it does not go on when its children end.
        for pid in (guarded, *(it.pid for it in below)):
            tree.send(pid, number)


def check(options: Namespace) -> int:
    """Ask the nodes whether the lock of this command is still held."""
    tokens = os.environ.get("HOLDFAST_TOKEN", "").split()
    if not tokens and (name := os.environ.get("HOLDFAST_NAME")):
        Output().say(f"{name!r} is not held: this command runs without it, as `--fail-open` allows")
        return LOST
    # The names of the locks as the nodes know them, such as "job[once]".
    names: Collection[str] = ()
    with contextlib.suppress(BadFence):
        names = fences_in(os.environ.get("HOLDFAST_FENCING_TOKEN", ""))
    if not tokens or len(tokens) != len(names):
        raise Usage(
            "HOLDFAST_TOKEN and HOLDFAST_FENCING_TOKEN are not as `holdfast run` sets them: `check` is for commands "
            "that it has started"
        )
    with configuration(vars(options), os.environ).client() as locks:
        quiet(Output())
        for it, mine in zip(names, tokens, strict=True):
            status = locks.inspect(it)
            if status.holder != mine and not any(reader.token == mine for reader in status.readers):
                Output().say(f"{it!r} is not held by this command any more. Stop what it protects")
                return LOST
    return DONE
