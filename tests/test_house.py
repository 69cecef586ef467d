"""The house: who may import whom, what the pure floors must not touch, and what `import holdfast` must not load.

`complaints` is a function over {path below src/holdfast: source text}, so that every rule is tested twice: on the house as it is, and on
a small planted fault, about which it has to complain. A rule that no fault was planted for may have stopped working long ago.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from own_coverage import FLOORS_0_TO_2

from holdfast.core.vote import Vote
from holdfast.embedded import Nodes

pytestmark = pytest.mark.guards

PACKAGE = Path(__file__).parent.parent / "src/holdfast"

# Which floor a part of the package is on. A part is a module or a package, with all that is in it and is not a part of its own; "" is the
# package's own `__init__`. A file imports from lower floors, and from its own part; from nowhere else on its floor, save that a
# part may import from the package that it lies in (drivers.threads from drivers: what all drivers share).
FLOORS: dict[str, float] = {
    "errors": 0,
    "events": 0,
    "scripts": 0,
    "version": 0,
    "checks": 0.5,
    "core": 1,
    "wire": 1,
    "engine": 2,
    "recipes": 2,
    "later": 2.5,  # loads what the packages above show
    "clock": 2.5,  # the one that is no value: for drivers and faces
    "log": 2.5,  # loggers, and `logging` only when they are used
    "living": 2.5,  # a set that threads may change while it is looked through
    "lent": 2.5,  # what a client of another library says of its server
    "node": 2.7,  # one node as a program describes it, also from such a client
    "folders": 2.5,  # where Unix sockets may be, for nodes of our own
    "drivers": 3,
    "drivers.threads": 3,
    "drivers.aio": 3,
    "drivers.borrowed": 3,
    "testing": 3,
    "embedded": 3,
    "base": 3.5,  # what the faces share
    "sync": 4,
    "aio": 4,
    "config": 4.2,  # makes clients of settings, for either face
    "": 4.5,  # shows the face for threads, and is what a program on top of the house imports
    "dashboard": 5,
    "fencing": 5,
    "metrics": 5,  # for Prometheus
    "otel": 5.5,  # for OpenTelemetry, from the same table
    "compat": 5,  # locks of other libraries, on the clients above
    "testing.simulation": 5,  # users' own code, with the asyncio face, in virtual time
    "testing.conformance": 5,  # asks real servers, over connections of its own
    "testing.plugin": 5,  # pytest fixtures: the one part of `testing` that uses the faces
    "serve": 6,  # the gateway: locks over HTTP, and its page
    "cli": 7,  # the command: it may use all of the above
    "integrations": 7.5,  # uses what is public, such as `fencing.http`, and makes the command one of frameworks
    "__main__": 8,
}

PURE = 2  # up to this floor nothing changes by itself: no clock, randomness, socket, thread, task, process or log
IMPURE = {
    "_thread",
    "asyncio",
    "concurrent",
    "logging",
    "multiprocessing",
    "os",
    "random",
    "secrets",
    "select",
    "selectors",
    "signal",
    "socket",
    "ssl",
    "subprocess",
    "threading",
    "time",
    "uuid",
}
IMPURE_CALLS = {"datetime.now", "datetime.utcnow", "datetime.today", "date.today", "__import__", "import_module"}
RECEIVER = {"errors", "checks", "later", "fencing"}  # all that whoever receives fences needs: nothing of a client
# What `import holdfast` loads for nobody who did not ask. (hashlib loads all of OpenSSL.)
# (dataclasses, and inspect, which they load, take as long as all of holdfast's core.)
HEAVY = {"asyncio", "concurrent.futures", "dataclasses", "hashlib", "inspect", "logging", "redis", "ssl", "subprocess", "tempfile"}
# What it leaves to the first client: sockets; and urllib.parse, which takes addresses apart and loads ipaddress.
WITH_A_CLIENT = {"_socket", "ctypes", "ipaddress", "selectors", "socket", "urllib.parse"}


def complaints(files: Mapping[str, str]) -> list[str]:
    """Everything about these files that is against the rules."""
    modules = {_name(path): ast.parse(source, path) for path, source in files.items()}
    inside: dict[str, set[str]] = {}
    found = []
    for path, module in zip(files, modules, strict=True):
        part = _part(module)
        if part is None:
            found.append(f"{path} is on no floor: give it one in FLOORS")
            continue
        inside[module] = set()
        for target in _imports(module, path, modules):
            if target == "holdfast" or target.startswith("holdfast."):
                inside[module].add(target.removeprefix("holdfast").removeprefix("."))
            elif FLOORS[part] <= PURE and target.split(".")[0] in IMPURE:
                found.append(f"{path} imports {target}, but floors 0 to {PURE} own nothing that changes by itself")
        for target in sorted(inside[module]):
            other = _part(target)
            if other is None:
                found.append(f"{path} imports {target}, which is on no floor")
            elif part == "fencing" and other not in RECEIVER:
                found.append(f"{path} imports {target or 'holdfast'}, but whoever receives fences needs no client")
            elif not _may(part, other):
                found.append(f"{path} (floor {FLOORS[part]}) imports {target or 'holdfast'} (floor {FLOORS[other]})")
        if FLOORS[part] <= PURE:
            called = {call for call in _calls(modules[module]) if call in IMPURE_CALLS or call.endswith(".import_module")}
            found += [f"{path} calls {call}: the time comes in as a value, and imports are to be seen" for call in sorted(called)]
    found += [f"these import one another in a ring: {' -> '.join(ring)}" for ring in _rings(inside)]
    return found


def _name(path: str) -> str:
    return ".".join(Path(path).with_suffix("").parts).removesuffix("__init__").removesuffix(".")


def _part(module: str) -> str | None:
    """The part of the house that a module (its name without "holdfast.") belongs to."""
    if not module:
        return ""
    words = module.split(".")
    return next((part for n in range(len(words), 0, -1) if (part := ".".join(words[:n])) in FLOORS), None)


def _may(part: str, other: str) -> bool:
    return FLOORS[other] < FLOORS[part] or other == part or (part.startswith(f"{other}.") and FLOORS[other] == FLOORS[part])


def _imports(module: str, path: str, modules: Mapping[str, ast.Module]) -> Iterator[str]:
    """The full names of all modules that a file imports, wherever in it: in functions, and for types only, too."""
    package = ["holdfast", *module.split(".")] if module else ["holdfast"]
    if not path.endswith("__init__.py"):
        package = package[:-1]
    for node in ast.walk(modules[module]):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            source = ".".join([*above, *([node.module] if node.module else [])])
            for alias in node.names:
                whole = f"{source}.{alias.name}"
                is_module = whole.removeprefix("holdfast.") in modules or (source == "holdfast" and _part(alias.name))
                yield whole if is_module else source


def _calls(tree: ast.Module) -> Iterator[str]:
    """What is called, by its last two names: datetime.now, whether of `datetime` or of `datetime.datetime`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield ".".join(ast.unparse(node.func).split(".")[-2:])


