"""`holdfast run`: exit statuses, what the command is told, options, and what is said on stderr."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli.kit import Command, holder_of, lines
from nemesis.processes import until

from holdfast import Holdfast
from holdfast.cli import tree
from holdfast.cli.command import ENDING, FORWARDED
from holdfast.embedded import Nodes

STATUSES: dict[str, tuple[list[str], int]] = {
    "success": (["x", "--", "true"], 0),
    "its own": (["x", "--", "sh", "-c", "exit 7"], 7),
    "a line of shell": (["-c", "exit 8", "x"], 8),
    "a line of shell, as flock has it": (["x", "-c", "exit 9"], 9),
    "without the two dashes": (["x", "false"], 1),
    "killed": (["x", "--", "sh", "-c", "kill -KILL $$"], 137),
    "not found": (["x", "--", "no-such-command"], 127),
    "not executable": (["x", "--", "/etc/passwd"], 126),
    "not found, and nobody is asked": (["--nodes", "redis://127.0.0.1:1", "x", "--", "no-such-command"], 127),
    "a wrong option": (["--no-such", "x", "true"], 64),
    "no command": (["x"], 64),
    "an option behind the name": (["x", "-n", "true"], 64),
    "a wrong duration": (["-w", "soon", "x", "true"], 64),
    "kill-after too long": (["--kill-after", "9s", "x", "true"], 64),
    "a ttl too long": (["--ttl", "1h", "x", "true"], 78),
    "a wrong node": (["--nodes", "http://a", "x", "true"], 78),
    "nobody there": (["--nodes", "redis://127.0.0.1:1", "-n", "x", "true"], 69),
    "at-least and permits": (["--at-least", "2s", "--slots", "2", "x", "true"], 64),
    "at-least for two days": (["--at-least", "2d", "x", "true"], 78),
    "max-hold": (["--ttl", "3s", "--kill-after", "100ms", "--max-hold", "300ms", "x", "--", "sleep", "30"], 124),
}


@pytest.mark.parametrize("case", STATUSES)
def test_exit_statuses(case: str, holdfast: Command) -> None:
    words, code = STATUSES[case]
    done = holdfast.run("run", *words)
    assert done.returncode == code, done.stderr
    assert done.stdout == ""
    if code in (0, 1, 7, 8, 9, 137):
        assert done.stderr == ""
    else:
        assert all(it.startswith(("holdfast: ", "  ")) for it in done.stderr.splitlines()), done.stderr
        assert "Traceback" not in done.stderr


def test_the_name_stays_taken_though_the_command_and_its_holder_have_ended(holdfast: Command) -> None:
    began = time.monotonic()
    assert holdfast.run("run", "--at-least", "8s", "job", "--", "true").returncode == 0
    assert holdfast.run("run", "-n", "job", "--", "true").returncode == 75
    assert holdfast.run("run", "job", "--", "true").returncode == 0
    assert time.monotonic() - began >= 8.0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGQUIT, signal.SIGHUP, signal.SIGPIPE])
def test_it_dies_of_what_the_command_died_of(number: signal.Signals, holdfast: Command) -> None:
    assert holdfast.run("run", "x", "-c", f"kill -{number.name[3:]} $$").returncode == -number


def test_a_script_without_a_first_line_for_the_kernel_runs(holdfast: Command, tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text('echo "$1"\n')
    script.chmod(0o755)
    assert holdfast.run("run", "x", "--", str(script), "two words").stdout == "two words\n"


def test_the_command_is_told_of_its_lock(holdfast: Command, nodes: Nodes) -> None:
    told = dict(it.split("=", 1) for it in holdfast.run("run", "told", "--", "env").stdout.splitlines() if "=" in it)
    assert told["HOLDFAST_NAME"] == told["HOLDFAST_HELD"] == "told"
    assert told["HOLDFAST_FENCING_TOKEN"] == f'"told";fence="{told["HOLDFAST_FENCE"]}"'
    assert "HOLDFAST_SLOT" not in told
    assert "HOLDFAST_TTL" not in told, "it would be a setting of the clients in the command"
    with Holdfast(*nodes.urls) as locks:
        with locks.lock("told", wait=0) as lease:
            assert lease.fence > int(told["HOLDFAST_FENCE"])


def test_several_names_are_held_together(holdfast: Command) -> None:
    told = holdfast.run("run", "--and", "b", "a", "-c", 'echo "$HOLDFAST_NAMES"; echo "$HOLDFAST_HELD"; holdfast run -n b true; echo $?')
    assert told.stdout.split("\n")[:4] == ["a", "b", "a b", "64"]


def test_a_slot_of_a_semaphore(holdfast: Command) -> None:
    inner = 'holdfast run -n --slots 2 gpu -c "echo \\$HOLDFAST_SLOT"'
    words = ("run", "-n", "--slots", "2", "gpu", "-c", f"echo $HOLDFAST_SLOT; {inner}")
    assert sorted(holdfast.run(*words).stdout.split()) == ["0", "1"]


def test_a_command_may_take_several_slots(holdfast: Command) -> None:
    inner = "holdfast run -n --slots 3 --count {} gpu true; echo $?"
    words = ("run", "--slots", "3", "--count", "2", "gpu", "-c", f"echo $HOLDFAST_SLOT; {inner.format(1)}; {inner.format(2)}")
    slots, *codes = holdfast.run(*words).stdout.splitlines()
    assert len(set(slots.split())) == 2
    assert codes == ["0", "75"]
    assert holdfast.run("run", "--count", "2", "gpu", "true").returncode == 64


def test_readers_share_and_a_writer_does_not(holdfast: Command) -> None:
    inner = "env -u HOLDFAST_HELD holdfast run -n {} sides true; echo $?"
    assert holdfast.run("run", "-s", "sides", "-c", inner.format("-s")).stdout == "0\n"
    assert holdfast.run("run", "-s", "sides", "-c", inner.format("-x")).stdout == "75\n"
    assert holdfast.run("run", "-x", "sides", "-c", inner.format("-s")).stdout == "75\n"


def test_the_same_name_inside_is_refused_at_once_and_another_one_works(holdfast: Command) -> None:
    done = holdfast.run("run", "outer", "-c", "holdfast run outer true; echo $?; holdfast run other -c 'echo $HOLDFAST_HELD'")
    assert done.stdout == "64\nouter other\n"
    assert "is held already by a process around this one" in done.stderr


def test_the_same_name_with_another_prefix_inside_is_another_lock(holdfast: Command) -> None:
    inner = "holdfast run --prefix {} x true; echo $?"
    done = holdfast.run("run", "--prefix", "a", "x", "-c", f"{inner.format('b')}; {inner.format('a')}; holdfast run -n ax true; echo $?")
    assert done.stdout == "0\n64\n64\n"
    assert (done.stderr.count("'x' is held already"), done.stderr.count("'ax' is held already")) == (1, 1)


@pytest.fixture
def busy(nodes: Nodes, request: pytest.FixtureRequest) -> Iterator[str]:
    """A name that somebody else holds."""
    name = f"busy:{request.node.name}"
    with Holdfast(*nodes.urls, owner="somebody-else") as locks:
        with locks.lock(name, wait=0):
            yield name


@pytest.mark.parametrize("options, code", [(["-n"], 75), (["-w", "200ms"], 75), (["-n", "-E", "9"], 9), (["-n", "-E", "0"], 0)])
def test_a_lock_that_is_busy(options: list[str], code: int, busy: str, holdfast: Command) -> None:
    done = holdfast.run("run", *options, busy, "--", "echo", "ran")
    assert (done.returncode, done.stdout) == (code, "")
    if code:
        assert f"'{busy}' is held by somebody-else" in done.stderr
        assert "wait=" not in done.stderr
    else:
        assert done.stderr == "", "it skips quietly"


@pytest.mark.parametrize("words, said", [(["-n", "busy"], ""), (["--no-such", "x"], "--no-such")])
def test_quiet_says_nothing_but_what_is_wrong_with_the_command_line(words: list[str], said: str, busy: str, holdfast: Command) -> None:
    done = holdfast.run("run", "-q", *(busy if it == "busy" else it for it in words), "true")
    assert done.returncode in (64, 75)
    assert (said in done.stderr) if said else done.stderr == ""


def test_verbose_tells_of_the_lock(holdfast: Command) -> None:
    said = holdfast.run("run", "-v", "talk", "true").stderr
    assert re.search(r"(?m)^holdfast: have 'talk' after .* m?s$", said)
    assert re.search(r"(?m)^holdfast: released 'talk' after .* m?s$", said)


def test_who_waits_long_is_told_for_what(busy: str, holdfast: Command) -> None:
    done = holdfast.run("run", "-w", "6s", busy, "true")
    assert "in line; held by somebody-else" in done.stderr
    assert done.returncode == 75


def test_fail_open_runs_without_the_lock(holdfast: Command) -> None:
    line = 'echo "<$HOLDFAST_HELD>"; holdfast check; echo $?'
    done = holdfast.run("run", "-w", "1s", "--fail-open", "--nodes", "redis://127.0.0.1:1", "x", "-c", line)
    assert (done.returncode, done.stdout) == (0, "<>\n76\n"), done.stderr
    assert "'x' is not held: this command runs without it" in done.stderr
    assert "running the command without 'x'" in done.stderr


def test_what_happened_is_written_to_a_descriptor(holdfast: Command, tmp_path: Path) -> None:
    with open(tmp_path / "status", "w+") as file:
        done = holdfast.run("run", "--status-fd", str(file.fileno()), "x", "-c", f"exit 3; : {file.fileno()}", pass_fds=[file.fileno()])
        assert done.returncode == 3
        file.seek(0)
        told = lines(file.read())
    assert [it["event"] for it in told] == ["held", "released", "exited"]
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:.]+Z", it["at"]) for it in told)
    assert [it.get("name") for it in told] == ["x", "x", None]
    assert told[2]["command"] == {"status": 3, "signal": None}
    assert told[2]["code"] == 3
    lock = told[2]["lock"]
    assert lock == {**lock, "name": "x", "fence": told[0]["fence"], "waited": told[0]["waited"], "reason": None}
    assert lock["held"] == told[1]["held"] > 0


def test_what_happened_goes_to_stderr_as_well(holdfast: Command) -> None:
    done = holdfast.run("run", "--status-fd", "2", "x", "-c", "echo its own >&2")
    assert done.returncode == 0
    assert "its own\n" in done.stderr
    assert [it["event"] for it in lines(done.stderr)] == ["held", "released", "exited"]


def test_descriptors_are_inherited_and_none_of_ours(holdfast: Command, tmp_path: Path) -> None:
    with open(tmp_path / "a", "w") as a, open(tmp_path / "b", "w") as b:
        ours = [a.fileno(), b.fileno()]
        listed = "import os; print(*sorted(int(it) for it in os.listdir('/proc/self/fd') if os.path.exists(f'/proc/self/fd/{it}')))"
        done = holdfast.run("run", "x", "--", sys.executable, "-c", listed, pass_fds=ours)
    assert [int(it) for it in done.stdout.split()] == sorted([0, 1, 2, *ours])


def test_sockets_of_systemd_are_for_the_command(holdfast: Command) -> None:
    with holdfast.started("run", "x", "-c", "sleep 0.2; echo $LISTEN_PID $$", stdout=subprocess.PIPE, env={"LISTEN_PID": "0"}) as process:
        assert process.communicate()[0].split()[0] == "0", "another process's are left alone"
    shim = "LISTEN_PID=$$ exec \"$0\" -m holdfast run x -c 'echo $LISTEN_PID $$'"
    done = subprocess.run(["sh", "-c", shim, sys.executable], env=holdfast.environment, capture_output=True, text=True, check=True)
    first, second = done.stdout.split()
    assert first == second


def test_stdin_and_stdout_belong_to_the_command(holdfast: Command) -> None:
    assert holdfast.run("run", "-v", "x", "--", "tr", "a-z", "A-Z", input="to be\n").stdout == "TO BE\n"


def test_ignored_signals_stay_ignored(holdfast: Command) -> None:
    show = "import signal; print(signal.getsignal(signal.SIGHUP) == signal.SIG_IGN, signal.getsignal(signal.SIGPIPE) == signal.SIG_DFL)"
    words = ["sh", "-c", 'trap "" HUP; exec "$@"', "sh", *holdfast.words("run", "x", "--", sys.executable, "-c", show)]
    done = subprocess.run(words, env=holdfast.environment, capture_output=True, text=True, check=True)
    # (Python itself ignores SIGPIPE.)
    assert done.stdout.split()[0] == "True"


@pytest.mark.parametrize("number", sorted({*FORWARDED} - {signal.SIGTSTP}))
def test_signals_reach_the_command_and_its_group(number: signal.Signals, holdfast: Command, tmp_path: Path) -> None:
    trap = f"trap ': > {tmp_path}/got-$0' {number.name[3:]}; : > {tmp_path}/ready-$0; while :; do sleep 0.02; done"
    # Members of a pipeline: a shell has its background jobs ignore SIGINT.
    line = f"trap : {number.name[3:]}; sh -c '{trap.replace(chr(39), chr(34))}' a | sh -c '{trap.replace(chr(39), chr(34))}' b"
    with holdfast.started("run", "x", "-c", line) as process:
        until(lambda: (tmp_path / "ready-a").exists() and (tmp_path / "ready-b").exists())
        process.send_signal(number)
        until(lambda: (tmp_path / "got-a").exists() and (tmp_path / "got-b").exists())


def test_a_signal_for_the_command_alone_does_not_reach_its_group(holdfast: Command, tmp_path: Path) -> None:
    member = f"trap ': > {tmp_path}/got-member' USR1; : > {tmp_path}/ready; while :; do sleep 0.02; done"
    line = f"trap ': > {tmp_path}/got' USR1; sh -c \"{member}\" & while :; do sleep 0.02; done"
    with holdfast.started("run", "--signal", "child", "x", "-c", line) as process:
        until((tmp_path / "ready").exists)
        process.send_signal(signal.SIGUSR1)
        until((tmp_path / "got").exists)
        # Longer than a shell of the group would take.
        time.sleep(0.2)
    assert not (tmp_path / "got-member").exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT])
def test_a_signal_ends_the_wait(number: signal.Signals, busy: str, holdfast: Command, nodes: Nodes) -> None:
    with holdfast.started("run", busy, "echo", "ran", stdout=subprocess.PIPE) as process:
        with Holdfast(*nodes.urls) as locks:
            until(lambda: locks.inspect(busy).queue)
            process.send_signal(number)
            assert process.wait(10) == -number
            assert process.stdout.read() == ""
            until(lambda: not locks.inspect(busy).queue)


def test_a_command_that_is_killed_while_it_waits_keeps_no_lock(holdfast: Command, locks: Holdfast) -> None:
    with locks.lock("waits", wait=5) as lease, holdfast.started("run", "waits", "true", stderr=subprocess.PIPE) as process:
        until(lambda: locks.inspect("waits").queue)
        os.kill(until(lambda: tree.children(holder_of(process.pid)))[0], signal.SIGKILL)
        lease.release()
        assert (process.wait(10), process.stderr.read()) == (137, "")
        assert not locks.is_locked("waits")


def test_a_holder_that_is_killed_while_it_waits_held_nothing(holdfast: Command, busy: str) -> None:
    with holdfast.started("run", busy, "true", stderr=subprocess.PIPE) as process:
        os.kill(holder_of(process.pid), signal.SIGKILL)
        assert process.wait(10) == 70
        told = f"holdfast: '{busy}': the process that waited for the lock was killed. The command was not started\n"
        assert process.stderr.read() == told


def test_a_signal_at_the_moment_of_the_grant_leaves_no_lock_and_no_command(holdfast: Command, nodes: Nodes, tmp_path: Path) -> None:
    mark, chance = tmp_path / "mark", random.Random(1)
    with Holdfast(*nodes.urls) as locks:
        for _ in range(20):
            mark.unlink(missing_ok=True)
            lease, number = locks.lock("moment", wait=5).acquire(), chance.choice(ENDING)
            with holdfast.started("run", "moment", "-c", f"echo > {mark}; exec sleep 30") as process:
                until(lambda: locks.inspect("moment").queue)
                lease.release()
                # The grant is as likely to come before as after the signal.
                time.sleep(chance.random() * 0.01)
                process.send_signal(number)
                assert process.wait(10) == -number
                began = mark.exists()
                until(lambda: not locks.is_locked("moment"), 2)
                assert mark.exists() == began, "it began after the end"


@pytest.mark.parametrize("policy", ["kill", "wait", "leave"])
def test_what_the_command_leaves(policy: str, holdfast: Command, tmp_path: Path) -> None:
    began = time.monotonic()
    mark = tmp_path / "mark"
    # The end of a daemon is late enough to tell a policy that waits from one that does not.
    daemon = f"(setsid sh -c 'sleep 4; echo > {mark}' >/dev/null 2>&1 &)"
    done = holdfast.run("run", "--leftovers", policy, "x", "-c", f"{daemon}; exit 6")
    took = time.monotonic() - began
    assert done.returncode == 6, done.stderr
    assert mark.exists() == (policy == "wait")
    assert (took >= 4) == (policy == "wait")
    assert ("ending them too" in done.stderr) == (policy == "kill")
    if policy == "leave":
        until(mark.exists)


@pytest.mark.parametrize("spare", [-1, 0])
def test_a_limit_on_open_files_is_told_before_anything_begins(holdfast: Command, nodes: Nodes, spare: int) -> None:
    least = 9 + len(nodes)
    words = ["sh", "-c", f'ulimit -n {least + spare}; exec "$@"', "sh", *holdfast.words("run", "limited", "--", "true")]
    done = subprocess.run(words, env=holdfast.environment, capture_output=True, text=True, timeout=60, check=False)
    if spare < 0:
        assert done.returncode == 78 and f"open {least - 1} files, and needs {least}: ulimit -n {least}" in done.stderr
    else:
        assert (done.returncode, done.stderr) == (0, "")
