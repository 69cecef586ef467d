"""`docs/design.md` shows the house as it is: every part has its floor, and the walks name files that exist, each once."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from test_house import FLOORS, PACKAGE

pytestmark = pytest.mark.guards

PAGE = (PACKAGE.parent.parent / "docs/design.md").read_text()
WALKS = ("An acquire", "A pushed grant", "A lost lease", "A `once`")
COLUMN = 57  # where the table of floors says what is on a floor
# Floor 3 lists the parts of `drivers`. What they share lies in the package itself, beside them.
SHARED = {"drivers"}


def complaints(page: str) -> Iterator[str]:
    """What the page says wrongly of floors and files, or leaves out."""
    yield from wrong_floors(page)
    for walk in WALKS:
        yield from wrong_walk(page, walk)


def wrong_floors(page: str) -> Iterator[str]:
    """Parts that the table of floors lacks, or has on another floor."""
    table = page.partition("## Floors")[2].partition("```text\n")[2].partition("```")[0]
    rows = [line[:COLUMN] for line in table.splitlines()]
    shown = {name: float(row.split()[0]) for row in rows for name in row.split()[1:]}
    for part, floor in FLOORS.items():
        name = part or "holdfast"
        if part in SHARED or not exists(part):
            continue
        if name not in shown:
            yield f"{name} is on no floor of the page"
        elif shown[name] != floor:
            yield f"{name} is on floor {floor:g}, and on {shown[name]:g} of the page"


def exists(part: str) -> bool:
    """Whether there is such a module or package."""
    path = PACKAGE.joinpath(*part.split(".")) if part else PACKAGE
    return path.is_dir() or path.with_suffix(".py").is_file()


def wrong_walk(page: str, walk: str) -> Iterator[str]:
    """Files of a walk that do not exist, or come twice."""
    table = re.split(r"\n##+ ", page.partition(f"\n### {walk}\n")[2])[0]
    files = re.findall(r"^\| `([^`]+)` \|", table, re.MULTILINE)
    if not files:
        yield f"there is no walk {walk!r}"
    yield from (f"{walk}: there is no file {it}" for it in files if not (PACKAGE / it).is_file())
    yield from (f"{walk}: {it} comes twice" for it in sorted({it for it in files if files.count(it) > 1}))


def test_the_page_shows_the_house() -> None:
    assert list(complaints(PAGE)) == []


@pytest.mark.parametrize(
    "before, after, found",
    [
        ("config  ", "con     ", "config is on no floor of the page"),
        ("7     cli", "2     cli", "cli is on floor 7, and on 2 of the page"),
        ("| `core/round.py` |", "| `core/rund.py` |", "A `once`: there is no file core/rund.py"),
        ("| `wire/resp.py` | Looks at its", "| `wire/lane.py` | Looks at its", "A pushed grant: wire/lane.py comes twice"),
        ("### A lost lease", "### Losses", "there is no walk 'A lost lease'"),
    ],
)
def test_a_fault_is_found(before: str, after: str, found: str) -> None:
    assert PAGE.count(before) == 1, "the fault can be planted"
    assert found in list(complaints(PAGE.replace(before, after)))
