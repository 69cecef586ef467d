"""The process that becomes the command: it waits for the lock, and then executes the file.

Knows signals, the environment and `exec`. Must not know locks. It is forked by the holder while
that has one thread, and does nothing until the holder opens its gate.
"""

from __future__ import annotations

import errno
import marshal
import os
import signal
from collections.abc import Mapping
from typing import Never

from . import tree
from .codes import NOT_EXECUTABLE, NOT_FOUND

# What the supervisor passes on.
FORWARDED = (
    signal.SIGHUP,
    signal.SIGINT,
    signal.SIGQUIT,
    signal.SIGTERM,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGWINCH,
    signal.SIGCONT,
    signal.SIGTSTP,
)
# Those that end the wait for a lock.
ENDING = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM)
# Those that only stop a background process which uses the terminal.
TERMINAL = (signal.SIGTTIN, signal.SIGTTOU)
_CHUNK = 65536


class Signals:
    """How signals were set when the program began, to be set so for the command."""

    def __init__(self) -> None:
        self.mask = signal.pthread_sigmask(signal.SIG_BLOCK, [])
        self.ignored = {it for it in (*FORWARDED, *TERMINAL) if signal.getsignal(it) is signal.SIG_IGN}

    def restore(self) -> None:
        """Set them as they were. Python itself ignores SIGPIPE and SIGXFSZ."""
        for it in (*FORWARDED, *TERMINAL, signal.SIGCHLD, signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(it, signal.SIG_IGN if it in self.ignored else signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, self.mask)


def found(name: str, path: str) -> tuple[str, int]:
    """Look a command up.

    Args:
        name: The command, as it was typed.
        path: The value of PATH.

    Returns:
        Its file, and 0; or an empty text, and the exit status that says why there is none.
    """
    code = NOT_FOUND
    places = [name] if "/" in name else [os.path.join(it or ".", name) for it in path.split(os.pathsep)]
    for place in places if name else ():
        if os.path.isfile(place) and os.access(place, os.X_OK):
            return place, 0
        if os.path.lexists(place):
            code = NOT_EXECUTABLE
    return "", code


def open_gate(gate: int, variables: Mapping[str, str], group: int) -> None:
    """Let the command begin.

    Args:
        gate: The holder's end of the pipe.
        variables: What the command's environment has besides our own.
        group: The process group to join. 0: a group of its own, which it has already.
    """
    try:
        os.write(gate, marshal.dumps((dict(variables), group)))
    except BrokenPipeError:
        # It was killed while it waited, as its parent is told.
        pass
    os.close(gate)


def become(path: str, argv: list[str], gate: int, parent: int, supervisor: int, signals: Signals) -> Never:
    """Wait at the gate, and become the command.

    Args:
        gate: This process's end of the pipe.
        parent: The process id of the holder.
        supervisor: That of the supervisor.
        signals: As they were when the program began.
    """
    os.setpgid(0, 0)
    tree.die_with_parent()
    # The holder may have died before the kernel was asked.
    if os.getppid() != parent:
        os._exit(0)
    data = b""
    while chunk := os.read(gate, _CHUNK):
        data += chunk
    if not data:
        os._exit(0)
    variables, group = marshal.loads(data)
    if group:
        os.setpgid(0, group)
    environment = {**os.environ, **variables}
    # Sockets that systemd has opened are for this process now.
    if environment.get("LISTEN_PID") == str(supervisor):
        environment["LISTEN_PID"] = str(os.getpid())
    execute(path, argv, environment, signals)


def execute(path: str, argv: list[str], environment: Mapping[str, str], signals: Signals) -> Never:
    """Become a command, or say why that cannot be, and end this process.

    Args:
        path: The file that is executed.
        argv: The command and its arguments.
        environment: Its environment.
        signals: As they were when the program began.
    """
    signals.restore()
    try:
        try:
            os.execve(path, argv, environment)
        except OSError as error:
            # A script without `#!`, which every shell runs.
            if error.errno != errno.ENOEXEC:
                raise
        os.execve("/bin/sh", ["sh", path, *argv[1:]], environment)
    except OSError as error:
        os.write(2, f"holdfast: {path} cannot be executed: {error.strerror}\n".encode("utf-8", "backslashreplace"))
    os._exit(NOT_EXECUTABLE)
