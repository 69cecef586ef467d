"""Measures the prose of the project: pages, docstrings, comments and messages.

Run it with files to see what is wrong in them: `.venv/bin/python tests/prose.py docs/lock.md`.
Without files it reports every page and module, as `./task lint --all` does.

Knows how Markdown, Python and Lua mark prose. Must not know which pages exist.
"""

from __future__ import annotations

import ast
import dataclasses
import enum
import functools
import inspect
import io
import re
import statistics
import sys
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).parent.parent

MEDIAN = 16  # words a sentence
LONG = 32  # words; at most one sentence in twenty is longer
ENOUGH = 5  # sentences, below which a median says little
PROSE_COLUMNS = 100  # Markdown and docstrings
CODE_COLUMNS = 120  # comments

BANNED = {
    "whoever": r"\bwho(?:m)?ever\b",
    "is nothing": r"\b(?:is|are) nothing\b",
    "that there is": r"\bthat there (?:is|are)\b",
    "anew": r"\banew\b",
    "belongs into": r"\bbelong(?:s|ing)? into\b",
    "as ever": r"\bas ever\b",
    "so many": r"\bso many\b",
    "that which": r"\bthat which\b",
    "than he wants": r"\bthan (?:he|she|it) wants\b",
    "in nobody's way": r"\bin (?:nobody|no one)'s way\b",
    "or the other way round": r"\bor the other way round\b",
}
# Words of the code that a user does not know.
HOUSE = {
    "claim": r"\bclaims?\b",
    "cede": r"\b(?:cede[ds]?|ceding)\b",
    "look (noun)": r"\b(?:an?|the|one|each|every|its|their|your|first|next|last|by|more|quick) looks?\b",
    "told": r"\btold\b",
    "face": r"\bfaces?\b",
    "rider": r"\briders?\b",
}
# Pages for contributors, which may use the words of the code.
HOUSE_PAGES = {
    "CONTRIBUTING.md",
    "docs/design.md",
    "docs/proof.md",
    "docs/protocol.md",
    "docs/protocol-primitives.md",
    "docs/reliability.md",
}
# Modules whose public names users see. Their docstrings are the reference.
PUBLIC = (
    "holdfast",
    "holdfast.aio",
    "holdfast.compat.redis",
    "holdfast.compat.redis.aio",
    "holdfast.config",
    "holdfast.embedded",
    "holdfast.fencing",
    "holdfast.fencing.http",
    "holdfast.fencing.redis",
    "holdfast.fencing.sqlalchemy",
    "holdfast.integrations.asgi",
    "holdfast.integrations.fastapi",
    "holdfast.integrations.idempotency",
    "holdfast.testing",
    "holdfast.typing",
)
SHOWN = {"src/holdfast/__init__.py", "src/holdfast/errors.py", "src/holdfast/events.py"}  # Shown, though without callables.
CLIENTS = ("holdfast", "holdfast.aio", "holdfast.typing")  # Only a client makes the objects of these modules, save itself.
SAYING = {"debug", "info", "warning", "error", "critical", "exception", "log", "warn", "add_note"}
SECTIONS = ("Args", "Returns", "Yields", "Raises", "Attributes", "Example", "Examples", "Note", "Notes")

_SECTION = re.compile(rf"(?:{'|'.join(SECTIONS)}):\s*")
_IMAGE = re.compile(r"!\[[^\]]*\]\([^)]*\)")
_LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")
_CODE = re.compile(r"(`+)(?:(?!`).)+?\1")
_ITEM = re.compile(r"\s*(?:[*+-]|\d+\.)\s+")
_BREAK = re.compile(r"(?<=[.!?])[\"')\]*_]*\s+(?=[^a-z\s])")


class Kind(enum.Enum):
    TEXT = "text"
    TABLE = "table"
    HEADING = "heading"
    DOCSTRING = "docstring"
    COMMENT = "comment"
    MESSAGE = "message"


@dataclass(frozen=True)
class Passage:
    """A piece of prose. `line`: its first line in the file, from 1; `shown`: whether users see it."""

    line: int
    kind: Kind
    text: str
    shown: bool = True


