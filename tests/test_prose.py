"""The measure of prose (`tests/prose.py`, which `./task lint --all` runs): each rule finds its planted fault, and only that."""

from __future__ import annotations

import prose
import pytest

pytestmark = pytest.mark.guards

PAGE, PUBLIC, INNER = "docs/lock.md", "src/holdfast/errors.py", "src/holdfast/protocol/claim.py"
PLAIN = "The client asks every node. A majority must answer. Then you hold it. You release it. Then it ends.\n"


def words(count: int) -> str:
    return "Word" + "\nword" * (count - 1) + "."


@pytest.mark.parametrize(
    "path, text, found",
    [
        (PAGE, "", None),
        (PAGE, "The node serves whoever asks.", "'whoever'"),
        (PAGE, "| case | It lists every option that there is. |", "'that there is'"),
        (PAGE, "A claim waits.", "house word 'claim'"),
        (PAGE, "[A claim waits](glossary.md#claim). Write `claim` here.\n```text\nA claim.\n```", None),
        (PAGE, words(33), "1 of 6 sentences have more than 32 words: 33 words in line 3"),
        (PAGE, f"```text\n{words(33)}\n```\n<!-- {words(33)} -->", None),
        (PAGE, " ".join([words(17)] * 6), "the median sentence has 17 words, more than 16"),
        (PAGE, "word " * 20 + ".", "line 3: 101 columns, more than 100"),
        ("docs/design.md", "A claim waits.", None),
        (PUBLIC, "# The client connects anew.", "'anew'"),
        (PUBLIC, "raise ValueError(f'The holder is told.')", "house word 'told'"),
        (PUBLIC, 'def a():\n    """The holder is told."""', "house word 'told'"),
        (PUBLIC, 'def _a():\n    """The holder is told."""', None),
        (PUBLIC, 'def a():\n    """Take it, and hold it\n    until it ends.\n    """', "the first line of a docstring does not"),
        (PUBLIC, 'def a():\n    """' + "word " * 20 + '."""', "line 4: 111 columns in a docstring, more than 100"),
        (PUBLIC, "a = 1  # type: ignore[whoever]", None),
        (INNER, 'def a():\n    """The holder is told."""', None),
        ("src/holdfast/scripts/a.lua", "-- Whoever asks is served.", "'whoever'"),
        ("task", "./task test  for whoever asks", "'whoever'"),
    ],
)  # fmt: skip
def test_a_fault_is_found(path: str, text: str, found: str | None) -> None:
    said = prose.complaints(path, (PLAIN if path.endswith(".md") else "\n") + f"\n{text}\n")
    assert said == [] if found is None else len(said) == 1 and found in said[0], said


def documented(name: str) -> int:
    """Do it.

    Args:
        name: A name.

    Returns:
        A number.

    Raises:
        ValueError: The name is empty.
    """
    if not name:
        raise ValueError(name)
    return 0


def test_a_section_that_a_docstring_lacks_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    assert prose.sections_missing("it", documented) == []
    whole = documented.__doc__ or ""
    for section in ("Args", "Returns", "Raises"):
        monkeypatch.setattr(documented, "__doc__", whole.replace(f"{section}:", ""))
        assert prose.sections_missing("it", documented) == [f"it has no section '{section}:'"]


def test_what_ships_is_measured() -> None:
    names = {name for name, _ in prose._public()}
    assert {"holdfast.Holdfast.lock", "holdfast.aio.Lock.acquire", "holdfast.Lease.extend"} <= names
    assert {"README.md", "docs/lock.md", "task", PUBLIC, "src/holdfast/scripts/request.lua"} <= set(prose.files())
