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
from collections.abc import Callable, Iterator, Mapping
from functools import cache
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
# Where messages about a node come from: what is raised or returned there is the `cause` of a node.
CAUSES = (
    "protocol/nodes.py", "drivers/", "engine/engine.py", "engine/health.py", "engine/upkeep.py", "wire/connection.py", "wire/handshake.py",
)  # fmt: skip
# Functions whose errors are no reason why a node is not used: they complain about arguments, or quote other reasons.
OTHERS = {"_contexts", "too_brief", "_tried", "accesses", "context", "prepare", "unusable"}
KINDS = ("ConfigError", "ConnectionError", "OSError", "TimeoutError")
# Functions that return the text of a warning. `Engine` warns with what they return, and with no other text.
WARNINGS = {"warning", "difference", "told", "differs", "message_of", "str", "failure", "_unbounded", "format"}
TEXTS = (
    "protocol/claim.py:_discounts",
    "protocol/claim.py:warning",
    "engine/health.py:_unbounded",
    "engine/registry.py:_setting",
    "engine/registry.py:_spread",
    "protocol/semaphore.py:differs",
)
LEVELS = {"debug", "info", "warning", "error", "critical", "exception", "log"}
SAYING = {"ConfigError", "Misuse", "BadFence"}  # errors whose messages say what to write
WORDS = 3  # quoted in a row: fewer identify no message
FEW = 5  # characters: a fixed part that is shorter identifies no message
Found = dict[str, str]  # the fixed part of a message, and where it comes from


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


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (it for it in ast.walk(tree) if isinstance(it, ast.FunctionDef | ast.AsyncFunctionDef))


def name_of(call: ast.Call) -> str:
    """The name of what is called: of `a.b.c()` it is c."""
    return ast.unparse(call.func).rpartition(".")[2]


def assigned(where: ast.AST, name: str) -> list[ast.expr]:
    """What is assigned to a name there."""
    found = [it for it in ast.walk(where) if isinstance(it, ast.Assign)]
    return [it.value for it in found if name in map(ast.unparse, it.targets)]


def resolved(node: ast.expr, where: ast.AST, module: ast.AST) -> list[ast.expr]:
    """The texts that an expression can be: itself, or what its name stands for."""
    if isinstance(node, ast.Name):
        return assigned(where, node.id) or assigned(module, node.id)
    return [node]


@cache
def log_lines(path: str, source: str) -> Found:
    """What a file writes to the loggers, and to stderr."""
    found = {}
    tree = ast.parse(source)
    for function in functions(tree):
        for call in (it for it in ast.walk(function) if isinstance(it, ast.Call)):
            logs = name_of(call) in LEVELS and any(it in ast.dump(call.func) for it in ("getLogger", "id='logger'"))
            if logs or (name_of(call) == "print" and path.startswith("drivers/")):
                texts = [text for it in call.args[:1] for text in resolved(it, function, tree)]
                found.update({fixed(it): f"{path}:{call.lineno}" for it in texts})
        if path == "face/observers.py" and function.name == "_line":
            literals = [it for it in ast.walk(function) if isinstance(it, ast.Constant) and "%" in str(it.value)]
            found.update({fixed(it): f"{path}:{it.lineno}" for it in literals})
        if path == "events.py" and function.name == "__str__":
            strings = [it for it in ast.walk(function) if isinstance(it, ast.JoinedStr)]
            found.update({fixed(it): f"{path}:{it.lineno}" for it in strings})
    return long(found)


@cache
def warnings(path: str, source: str) -> Found:
    """The warnings about nodes. One whose text we do not find is "?", which is on no page."""
    found = {}
    tree = ast.parse(source)
    for function in functions(tree):
        if f"{path}:{function.name}" in TEXTS:
            returned = [it.value for it in ast.walk(function) if isinstance(it, ast.Return) and it.value is not None]
            made = [it for it in ast.walk(function) if isinstance(it, ast.Call) and name_of(it) == "ConfigError"]
            returned += [it.args[0] for it in made]
            found.update({fixed(it): f"{path}:{it.lineno}" for it in returned})
        calls = [it for it in ast.walk(function) if isinstance(it, ast.Call) and name_of(it) == "warn"]
        for call in calls if path.startswith("engine/") else []:
            for text in resolved(call.args[1], function, tree):
                found.update(dict.fromkeys(warned(text, function, tree), f"{path}:{call.lineno}"))
    return long(found)


