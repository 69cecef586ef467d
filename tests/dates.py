"""Runs tests while the wall clock passes moments that are known to break programs. `./task dates`.

Clients, servers and pytest all see the other date: a difference between them would be outside of
what holdfast assumes. Only the wall clock is moved. The clocks that leases and timeouts are
measured on stay as they are.

The library that moves the clock is the nemesis's own (`nemesis/skew.c`) and not libfaketime 0.9.10,
the one that Debian 12 has. With that one, `time.sleep` of CPython 3.11 raises OSError when
monotonic clocks are excluded, and `threading.Event.wait(0.3)` does not return when they are not.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import once_more
import pytest
from nemesis.servers import compiled_shim

ROOT = Path(__file__).parent.parent
LEAD = 5.0  # seconds from the first test to the moment
LIMIT = 300.0  # seconds for all moments together
PATIENCE = 20.0  # seconds for a Python to say what time it is
WORKERS = "2"
# What asks for the time of day: in the contract, primitives with slots, periods and times in their answers. Threads
# share all of that with asyncio.
SELECTION = [
    *("-k", "not [threads"),
    *(f"tests/contract/test_{it}.py" for it in ("once", "rates", "fills", "elections")),
    *(f"tests/sim/test_{it}.py" for it in ("clocks", "rates", "scenarios")),
]
# Does this Python wait by a clock that is not moved? One that was built for an old C library waits by the wall clock.
PROBE = "import threading, time; time.sleep(0.01); threading.Event().wait(0.01); print(time.time())"


class Moment(NamedTuple):
    """A moment that the wall clock passes. `zone`: as POSIX writes it, which needs no table of time zones."""

    name: str
    at: datetime
    zone: str


MOMENTS = (
    Moment("a leap day begins", datetime(2028, 2, 29, tzinfo=UTC), "<+0545>-5:45"),
    Moment("summer time begins in Berlin", datetime(2027, 3, 28, 1, tzinfo=UTC), "CET-1CEST,M3.5.0,M10.5.0/3"),
    Moment("the last second of a year", datetime(2028, 1, 1, tzinfo=UTC), "UTC0"),
)


class Unable(Exception):
    """The wall clock cannot be moved here."""


def environment(shim: Path, skew: Path, moment: Moment) -> dict[str, str]:
    """What a process needs to live at another date, and so do all processes that it starts."""
    _move(skew, moment.at.timestamp() - LEAD - time.time())
    return {
        **os.environ,
        "LD_PRELOAD": str(shim),
        "SKEW_FILE": str(skew),
        "TZ": moment.zone,
        "DATES_BEGIN": str(moment.at.timestamp() - LEAD),
        "PYTHONPATH": str(ROOT / "tests"),
    }


def _move(skew: Path, seconds: float) -> None:
    if not skew.exists():
        skew.write_bytes(bytes(4096))
    with open(skew, "r+b") as file:
        file.write(struct.pack("q", round(seconds * 1e9)))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Set the clock again, just before the first test: how long collecting takes is not known beforehand.

    This file is a plugin of the pytest that it starts. With xdist, no worker runs a test before all
    have come to this point. The first one sets the clock for all.
    """
    if getattr(session.config.option, "numprocesses", None):
        return
    skew = Path(os.environ["SKEW_FILE"])
    try:
        os.close(os.open(skew.with_suffix(".set"), os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return
    (offset,) = struct.unpack("q", skew.read_bytes()[:8])
    _move(skew, float(os.environ["DATES_BEGIN"]) - (time.time() - offset / 1e9))


def run(shim: Path, moment: Moment, tests: Sequence[str], options: Sequence[str], deadline: float) -> bool:
    """Run tests while this moment passes. What fails on a busy machine is run once more, as by `./task test`."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        # A base folder of its own: pytest removes other sessions' temporary folders when it finds them days old.
        command = [sys.executable, "-m", "pytest", "-q", "-p", "dates"]
        command += ["-o", f"cache_dir={folder / 'cache'}", f"--basetemp={folder / 'base'}"]
        alone = ["-p", "no:xdist", "--last-failed", "--last-failed-no-failures", "none"]
        for attempt, how in enumerate((["-n", WORKERS, "--dist", "worksteal"], alone)):
            living = environment(shim, folder / f"skew{attempt}", moment)
            code = _within(max(1.0, deadline - time.monotonic()), [*command, *how, *options, *tests], living)
            if code is None:
                print(f"not done after {LIMIT:.0f} s in all")
                return False
            if code == 0:
                return True
            failed = folder / "cache/v/cache/lastfailed"
            if not failed.exists() or not once_more.excused(sorted(json.loads(failed.read_text()))):
                return False
        return False


def _within(seconds: float, command: Sequence[str], living: dict[str, str]) -> int | None:
    """The exit status of a command. If it takes longer than this: kills its process group, returns None."""
    with subprocess.Popen(command, cwd=ROOT, env=living, start_new_session=True) as process:
        try:
            return process.wait(seconds)
        except BaseException as error:
            os.killpg(process.pid, signal.SIGKILL)
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
            return None


def probe(shim: Path, folder: Path) -> None:
    """Unable, with what is wrong, if a Python under the shim does not see the other date, or cannot wait."""
    living = environment(shim, folder / "skew", MOMENTS[0])
    try:
        command = [sys.executable, "-c", PROBE]
        told = subprocess.run(command, env=living, capture_output=True, text=True, timeout=PATIENCE, check=False)
    except subprocess.TimeoutExpired:
        raise Unable(f"{sys.executable} waits by the wall clock: use a Python that was built for glibc 2.30 or newer") from None
    if told.returncode != 0 or abs(float(told.stdout) - MOMENTS[0].at.timestamp()) > 60:
        raise Unable(f"the wall clock of {sys.executable} cannot be moved with LD_PRELOAD: {told.stderr or told.stdout}")


def main(arguments: Sequence[str], moments: Sequence[Moment] = MOMENTS) -> int:
    what = "Run tests while the wall clock passes special moments (Linux). Other options go to pytest."
    parser = argparse.ArgumentParser(prog="./task dates", description=what)
    parser.add_argument("tests", nargs="*", help="which tests (default: those that ask for the time of day)")
    chosen, options = parser.parse_known_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        try:
            if sys.platform != "linux":
                raise Unable("the wall clock of a process can be moved on Linux only")
            shim = compiled_shim(Path(folder))
            if shim is None:
                raise Unable("cc is not installed: on Debian, apt-get install gcc libc6-dev")
            probe(shim, Path(folder))
        except Unable as reason:
            print(reason)
            return 2
        failed = []
        deadline = time.monotonic() + LIMIT
        for moment in moments:
            print(f"{moment.name}: {moment.at:%Y-%m-%d %H:%M:%S} UTC, TZ={moment.zone}", flush=True)
            if not run(shim, moment, chosen.tests or SELECTION, options, deadline):
                failed.append(moment.name)
    if failed:
        print(f"failed: {', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
