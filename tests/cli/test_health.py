"""What the tools say of each fault of a node, on real servers: docs/watching.md has it, and no two of them contradict each other."""

from __future__ import annotations

import asyncio
from itertools import combinations
from pathlib import Path

import pytest
from cli.health import FAULTS, MOST, ONE, PAGE, look, shown

SHOWN = shown(PAGE.read_text())


@pytest.mark.parametrize("where", [ONE, MOST])
@pytest.mark.parametrize("fault", FAULTS)
async def test_the_page_says_what_the_tools_say_of_a_fault(fault: str, where: str, tmp_path: Path) -> None:
    seen = await look([fault] * (1 if where == ONE else 2), tmp_path)
    assert seen.contradictions() == []
    assert seen.row(fault, where) in SHOWN, "PYTHONPATH=tests .venv/bin/python -m cli.health writes the page"


def test_the_page_has_each_fault_and_nothing_else() -> None:
    assert [tuple(it.split(" | ")[:2]) for it in SHOWN] == [(f"| {fault}", where) for fault in FAULTS for where in (ONE, MOST)]


@pytest.mark.parametrize("first", list(FAULTS)[:-1])
async def test_no_two_tools_contradict_each_other_about_two_faults(first: str, tmp_path: Path) -> None:
    pairs = [it for it in combinations(FAULTS, 2) if it[0] == first]
    gate = asyncio.Semaphore(3)

    async def contradictions(number: int, pair: tuple[str, str]) -> list[str]:
        folder = tmp_path / str(number)
        folder.mkdir()
        async with gate:
            seen = await look(pair, folder)
        return [f"{pair}: {seen}"] if seen.contradictions() or seen.majority else []

    wrong = await asyncio.gather(*[contradictions(number, pair) for number, pair in enumerate(pairs)])
    assert [it for them in wrong for it in them] == []
