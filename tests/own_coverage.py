"""The gate for what is pure: each module is covered by its own tests alone, to the last branch.

Its own tests are its test module, and the folder of its conversations if there is one. What is a part has the conversations of the
whole, too, and a test module for what they do not show.

What an end-to-end test happens to pass through is not tested by it: such a branch can do anything, and the test stays green.
`python tests/own_coverage.py [MODULE...]` (such as protocol/claim.py; default: all) prints a table, and exits with 1 if one falls short.
"""

from __future__ import annotations

import ast
import io
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path

import coverage

ROOT = Path(__file__).parent.parent
PURE = (
    "errors.py", "events.py", "scripts", "version.py", "checks.py", "protocol", "wire", "engine",
    "primitives/*/commands.py", "operations/*/commands.py",
)  # fmt: skip
AT_A_TIME = 2
# The parts of a claim, which decide nothing by themselves. A claim is a part of a joint request.
WHOLES = dict.fromkeys((Path(f"protocol/{it}.py") for it in ("answer", "vote", "ballot", "renewal", "explain")), Path("protocol/claim.py"))
WHOLES[Path("protocol/claim.py")] = Path("protocol/joint.py")


@dataclass(frozen=True)
class Covered:
    """How much of `module` its test module covers. `percent`: of lines and branches; `lacks`: what is missing, in words."""

    module: str
    percent: float
    lacks: str
    seconds: float


def modules(root: Path = ROOT, places: Sequence[str] = PURE) -> Iterator[Path]:
    """The modules of these places of the package, relative to it, in order."""
    package = root / "src/holdfast"
    for place in places:
        for path in sorted(package.glob(place) if place.endswith(".py") else (package / place).rglob("*.py")):
            yield path.relative_to(package)


def test_of(module: Path) -> Path:
    """The test module of a module, relative to the tests: wire/test_resp.py of wire/resp.py, wire/test_init.py of wire/__init__.py."""
    return module.with_name(f"test_{module.stem.strip('_')}.py")


def own_tests(module: Path, root: Path) -> list[str]:
    """The paths of a module's own tests that exist: of its test module, which may have parts, and of its conversations."""
    test, whole = Path("tests") / test_of(module), WHOLES.get(module, module)
    parts = sorted((root / test).parent.glob(f"{test.stem}_*.py")) if (root / test).exists() else []
    talks = [Path("tests") / it.with_suffix("") for it in dict.fromkeys((module, whole))]
    found = [it.relative_to(root) for it in (root / test, *parts) if it.exists()]
    return [str(it) for it in (*found, *[folder for folder in talks if any((root / folder).glob("*.txt"))])]


def only_gathers(source: str) -> bool:
    """Whether a module has nothing that could be tested: it consists of a docstring, imports, `__all__` and literals."""
    for statement in ast.parse(source).body:
        match statement:
            case ast.Import() | ast.ImportFrom() | ast.Expr(ast.Constant()):
                pass
            case ast.Assign([ast.Name("__all__")]) | ast.Assign([ast.Name()], ast.Constant()):
                pass
            case _:
                return False
    return True


def measure(module: Path, root: Path = ROOT) -> Covered:
    """Run a module's own tests under coverage."""
    began = time.monotonic()
    source, test = root / "src/holdfast" / module, root / "tests" / test_of(module)

    def covered(percent: float, lacks: str) -> Covered:
        return Covered(str(module), percent, lacks, time.monotonic() - began)

    if only_gathers(source.read_text()):
        return covered(100, "")
    if not test.exists():
        return covered(0, f"there is no {test.relative_to(root)}")
    with tempfile.TemporaryDirectory() as folder:
        data = str(Path(folder) / "data")
        # The tree's own package, even where another is installed: a copy of the tree measures itself.
        environment = {**os.environ, "COVERAGE_FILE": data, "PYTHONPATH": str(root / "src")}
        command = [sys.executable, "-m", "coverage", "run", "--branch", f"--include={source}"]
        command += ["-m", "pytest", "-q", "-p", "no:cacheprovider", *own_tests(module, root)]
        ran = subprocess.run(command, cwd=root, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        if ran.returncode != 0:
            return covered(0, f"its tests fail:\n{ran.stdout}")
        recorded = coverage.Coverage(data_file=data, config_file=str(root / "pyproject.toml"))
        recorded.load()
        if not recorded.get_data().measured_files():
            return covered(0, f"{test.relative_to(root)} does not import it")
        table = io.StringIO()
        percent = recorded.report(file=table, show_missing=True)
        return covered(percent, "" if percent == 100 else "lines and branches " + table.getvalue().splitlines()[2].split("%")[-1].strip())


def main(names: Sequence[str], root: Path = ROOT) -> int:
    wanted = [Path(name) for name in names] or list(modules(root))
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        table = list(pool.map(measure, wanted, repeat(root)))
    for row in table:
        print(f"{row.module:30} {row.percent:5.1f} % {row.seconds:5.1f} s  {row.lacks}".rstrip())
    short = sum(row.percent < 100 for row in table)
    print(f"{len(table) - short} of {len(table)} modules are covered by their own tests" + (f"; {short} are not" if short else ""))
    return 1 if short or not table else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
