"""The rules of docs/protocol.md and the page beside it, held to the tests.

Each rule says what breaks without it. `tests/rules.toml` has the tests and mutants that show it, and one of
these tests cites its number. Every number that is cited anywhere is that of a rule.

A test cites a rule by a comment or a docstring: "Rule Q4." or "Rules C5, F8 and F9."
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from holdfast import scripts
from holdfast.protocol import exclusive
from holdfast.scripts import Script

pytestmark = pytest.mark.guards

ROOT = Path(__file__).parent.parent
RULES: dict[str, dict[str, list[str]]] = tomllib.loads((ROOT / "tests/rules.toml").read_text())
# The pages of the rules: of the lock, and of failover and the other primitives.
PAGE = [ROOT / "docs" / name for name in ("protocol.md", "protocol-primitives.md")]
# Texts that argue from the rules: there, everything that looks like the number of a rule has to be one.
PAGES = [*PAGE, *[ROOT / "docs" / name for name in ("proof.md", "design.md")], *ROOT.glob("spec/*.pml")]
# The first letters of a rule's number, by chapter. S, L and M are properties, which are no rules.
CHAPTERS = ("T", "K", "C", "Q", "F", "G", "R", "N", "W", "D", "P", "E", "O", "FI", "RA", "A", "BA", "RP", "X", "SH", "NO", "H", "RT")
_NUMBER = "[A-Z]{1,2}[0-9]{1,2}"
_RULE = re.compile(rf"^\* \*\*({_NUMBER})\.\*\* (.*?)(?=^\S|^$|\Z)", re.MULTILINE | re.DOTALL)
_CITED = re.compile(rf"\b[Rr]ules?\s+((?:{_NUMBER})(?:(?:,\s+|\s+and\s+|\s+or\s+|\s+to\s+)(?:#\s+)?{_NUMBER})*)\b")


def rules(page: str) -> list[tuple[str, str]]:
    """The number and the text of each rule."""
    return [(number, " ".join(text.split())) for number, text in _RULE.findall(page)]


def cited(text: str) -> set[str]:
    """The numbers that a text cites as those of rules."""
    return {number for numbers in _CITED.findall(text) for number in re.findall(_NUMBER, numbers)}


def named(page: str) -> set[str]:
    """Everything that looks like the number of a rule, in a page that argues from them."""
    text = re.sub(r"```.*?```|\]\([^)]*\)", "", page, flags=re.DOTALL)
    return set(re.findall(rf"(?<![\w{{`/-])((?:{'|'.join(CHAPTERS)})[1-9][0-9]?)(?![\w`.]\w)\b", text))


def incomplete(page: str) -> list[str]:
    """The rules that do not say what breaks without them."""
    return [number for number, text in rules(page) if not re.search(r"\*Without it:\* \w", text)]


def unproven(page: str, tests: Mapping[str, str], table: Mapping[str, Mapping[str, Sequence[str]]] = RULES) -> list[str]:
    """The rules that no test cites which the table has for them. `tests`: the sources by their paths, as in the table."""
    found = []
    for number, _ in rules(page):
        linked = [it.partition("::") for it in table.get(number, {}).get("tests", ())]
        if not any(number in cited(function(tests.get(path, ""), test)) for path, _, test in linked):
            found.append(number)
    return found


def function(source: str, name: str) -> str:
    """The text of a function, to the next thing that stands as far to the left; or that of a conversation."""
    found = re.search(rf"^(?:async )?def {name}\(.*?(?=^[\w@#]|\Z)|^{name}\n.*?(?=^\n|\Z)", source, re.MULTILINE | re.DOTALL)
    return found[0] if found else ""


def astray(page: str, texts: Mapping[str, str], pages: Mapping[str, str]) -> list[str]:
    """What is cited, and is no rule."""
    there = {number for number, _ in rules(page)}
    found = {f"{path}: {it}" for path, text in texts.items() for it in cited(text) - there}
    return sorted(found | {f"{path}: {it}" for path, text in pages.items() for it in named(text) - there})


def undescribed(page: str, shipped: Iterable[Script]) -> list[str]:
    """The scripts whose arguments the page does not list in their order."""
    found = []
    for it in shipped:
        section = re.search(rf"^### {it.name}\n(.*?)(?=^#)", page, re.MULTILINE | re.DOTALL)
        if section is None or f"`ARGV {' '.join(it.arguments)}`" not in section[1]:
            found.append(it.name)
    return found


def unnamed(page: str, shipped: Iterable[Script]) -> list[str]:
    """The scripts that the page does not name, alone or with arguments."""
    return [it.name for it in shipped if not re.search(rf"`{it.name}[`(]", page)]


def unreserved(page: str) -> set[str]:
    """The words that no name may begin with, and that the page does not list."""
    listed = re.search(r"begins like `\{…\}:` and one of: (.*?)\.\n", page, re.DOTALL)
    assert listed is not None
    words = re.search(r":\(([a-z|]+)\)", exclusive._OURS.decode())
    assert words is not None
    return set(words[1].split("|")) ^ set(re.findall(r"`([a-z]+)`", listed[1]))


def outside(texts: Mapping[str, str]) -> list[str]:
    """The texts that point to documents which are not in the repository."""
    return sorted(path for path, text in texts.items() if re.search(r"PROTOCOL\.md|\bSEMANTICS \d", text))


def properties(page: str) -> set[str]:
    """What has to hold, as the page defines it: S1 and so on.

    Tests and code write P-S1, because S1 may be the number of a scenario there.
    """
    return set(re.findall(r"^\| ([SLMV]\d?) \|", page, re.MULTILINE))


def unpromised(page: str, texts: Mapping[str, str]) -> list[str]:
    """Where a property is named that the page does not define."""
    there = properties(page)
    said = {path: set(re.findall(r"\bP-([A-Z]\d?)\b", text)) for path, text in texts.items()}
    return sorted(f"{path}: {it}" for path, names in said.items() for it in names - there)


def sources() -> Iterator[Path]:
    """Everything that may cite a rule."""
    for folder, kind in (("src", "py"), ("src", "lua"), ("tests", "py"), ("tests", "txt"), ("docs", "md")):
        yield from (path for path in (ROOT / folder).rglob(f"*.{kind}") if path != Path(__file__))


@pytest.fixture(scope="module")
def page() -> str:
    return "\n".join(it.read_text() for it in PAGE)


@pytest.fixture(scope="module")
def texts() -> dict[str, str]:
    return {str(path.relative_to(ROOT)): path.read_text() for path in sources()}


@pytest.fixture(scope="module")
def tests() -> dict[str, str]:
    folders = ("protocol", "scripts/locks", "wire/connection", "wire/server", "wire/handshake", "engine")
    paths = [*(ROOT / "tests").rglob("*.py"), *(path for it in folders for path in (ROOT / "tests" / it).rglob("*.txt"))]
    return {str(path.relative_to(ROOT / "tests")): path.read_text() for path in paths}


def test_rules_are_numbered_one_by_one_in_each_chapter(page: str) -> None:
    numbers = [number for number, _ in rules(page)]
    counts = {it: sum(re.fullmatch(rf"{it}\d+", number) is not None for number in numbers) for it in CHAPTERS}
    wanted = [f"{it}{at}" for it, count in counts.items() for at in range(1, count + 1)]
    assert sorted(numbers) == sorted(wanted)
    assert len(numbers) > 150
    # Nothing that was meant as a rule is written in another way.
    assert len(numbers) == " ".join(page.split()).count("*Without it:*")


def test_every_rule_says_what_breaks_without_it(page: str) -> None:
    assert incomplete(page) == []


def test_every_rule_is_cited_by_a_test_that_shows_it(page: str, tests: dict[str, str]) -> None:
    assert unproven(page, tests) == []
    assert sorted(RULES) == sorted(number for number, _ in rules(page))


def test_every_test_and_mutant_that_shows_a_rule_exists() -> None:
    for rule, kinds in RULES.items():
        for path, _, name in (it.partition("::") for its in kinds.values() for it in its):
            text = (ROOT / "tests" / path).read_text()
            # A mutant is an entry of a table, and a conversation has its name on a line.
            assert any(it in text for it in (f"def {name}(", f'    "{name}": ', f"\n{name}\n", f'\n"{name}" = [')), f"{rule}: {path} {name}"


def test_the_page_of_the_lock_is_short_enough_to_be_read() -> None:
    assert len(PAGE[0].read_text().split()) <= 7700


def test_each_level_lists_rules_of_the_lock_and_those_before_it(page: str) -> None:
    levels = re.findall(r"^\| ([1-4]) [a-z ]+ \| (.*) \|$", PAGE[0].read_text(), re.MULTILINE)
    listed = [it for _, numbers in levels for it in re.findall(_NUMBER, numbers)]
    nodes = re.search(r"^\| of nodes \| (.*) \|$", PAGE[0].read_text(), re.MULTILINE)
    assert [number for number, _ in levels] == ["1", "2", "3", "4"]
    assert nodes is not None
    # Each rule of the lock and of failover is of one level, or is kept by the scripts.
    wanted = [number for number, _ in rules(page) if re.fullmatch("[TKCQFG][0-9]+", number)]
    assert sorted(listed + re.findall(_NUMBER, nodes[1])) == sorted(wanted)


def test_every_rule_that_is_cited_exists(page: str, texts: dict[str, str]) -> None:
    assert astray(page, texts, {path.name: path.read_text() for path in PAGES}) == []


def test_every_property_that_is_named_is_defined(page: str, texts: dict[str, str]) -> None:
    assert unpromised(page, texts) == []
    assert properties(page) == {"S1", "S2", "L1", "L2", "L3", "M1", "V"}


def test_the_scripts_of_the_lock_are_described_with_their_arguments_in_order(page: str) -> None:
    assert undescribed(page, scripts.EXCLUSIVE) == []


def test_every_script_is_named(page: str) -> None:
    # Their heads describe them: `tests/scripts/test_init.py` holds each head to its script.
    shipped = [it for it in vars(scripts).values() if isinstance(it, Script)]
    assert len(shipped) == 27
    assert unnamed(page, shipped) == []


def test_every_word_that_no_name_may_begin_with_is_listed(page: str) -> None:
    assert unreserved(page) == set()


def test_nothing_points_to_a_document_outside_of_the_repository(texts: dict[str, str]) -> None:
    assert outside(texts) == []
