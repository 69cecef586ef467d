"""The whole process tree is dead before anybody else can hold the lock, whichever process is killed or stopped."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import redis
from cli import kills
from cli.kit import DEATHLESS, DYING, SLOW, UNRENEWED, Command, copied, holder_of, lines
from nemesis.arena import life
from nemesis.harm import frozen
from nemesis.processes import alive, naming, until

from holdfast import Holdfast
from holdfast.cli import tree
from holdfast.embedded import Nodes

TREE = """
trap '' TERM
sleep 60 &
setsid sleep 60 &
(setsid sh -c "trap '' TERM; sleep 60; :" &)
sh -c 'kill -STOP $$; sleep 60' &
echo > "$0"
while :; do sleep 1; done
"""


def everybody_below(supervisor: int) -> list[int]:
    """The command and all that it has started."""
    return [it.pid for it in tree.descendants(holder_of(supervisor))]


@contextmanager
def a_tree(holdfast: Command, mark: Path, *words: str) -> Iterator[tuple[subprocess.Popen[str], list[int]]]:
    """A supervisor, and all that is below its holder."""
    with holdfast.started("run", *words, "--", "sh", "-c", TREE, str(mark), stderr=subprocess.DEVNULL) as process:
        until(lambda: mark.exists() and len(everybody_below(process.pid)) >= 7)
        yield process, everybody_below(process.pid)


@pytest.mark.parametrize("victim", ["supervisor", "holder"])
def test_the_tree_dies_with_either_of_the_two(victim: str, holdfast: Command, nodes: Nodes, tmp_path: Path) -> None:
    # Everybody is dead long before the lease ends: not because it ends.
    with a_tree(holdfast, tmp_path / "mark", "--ttl", "30s", "tree") as (process, below):
        holder = holder_of(process.pid)
        tree.send(process.pid if victim == "supervisor" else holder, signal.SIGKILL)
        until(lambda: not any(map(alive, below)))
        if victim == "holder":
            assert process.wait(5) == 76
        else:
            until(lambda: not alive(holder))
            with Holdfast(*nodes.urls) as locks:
                assert not locks.is_locked("tree"), "the lock was released, and did not have to run out"


def test_the_tree_of_a_holder_that_is_long_in_dying_dies_at_once(nodes: Nodes, tmp_path: Path) -> None:
    dies = tmp_path / "dies"
    holdfast = Command(tmp_path, {**nodes.environment, "DIES": str(dies)}, copied(tmp_path, *DYING))
    with a_tree(holdfast, tmp_path / "mark", "--ttl", "30s", "dying") as (process, below):
        dies.touch()
        until(lambda: not any(map(alive, below)))
        assert process.wait(5) == 76


def test_the_supervisor_kills_the_tree_of_a_holder_that_is_stopped(holdfast: Command, nodes: Nodes, tmp_path: Path) -> None:
    with a_tree(holdfast, tmp_path / "mark", "--ttl", "1s", "halt") as (process, below):
        tree.send(holder_of(process.pid), signal.SIGSTOP)
        with Holdfast(*nodes.urls) as locks, locks.lock("halt", wait=10):
            assert not any(map(alive, below)), "somebody lives, and the lock is another's"
        assert process.wait(5) == 76


def test_forced_release_kills_at_once(holdfast: Command, nodes: Nodes, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    words = ("run", "--json", "force", "--", "sh", "-c", TREE, str(mark))
    with holdfast.started(*words, stderr=subprocess.PIPE) as process, Holdfast(*nodes.urls) as locks:
        until(mark.exists)
        below = everybody_below(process.pid)
        locks.force_release("force", "a test")
        told = process.communicate(timeout=10)[1]
        assert process.returncode == 76
        assert not any(map(alive, below))
    assert [it["reason"] for it in lines(told) if it["event"] == "killed"] == ["forced"]


def test_a_supervisor_that_is_stopped_keeps_nobody_from_killing(holdfast: Command, nodes: Nodes, tmp_path: Path) -> None:
    with a_tree(holdfast, tmp_path / "mark", "still") as (process, below):
        tree.send(process.pid, signal.SIGSTOP)
        with Holdfast(*nodes.urls) as locks:
            locks.force_release("still", "a test")
        until(lambda: not any(map(alive, below)))
        tree.send(process.pid, signal.SIGCONT)
        assert process.wait(10) == 76


def test_max_hold_tells_the_command_before_it_kills(holdfast: Command, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    line = f"trap 'echo told > {mark}; exit 0' TERM; while :; do sleep 0.02; done"
    began = time.monotonic()
    done = holdfast.run("run", "--json", "--max-hold", "1500ms", "--kill-after", "2500ms", "x", "-c", line)
    assert time.monotonic() - began >= 1.5, "TERM comes at the limit, and not before it"
    assert done.returncode == 124
    assert mark.read_text() == "told\n"
    assert "killed" not in {it["event"] for it in lines(done.stderr)}


def test_a_command_that_ends_within_max_hold_is_not_told(holdfast: Command) -> None:
    assert holdfast.run("run", "--max-hold", "3s", "--kill-after", "4500ms", "x", "--", "sleep", "0.2").returncode == 0


def test_who_does_not_end_at_max_hold_is_killed_before_the_lock_is_free(holdfast: Command, nodes: Nodes) -> None:
    """The lock is held, and renewed, until nothing of the command is there."""
    words = ("run", "--ttl", "3s", "--max-hold", "1s", "--kill-after", "1s", "long", "-c", "trap '' TERM; sleep 30 & sleep 30")
    with holdfast.started(*words) as process, Holdfast(*nodes.urls) as locks:
        until(lambda: len(everybody_below(process.pid)) >= 3)
        below = everybody_below(process.pid)
        with locks.lock("long", wait=10):
            assert not any(map(alive, below))
        assert process.wait(10) == 124


def test_on_lost_term_lets_the_command_end_by_itself(holdfast: Command, nodes: Nodes, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    line = f"trap 'sleep 0.3; echo clean > {mark}; exit 0' TERM; echo > {mark}; while :; do sleep 0.02; done"
    with holdfast.started("run", "--on-lost", "term", "soft", "-c", line) as process, Holdfast(*nodes.urls) as locks:
        until(mark.exists)
        locks.force_release("soft", "a test")
        assert process.wait(10) == 76
    assert mark.read_text() == "clean\n"


def test_term_comes_before_kill_when_renewals_fail(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    with Nodes(3) as nodes:
        holdfast = Command(tmp_path, nodes.environment)
        line = f"trap 'echo term > {mark}; exit 0' TERM; echo > {mark}; while :; do sleep 0.02; done"
        with holdfast.started("run", "--ttl", "2s", "x", "-c", line, stderr=subprocess.PIPE) as process:
            until(mark.exists)
            with frozen(nodes, 0, 1):
                assert process.wait(10) == 76
                assert "is in danger" in process.stderr.read()
    assert mark.read_text() == "term\n"


def test_a_lease_that_recovers_lets_the_command_run_on(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    with Nodes(3) as nodes:
        holdfast = Command(tmp_path, nodes.environment)
        line = f"trap 'echo term >> {mark}' TERM; echo > {mark}; for i in $(seq 250); do sleep 0.02; done; exit 3"
        words = ("run", "--ttl", "3s", "--kill-after", "1s", "x", "-c", line)
        with holdfast.started(*words, stderr=subprocess.PIPE) as process:
            until(mark.exists)
            with frozen(nodes, 0, 1):
                until(lambda: "term" in mark.read_text(), 5)
            assert process.wait(20) == 76, "it was told to end, so nobody may take this for a success"
            assert "killed" not in process.stderr.read()


def test_a_program_that_clears_its_death_signal_is_found(holdfast: Command, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    clear = "import ctypes, time, pathlib, sys; ctypes.CDLL(None).prctl(1, 0); pathlib.Path(sys.argv[1]).touch(); time.sleep(60)"
    with holdfast.started("run", "x", "--", "python3", "-c", clear, str(mark), stderr=subprocess.DEVNULL) as process:
        until(mark.exists)
        below = everybody_below(process.pid)
        tree.send(holder_of(process.pid), signal.SIGKILL)
        assert process.wait(5) == 76
        assert below
        assert not any(map(alive, below))


def test_two_hundred_children_are_gone_before_the_lock_is(holdfast: Command, nodes: Nodes, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    line = f"for i in $(seq 200); do (setsid sleep 60 &) ; done; echo > {mark}; sleep 60"
    with holdfast.started("run", "crowd", "-c", line, stderr=subprocess.DEVNULL) as process:
        until(mark.exists)
        below = everybody_below(process.pid)
        assert len(below) > 200
        tree.send(process.pid, signal.SIGKILL)
        with Holdfast(*nodes.urls) as locks, locks.lock("crowd", wait=10):
            assert not any(map(alive, below))


def test_a_full_pipe_keeps_nobody_from_the_deadline(holdfast: Command, nodes: Nodes, tmp_path: Path) -> None:
    """Nobody reads stderr, and it is full before the lease is in danger."""
    mark = tmp_path / "mark"
    line = f"echo > {mark}; dd if=/dev/zero bs=65536 count=64 >&2; sleep 60"
    with holdfast.started("run", "-v", "--json", "pipe", "-c", line, stderr=subprocess.PIPE) as process:
        until(mark.exists)
        time.sleep(0.3)
        with Holdfast(*nodes.urls) as locks:
            locks.force_release("pipe", "a test")
            assert process.wait(5) == 76


@pytest.mark.parametrize("fault", kills.Arena.faults)
def test_nobody_overlaps(fault: str, tmp_path: Path) -> None:
    found = kills.campaign(tmp_path, fault, 2)
    assert kills.wrong({fault: found}) == []
    assert found.faults == 2
    assert found.lives >= (1 if fault in kills.Arena.keeps else 2)


def test_the_margin_is_enough_for_a_kill_that_takes_long(tmp_path: Path) -> None:
    found = kills.campaign(tmp_path, "lease runs out", 3, copied(tmp_path, *UNRENEWED, *SLOW), kills.Quiet)
    assert kills.wrong({"": found}) == []
    assert found.lives >= 4


def test_a_command_that_is_not_reaped_before_its_end_is_told_has_its_status(holdfast: Command) -> None:
    """Its process id could be another's by then, and a signal that is passed on would go there."""
    assert holdfast.run("run", "reaped", "--", "sh", "-c", "exit 7").returncode == 7


