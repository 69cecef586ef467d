"""The rules of docs/protocol.md and the page beside it, held to the tests.

Each rule says what breaks without it. The tests that show it cite its number, and the names of faults that
they must find begin with it (`tests/faults.toml`). Every number that is cited anywhere is that of a rule.

A test cites a rule by a comment or a docstring: "Rule Q4." or "Rules C5, F8 and F9."
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from holdfast import scripts
from holdfast.protocol import exclusive
from holdfast.scripts import Script

pytestmark = pytest.mark.guards

ROOT = Path(__file__).parent.parent
# The pages of the rules: of the lock, and of failover and the other primitives.
PAGE = [ROOT / "docs" / name for name in ("protocol.md", "protocol-primitives.md")]
# Texts that argue from the rules: there, everything that looks like the number of a rule has to be one.
PAGES = [*PAGE, *[ROOT / "docs" / name for name in ("proof.md", "design.md")], *ROOT.glob("spec/*.pml")]
# The first letters of a rule's number, by chapter. S, L and M are properties, which are no rules.
CHAPTERS = ("T", "K", "C", "Q", "F", "G", "R", "N", "W", "D", "P", "E", "O", "FI", "RA", "A", "BA", "RP", "X", "SH", "NO", "H", "RT")
_NUMBER = "[A-Z]{1,2}[0-9]{1,2}"
_RULE = re.compile(rf"^\* \*\*({_NUMBER})\.\*\* ", re.MULTILINE)
_CITED = re.compile(rf"\b[Rr]ules?\s+((?:{_NUMBER})(?:(?:,\s+|\s+and\s+|\s+or\s+|\s+to\s+)(?:#\s+)?{_NUMBER})*)\b")


def cited(text: str) -> set[str]:
    """The numbers that a text cites as those of rules."""
    return {number for numbers in _CITED.findall(text) for number in re.findall(_NUMBER, numbers)}


def named(page: str) -> set[str]:
    """Everything that looks like the number of a rule, in a page that argues from them."""
    text = re.sub(r"```.*?```|\]\([^)]*\)", "", page, flags=re.DOTALL)
    return set(re.findall(rf"(?<![\w{{`/-])((?:{'|'.join(CHAPTERS)})[1-9][0-9]?)(?![\w`.]\w)\b", text))


@pytest.fixture(scope="module")
def page() -> str:
    return "\n".join(it.read_text() for it in PAGE)


@pytest.fixture(scope="module")
def numbers(page: str) -> list[str]:
    """Of all rules, in the order of the page."""
    return _RULE.findall(page)


def test_rules_are_numbered_one_by_one_in_each_chapter(page: str, numbers: list[str]) -> None:
    counts = {it: sum(re.fullmatch(rf"{it}\d+", number) is not None for number in numbers) for it in CHAPTERS}
    wanted = [f"{it}{at}" for it, count in counts.items() for at in range(1, count + 1)]
    assert sorted(numbers) == sorted(wanted)
    assert len(numbers) > 150
    # Nothing that was meant as a rule is written in another way, and each says what breaks without it.
    assert len(numbers) == " ".join(page.split()).count("*Without it:*")


def test_every_rule_is_cited_by_a_test(numbers: list[str]) -> None:
    tests = [path for kind in ("test_*.py", "*.txt") for path in (ROOT / "tests").rglob(kind) if path != Path(__file__)]
    assert set(numbers) - set().union(*(cited(path.read_text()) for path in tests)) == set()


def test_every_rule_that_a_fault_is_named_after_exists(numbers: list[str]) -> None:
    faults = [name for its in tomllib.loads((ROOT / "tests/faults.toml").read_text()).values() for name in its]
    rules = [it for name in faults if (found := re.match(rf"({_NUMBER}(?:, {_NUMBER})*): ", name)) for it in found[1].split(", ")]
    assert len(rules) > 100
    assert set(rules) - set(numbers) == set()


def test_every_rule_that_is_cited_exists(numbers: list[str]) -> None:
    kinds = (("src", "py"), ("src", "lua"), ("tests", "py"), ("tests", "txt"), ("docs", "md"))
    texts = [path for folder, kind in kinds for path in (ROOT / folder).rglob(f"*.{kind}") if path != Path(__file__)]
    wrong = {f"{path}: {it}" for path in texts for it in cited(path.read_text()) - set(numbers)}
    assert sorted(wrong | {f"{path}: {it}" for path in PAGES for it in named(path.read_text()) - set(numbers)}) == []


def test_each_level_lists_rules_of_the_lock_and_those_before_it(numbers: list[str]) -> None:
    levels = re.findall(r"^\| ([1-4]) [a-z ]+ \| (.*) \|$", PAGE[0].read_text(), re.MULTILINE)
    listed = [it for _, those in levels for it in re.findall(_NUMBER, those)]
    nodes = re.search(r"^\| of nodes \| (.*) \|$", PAGE[0].read_text(), re.MULTILINE)
    assert [number for number, _ in levels] == ["1", "2", "3", "4"]
    assert nodes is not None
    # Each rule of the lock and of failover is of one level, or is kept by the scripts.
    wanted = [number for number in numbers if re.fullmatch("[TKCQFG][0-9]+", number)]
    assert sorted(listed + re.findall(_NUMBER, nodes[1])) == sorted(wanted)


@pytest.mark.parametrize("script", scripts.EXCLUSIVE, ids=lambda it: it.name)
def test_the_scripts_of_the_lock_are_described_with_their_arguments_in_order(page: str, script: Script) -> None:
    section = re.search(rf"^### {script.name}\n(.*?)(?=^#)", page, re.MULTILINE | re.DOTALL)
    assert section is not None
    assert f"`ARGV {' '.join(script.arguments)}`" in section[1]


def test_every_script_is_named(page: str) -> None:
    # Their heads describe them: `tests/scripts/test_init.py` holds each head to its script.
    shipped = [it.name for it in vars(scripts).values() if isinstance(it, Script)]
    assert [it for it in shipped if not re.search(rf"`{it}[`(]", page)] == []


def test_every_word_that_no_name_may_begin_with_is_listed(page: str) -> None:
    listed = re.search(r"begins like `\{…\}:` and one of: (.*?)\.\n", page, re.DOTALL)
    words = re.search(r":\(([a-z|]+)\)", exclusive._OURS.decode())
    assert listed is not None and words is not None
    assert set(words[1].split("|")) == set(re.findall(r"`([a-z]+)`", listed[1]))
