"""`./task bench start-up`: what `holdfast run NAME -- true` costs on five nodes, beside other commands that lock.

Knows processes and their CPU time. Must not know how any of them works. All are measured in one run, in turn, and each
begins a round in its turn: a machine that is busy for a while is so for all of them.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from holdfast import Holdfast
from holdfast.embedded import Nodes

from . import environments
from .environments import ROOT

OURS, BY_HAND, FLOCK, ETCD = "holdfast run", "redis-py + click", "flock", "etcdctl lock"
HELP, IMPORTS, BARE = "holdfast --help", "import argparse, holdfast", "python -c pass"


class Spent(NamedTuple):
    """What one run took, with all its processes: `cpu` and `wall` in seconds."""

    cpu: float
    wall: float


class Bar(NamedTuple):
    """A figure that is wanted: `found` and `most` in ms, or a ratio."""

    name: str
    found: float
    most: float


def spent(words: Sequence[str], environment: Mapping[str, str]) -> Spent:
    """Run a command to its end. Raises if it does not exit with 0."""
    began = time.perf_counter()
    actions = [(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]
    pid = os.posix_spawnp(words[0], list(words), environment, file_actions=actions)
    # The processor time of its children is in it, since it waits for them.
    _, status, used = os.wait4(pid, 0)
    if status:
        raise RuntimeError(f"{' '.join(words)} ended with {os.waitstatus_to_exitcode(status)}")
    return Spent(used.ru_utime + used.ru_stime, time.perf_counter() - began)


@contextmanager
def contenders(folder: Path) -> Iterator[dict[str, tuple[list[str], dict[str, str]]]]:
    """The commands, with what each needs around it."""
    with Nodes(5) as nodes:
        ours = {**os.environ, **nodes.environment, "PYTHONPATH": str(ROOT / "src")}
        ours.pop("PYTHONDONTWRITEBYTECODE", None)
        python = sys.executable
        found = {
            BARE: ([python, "-c", "pass"], ours),
            IMPORTS: ([python, "-c", "import argparse, holdfast"], ours),
            HELP: ([python, "-m", "holdfast", "--help"], ours),
            OURS: ([python, "-m", "holdfast", "run", "bench:start", "--", "true"], ours),
        }
        try:
            other = str(environments.python("redis-click"))
        except environments.Unavailable as reason:
            print(f"{BY_HAND} is left out: {reason}", file=sys.stderr)
        else:
            own = {**ours, "HOLDFAST_NODES": ",".join(nodes.urls)}
            found[BY_HAND] = ([other, "-P", str(ROOT / "bench/contenders/redis_click.py"), "bench:hand", "true"], own)
        if shutil.which("flock"):
            found[FLOCK] = (["flock", str(folder / "lock"), "true"], ours)
        with _etcd(folder) as endpoint:
            if endpoint:
                found[ETCD] = (["etcdctl", "--endpoints", endpoint, "lock", "bench", "true"], {**ours, "ETCDCTL_API": "3"})
            yield found


@contextmanager
def _etcd(folder: Path) -> Iterator[str]:
    """An etcd of our own, if its programs are installed."""
    if not (shutil.which("etcd") and shutil.which("etcdctl")):
        print(f"{ETCD} is left out: etcd and etcdctl are not installed", file=sys.stderr)
        yield ""
        return
    # Sockets in its own folder. A client, which runs elsewhere, finds one only by its whole path.
    client, peer = "unix://localhost:23790", "unix://localhost:23800"
    found = f"unix://{folder}/localhost:23790"
    words = ["etcd", "--data-dir", str(folder / "etcd"), "--listen-client-urls", client, "--advertise-client-urls", client]
    words += ["--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", f"default={peer}"]
    process = subprocess.Popen(words, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        ready = ["etcdctl", "--endpoints", found, "endpoint", "health"]
        deadline = time.monotonic() + 20
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": folder}
        while subprocess.run(ready, env={**os.environ, "ETCDCTL_API": "3"}, check=False, **quiet).returncode:  # type: ignore[call-overload]  # (of a mapping)
            if time.monotonic() > deadline:
                raise RuntimeError("etcd did not become healthy within 20 s")
            time.sleep(0.1)
        yield found
    finally:
        process.terminate()
        process.wait()


def measure(rounds: int) -> dict[str, list[Spent]]:
    """Run each of them once a round, beginning at another one each time. The first round warms up and does not count."""
    with tempfile.TemporaryDirectory(prefix="bench-") as name, contenders(Path(name)) as found:
        names = list(found)
        rows: dict[str, list[Spent]] = {it: [] for it in names}
        for turn in range(rounds + 1):
            first = turn % len(names)
            for it in names[first:] + names[:first]:
                row = spent(*found[it])
                if turn:
                    rows[it].append(row)
        return rows


def handed_over(rounds: int) -> list[float]:
    """The seconds from the release of a lock to the first instruction of the command that waits for it, each time.

    It is longer than the time from the grant by half a round trip, and by what the kernel needs to load a small program.
    """
    found, name, moment = [], "bench:hand-over", str(environments.program("moment"))
    with Nodes(5) as nodes, Holdfast(*nodes.urls) as locks:
        ours = {**os.environ, **nodes.environment, "PYTHONPATH": str(ROOT / "src")}
        for _ in range(rounds):
            lease = locks.lock(name).acquire()
            words = [sys.executable, "-m", "holdfast", "run", name, "--", moment]
            with subprocess.Popen(words, env=ours, stdout=subprocess.PIPE, text=True) as process:
                _until_it_waits(locks, name)
                began = time.time()
                lease.release()
                found.append(float(process.communicate(timeout=30)[0]) - began)
    return found


def _until_it_waits(locks: Holdfast, name: str) -> None:
    deadline = time.monotonic() + 30
    while not locks.inspect(name).queue:
        if time.monotonic() > deadline:
            raise RuntimeError("the command did not wait for the lock within 30 s")
        time.sleep(0.05)


def bars(rows: Mapping[str, Sequence[Spent]], handed: Sequence[float]) -> list[Bar]:
    """The figures that are wanted, beside those that were found."""
    cpu = {name: statistics.median(it.cpu for it in found) for name, found in rows.items()}
    wanted = [
        Bar("holdfast run: CPU, ms", cpu[OURS] * 1e3, 60.0),
        Bar("holdfast --help / import argparse, holdfast", cpu[HELP] / cpu[IMPORTS], 1.15),
        Bar("from a release to the first instruction of the next command: p99, ms", sorted(handed)[int(0.99 * len(handed))] * 1e3, 3.0),
    ]
    if BY_HAND in cpu:
        wanted.insert(1, Bar("holdfast run / redis-py + click", cpu[OURS] / cpu[BY_HAND], 0.35))
    return wanted


def main() -> int:
    """Measure, and print medians and bars. A bar that is missed is no failure: the machine may be busy."""
    parser = argparse.ArgumentParser(prog="./task bench start-up", description="What a command under a lock costs, beside others.")
    parser.add_argument("--rounds", type=int, default=50, help="how often each is run (default 50)")
    rounds = parser.parse_args().rounds
    rows, handed = measure(rounds), handed_over(rounds)
    print(f"{'median of ' + str(len(rows[OURS])):28}  CPU, ms   time, ms")
    for name, found in rows.items():
        cpu, wall = (statistics.median(it) for it in zip(*found, strict=True))
        print(f"{name:28} {cpu * 1e3:8.1f}  {wall * 1e3:9.1f}")
    fastest, middle = min(handed) * 1e3, statistics.median(handed) * 1e3
    print(f"from a release to the first instruction of the next command, ms: fastest {fastest:.1f}, median {middle:.1f}")
    for bar in bars(rows, handed):
        verdict = "met" if bar.found <= bar.most else "missed"
        print(f"{bar.name}: {bar.found:.2f}, wanted at most {bar.most:g}: {verdict}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