def complaints(path: str, text: str) -> list[str]:
    """List what is wrong with the prose of one file.

    Args:
        path: The file, below the root of the project. Its ending decides how it is read: Markdown,
            Lua, Python, and otherwise a shell script.
        text: What the file contains.

    Returns:
        One line for each complaint, with the number of the line where there is one.
    """
    if path.endswith(".md"):
        found = list(_markdown(text.splitlines()))
        shown = path not in HOUSE_PAGES
    elif path.endswith(".lua"):
        found, shown = list(_lua(text)), False
    elif path.endswith(".py"):
        found, shown = list(_python(text, path in callables() or path in SHOWN)), True
    else:
        found, shown = list(_shell(text)), True
    wrong = []
    for passage in found:
        wrong += [f"line {passage.line}: {it!r}" for it in _matching(BANNED, passage.text)]
        if shown and passage.shown:
            wrong += [f"line {passage.line}: house word {it!r}" for it in _matching(HOUSE, passage.text)]
    if path in callables() or path in SHOWN:
        wrong += _first_lines(text)
    return wrong + list(_lengths(found)) + list(_columns(path, text))


def _first_lines(text: str) -> Iterator[str]:
    """Yield the docstrings that users see whose first line does not stand alone, as in a pop-up."""
    for node, shown in _documented(ast.parse(text), shown=True):
        _, *rest = inspect.cleandoc(str(node.value)).splitlines()
        if shown and rest and rest[0].strip():
            yield f"line {node.lineno}: the first line of a docstring does not stand alone"


def _matching(patterns: dict[str, str], text: str) -> list[str]:
    plain = _plain(text)
    return [name for name, pattern in patterns.items() if re.search(pattern, plain, re.IGNORECASE)]


def _plain(text: str) -> str:
    """Return prose without markup. Code counts as one word; of a link, its text remains."""
    without = _CODE.sub("CODE", _IMAGE.sub(" ", text))
    return re.sub(r"\*\*|__|\*", "", _LINK.sub(r"\1", without))


def sentences(text: str) -> list[int]:
    """Return the number of words of each sentence. Fragments of fewer than three words do not count."""
    counts = [len(re.findall(r"\S*\w\S*", it)) for it in _BREAK.split(_plain(text))]
    return [it for it in counts if it > 2]


def _lengths(found: list[Passage]) -> Iterator[str]:
    measured = {Kind.TEXT, Kind.DOCSTRING, Kind.COMMENT}
    counts = [(words, it.line) for it in found if it.kind in measured for words in sentences(it.text)]
    if len(counts) >= ENOUGH and (median := statistics.median(words for words, _ in counts)) > MEDIAN:
        yield f"the median sentence has {median:g} words, more than {MEDIAN}"
    long = [(words, line) for words, line in counts if words > LONG]
    if len(long) > len(counts) // 20:
        where = ", ".join(f"{words} words in line {line}" for words, line in sorted(long, reverse=True))
        yield f"{len(long)} of {len(counts)} sentences have more than {LONG} words: {where}"


def _columns(path: str, text: str) -> Iterator[str]:
    if path.endswith(".md"):
        for number, line in _prose_lines(text.splitlines()):
            # A link or a table row cannot be broken everywhere; a line that is one is left alone.
            if len(line) > PROSE_COLUMNS and not line.lstrip().startswith(("|", "<", "![")) and "](" not in line:
                yield f"line {number}: {len(line)} columns, more than {PROSE_COLUMNS}"
    elif path.endswith(".py"):
        lines = text.splitlines()
        for first, last in _docstring_lines(ast.parse(text)):
            for number in range(first, last + 1):
                if len(lines[number - 1]) > PROSE_COLUMNS:
                    yield f"line {number}: {len(lines[number - 1])} columns in a docstring, more than {PROSE_COLUMNS}"
        for number, line in enumerate(lines, 1):
            if line.lstrip().startswith("#") and len(line) > CODE_COLUMNS:
                yield f"line {number}: {len(line)} columns in a comment, more than {CODE_COLUMNS}"


def _prose_lines(lines: list[str]) -> Iterator[tuple[int, str]]:
    """Yield the numbered lines of a page without its code blocks and HTML comments."""
    closing = ""
    for number, line in enumerate(lines, 1):
        stripped = line.strip()
        if closing:
            if stripped == closing or (closing == "-->" and closing in stripped):
                closing = ""
        elif fence := re.match(r"`{3,}|~{3,}", stripped):
            closing = fence[0]
        elif stripped.startswith("<!--"):
            closing = "" if "-->" in stripped else "-->"
        else:
            yield number, line


