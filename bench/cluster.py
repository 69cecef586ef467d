"""The servers that everybody is measured against, and what they say of themselves.

Knows `holdfast.embedded`, INFO and on which core a process runs. Must not know locks or contenders.
"""

from __future__ import annotations

import os
import platform
import socket
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from holdfast.embedded import Nodes
from holdfast.scripts import EXCLUSIVE
from holdfast.wire.resp import MORE, pack, reader

UNLOCK = b"if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('del',KEYS[1]) else return 0 end"
CORES = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []


class Wire:
    """One connection to one server, for the harness itself."""

    def __init__(self, url: str) -> None:
        login, _, place = url.removeprefix("redis://").rpartition("@")
        host, port = place.split(":")
        self._socket = socket.create_connection((host, int(port)), timeout=30)
        self._reader = reader()
        if login:
            self.say(b"AUTH", login.removeprefix(":").encode())

    def say(self, *words: bytes) -> Any:
        """One command, and its answer."""
        return self.batch([words])[0]

    def batch(self, commands: Iterable[Sequence[bytes]]) -> list[Any]:
        """Several commands in one write, and their answers."""
        packed = [pack(*it) for it in commands]
        self._socket.sendall(b"".join(packed))
        answers: list[Any] = []
        while len(answers) < len(packed):
            answer = self._reader.gets()
            if answer is MORE:
                self._reader.feed(self._socket.recv(1 << 16))
            else:
                answers.append(answer)
        return answers

    def info(self, section: str) -> dict[str, str]:
        """What INFO says."""
        text = self.say(b"INFO", section.encode()).decode()
        return dict(line.split(":", 1) for line in text.splitlines() if ":" in line)

    def close(self) -> None:
        """Hang up."""
        self._socket.close()


class Open(Nodes):
    """Nodes at ports of loopback that ask for no password: not all contenders, and none of the floors, can send one.

    While they run, every user of the machine can use them. They hold nothing but what is measured.
    """

    def __init__(self, count: int) -> None:
        super().__init__(count, tcp=True)

    def start(self) -> Self:
        super().start()
        urls = []
        for url in self.urls:
            wire = Wire(url)
            wire.say(b"CONFIG", b"SET", b"requirepass", b"")
            wire.close()
            urls.append(f"redis://{url.rpartition('@')[2]}")
        self.urls = tuple(urls)
        return self

    def restart(self, node: int) -> None:
        raise NotImplementedError("a restarted node would ask for its password again")


class Cluster:
    """Some nodes, with all floors' scripts loaded. `cores`: on which the servers run; nothing: anywhere."""

    def __init__(self, count: int, cores: Sequence[int] = ()) -> None:
        self.nodes = Open(count)
        self._cores = cores

    def __enter__(self) -> Self:
        self.nodes.start()
        self.urls = self.nodes.urls
        self.pids = [self.nodes.pid(i) for i in range(len(self.nodes))]
        for pid in self.pids:
            pin(pid, self._cores)
        self.all = [Wire(url) for url in self.urls]
        self.use(len(self.all))
        for wire in self.all:
            wire.batch([(b"SCRIPT", b"LOAD", it) for it in (*(script.source for script in EXCLUSIVE), UNLOCK)])
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for wire in self.all:
            wire.close()
        self.nodes.close()

    def use(self, count: int) -> None:
        """Only the first ones are used from now on: only what they say is asked for."""
        self.wires = self.all[:count]

    def empty(self) -> None:
        """No keys but the word that a server is new, and all counters at nought."""
        for wire in self.wires:
            run = wire.say(b"GET", b"{holdfast}:adopted")
            wire.say(b"FLUSHALL")
            if isinstance(run, bytes):
                wire.say(b"SET", b"{holdfast}:adopted", run, b"PX", b"86400000")
        self.empty_counters()

    def empty_counters(self) -> None:
        """All counters at nought."""
        for wire in self.wires:
            wire.say(b"CONFIG", b"RESETSTAT")

    def calls(self) -> list[dict[str, tuple[int, float]]]:
        """For each node and command: how often it was called, and the microseconds that a call took."""
        told = []
        for wire in self.wires:
            rows = {}
            for name, figures in wire.info("commandstats").items():
                facts = dict(it.split("=") for it in figures.split(","))
                rows[name.removeprefix("cmdstat_")] = int(facts["calls"]), float(facts["usec_per_call"])
            told.append(rows)
        return told

    def reads(self) -> list[int]:
        """How often each node has read from a connection."""
        return [int(wire.info("stats")["total_reads_processed"]) for wire in self.wires]


def described(server: str) -> str:
    """On what it was measured."""
    return f"{os.cpu_count()} cores, {platform.system()}, Python {platform.python_version()}, {server}"


def pin(pid: int, cores: Sequence[int]) -> None:
    """Run a process, with all its threads, on these cores only; where the system can do that, and there are two."""
    if len(CORES) > 1 and cores:
        for thread in Path(f"/proc/{pid}/task").iterdir():
            os.sched_setaffinity(int(thread.name), cores)


def used(pids: Iterable[int]) -> float:
    """The CPU seconds that these processes have used, as far as the system tells."""
    ticks = 0
    for pid in pids:
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def busy() -> float:
    """The CPU seconds that the whole machine has used, as far as the system tells."""
    try:
        fields = [int(it) for it in Path("/proc/stat").read_text().splitlines()[0].split()[1:]]
    except OSError:
        return 0.0
    idle = fields[3] + fields[4]
    return (sum(fields[:8]) - idle) / os.sysconf("SC_CLK_TCK")
