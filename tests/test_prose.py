"""Pages, docstrings, comments and messages are plain English, as far as a program can tell.

`tests/prose.py` measures: the length of sentences and lines, phrases that are banned, words of the
code on pages for users, and the sections of docstrings. Each rule has a planted fault here.
"""

from __future__ import annotations

from pathlib import Path

import prose
import pytest

pytestmark = pytest.mark.guards


@pytest.mark.parametrize("path", prose.files())
def test_the_prose_is_plain(path: str) -> None:
    assert prose.check(path) == []


SENTENCES = "The client asks every node. A majority must answer. Then you hold it. You release it. Then it ends.\n"


def page(text: str) -> list[str]:
    return prose.complaints("docs/lock.md", f"# A page\n\n{SENTENCES}\n{text}\n")


def module(text: str) -> list[str]:
    return prose.complaints("src/holdfast/errors.py", text)


def test_a_plain_page_has_no_complaint() -> None:
    assert page("") == []


BANNED = [
    ("whoever", "The node serves whoever asks."),
    ("is nothing", "Closing twice is nothing."),
    ("that there is", "It lists every option that there is."),
    ("anew", "The client connects anew."),
    ("belongs into", "The name belongs into the URL."),
    ("as ever", "The error is raised as ever."),
    ("so many", "At most so many hold a permit."),
    ("that which", "The node keeps that which it was sent."),
    ("than he wants", "The value is older than he wants."),
    ("in nobody's way", "A dead node is in nobody's way."),
    ("or the other way round", "A may come first, or the other way round."),
]
HOUSE = [
    ("claim", "A claim waits."),
    ("cede", "A waiter cedes its vote."),
    ("look (noun)", "A look costs one trip."),
    ("told", "The holder is told."),
    ("face", "Both faces do so."),
    ("rider", "A rider goes along."),
]


def test_every_banned_phrase_and_house_word_has_its_fault() -> None:
    assert [name for name, _ in BANNED] == list(prose.BANNED)
    assert [name for name, _ in HOUSE] == list(prose.HOUSE)


@pytest.mark.parametrize("name, text", BANNED)
def test_a_banned_phrase_is_found_wherever_it_stands(name: str, text: str) -> None:
    assert page(text) == [f"line 5: {name!r}"]
    assert page(f"- {text}\n")[0] == f"line 5: {name!r}"
    assert page(f"| case | {text} |") == [f"line 5: {name!r}"]
    assert page(f"## {text}") == [f"line 5: {name!r}"]
    assert page(f"A paragraph.\n{text}") == [f"line 5: {name!r}"]
    assert module(f'"""{text}"""\n') == [f"line 1: {name!r}"]
    assert module(f'class A:\n    b: int\n    """{text}"""\n') == [f"line 3: {name!r}"]
    assert module(f"a = 1\n# {text}\n") == [f"line 2: {name!r}"]
    assert module(f"a = {text!r}\n") == [f"line 1: {name!r}"]
    assert module(f"raise ValueError(f{text!r})\n") == [f"line 1: {name!r}"]
    assert prose.complaints("src/holdfast/scripts/a.lua", f"-- {text}\nreturn 1\n") == [f"line 1: {name!r}"]
    assert prose.complaints("task", f"#!/bin/sh\n# {text}\nexit 1\n") == [f"line 2: {name!r}"]
    assert prose.complaints("task", f"cat <<END\n./task test  {text}\nEND\n") == [f"line 2: {name!r}"]


@pytest.mark.parametrize("name, text", HOUSE)
def test_a_house_word_is_found_where_users_see_it(name: str, text: str) -> None:
    house = f"line 5: house word {name!r}"
    assert page(text) == [house]
    assert page(f"| case | {text} |") == [house]
    assert module(f'def a():\n    """{text}"""\n') == [f"line 2: house word {name!r}"]
    assert module(f"log.warning({text!r})\n") == [f"line 1: house word {name!r}"]
    assert module(f"raise ValueError(f{text!r})\n") == [f"line 1: house word {name!r}"]


@pytest.mark.parametrize("name, text", HOUSE)
def test_a_house_word_may_stand_where_users_do_not_see_it(name: str, text: str) -> None:
    assert prose.complaints("docs/design.md", text) == []
    assert page(f"[{text}](glossary.md#{name})") == []
    assert page(f"```python\n{text}\n```") == []
    assert page(f"Write `{text}` here.") == []
    assert module(f'def _a():\n    """{text}"""\n') == []
    assert module(f"a = 1\n# {text}\n") == []
    assert prose.complaints("src/holdfast/protocol/claim.py", f'def a():\n    """{text}"""\n') == []


def test_the_first_line_of_a_public_docstring_stands_alone() -> None:
    body = '"""Take the lock, and hold it\n    until its end.\n    """\n'
    wrong = "line 2: the first line of a docstring does not stand alone"
    assert module(f"def a():\n    {body}") == [wrong]
    assert module(f"class A:\n    {body}") == [wrong]
    assert module(f"def _a():\n    {body}") == []
    assert module(body) == []
    assert module(f"def a():\n    {body}".replace("lock, and hold it", "lock.\n")) == []
    assert prose.complaints("src/holdfast/protocol/claim.py", f"def a():\n    {body}") == []


def words(count: int) -> str:
    return " ".join(["Word", *["word"] * (count - 1)]) + "."


