"""The house: who may change a vote, and what `import holdfast` must not load. Who may import whom is in `contracts.toml`, who may read a
clock in `src/ruff.toml`."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import sizes

from holdfast.embedded import Nodes
from holdfast.protocol.vote import Vote

pytestmark = pytest.mark.guards

PACKAGE = Path(__file__).parent.parent / "src/holdfast"
# What `import holdfast` loads for nobody who did not ask. (hashlib loads all of OpenSSL.)
# (dataclasses, and inspect, which they load, take as long as all of holdfast's core.)
HEAVY = {"asyncio", "concurrent.futures", "dataclasses", "hashlib", "inspect", "logging", "redis", "ssl", "subprocess", "tempfile"}
# What it leaves to the first client: sockets; and urllib.parse, which takes addresses apart and loads ipaddress.
WITH_A_CLIENT = {"_socket", "ctypes", "ipaddress", "selectors", "socket", "urllib.parse"}


VOTES = "protocol/vote.py"  # what changes a vote is written there, and nowhere else
FIELDS = set(Vote.__annotations__)


def changers_of_votes(files: Mapping[str, str]) -> list[str]:
    """Where a field of a vote is set outside the module that owns its transitions.

    Objects set their own fields, which may have the same names, through `self`.
    """
    found = []
    for path, source in files.items():
        if path == VOTES:
            continue
        protocol = path.startswith("protocol/")
        for node in ast.walk(ast.parse(source, path)):
            match node:
                case ast.Attribute(value, attr, ast.Store() | ast.Del()) if attr in FIELDS:
                    of = ast.unparse(value)
                    # Above the protocol, other things have fields of these names, too.
                    if (of != "self") if protocol else ("vote" in of):
                        found.append(f"{path}:{node.lineno} sets {ast.unparse(node)}: call a method of the vote")
                case ast.Call(ast.Name("setattr" | "delattr") as name) if protocol:
                    found.append(f"{path}:{node.lineno} calls {name.id}: nobody sees what that changes")
    return found


def test_votes_change_by_their_own_methods_only() -> None:
    assert changers_of_votes({path.relative_to(PACKAGE).as_posix(): path.read_text() for path in PACKAGE.rglob("*.py")}) == []


def loaded_by(statement: str, source: Path) -> set[str]:
    """Which modules a statement loads in a fresh interpreter, beyond what that has loaded for itself."""
    script = f"import sys; before = set(sys.modules); sys.path.insert(0, {str(source)!r}); {statement}; print(*(set(sys.modules) - before))"
    # What it logs, pytest shows.
    return set(subprocess.run([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, check=True).stdout.split())


def too_narrow(project: Mapping[str, Any]) -> list[str]:
    """The dependencies that keep a user from newer versions of something else, or of Python."""
    extras = project["project"].get("optional-dependencies", {})
    wanted = [*project["project"]["dependencies"], *[it for extra, them in extras.items() if extra != "dev" for it in them]]
    return [it for it in [*wanted, project["project"]["requires-python"]] if re.search(r"<|==|~=|!=", it.partition(";")[0])]


def test_type_checkers_are_told_that_there_are_types() -> None:
    assert (PACKAGE / "py.typed").exists()
    assert "Typing :: Typed" in (PACKAGE.parent.parent / "pyproject.toml").read_text()


def test_b59_nothing_is_capped_from_above() -> None:
    assert too_narrow(tomllib.loads((PACKAGE.parent.parent / "pyproject.toml").read_text())) == []


def test_importing_holdfast_loads_nothing_heavy() -> None:
    loaded = loaded_by("import holdfast", PACKAGE.parent)
    assert "holdfast" in loaded
    assert sorted(loaded & (HEAVY | WITH_A_CLIENT)) == []


def test_importing_holdfast_loads_threading() -> None:
    # Python takes the thread that loads it for the main thread, and one of ours should never be that.
    assert "threading" in loaded_by("import holdfast", PACKAGE.parent)


# The modules of ours that `import holdfast` loads. Each costs as much as reading and running a file.
MOST_OF_OURS = 67


def ours(loaded: set[str]) -> set[str]:
    return {it for it in loaded if it.split(".")[0] == "holdfast"}


def test_importing_holdfast_loads_no_more_of_ours_than_it_did() -> None:
    found = ours(loaded_by("import holdfast", PACKAGE.parent))
    assert len(found) <= MOST_OF_OURS, sorted(found)


# Nodes have ten seconds to answer: one that is late on a busy machine is told of in the log, which loads `logging`.
A_CLIENT = "import holdfast; locks = holdfast.Holdfast(*{urls}, node_timeout=10, ttl=30)"
A_LOCK = f"{A_CLIENT}; locks.lock('a').acquire().release(); locks.close()"


def test_nothing_slow_is_on_the_way_to_a_lock() -> None:
    # Servers of its own: what other tests have left in theirs may be warned of.
    with Nodes(3) as nodes:
        loaded = loaded_by(A_LOCK.format(urls=nodes.urls), PACKAGE.parent)
    assert sorted(loaded & HEAVY) == []
    assert sorted(WITH_A_CLIENT - loaded) == [], "these are not called so"


def test_importing_holdfast_loads_no_primitive_but_the_locks() -> None:
    others = {
        "holdfast.operations.inspection.plan",
        "holdfast.face.values",
        "holdfast.operations.inspection.commands",
        "holdfast.protocol.note",
    }
    primitives = ("election", "fill", "latch", "once", "rate")
    folders = [*[f"primitives.{it}" for it in primitives], "operations.survey"]
    others |= {f"holdfast.{it}.{part}" for it in folders for part in ("commands", "plan", "sync")}
    others |= {"holdfast.face.semaphore", "holdfast.face.sync.semaphore"}
    assert sorted(loaded_by("import holdfast", PACKAGE.parent) & others) == []
    others.add("holdfast.face.schedule")
    everything = "from holdfast import Barrier, Election, Fill, LockStatus, Once, Rate, Semaphore, Survey"
    assert sorted(others - loaded_by(everything, PACKAGE.parent)) == [], "these are not called so"


def test_importing_holdfast_makes_the_digests_of_locks_only() -> None:
    made = "print(*[it.name for it in holdfast.scripts.LOADED if 'sha' in vars(it)])"
    script = f"import sys; sys.path.insert(0, {str(PACKAGE.parent)!r}); import holdfast; {made}"
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    assert found == ["request", "release", "rw_request", "rw_release"]


def test_only_exporters_load_the_libraries_they_export_by() -> None:
    libraries = {"prometheus_client", "opentelemetry"}
    assert sorted(loaded_by("import holdfast, holdfast.aio", PACKAGE.parent) & {"holdfast.metrics", "holdfast.otel", *libraries}) == []
    assert sorted(loaded_by("from holdfast.metrics import alerts, collapsed", PACKAGE.parent) & libraries) == []
    assert loaded_by("from holdfast.metrics import Metrics", PACKAGE.parent) & libraries == {"prometheus_client"}
    assert loaded_by("import holdfast.otel", PACKAGE.parent) & libraries == {"opentelemetry"}


def test_importing_fencing_loads_no_library_of_the_storage_s() -> None:
    assert sorted(loaded_by("import holdfast.fencing, holdfast.fencing.http", PACKAGE.parent) & {"redis", "sqlalchemy"}) == []
    assert "redis" not in loaded_by("import holdfast.fencing.redis", PACKAGE.parent), "the client comes from the user"
    assert "sqlalchemy" in loaded_by("import holdfast.fencing.sqlalchemy", PACKAGE.parent)


def test_no_folder_grows_without_a_reason() -> None:
    assert sizes.grown() == [], "run tests/sizes.py, and say why in the row"
    assert sizes.lines('"""Two\nlines."""\n\nA = (\n    1,  # one\n)\n# No.\n\n\ndef f():\n    """No."""\n    return """1\n2"""\n') == 6


def test_no_module_is_longer_than_one_can_read_at_a_time() -> None:
    assert [str(it) for it in PACKAGE.rglob("*.py") if sizes.lines(it.read_text()) > 700] == []
