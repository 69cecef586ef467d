"""Conversations as text: what is not said is missed, what is said besides is found, and a file can be written again."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import conversations
import pytest
from conversations import Differs, check, read, rewritten

TEXT = """# What it is about.

test_an_echo
# Why.
for word, mark = a b, 1 | c, 2
say $word
# Twice.
say $word $word
    $word
    $mark

test_silence
say nothing
"""


def ways(text: str) -> Mapping[str, Callable[[], conversations.Step]]:
    """One way, in which whatever is said for a second time comes back, with how often anything did."""

    def begins() -> conversations.Step:
        heard: list[str] = []

        def step(line: str) -> list[str]:
            words = line.removeprefix("say ")
            half = words[: len(words) // 2]
            if words != f"{half} {half}":
                return []
            heard.append(half)
            return [half, "1" if half == "a b" else "2"]

        return step

    return {"only way": begins}


def test_a_file_is_read_conversation_by_conversation_with_their_variants() -> None:
    echo, silence = read(TEXT)
    assert [(it.name, it.line) for it in (echo, silence)] == [("test_an_echo", 3), ("test_silence", 12)]
    assert list(echo.variants()) == [{"word": "a b", "mark": "1"}, {"word": "c", "mark": "2"}]
    assert list(silence.variants()) == [{}]
    assert [label for label, _, _ in conversations.plays(echo, ways)] == ["[only way-a b-1]", "[only way-c-2]"]


def wrong(text: str) -> list[str]:
    """The plays that go in another way than a text has it."""
    found = []
    for it in read(text):
        for label, meant, begins in conversations.plays(it, ways):
            try:
                check(meant, begins())
            except Differs:
                found.append(it.name + label)
    return found


ECHOES = ["test_an_echo[only way-a b-1]", "test_an_echo[only way-c-2]"]


@pytest.mark.parametrize(
    "before, after, found, again",
    [
        ("    $mark\n", "", ECHOES, "    1\n"),
        ("    $word\n", "    other\n", ECHOES, "    a b\n"),
        ("    $word\n", "    a b\n", ECHOES[1:], "    a b\n"),
        ("say nothing\n", "say nothing\n    so\n", ["test_silence[only way]"], "say nothing\n"),
    ],
)
def test_what_is_said_in_another_way_is_found(before: str, after: str, found: list[str], again: str) -> None:
    """When it is written again, what was no text of a variant is that of the first one."""
    assert wrong(TEXT) == []
    text = TEXT.replace(before, after)
    assert wrong(text) == found
    assert rewritten(text, ways) == TEXT.replace(before, again)


def test_a_difference_is_shown_line_by_line() -> None:
    with pytest.raises(Differs) as caught:
        check(["say a a", "    b"], ways("")["only way"]())
    assert str(caught.value).splitlines() == ["  say a a", "-     b", "+     a", "+     2"]


def test_what_is_right_is_rewritten_as_it_is() -> None:
    assert rewritten(TEXT, ways) == TEXT


def test_an_error_names_its_line() -> None:
    def step(line: str) -> list[str]:
        raise LookupError(line)

    with pytest.raises(LookupError) as caught:
        check(["# Why.", "say a a"], step)
    assert caught.value.__notes__ == ["in the line 'say a a'"]
