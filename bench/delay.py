"""A network delay in front of the nodes, in both directions, since loopback flatters nobody.

Knows the forwarder (`delay.c`), and measures what it really adds. Must not know locks.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from time import perf_counter
from types import TracebackType
from typing import Self

from . import cluster, environments


class Delay:
    """Stands in front of some nodes. `seconds`: added to a round trip, half of it each way; `cores`: where the forwarder runs.

    `urls`: where to connect instead; `round_trip`: what a PING takes now, in seconds (the median of 200).
    """

    def __init__(self, urls: Sequence[str], seconds: float, cores: Sequence[int] = ()) -> None:
        self._urls, self._seconds, self._cores = urls, seconds, cores

    def __enter__(self) -> Self:
        ports = [it.rpartition(":")[2] for it in self._urls]
        command = [str(environments.program("delay")), str(self._seconds / 2), *ports]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        cluster.pin(self._process.pid, self._cores)
        assert self._process.stdout is not None
        self.urls = tuple(f"redis://127.0.0.1:{port}" for port in self._process.stdout.readline().split())
        if len(self.urls) != len(ports):
            raise environments.Unavailable("the forwarder that delays did not start")
        self.round_trip = self._measured()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._process.kill()
        self._process.communicate()

    def _measured(self) -> float:
        wire = cluster.Wire(self.urls[0])
        times = []
        for _ in range(200):
            began = perf_counter()
            wire.say(b"PING")
            times.append(perf_counter() - began)
        wire.close()
        return sorted(times)[100]
