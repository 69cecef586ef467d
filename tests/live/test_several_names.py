"""64 sets of names that overlap, on real nodes, from four processes of 16 threads: as tests/sim/test_several_names.py, where time is real.

Each thread notes when it had what, by the monotonic clock, which processes share: after `acquire` has returned, and before the lease is
left. So where two of these windows meet, two held the same name. One node is killed meanwhile.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Iterator

import pytest
from contract.cluster import Cluster
from contract.programs import program

from holdfast.embedded import Nodes
from holdfast.testing.windows import HeldWindow, fences_back, overlaps

PROCESSES, THREADS, TURNS = 4, 16, 3
SOURCE = """
import json, random
number, threads, turns = map(int, sys.argv[1:])
locks = Holdfast(ttl=5)
locks.ready()
said = threading.Lock()
letters = [f"lock {it}" for it in "abcdefghijkl"]

def user(who):
    dice = random.Random(who)
    own = dice.sample(letters, dice.randint(2, 5))
    for turn in range(turns):
        take(locks.lock(*dice.sample(own, len(own)), wait=60), False)  # the same set, in another order each time
        take(locks.lock(dice.choice(letters), wait=60), False)
        read = dice.random() < 0.7
        both = locks.rwlock(dice.choice(("shared x", "shared y")))
        take(both.read(wait=60) if read else both.write(wait=60), read)

def take(lock, read):
    with lock as lease:
        began = time.monotonic()
        time.sleep(0.002)
        windows = [(name, lease.tokens[name], lease.fences[name], began, time.monotonic(), read) for name in lease.names]
    with said:
        for it in windows:
            say(json.dumps(it))

crowd = [threading.Thread(target=user, args=(number * threads + it,)) for it in range(threads)]
say("ready")
sys.stdin.readline()
for it in crowd:
    it.start()
for it in crowd:
    it.join()
say("served")
locks.close()
"""


@pytest.fixture(scope="module")
def five() -> Iterator[Cluster]:
    with Cluster(Nodes(5)) as cluster:
        yield cluster


def complaints(windows: Iterable[HeldWindow]) -> list[str]:
    """What is not as it must be."""
    windows = list(windows)
    return [
        *(f"{one.name}: held by {one.token} and by {other.token}" for one, other in overlaps(windows)),
        *(f"{one.name}: fence {other.fence} after {one.fence}" for one, other in fences_back(windows)),
    ]


async def test_64_sets_in_four_processes(five: Cluster) -> None:
    windows: list[HeldWindow] = []
    with contextlib.ExitStack() as stack:
        crowd = [stack.enter_context(program(SOURCE, five, number, THREADS, TURNS)) for number in range(PROCESSES)]
        for it in crowd:
            it.expect("ready")
        for it in crowd:
            it.tell()
        for number, it in enumerate(crowd):
            while (line := it.hear()) != "served":
                assert line, f"process {number} has ended without a word"
                windows.append(HeldWindow(*json.loads(line)))
                if len(windows) == 100:
                    await five.kill(4)
            assert it.end() == 0
    assert complaints(windows) == []
    users = PROCESSES * THREADS * TURNS
    assert sum(str(it.name).startswith("shared") for it in windows) == users
    assert len(windows) >= users * 4, "a set has two names at least, and one was taken alone"
    assert len({it.token for it in windows}) == len(windows), "a token is for one name, and used once"
