"""The tests of the client for Node find what it does wrong with connections, guards and clocks.

Each planted fault fails one of them.
"""

from __future__ import annotations

import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from clients.storm import planted

# What is planted: the file, its text, what replaces it, and the test that finds it.
FAULTS = {
    "there is no guard": ("node.js", "this.wake = this.guard.meets(", "this.wake = -this.guard.meets(", "guards a server"),
    "a server counts under each of its addresses": ("index.js", "if (met && met.node !== node)", "if (false)", "counts a server once"),
    "two addresses of a server keep each other out": (
        "index.js",
        "if (met && met.node !== node)",
        "if (met)",
        "takes a server that has two addresses back",
    ),
    "tickets stay above those of a wrong clock": ("index.js", "this.tickets.last = 0;", "", "draws tickets"),
    "the clock of tickets is not corrected": ("index.js", "claim.corrected(by)", "{}", "draws tickets"),
    "a failover in an address is passed over": ("index.js", "if (url.search)", "if (false)", "refuses an address"),
    "a second promotion is not seen": ("node.js", "run + fact('master_replid')", "run", "guards a server that was promoted"),
    "a clock that was read late counts": ("node.js", "now - sent > this.client.K / 2", "false", "a clock that was read late"),
    "any time is told": ("node.js", "!(seconds + microseconds > 0)", "false", "uses no node that tells no time"),
    "the client's own lateness is the node's": ("node.js", "late < patience * LATE", "true", "where the client was late"),
    "a silent connection is kept": (
        "node.js",
        "now - this.oldest() > this.client.patience",
        "0 > this.client.patience",
        "hung up on in time",
    ),
    "any ttl will do": ("index.js", "if (ttl / 3 < trip)", "if (false)", "refuses a ttl"),
    "a connection is made as fast as a lease is short": ("index.js", "if (state !== 'up')", "if (false)", "gives a connection"),
    "time mends no refusal": ("node.js", "if (PASSING.test(reply.message))", "if (false)", "too many clients"),
    "time mends every refusal": ("node.js", "if (PASSING.test(reply.message))", "if (true)", "the password is missing"),
    "a node of use is one that was met": ("node.js", "!this.isRefused(reply) && left === 0", "left === 0", "SCRIPT LOAD is refused"),
    "MOVED is heard again and again": ("node.js", "isElsewhere ? 'useless' : 'down'", "'down'", "MOVED"),
    "the mode of a Valkey is not read": ("node.js", "fact('server_mode') === 'cluster'", "false", "a node of a cluster of Valkey"),
    "a release is forgotten with its connection": ("node.js", "this.unsaid.clear();", "unsaid.length = 0;", "a release that was owed"),
    "a grant below the proposed fence counts": ("index.js", "< command.P", "< 0", "a grant below"),
    "a connection in doubt is kept": ("node.js", "!IN_DOUBT.test(value.message)", "true", "leaves it in doubt"),
    "missed heartbeats are caught up": ("claim.js", "while (time >= this.beat)", "if (time >= this.beat)", "heartbeats that were missed"),
    "a lease outlives its client": ("index.js", "claim.state === 'held' ? 'lost' : 'over'", "'over'", "its client was closed"),
    "the settings are noted with each acquire": ("index.js", "now - node.noted.at < 30_000", "false", "notes its settings twice a minute"),
}


LATE = ("a clock that was read late", "where the client was late", "hung up on in time", "heartbeats that were missed")


def is_found(fault: tuple[str, str, str, str], folder: Path) -> bool:
    """Plant a fault, and run the test that is to find it."""
    *change, finds = fault
    folder.mkdir()
    file = "late" if finds in LATE else "client"
    command = ["node", f"--test-name-pattern={finds}", f"dist/test/{file}.test.js"]
    return subprocess.run(command, cwd=planted(folder, tuple(change)), stdout=subprocess.DEVNULL, timeout=60).returncode == 1


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bool]:
    """Which faults are found. The tests wait more than they work, so that several run at a time."""
    folder = tmp_path_factory.mktemp("faults")
    with ThreadPoolExecutor(4) as pool:
        runs = {name: pool.submit(is_found, fault, folder / str(at)) for at, (name, fault) in enumerate(FAULTS.items())}
    return {name: run.result() for name, run in runs.items()}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_found(name: str, found: dict[str, bool]) -> None:
    assert found[name]


def test_without_a_fault_they_pass(tmp_path: Path) -> None:
    assert not is_found(("index.js", "", "", "refuses"), tmp_path / "as it is")
