"""The library's loggers: what is told before, and after, `logging` is loaded. Each in an interpreter of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SOURCE = Path(__file__).parent.parent / "src"
BEGIN = f"""
import sys; sys.path.insert(0, {str(SOURCE)!r})
from holdfast import events, log
from holdfast.face.observers import Observers
tell = Observers()
warns = events.Doubt(name="x", token="t", waited=0.0, remaining=7.0, fence=3)
says = events.Attempt(name="x", token="t", waited=0.0)
assert "logging" not in sys.modules and not tell.wants_all
"""


def told(script: str) -> str:
    done = subprocess.run([sys.executable, "-c", BEGIN + script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stderr


def test_a_log_that_nobody_loaded_takes_warnings_alone() -> None:
    assert "a renewal of 'x' was not confirmed; 7.00 s" in told("assert tell.logs(warns) and not tell.logs(says); tell.log(warns)")


def test_a_log_that_is_configured_after_the_client_was_made_is_heeded() -> None:
    after = "import logging; logging.basicConfig(level=logging.{}); assert tell.logs(says); tell.log(says); print(tell.logs(says))"
    assert "DEBUG:holdfast.lease:" in told(after.format("DEBUG"))
    assert told(after.format("INFO") + "; assert not tell.logs(says)") == "", "the first one is asked aside, and later ones here"


def test_what_configures_the_log_is_called_once_and_before_the_first_line() -> None:
    script = "calls = []; log.before_the_first_line(lambda: calls.append(1)); assert not calls"
    assert told(script + "; tell.log(warns); tell.log(warns); log.logger(); assert calls == [1]").count("not confirmed") == 2


def test_the_command_silences_a_log_that_is_loaded_later() -> None:
    script = "from holdfast.cli.output import Output, VERBOSE, quiet; quiet(Output({})); tell.log(warns)"
    assert told(script.format("")) == ""
    assert told(script.format("VERBOSE")).startswith("holdfast: a renewal of 'x' was not confirmed; 7.00 s")
