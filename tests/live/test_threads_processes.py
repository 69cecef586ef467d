"""What happens to whole processes that hold locks: fork, exit, signals that end or stop them."""

from __future__ import annotations

import signal
import textwrap
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from contract.cluster import Cluster
from contract.programs import program, run
from live.kit import holding
from nemesis.processes import until

from holdfast import Holdfast, Lease

# ------------------------------------------------ fork

# In how many ways a child may not use its parent's lease.
REFUSED = """
def refused(lease):
    wrong = 0
    for access in ("state", "held", "remaining", "votes", "lost", "check", "extend", "release"):
        try:
            found = getattr(lease, access)
            if callable(found):
                found()
        except Misuse as error:
            wrong += "forked" in str(error)
    return wrong

"""


# As a program that embeds Python forks, or an extension: the C library's `fork`, and none of Python's hooks.
UNTOLD = "import ctypes\nfork = ctypes.PyDLL(None).fork\n"


@pytest.mark.parametrize("fork", ["fork = os.fork\n", UNTOLD], ids=["told", "Python is not told"])
def test_s23_a_forked_child_and_its_parent_s_lease(three: Cluster, fork: str) -> None:
    source = """
    locks = Holdfast(ttl=1)
    lease = locks.lock("parent's").acquire()
    waiting = threading.Thread(target=lambda: locks.lock("parent's").acquire().release(), daemon=True)
    waiting.start()
    event, inbox = lease.lost, lease.token.split(":")[1]
    time.sleep(0.2)
    child = fork()
    if child == 0:
        wrong = refused(lease)
        own = locks.lock("child's").acquire()
        assert own.token.split(":")[1] != inbox
        assert locks.lock("parent's").try_acquire() is None
        say("child", wrong, own.held, own.fence > lease.fence > 0)
        own.release()
        del lease
        gc.collect()
        sys.exit(7)  # not os._exit: what is done at exit is done
    _, status = os.waitpid(child, 0)
    time.sleep(1.2)
    say("parent", os.waitstatus_to_exitcode(status), lease.held, event.is_set(), lease.extend() > 0.5, lease.votes)
    lease.release()
    waiting.join()
    locks.close()
    """
    status, out, errors = run(REFUSED + fork + textwrap.dedent(source), three)
    assert (status, errors) == (0, "")
    assert out.splitlines() == ["child 8 True True", "parent 7 True False True 3"]
    until(lambda: three.holders("parent's") == three.holders("child's") == [None] * 3)


def test_a_child_that_leaves_its_parent_s_block_ends_as_it_wanted_to(three: Cluster) -> None:
    source = """
    locks = Holdfast()
    with locks.lock("block") as lease:
        child = os.fork()
        if child == 0:
            sys.exit(7)  # leaves the block
        _, status = os.waitpid(child, 0)
        say(os.waitstatus_to_exitcode(status), lease.held)
        child = os.fork()
        if child:
            _, status = os.waitpid(child, 0)
            say(os.waitstatus_to_exitcode(status), lease.held)
    # the second child comes here, and is told that this was not its lock
    """
    status, out, errors = run(source, three)
    assert out.splitlines() == ["7 True", "1 True"]
    assert status == 0
    assert "errors#wrong_process" in errors


# ------------------------------------------------ the end of a process


@pytest.mark.parametrize("how", ["lease.release()", "block.close()", "pass", "lease.release(); sys.exit(3)"])
def test_what_was_released_or_is_held_at_exit_is_free_at_once(three: Cluster, how: str) -> None:
    source = f"""
    from contextlib import ExitStack

    locks = Holdfast(ttl=30)
    with ExitStack() as block:
        lease = block.enter_context(locks.lock("exit"))
        {how}
        block.pop_all()
    """
    status, _, errors = run(source, three)
    assert status == (3 if "3" in how else 0)
    assert ("is lost: closed" in errors) == (how == "pass")
    until(lambda: three.holders("exit") == [None] * 3, 5)


