"""What the tools say of each fault of a node, on real servers: docs/watching.md has it, and no two of them contradict each other."""

from __future__ import annotations

import asyncio
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
    assert row(fault, one, two) in SHOWN
    assert one.outcome() in TEXT
    assert two.outcome() in TEXT
    # Two clocks that are wrong by the same time outvote the third.
    outvoted = fault == "clock is wrong"
    assert (one.acquire, two.acquire) == ("granted", "granted" if outvoted else "`NoQuorum`")
    assert outvoted or (one.state, one.log) == (two.state, two.log)


def test_the_page_has_each_fault_and_nothing_else() -> None:
    assert [it.split(" | ")[0] for it in SHOWN] == [f"| {fault}" for fault in FAULTS]