def warned(text: ast.expr, function: ast.AST, tree: ast.AST) -> list[str]:
    """The fixed part of a warning. Nothing if a function of WARNINGS makes it: TEXTS has that."""
    if is_text(text):
        return [fixed(text)]
    if isinstance(text, ast.Call) and name_of(text) in WARNINGS:
        template = text.func.value if isinstance(text.func, ast.Attribute) else text
        return [fixed(it) for it in resolved(template, function, tree) if is_text(it)]
    return ["? (the text of a warning from elsewhere)"]


@cache
def causes(path: str, source: str) -> Found:
    """Why a node is not used."""
    found = {}
    tree = ast.parse(source if path.startswith(CAUSES) else "")
    for function in (it for it in functions(tree) if it.name not in OTHERS):
        for call in (it for it in ast.walk(function) if isinstance(it, ast.Call) and name_of(it) in KINDS and it.args):
            for text in resolved(call.args[0], function, tree):
                if is_text(text) or (isinstance(text, ast.Call) and name_of(text) == "format"):
                    found[fixed(text)] = f"{path}:{call.lineno}"
    for table in ("_ADVICE", "_ALERTS", "_VERIFICATION", "_SHARDED", "PROMOTED"):
        for value in assigned(tree, table):
            texts = [value]
            if isinstance(value, ast.Dict):
                texts = [it for it in (value.keys if table == "_ALERTS" else value.values) if it is not None]
            found.update({fixed(it): f"{path}:{it.lineno}" for it in texts if is_text(it)})
    return long(found)


@cache
def messages(path: str, source: str) -> Found:
    """The messages of all error classes but those of SAYING, wherever they are raised or returned."""
    names = set(errors.__all__) - SAYING
    found = {}
    tree = ast.parse(source)
    for function in functions(tree):
        for call in (it for it in ast.walk(function) if isinstance(it, ast.Call) and name_of(it) in names and it.args):
            texts = [it for it in resolved(call.args[0], function, tree) if is_text(it)]
            found.update(dict.fromkeys(map(fixed, texts), f"{path}:{call.lineno}"))
    if path == "errors.py":
        inits = [it for it in functions(tree) if it.name == "__init__"]
        parts = [it for init in inits for it in ast.walk(init) if isinstance(it, ast.JoinedStr)]
        words = [it for value in assigned(tree, "_WHY") for it in ast.walk(value) if isinstance(it, ast.Constant)]
        found.update({fixed(it): f"{path}:{it.lineno}" for it in (*parts, *words)})
    return long(found)


def long(found: Found) -> Found:
    return {text: where for text, where in found.items() if len(text) >= FEW}


def everywhere(collect: Callable[[str, str], Found], files: Mapping[str, str]) -> Found:
    """What is found in all files."""
    return {text: where for path, text_ in files.items() for text, where in collect(path, text_).items()}


def missing(found: Found, page: str) -> list[str]:
    """The messages that a page does not have, and where they come from."""
    shown = plain(page)
    pieces = [plain(piece).strip(".,:;() ") for it in re.findall(r"`([^`\n]+)`", page) for piece in it.split("…")]
    quoted = [it for it in pieces if len(it.split()) >= WORDS]
    return [f"{where}: {text}" for text, where in found.items() if text not in shown and not any(it in text for it in quoted)]


def source() -> dict[str, str]:
    """The package, without what is there for tests and for servers in a temporary directory."""
    files = {str(path.relative_to(SOURCE)): path.read_text() for path in sorted(SOURCE.rglob("*.py"))}
    return {path: text for path, text in files.items() if not path.startswith("testing/") and path != "embedded.py"}


@pytest.mark.parametrize("collect", [log_lines, warnings, causes], ids=lambda it: it.__name__)
def test_the_page_has_everything_that_operators_read(collect: Callable[[str, str], Found]) -> None:
    found = everywhere(collect, source())
    assert len(found) > 8, "what is said was found"
    assert missing(found, PAGE.read_text()) == []


def test_the_page_about_errors_has_every_message() -> None:
    found = everywhere(messages, source())
    assert len(found) > 20
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
