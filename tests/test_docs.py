"""Every code block of the documentation runs, and what it points at is there.

Python runs as a program, against real servers. A line of shell is a task that there is, an installation with extras that there
are, or a command to a server, which is sent to a real one; any other line is refused. A server's configuration starts a real
server. Sockets lead to files and headings that exist, and tests that are named exist.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
import shlex
import signal
import subprocess
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest
import redis
import yaml

from holdfast import Holdfast, events
from holdfast.cli.options import Usage, parser_of
from holdfast.embedded import Nodes

pytestmark = pytest.mark.pages

ROOT = Path(__file__).parent.parent
DOCUMENTS = sorted(path for pattern in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs/**/*.md") for path in ROOT.glob(pattern))
# Pages whose programs need a framework that .venv may not have. `./task guests` runs these.
NEEDS = {f"docs/{it}.md": it for it in ("celery", "django")}
# This one needs several.
NEEDS["docs/frameworks.md"] = "huey"
RUNNABLE = [it for it in DOCUMENTS if find_spec(NEEDS.get(str(it.relative_to(ROOT)), "pytest")) is not None]
EXTRAS = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"])
EXEMPTIONS = 2  # in the whole project: what is not run is soon not true
_FENCE = re.compile(r"(?P<indent> *)(?P<fence>`{3,}|~{3,}) *(?P<language>\w*)")
_NOT_RUN = re.compile(r" *<!-- not run:(?P<reason>.*)-->")


@dataclass(frozen=True)
class Block:
    """A fenced block. `line`: of its first line of text, from 1; `exempt`: why it is not run; None if it is."""

    language: str
    line: int
    text: str
    exempt: str | None


def blocks(document: str) -> Iterator[Block]:
    """The fenced blocks of a text in Markdown."""
    lines = document.splitlines()
    at = 0
    while at < len(lines):
        opened = _FENCE.match(lines[at])
        at += 1
        if not opened:
            continue
        first = at
        while at < len(lines) and lines[at].strip() != opened["fence"]:
            at += 1
        said = _NOT_RUN.fullmatch(lines[first - 2]) if first > 1 else None
        # A block in a list is indented as the list is. Lines may have less than that only if they are empty.
        text = "".join(line.removeprefix(opened["indent"]) + "\n" for line in lines[first:at])
        yield Block(opened["language"], first + 1, text, said["reason"].strip() if said else None)
        at += 1


def run(document: Path) -> None:
    """Run a document's blocks of Python, in order, in one namespace and one event loop, as a reader would who types them in."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    with asyncio.Runner() as runner:
        for block in blocks(document.read_text()):
            if block.language == "python" and block.exempt is None:
                # Moved down to where it is in the document, so that tracebacks show the very lines.
                source = "\n" * (block.line - 1) + block.text
                code = compile(source, document, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
                result = eval(code, namespace)
                if inspect.iscoroutine(result):
                    runner.run(result)


def wrong_lines(document: str, tasks: set[str], extras: set[str], send: Callable[[list[str]], object]) -> list[str]:
    """The lines of a text's shell blocks that nobody could type: see the top of this file."""
    return [
        line.strip()
        for block in blocks(document)
        if block.language == "sh" and block.exempt is None
        for line in block.text.splitlines()
        if (words := shlex.split(line, comments=True)) and not _can_be_typed(words, tasks, extras, send)
    ]


def _can_be_typed(words: list[str], tasks: set[str], extras: set[str], send: Callable[[list[str]], object]) -> bool:
    match words:
        case ["./task", *rest]:
            return (rest or ["help"])[0] in tasks
        case ["pip", "install", *wanted]:
            # (A point is a clone of the repository.)
            found = [re.fullmatch(r"(?:holdfast|\.)(?:\[([a-z,]+)\])?", it) for it in wanted]
            return all(it is not None and set((it[1] or "").split(",")) - {""} <= extras for it in found)
        case ["holdfast", verb, *rest]:
            try:
                parser_of(verb).parse_args(rest)
            except Usage:
                return False
            return True
        case ["redis-cli", *rest]:
            while rest[:1] in (["-h"], ["-p"]):
                rest = rest[2:]
            try:
                send(rest)
            except redis.RedisError:
                return False
            return bool(rest)
    return False


def arguments(configuration: str) -> list[str]:
    """A server's command line that says the same as lines of its configuration file."""
    said = [shlex.split(line, comments=True) for line in configuration.splitlines()]
    return [it for words in said if words for it in (f"--{words[0]}", *words[1:])]


def dead_links(document: Path) -> list[str]:
    """What a text links to within the project, and is not there: a file, a heading in it, a test or mutant that the title names."""
    wrong = []
    for target, anchor, test in re.findall(r'\]\((?!\w+:)([^)#\s]*)(?:#([^)\s]+))?(?:\s+"([^"]*)")?\)', without_code(document.read_text())):
        file = (document.parent / target).resolve() if target else document
        text = file.read_text(errors="replace") if file.is_file() else ""
        # (A mutant is an entry of a table, and a conversation has its name on a line.)
        shown = not test or any(it in text for it in (f"def {test}(", f'    "{test}": ', f"\n{test}\n", f'\n"{test}" = ['))
        if not file.exists() or (anchor and anchor not in headings(text)) or not shown:
            wrong.append(" ".join(it for it in (f"{target}{f'#{anchor}' if anchor else ''}", test) if it))
    return wrong


def headings(text: str) -> set[str]:
    """The anchors of a text's headings, as they are made where it is shown."""
    said = re.findall(r"^#+ +(.+?) *$", without_code(text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", it.lower()).replace(" ", "-") for it in said}


def without_code(text: str) -> str:
    return re.sub(r"^( *)(`{3,}|~{3,}).*?^\1\2 *$|`[^`\n]+`", "", text, flags=re.MULTILINE | re.DOTALL)


def tasks() -> set[str]:
    """What `./task` says that it knows."""
    told = subprocess.run([ROOT / "task", "help"], capture_output=True, text=True, check=True).stdout
    return set(re.findall(r"^\./task ([\w-]+)", told, re.MULTILINE))


# Starlette prefers an HTTP client that is not installed here.
@pytest.mark.filterwarnings("ignore:Using `httpx` with `starlette.testclient` is deprecated")
@pytest.mark.parametrize("document", RUNNABLE, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_python_blocks_run(document: Path, nodes: Nodes, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOLDFAST_NODES", ",".join(nodes.urls))
    monkeypatch.chdir(tmp_path)
    terminate = signal.getsignal(signal.SIGTERM)
    try:
        run(document)
    finally:
        signal.signal(signal.SIGTERM, terminate)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_shell_blocks_can_be_typed(document: Path, nodes: Nodes) -> None:
    with redis.Redis.from_url(nodes.urls[0]) as node:
        assert wrong_lines(document.read_text(), tasks(), EXTRAS, lambda words: node.execute_command(*words)) == []


CONFIGURATIONS = [
    pytest.param(block.text, id=f"{document.relative_to(ROOT)}:{block.line}")
    for document in DOCUMENTS
    for block in blocks(document.read_text())
    if block.language == "conf" and block.exempt is None
]


@pytest.mark.parametrize("configuration", CONFIGURATIONS)
def test_a_server_starts_with_the_configuration_and_clients_are_content(configuration: str) -> None:
    told: list[events.Event] = []
    with Nodes(1, arguments=arguments(configuration)) as nodes, Holdfast(*nodes.urls, observer=told.append) as locks:
        with locks.lock("configured", wait=30):
            pass
    assert not [it for it in told if isinstance(it, events.NodeEvent) and it.state == "warned"]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(document: Path) -> None:
    assert dead_links(document) == []


WHEN = "\n## What happens when\n"
PAGES_THAT_SAY_WHEN = [path for path in sorted((ROOT / "docs").glob("*.md")) if WHEN in path.read_text()]


@pytest.mark.parametrize("document", PAGES_THAT_SAY_WHEN, ids=lambda path: path.name)
def test_every_row_of_what_happens_when_on_a_page_has_its_test(document: Path) -> None:
    lines = document.read_text().partition(WHEN)[2].lstrip("\n").splitlines()
    _, _, *rows = takewhile(lambda line: line.startswith("|"), lines)
    assert rows
    assert [row for row in rows if not re.search(r'\[test\]\(\.\./tests/\S+\.py "test_\w+"\) \|$', row)] == []


def variables() -> set[str]:
    """The environment variables that the package, the tests and `./task` read."""
    texts = [path.read_text() for folder in ("src", "tests") for path in (ROOT / folder).rglob("*.py")]
    named = set(re.findall(r"\bHOLDFAST_[A-Z_]+", "".join([*texts, (ROOT / "task").read_text()])))
    return named | {f"HOLDFAST_{option.upper()}" for option in ("ttl", "max_ttl", "restart_guard", "prefix", "owner", "cert", "key")}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_configurations_for_others_can_be_read(document: Path) -> None:
    text = document.read_text()
    for block in blocks(text):
        if block.language == "yaml":
            yaml.safe_load(block.text)
    assert set(re.findall(r"\bHOLDFAST_[A-Z_]+", text)) <= variables()


def test_few_blocks_are_not_run_and_each_has_a_reason() -> None:
    reasons = [it.exempt for document in DOCUMENTS for it in blocks(document.read_text()) if it.exempt is not None]
    assert len(reasons) <= EXEMPTIONS
    assert all(reasons)


def test_the_walks_through_the_design_name_files_that_exist() -> None:
    files = re.findall(r"^\| `([^`]+)` \|", (ROOT / "docs/design.md").read_text(), re.MULTILINE)
    assert len(files) > 30
    assert [it for it in files if not (ROOT / "src/holdfast" / it).is_file()] == []


def test_the_page_about_the_installation_lists_every_extra() -> None:
    page = (ROOT / "docs/installation.md").read_text()
    assert [it for it in EXTRAS - {"dev"} if f"| `holdfast[{it}]` |" not in page] == []


def test_the_help_of_task_is_complete() -> None:
    labels = re.findall(r"^    ([a-z][a-z| -]*)\)", (ROOT / "task").read_text(), re.MULTILINE)
    assert {word for label in labels for word in label.split(" | ") if not word.startswith("-")} == tasks()
    assert subprocess.run([ROOT / "task", "no-such-task"], capture_output=True, check=False).returncode == 64
