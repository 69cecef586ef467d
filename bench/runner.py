"""One measurement is one fresh process; a round measures every contender once, each round beginning at another one.

Knows processes, time-outs and rows of figures. Must not know what the figures mean.
"""

from __future__ import annotations

import hashlib
import json
import os
import resource
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from holdfast.scripts import EXCLUSIVE

from . import environments
from .catalogue import C, UVLOOP, Contender
from .cluster import CORES, UNLOCK, Cluster, busy, pin, used
from .delay import Delay
from .environments import ROOT

Row = dict[str, Any]

# Where client and servers run. "one": all on one core, with no idle wake-ups and no overlap: the whole path, and the most repeatable.
# "split": the client on one core, the servers on the other. "none": wherever the system likes.
CLIENT, SERVERS = {"one": CORES[-1:], "split": CORES[:1], "none": []}, {"one": CORES[-1:], "split": CORES[1:], "none": []}


@dataclass(frozen=True)
class Case:
    """Contenders that are measured side by side. `work`: the module of `bench.work`; `parameters`: its own; `delay`: ms a round trip.

    `watch`: is given the running process and the cluster, and returns figures for the row; by default the process is waited for.
    """

    name: str
    work: str
    contenders: tuple[Contender, ...]
    nodes: int = 5
    delay: float = 0.0
    pin: str = "one"
    parameters: Mapping[str, Any] = field(default_factory=dict)
    watch: Callable[[subprocess.Popen[str], Cluster], Row] | None = None
    own_servers: bool = False  # a cluster for each measurement: it is damaged
    patience: float = 30.0


def measure(case: Case, rounds: int, seconds: float, told: Callable[[str], None]) -> Iterator[Row]:
    """The rows of all rounds of a case, as they come."""
    out: dict[str, str] = {}
    for round_ in range(rounds):
        turn = round_ % len(case.contenders)
        for contender in case.contenders[turn:] + case.contenders[:turn]:
            if contender.name in out:
                continue
            row: Row = {"case": case.name, "contender": contender.name, "round": round_}
            try:
                row |= once(case, contender, seconds)
            except environments.Unavailable as reason:
                out[contender.name] = str(reason)
                row["error"] = str(reason)
            told(f"{case.name}, round {round_ + 1}: {contender.name}{': ' + row['error'] if 'error' in row else ''}")
            yield row


class Stage:
    """The servers of a case, and the delay before them: started once for all its measurements."""

    def __init__(self) -> None:
        self._key: object = None
        self._cluster: Cluster | None = None
        self._delay: Delay | None = None

    def of(self, case: Case) -> tuple[Cluster, Sequence[str]]:
        key = case.pin, case.delay, case.own_servers and object()
        if key != self._key or self._cluster is None:
            self.close()
            self._cluster = Cluster(5, SERVERS[case.pin]).__enter__()
            if case.delay:
                self._delay = Delay(self._cluster.urls, case.delay / 1000, CORES[:1]).__enter__()
            self._key = key
        cluster = self._cluster
        return cluster, (self._delay.urls if self._delay is not None else cluster.urls)[: case.nodes]

    @property
    def round_trip(self) -> float | None:
        """What the delay really is, in seconds: measured by the smallest question."""
        return self._delay.round_trip if self._delay is not None else None

    def close(self) -> None:
        """Stop them."""
        if self._delay is not None:
            self._delay.__exit__(None, None, None)
        if self._cluster is not None:
            self._cluster.__exit__(None, None, None)
        self._key = self._cluster = self._delay = None


stage = Stage()


def once(case: Case, contender: Contender, seconds: float) -> Row:
    """One measurement."""
    cluster, urls = stage.of(case)
    if not case.own_servers:
        cluster.empty()
    parameters = {"seconds": seconds, **case.parameters, "urls": list(urls), "fresh": sorted(cluster.nodes.run_ids)}
    if contender.face == C:
        command = [str(environments.program("floors/floor")), case.work, contender.adapter, *_flags(parameters)]
    else:
        interpreter = environments.python(contender.environment)
        parameters |= {"adapter": contender.adapter, "uvloop": contender.face == UVLOOP}
        command = [str(interpreter), "-m", "bench.work", case.work, json.dumps(parameters)]
    path = [str(ROOT), *([str(ROOT / "src")] if contender.environment == "holdfast" else [])]
    shas = {f"{script.name.upper()}_SHA": script.sha.decode() for script in EXCLUSIVE}
    shas["UNLOCK_SHA"] = hashlib.sha1(UNLOCK, usedforsecurity=False).hexdigest()
    environment = {**os.environ, **shas, "PYTHONPATH": os.pathsep.join(path), "PYTHONDONTWRITEBYTECODE": ""}
    began, all_before, servers_before = time.monotonic(), busy(), used(cluster.pids)
    own = resource.getrusage(resource.RUSAGE_CHILDREN)
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT, env=environment,
        start_new_session=True,
    )  # fmt: skip
    pin(process.pid, CLIENT[case.pin])
    row: Row = {}
    try:
        if case.watch is not None:
            row |= case.watch(process, cluster)
        output, errors = process.communicate(timeout=case.patience + seconds)
        if process.returncode:
            row["error"] = (errors.strip().splitlines() or [f"it ended with {process.returncode}"])[-1]
            row["trace"] = errors[-2000:]
        else:
            row |= json.loads(output.splitlines()[-1])
    except subprocess.TimeoutExpired:
        row["error"] = f"not done after {case.patience + seconds:.0f} s"
    finally:
        _end(process)
    now = resource.getrusage(resource.RUSAGE_CHILDREN)
    row["servers_cpu"] = used(cluster.pids) - servers_before
    ours = now.ru_utime + now.ru_stime - own.ru_utime - own.ru_stime + row["servers_cpu"]
    row["neighbours"] = round(max(0.0, busy() - all_before - ours) / (time.monotonic() - began), 2)  # cores that others used
    if not case.own_servers and case.watch is None and "error" not in row:
        row["calls"] = [{name: calls for name, (calls, _) in node.items()} for node in cluster.calls()[: case.nodes]]
    if stage.round_trip is not None:
        row["round_trip"] = stage.round_trip
    return row


def _flags(parameters: Mapping[str, Any]) -> list[str]:
    ports = [it.rpartition(":")[2] for it in parameters["urls"]]
    return [str(parameters["seconds"]), str(parameters.get("tasks", 1)), *ports]


def _end(process: subprocess.Popen[str]) -> None:
    """It and all that it has started. (The group is its own.)"""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream is not None:
            stream.close()