# ------------------------------------------------ what does not die


def _deathless(tmp_path: Path, beats: str, nodes: Nodes) -> tuple[Command, tuple[str, ...], Path]:
    file = tmp_path / "life"
    words = ("run", "--ttl", "1s", "--kill-after", "100ms", "--status-fd", "2", "deathless", "--", beats, str(file), "term")
    return Command(tmp_path, nodes.environment, copied(tmp_path, *DEATHLESS)), words, file


def _of(file: Path) -> int:
    """The process that beats into a file."""
    return next(it for it in naming(file) if (entry := tree.process(it)) and entry.name == "beater")


def test_what_does_not_die_keeps_the_lock(nodes: Nodes, beats: str, tmp_path: Path) -> None:
    holdfast, words, file = _deathless(tmp_path, beats, nodes)
    with holdfast.started(*words, stderr=subprocess.DEVNULL) as process, Holdfast(*nodes.urls) as locks:
        until(lambda: life(file))
        pid, holder = _of(file), holder_of(process.pid)
        try:
            tree.send(process.pid, signal.SIGKILL)
            # Longer than two leases.
            time.sleep(2.5)
            assert alive(pid)
            assert locks.is_locked("deathless"), "it lives, and the lock is renewed"
            assert alive(holder)
        finally:
            tree.send(pid, signal.SIGKILL)
        until(lambda: not locks.is_locked("deathless"), 5.0)
        until(lambda: not alive(holder), 5.0)


