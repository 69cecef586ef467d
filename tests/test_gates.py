"""The gates themselves: own coverage and the mutants complain about a small tree with faults, and about none without."""

from __future__ import annotations

from pathlib import Path

import mutants
import own_coverage
import pytest

pytestmark = pytest.mark.stories


CLAIM = '''"""A module."""


def least(a: int, b: int) -> int:
    if a < b:
        return a
    return b
'''
GOOD_TESTS = """
from holdfast.protocol.claim import least

def test_least():
    assert (least(1, 2), least(2, 1)) == (1, 2 - 1)
"""
HALF_TESTS = """
from holdfast.protocol.claim import least

def test_least():
    assert least(1, 2) == 1
"""
SETTINGS = '[tool.pytest.ini_options]\naddopts = ["--import-mode=importlib"]\nfilterwarnings = ["error"]\n'
SIMULATOR = "import sys\nfrom holdfast.protocol.claim import least\nsys.exit(least(2, 1) != 1)\n"
BLIND_SIMULATOR = ""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A tree with one module, its tests, and a simulator."""
    for folder in ("src/holdfast/protocol", "tests/protocol", "tests/swarm"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "pyproject.toml").write_text(SETTINGS)
    for package in ("", "protocol"):
        (tmp_path / "src/holdfast" / package / "__init__.py").write_text('"""A package."""\n')
    (tmp_path / "src/holdfast/protocol/claim.py").write_text(CLAIM)
    (tmp_path / "tests/swarm/__main__.py").write_text(SIMULATOR)
    (tmp_path / "tests/protocol/test_claim.py").write_text(GOOD_TESTS)
    return tmp_path


@pytest.fixture(autouse=True)
def places(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mutants, "PLACES", ("protocol",))
    monkeypatch.setattr(mutants, "SURVIVORS", 0.25)  # of the four, one is the same function: `a <= b`
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # a third of the time: these tests start pytest thirty times


def measure(tree: Path, module: str) -> own_coverage.Covered:
    return own_coverage.measure(Path(module), tree)


def test_a_missing_branch_is_told(tree: Path) -> None:
    (tree / "tests/protocol/test_claim.py").write_text(HALF_TESTS)
    covered = measure(tree, "protocol/claim.py")
    assert 0 < covered.percent < 100
    assert covered.lacks == "lines and branches 7"


def test_the_gate_fails_when_one_module_falls_short(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tree / "tests/protocol/test_claim.py").unlink()
    assert own_coverage.main(["protocol/claim.py", "protocol/__init__.py"], tree) == 1
    assert "1 of 2 modules are covered by their own tests; 1 are not" in capsys.readouterr().out


def test_every_kind_of_mutant_is_made() -> None:
    source = '''
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    LIMIT = 1
def f(self, a: "Literal[1]" = 2) -> "x < 1":
    """A docstring."""
    if a < 1 and not self.b:
        self.b = -a
        print(f"{a - 1.5}")
    self.c += "x"
    return None if a in (True, None) else a == a is not a
'''
    names = [mutant.name.partition("  in  ")[0] for mutant in mutants.mutants(Path("m.py"), source)]
    assert names == [
        "2  ->  3",
        "if a < 1 and (not self.b):  ->  if not (a < 1 and (not self.b)):",
        "a < 1 and (not self.b)  ->  a < 1 or not self.b",
        "a < 1  ->  a <= 1",
        "1  ->  2",
        "not self.b  ->  self.b",
        "self.b = -a  ->  pass",
        "print(f'{a - 1.5}')  ->  pass",
        "a - 1.5  ->  a + 1.5",
        "1.5  ->  2.5",
        "self.c += 'x'  ->  self.c -= 'x'",
        "return None if a in (True, None) else a == a is not a  ->  return None",
        "a in (True, None)  ->  a not in (True, None)",
        "a == a is not a  ->  a != a is not a",
        "a == a is not a  ->  a == a is a",
    ]


def test_the_choice_is_repeatable_and_a_change_moves_no_lot_but_its_own() -> None:
    every = [mutant for module in "abcdefgh" for mutant in mutants.mutants(Path(module), CLAIM)]
    chosen = mutants.choose(every, 9, seed=1)
    assert len(chosen) == 9 and chosen == mutants.choose(every, 9, seed=1) != mutants.choose(every, 9, seed=2)
    assert chosen == [it for it in every if it in chosen]  # in the order of the text
    fewer = [it for it in every if it not in chosen[:2]]
    assert chosen[2:] == [it for it in mutants.choose(fewer, 9, seed=1) if it in chosen]
    assert mutants.choose(every, 100, seed=1) == every
    assert mutants.choose([], 3, seed=1) == []


def test_mutants_are_killed_by_good_tests(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert mutants.main(["--seed", "3"], tree) == 0
    printed = capsys.readouterr().out
    assert printed.count("own tests") == 3
    assert "4 mutants of 4 (seed 3): 1 survived" in printed
    assert (tree / "src/holdfast/protocol/claim.py").read_text() == CLAIM


@pytest.mark.parametrize(
    "simulator, outcome, code",
    [pytest.param(SIMULATOR, "simulator", 0, id="sees"), pytest.param(BLIND_SIMULATOR, "SURVIVES", 1, id="blind")],
)
def test_what_the_tests_do_not_see_is_left_to_the_simulator(
    tree: Path, simulator: str, outcome: str, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    (tree / "tests/protocol/test_claim.py").write_text(HALF_TESTS)
    (tree / "tests/swarm/__main__.py").write_text(simulator)
    assert mutants.main(["--only", "protocol/claim.py"], tree) == code
    rows = capsys.readouterr().out.splitlines()
    assert [row.split("  ")[0].strip() for row in rows[:-1]] == ["own tests", "SURVIVES", "own tests", outcome]
    assert rows[3].endswith("protocol/claim.py:7  return b  ->  return None  in  return b")


@pytest.mark.parametrize("test, code", [("test_least", 0), ("test_that_is_gone", 1)])
def test_a_planted_fault_is_to_be_found_by_the_test_that_it_names(tree: Path, test: str, code: int) -> None:
    row = f'["protocol/test_claim.py"]\n"the larger one" = ["protocol/claim.py", "a < b", "b < a", "{test}"]\n'
    (tree / "tests/faults.toml").write_text(row)
    assert mutants.main(["--planted"], tree) == code
