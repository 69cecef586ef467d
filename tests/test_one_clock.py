"""One clock: only drivers read the time, everything else asks its driver, and nobody replaces the clock of a module.

Both rules are tested twice: on the sources as they are, and on small planted faults, each of which
has to be complained about. `tests/testing/test_virtual_time.py` shows that a simulated history does
not depend on the machine's time.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

pytestmark = pytest.mark.guards

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src/holdfast"

# Who reads a clock, and why it cannot ask a driver. A folder ends with a slash.
READERS = {
    "clock.py": "it is where drivers get the machine's clocks",
    "drivers/": "they own the time",
    "compat/held.py": "when the time limit of another library ends, on the clock of leases",
    "cli/": "its processes guard a command by their own clocks, the front without any client",
    "serve/": "it counts requests and dates its audit log; for how long a lease lasts, it asks the lease",
    "embedded.py": "it starts real servers, and waits for them",
    "testing/conformance/": "it measures a server, over connections of its own",
    "testing/inprocess.py": "it is the driver of nodes that live in real time",
    "fencing/memory.py": "what receives fences has no client, and so no driver: `clock=` hands it one",
    "fencing/sql.py": "as above: it compares times that a database has written down",
}
# The one place that replaces the machine's clocks as a whole, before anything of holdfast is loaded.
REPLACERS = {"tests/testing/virtual_time.py": "it shows that nobody reads them"}

DATES = {"datetime.now", "datetime.utcnow", "datetime.today", "date.today"}
WAITS = {"sleep"}  # names of `time` that tell nobody the time
TYPES = {"Sources"}  # names of `holdfast.clock` that are no clock
CLOCKS = {
    "clock", "wall", "SYSTEM", "time", "time_ns", "monotonic", "monotonic_ns", "perf_counter",
    "perf_counter_ns", "clock_gettime", "clock_gettime_ns", "datetime", "date", "now", "utcnow", "today",
}  # fmt: skip


def reads(files: Mapping[str, str]) -> list[str]:
    """Every clock that these files of the package read without a reason in `READERS`."""
    found = []
    for path, source in files.items():
        if not any(path == place or (place.endswith("/") and path.startswith(place)) for place in READERS):
            found += [f"{path} reads {clock}: ask the driver" for clock in sorted(set(_read(ast.parse(source, path))))]
    return found


def _read(tree: ast.Module) -> Iterator[str]:
    imports = [it for it in ast.walk(tree) if isinstance(it, ast.Import)]
    has_time = any(name.name == "time" for it in imports for name in it.names)
    for node in ast.walk(tree):
        match node:
            case ast.Import():
                yield from (it.name for it in node.names if it.name == "time" and it.asname)
                yield from (it.name for it in node.names if it.name.endswith(".clock"))
            case ast.ImportFrom(module="time"):
                yield from (f"time.{it.name}" for it in node.names if it.name not in WAITS)
            case ast.ImportFrom(module="clock" | "holdfast.clock"):
                yield from (f"clock.{it.name}" for it in node.names if it.name not in TYPES)
            case ast.ImportFrom(module=None | "holdfast"):
                yield from ("clock" for it in node.names if it.name == "clock")
            case ast.Attribute(value=ast.Name(id="time")) if has_time and node.attr not in WAITS:
                yield f"time.{node.attr}"
            case ast.Call(func=ast.Attribute(attr="time")):
                yield ast.unparse(node)
            case ast.Call(func=ast.Attribute()):
                name = ".".join(ast.unparse(node.func).split(".")[-2:])
                if name in DATES:
                    yield name


def replaced(files: Mapping[str, str]) -> list[str]:
    """Every clock of a module that these files replace."""
    found = []
    for path, source in files.items():
        if path not in REPLACERS:
            tree = ast.parse(source, path)
            found += [f"{path}:{line} replaces {what}: give the driver other sources" for line, what in _replaced(tree)]
    return found


def _replaced(tree: ast.Module) -> Iterator[tuple[int, str]]:
    nodes = list(ast.walk(tree))
    imports = [it for it in nodes if isinstance(it, ast.Import | ast.ImportFrom)]
    imported = {(name.asname or name.name).partition(".")[0] for it in imports for name in it.names}

    def is_a_module(node: ast.expr) -> bool:
        first = ast.unparse(node).partition(".")[0]
        return isinstance(node, ast.Name | ast.Attribute) and first in imported

    for node in nodes:
        match node:
            case ast.Attribute(ctx=ast.Store()) if node.attr in CLOCKS and is_a_module(node.value):
                yield node.lineno, ast.unparse(node)
            case ast.Subscript(ctx=ast.Store(), slice=ast.Constant(value=str(name))) if name in CLOCKS:
                if _names(node.value):
                    yield node.lineno, ast.unparse(node)
            # monkeypatch.setattr(module, "clock", ...), patch.object(module, "clock"), and a table of such
            case ast.Call(args=[what, ast.Constant(value=str(name)), *_]) | ast.Tuple(
                elts=[what, ast.Constant(value=str(name)), *_]
            ) if name in CLOCKS and is_a_module(what):
                yield node.lineno, f"{ast.unparse(what)}.{name}"
            # monkeypatch.setattr("holdfast.clock.clock", ...), patch("time.time")
            case ast.Call(args=[ast.Constant(value=str(name)), *_]) if name.rpartition(".")[2] in CLOCKS:
                if name.startswith(("holdfast.", "time.", "datetime.")):
                    yield node.lineno, name
            case ast.Call(func=ast.Attribute(attr="update", value=value)) if _names(value):
                named = [it.arg for it in node.keywords if it.arg in CLOCKS]
                yield from ((node.lineno, f"{ast.unparse(value)}[{it!r}]") for it in named)


def _names(node: ast.expr) -> bool:
    """Is it the table of a module's names, or that of all modules?"""
    return ast.unparse(node).startswith(("vars(", "sys.modules")) or ast.unparse(node).endswith(".__dict__")


