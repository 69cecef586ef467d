"""Damages code in small ways, one at a time, and wants each noticed: by the module's own tests, or else by the simulator.

Without `--only` or `--all` it damages the scripts, whose own tests are `tests/scripts`, and what is pure, which its own tests cover. A
module that is not pure is also tested by others. Between its own tests and the simulator run those tests of users, drivers and the contract
that execute the damaged line; one run of them under coverage tells which. After the simulator runs the whole folder of tests of its part of
the package (`FAR`). They use real servers, and a machine may be busy, so a test has noticed the damage if it fails once more, alone, and
passes without the damage.

`--planted` plants the faults of `tests/faults.toml` instead. Each names a test, which must fail.

A mutant that survives is a missing test, or code that does nothing, or a change that nobody can notice (the first value of what is always
set before it is read); so one in ten may survive. No planted fault may. `./task mutants --help` tells the options. The same seed makes the
same mutants of the same sources. Exits with 1 if more survive, and with 2 if undamaged code fails, so that nothing can be said.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import tomllib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.util import cache_from_source, find_spec
from pathlib import Path

import guests
import pytest
from coverage import Coverage, CoverageData
from own_coverage import ROOT, modules, only_gathers, own_tests

PLACES = ("checks.py", "protocol", "wire", "engine", "primitives/*/commands.py", "operations/*/commands.py", "scripts/*.lua")
EVERYWHERE = ("*.py", "*/**/*.py", "scripts/*.lua")
# Modules of frameworks that are not installed here.
ABSENT = {it for guest in guests.GUESTS.values() for it in guest.modules if find_spec(it.partition("_")[0]) is None}
NEAR = ("tests/face", "tests/primitives", "tests/operations", "tests/drivers", "tests/contract")  # test what is not pure
# The rest of the tests of what is not pure, by part of the package.
FAR = {part: [f"tests/{part}"] for part in ("cli", "compat", "fencing", "integrations", "metrics", "serve")}
FAR |= {"cli": ["tests/cli", "tests/serve"], "otel.py": ["tests/metrics"]}
FAR["testing"] = ["tests/testing", "tests/scripts/test_commands.py", "tests/clients/test_level1.py"]
ELSEWHERE = ["tests/live"]
ALONE = ("-p", "no:xdist")
BESIDE = ("-n", "4", "--dist", "worksteal", "-m", "not stories")  # most of these tests wait more than they work
LONG = 900.0  # seconds for all of them
MOST = 80  # of these tests look at one mutant: some lines are executed by two thousand
PYTEST = ("-m", "pytest", "-x", "-q", "-p", "no:cacheprovider")
# As PYTEST, but all tests of a push, and each is the context of the lines that it executes (`pytest_runtest_protocol`).
COVERAGE = ("-m", "coverage", "run", "--rcfile=/dev/null", "--include=src/holdfast/*")
RECORD = (*COVERAGE, *PYTEST[:2], *PYTEST[3:], *ALONE, "-p", "mutants", "--part", "all", *NEAR)
SIMULATE = ("-m", "swarm", "--seeds", "0..20", "--quick")
AT_A_TIME = 2
MEMORY = 4 << 20  # KiB of address space: a loop without an end may fill the memory before its time is up
SURVIVORS = 0.1  # of all mutants, at most
NO_TESTS = 5  # pytest's status if it has run none
PATIENCE = 120.0  # seconds for the test that a planted fault names
HOURS = 7200.0  # seconds for all tests of NEAR under coverage
# In what pytest prints. (A warning after the last test changes its exit status.)
PASSED = re.compile(r"^\d+ passed(?!.*error).* in ", re.MULTILINE)
FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+?::.+?)(?: - .*)?$", re.MULTILINE)
SLOWER = 5  # times as long as undamaged code, and as many seconds more: then it hangs, which is noticed too

# What is changed in a script, but for its comments and texts: an operator, a number, or a line that is a command.
_LUA = re.compile(r"--.*|'[^']*'|([<>=~]=|[<>]|\b(?:and|or|not)\b|(?<= )[-+](?= )|\b\d+\b|^ *(?:redis\.)?call\(.*\)$)", re.MULTILINE)
_LUA_OTHER = {
    "<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "~=", "~=": "==", "and": "or", "or": "and", "not": "", "+": "-", "-": "+",
}  # fmt: skip

_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}


@dataclass(frozen=True)
class Mutant:
    """The change number `number` to one module. `name`: what becomes what, in which line's text; `source`: of the undamaged module."""

    module: Path
    number: int
    line: int
    name: str
    source: str

    def damaged(self) -> str:
        """The module's text with the change. Comments and layout of Python are gone, which no test looks at."""
        if self.module.suffix == ".lua":
            start, end, other = list(_lua_changes(self.source))[self.number]
            return self.source[:start] + other + self.source[end:]
        tree = ast.parse(self.source)
        parent, field, at, _, variant = list(_changes(tree))[self.number]
        if at is None:
            setattr(parent, field, variant)
        else:
            getattr(parent, field)[at] = variant
        return ast.unparse(ast.fix_missing_locations(tree))


