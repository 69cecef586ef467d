"""No test knows the date on which it was written, and `./task dates` moves the date and nothing else."""

from __future__ import annotations

import ast
import shutil
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import dates
import pytest

pytestmark = pytest.mark.stories

TESTS = Path(__file__).parent
REAL = ("contract", "live", "scripts", "nemesis", "fencing", "soak")  # tests whose servers and clients have a real clock

CAN_MOVE = pytest.mark.skipif(sys.platform != "linux" or shutil.which("cc") is None, reason="needs Linux and a C compiler (CI has both)")


def named_dates(source: str) -> Iterator[str]:
    """The dates that a test names: it may meet them, and then the present is not what it takes it for."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func).split(".")[-1]
            first = node.args[0].value if node.args and isinstance(node.args[0], ast.Constant) else None
            written = called in ("datetime", "date") and isinstance(first, int)
            read = called in ("fromisoformat", "strptime") and isinstance(first, str)
            counted = called in ("fromtimestamp", "utcfromtimestamp") and isinstance(first, int | float) and first > 0
            if written or read or counted:
                yield f"line {node.lineno}: {ast.unparse(node)}"


def test_no_test_with_a_real_clock_names_a_date() -> None:
    files = [path for folder in REAL for path in sorted((TESTS / folder).rglob("*.py"))]
    assert len(files) > 80
    assert {path.name: found for path in files if (found := list(named_dates(path.read_text())))} == {}


SOUND = """
import threading
import time
from datetime import UTC, datetime

from contract.cluster import ask
from holdfast.embedded import Nodes

MOMENT = 1830297600  # 2028-01-01


def test_what_is_moved_and_what_is_not():
    assert MOMENT - 5 <= time.time() < MOMENT, "the year is about to end"
    assert datetime.now(UTC).year == time.localtime().tm_year == 2027
    began, steady = time.time(), time.monotonic()
    time.sleep(0.1)
    assert not threading.Event().wait(0.1)
    assert abs((time.time() - began) - (time.monotonic() - steady)) < 0.05
    with Nodes(1) as nodes:
        while time.time() < MOMENT:
            time.sleep(0.01)
        assert datetime.now(UTC).year == time.localtime().tm_year == 2028
        told = int(ask(nodes.urls[0], "TIME")[0])
        assert abs(told - time.time()) < 5, "servers are at the same date"
"""


@CAN_MOVE
def test_the_wall_clock_passes_the_moment_and_nothing_else_is_moved(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "test_sound.py").write_text(SOUND)
    assert dates.main([str(tmp_path / "test_sound.py"), "-n", "2"], dates.MOMENTS[-1:]) == 0, capfd.readouterr().out


def test_the_moments_are_what_they_are_called() -> None:
    leap, change, last = dates.MOMENTS
    assert (leap.at.month, leap.at.day) == (2, 29)
    assert change.at.weekday() == 6 and change.at.month == 3 and change.at.day > 24 and change.at.hour == 1
    assert (last.at - datetime(last.at.year, 1, 1, tzinfo=UTC)).total_seconds() == 0
