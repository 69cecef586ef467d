"""The rules for all integrations: what importing one costs, what it may know, and how long it may be."""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import sizes

FOLDER = Path(__file__).parents[2] / "src/holdfast/integrations"
MODULES = sorted(it.relative_to(FOLDER).as_posix() for it in FOLDER.rglob("*.py"))
# The framework of each module, by the first part of its path.
FRAMEWORKS = {
    "apscheduler": "apscheduler",
    "celery": "celery",
    "celery_beat": "celery",
    "django": "django",
    "dramatiq": "dramatiq",
    "fastapi": "fastapi",
    "flask": "flask",
}
PUBLIC = {"holdfast", "holdfast.aio", "holdfast.checks", "holdfast.config", "holdfast.errors", "holdfast.kit", "holdfast.typing"}
# And what is in these: fences, and the command, whose statuses and options frameworks' own commands have too.
FOLDERS = ("holdfast.fencing", "holdfast.cli")
LONGEST = 250  # lines of code; tests/sizes.txt has those of all together


def strangers(path: str, source: str) -> list[str]:
    """Modules of holdfast that are not public, and frameworks that are another module's."""
    package = ["holdfast", "integrations", *Path(path).parts[:-1]]
    own = FRAMEWORKS.get(Path(path).parts[0].removesuffix(".py"))
    found = []
    for node in ast.walk(ast.parse(source)):
        names = [it.name for it in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            names = [".".join([*above, *([node.module] if node.module else [])])]
        for name in names:
            public = name in PUBLIC or name.startswith(FOLDERS)
            ours = name.startswith("holdfast") and not name.startswith("holdfast.integrations")
            foreign = name.split(".")[0] in set(FRAMEWORKS.values()) - {own}
            found += [name] if (ours and not public) or foreign else []
    return found


# A loop for each call would be a connection to each node for each call, and signals are the framework's.
LEFT_ALONE = {"run_until_complete", "async_to_sync", "asyncio.run", "signal.signal", "signal.sigaction"}


def taken_over(source: str) -> set[str]:
    """What a module calls that is not its own: event loops and signals."""
    calls = [it.func for it in ast.walk(ast.parse(source)) if isinstance(it, ast.Call)]
    return {it for call in calls for it in LEFT_ALONE if ast.unparse(call).endswith(it)}


@pytest.mark.parametrize("path", MODULES)
def test_a_module_runs_no_event_loop_and_handles_no_signal(path: str) -> None:
    assert taken_over((FOLDER / path).read_text()) == set()


PAGES = Path(__file__).parents[2] / "docs"
# What such a page must have. (tests/test_docs.py: each row of the table has a test.)
SECTIONS = ("## What happens when", "## Limits")


def lacking(page: str) -> list[str]:
    """The sections that a framework's page lacks. It begins with the shortest example."""
    found = [it for it in SECTIONS if f"\n{it}\n" not in page]
    return found if "```python" in page.partition("\n## ")[0] else ["the shortest example", *found]


# (Three frameworks have a section each of the page about all of them.)
@pytest.mark.parametrize("name", sorted({*FRAMEWORKS, "frameworks"} - {"celery_beat", "apscheduler", "dramatiq", "flask"}))
def test_the_page_of_a_framework_has_what_its_users_ask_for(name: str) -> None:
    assert lacking((PAGES / f"{name}.md").read_text()) == []


@pytest.mark.parametrize("path", MODULES)
def test_a_module_knows_its_framework_and_public_names_only(path: str) -> None:
    assert strangers(path, (FOLDER / path).read_text()) == []


def test_modules_are_short() -> None:
    assert [it for it in MODULES if sizes.lines((FOLDER / it).read_text()) > LONGEST] == []


IMPORTED = [
    it
    for it in ("web", "asgi", "wsgi", "idempotency", "calls", *FRAMEWORKS)
    if find_spec(FRAMEWORKS.get(it, "json")) is not None
]


SETTINGS = {"django": "from django.conf import settings; settings.configure()"}


@pytest.mark.parametrize("module", IMPORTED)
def test_importing_a_module_makes_no_thread_no_client_and_no_connection(module: str) -> None:
    program = f"""
import socket, threading
import {FRAMEWORKS.get(module, "json")}
{SETTINGS.get(module, "")}
before = threading.active_count()
def refuse(*_, **__):
    raise AssertionError("a socket is made while importing")
socket.socket.connect = refuse
import holdfast
made = holdfast.Holdfast.__init__
holdfast.Holdfast.__init__ = refuse
import holdfast.integrations.{module}
assert threading.active_count() == before
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_importing_holdfast_loads_no_integration() -> None:
    program = "import sys, holdfast, holdfast.aio, holdfast.config; print([it for it in sys.modules if 'integrations' in it])"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout == "[]\n"
