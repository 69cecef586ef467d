"""Runs the tests that redis-py and pottery have for their own locks, with holdfast's in their place.

The tests are taken from the peers' source archives, and are not part of this repository. A test that cannot pass is listed in
`DIFFERENT`, with one of four reasons. A listed test that passes fails the run, and so does another one that fails.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tarfile
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import guests

from holdfast.embedded import Nodes

ROOT = Path(__file__).parents[2]
PLACE = ROOT / "build/peers"
PATIENCE = 120.0  # seconds for a suite
AT_ONCE = 2  # suites; they wait more than they work
VERSIONS = {"redis": "8.1.0", "pottery": "3.0.1"}
# pottery's tests know how clients of redis-py 5 are printed. So the shims are tested with two versions of redis-py.
PACKAGES = {"redis": ["redis==8.1.0", "packaging", "pottery==3.0.1"], "pottery": ["pottery==3.0.1", "redis==5.0.8"]}

PATCHED = "internals patched"  # of the peer: its clock, its scripts, its logger, or the client that was lent
IMMORTAL = "immortal key"  # a lock without expiry
FOREIGN = "foreign token"  # one that the caller makes
TOGETHER = "several nodes on one server"
REASONS = {PATCHED, IMMORTAL, FOREIGN, TOGETHER}


@dataclass(frozen=True)
class Suite:
    """A peer's tests of one kind of lock.

    `path`: in the archive; `passing`: how many tests pass at least, of `all`; `cases`: whether a test that runs with several
    parameters counts as several; `different`: why tests cannot pass.
    """

    peer: str
    path: str
    passing: int
    all: int
    cases: bool = False
    different: Mapping[str, str] = field(default_factory=dict)


REDIS = {
    "TestLock::test_lock": IMMORTAL,
    "TestLock::test_lock_token": FOREIGN,
    "TestLock::test_lock_token_thread_local_false": FOREIGN,
    "TestLock::test_blocking_timeout": PATCHED,
}
ERRORS = ("acquire", "locked", "extend", "release")
POTTERY = {f"test_{it}_rediserror": PATCHED for it in ERRORS}
POTTERY_THREADS = {
    **{f"TestRedlock::{it}": why for it, why in POTTERY.items()},
    **{f"TestRedlock::test_{it}_quorumisimpossible": PATCHED for it in ERRORS},
    "TestRedlock::test_acquire_fails_within_auto_release_time": PATCHED,
    "TestRedlock::test_acquire_same_lock_twice_blocking_without_timeout": PATCHED,
}
SUITES = {
    "redis-py": Suite(
        "redis", "tests/test_lock.py", 27, 32, different={**REDIS, "TestLock::test_context_manager_blocking_timeout": PATCHED}
    ),
    "redis-py, asyncio": Suite("redis", "tests/test_asyncio/test_lock.py", 25, 30, different=REDIS),
    "pottery": Suite("pottery", "tests/test_redlock.py", 29, 41, cases=True, different=POTTERY_THREADS),
    "pottery, asyncio": Suite("pottery", "tests/test_aioredlock.py", 14, 19, different=POTTERY),
}


def archive(peer: str) -> Path:
    """Fetch and unpack the tests of a peer, unless they are there. Returns the folder."""
    name = f"{peer}-{VERSIONS[peer]}"
    folder, packed = PLACE / name, PLACE / f"{name}.tar.gz"
    if not (folder / "tests").is_dir():
        if not packed.exists():
            pip = [sys.executable, "-m", "pip", "download", "-q", "--disable-pip-version-check", "--no-deps", "--no-binary", peer]
            guests.run([*pip, "-d", str(PLACE), f"{peer}=={VERSIONS[peer]}"])
        with tarfile.open(packed) as tar:
            tar.extractall(PLACE, [it for it in tar if it.name.startswith(f"{name}/tests/")], filter="data")
    return folder


def outcomes(suite: Suite, python: Path, nodes: Nodes) -> dict[str, bool]:
    """Run a suite. Returns which of its tests passed, case by case."""
    folder, urls = archive(suite.peer), nodes.urls
    tests = folder / suite.path
    told = PLACE / f"outcomes-{suite.path.replace('/', '-')}.json"
    if suite.peer == "pottery":
        # These address servers on a port of their own. Nothing else is changed.
        place = re.sub(r"redis://(?:.*@)?(.*):(\d+)", r"host=\1,port=\2", urls[0])
        text = tests.read_text().replace("f'redis://localhost:6379/{db}'", f"{urls!r}[db - 1]").replace("host=localhost,port=6379", place)
        tests = tests.with_name(f"at_ports_{tests.name}")
        tests.write_text(text)
    told.unlink(missing_ok=True)
    words = ["-q", "-p", "compat.stand_in", "-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", str(folder), "-o", "asyncio_mode=auto"]
    variables = {"PEER": suite.peer, "PEER_URLS": ",".join(urls), "PEER_OUTCOMES": str(told)}
    # They flush the servers, which then do not know any more that they are new.
    variables["HOLDFAST_RESTART_GUARD"] = "off"
    # The tests of redis-py import one another as `tests`.
    path = os.pathsep.join([str(folder), str(ROOT / "tests")])
    more = ["--redis-url", urls[0]] if suite.peer == "redis" else []
    done = subprocess.run(
        [str(python), "-m", "pytest", *words, "--timeout", "20", *more, str(tests)],
        cwd=folder,
        env={**os.environ, **variables, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    if "-v" in sys.argv:
        print(done.stdout)
    if not told.exists():
        sys.exit(f"{suite.path} of {suite.peer} did not run:\n{done.stdout}")
    found: dict[str, bool] = json.loads(told.read_text())
    return {it.partition("::")[2]: passed for it, passed in found.items()}


def complaints(suite: Suite, found: Mapping[str, bool]) -> list[str]:
    """What is wrong: tests that fail and are not listed, or pass and are listed, and too few that pass or run."""
    functions: dict[str, bool] = {}
    for case, passed in found.items():
        name = case.partition("[")[0]
        functions[name] = functions.get(name, True) and passed
    wrong = [f"{it} fails, and is not listed" for it, passed in functions.items() if not passed and it not in suite.different]
    wrong += [f"{it} is listed, and passes" for it in suite.different if functions.get(it)]
    wrong += [f"{it} is listed, and does not exist" for it in suite.different if it not in functions]
    wrong += [f"{it} is listed for no known reason" for it, reason in suite.different.items() if reason not in REASONS]
    counted = found if suite.cases else functions
    if len(counted) != suite.all or sum(counted.values()) < suite.passing:
        wrong.append(f"{sum(counted.values())} of {len(counted)} pass, and not {suite.passing} of {suite.all}")
    return wrong


def attempt(name: str, pythons: Mapping[str, Path]) -> list[str]:
    """Run a suite on servers of its own. Returns what is wrong."""
    suite, began = SUITES[name], time.monotonic()
    with Nodes(5 if suite.peer == "pottery" else 1, tcp=True) as nodes:
        found = outcomes(suite, pythons[suite.peer], nodes)
    print(f"{name}: {sum(found.values())} of {len(found)} cases pass, {time.monotonic() - began:.0f} s", flush=True)
    return [f"{name}: {it}" for it in complaints(suite, found)]


def main() -> list[str]:
    """Run all suites, and holdfast's own tests of what they stand for. Returns what is wrong."""
    PLACE.mkdir(parents=True, exist_ok=True)
    pythons = {peer: guests.made(PLACE / f"environment-{peer}", [*guests.COMMON, *packages]) for peer, packages in PACKAGES.items()}
    for peer in PACKAGES:
        archive(peer)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        wrong = [it for found in pool.map(lambda name: attempt(name, pythons), SUITES) for it in found]
    words = [str(pythons["redis"]), "-m", "pytest", "-q", "-p", "no:cacheprovider", str(ROOT / "tests/compat")]
    if subprocess.run(words, cwd=ROOT, timeout=PATIENCE, check=False).returncode:
        wrong.append("holdfast's own tests failed")
    return wrong


if __name__ == "__main__":
    if found := main():
        sys.exit("\n".join(found))