def _left(tmp_path: Path, beats: str) -> tuple[int, list[dict[str, Any]], bool]:
    """Freeze a majority while a command runs that does not die. The exit status, what was told, and whether nodes keep the key."""
    with Nodes(3) as nodes:
        holdfast, words, file = _deathless(tmp_path, beats, nodes)
        with open(tmp_path / "told", "w") as told, holdfast.started(*words, stderr=told) as process:
            until(lambda: life(file))
            pid = _of(file)
            # A client's greeting deletes a key of its own.
            before = _deleted(nodes.urls[2])
            with frozen(nodes, 0, 1):
                try:
                    process.wait(30)
                    deleted = _deleted(nodes.urls[2]) - before
                finally:
                    tree.send(pid, signal.SIGKILL)
        return process.returncode, lines((tmp_path / "told").read_text()), deleted == 0


def _deleted(url: str) -> int:
    """How often a node was told to delete something."""
    with redis.Redis.from_url(url) as node:
        return int(node.info("commandstats").get("cmdstat_del", {}).get("calls", 0))


def test_a_lock_that_cannot_be_renewed_is_left_to_run_out(beats: str, tmp_path: Path) -> None:
    code, told, kept = _left(tmp_path, beats)
    assert code == 76
    events = [it["event"] for it in told]
    assert events[:3] == ["held", "doubt", "terminated"]
    assert {"killed", "left", "stuck", "given_up"} <= set(events)
    assert events[-1] == "exited"
    assert told[-1]["lock"]["reason"] == "danger"
    assert kept, "nobody has released it"
