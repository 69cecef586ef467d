"""The face for threads under gevent's monkey patching, whether it comes before holdfast is imported or after: users are greenlets then."""

from __future__ import annotations

import json
from typing import Any

import pytest
from contract.cluster import Cluster
from contract.programs import program, run

PATCH = "from gevent import monkey; monkey.patch_all()\n"
FIRST = pytest.mark.parametrize("first", [True, False], ids=["patched first", "patched after the import"])

# Every program notes how far another greenlet got meanwhile, and ends by itself with nothing on stderr.
HEAD = '''
import gevent, json
from holdfast.clock import clock
beats = [0]

def beat():
    while True:
        gevent.sleep(0.005)
        beats[0] += 1

beating = gevent.spawn(beat)
told = {}

def until(condition):
    end = clock() + 20
    while not condition():
        assert clock() < end
        gevent.sleep(0.005)

def turns_of(client):
    """Counts the I/O thread's turns from now on."""
    io_thread, turns = client._driver.io_thread, [0]
    turn = io_thread._turn
    def counts(ready):
        turns[0] += 1
        turn(ready)
    io_thread._turn = counts
    return turns

def live(client, count):
    """So many hold or wait."""
    until(lambda: len(client._driver.io_thread.engine.live) == count)

'''


def ran(source: str, nodes: Cluster, first: bool) -> Any:
    """What such a program tells; it may not complain, nor fail."""
    before, after = (PATCH, "") if first else ("", PATCH)
    status, out, errors = run(after + HEAD + source + "\nsay(json.dumps(told))", nodes, first=before)
    assert (status, errors) == (0, ""), errors
    return json.loads(out)


@FIRST
def test_many_greenlets_at_one_lock(three: Cluster, first: bool) -> None:
    """One after the other, in line, and each has the lock of its own `with`, also where one description is shared."""
    told = ran(
        """
locks = Holdfast()
lock, inside, fences = locks.lock("greenlets"), [0], []

def work():
    for _ in range(10):
        with lock as lease:
            inside[0] += 1
            assert inside[0] == 1
            fences.append(lease.fence)
            gevent.sleep(0.001)
            lease.check()
            inside[0] -= 1

def by_hand():
    lease = lock.__enter__()
    if not begun:
        begun.append(gevent.spawn(by_hand))
        gevent.sleep(0.1)  # the other waits meanwhile, entered by hand like this one
    lock.__exit__(None, None, None)
    assert not lease.held

begun = []
gevent.joinall([gevent.spawn(work) for _ in range(20)], raise_error=True)
gevent.spawn(by_hand).get()
begun[0].get()
told["fences"], told["beats"], told["left"] = fences, beats[0], len(lock._entered)
""",
        three,
        first,
    )
    assert len(told["fences"]) == 200
    assert told["fences"] == sorted(set(told["fences"]))
    assert told["beats"] > 5
    assert told["left"] == 0


@FIRST
def test_a_lease_is_renewed_and_others_run_while_one_waits(three: Cluster, first: bool) -> None:
    told = ran(
        """
locks = Holdfast(ttl=0.6)
with locks.lock("renewed") as lease:
    waiter = gevent.spawn(lambda: locks.lock("renewed", wait=10).acquire())
    live(locks, 2)
    before, turns = beats[0], turns_of(locks)
    gevent.sleep(1.5)
    told["held"], told["beats"], told["turns"] = lease.held, beats[0] - before, turns[0]
    told["in line"] = not waiter.ready()
second = waiter.get()
told["later"] = second.fence > lease.fence
second.release()
def refused():
    try:
        locks.lock("renewed", wait=0.2).acquire()
    except LockBusy as busy:
        told["waited"] = busy.waited

with locks.lock("renewed"):
    gevent.spawn(refused).join()
""",
        three,
        first,
    )
    assert told["held"]
    assert told["in line"]
    assert told["later"]
    assert told["beats"] > 20
    assert told["turns"] < 200, "it is woken by what happens, and by nothing else"
    assert 0.19 < told["waited"] < 5


@FIRST
def test_callbacks_have_greenlets_of_their_own(three: Cluster, first: bool) -> None:
    told = ran(
        """
import logging
logging.getLogger("holdfast").setLevel(logging.CRITICAL)
def observer(event):
    heard.append(type(event).__name__)
    gevent.sleep(1.5)
def on_lost(lease):
    with locks.lock("lost", wait=20) as again:
        lost.append(again.fence > lease.fence)
heard, lost = [], []
locks = Holdfast(ttl=0.6, observer=observer)
kept = locks.lock("kept").acquire()
lease = locks.lock("lost", ttl=0.2, renew=False, on_lost=on_lost).acquire()
waiters = [gevent.spawn(lease.lost.wait, 20) for _ in range(3)]
gevent.sleep(1.2)
told["kept"], told["heard"], told["lost"], told["waited"] = kept.held, len(heard), lost, [it.get() for it in waiters]
kept.release()
began = clock()
locks.close()
told["closed"] = clock() - began < 5
""",
        three,
        first,
    )
    assert told == {"kept": True, "heard": 1, "lost": [True], "waited": [True] * 3, "closed": True}


