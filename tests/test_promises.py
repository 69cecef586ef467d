"""docs/promises.md and the tests are held to each other: what is named exists, what has a number has a row, and no row is empty."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import conversations
import pytest

pytestmark = pytest.mark.guards

ROOT = Path(__file__).parent.parent
COUNTS = {"B": 59, "S": 36, "D": 28, "O": 10}  # rows of each kind: none gets lost
_ROW = re.compile(r"\| (?P<number>[A-Z]-\d+) \|")
_NAMED = re.compile(r"`(?P<path>tests/[\w/]+\.(?:py|txt))::(?P<test>\w+)`")
_IN_A_NAME = re.compile(r"_([bs])(\d\d)(?=_)", re.IGNORECASE)
_IN_WORDS = re.compile(r"\b([BS]-\d\d)\b")


def collected(path: str, source: str) -> set[str]:
    """The tests that pytest collects from a file of this text."""
    if path.endswith(".txt"):
        return {it.name for it in conversations.read(source)}
    functions = [it for it in ast.parse(source).body if isinstance(it, ast.FunctionDef | ast.AsyncFunctionDef)]
    return {it.name for it in functions if it.name.startswith("test_")}


def test_the_page_and_the_tests_agree() -> None:
    folders = ("protocol", "scripts/locks", "wire/connection", "wire/server", "wire/handshake", "engine")
    paths = [*(ROOT / "tests").glob("**/test_*.py"), *(path for it in folders for path in (ROOT / "tests" / it).rglob("*.txt"))]
    files = {str(path.relative_to(ROOT)): path.read_text() for path in paths}
    there = {path: collected(path, source) for path, source in files.items()}
    rows = [line for line in (ROOT / "docs/promises.md").read_text().splitlines() if _ROW.match(line)]
    numbers = [_ROW.match(line)["number"] for line in rows]  # type: ignore[index]  # (it matches)
    assert numbers == [f"{letter}-{number:02}" for letter, count in COUNTS.items() for number in range(1, count + 1)]
    named = {number: _NAMED.findall(line) for number, line in zip(numbers, rows, strict=True)}
    wrong = [
        f"{number}: there is no {path}::{test}" for number, its in named.items() for path, test in its if test not in there.get(path, set())
    ]
    wrong += [f"{number} has no test" for number, its in named.items() if not its]
    for path, tests in there.items():
        in_names = {f"{letter.upper()}-{digits}" for test in tests for letter, digits in _IN_A_NAME.findall(test)}
        said = in_names | set(_IN_WORDS.findall(files[path]))
        wrong += [f"{path} speaks of {number}, which has no row" for number in sorted(said - {*numbers})]
    assert wrong == []