def _markdown(lines: list[str]) -> Iterator[Passage]:
    """Yield paragraphs, list items, headings and rows of tables."""
    first, parts = 0, list[str]()
    last = 0
    for number, line in [*_prose_lines(lines), (len(lines) + 2, "")]:
        stripped = line.strip().removeprefix("> ").removeprefix(">")
        starts = bool(_ITEM.match(line)) or not stripped or stripped.startswith(("#", "|", "<")) or number != last + 1
        if starts and parts:
            yield Passage(first, Kind.TEXT, " ".join(parts))
            parts = []
        last = number
        if stripped.startswith("#"):
            yield Passage(number, Kind.HEADING, stripped.lstrip("# "))
        elif stripped.startswith("|"):
            yield Passage(number, Kind.TABLE, stripped)
        elif stripped and not stripped.startswith("<"):
            if not parts:
                first = number
            parts.append(_ITEM.sub("", line, count=1).strip() if _ITEM.match(line) else stripped)


def _lua(text: str) -> Iterator[Passage]:
    yield from _comments([(number, line.strip()) for number, line in enumerate(text.splitlines(), 1)], "--")


def _shell(text: str) -> Iterator[Passage]:
    """Yield comments, and the lines of the help."""
    lines = list(enumerate(text.splitlines(), 1))
    yield from _comments([(number, line.strip()) for number, line in lines if not line.startswith("#!")], "#")
    for number, line in lines:
        if line.startswith("./task "):
            yield Passage(number, Kind.MESSAGE, line)


def _comments(lines: list[tuple[int, str]], mark: str) -> Iterator[Passage]:
    """Yield comments; comments in lines that follow each other are one."""
    first, last, parts = 0, 0, list[str]()
    for number, line in lines:
        if not line.startswith(mark):
            continue
        if parts and number != last + 1:
            yield Passage(first, Kind.COMMENT, " ".join(parts), shown=False)
            parts = []
        if not parts:
            first = number
        last = number
        parts.append(line.lstrip(mark).strip())
    if parts:
        yield Passage(first, Kind.COMMENT, " ".join(parts), shown=False)


def _python(text: str, public: bool) -> Iterator[Passage]:
    tree = ast.parse(text)
    docstrings = set()
    for node, shown in _documented(tree, shown=public):
        docstrings.add(id(node))
        yield from _docstring(node, shown)
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    said = [(it.start[0], it.string) for it in tokens if it.type == tokenize.COMMENT]
    # What a tool reads is no prose.
    yield from _comments([(line, it) for line, it in said if not re.match(r"# (?:type:|noqa|pragma|pyright|fmt:)|#!", it)], "#")
    yield from _messages(tree, docstrings)


