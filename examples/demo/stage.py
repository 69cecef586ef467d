"""What several examples share: servers to play on, and real processes that can be killed.

An example starts itself once more for each process. `stage.start(charge, "order:7")` runs the
function `charge("order:7")` of the example's own file in another process, if that file ends like
this:

    if __name__ == "__main__":
        play_a_part(charge)
        sys.exit(not main())

Knows processes and pipes. Must not know what an example shows.
"""

from __future__ import annotations

import inspect
import logging
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from redis import Redis

from holdfast import Holdfast

PATIENCE = 30.0  # seconds that a process may need for its next line


class Part:
    """A process. It reads what `tell` writes as lines of its stdin, and `says` returns what it prints."""

    def __init__(self, command: list[str], environment: dict[str, str]) -> None:
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, env=environment, text=True, bufsize=1)
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        """The id of the process."""
        return self._process.pid

    def says(self) -> str:
        """Wait for the next line that the process prints, at most `PATIENCE` seconds.

        Raises:
            RuntimeError: The process ended, or printed no line in time.
        """
        try:
            line = self._lines.get(timeout=PATIENCE)
        except queue.Empty:
            line = None
        if line is None:
            self._lines.put(None)
            raise RuntimeError(f"process {self.pid} says nothing more")
        return line

    def rest(self) -> list[str]:
        """Wait until the process has ended, and return the lines that nobody has read yet."""
        lines = []
        try:
            while True:
                lines.append(self.says())
        except RuntimeError:
            return lines

    def ask(self, line: str) -> str:
        """Write a line to the process, and wait for its answer, which is the next line that it prints."""
        self.tell(line)
        return self.says()

    def tell(self, line: str) -> None:
        """Write a line to the process."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")

    def stop(self) -> None:
        """Send SIGSTOP, and return when the process stands still."""
        self._process.send_signal(signal.SIGSTOP)
        os.waitpid(self.pid, os.WUNTRACED)

    def go_on(self) -> None:
        """Send SIGCONT to a process that was stopped."""
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """Send SIGKILL (`kill -9`), and return when the process is dead."""
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        """Kill the process if it still runs."""
        self.kill()
        self._reader.join()
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line.rstrip("\n"))
        self._lines.put(None)


class Stage:
    """Servers, a client, a folder, and processes. All of them are gone when the block is left.

    The servers are those in HOLDFAST_NODES, or five new ones.
    """

    locks: Holdfast
    node: Redis
    """A plain client of the first server, for what people build without holdfast."""
    folder: Path
    """An empty folder, which stands for a database that all processes share."""

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self.locks = stack.enter_context(Holdfast() if "HOLDFAST_NODES" in os.environ else Holdfast.local())
            self.node = stack.enter_context(Redis.from_url(self.locks.urls[0]))
            self.folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="holdfast-example-")))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *raised: object) -> None:
        self._stack.close()

    def start(self, role: Callable[..., object], *words: object, **environment: str) -> Part:
        """Start a process that runs `role(*words)`, with words as text. It uses the same servers."""
        file = inspect.getfile(role)
        command = [sys.executable, file, role.__name__, *map(str, words)]
        uses = {"HOLDFAST_NODES": " ".join(self.locks.urls)}
        part = Part(command, {**os.environ, **uses, **environment})
        self._stack.callback(part.close)
        return part


def play_a_part(*roles: Callable[..., object]) -> None:
    """Run the role that the command line names, and exit. In the example's first process it names none: do nothing."""
    # Lost leases are part of some stories. The examples tell of them, so holdfast's log does not have to.
    logging.getLogger("holdfast").addHandler(logging.NullHandler())
    for role in roles:
        if sys.argv[1:2] == [role.__name__]:
            role(*sys.argv[2:])
            sys.exit()


def plain_client() -> Redis:
    """A plain client of the first server, in a process that `Stage.start` has started."""
    return Redis.from_url(os.environ["HOLDFAST_NODES"].split()[0])


def orders() -> Iterator[str]:
    """The lines that the example writes to this process. They end when the example does."""
    for line in sys.stdin:
        yield line.strip()


def serve(app: object) -> None:
    """Serve an ASGI application with uvicorn on a free port of 127.0.0.1, and say which. Ends when the example does."""
    import uvicorn  # (only here: the other examples start faster without it)

    config = uvicorn.Config(app, host="127.0.0.1", port=0, log_level="warning")  # type: ignore[arg-type]  # (any ASGI app)
    listener = config.bind_socket()
    listener.listen(128)
    threading.Thread(target=_end_with_the_example, daemon=True).start()
    say(listener.getsockname()[1])
    uvicorn.Server(config).run([listener])


def _end_with_the_example() -> None:
    for _ in orders():
        pass
    os._exit(1)


def say(line: object) -> None:
    """Print a line for the example that started this process."""
    print(line, flush=True)


def wait_until(time_of_day: float) -> None:
    """Sleep until `time.time()` has reached a value. Processes that wait for the same one begin together."""
    time.sleep(max(0.0, time_of_day - time.time()))
