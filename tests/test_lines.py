"""Lines, comments and lengths of functions in `src/holdfast`.

Prose (docstrings and comments) has 100 columns: `tests/test_prose.py` measures that. A comment stands
above what it explains, except beside an enum's member, a constant's unit or a directive for a tool.
What type checkers and linters are told to ignore has its reason beside it, or in the comment above.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.guards

SOURCE = Path(__file__).parent.parent / "src/holdfast"
CODE = 120  # columns
FUNCTION = 40  # lines, from `def` to the end
# Longer functions, each with its reason.
LONG = {
    "protocol/claim.py:Claim.__init__": "one line for each of its fields",
    "drivers/aio/driver.py:Driver.__init__": "one line for each of its fields",
    "drivers/threads/io_thread.py:IOThread.__init__": "one line for each of its fields",
    "engine/engine.py:Engine.__init__": "one line for each of its fields",
    "engine/engine.py:Engine.act": "on the way of every acquire, where tests/test_budget.py counts each call",
    "engine/settings.py:settings": "one line for each option, as an argument and in the result",
    "wire/connection.py:Connection.__init__": "one line for each of its fields",
    "wire/connection.py:Connection.received": "on the way of every answer, where a call costs as much as ten lines",
}
# What a tool is told to ignore, with nothing after it but other such.
UNREASONED = re.compile(r"(?:#\s*(?:type:\s*ignore|pyright:\s*ignore|noqa)(?:\[[^\]]*\]|:\s*[A-Z0-9]+(?:,\s*[A-Z0-9]+)*)?\s*)+")
DIRECTIVES = re.compile(r"#\s*(?:type:|noqa|fmt:|pragma|pyright:|https?://)")
# A trailing comment of few words tells a unit, or what a member means.
UNIT = 60  # characters


def modules() -> list[str]:
    """All modules."""
    return [str(it.relative_to(SOURCE)) for it in sorted(SOURCE.rglob("*.py"))]


def wrong(name: str, text: str) -> Iterator[str]:
    """What is too long, and which comments hang behind code."""
    for number, line in enumerate(text.splitlines(), 1):
        if len(line) > CODE:
            yield f"{name}:{number}: {len(line)} columns"
    yield from trailing(name, text)
    yield from unreasoned(name, text)
    yield from long_functions(name, ast.parse(text))


def trailing(name: str, text: str) -> Iterator[str]:
    """Comments behind code that are more than a unit or a directive."""
    tree = ast.parse(text)
    # Names at the top of a module or a class: constants, members, attributes.
    fields = {
        it.lineno
        for body in [tree.body, *[it.body for it in ast.walk(tree) if isinstance(it, ast.ClassDef)]]
        for it in body
        if isinstance(it, ast.Assign | ast.AnnAssign)
    }
    before = 0
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT and token.start[0] == before and not DIRECTIVES.match(token.string):
            if token.start[0] not in fields or len(token.string) > UNIT:
                yield f"{name}:{token.start[0]}: {token.string}"
        elif token.type not in (tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT):
            before = token.end[0]


def unreasoned(name: str, text: str) -> Iterator[str]:
    """Directives to ignore something, without a reason."""
    above = -1
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type != tokenize.COMMENT:
            continue
        line = token.start[0]
        if token.line.lstrip().startswith("#"):
            above = line
        elif UNREASONED.fullmatch(token.string) and above != line - 1:
            yield f"{name}:{line}: no reason for {token.string}"


def long_functions(name: str, tree: ast.Module) -> Iterator[str]:
    """Functions of more lines than a reader keeps in mind, without their docstrings."""

    def visit(node: ast.AST, path: str) -> Iterator[str]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.ClassDef):
                yield from visit(child, f"{path}{child.name}.")
            elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (child.end_lineno or child.lineno) - child.lineno + 1
                if ast.get_docstring(child) is not None:
                    lines -= (child.body[0].end_lineno or 0) - child.body[0].lineno + 1
                where = f"{name}:{path}{child.name}"
                if lines > FUNCTION and where not in LONG:
                    yield f"{where}: {lines} lines"
                yield from visit(child, f"{path}{child.name}.")

    yield from visit(tree, "")


@pytest.mark.parametrize("name", modules())
def test_lines_comments_and_functions(name: str) -> None:
    assert list(wrong(name, (SOURCE / name).read_text())) == []


def test_what_checkers_ignore_outside_of_the_package_has_a_reason() -> None:
    root = SOURCE.parent.parent
    files = [it for folder in ("bench", "docs", "examples", "spec", "tests") for it in sorted((root / folder).rglob("*.py"))]
    # (What `./task bench` installs is not ours.)
    files = [it for it in files if "site-packages" not in it.parts]
    assert [said for it in files for said in unreasoned(str(it.relative_to(root)), it.read_text())] == []


def test_every_exception_is_needed() -> None:
    known = dict(LONG)
    LONG.clear()
    try:
        found = {it.rpartition(": ")[0] for name in modules() for it in wrong(name, (SOURCE / name).read_text())}
    finally:
        LONG.update(known)
    assert found == known.keys()


@pytest.mark.parametrize(
    "planted, found",
    [
        ("x = " + "1 + " * 40 + "1\n", "m.py:1: 165 columns"),
        ("def f():\n    return 1  # the first\n", "m.py:2: # the first"),
        ("LIMIT = 3  # seconds\n", None),
        ("LIMIT = 3  # seconds after which the client gives up, because nobody answers\n", "m.py:1: # seconds after which"),
        ("import a  # noqa: F401 (others import it from here)\n", None),
        ("# Others import it from here.\nimport a  # noqa: F401\n", None),
        ("import a  # noqa: F401\n", "m.py:1: no reason for # noqa: F401"),
        ("# Why.\nimport a\nimport b  # type: ignore[misc]\n", "m.py:3: no reason for # type: ignore[misc]"),
        ("import a  # type: ignore[misc]  # noqa: F401, E402\n", "m.py:1: no reason for # type"),
        ("import a  # type: ignore[misc]  # (it has no types)\n", None),
        ("def f():\n    # Why.\n    return 1\n", None),
        ("class A:\n    def f(self):\n" + "        f()\n" * 40, "m.py:A.f: 41 lines"),
        ('def f():\n    """One.\n\n' + "    Two.\n" * 50 + '    """\n', None),
    ],
)
def test_a_fault_is_found(planted: str, found: str | None) -> None:
    said = list(wrong("m.py", planted))
    assert (said == []) if found is None else (len(said) == 1 and said[0].startswith(found)), said