# What a killed process held, and what another client gets after it.
KILLED: dict[str, tuple[str, Callable[[Holdfast], Any]]] = {
    "a lock": ("lock('killed')", lambda client: client.lock("killed", wait=20, ttl=30)),  # B-38: whatever the waiter's own ttl is
    "a reader": ("rwlock('killed').read()", lambda client: client.rwlock("killed").write(wait=20)),
    "a writer": ("rwlock('killed').write()", lambda client: client.rwlock("killed").read(wait=20)),
    "permits": ("semaphore('killed', 3, count=2)", lambda client: client.semaphore("killed", 3, count=3, wait=20)),
}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=["TERM", "KILL"])
@pytest.mark.parametrize("kind", KILLED)
def test_s22_after_the_end_without_a_word_the_lock_is_free_within_one_ttl(
    three: Cluster, client: Holdfast, kind: str, number: signal.Signals
) -> None:
    what, wants = KILLED[kind]
    with holding(three, what, "ttl=0.8") as holder:
        # Longer than a ttl: it is renewed.
        time.sleep(1.0)
        assert wants(client).try_acquire() is None
        began = time.monotonic()
        holder.signal(number)
        slots = set[int]()
        while kind == "permits" and len(slots) < 3:
            # B-14: others take the third one in turn, all the time.
            with client.semaphore("killed", 3, wait=20) as lease:
                slots.update(lease.slots)
        with wants(client):
            assert 0.8 / 3 < time.monotonic() - began < 0.8 + 1


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP], ids=["KILL", "STOP"])
def test_s28_the_head_of_the_line_is_gone_or_hangs(three: Cluster, client: Holdfast, number: signal.Signals) -> None:
    """Killed: it is passed over at once. Hung: it is granted the lock, and the next one finds out with the heartbeat after that lease."""
    source = """
    say("asks")
    lease = Holdfast(ttl=1.5).lock("line").acquire()
    say("got it")
    lease.check()
    """
    holder = client.lock("line", ttl=20).acquire()
    with program(source, three) as first:
        first.expect("asks")
        until(lambda: min(three.waiters("line")) == 1)
        second = threading.Thread(target=lambda: leases.append(client.lock("line", ttl=3, wait=15).acquire()))
        leases: list[Lease] = []
        second.start()
        until(lambda: min(three.waiters("line")) == 2)
        first.signal(number)
        time.sleep(0.2)  # until its connections are gone, or its process stands still
        began = time.monotonic()
        holder.release()
        second.join(15)
        (lease,) = leases
        took = time.monotonic() - began
        assert lease.held
        assert lease.fence > holder.fence
        assert took < (1.5 + 3 / 3 if number == signal.SIGSTOP else 0.3) + 0.6
        if number == signal.SIGSTOP:
            first.signal(signal.SIGCONT)
            time.sleep(0.3)
            lease.check()
            assert three.holders("line").count(lease.token) >= 2  # (it is first in line again, and may have got one that was free)
            first.process.kill()
        lease.release()
    until(lambda: three.holders("line") == [None] * 3)


def test_ctrl_c_in_a_block_releases(three: Cluster) -> None:
    with program("with Holdfast(ttl=30).lock('interrupted'): say('held'); time.sleep(60)", three) as holder:
        holder.expect("held")
        holder.signal(signal.SIGINT)
        assert holder.end() == -signal.SIGINT
        until(lambda: three.holders("interrupted") == [None] * 3, 5)


def test_s14_a_stopped_holder_learns_of_it_at_first_use(three: Cluster, client: Holdfast) -> None:
    source = """
    told = []
    lease = Holdfast(ttl=0.6).lock("stopped", on_lost=lambda it: told.append(it.name)).acquire()
    say(lease.fence)
    sys.stdin.readline()
    seen = lease.held, lease.state.value, lease.remaining
    time.sleep(0.3)
    say(*seen, len(told), lease.lost.is_set())
    try:
        lease.release()
    except LockLost as error:
        say(error.reason)
    sys.stdin.readline()
    """
    with program(source, three) as holder:
        fence = int(holder.hear())
        time.sleep(0.3)
        holder.signal(signal.SIGSTOP)
        lease = client.lock("stopped", wait=10).acquire()
        assert lease.fence > fence
        time.sleep(0.2)
        holder.tell()  # lies there when it wakes up
        holder.signal(signal.SIGCONT)
        holder.expect("False lost 0.0 1 True")
        assert holder.hear() in ("slow", "expired")
        assert lease.held
        until(lambda: lease.votes == 3)
        assert three.holders("stopped") == [lease.token] * 3  # it has renewed and released nothing that is ours
        lease.release()


def test_programs_that_import_holdfast_start_nothing(three: Cluster) -> None:
    """B-54: no thread, connection or file before the first use; and none after the last."""
    source = """
    def things():
        return len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd"))

    before = things()
    locks = Holdfast()
    lock = locks.lock("unused")
    say(things() == before)
    with lock:
        pass
    say(things() != before)
    locks.close()
    while things() != before:  # (a thread that has said its last word is there for a moment yet)
        time.sleep(0.01)
    say(True)
    """
    status, out, errors = run(source, three)
    assert (status, errors) == (0, "")
    assert out.split() == ["True"] * 3


# ------------------------------------------------ a fork that Python is not told of


@pytest.mark.parametrize("end", ["sys.exit(0)", "os._exit(0)"])
def test_a_child_that_was_not_told_of_leaves_its_parents_connections_alone(three: Cluster, end: str) -> None:
    """Neither what it drops, nor its use of the client, nor its end says a word on a connection of its parent's."""
    body = f"""
    locks = Holdfast(ttl=5)
    lease = locks.lock("kept").acquire()
    io_thread = locks._driver.io_thread
    links = [it.sock.fileno() for it in io_thread.sockets.by_node]
    time.sleep(0.2)
    number = fork()
    if number == 0:
        with locks.lock("other", wait=5):
            pass
        assert io_thread.sockets.by_file == {{}} and io_thread.sockets.bell.file == io_thread.sockets.bell.clapper == -1
        del lease
        gc.collect()
        {end}
    began = time.monotonic()
    _, status = os.waitpid(number, 0)
    say(os.waitstatus_to_exitcode(status), time.monotonic() - began < 4)
    time.sleep(0.2)
    say(lease.held, lease.extend() > 4, links == [it.sock.fileno() for it in io_thread.sockets.by_node])
    lease.release()
    locks.close()
    """
    assert run(UNTOLD + textwrap.dedent(body), three) == (0, "0 True\nTrue True True\n", "")
