"""The gates themselves: own coverage and the planted faults complain about a small tree with faults, and about none without."""

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
TESTS = """
from holdfast.protocol.claim import least

def test_least():
    assert (least(1, 2), least(2, 1)) == (1, 2 - 1)
"""
SETTINGS = '[tool.pytest.ini_options]\naddopts = ["--import-mode=importlib"]\nfilterwarnings = ["error"]\n'


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tree with one module and its tests."""
    # Plugins take two thirds of the time, and want settings of their own.
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    for folder in ("src/holdfast/protocol", "tests/protocol"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "pyproject.toml").write_text(SETTINGS)
    for package in ("", "protocol"):
        (tmp_path / "src/holdfast" / package / "__init__.py").write_text('"""A package."""\n')
    (tmp_path / "src/holdfast/protocol/claim.py").write_text(CLAIM)
    (tmp_path / "tests/protocol/test_claim.py").write_text(TESTS)
    return tmp_path


def test_a_missing_branch_is_told(tree: Path) -> None:
    (tree / "tests/protocol/test_claim.py").write_text(TESTS.replace("2 - 1", "1").replace("least(2, 1)", "1"))
    covered = own_coverage.measure(Path("protocol/claim.py"), tree)
    assert 0 < covered.percent < 100
    assert covered.lacks == "lines and branches 7"


@pytest.mark.parametrize("test, code", [("test_least", 0), ("test_that_is_gone", 1)])
def test_a_planted_fault_is_to_be_found_by_the_test_that_it_names(tree: Path, test: str, code: int) -> None:
    row = f'["protocol/test_claim.py"]\n"the larger one" = ["protocol/claim.py", "a < b", "b < a", "{test}"]\n'
    (tree / "tests/faults.toml").write_text(row)
    assert mutants.main(["--planted"], tree) == code
