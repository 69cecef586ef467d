"""docs/promises.md and the tests are held to each other: what is named exists, what has a number has a row, and no row is empty."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import conversations
import pytest

pytestmark = pytest.mark.guards

ROOT = Path(__file__).parent.parent
COUNTS = {"B": 59, "S": 36, "D": 28, "O": 10}  # rows of each kind: none gets lost
_ROW = re.compile(r"\| (?P<number>[A-Z]-\d+) \|")
_NAMED = re.compile(r"`(?P<path>tests/[\w/]+\.(?:py|txt))::(?P<test>\w+)`")
_WAITS = re.compile(r"not yet: [\w`]")
_IN_A_NAME = re.compile(r"_([bs])(\d\d)(?=_)", re.IGNORECASE)
_IN_WORDS = re.compile(r"\b([BS]-\d\d)\b")


@dataclass(frozen=True)
class Row:
    """A row of the page: its number, the tests that it names, and what it waits for."""

    number: str
    tests: tuple[tuple[str, str], ...]
    waits: bool


def rows(page: str) -> Iterator[Row]:
    """The rows of all tables that begin with a number."""
    for line in page.splitlines():
        if found := _ROW.match(line):
            yield Row(found["number"], tuple(_NAMED.findall(line)), waits=bool(_WAITS.search(line)))


def collected(path: str, source: str) -> set[str]:
    """The tests that pytest collects from a file of this text."""
    if path.endswith(".txt"):
        return {it.name for it in conversations.read(source)}
    functions = [it for it in ast.parse(source).body if isinstance(it, ast.FunctionDef | ast.AsyncFunctionDef)]
    return {it.name for it in functions if it.name.startswith("test_")}


def complaints(page: str, files: Mapping[str, str], counts: Mapping[str, int]) -> list[str]:
    """Everything in which the page and the tests (path: text) differ."""
    found, table = [], list(rows(page))
    numbers = [row.number for row in table]
    expected = [f"{letter}-{number:02}" for letter, count in counts.items() for number in range(1, count + 1)]
    if numbers != expected:
        odd = sorted({*numbers} ^ {*expected}) or sorted({it for it in numbers if numbers.count(it) > 1}) or ["their order"]
        found.append(f"numbers that are missing, too many, or not in order: {', '.join(odd)}")
    there = {path: collected(path, source) for path, source in files.items()}
    for row in table:
        found += [f"{row.number}: there is no {path}::{test}" for path, test in row.tests if test not in there.get(path, set())]
        if not row.tests and not row.waits:
            found.append(f"{row.number} has neither a test nor what it waits for")
    shown = {row.number for row in table if row.tests}
    for path in sorted(files):
        named = {f"{letter.upper()}-{digits}" for test in there[path] for letter, digits in _IN_A_NAME.findall(test)}
        found += [f"{path} has a test of {number}, whose row names none" for number in sorted(named - shown)]
        found += [f"{path} speaks of {number}, which has no row" for number in sorted({*_IN_WORDS.findall(files[path])} - {*numbers})]
    return found


def test_the_page_and_the_tests_agree() -> None:
    folders = ("protocol", "scripts/locks", "wire/connection", "wire/server", "wire/handshake", "engine")
    paths = [*(ROOT / "tests").glob("**/test_*.py"), *(path for it in folders for path in (ROOT / "tests" / it).rglob("*.txt"))]
    files = {str(path.relative_to(ROOT)): path.read_text() for path in paths}
    assert complaints((ROOT / "docs/promises.md").read_text(), files, COUNTS) == []