@dataclass(frozen=True)
class Planted:
    """A fault of `tests/faults.toml`: `other` in place of `text`, and the test that must fail with it."""

    name: str
    module: Path
    text: str
    other: str
    test: str
    source: str

    @property
    def line(self) -> int:
        return self.source[: self.source.find(self.text)].count("\n") + 1

    def damaged(self) -> str:
        return self.source.replace(self.text, self.other)


@dataclass(frozen=True)
class Outcome:
    """What became of a mutant. `killer`: what noticed it; empty if nothing did."""

    mutant: Mutant | Planted
    killer: str
    seconds: float

    def __str__(self) -> str:
        return f"{self.killer or 'SURVIVES':10} {self.seconds:5.1f} s  {self.mutant.module}:{self.mutant.line}  {self.mutant.name}"


class Unsound(Exception):
    """Undamaged code does not pass: no mutant can be told from it."""


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> None:
    """As a plugin: tell coverage which test runs."""
    if running := Coverage.current():
        running.switch_context(item.nodeid)


def mutants(module: Path, source: str) -> Iterator[Mutant]:
    """All mutants of a module, in the order of its text."""
    lines = source.splitlines()
    if module.suffix == ".lua":
        for number, (start, end, other) in enumerate(_lua_changes(source)):
            line = source.count("\n", 0, start) + 1
            yield Mutant(module, number, line, f"{source[start:end].strip()}  ->  {other}  in  {lines[line - 1].strip()}", source)
        return
    for number, (_, _, _, node, variant) in enumerate(_changes(ast.parse(source))):
        before, after = (ast.unparse(ast.fix_missing_locations(each)).splitlines()[0] for each in (node, variant))
        line = node.lineno
        yield Mutant(module, number, line, f"{before}  ->  {after}  in  {lines[line - 1].strip()}", source)


def planted(root: Path = ROOT, only: Sequence[str] = ()) -> list[Planted]:
    """All faults of `tests/faults.toml`, or those of some modules and folders, in the order of the file."""
    rows = tomllib.loads((root / "tests/faults.toml").read_text())
    return [
        Planted(name, Path(module), text, other, f"tests/{file}::{test}", (root / "src/holdfast" / module).read_text())
        for file, faults in rows.items()
        for name, (module, text, other, test) in faults.items()
        if not only or any(Path(module).is_relative_to(place) for place in only)
    ]


def choose(candidates: Sequence[Mutant | Planted], count: int, seed: int) -> list[Mutant | Planted]:
    """`count` at random, in the order of the text. The lot is in the mutant itself: code that changes moves no lot but its own."""

    def lot(mutant: Mutant | Planted) -> bytes:
        return hashlib.sha256(f"{seed} {mutant.module} {mutant.name}".encode()).digest()

    chosen = set(sorted(candidates, key=lot)[:count])
    return [mutant for mutant in candidates if mutant in chosen]


def _lua_changes(source: str) -> Iterator[tuple[int, int, str]]:
    """Every change to a script: (where what is changed begins, and ends, what to put there)."""
    for found in _LUA.finditer(source):
        if (text := found[1]) is not None:
            yield *found.span(), str(int(text) + 1) if text.isdigit() else _LUA_OTHER.get(text, "")


