"""A simulated history does not depend on the machine's time, even if every look at a clock is an hour later."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

PROGRAM = Path(__file__).parent / "virtual_time.py"


def history(*arguments: str) -> tuple[int, str, str]:
    """How a run of the program ends, what it tells, and what it complains of."""
    command = [sys.executable, str(PROGRAM), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    return done.returncode, done.stdout, done.stderr


def test_a_history_is_the_same_whatever_the_machines_clocks_say() -> None:
    code, told, wrong = history("whole")
    assert code == 0, wrong
    for what in ("Acquired", "Doubt", "lost", "discarded", "Forced", "Opened", "NoQuorum", "Found(", "Allowance("):
        assert what in told, "the story no longer has this, so the test cannot see which clock it looks at"
    code, other, wrong = history("broken")
    assert code == 0, wrong
    assert other == told


# Places that read another clock than their driver's, once or still. Each does so in what ships.
FAULTS = {
    "what is left of a lease": (
        "holdfast.face.lease:Lease", "remaining", "self._clock()", "__import__('time').monotonic()",
    ),
    "whether a lease is held": (
        "holdfast.face.lease:Lease", "_by_now", "self._clock()", "__import__('holdfast.clock').clock.clock()",
    ),
    "how long a value is fresh": ("holdfast.primitives.fill.plan:InMapping", "look", "(yield Wall())", "__import__('time').time()"),
    "when an event was": ("holdfast.drivers.aio.driver:Driver", "_noted", "self.wall()", "__import__('time').time()"),
    "when a lease was dropped": (
        "holdfast.face.lease:Lease", "_dropped", "name=self.name,",
        "at=__import__('datetime').datetime.now(), name=self.name,",
    ),
    "the driver's own clock": (
        "holdfast.drivers.aio.driver:Driver", "_judged", "self.clock()", "__import__('holdfast.clock').clock.clock()",
    ),
    "how long callbacks may take": (
        "holdfast.drivers.aio.callbacks:LoopCalls", "_work", "end = self._clock()", "end = __import__('time').monotonic()",
    ),
    "how long a client may take to connect": (
        "holdfast.client.aio:Holdfast", "ready", "self._driver().clock", "__import__('holdfast.clock').clock.clock",
    ),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_a_look_at_the_machines_clock_is_noticed(fault: str) -> None:
    code, _, wrong = history("broken", *FAULTS[fault])
    assert code != 0
    assert "reads the machine's clock" in wrong


def test_another_clock_tells_another_history() -> None:
    """That holdfast has not looked is not all: what it tells would be otherwise, too."""
    fault = FAULTS["how long a value is fresh"]
    assert history("whole", *fault)[1] != history("whole")[1]