def _rings(imports: Mapping[str, set[str]]) -> Iterator[list[str]]:
    """One ring through each module that lies on one and was not in a ring before."""
    told: set[str] = set()
    for start in imports:
        paths = [[start]]
        seen: set[str] = set()
        while paths and start not in told:
            path = paths.pop(0)
            for target in sorted(imports.get(path[-1], ())):
                if target == start:
                    told.update(path)
                    yield [name or "holdfast" for name in [*path, start]]
                    paths = []
                    break
                if target not in seen:
                    seen.add(target)
                    paths.append([*path, target])


def test_the_house_stands() -> None:
    files = {path.relative_to(PACKAGE).as_posix(): path.read_text() for path in sorted(PACKAGE.rglob("*.py"))}
    assert complaints(files) == []


VOTES = "core/vote.py"  # what changes a vote is written there, and nowhere else
FIELDS = set(Vote.__annotations__)


def changers_of_votes(files: Mapping[str, str]) -> list[str]:
    """Where a field of a vote is set outside the module that owns its transitions.

    Objects set their own fields, which may have the same names, through `self`.
    """
    found = []
    for path, source in files.items():
        if path == VOTES:
            continue
        core = path.startswith("core/")
        for node in ast.walk(ast.parse(source, path)):
            match node:
                case ast.Attribute(value, attr, ast.Store() | ast.Del()) if attr in FIELDS:
                    of = ast.unparse(value)
                    # Above the core, other things have fields of these names, too.
                    if (of != "self") if core else ("vote" in of):
                        found.append(f"{path}:{node.lineno} sets {ast.unparse(node)}: call a method of the vote")
                case ast.Call(ast.Name("setattr" | "delattr") as name) if core:
                    found.append(f"{path}:{node.lineno} calls {name.id}: nobody sees what that changes")
    return found


def test_votes_change_by_their_own_methods_only() -> None:
    assert changers_of_votes({path.relative_to(PACKAGE).as_posix(): path.read_text() for path in PACKAGE.rglob("*.py")}) == []