_Change = tuple[ast.AST, str, int | None, ast.expr | ast.stmt, ast.expr | ast.stmt]


def _changes(tree: ast.AST) -> Iterator[_Change]:
    """Every change: (parent, field, index in it, node, what to put there). Types are left alone: nothing happens when they change."""
    for field, value in ast.iter_fields(tree):
        if field in ("annotation", "returns", "decorator_list"):
            continue
        children: list[tuple[int | None, object]] = list(enumerate(value)) if isinstance(value, list) else [(None, value)]
        for at, child in children:
            if isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING":
                continue
            if isinstance(child, ast.expr | ast.stmt):
                for variant in _variants(child):
                    yield tree, field, at, child, variant
            if isinstance(child, ast.AST):
                yield from _changes(child)


def _variants(node: ast.expr | ast.stmt) -> Iterator[ast.expr | ast.stmt]:
    match node:
        case ast.Compare(left, operators, right):
            for at, operator in enumerate(operators):
                yield ast.Compare(left, [*operators[:at], _COMPARISONS[type(operator)](), *operators[at + 1 :]], right)
        case ast.BoolOp(joint, values):
            yield ast.BoolOp(ast.Or() if isinstance(joint, ast.And) else ast.And(), values)
        case ast.UnaryOp(ast.Not(), operand):
            yield operand
        case ast.BinOp(left, ast.Add(), right):
            yield ast.BinOp(left, ast.Sub(), right)
        case ast.BinOp(left, ast.Sub(), right):
            yield ast.BinOp(left, ast.Add(), right)
        case ast.AugAssign(target, ast.Add(), value):
            yield ast.AugAssign(target, ast.Sub(), value)
        case ast.AugAssign(target, ast.Sub(), value):
            yield ast.AugAssign(target, ast.Add(), value)
        case ast.Constant(int() | float() as number) if not isinstance(number, bool):
            yield ast.Constant(number + 1)
        case ast.Return(ast.Constant(None)):
            pass
        case ast.Return(ast.expr()):
            yield ast.Return(ast.Constant(None))
        case ast.If(test, body, orelse):
            yield ast.If(ast.UnaryOp(ast.Not(), test), body, orelse)
        case ast.Expr(ast.Call()) | ast.Assign([ast.Attribute()]):
            yield ast.Pass()
        case _:
            pass


