"""Every code block of the documentation runs: Python as a program, against real servers; shell as far as it names a task."""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from holdfast.embedded import Nodes

ROOT = Path(__file__).parent.parent
DOCUMENTS = sorted(path for pattern in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs/**/*.md") for path in ROOT.glob(pattern))
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


def unknown_tasks(document: str, known: set[str]) -> list[str]:
    """The lines of a text's shell blocks that call for a task which there is not."""
    return [
        line.strip()
        for block in blocks(document)
        if block.language == "sh"
        for line in block.text.splitlines()
        if (words := line.split()) and words[0] == "./task" and (words[1:2] or ["help"])[0] not in known
    ]


def exempt(document: str) -> list[str]:
    """Why blocks are not run."""
    return [block.exempt for block in blocks(document) if block.exempt is not None]


def tasks() -> set[str]:
    """What `./task` says that it knows."""
    told = subprocess.run([ROOT / "task", "help"], capture_output=True, text=True, check=True).stdout
    return set(re.findall(r"^\./task (\w+)", told, re.MULTILINE))


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_python_blocks_run(document: Path, nodes: Nodes, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOLDFAST_NODES", ",".join(nodes.urls))
    monkeypatch.setenv("HOLDFAST_FRESH", ",".join(nodes.run_ids))
    monkeypatch.chdir(tmp_path)
    run(document)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_shell_blocks_name_tasks_that_there_are(document: Path) -> None:
    assert unknown_tasks(document.read_text(), tasks()) == []


def test_few_blocks_are_not_run_and_each_has_a_reason() -> None:
    reasons = [reason for document in DOCUMENTS for reason in exempt(document.read_text())]
    assert len(reasons) <= EXEMPTIONS
    assert all(reasons)


def test_the_help_of_task_is_complete() -> None:
    labels = re.findall(r"^    ([a-z| -]+)\)", (ROOT / "task").read_text(), re.MULTILINE)
    assert {word for label in labels for word in label.split(" | ") if not word.startswith("-")} == tasks()
    assert subprocess.run([ROOT / "task", "no-such-task"], capture_output=True, check=False).returncode == 64


def written(tmp_path: Path, text: str) -> Path:
    document = tmp_path / "planted.md"
    document.write_text(text)
    return document


def test_a_block_that_fails_is_shown_at_its_line(tmp_path: Path) -> None:
    document = written(tmp_path, "# Title\n\n```python\nx = 1\n```\n\nthen\n\n```python\n\nassert x == 2\n```\n")
    with pytest.raises(AssertionError) as raised:
        run(document)
    last = raised.traceback[-1]
    assert (str(last.path), last.lineno + 1) == (str(document), 11)


def test_blocks_may_await_and_share_names_and_a_loop(tmp_path: Path) -> None:
    awaits = "import asyncio\nloop = asyncio.get_running_loop()\nawait asyncio.sleep(0)\n"
    uses = "async with asyncio.timeout(1):\n    assert asyncio.get_running_loop() is loop\n    1 / 0\n"
    with pytest.raises(ZeroDivisionError):
        run(written(tmp_path, f"```python\n{awaits}```\n```python\n{uses}```\n"))


def test_a_block_in_a_list_runs(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        run(written(tmp_path, "* so:\n\n  ```python\n  if True:\n      1 / 0\n\n  ```\n"))


def test_blocks_that_are_exempt_or_not_python_do_not_run(tmp_path: Path) -> None:
    run(written(tmp_path, "<!-- not run: it is a fault -->\n```python\n1 / 0\n```\n```\n1 / 0\n```\n```sh\n1 / 0\n```\n"))


def test_an_exemption_counts_only_right_before_its_block(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        run(written(tmp_path, "<!-- not run: it is a fault -->\n\n```python\n1 / 0\n```\n"))


def test_exemptions_are_found_with_and_without_a_reason() -> None:
    assert exempt("<!-- not run: it is a fault -->\n```python\n```\n<!-- not run: -->\n```python\n```\n") == ["it is a fault", ""]


def test_a_block_in_a_longer_fence_is_text() -> None:
    (block,) = blocks("````md\n```python\n1 / 0\n```\n````\n")
    assert (block.language, block.text) == ("md", "```python\n1 / 0\n```\n")


def test_a_task_that_there_is_not_is_found() -> None:
    text = "```sh\n./task test\n./task tset -k x\n./task\necho ./task no\n```\n```text\n./task no\n```\n"
    assert unknown_tasks(text, {"test", "help"}) == ["./task tset -k x"]
