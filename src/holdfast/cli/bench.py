"""`bench`: this machine against these nodes.

Knows the client and clocks. Must not know what other programs do: it takes locks of names that
nobody else uses.
"""

from __future__ import annotations

import os
import platform
import socket
import time
from argparse import Namespace
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from itertools import pairwise
from multiprocessing import get_context
from typing import TYPE_CHECKING, Any, NamedTuple

from ..checks import seconds
from ..clock import clock
from ..kit import Ask, Plan, Query, majority, pack
from ..version import VERSION
from .codes import BUG, DONE
from .configuration import Configuration, configuration
from .output import Output, quiet
from .table import objects

if TYPE_CHECKING:
    from .. import Holdfast

PREFIX = "holdfast.bench:"
_SHORTEST = 1.0  # seconds: less would measure nothing
_TRIPS, _PAIRS, _HANDED = 0.2, 0.5, 0.3  # of the seconds
_HELD = 0.002  # seconds for which each process has the lock
_BLOCKS = "▏▎▍▌▋▊▉█"
_WIDE = 8  # characters of a bar


class Times(NamedTuple):
    """What was measured, in seconds.

    Attributes:
        samples: How many times.
        p50: The median.
        p99: One in a hundred takes longer.
    """

    samples: int
    p50: float
    p99: float


def times(measured: Iterable[float]) -> Times | None:
    """Return the percentiles; None if nothing was measured."""
    found = sorted(measured)
    if not found:
        return None
    return Times(len(found), found[len(found) // 2], found[min(len(found) - 1, len(found) * 99 // 100)])


def bench(options: Namespace) -> int:
    """Measure, and say what."""
    whole = seconds(options.seconds, "--seconds", least=_SHORTEST)
    quiet(Output())
    config = configuration(vars(options), os.environ)
    name, span = f"{PREFIX}{os.getpid()}:handed", whole * _HANDED
    with ProcessPoolExecutor(1, get_context("fork")) as other:
        # It is forked before there is a client: a client has threads.
        other.submit(os.getpid).result()
        with config.client() as locks:
            locks.ready()
            label = _label(locks)
            trips = times(_trips(locks, whole * _TRIPS))
            acquires, releases = _pairs(locks, whole * _PAIRS)
            pairs, acquired = times(map(sum, zip(acquires, releases, strict=True))), times(acquires)
            theirs = other.submit(_theirs, config, name, span)
            gaps = times(handed(_holds(locks, name, span), theirs.result()))
    if trips is None or pairs is None or acquired is None:
        Output().say(f"nothing was measured in {whole:g} s: take more --seconds")
        return BUG
    found = {"round_trip": trips, "acquire": acquired, "pair": pairs, "hand_over": gaps}
    ratio = acquired.p50 / trips.p50
    if options.json:
        told = {name: None if it is None else it._asdict() for name, it in found.items()}
        objects({**label, **told, "round_trips_a_lock": round(ratio, 2)})
    else:
        _print(label, found, ratio)
    return DONE


def _label(locks: Holdfast) -> dict[str, Any]:
    """What is measured: which machine, which nodes."""
    nodes = locks.nodes()
    return {
        "host": socket.gethostname(),
        "python": platform.python_version(),
        "holdfast": VERSION,
        "cpus": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "load": round(os.getloadavg()[0], 1),
        "nodes": [{"node": it.node, "version": it.version, "state": it.state} for it in nodes],
    }


# ------------------------------------------------ what is measured


def _trips(locks: Holdfast, span: float) -> list[float]:
    """How long a PING takes until a majority of the first set of nodes has answered."""
    shard = locks.nodes()[0].shard
    size = sum(it.shard == shard for it in locks.nodes())
    needed = majority(size)

    def plan() -> Plan[Query]:
        found: Query = yield Ask(dict.fromkeys(range(size), pack(b"PING")), lambda answers: len(answers) >= needed)
        return found

    found, until = [], clock() + span
    while (began := clock()) < until:
        locks._look(plan())
        found.append(clock() - began)
    return found


def _pairs(locks: Holdfast, span: float) -> tuple[list[float], list[float]]:
    """How long acquire and release of a lock take that nobody else wants."""
    lock = locks.lock(f"{PREFIX}{os.getpid()}:pair", wait=5)
    acquires: list[float] = []
    releases: list[float] = []
    until = clock() + span
    while (began := clock()) < until:
        lease = lock.acquire()
        held = clock()
        lease.release()
        acquires.append(held - began)
        releases.append(clock() - held)
    return acquires, releases


Hold = tuple[float, float]


def _holds(locks: Holdfast, name: str, span: float) -> list[Hold]:
    """From when to when this process had the lock, while another one wants it, too."""
    found: list[Hold] = []
    until = clock() + span
    while clock() < until:
        with locks.lock(name, wait=5):
            began = clock()
            time.sleep(_HELD)
            found.append((began, clock()))
    return found


def handed(ours: list[Hold], theirs: list[Hold]) -> list[float]:
    """The gaps between the end of one process's hold and the other one's next hold."""
    both = sorted([(*it, 0) for it in ours] + [(*it, 1) for it in theirs])
    return [later[0] - earlier[1] for earlier, later in pairwise(both) if earlier[2] != later[2]]


def _theirs(config: Configuration, name: str, span: float) -> list[Hold]:
    """The same in the other process of a hand-over."""
    with config.client() as locks:
        return _holds(locks, name, span)


# ------------------------------------------------ how it is said

_SAID = {
    "round_trip": "round trip: PING, answered by a majority",
    "acquire": "acquire a free lock",
    "pair": "acquire and release",
    "hand_over": "hand-over to a waiter in another process",
}


def bar(part: float) -> str:
    """A bar of up to eight characters for a part of 1."""
    eighths = max(1, round(min(1.0, part) * _WIDE * 8))
    full, rest = divmod(eighths, 8)
    return ("█" * full + (_BLOCKS[rest - 1] if rest else "")).ljust(_WIDE)


def _print(label: dict[str, Any], found: dict[str, Times | None], ratio: float) -> None:
    print(
        f"holdfast {label['holdfast']}, Python {label['python']}, {label['host']}: "
        f"{label['cpus']} processors, load {label['load']:g}"
    )
    for it in label["nodes"]:
        print(f"  {it['node']}  {it['version'] or '-'}  {it['state']}")
    most = max(it.p99 for it in found.values() if it is not None)
    wide = max(map(len, _SAID.values()))
    for name, it in found.items():
        if it is None:
            print(f"{_SAID[name]:{wide}}  never happened")
            continue
        each = ((50, it.p50), (99, it.p99))
        shown = "  ".join(f"p{which} {value * 1e3:8.3f} ms {bar(value / most)}" for which, value in each)
        print(f"{_SAID[name]:{wide}}  {shown}  ({it.samples} times)")
    print(f"a lock costs {ratio:.2f} round trips here")
