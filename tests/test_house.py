"""The house: what `import holdfast` must not load, and how long files and folders may be. Who may import whom is in `contracts.toml`, who
may read a clock in `src/ruff.toml`."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import sizes

from holdfast.embedded import Nodes

pytestmark = pytest.mark.guards

PACKAGE = Path(__file__).parent.parent / "src/holdfast"
# What `import holdfast` loads for nobody who did not ask. (hashlib loads all of OpenSSL.)
# (dataclasses, and inspect, which they load, take as long as all of holdfast's core.)
HEAVY = {"asyncio", "concurrent.futures", "dataclasses", "hashlib", "inspect", "logging", "redis", "ssl", "subprocess", "tempfile"}
# What it leaves to the first client: sockets; and urllib.parse, which takes addresses apart and loads ipaddress.
WITH_A_CLIENT = {"_socket", "ctypes", "ipaddress", "selectors", "socket", "urllib.parse"}


def loaded_by(statement: str, source: Path) -> set[str]:
    """Which modules a statement loads in a fresh interpreter, beyond what that has loaded for itself."""
    script = f"import sys; before = set(sys.modules); sys.path.insert(0, {str(source)!r}); {statement}; print(*(set(sys.modules) - before))"
    # What it logs, pytest shows.
    return set(subprocess.run([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, check=True).stdout.split())


def test_type_checkers_are_told_that_there_are_types() -> None:
    assert (PACKAGE / "py.typed").exists()
    assert "Typing :: Typed" in (PACKAGE.parent.parent / "pyproject.toml").read_text()


def test_b59_nothing_is_capped_from_above() -> None:
    """Neither newer versions of something else nor of Python."""
    project = tomllib.loads((PACKAGE.parent.parent / "pyproject.toml").read_text())["project"]
    extras = [it for extra, them in project["optional-dependencies"].items() if extra != "dev" for it in them]
    wanted = [project["requires-python"], *project["dependencies"], *extras]
    assert [it for it in wanted if re.search(r"<|==|~=|!=", it.partition(";")[0])] == []


# The modules of ours that `import holdfast` loads. Each costs as much as reading and running a file.
MOST_OF_OURS = 67


def test_importing_holdfast_loads_nothing_heavy() -> None:
    loaded = loaded_by("import holdfast", PACKAGE.parent)
    assert sorted(loaded & (HEAVY | WITH_A_CLIENT)) == []
    # Python takes the thread that loads it for the main thread, and one of ours should never be that.
    assert "threading" in loaded
    ours = sorted(it for it in loaded if it.split(".")[0] == "holdfast")
    assert 1 < len(ours) <= MOST_OF_OURS, ours


# Nodes have ten seconds to answer: one that is late on a busy machine is told of in the log, which loads `logging`.
A_CLIENT = "import holdfast; locks = holdfast.Holdfast(*{urls}, node_timeout=10, ttl=30)"
A_LOCK = f"{A_CLIENT}; locks.lock('a').acquire().release(); locks.close()"


def test_nothing_slow_is_on_the_way_to_a_lock() -> None:
    # Servers of its own: what other tests have left in theirs may be warned of.
    with Nodes(3) as nodes:
        loaded = loaded_by(A_LOCK.format(urls=nodes.urls), PACKAGE.parent)
    assert sorted(loaded & HEAVY) == []
    assert sorted(WITH_A_CLIENT - loaded) == [], "these are not called so"


def test_importing_holdfast_makes_the_digests_of_locks_only() -> None:
    made = "print(*[it.name for it in holdfast.scripts.LOADED if 'sha' in vars(it)])"
    script = f"import sys; sys.path.insert(0, {str(PACKAGE.parent)!r}); import holdfast; {made}"
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    assert found == ["request", "release", "rw_request", "rw_release"]


# What statements must not load, and what shows that this is called so.
LIBRARIES = {
    "import holdfast, holdfast.aio": ({"holdfast.metrics", "holdfast.otel", "prometheus_client", "opentelemetry"}, "holdfast.aio"),
    "from holdfast.metrics import alerts, collapsed": ({"prometheus_client", "opentelemetry"}, "holdfast.metrics"),
    "from holdfast.metrics import Metrics": ({"opentelemetry"}, "prometheus_client"),
    "import holdfast.otel": ({"prometheus_client"}, "opentelemetry"),
    "import holdfast.fencing, holdfast.fencing.http, holdfast.fencing.redis": ({"redis", "sqlalchemy"}, "holdfast.fencing"),
    "import holdfast.fencing.sqlalchemy": ({"redis"}, "sqlalchemy"),
}


@pytest.mark.parametrize("statement", LIBRARIES)
def test_only_what_needs_a_library_loads_it(statement: str) -> None:
    others, needed = LIBRARIES[statement]
    loaded = loaded_by(statement, PACKAGE.parent)
    assert needed in loaded
    assert sorted(loaded & others) == []


def test_no_folder_grows_without_a_reason() -> None:
    assert sizes.grown() == [], "run tests/sizes.py, and say why in the row"


def test_no_module_is_longer_than_one_can_read_at_a_time() -> None:
    assert [str(it) for it in PACKAGE.rglob("*.py") if sizes.lines(it.read_text()) > 700] == []