class Copy:
    """A copy of the tree, in which one mutant at a time is put to the test."""

    def __init__(self, root: Path, folder: Path) -> None:
        self._folder = folder
        shutil.copytree(root, folder, ignore=shutil.ignore_patterns(".*", "__pycache__", "build", "node_modules"), symlinks=True)
        path = os.pathsep.join([str(folder / "src"), str(folder / "tests")])
        self._environment = {**os.environ, "PYTHONPATH": path}
        _, found = self._run(["-c", "import holdfast; print(*holdfast.__path__)"], 60)
        if not found.startswith(str(folder)):
            raise Unsound(f"a copy of the tree should be used, not {found}")

    def put(self, module: Path, source: str) -> None:
        """Give a module another text."""
        path = self._folder / "src/holdfast" / module
        path.write_text(source)
        # Byte code is trusted by the second and the size of its source, and two mutants may have both in common.
        Path(cache_from_source(path)).unlink(missing_ok=True)

    def own_tests(self, module: Path, limit: float) -> tuple[bool, str]:
        """Whether a module's own tests pass in `limit` seconds, and what they print; a module without tests passes."""
        tests = ["tests/scripts"] if module.suffix == ".lua" else own_tests(module, self._folder)
        if not tests:
            return True, ""
        code, printed = self._run([*PYTEST, *ALONE, *tests], limit)
        return code == 0, printed

    def fails(self, test: str, limit: float) -> bool:
        """Whether a test fails. One that is not there, or cannot be collected, does not."""
        return self._run([*PYTEST, *ALONE, test], limit)[0] == 1

    def record(self) -> Callable[[Path], dict[int, set[str]]]:
        """Run the tests of NEAR. What is returned tells which of those that pass execute which lines of a module."""
        _, printed = self._run(RECORD, HOURS)
        if " passed" not in printed:
            raise Unsound(f"the tests of {', '.join(NEAR)} must run undamaged first:\n{printed}")
        fail = {"", *FAILED.findall(printed)}
        data = CoverageData(str(self._folder / ".coverage"))
        data.read()

        def lines(module: Path) -> dict[int, set[str]]:
            found = data.contexts_by_lineno(str(self._folder / "src/holdfast" / module))
            return {line: set(tests) - fail for line, tests in found.items()}

        return lines

    def others(self, mutant: Mutant, tests: Sequence[str], limit: float, *options: str) -> bool:
        """Whether these tests notice a mutant: one fails twice, the second time alone, and passes without the damage."""
        passed: list[str] = []
        while tests:
            self.put(mutant.module, mutant.damaged())
            code, printed = self._run([*PYTEST, *options, *passed, *tests], limit)
            failed = FAILED.search(printed)
            if failed is None and (code in (0, NO_TESTS) or PASSED.search(printed)):
                break
            if failed is None:  # it hangs, or cannot be imported
                self.put(mutant.module, mutant.source)
                code, printed = self._run([*PYTEST, *options, *passed, *tests], limit)
                return code in (0, NO_TESTS) or PASSED.search(printed) is not None
            if self.fails(failed[1], PATIENCE):
                self.put(mutant.module, mutant.source)
                if not self.fails(failed[1], PATIENCE):
                    return True
            passed.append(f"--deselect={failed[1]}")
        return False

    def simulator(self, limit: float) -> tuple[bool, str]:
        """Whether the simulator finds nothing in `limit` seconds, and what it prints."""
        code, printed = self._run(SIMULATE, limit)
        return code == 0, printed

    def _run(self, arguments: Sequence[str], limit: float) -> tuple[int, str]:
        limited = ["/bin/sh", "-c", f'ulimit -v {MEMORY} 2>/dev/null; exec "$0" "$@"', sys.executable, *arguments]
        with subprocess.Popen(
            limited,
            cwd=self._folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            text=True,
        ) as process:
            try:
                printed, _ = process.communicate(timeout=limit)
            except BaseException as error:
                os.killpg(process.pid, signal.SIGKILL)  # it may have started processes of its own
                if not isinstance(error, subprocess.TimeoutExpired):
                    raise
                return 1, f"not done after {limit:.0f} s"
        return process.returncode, printed


