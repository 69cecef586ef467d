"""Programs of their own: what can only happen to a whole process (signals, fork, exit) happens to one that a test starts."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator, Sequence

from contract.cluster import Cluster

HEAD = """
import gc, os, signal, sys, threading, time
from holdfast import *
from holdfast.errors import *

URLS = os.environ["HOLDFAST_NODES"].split()

def say(*words):
    # One write: threads that say something at the same moment do not mix their lines.
    sys.stdout.write(" ".join(map(str, words)) + "\\n")
    sys.stdout.flush()

"""


class Program:
    """A running program, to be spoken to line by line."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    @property
    def pid(self) -> int:
        """Its process id."""
        return self.process.pid

    def tell(self, line: str = "") -> None:
        """Give it a line."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()

    def hear(self) -> str:
        """Its next line; "" at its end. (pytest-timeout looks after one that says nothing.)"""
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def expect(self, line: str) -> None:
        """Its next line is this one."""
        heard = self.hear()
        if heard != line:
            self.process.kill()
            assert heard == line, self.process.communicate()

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self.process.send_signal(number)

    def end(self, patience: float = 20.0) -> int:
        """Wait for its end; its exit status."""
        return self.process.wait(patience)


@contextlib.contextmanager
def program(source: str, nodes: Cluster, *arguments: object, flags: Sequence[str] = (), first: str = "") -> Iterator[Program]:
    """A program that runs while the block does. It gets the nodes from its environment, as users' programs do. `first`: before all else."""
    environment = {**os.environ, "HOLDFAST_NODES": " ".join(nodes.urls)}
    # (A warning that is an error: in a finalizer it would only be printed, so that tests look at what is printed, too.)
    command = [sys.executable, "-W", "error", "-W", "ignore::DeprecationWarning", *flags, "-c", first + HEAD + textwrap.dedent(source)]
    pipe = subprocess.PIPE
    with subprocess.Popen([*command, *map(str, arguments)], stdin=pipe, stdout=pipe, stderr=pipe, text=True, env=environment) as process:
        try:
            yield Program(process)
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGCONT)
            process.kill()


def run(
    source: str, nodes: Cluster, *arguments: object, flags: Sequence[str] = (), first: str = "", patience: float = 50.0
) -> tuple[int, str, str]:
    """Run a program to its end: its exit status, and what it wrote to stdout and stderr."""
    with program(source, nodes, *arguments, flags=flags, first=first) as running:
        out, errors = running.process.communicate(timeout=patience)
        return running.process.returncode, out, errors
