"""The formal model of the lock protocol, `spec/lock.pml`, and its table of runs: what can be held without Spin.

`./task model spec` checks the model itself.
"""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

pytestmark = pytest.mark.guards

ROOT = Path(__file__).parent.parent.parent
MODEL = ROOT / "spec/lock.pml"
PROTOCOL = ROOT / "docs/protocol.md"
MOST_LINES, MOST_COLUMNS = 300, 120

RULE = re.compile(r"\b(?:[CFGKQT]\d+)\b")


def load_check() -> ModuleType:
    """Import `spec/check.py`, which is a script and belongs to no package."""
    spec = importlib.util.spec_from_file_location("spec_check", ROOT / "spec/check.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["spec_check"] = module
    spec.loader.exec_module(module)
    return module


check = load_check()


def switches(model: str) -> list[str]:
    """The rules that WITHOUT can take away, in the order of their declaration."""
    declared = re.search(r"mtype:rule = \{([^}]*)\}", model)
    assert declared is not None
    return re.findall(r"\w+", declared[1])


def faults(model: str, protocol: str, table: set[str]) -> list[str]:
    """What is wrong with a model: one sentence for each fault."""
    found = []
    declared = switches(model)
    if len(model.splitlines()) > MOST_LINES:
        found.append(f"the model has more than {MOST_LINES} lines")
    if any(len(line) > MOST_COLUMNS for line in model.splitlines()):
        found.append(f"a line has more than {MOST_COLUMNS} columns")
    known = set(re.findall(r"^\* \*\*([A-Z]+\d+)\.\*\*", protocol, re.MULTILINE))
    named = set(RULE.findall(model)) | {re.sub("_.*", "", it) for it in declared}
    found += [f"docs/protocol.md has no rule {it}" for it in sorted(named - known)]
    found += [f"no run is without {it}" for it in declared if it not in table]
    found += [f"the model has no switch {it}" for it in sorted(table - set(declared))]
    found += [f"the model never asks whether {it} is there" for it in declared if f"RULE({it})" not in model]
    return found


def test_the_model_names_rules_of_the_protocol_and_each_switch_has_a_run() -> None:
    assert faults(MODEL.read_text(), PROTOCOL.read_text(), set(check.MISSING)) == []


def test_each_switch_has_a_verdict_that_the_verifier_can_find() -> None:
    verdicts = set(re.findall(r"assert\((\w+)\)", MODEL.read_text())) | {check.CYCLES}
    assert {expected for _, expected in check.MISSING.values()} == verdicts


@pytest.mark.parametrize(
    "printed, verdict",
    [
        ("State-vector 9 byte, depth reached 4, errors: 0\n", "holds"),
        ("pan:1: assertion violated S1 (at depth 9)\nerrors: 1\n", "S1"),
        ("pan:1: assertion violated (V) (at depth 9)\nerrors: 1\n", "V"),
        ("non-progress cycles + (fairness disabled)\nerrors: 0\n", "holds"),
        ("pan:1: non-progress cycle (at depth 34)\nnon-progress cycles +\nerrors: 1\n", "endless run"),
    ],
)
def test_what_the_verifier_prints_is_understood(printed: str, verdict: str) -> None:
    assert check.verdict(printed) == verdict


@pytest.mark.parametrize(
    "printed",
    [
        "error: max search depth too small\nerrors: 0\n",
        "pan: reached -DMEMLIM bound\nWarning: Search not completed\nerrors: 0\n",
        "pan:1: block in d_step seq (at depth 42)\nerrors: 1\n",
        "",
    ],
)
def test_a_search_that_did_not_end_is_no_verdict(printed: str) -> None:
    with pytest.raises(RuntimeError, match="not completed"):
        check.verdict(printed)


def test_a_program_that_fails_or_hangs_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="failed: no such thing"):
        check.command("sh", "-c", "echo no such thing >&2; exit 3", folder=tmp_path, seconds=60)
    with pytest.raises(RuntimeError, match="did not end within 0 s"):
        check.command("sh", "-c", "read line", folder=tmp_path, seconds=0.0)


def test_without_spin_it_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("PATH", "")
    assert check.main([]) == 69
    assert "apt-get install spin" in capsys.readouterr().out
