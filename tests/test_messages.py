"""docs/errors.md has an entry for everything that the library says.

The messages are read from the source: every log line, every warning about a node, every reason why
a node is not used, and every message of every error class. A message is on a page if the page has
its longest fixed part, or quotes some words of that: values are filled in between the parts, and "…"
stands for what a page leaves out. ConfigError, Misuse and BadFence are the exceptions. Their
messages say themselves what to write, so only what a message cannot say has an entry.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import get_args

import pytest
from test_docs import headings

from holdfast import errors, events

pytestmark = pytest.mark.guards

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src/holdfast"
PAGE = ROOT / "docs/errors.md"
WATCHING = ROOT / "docs/watching.md"
# Where an error is the `cause` of a node: it says why the node is not used.
CAUSES = (
    "protocol/nodes.py", "drivers/", "engine/engine.py", "engine/health.py", "engine/upkeep.py", "wire/connection.py", "wire/handshake.py",
)  # fmt: skip
KINDS = {"ConfigError", "ConnectionError", "OSError", "TimeoutError"}
# Functions there whose errors are no reason why a node is not used: they complain about arguments, or quote other reasons.
OTHERS = {"_contexts", "too_brief", "_tried", "accesses", "context", "prepare", "unusable"}
# Functions that return a text, or a ConfigError, which a warning about a node says.
WARNINGS = {
    "protocol/claim.py:_discounts",
    "protocol/claim.py:warning",
    "engine/health.py:_unbounded",
    "engine/registry.py:_setting",
    "engine/registry.py:_spread",
    "protocol/semaphore.py:differs",
}
# Functions all of whose texts are said, and tables of texts.
WHOLE = {"face/observers.py:_line", "events.py:__str__", "errors.py:__init__"}
TABLES = {
    "errors.py": "_WHY",
    "engine/health.py": "PROMOTED",
    "drivers/tls.py": "_VERIFICATION",
    "wire/handshake.py": "_ADVICE",
}
LEVELS = {"debug", "info", "warning", "error", "critical", "exception", "log"}
ERRORS = set(errors.__all__) - {"ConfigError", "Misuse", "BadFence"}  # whose messages say what to write
WORDS = 3  # quoted in a row: fewer identify no message
FEW = 5  # characters: a fixed part that is shorter identifies no message


def fixed(node: ast.AST) -> str:
    """The longest fixed part of a text: of a literal, an f-string, or a text with placeholders."""
    parts = [it.value for it in ast.walk(node) if isinstance(it, ast.Constant) and isinstance(it.value, str)]
    pieces = [piece for part in parts for piece in re.split(r"%\.?\d*[a-z]|\{[^}]*\}|\n", part)]
    return plain(max(pieces, key=len, default=""))


def plain(text: str) -> str:
    """The text without what Markdown adds, on one line."""
    return " ".join(re.sub(r"[`\\]", "", text).split())


def is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def assigned(where: ast.AST, name: str) -> list[ast.expr]:
    """What is assigned to a name there."""
    return [it.value for it in ast.walk(where) if isinstance(it, ast.Assign) and name in map(ast.unparse, it.targets)]


def says(path: str, function: str, called: str) -> bool:
    """Whether a call has a text that a user reads. `called`: what is called, such as `logger.info`."""
    name = called.rpartition(".")[2]
    logs = (name in LEVELS and "ogger" in called) or (name == "print" and path.startswith("drivers/"))
    causes = name in KINDS and path.startswith(CAUSES) and function not in OTHERS
    warns = name == "warn" and path.startswith("engine/")
    warns = warns or (name == "ConfigError" and f"{path}:{function}" in WARNINGS)
    return logs or causes or warns or name in ERRORS


def said(path: str, tree: ast.AST) -> Iterator[ast.AST]:
    """The texts that a module logs, warns with, gives as the cause of a node, or raises. A name stands for what is assigned to it."""
    for function in (it for it in ast.walk(tree) if isinstance(it, ast.FunctionDef | ast.AsyncFunctionDef)):
        where = f"{path}:{function.name}"
        for node in ast.walk(function):
            if isinstance(node, ast.Call) and says(path, function.name, called := ast.unparse(node.func)):
                for it in node.args[1:2] if called.endswith("warn") else node.args[:1]:
                    if isinstance(it, ast.Call) and isinstance(it.func, ast.Attribute):
                        it = it.func.value  # (a template that is filled in)
                    texts = (assigned(function, it.id) or assigned(tree, it.id)) if isinstance(it, ast.Name) else [it]
                    yield from filter(is_text, texts)
            elif isinstance(node, ast.Return) and where in WARNINGS and node.value is not None:
                yield node.value
            elif where in WHOLE and (isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and "%" in str(node.value))):
                yield node
    for value in assigned(tree, TABLES.get(path, "")):
        yield from value.values if isinstance(value, ast.Dict) else [value]


def missing(found: Mapping[str, str], page: str) -> list[str]:
    """The messages that a page does not have, and where they come from."""
    shown = plain(page)
    pieces = [plain(piece).strip(".,:;() ") for it in re.findall(r"`([^`\n]+)`", page) for piece in it.split("…")]
    quoted = [it for it in pieces if len(it.split()) >= WORDS]
    return [f"{where}: {text}" for text, where in found.items() if text not in shown and not any(it in text for it in quoted)]


def messages() -> dict[str, str]:
    """What the package says, and where, without what is there for tests and for servers in a temporary directory."""
    paths = [it.relative_to(SOURCE).as_posix() for it in sorted(SOURCE.rglob("*.py"))]
    paths = [it for it in paths if not it.startswith("testing/") and it != "embedded.py"]
    found = {fixed(it): f"{path}:{it.lineno}" for path in paths for it in said(path, ast.parse((SOURCE / path).read_text()))}
    return {text: where for text, where in found.items() if len(text) >= FEW}


def test_the_page_has_everything_that_users_and_operators_read() -> None:
    found = messages()
    assert len(found) > 100, "what is said was found"
    assert missing(found, PAGE.read_text()) == []


def test_every_error_class_has_the_heading_that_its_messages_name() -> None:
    anchors = headings(PAGE.read_text())
    for name in errors.__all__:
        kind = getattr(errors, name)
        page = kind.page.fget(kind.__new__(kind))
        assert page.removeprefix("holdfast/errors#") in anchors, name
    assert {*get_args(errors.MisuseReason), "bad_name"} - {"other"} <= anchors


def test_every_event_is_on_the_page_about_watching() -> None:
    kinds = set(events.__all__) - {"Event", "LockEvent", "LeaseEvent"}
    assert kinds == set(re.findall(r"^\| `(\w+)`.* \|$", WATCHING.read_text(), re.MULTILINE)) & set(events.__all__)
