"""Leaders in processes of their own, which resign, are killed or stopped; and an observer in another one, which sees them in order."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Iterator

import pytest
from contract.cluster import Cluster
from contract.programs import Program, program

from holdfast.embedded import Nodes

pytestmark = pytest.mark.stories

TTL = 1.0
SOON = 10.0  # seconds: for a machine that is busy with something else

# Says when it leads, and for which term; resigns when it is told to; and says, as soon as it leads no longer, when it last believed that it
# did (by the clock that all processes of the machine share).
CANDIDATE = """
locks = Holdfast(ttl=1, max_ttl=2)
locks.ready()
asked = threading.Event()
say("ready")
leadership = locks.election("boss", sys.argv[1]).campaign()
say(time.time(), leadership.term)
threading.Thread(target=lambda: (sys.stdin.readline(), asked.set()), daemon=True).start()
last = time.time()
while not asked.is_set():
    now = time.time()
    if not leadership.is_leader:
        break
    last = now
    time.sleep(0.002)
if asked.is_set():
    leadership.resign()
say(last, leadership.state.name)
try:
    leadership.publish("too late")
except HoldfastError as error:
    say(type(error).__name__)
"""

OBSERVER = """
for leader in Holdfast(ttl=1, max_ttl=2).election("boss").observe():
    say(leader.term, leader.value or "-", leader.certain)
"""


@pytest.fixture
def three() -> Iterator[Cluster]:
    with Cluster(Nodes(3)) as cluster:
        yield cluster


def leads(candidate: Program) -> tuple[float, int]:
    """Since when, and for which term."""
    since, term = candidate.hear().split()
    return float(since), int(term)


def sees(observer: Program, value: str) -> tuple[int, list[str]]:
    """The term of the next leader who says this, and what was seen before that."""
    before = []
    while True:
        term, seen, certain = observer.hear().split()
        assert certain == "True"
        if seen == value:
            return int(term), before
        before.append(seen)


def test_leaders_come_and_go_and_everybody_sees_it(three: Cluster) -> None:
    with contextlib.ExitStack() as stack:
        observer = stack.enter_context(program(OBSERVER, three))
        assert observer.hear() == "0 - True"
        candidates = []
        for name in ("resigns", "killed", "stopped", "last"):  # in line, in this order
            candidates.append(stack.enter_context(program(CANDIDATE, three, name)))
            candidates[-1].expect("ready")
            time.sleep(0.1)
        resigns, killed, stopped, last = candidates

        _, first = leads(resigns)
        assert sees(observer, "resigns") == (first, [])

        began = time.time()
        resigns.tell()
        since, second = leads(killed)
        assert (sees(observer, "killed")[0], second > first) == (second, True)
        until, state = resigns.hear().split()
        assert (state, resigns.hear()) == ("RELEASED", "Misuse")
        assert float(until) < since, "one at a time"
        assert since - began < SOON

        began = time.time()
        killed.signal(signal.SIGKILL)
        since, third = leads(stopped)
        assert (sees(observer, "stopped")[0], third > second) == (third, True)
        assert 0.5 * TTL < since - began < TTL + SOON, "when its lease is over"

        time.sleep(2 * TTL)  # (it is renewed meanwhile, and what it says, too: the observer has nothing to tell of)
        began = time.time()
        stopped.signal(signal.SIGSTOP)
        since, fourth = leads(last)
        found, before = sees(observer, "last")
        assert (found, set(before) <= {"-"}, fourth > third) == (fourth, True, True)
        assert 0.5 * TTL < since - began < TTL + SOON
        time.sleep(0.5)
        stopped.signal(signal.SIGCONT)
        until, state = stopped.hear().split()
        assert (state, stopped.hear()) == ("LOST", "LockLost")
        assert float(until) < since, "once it runs again, it does not believe in its term for a moment"

        time.sleep(2 * TTL)  # what the one who was stopped has said late changes nothing
        last.tell()
        term, seen, _ = observer.hear().split()
        assert (int(term), seen) == (fourth, "-")