def test_long_sentences_are_found() -> None:
    assert page(words(prose.LONG).replace("word word ", "word\nword ")) == []
    found = page(words(prose.LONG + 1).replace("word word ", "word\nword "))
    assert found == ["1 of 6 sentences have more than 32 words: 33 words in line 5"]
    assert page("\n\n".join([words(3)] * 14 + [words(prose.LONG + 1)]).replace(" word", "\nword")) == []
    assert module(f'"""{words(40)}"""'.replace("word word ", "word\nword "))[0].startswith("1 of 1 sentences")
    assert module("a = 1\n# " + words(40).replace("word word ", "word\n# word "))[0].startswith("1 of 1 sentences")


def test_a_page_of_long_winded_sentences_is_found() -> None:
    sentence = "\n".join([words(17)] * 6)
    assert page(sentence) == ["the median sentence has 17 words, more than 16"]
    assert page(sentence.replace("word.", "`some code`.")) == ["the median sentence has 17 words, more than 16"]


def test_what_is_no_sentence_is_not_counted() -> None:
    long = words(40)
    assert page(f"```text\n{long}\n```") == []
    assert page(f"| a | {long} |") == []
    assert page(f"<!-- {long} -->") == []
    assert page(f"<!--\n{long}\n-->") == []
    assert page(f"![{long}](a.svg)") == []
    assert page(f"`{long}`".replace("word word", "word")) != page(long)
    assert module(f"a = {long!r}\n") == []


def test_a_sentence_ends_at_its_stop_and_at_the_end_of_its_paragraph() -> None:
    assert prose.sentences("One two three. Four five six? Seven eight nine! `Ten` eleven twelve.") == [3, 3, 3, 3]
    assert prose.sentences("Version 1.5 is here, e.g. today") == [6]
    items = "\n".join(f"- {words(10)[:-1]}" for _ in range(4))
    assert page(items) == []


def test_long_lines_are_found() -> None:
    line = "word " * 20
    assert page(f"{line}.") == ["line 5: 101 columns, more than 100"]
    assert page(f"See [this]({'a' * 100}).") == []
    assert page(f"| {line} |") == []
    assert page(f"```text\n{line * 2}\n```") == []
    assert module(f'def a():\n    """{line}."""\n') == ["line 2: 111 columns in a docstring, more than 100"]
    assert module("a = 1\n# " + "w" * 118 + "\n") == []
    assert module("a = 1\n# " + "w" * 119 + "\n") == ["line 2: 121 columns in a comment, more than 120"]


DOCSTRING = '''
def take(name):
    """Take the lock.

    Args:
        name: What to lock. It must not be empty, and the
            second line of an entry belongs to it.

    Returns:
        The lease.

    Example:
        with a that there is in code:
            whoever()

    And after that:

        code that there is

    >>> whoever()
    """
'''


def test_examples_in_docstrings_are_no_prose() -> None:
    assert module(DOCSTRING) == []
    assert module(DOCSTRING.replace("The lease.", "The lease that there is.")) == ["line 10: 'that there is'"]
    assert module(DOCSTRING.replace("second line", "second that there is")) == ["line 6: 'that there is'"]


def test_comments_for_tools_are_no_prose() -> None:
    assert module("a = 1  # type: ignore[whoever]\n") == []
    assert module("a = 1  # noqa: whoever\n") == []


def documented(name: str, wait: float) -> int:
    """Do it.

    Args:
        name: A name.
        wait: Seconds.

    Returns:
        A number.

    Raises:
        ValueError: The name is empty.
    """
    return int(wait) if name else 0


class Undocumented:
    """Nothing more."""

    def __init__(self, name: str) -> None:
        self.name = name

    def fail(self) -> None:
        """Fail."""
        raise ValueError(self.name)

    def be(self) -> None:
        """Do without any section."""


def test_sections_that_are_missing_are_found() -> None:
    assert prose.sections_missing("documented", documented) == []
    document = documented.__doc__ or ""
    for section in ("Args", "Returns", "Raises"):
        documented.__doc__ = document.replace(f"{section}:", "")
        try:
            assert prose.sections_missing("it", documented) == [f"it has no section '{section}:'"]
        finally:
            documented.__doc__ = document
    assert prose.sections_missing("it", Undocumented) == ["it has no section 'Args:'", "it has no section 'Raises:'"]
    assert prose.sections_missing("it", Undocumented.fail) == ["it has no section 'Raises:'"]
    assert prose.sections_missing("it", Undocumented.be) == []


def test_what_ships_is_measured() -> None:
    found = {name for file in prose.callables().values() for line in file for name in [line.split()[0]]}
    known = {name for name, _ in prose._public()}
    assert {"holdfast.Holdfast", "holdfast.Holdfast.lock", "holdfast.aio.Lock.acquire", "holdfast.Lease.extend"} <= known
    assert found <= known
    # Users implement a protocol and never call it, so only its methods need sections.
    assert "holdfast.fencing.Cursor.execute" in known and "holdfast.fencing.Cursor" not in known
    pages = {"README.md", "CHANGELOG.md", "CONTRIBUTING.md", "docs/lock.md", "examples/README.md", "task"}
    assert pages | {"src/holdfast/errors.py", "src/holdfast/scripts/request.lua"} <= set(prose.files())
    for path in ("README.md", "docs/lock.md", "examples/README.md"):
        text = Path(prose.ROOT, path).read_text()
        planted = f"{text}\n\nAsk whoever leads.\n"
        assert f"line {len(planted.splitlines())}: 'whoever'" in prose.complaints(path, planted)
