"""docs/sources.md: each row names a command that can be typed, or a test that exists, and no name is missing.

That the commands do what the rows say is tested elsewhere: the examples in tests/live/test_examples.py, for instance.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.guards

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs/sources.md"
EXAMPLES = {it.stem for it in (ROOT / "examples").glob("*.py") if not it.name.startswith("_")}

# What the documents build, say or recommend, by the names that they give it. A reader looks for these.
NAMES = {
    "Redlock: Distributed Lock Manager with Redis": [
        "create_item", "MAX_ITEM_NUM", "load balancer", "version 0", "version 1", "urandom(20)",
        "UNLOCK_SCRIPT", "version 2:", "quorum", "uniform(0.1, 0.2)", "version 2.1", "clock_drift",
        "max_retries", "redlock-py", "Pottery", "single point of failure", "Kleppmann",
    ],
    "Redis and Distributed Locks: A First Principles Approach": [
        "RedisLock", "lock_value", "release_script", "acquire()", "release()", "RedLock", "remaining_time",
        "extend_lock", "e-commerce", "job scheduler", "leader election", "RedisRateLimiter", "is_allowed",
        "client failure", "clock drift", "network partition", "finally", "unique identifier", "backoff",
        "monitor", "pitfall 1", "pitfall 2", "pitfall 3", "pitfall 4", "pitfall 5",
    ],
    '"Redis as a mutex service" (2012)': [
        "test-and-set", "redis_spinlock", "sadd", "srem", "AlreadyLockedException", "spins", "cache_lookup",
        "incr", "decr", "file locking", "lock server", "Lamport", "Ricart-Agrawala", "ZooKeeper", "setnx",
        "redis-semaphore",
    ],
    "A proposal for more reliable locks using Redis": [
        "mutual exclusion", "free of deadlocks", "majority", "naive way", "one instance", "20 bytes",
        "lock validity time", "step 1", "step 2", "step 3", "step 4", "step 5",
        "MIN_VALIDITY = TTL - (T2 - T1) - CLOCK_DRIFT", "random delay", "multiplexing", "formal proof",
        "partition", "SHUTDOWN", "fsync=always", "redlock-rb", "Steven Benjamin", "eurleif", "mjb",
    ],
    "Redlock - Distributed Lock Manager": [
        "three guarantees", "replica", "client A", "client C", "PX 30000", "5–50 ms", "extension",
        "MIN_VALIDITY", "without persistence", "Kleppmann",
    ],
}  # fmt: skip


def sections(page: str) -> dict[str, str]:
    """The parts of the page, by their headings."""
    parts = re.split(r"^## +(.+)$", page, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def rows(text: str) -> list[list[str]]:
    """The rows of all tables in a text, without their headings."""
    found = []
    for table in re.findall(r"(?:^\|.*\n)+", text + "\n", flags=re.MULTILINE):
        found += [[cell.strip() for cell in line.strip("|").split(" | ")] for line in table.splitlines()[2:]]
    return found


def tasks() -> dict[str, set[str] | None]:
    """The tasks, and for those that take names, the names that they know."""
    told = subprocess.run([ROOT / "task", "help"], capture_output=True, text=True, check=True).stdout
    known: dict[str, set[str] | None] = dict.fromkeys(re.findall(r"^\./task ([\w-]+)", told, re.MULTILINE))
    bench = [sys.executable, "-m", "bench", "--help"]
    told = subprocess.run(bench, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    scenarios = re.search(r"all of (.*?);", " ".join(told.split()))
    assert scenarios
    versions = set(re.findall(r'^    "([\w.-]+)": Version\(', (ROOT / "examples/walkthrough.py").read_text(), re.MULTILINE))
    assert "version-2.1" in versions
    return known | {"example": EXAMPLES, "bench": set(scenarios[1].split(", ")), "walkthrough": versions}


def wrong(cell: str, known: dict[str, set[str] | None], folder: Path = PAGE.parent) -> list[str]:
    """What is wrong with the last cell of a row: it names no command and no test, or one that does not exist."""
    commands = re.findall(r"`\./task ([\w-]+)(?: --only)?((?: [\w.-]+)*)`", cell)
    tests = re.findall(r'\]\((\S+\.py) "(\w+)"\)', cell)
    found = [] if commands or tests else ["no command and no test"]
    for task, said in commands:
        words = known.get(task)
        if task not in known or (words is not None and not set(said.split()) <= words):
            found.append(f"./task {task}{said}")
    for file, test in tests:
        path = folder / file
        if not path.is_file() or f"def {test}(" not in path.read_text():
            found.append(f"{file} {test}")
    return found


def complaints(page: str, known: dict[str, set[str] | None]) -> list[str]:
    """What is wrong with the rows of a page."""
    found = []
    for row in rows(page):
        found += [f"{row[0]}: {it}" for it in (wrong(row[-1], known) if len(row) == 3 else ["not three cells"])]
    return found


def missing(page: str) -> list[str]:
    """The names of the documents that their table does not have in its first column."""
    parts, found = sections(page), []
    for title, names in NAMES.items():
        [part] = [text for heading, text in parts.items() if title in heading] or [""]
        said = " ".join(row[0] for row in rows(part)).lower()
        found += [f"{title}: {name}" for name in names if name.lower() not in said]
    return found


def test_every_row_names_a_command_or_a_test() -> None:
    page = PAGE.read_text()
    assert complaints(page, tasks()) == []
    assert len(rows(page)) > 80


def test_every_name_of_the_documents_has_a_row() -> None:
    assert missing(PAGE.read_text()) == []


def test_every_example_has_a_row() -> None:
    page = PAGE.read_text()
    assert EXAMPLES - set(re.findall(r"`\./task (?:example )?(\w+)`", page)) == set()