@pytest.mark.parametrize(
    "planted",
    [
        "vote.granted = False",
        "self.votes[node].bound = 0.0",
        "vote.bound, vote.fence = 0.0, 0",
        "it.owed += 1",
        "vote.granted = vote.lower = False",
        "other.error: Exception = error",
        "for vote.since in (1, 2): pass",
        "del vote.base",
        "setattr(vote, 'granted', True)",
    ],
)
def test_a_change_of_a_vote_from_outside_is_found(planted: str) -> None:
    text = (PACKAGE / "core/claim.py").read_text()
    assert changers_of_votes({"core/claim.py": text}) == []
    (complaint,) = {it.partition(":")[0] for it in changers_of_votes({"core/claim.py": f"{text}\n{planted}\n"})}
    assert complaint == "core/claim.py"
    assert changers_of_votes({VOTES: planted, "wire/lane.py": "lane.sent = 0"}) == []
    assert changers_of_votes({"engine/crew.py": "claim.votes[node].granted = True"})


def test_the_gate_of_own_coverage_knows_the_pure_floors() -> None:
    assert {place.removesuffix(".py") for place in FLOORS_0_TO_2} == {part for part, floor in FLOORS.items() if floor <= PURE}


SOUND = {
    "__init__.py": "from .errors import HoldfastError\nfrom .sync import Holdfast\n",
    "errors.py": "import datetime\n",
    "core/__init__.py": "from .claim import Claim\nfrom .quorum import majority\n",
    "core/quorum.py": "",
    "core/claim.py": "from dataclasses import dataclass\nfrom ..errors import HoldfastError\nfrom . import quorum\n",
    "wire/lane.py": "import hiredis\nfrom holdfast.errors import HoldfastError\n",
    "engine/crew.py": "from ..core import Claim\nfrom ..wire.lane import Lane\nfrom .. import events\n",
    "drivers/clock.py": "import time\n",
    "drivers/aio.py": "import asyncio\nfrom .clock import now\nfrom ..engine.crew import Crew\n",
    "drivers/threads/keeper.py": "import threading\nfrom ..clock import now\n",
    "sync/client.py": "from ..drivers.threads import keeper\nfrom holdfast.core.claim import Claim\n",
    "aio/client.py": "def run():\n    from ..drivers import aio\n",
    "cli.py": "from holdfast import Holdfast\n",
    "fencing/bearer.py": "import time\nfrom .. import checks\nfrom ..errors import HoldfastError\n",
    "fencing/sql.py": "from .bearer import fences_of\n",
}


def test_a_sound_house_gives_no_cause_for_complaint() -> None:
    assert complaints(SOUND) == []


