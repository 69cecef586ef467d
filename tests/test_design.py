"""`docs/design.md` shows the house as it is: every part has its floor, and the walks name files that exist, each once."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator

import pytest
from test_house import PACKAGE

pytestmark = pytest.mark.guards

PAGE = (PACKAGE.parent.parent / "docs/design.md").read_text()
CONTRACTS = tomllib.loads((PACKAGE.parent.parent / "contracts.toml").read_text())
WALKS = ("An acquire", "A pushed grant", "A lost lease", "A `once`")


def complaints(page: str) -> Iterator[str]:
    """What the page says wrongly of floors and files, or leaves out."""
    yield from wrong_floors(page)
    for walk in WALKS:
        yield from wrong_walk(page, walk)


def wrong_floors(page: str) -> Iterator[str]:
    """Parts that the page's table has on another floor than the contracts, or lacks."""
    table = page.partition("```text\n")[2].partition("```")[0].splitlines()
    _, *layers = CONTRACTS["tool"]["importlinter"]["contracts"][0]["layers"]
    for floor, (row, layer) in enumerate(zip(reversed(table), reversed(layers), strict=True)):
        for part in layer.replace("holdfast.", "").split(" : "):
            if part not in row.split() or row.split()[0] != str(floor):
                yield f"{part} is not on floor {floor} of the page"


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
