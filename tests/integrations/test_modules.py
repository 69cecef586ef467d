"""The rules for all integrations: what importing one costs, and what it leaves to its framework. What it may import: contracts.toml."""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

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
# A loop for each call would be a connection to each node for each call, and signals are the framework's.
LEFT_ALONE = {"run_until_complete", "async_to_sync", "asyncio.run", "signal.signal", "signal.sigaction"}
# From the thread of a request of ASGI, this goes to the loop that runs already.
GOES_BACK = {"django/locks.py": {"async_to_sync"}}


def taken_over(source: str) -> set[str]:
    """What a module calls that is not its own: event loops and signals."""
    calls = [it.func for it in ast.walk(ast.parse(source)) if isinstance(it, ast.Call)]
    return {it for call in calls for it in LEFT_ALONE if ast.unparse(call).endswith(it)}


@pytest.mark.parametrize("path", MODULES)
def test_a_module_runs_no_event_loop_and_handles_no_signal(path: str) -> None:
    assert taken_over((FOLDER / path).read_text()) == GOES_BACK.get(path, set())


IMPORTED = [it for it in ("web", "asgi", "wsgi", "idempotency", "calls", *FRAMEWORKS) if find_spec(FRAMEWORKS.get(it, "json")) is not None]


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