FAULTS = {
    "core imports its sibling": ("core/claim.py", "from ..wire import lane", "core/claim.py (floor 1) imports wire.lane"),
    "wire imports its sibling": ("wire/lane.py", "import holdfast.core.quorum", "imports core.quorum (floor 1)"),
    "engine imports its sibling": ("engine/crew.py", "from ..recipes.mutex import name", "imports recipes.mutex (floor 2)"),
    "a lower floor imports a higher one": ("core/claim.py", "from holdfast.engine.crew import Crew", "imports engine.crew (floor 2)"),
    "one driver imports another": ("drivers/aio.py", "from .threads.keeper import Keeper", "imports drivers.threads.keeper (floor 3)"),
    "what drivers share imports a driver": ("drivers/clock.py", "from . import aio", "imports drivers.aio (floor 3)"),
    "a driver imports the simulator": ("drivers/aio.py", "from ..testing import world", "imports testing (floor 3)"),
    "a face imports the other": ("aio/client.py", "from ..sync.client import Holdfast", "imports sync.client (floor 4)"),
    "a face imports the package": ("sync/client.py", "import holdfast", "imports holdfast (floor 4.5)"),
    "a face imports a name of the package": ("sync/client.py", "from .. import Holdfast", "imports holdfast (floor 4.5)"),
    "a face imports the command line": ("sync/client.py", "from .. import cli", "imports cli (floor 7)"),
    "fencing imports a client": ("fencing/sql.py", "from ..sync import Lease", "fencing/sql.py imports sync, but whoever receives fences"),
    "fencing imports the package": ("fencing/sql.py", "from holdfast import Lease", "imports holdfast, but whoever receives fences"),
    "an import in a function": ("core/claim.py", "def f():\n    from ..wire.lane import Lane", "imports wire.lane (floor 1)"),
    "an import for types only": ("core/claim.py", "if TYPE_CHECKING:\n    from ..wire.lane import Lane", "imports wire.lane (floor 1)"),
    "a ring": ("core/quorum.py", "from .claim import Claim", "in a ring: core.quorum -> core.claim -> core.quorum"),
    "a ring through the package": ("core/quorum.py", "from . import Claim", "in a ring: core -> core.quorum -> core"),
    "a file on no floor": ("cellar.py", "", "cellar.py is on no floor"),
    "an import from no floor": ("cli.py", "from . import cli\nfrom .cellar import wine", "imports cellar, which is on no floor"),
    "a clock": ("core/claim.py", "import datetime\nthen = datetime.datetime.now()", "core/claim.py calls datetime.now"),
    "a clock in a type's clothes": ("errors.py", "from datetime import datetime\nnow = datetime.now(None)", "errors.py calls datetime.now"),
    "today": ("events.py", "from datetime import date\nday = date.today()", "events.py calls date.today"),
    "a hidden import": ("core/claim.py", "time = __import__('time')", "core/claim.py calls __import__"),
    "a hidden import by name": ("wire/lane.py", "import importlib as i\ni.import_module('time')", "wire/lane.py calls i.import_module"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_complained_about(fault: str) -> None:
    path, planted, complaint = FAULTS[fault]
    found = complaints({**SOUND, path: SOUND.get(path, "") + planted + "\n"})
    assert any(complaint in each for each in found), found


@pytest.mark.parametrize("place", ["errors.py", "scripts/__init__.py", "core/claim.py", "wire/lane.py", "engine/crew.py", "recipes/a.py"])
@pytest.mark.parametrize("module", sorted(IMPURE))
def test_an_impure_import_is_complained_about(place: str, module: str) -> None:
    for planted in (f"import {module} as it", f"def f():\n    from {module} import it"):
        (complaint,) = complaints({place: planted})
        assert complaint.startswith(f"{place} imports {module}, but")
    assert complaints({"drivers/clock.py": f"import {module}"}) == []


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


def test_a_cap_is_complained_about() -> None:
    table = {"dependencies": ["a>=1", "b<3"], "requires-python": ">=3.11,<4", "optional-dependencies": {"x": ["c==1"], "dev": ["d==1"]}}
    assert too_narrow({"project": table}) == ["b<3", "c==1", ">=3.11,<4"]


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


@pytest.mark.parametrize("more", ["holdfast.drivers.threads.driver", "holdfast.recipes.note"])
def test_one_more_module_of_ours_is_noticed(more: str) -> None:
    assert len(ours(loaded_by(f"import holdfast, {more}", PACKAGE.parent))) > MOST_OF_OURS


# Nodes have ten seconds to answer: one that is late on a busy machine is told of in the log, which loads `logging`.
A_CLIENT = "import holdfast; locks = holdfast.Holdfast(*{urls}, fresh={fresh}, node_timeout=10, ttl=30)"
A_LOCK = f"{A_CLIENT}; locks.lock('a').acquire().release(); locks.close()"


def test_nothing_slow_is_on_the_way_to_a_lock() -> None:
    # Servers of its own: what other tests have left in theirs may be warned of.
    with Nodes(3) as nodes:
        loaded = loaded_by(A_LOCK.format(urls=nodes.urls, fresh=set(nodes.run_ids)), PACKAGE.parent)
    assert sorted(loaded & HEAVY) == []
    assert sorted(WITH_A_CLIENT - loaded) == [], "these are not called so"


def test_importing_holdfast_loads_no_primitive_but_the_locks() -> None:
    others = {"holdfast.base.inspection", "holdfast.base.values", "holdfast.recipes.inspection", "holdfast.recipes.note"}
    primitives = ("election", "fill", "latch", "once", "rate", "survey")
    others |= {f"holdfast.{part}.{it}" for part in ("base", "recipes", "sync") for it in primitives}
    others |= {f"holdfast.{part}.semaphore" for part in ("base", "sync")}
    assert sorted(loaded_by("import holdfast", PACKAGE.parent) & others) == []
    others.add("holdfast.base.schedule")
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


@pytest.mark.parametrize("heavy", sorted(HEAVY | WITH_A_CLIENT))
def test_loading_something_heavy_is_noticed(heavy: str, tmp_path: Path) -> None:
    (tmp_path / "holdfast").mkdir()
    (tmp_path / "holdfast/__init__.py").write_text(f"import {heavy}\n")
    assert heavy in loaded_by("import holdfast", tmp_path)
