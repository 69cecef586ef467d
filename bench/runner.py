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
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from holdfast.scripts import EXCLUSIVE

from . import environments
from .catalogue import PEER, UVLOOP, C, Contender
from .cluster import CORES, UNLOCK, Cluster, busy, pin, used
from .delay import Delay
from .environments import ROOT

Row = dict[str, Any]

SELDOM = 3  # of how many rounds those take part in one that no bar is about

# Where client and servers run. "one": all on one core, with no idle wake-ups and no overlap: the whole path, and the most repeatable.
# "split": the client on one core, the servers on the other. "none": wherever the system likes.
CLIENT, SERVERS = {"one": CORES[-1:], "split": CORES[:1], "none": []}, {"one": CORES[-1:], "split": CORES[1:], "none": []}


@dataclass(frozen=True)
class Case:
    """Contenders that are measured side by side. `work`: the module of `bench.work`; `parameters`: its own; `delay`: ms a round trip.

    `watch`: is given the running process and the cluster, and returns figures for the row; `after`: the same, with the row, at the end;
    `seldom`: contenders that are measured in every third round only; `seconds`: instead of the run's own; `patience`: seconds on top.
    """

    name: str
    work: str
    contenders: tuple[Contender, ...]
    nodes: int = 5
    delay: float = 0.0
    pin: str = "one"
    parameters: Mapping[str, Any] = field(default_factory=dict)
    watch: Callable[[subprocess.Popen[str], Cluster], Row] | None = None
    after: Callable[[Row, Cluster], Row] | None = None
    own_servers: bool = False  # a cluster for each measurement: it is damaged
    seconds: float | None = None
    patience: float = 20.0
    seldom: frozenset[str] = frozenset()
    figures: tuple[tuple[str, str], ...] = ()  # that are shown, with their headings, instead of those of the work


def measure(cases: Sequence[Case], rounds: int, seconds: float, told: Callable[[str], None]) -> Iterator[Row]:
    """The rows of all rounds, as they come. A peer that fails is left out from then on, others when they fail again; rows say why."""
    failed: Counter[tuple[str, str]] = Counter()
    stage = Stage()
    try:
        for round_ in range(rounds):
            for case in cases:
                turn = round_ % len(case.contenders)
                for contender in case.contenders[turn:] + case.contenders[:turn]:
                    hopeless = failed[case.name, contender.name] > (contender.kind != PEER)
                    if hopeless or (round_ % SELDOM and contender.name in case.seldom):
                        continue
                    row = once(stage, case, contender, seconds) | {"case": case.name, "contender": contender.name, "round": round_}
                    failed[case.name, contender.name] += "error" in row
                    told(f"round {round_ + 1}, {case.name}: {contender.name}{': ' + row['error'] if 'error' in row else ''}")
                    yield row
    finally:
        stage.close()


class Stage:
    """The servers of a case, and the delay before them: started once for all its measurements."""

    def __init__(self) -> None:
        self._key: object = None
        self._cluster: Cluster | None = None
        self._delay: Delay | None = None

    def of(self, case: Case) -> tuple[Cluster, Sequence[str]]:
        count = max(5, case.nodes)
        key = case.pin, case.delay, count, case.own_servers and object()
        if key != self._key or self._cluster is None:
            self.close()
            self._cluster = Cluster(count, SERVERS[case.pin]).__enter__()
            if case.delay:
                self._delay = Delay(self._cluster.urls, case.delay / 1000, CORES[:1]).__enter__()
            self._key = key
        cluster = self._cluster
        cluster.use(case.nodes)
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


def once(stage: Stage, case: Case, contender: Contender, seconds: float) -> Row:
    """One measurement. A row with an "error" has no figures."""
    try:
        return _once(stage, case, contender, seconds if case.seconds is None else case.seconds)
    except environments.Unavailable as reason:
        return {"error": str(reason)}


def _once(stage: Stage, case: Case, contender: Contender, seconds: float) -> Row:
    cluster, urls = stage.of(case)
    cluster.empty()
    parameters = {"seconds": seconds, **case.parameters, "urls": list(urls)}
    if contender.face == C:
        command = [str(environments.program("floors/floor")), case.work, contender.adapter, *_flags(parameters)]
    else:
        interpreter = environments.python(contender.environment)
        parameters |= {"adapter": contender.adapter, "uvloop": contender.face == UVLOOP}
        command = [str(interpreter), "-m", "bench.work", case.work, json.dumps(parameters)]
        if case.work == "start":  # nothing is imported before it begins
            command = [str(interpreter), "-P", str(ROOT / "bench/work/start.py"), contender.adapter]
    shas = {f"{script.name.upper()}_SHA": script.sha.decode() for script in EXCLUSIVE}
    shas["UNLOCK_SHA"] = hashlib.sha1(UNLOCK, usedforsecurity=False).hexdigest()
    environment = environments.variables(contender.environment) | shas
    began, all_before, servers_before = time.monotonic(), busy(), used(cluster.pids)
    own = resource.getrusage(resource.RUSAGE_CHILDREN)
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT, env=environment,
        start_new_session=True,
    )  # fmt: skip
    pin(process.pid, CLIENT[case.pin])
    row: Row = {}
    limit = case.patience + seconds
    watchdog = threading.Timer(limit, _kill, (process.pid,))
    watchdog.start()
    try:
        if case.watch is not None:
            row |= case.watch(process, cluster)
        output, errors = process.communicate()
        if not watchdog.is_alive():
            row["error"] = f"not done after {limit:.0f} s"
        elif process.returncode:
            row |= {"error": _last(errors) or f"it ended with {process.returncode}", "trace": errors[-2000:]}
        else:
            row |= json.loads(output.splitlines()[-1])
    finally:
        watchdog.cancel()
        _kill(process.pid)
        process.communicate()
    now = resource.getrusage(resource.RUSAGE_CHILDREN)
    row["servers_cpu"] = used(cluster.pids) - servers_before
    ours = now.ru_utime + now.ru_stime - own.ru_utime - own.ru_stime + row["servers_cpu"]
    row["neighbours"] = round(max(0.0, busy() - all_before - ours) / (time.monotonic() - began), 2)  # cores that others used
    if stage.round_trip is not None:
        row["round_trip"] = stage.round_trip
    if case.after is not None and "error" not in row:
        row |= case.after(row, cluster)
    return row


def _flags(parameters: Mapping[str, Any]) -> list[str]:
    ports = [it.rpartition(":")[2] for it in parameters["urls"]]
    return [str(parameters["seconds"]), str(parameters.get("tasks", 1)), *ports]


def _last(errors: str) -> str:
    """The line that names the error: notes and lists below it are indented."""
    lines = [it for it in errors.strip().splitlines() if it and not it[0].isspace()]
    return lines[-1] if lines else ""


def _kill(pid: int) -> None:
    """A contender, and all that it has started: the group is its own."""
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
