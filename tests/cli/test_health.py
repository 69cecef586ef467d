"""What the tools say of each fault of a node, on real servers: docs/watching.md has it, and no two of them contradict each other."""

from __future__ import annotations

import asyncio
from itertools import combinations
from pathlib import Path

import pytest
from cli.health import FAULTS, PAGE, look, row, shown

SHOWN = shown(PAGE.read_text())
TEXT = " ".join(PAGE.read_text().split())


@pytest.mark.parametrize("fault", FAULTS)
async def test_the_page_says_what_the_tools_say_of_a_fault(fault: str, tmp_path: Path) -> None:
    folders = [tmp_path / "one", tmp_path / "two"]
    for folder in folders:
        folder.mkdir()
    one, two = await asyncio.gather(look([fault], folders[0]), look([fault] * 2, folders[1]))
    assert one.contradictions() == two.contradictions() == []
    assert row(fault, one, two) in SHOWN, "PYTHONPATH=tests .venv/bin/python -m cli.health writes the page"
    assert one.outcome() in TEXT
    assert two.outcome() in TEXT
    # Two clocks that are wrong by the same time outvote the third.
    outvoted = fault == "clock is wrong"
    assert (one.acquire, two.acquire) == ("granted", "granted" if outvoted else "`NoQuorum`")
    assert outvoted or (one.state, one.log) == (two.state, two.log)


def test_the_page_has_each_fault_and_nothing_else() -> None:
    assert [it.split(" | ")[0] for it in SHOWN] == [f"| {fault}" for fault in FAULTS]


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