class Range:
    """Where mutants are shot at: some copies of the tree, and what is known of the undamaged one."""

    def __init__(self, root: Path, folder: Path) -> None:
        self._copies: queue.SimpleQueue[Copy] = queue.SimpleQueue()
        for number in range(AT_A_TIME):
            self._copies.put(Copy(root, folder / str(number)))
        self._pure = set(_modules(root, PLACES))
        self._limits: dict[Path | None, float] = {}
        self._lines: Callable[[Path], dict[int, set[str]]] | None = None
        self._lock = threading.Lock()

    def shoot(self, mutant: Mutant | Planted) -> Outcome:
        """Let the module's own tests look at a mutant, then those of NEAR, then the simulator. A planted fault has one test."""
        copy = self._copies.get()
        try:
            if isinstance(mutant, Planted):
                began = time.monotonic()
                copy.put(mutant.module, mutant.damaged())
                return Outcome(mutant, "its test" if copy.fails(mutant.test, PATIENCE) else "", time.monotonic() - began)
            limit = self._limit(copy, mutant.module)
            began = time.monotonic()
            copy.put(mutant.module, mutant.damaged())
            passed, _ = copy.own_tests(mutant.module, limit)
            if not passed:
                return Outcome(mutant, "own tests", time.monotonic() - began)
            copy.put(mutant.module, mutant.source)
            near = [] if mutant.module in self._pure else self._near(copy, mutant)
            if copy.others(mutant, near, LONG, *ALONE):
                return Outcome(mutant, "near tests", time.monotonic() - began)
            copy.put(mutant.module, mutant.source)
            limit = self._limit(copy, None)
            copy.put(mutant.module, mutant.damaged())
            passed, _ = copy.simulator(limit)
            if not passed:
                return Outcome(mutant, "simulator", time.monotonic() - began)
            far = [] if mutant.module in self._pure else FAR.get(mutant.module.parts[0], ELSEWHERE)
            noticed = copy.others(mutant, far, LONG, *BESIDE)
            return Outcome(mutant, "far tests" if noticed else "", time.monotonic() - began)
        finally:
            copy.put(mutant.module, mutant.source)
            self._copies.put(copy)

    def _near(self, copy: Copy, mutant: Mutant) -> list[str]:
        # The tests of NEAR that execute the damaged line. If it runs at import, those that execute anything of the module. If none was seen
        # to, as in a thread that coverage does not see, their files. In reverse order, because those of the contract are the slowest.
        with self._lock:
            if self._lines is None:
                self._lines = copy.record()
            lines = self._lines(mutant.module)
        found = lines.get(mutant.line)
        every = found or set().union(*lines.values())
        tests = sorted({it.partition("::")[0] for it in every} if found is None else every, reverse=True)
        return tests[:: len(tests) // MOST + 1]

    def _limit(self, copy: Copy, module: Path | None) -> float:
        # How long the undamaged module's tests, or the simulator (None), may take: measured when it is first asked, by one for all.
        with self._lock:
            if module not in self._limits:
                began = time.monotonic()
                passed, printed = copy.own_tests(module, 600) if module else copy.simulator(600)
                if not passed:
                    raise Unsound(f"{f'the tests of {module}' if module else 'the simulator'} must pass undamaged first:\n{printed}")
                self._limits[module] = SLOWER * (time.monotonic() - began) + SLOWER
            return self._limits[module]


def main(arguments: Sequence[str], root: Path = ROOT) -> int:
    parser = argparse.ArgumentParser(prog="./task mutants", description="Damage the code: nine times in ten a test notices.")
    parser.add_argument("--seed", type=int, default=0, help="which mutants (0)")
    parser.add_argument("--count", type=int, help="how many (30, or all planted ones)")
    parser.add_argument("--only", metavar="PLACE", nargs="+", default=(), help="of these, such as wire/resp.py and face (what is pure)")
    parser.add_argument("--all", action="store_true", help="of all modules")
    parser.add_argument("--planted", action="store_true", help="plant the faults of tests/faults.toml instead, all or so many")
    options = parser.parse_args(arguments)

    if options.all and (options.only or options.planted):
        parser.error("--all is for small damages to all modules: leave --only and --planted out")
    places = EVERYWHERE if options.all else options.only
    every: Sequence[Mutant | Planted] = planted(root, options.only) if options.planted else _small(root, places)
    chosen = choose(every, options.count or (len(every) if options.planted else 30), options.seed)

    survivors = 0
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(AT_A_TIME) as pool:
        try:
            shots = Range(root, Path(folder).resolve())
            for outcome in pool.map(shots.shoot, chosen):
                print(outcome, flush=True)
                survivors += not outcome.killer
        except Unsound as reason:
            print(reason)
            return 2
        finally:
            pool.shutdown(cancel_futures=True)
    if left := [] if options.planted else [str(it) for it in _modules(root, places or PLACES) if _absent(it)]:
        print(f"left out, because only ./task guests has their frameworks: {', '.join(left)}")
    print(f"{len(chosen)} mutants of {len(every)} (seed {options.seed}): {survivors} survived")
    most = 0.0 if options.planted else SURVIVORS * len(chosen)
    return 1 if survivors > most or not chosen else 0


def _small(root: Path, only: Sequence[str]) -> list[Mutant]:
    # All small changes to all modules of these places, or to those that are pure.
    found = [it for it in _modules(root, only or PLACES) if not _absent(it)]
    sources = {module: (root / "src/holdfast" / module).read_text() for module in found}
    return [
        mutant
        for module, source in sources.items()
        if module.suffix == ".lua" or not only_gathers(source)
        for mutant in mutants(module, source)
    ]


def _absent(module: Path) -> bool:
    return module.parts[0] == "integrations" and module.with_suffix("").parts[1] in ABSENT


def _modules(root: Path, places: Sequence[str]) -> list[Path]:
    # Those of some places, and scripts.
    package = root / "src/holdfast"
    scripts = [it.relative_to(package) for place in places if place.endswith(".lua") for it in sorted(package.glob(place))]
    return [*modules(root, [it for it in places if not it.endswith(".lua")]), *scripts]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
