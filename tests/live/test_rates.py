"""Rates between processes, while they and nodes are killed; and the rate limiter of the tutorials, which never lets go."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

import pytest
from contract.cluster import Cluster, asks
from contract.programs import Program, program

from holdfast import Holdfast
from holdfast.embedded import Nodes

# Says when it began, how many calls it was allowed, and when it ended, by the clock that all processes of the machine share.
HAMMER = """
locks = Holdfast(*URLS, max_ttl=10)
locks.ready()
rate = locks.rate("mail", 20, 1, algorithm=sys.argv[1])
say("ready")
sys.stdin.readline()
began, allowed, end = time.time(), 0, time.time() + 3
while time.time() < end:
    try:
        allowed += bool(rate.take())
    except NoQuorum:
        pass
    if len(sys.argv) > 2 and allowed >= 5:
        os.kill(os.getpid(), signal.SIGKILL)
say(began, allowed, time.time())
sys.stdin.readline()
"""


@pytest.fixture
def five() -> Iterator[Cluster]:
    with Cluster(Nodes(5)) as cluster:
        yield cluster


def outcome(programs: list[Program]) -> tuple[int, float]:
    """How many calls were allowed to all of them, and in which time."""
    told = [[float(it) for it in running.hear().split()] for running in programs]
    return sum(int(allowed) for _, allowed, _ in told), max(end for *_, end in told) - min(began for began, *_ in told)


@pytest.mark.parametrize("algorithm", ["gcra", "fixed window"])
def test_processes_share_a_limit(five: Cluster, algorithm: str) -> None:
    with contextlib.ExitStack() as stack:
        lasting = [stack.enter_context(program(HAMMER, five, algorithm)) for _ in range(3)]
        dying = stack.enter_context(program(HAMMER, five, algorithm, "dies"))
        for running in [*lasting, dying]:
            running.expect("ready")
        for running in [*lasting, dying]:
            running.tell()
        allowed, seconds = outcome(lasting)
        assert dying.end() < 0
        assert allowed + 5 <= 20 * seconds + 20
        assert allowed + 5 >= 20, "all of the first burst, at least"


async def test_with_nodes_that_die_it_is_n_of_q_times_as_many_at_most(five: Cluster) -> None:
    with contextlib.ExitStack() as stack:
        programs = [stack.enter_context(program(HAMMER, five, "gcra")) for _ in range(2)]
        for running in programs:
            running.expect("ready")
        for running in programs:
            running.tell()
        await five.freeze(0)
        time.sleep(0.5)
        await five.kill(3)
        time.sleep(0.5)
        await five.thaw(0)
        allowed, seconds = outcome(programs)
        assert 20 <= allowed <= 5 / 3 * (20 * seconds + 20)


def test_the_tutorials_limiter_never_lets_go_of_a_steady_caller_and_ours_does(five: Cluster) -> None:
    """INCR and EXPIRE at every request, as the sources have it: the window is pushed forward, so it never ends for who keeps calling."""
    limit, calls = 2, 7

    def theirs(name: str, period: int) -> bool:
        count, _ = asks(five.urls[0], [("INCR", name), ("EXPIRE", name, period)])
        return bool(count <= limit)

    def ask(locks: Holdfast, period: int) -> tuple[list[list[bool]], float]:
        """Ask all three limiters again and again, below their limit. Returns their answers, and the longest pause between two calls."""
        ours = [locks.rate(f"api:{period}", limit, period, algorithm=it, key="me") for it in ("gcra", "fixed window")]
        told: list[list[bool]] = []
        before, longest = time.monotonic(), 0.0
        for _ in range(calls):
            longest, before = max(longest, time.monotonic() - before), time.monotonic()
            told.append([theirs(f"ratelimit:{period}", period), *[bool(it.take()) for it in ours]])
            time.sleep(0.6 * period)
        return told, longest

    with Holdfast(*five.urls) as locks:
        # After a pause of a whole period, which a busy machine may bring, the sources' window has ended all the same.
        for period in (1, 2, 4):
            told, longest = ask(locks, period)
            if longest < 0.95 * period:
                break
    assert [gcra and window for _, gcra, window in told] == [True] * calls
    assert [it for it, *_ in told] == [True] * limit + [False] * (calls - limit), "never let in again, though it stays below the limit"
