"""Where holdfast cannot work, it says so when a client is made."""

from __future__ import annotations

import subprocess
import sys

import pytest

USE = """
import holdfast, holdfast.aio
for kind in (holdfast.Holdfast, holdfast.aio.Holdfast):
    try:
        kind("redis://127.0.0.1:1")
    except holdfast.ConfigError as error:
        print(error)
"""
PATHS = f"import sys; sys.path[:] = {sys.path!r}\n"
SUBINTERPRETER = """
try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters
import sys
interpreters.run_string(interpreters.create(), {code!r})
"""


@pytest.mark.parametrize(
    "program, told",
    [
        ("import eventlet; eventlet.monkey_patch()\n" + USE, "holdfast does not work under eventlet's monkey_patch(): use gevent"),
        (SUBINTERPRETER.format(code=PATHS + USE), "holdfast does not work in a subinterpreter"),
    ],
    ids=["eventlet", "a subinterpreter"],
)
def test_what_cannot_work_is_refused_in_words(program: str, told: str) -> None:
    ran = subprocess.run([sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert ran.stdout.count(told) == 2, ran