@FIRST
def test_a_greenlet_that_is_killed_or_out_of_time_leaves_nothing(three: Cluster, first: bool) -> None:
    told = ran(
        """
locks = Holdfast()
holder = locks.lock("killed").acquire()
waiter = gevent.spawn(lambda: locks.lock("killed").acquire())
live(locks, 2)
waiter.kill()
told["killed"] = waiter.dead and isinstance(waiter.value, gevent.GreenletExit)
try:
    with gevent.Timeout(0.2):
        locks.lock("killed").acquire()
except gevent.Timeout:
    told["out of time"] = True
live(locks, 1)
holder.release()

def holds():
    with locks.lock("killed") as lease:
        gevent.sleep(60)

user = gevent.spawn(holds)
live(locks, 1)
gevent.sleep(0.1)
user.kill()
with locks.lock("killed", wait=5):
    pass
live(locks, 0)
told["pending_calls"] = len(locks._driver.io_thread._pending_calls)
""",
        three,
        first,
    )
    assert told == {"killed": True, "out of time": True, "pending_calls": 0}
    assert three.holders("killed") == [None] * 3
    assert three.waiters("killed") == [0] * 3


@FIRST
def test_the_end_of_the_program_releases(three: Cluster, first: bool) -> None:
    ran(
        """
import logging
logging.getLogger("holdfast").setLevel(logging.CRITICAL)  # the lease is lost: closed
locks = Holdfast(max_ttl=30, ttl=30)
lease = locks.lock("end").acquire()
""",
        three,
        first,
    )
    assert three.holders("end") == [None] * 3


def test_patched_while_a_client_was_in_use_is_misuse_that_says_so(three: Cluster) -> None:
    """And not a greenlet that stops all others. What was held is released all the same."""
    source = """
import json
locks = Holdfast()
lease = locks.lock("late").acquire()
from gevent import monkey; monkey.patch_all()
import gevent
for use in (locks.lock("other").acquire, locks.ready, locks.nodes):
    try:
        use()
    except Misuse as misuse:
        say(str(misuse))
say(lease.held, lease.extend() > 5, lease.release(confirm=True) >= 2)
locks.close()
with Holdfast() as locks, locks.lock("late", wait=5):
    say("a new one works")
"""
    status, out, errors = run(source, three)
    assert (status, errors) == (0, "")
    told = out.splitlines()
    assert len(told) == 5
    assert all("monkey.patch_all()` first of all" in it for it in told[:3])
    assert told[3:] == ["True True True", "a new one works"]


def test_greenlets_of_another_thread_are_refused_in_words(three: Cluster) -> None:
    """The I/O thread is a greenlet of one thread, and runs when that does: a wait for it elsewhere would never end."""
    source = """
from gevent.threadpool import ThreadPool
locks = Holdfast()

def refused():
    try:
        locks.lock("pool").acquire()
    except Misuse as misuse:
        return str(misuse)

def own():
    with Holdfast() as own, own.lock("pool", wait=5) as lease:
        return lease.held

pool = ThreadPool(2)
say(pool.spawn(refused).get())
with locks.lock("pool", wait=5):
    pass
say(pool.spawn(refused).get())
say(pool.spawn(own).get())
"""
    status, out, errors = run(source, three, first=PATCH)
    assert (status, errors) == (0, "")
    assert ["make and close a client of its own" in it for it in out.splitlines()] == [True, True, False]
    assert out.splitlines()[2] == "True"


def test_a_fork_leaves_the_io_thread_s_greenlet_with_the_parent(three: Cluster) -> None:
    """A greenlet lives on in the child: there it must not speak in its parent's name."""
    source = """
import gevent
locks = Holdfast(ttl=0.6)
lease = locks.lock("forked").acquire()
child = os.fork()
if not child:
    try:
        lease.check()
    except Misuse:
        say("not the child's")
    io_thread = lease._pending.io_thread
    gevent.sleep(1)
    say(io_thread._running.locked(), sum(it is not None for it in io_thread.sockets.by_node) + len(io_thread.sockets.by_file))
    with locks.lock("child's own", wait=5) as own:
        say(own.held)
    locks.close()
    os._exit(0)
os.waitpid(child, 0)
gevent.sleep(0.5)
say(lease.held)
lease.release()
"""
    with program(source, three, first=PATCH) as running:
        for line in ("not the child's", "False 3", "True", "True"):
            running.expect(line)
        assert running.end() == 0
        assert running.process.stderr.read() == ""