def _sources(*folders: str) -> dict[str, str]:
    # (The bench installs other clients into environments of its own.)
    found = [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]
    paths = [path for path in found if not path.is_relative_to(ROOT / "bench/environments")]
    return {path.relative_to(ROOT).as_posix(): path.read_text() for path in paths}


def test_only_drivers_read_the_time() -> None:
    sources = {path.relative_to(PACKAGE).as_posix(): path.read_text() for path in sorted(PACKAGE.rglob("*.py"))}
    assert reads(sources) == []


def test_every_place_that_may_read_the_time_does() -> None:
    for place in READERS:
        paths = sorted((PACKAGE / place).rglob("*.py")) if place.endswith("/") else [PACKAGE / place]
        assert any([*_read(ast.parse(path.read_text()))] for path in paths), place


def test_nobody_replaces_the_clock_of_a_module() -> None:
    sources = _sources("src", "tests", "bench", "examples")
    assert replaced(sources) == []
    assert set(REPLACERS) <= set(sources)


READ = {
    "the clock of leases": ("face/lease.py", "from ..clock import clock\n", "face/lease.py reads clock.clock"),
    "its module": ("face/migration.py", "from .. import clock\n", "face/migration.py reads clock"),
    "its module, by name": ("face/migration.py", "import holdfast.clock\n", "reads holdfast.clock"),
    "the sources of all drivers": ("client/aio.py", "from ..clock import SYSTEM\n", "reads clock.SYSTEM"),
    "the wall clock": ("primitives/fill/plan.py", "import time\nwall = time.time\n", "primitives/fill/plan.py reads time.time"),
    "under another name": ("primitives/fill/plan.py", "import time as wall\n", "primitives/fill/plan.py reads time"),
    "a name of time's": ("client/sync.py", "from time import monotonic\n", "reads time.monotonic"),
    "in a function": (
        "face/aio/lock.py", "def f():\n    import time\n    return time.monotonic_ns()\n", "reads time.monotonic_ns",
    ),
    "a date": ("face/lease.py", "import datetime\nat = datetime.datetime.now(datetime.UTC)\n", "reads datetime.now"),
    "today": ("face/schedule.py", "from datetime import date\nday = date.today()\n", "reads date.today"),
    "an event loop's clock": (
        "face/aio/lease.py", "def f(loop):\n    return loop.time()\n", "face/aio/lease.py reads loop.time()",
    ),
    "in the simulator": ("testing/world.py", "import time\nnow = time.time()\n", "testing/world.py reads time.time"),
}  # fmt: skip


@pytest.mark.parametrize("fault", READ)
def test_another_place_that_reads_the_time_is_noticed(fault: str) -> None:
    path, source, complaint = READ[fault]
    assert any(complaint in it for it in reads({path: source}))
    assert reads({"drivers/threads.py": source}) == []


def test_what_is_no_clock_is_not_complained_about() -> None:
    sound = "import time\nfrom ..clock import Sources\nfrom datetime import timedelta\ntime.sleep(1)\nself._clock()\n"
    assert reads({"face/lease.py": sound}) == []
    sound = "from a import lease\ndriver.wall = other\nmonkeypatch.setattr(lease, 'held', True)\n"
    assert replaced({"tests/test_a.py": sound}) == []


REPLACED = {
    "by monkeypatch": "from holdfast.face import lease\ndef f(patch):\n    patch.setattr(lease, 'clock', None)\n",
    "by its full name": "def f(monkeypatch):\n    monkeypatch.setattr('holdfast.face.lease.clock', None)\n",
    "the machine's": "import time\ndef f(monkeypatch):\n    monkeypatch.setattr(time, 'time', None)\n",
    "by mock": "from unittest import mock\nwith mock.patch('time.monotonic'):\n    pass\n",
    "by mock, of a module": "import holdfast.clock\nwith mock.patch.object(holdfast.clock, 'clock'):\n    pass\n",
    "by hand": "from holdfast.face import lease\nlease.clock = None\n",
    "two at once": "from holdfast.face import lease, moving\nlease.clock = moving.clock = None\n",
    "from a table": "from holdfast.drivers import aio\nfor it in [(aio, 'time', None)]:\n    setattr(*it)\n",
    "in a module's names": "vars(module).update(clock=None, sockets=None)\n",
    "one of a module's names": "vars(module)['clock'] = None\n",
    "a whole module": "import sys\nsys.modules['time'] = None\n",
}


@pytest.mark.parametrize("fault", REPLACED)
def test_a_clock_that_is_replaced_is_noticed(fault: str) -> None:
    assert replaced({"tests/test_a.py": REPLACED[fault]}) != []
    assert replaced({next(iter(REPLACERS)): REPLACED[fault]}) == []
