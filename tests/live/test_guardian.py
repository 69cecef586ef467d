"""A process that is killed has a guardian, which releases its locks when nobody lives that may still use them."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import pytest
from contract.cluster import Cluster
from contract.programs import program, run
from live.kit import holding
from nemesis.processes import until

from holdfast import Holdfast, LockBusy
from holdfast.embedded import Nodes

pytestmark = pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="Linux tells when another process has died")
GUARDED = "ttl=30, guardian=True, restart_guard=None"
SLEEPS = "[sys.executable, '-S', '-c', 'import time; time.sleep(60)']"


def guardians(of: int) -> list[int]:
    """The guardians that a process has."""
    found = []
    for it in Path("/proc").glob("[0-9]*/stat"):
        try:
            name, parent = re.findall(r"\((.*)\) \S (\d+)", it.read_text())[0]
        except OSError:
            continue
        if name == "holdfast-guard" and int(parent) == of:
            found.append(int(it.parent.name))
    return found


def guardian_of(process: int) -> int:
    """Its guardian, once that has begun."""
    until(lambda: guardians(process))
    return guardians(process)[0]


def test_nobody_overlaps_and_nothing_is_left_when_holders_are_killed() -> None:
    bench = pytest.importorskip("bench.guardian")  # (a copy of the tree for mutants does not have it)
    with Nodes(3) as nodes:
        found = bench.kill(30, nodes)
    assert (found.wrong, found.left) == (0, [])
    assert len(found.all) == 30


@pytest.mark.parametrize("kind", ["lock('{}')", "rwlock('{}').read()", "rwlock('{}').write()", "semaphore('{}', 2)"])
def test_every_kind_of_lock_is_free(three: Cluster, name: str, kind: str) -> None:
    with holding(three, kind.format(name), GUARDED) as held, Holdfast(*three.urls) as client:
        guardian = guardian_of(held.pid)
        held.signal(signal.SIGKILL)
        until(lambda: not client.names(f"*{name}*"), within=15)
        until(lambda: not Path(f"/proc/{guardian}").exists())


@pytest.mark.parametrize(
    "child",
    [
        "os.fork() or time.sleep(60)",
        "os.fork() or (os.closerange(3, 256), time.sleep(60))",
        pytest.param(f"subprocess.Popen({SLEEPS}, start_new_session=True).pid", id="program"),
    ],
)
def test_the_lock_is_taken_while_a_child_lives(three: Cluster, name: str, child: str) -> None:
    source = f"import subprocess\nlocks = Holdfast({GUARDED})\nlease = locks.lock({name!r}).acquire()\nsay({child})\ntime.sleep(60)"
    with program(source, three) as held, Holdfast(*three.urls) as client:
        other = int(held.hear())
        held.signal(signal.SIGKILL)
        with pytest.raises(LockBusy):
            client.lock(name, wait=0.5).acquire()
        os.kill(other, signal.SIGKILL)
        client.lock(name, wait=15).acquire().release()


def test_what_is_left_to_somebody_else_is_not_released(three: Cluster, name: str) -> None:
    source = f"""
    locks = Holdfast(ttl=30, guardian=True, restart_guard=None)
    for name in "abc":
        lease = locks.lock({name!r} + name, at_least=20 if name == "a" else None).acquire()
        if name == "b":
            ticket = lease.hand_over()
        if name == "c":
            lease.leave()
    say(ticket)
    time.sleep(60)
    """
    with program(source, three) as held, Holdfast(*three.urls) as client:
        ticket = held.hear()
        guardian = guardian_of(held.pid)
        held.signal(signal.SIGKILL)
        until(lambda: not Path(f"/proc/{guardian}").exists())
        assert client.names(f"{name}*") == [name + it for it in "abc"]
        client.adopt(ticket).release()


def test_a_guardian_that_is_stopped_keeps_nobody_waiting_and_is_never_worse_than_none(three: Cluster, name: str) -> None:
    source = f"locks = Holdfast(ttl=1, guardian=True, restart_guard=None)\nlease = locks.lock({name!r}).acquire()\nsay('held')\ninput()\n"
    source += "for it in range(500):\n    with locks.lock('other'): pass\nsay('done')\ntime.sleep(60)"
    with program(source, three) as held, Holdfast(*three.urls) as client:
        held.expect("held")
        guardian = guardian_of(held.pid)
        os.kill(guardian, signal.SIGSTOP)
        held.tell()
        held.expect("done")
        held.signal(signal.SIGKILL)
        lease = client.lock(name, wait=15).acquire()
        os.kill(guardian, signal.SIGCONT)
        until(lambda: not Path(f"/proc/{guardian}").exists())
        lease.check()
        lease.release()


def test_it_ends_with_the_last_client_and_serves_the_children_of_a_fork(three: Cluster, name: str) -> None:
    source = f"""
    import subprocess
    clients = [Holdfast(guardian=True, restart_guard=None) for _ in range(2)]
    for it in clients:
        with it.lock({name!r}): pass
    def guardians():
        ps = ["ps", "-ww", "-o", "args=", "--ppid", str(os.getpid())]
        return subprocess.run(ps, capture_output=True, text=True).stdout.count("-I " + "-S")
    say(guardians())
    clients[0].close()
    say(guardians())
    clients[1].close()
    say(guardians(), [it for it in os.listdir("/proc/self/fd") if "memfd" in os.path.realpath("/proc/self/fd/" + it)])
    child = os.fork()
    with clients[1], clients[1].lock({name!r}):
        say("again", guardians(), len(os.environ["HOLDFAST_GUARDED"].split()) - (not child))
    if child:
        os.waitpid(child, 0)
    """
    assert run(source, three) == (0, "1\n1\n0 []\nagain 1 1\nagain 1 1\n", "")
