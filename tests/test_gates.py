"""The gates themselves: own coverage and the mutants complain about a small tree with faults, and about none without."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import mutants
import once_more
import own_coverage
import pytest

pytestmark = pytest.mark.stories

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize(
    "failed, may",
    [
        ([], False),
        (["tests/live/test_nodes.py::test_x[threads]"], True),
        (["tests/contract/test_holding.py::test_x", "tests/scripts/test_cost.py::test_y"], True),
        (["tests/live/test_nodes.py::test_x", "tests/protocol/test_claim.py::test_y"], True),
        (["tests/protocol/test_claim.py::test_y"], False),
        (["tests/face/test_arguments.py::test_x"], True),
        ([f"tests/live/test_nodes.py::test_{it}" for it in range(6)], False),
    ],
)
def test_what_waits_for_real_servers_is_asked_once_more_with_what_it_may_have_spoilt(failed: list[str], may: bool) -> None:
    assert once_more.excused(failed) is may


# Fails the first time, as a test does that was disturbed.
DISTURBED = """
from pathlib import Path

def test_disturbed():
    before = Path("been").exists()
    Path("been").touch()
    assert before
"""


@pytest.mark.parametrize("options", ["", "-n 2", "-k disturbed"])
def test_a_task_runs_once_more_with_the_options_that_it_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: str) -> None:
    """`./task page` once passed "-n 2" to a pytest without xdist: one disturbed test failed the whole task."""
    monkeypatch.delenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD")
    (tmp_path / "tests/live").mkdir(parents=True)
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv/compiled").touch()
    (tmp_path / "tests/live/test_disturbed.py").write_text(DISTURBED)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    shutil.copy(ROOT / "tests/once_more.py", tmp_path / "tests")
    functions = (ROOT / "task").read_text().partition("\ntests() ")[2].partition("\nbut_stories()")[0]
    source = f'set -euo pipefail\npython="$1"\ntests() {functions}\nall_tests {options} tests/live'
    done = subprocess.run(["bash", "-c", source, "bash", sys.executable], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "once more alone:\ntests/live/test_disturbed.py::test_disturbed" in done.stdout


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
FAILING_TESTS = "def test_least():\n    assert False\n"
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


def test_a_covered_module_passes(tree: Path) -> None:
    covered = measure(tree, "protocol/claim.py")
    assert (covered.percent, covered.lacks) == (100, "")


def test_a_module_that_only_gathers_needs_no_test(tree: Path) -> None:
    (tree / "src/holdfast/protocol/__init__.py").write_text(
        '"""A package."""\nfrom .claim import least\n\n__all__ = ["least"]\nLIMIT = 3\n'
    )
    assert measure(tree, "protocol/__init__.py").percent == 100
    (tree / "src/holdfast/protocol/__init__.py").write_text("from .claim import least\nif least(1, 2): pass\n")
    assert measure(tree, "protocol/__init__.py").percent == 0


def test_a_missing_branch_is_told(tree: Path) -> None:
    (tree / "tests/protocol/test_claim.py").write_text(HALF_TESTS)
    covered = measure(tree, "protocol/claim.py")
    assert 0 < covered.percent < 100
    assert covered.lacks == "lines and branches 7"


@pytest.mark.parametrize(
    "tests, complaint",
    [
        (None, "there is no tests/protocol/test_claim.py"),
        ("def test_nothing(): pass", "does not import it"),
        (FAILING_TESTS, "its tests fail"),
        ("import warnings\nfrom holdfast.protocol.claim import least\ndef test_it(): warnings.warn('x')", "its tests fail"),
    ],
    ids=["missing", "foreign", "failing", "warning"],
)
def test_what_is_no_test_of_a_module_does_not_cover_it(tree: Path, tests: str | None, complaint: str) -> None:
    if tests is None:
        (tree / "tests/protocol/test_claim.py").unlink()
    else:
        (tree / "tests/protocol/test_claim.py").write_text(tests)
    covered = measure(tree, "protocol/claim.py")
    assert covered.percent == 0
    assert complaint in covered.lacks


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


def test_a_mutant_has_one_change() -> None:
    for mutant in mutants.mutants(Path("m.py"), CLAIM):
        assert mutant.damaged() != CLAIM
    changed = {mutant.name.partition("  in  ")[0]: mutant.damaged() for mutant in mutants.mutants(Path("m.py"), CLAIM)}
    assert "if a <= b:" in changed["a < b  ->  a <= b"]
    assert "return a\n" in changed["return b  ->  return None"]
    assert changed["return b  ->  return None"].endswith("return None")


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


def test_nothing_is_said_when_undamaged_code_fails(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tree / "tests/protocol/test_claim.py").write_text(FAILING_TESTS)
    assert mutants.main([], tree) == 2
    assert "must pass undamaged first" in capsys.readouterr().out


def test_a_copy_that_does_not_win_is_refused(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    shutil.rmtree(tree / "src/holdfast")  # what is imported then is an installed one, or none
    with pytest.raises(mutants.Unsound):
        mutants.Copy(tree, tmp_path_factory.mktemp("copy"))
