"""After a suspend, each of the two supervisors looks at the clock before anything else, and kills.

`step.c` makes CLOCK_BOOTTIME step for the supervisor, the holder or both, while CLOCK_MONOTONIC, which sleepers wait on, does not. The
lease is long, so that nothing else wakes anybody soon: a renewal is due in ten seconds.
"""

from __future__ import annotations

import mmap
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from cli.kit import Command, holder_of
from nemesis.arena import life
from nemesis.processes import alive, compiled, until

from holdfast.cli import tree
from holdfast.embedded import Nodes

TTL = 30.0
STEP = 3600.0
# Far more than a turn of a loop, and far less than the time until the next renewal.
SOON = 3.0

pytestmark = pytest.mark.skipif(not tree.LINUX, reason="CLOCK_BOOTTIME is Linux's")


@pytest.fixture(scope="module")
def shim(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The library that is preloaded."""
    return compiled(Path(__file__).with_name("step.c"), tmp_path_factory.mktemp("step") / "step.so", "-shared", "-ldl")


@pytest.mark.parametrize("who", ["supervisor", "holder", "both"])
def test_the_command_is_killed_at_once(who: str, shim: str, beats: str, nodes: Nodes, tmp_path: Path) -> None:
    """The clock steps for the supervisor, the holder or both."""
    page = tmp_path / "step"
    page.write_bytes(bytes(64))
    holdfast = Command(tmp_path, nodes.environment)
    file = tmp_path / "life"
    words = ("run", "--ttl", f"{TTL:g}s", f"asleep {tmp_path.name}", "--", beats, str(file), "term", "twin")
    with holdfast.started(*words, stderr=subprocess.DEVNULL, env={"LD_PRELOAD": shim, "STEP_FILE": str(page)}) as process:
        until(lambda: life(file) and life(file.with_name("life.twin")))
        holder = holder_of(process.pid)
        below = [it.pid for it in tree.descendants(holder)]
        pids = {"supervisor": [process.pid], "holder": [holder], "both": [process.pid, holder]}[who]
        with open(page, "r+b") as opened, mmap.mmap(opened.fileno(), 64) as view:
            view[8 : 8 + 8 * len(pids)] = struct.pack(f"={len(pids)}d", *pids)
            view[0:8] = struct.pack("=d", STEP)
        until(lambda: not any(map(alive, below)), SOON)
        assert process.wait(10) == 76


# Each supervisor by itself, in a process of its own (it kills all that descends from it), with a clock that jumps. What it
# would be told by the other one comes from here.
FRONT = """
import os, socket, subprocess
from holdfast.cli import supervisor, tree
from holdfast.cli.board import Board, Pipe

now = 100.0
class Client: urls = ()
class Job: name, margin, ttl, client = "x", 0.1, 5.0, Client
it = supervisor.Supervisor(Job, supervisor.Output(), None, now=lambda: now)
tree.adopt()
it._board = Board()
ours, theirs = socket.socketpair()
it._line, it._own_group, it._command, it._done = Pipe(ours), True, 0, None
holder = subprocess.Popen(["sh", "-c", "sleep 60 & echo; exec sleep 61"], stdout=subprocess.PIPE)
holder.stdout.readline()
it._holder = holder.pid
poll = supervisor.select.poll()
poll.register(ours, supervisor.select.POLLIN)
it._board.until = 105.0
for moment, lives in ((100.0, True), (104.9, True), (104.96, False)):
    now = moment
    it._turn(poll)
    if not lives:
        holder.wait(5)
    assert bool(tree.descendants(os.getpid())) is lives, moment
assert it._killed and it._board.until == 0.0
"""
HOLDER = """
import os, select, socket, time
from math import inf
from holdfast.face.lease import LeaseState
from holdfast.cli import board, command, holder, tree

now, until = 100.0, 105.0
class Job:
    name, path, argv, ttl, margin, kill_after = "x", "/bin/sleep", ["sleep", "60"], 5.0, 0.1, 1.0
    max_hold, on_lost, leftovers, scope, names, verb = inf, "kill", "kill", "group", ("x",), "run"
class Lease:
    state, name, names, fences, tokens, slots, waited = LeaseState.HELD, "x", ("x",), {"x": 1}, {"x": "t"}, (), 0.0
    held = property(lambda self: now < until)
    remaining = property(lambda self: max(0.0, until - now))
tree.adopt()
ours, theirs = socket.socketpair()
screen = board.Board()
it = holder.Holder(Job, board.Pipe(theirs), screen, os.getpid(), -1, command.Signals(), now=lambda: now)
it._lease, it._phase, it._over = Lease(), holder.HolderPhase.ASKED, False
it._from_supervisor("go")
poll = select.poll()
poll.register(it._wake_in, select.POLLIN)
lives = lambda: bool(tree.descendants(os.getpid()))
assert lives() and screen.until == 105.0
for now, alive in ((103.8, True), (104.89, None), (104.91, False)):
    it._turn(poll)
    if now < 103.9:
        assert it._told == "" and it._next <= 104.05, "it wakes for the next deadline"
    if alive:
        assert lives(), now
deadline = time.monotonic() + 5
while lives() and time.monotonic() < deadline:
    it._turn(poll)
assert not lives()
assert it._told == "danger"
"""


@pytest.mark.parametrize("program", [FRONT, HOLDER])
def test_each_loop_looks_at_its_clock_first(program: str, tmp_path: Path) -> None:
    environment = Command(tmp_path, {}).environment
    subprocess.run([sys.executable, "-c", program], env=environment, check=True, timeout=20)