def _documented(node: ast.AST, *, shown: bool) -> Iterator[tuple[ast.Constant, bool]]:
    """Yield every docstring, attributes' too, and whether users see it: whether all names around it are public."""
    body = getattr(node, "body", None)
    if isinstance(body, list):
        for before, it in zip([None, *body], body, strict=False):
            # A module's own docstring is for those who read the code.
            seen = shown and not (before is None and isinstance(node, ast.Module))
            first = before is None and isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef))
            attribute = isinstance(before, (ast.Assign, ast.AnnAssign))
            if (first or attribute) and isinstance(it, ast.Expr) and isinstance(it.value, ast.Constant) and isinstance(it.value.value, str):
                yield it.value, seen
    for child in ast.iter_child_nodes(node):
        name = getattr(child, "name", "")
        if isinstance(child, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            yield from _documented(child, shown=shown and not name.startswith("_"))
        else:
            yield from _documented(child, shown=shown)


def _docstring_lines(tree: ast.AST) -> Iterator[tuple[int, int]]:
    for node, _ in _documented(tree, shown=True):
        yield node.lineno, node.end_lineno or node.lineno


def _docstring(node: ast.Constant, shown: bool) -> Iterator[Passage]:
    """Yield a docstring's paragraphs and the entries of its sections, without its examples."""
    lines = inspect.cleandoc(str(node.value)).splitlines()
    kept, section, blank = list[str](), "", True
    for line in lines:
        if _SECTION.fullmatch(line):
            section, line = line.partition(":")[0], ""
        elif line and not line.startswith(" "):
            section = ""
        indented = line.startswith("    ")
        code = line.lstrip().startswith((">>>", "...")) or (indented and (section.startswith("Example") or (not section and blank)))
        if section and not code and re.match(r" {4}[\w*.`, ]+: ", line):
            # An entry: its name is no word of a sentence, and its text is a paragraph of its own.
            line = "- " + line.partition(": ")[2]
        kept.append("" if code else line.strip() if section else line)
        blank = code or not line.strip()
    for it in _markdown(kept):
        yield Passage(node.lineno + it.line - 1, Kind.DOCSTRING, it.text, shown)


def _messages(tree: ast.AST, docstrings: set[int]) -> Iterator[Passage]:
    """Yield texts with more than one word. Users see those that are raised or logged."""
    raised = set()
    for node in ast.walk(tree):
        called = isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", "")) in SAYING
        if called or isinstance(node, ast.Raise):
            raised |= {id(it) for it in ast.walk(node)}
    parts = {id(it) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for it in ast.walk(node) if it is not node}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            text = "".join(str(it.value) if isinstance(it, ast.Constant) else "x" for it in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings | parts:
            text = node.value
        else:
            continue
        if " " in text.strip():
            yield Passage(node.lineno, Kind.MESSAGE, text, id(node) in raised)


def sections_missing(name: str, it: object) -> list[str]:
    """Name the sections that the docstring of a public callable should have and lacks.

    Args:
        name: What to call it in complaints.
        it: The callable. A class stands for its constructor.

    Returns:
        One line for each of `Args:`, `Returns:` and `Raises:` that is missing. `Args:` is needed by
        what takes arguments, `Returns:` by what returns something, `Raises:` by what takes arguments,
        which can be wrong, and by what has a `raise` of its own.
    """
    try:
        signature = inspect.signature(it)  # type: ignore[arg-type]  # (any object)
    except (TypeError, ValueError):
        return []
    arguments = [its for its in signature.parameters if its not in ("self", "cls")]
    returned = signature.return_annotation
    document = inspect.getdoc(it) or ""
    if inspect.isclass(it):
        document += inspect.getdoc(it.__init__) or ""
    try:
        raises = bool(arguments) or bool(re.search(r"^\s*raise \w", inspect.getsource(inspect.unwrap(it)), re.MULTILINE))  # type: ignore[arg-type]  # (any object)
    except (OSError, TypeError):
        raises = bool(arguments)
    wanted = {
        "Args": bool(arguments),
        "Returns": not inspect.isclass(it) and returned not in (None, "None", inspect.Signature.empty),
        "Raises": raises,
    }
    got = set(re.findall(rf"^\s*({'|'.join(SECTIONS)}):", document, re.MULTILINE)) | ({"Returns"} if "Yields:" in document else set())
    return [f"{name} has no section '{section}:'" for section, needed in wanted.items() if needed and section not in got]


def _public() -> Iterator[tuple[str, object]]:
    """Yield the public callables: functions, methods, and constructors that users call."""
    for module_name in PUBLIC:
        module = import_module(module_name)
        for name in module.__all__:
            it = getattr(module, name)
            if not inspect.isclass(it):
                if inspect.isfunction(it):
                    yield f"{module_name}.{name}", it
                continue
            plain = not issubclass(it, (BaseException, enum.Enum, tuple)) and not dataclasses.is_dataclass(it)
            # Nobody calls a protocol.
            plain = plain and not getattr(it, "_is_protocol", False)
            if plain and (module_name not in CLIENTS or name == "Holdfast"):
                yield f"{module_name}.{name}", it
            for member in dir(it):
                found = inspect.getattr_static(it, member)
                inner = found.__func__ if isinstance(found, (classmethod, staticmethod)) else found
                if not member.startswith("_") and inspect.isfunction(inner) and inner.__module__.startswith("holdfast"):
                    yield f"{module_name}.{name}.{member}", inner


@functools.cache
def callables() -> dict[str, list[str]]:
    """Return the complaints about public callables, by the file that defines each."""
    found: dict[str, list[str]] = {}
    for name, it in _public():
        file = inspect.getsourcefile(inspect.unwrap(it))  # type: ignore[arg-type]  # (any object)
        if file is not None and Path(file).is_relative_to(ROOT / "src"):
            missing = found.setdefault(Path(file).relative_to(ROOT).as_posix(), [])
            missing += [line for line in sections_missing(name, it) if line not in missing]
    return found


def files() -> list[str]:
    """Return every page and module that is measured, below the root of the project."""
    pages = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "examples/README.md", "docs/**/*.md")
    patterns = (*pages, "task", "src/**/*.py", "src/**/*.lua")
    return sorted({path.relative_to(ROOT).as_posix() for pattern in patterns for path in ROOT.glob(pattern)})


def check(path: str) -> list[str]:
    """List what is wrong with one file of the project."""
    return complaints(path, (ROOT / path).read_text()) + callables().get(path, [])


def main() -> None:
    """Print the complaints about the files that are named, or about all."""
    wrong = False
    for path in sys.argv[1:] or files():
        for it in check(Path(path).resolve().relative_to(ROOT).as_posix()):
            print(f"{path}: {it}")
            wrong = True
    sys.exit(wrong)


if __name__ == "__main__":
    main()
