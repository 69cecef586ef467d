"""The conversations as text: they stand as they would be written again, and what cannot be is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from conversations import rewritten
from protocol import script


@pytest.mark.parametrize("file", sorted(Path(script.__file__).parent.glob("*/*.txt")), ids=lambda it: f"{it.parent.name}/{it.stem}")
def test_the_conversations_are_as_they_would_be_rewritten(file: Path) -> None:
    assert rewritten(file.read_text(), script.ways) == file.read_text()


@pytest.mark.parametrize(
    "lines, complaint",
    [
        (["waits", "0.1: 0 granted; 1 granted; 2 denied"], "is said before '2 denied'"),
        (["waits", "0.1: 0 1 2 denied"], "is said before node 1"),
        (["waits", "0.1: 0 granted", "0.2: 0 granted"], "node 0 owes no answer"),
        (["waits", "0.1: nothing"], "'nothing'"),
        (["waits", "0.1: ?"], "what is '?'"),
        (["waits", "0.2: 0 granted", "0.1: 1 granted"], ""),
    ],
)
def test_a_conversation_that_cannot_be_is_refused(lines: list[str], complaint: str) -> None:
    step = script.ways("")[""]()
    for line in lines[:-1]:
        step(line)
    with pytest.raises((AssertionError, KeyError)) as caught:
        step(lines[-1])
    assert complaint in str(caught.value)


def test_a_moment_at_which_a_claim_does_not_want_to_be_woken_is_told() -> None:
    step = script.ways("")[""]()
    assert step("waits") == []
    assert step("2.5: wakes") == ["woken at 3"]
    assert step("6: wakes") == []
