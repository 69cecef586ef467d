"""The other verbs: hold, once, elect, rate, ls, inspect, nodes, release, repair, check, local; and --help."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import redis
from cli.kit import Command, lines
from nemesis.processes import alive, until

from holdfast import Holdfast
from holdfast.cli.options import VERBS
from holdfast.cli.output import in_shells
from holdfast.embedded import Nodes
from holdfast.version import VERSION

# ------------------------------------------------ hold and check


def test_hold_says_so_and_releases_when_stdin_ends(holdfast: Command, locks: Holdfast) -> None:
    with holdfast.started("hold", "script", stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        told = json.loads(process.stdout.readline())
        assert told["token"] == locks.locked_by("script")
        assert told["fence"] == locks.inspect("script").fence
        process.stdin.close()
        assert process.wait(10) == 0
        assert not locks.is_locked("script")


def test_hold_ends_with_a_signal_and_a_busy_lock_is_75(holdfast: Command, locks: Holdfast) -> None:
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with holdfast.started("hold", "script", **pipes) as process:
        until(lambda: locks.is_locked("script"))
        busy = holdfast.run("hold", "-n", "script", stdin=subprocess.DEVNULL)
        assert (busy.returncode, busy.stdout) == (75, "")
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == -signal.SIGTERM
        assert process.stderr.read() == ""
        assert not locks.is_locked("script")


def test_hold_stops_the_guarded_process_when_the_lease_is_lost(holdfast: Command, locks: Holdfast) -> None:
    with subprocess.Popen(["sh", "-c", "sleep 60 & wait"]) as guarded:
        words = ("hold", "--guard", str(guarded.pid), "guarded")
        with holdfast.started(*words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            # (The nodes know it sooner. A request that was not granted yet would ask again.)
            assert json.loads(process.stdout.readline())["name"] == "guarded"
            locks.force_release("guarded", "a test")
            assert process.wait(10) == 76
            assert "'guarded' is lost (forced)" in process.stderr.read()
        assert guarded.wait(5) == -signal.SIGKILL


@pytest.mark.parametrize("guarded", ["0", "-1", "9" * 21])
def test_hold_guards_only_what_could_be_stopped(guarded: str, holdfast: Command) -> None:
    done = holdfast.run("hold", f"--guard={guarded}", "guarded", stdin=subprocess.DEVNULL)
    assert (done.returncode, done.stdout) == (64, "")


def test_hold_ignores_what_it_was_started_to_ignore(holdfast: Command, locks: Holdfast) -> None:
    how = {"stdin": subprocess.PIPE, "preexec_fn": lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN)}
    with holdfast.started("hold", "nohup", **how) as process:
        until(lambda: locks.is_locked("nohup"))
        process.send_signal(signal.SIGHUP)
        process.stdin.close()
        assert process.wait(10) == 0


def test_hold_waits_no_longer_than_the_script_lives(holdfast: Command, locks: Holdfast) -> None:
    with locks.lock("waits", wait=5), holdfast.started("hold", "waits", stdin=subprocess.PIPE) as process:
        until(lambda: locks.inspect("waits").queue)
        process.stdin.close()
        assert process.wait(10) == 75
        assert not locks.inspect("waits").queue


def test_hold_refuses_what_is_held_around_it(holdfast: Command) -> None:
    assert holdfast.run("run", "around", "-c", "holdfast hold around </dev/null; echo $?").stdout == "64\n"


def test_hold_releases_what_it_cannot_announce(holdfast: Command, locks: Holdfast) -> None:
    with open("/dev/full", "w") as full:
        assert holdfast.run("hold", "full", stdout=full, stderr=subprocess.PIPE, capture_output=False).returncode == 70
    assert not locks.is_locked("full")


def recipe(holdfast: Command, line: str) -> subprocess.CompletedProcess[str]:
    """The shell recipe of the help, with this line under the lock."""
    script = f"""
        coproc LOCK {{ holdfast hold --guard $$ recipe; }}
        read -r held <&"${{LOCK[0]}}" || exit 75
        exec 9>"/dev/fd/${{LOCK[1]}}" {{LOCK[1]}}>&-
        {line}
        exec 9>&-
        wait
    """
    return subprocess.run(["bash", "-c", script], env=holdfast.environment, capture_output=True, text=True, check=False, timeout=20)


def test_the_shell_recipe_of_the_help(holdfast: Command, locks: Holdfast) -> None:
    done = recipe(holdfast, 'echo "$held"')
    assert json.loads(done.stdout)["name"] == "recipe"
    assert not locks.is_locked("recipe")


def test_children_of_a_script_that_was_killed_keep_its_lock(holdfast: Command, locks: Holdfast) -> None:
    done = recipe(holdfast, "sh -c 'kill -KILL $PPID; holdfast run -w 0.5 recipe true; echo $?'")
    assert (done.returncode, done.stdout) == (-signal.SIGKILL, "75\n"), done.stderr
    until(lambda: not locks.is_locked("recipe"))


def test_check_knows_whether_the_lock_is_still_held(holdfast: Command, locks: Holdfast) -> None:
    assert holdfast.run("check").returncode == 64
    told = {"HOLDFAST_FENCING_TOKEN": '"checked";fence="1"', "HOLDFAST_TOKEN": "1795413211184830:" + "0" * 32 + ":00000001"}
    assert holdfast.run("check", env=told).returncode == 76
    assert holdfast.run("check", env={**told, "HOLDFAST_TOKEN": "two tokens"}).returncode == 64
    assert holdfast.run("check", env={**told, "HOLDFAST_FENCING_TOKEN": "checked;1"}).returncode == 64
    down = holdfast.run("check", "--nodes", "redis://127.0.0.1:1", env=told)
    # The library's log is not shown.
    assert (down.returncode, len(re.findall("(?m)^holdfast: ", down.stderr)), down.stderr.count("redis://")) == (69, 1, 1), down.stderr


@pytest.mark.parametrize("words", ["run", "run -s", "run -x", "run --slots 2", "run --and second", "elect", "once --keep 1m"])
def test_check_knows_every_kind_of_lock(words: str, holdfast: Command) -> None:
    done = holdfast.run(*words.split(), "checked", "-c", "holdfast check; echo $?")
    assert done.stdout == "0\n", done.stderr


# ------------------------------------------------ once, elect, rate


def test_hosts_that_start_together_wait_and_the_next_one_runs_what_has_failed(holdfast: Command, tmp_path: Path) -> None:
    """The line of the README. Each host runs it, or ends when another has done it."""
    words = ("once", "-v", "--per", "day", "--keep", "7d", f"report {tmp_path.name}", "-c")
    fails = f"while [ ! -e {tmp_path}/both ]; do sleep 0.05; done; exit 3"
    with holdfast.started(*words, fails) as first:
        until(lambda: tmp_path.name in holdfast.run("ls").stdout)
        others = [holdfast.started(*words, f"echo ran >> {tmp_path}/count", stderr=subprocess.PIPE) for _ in range(2)]
        with others[0] as second, others[1] as third:
            until(lambda: 2 in [it.get("waiting") for it in lines(holdfast.run("ls", "--json", "report*").stdout)])
            (tmp_path / "both").touch()
            told = [it.communicate(timeout=30)[1] for it in (second, third)]
            assert [it.wait(10) for it in (first, second, third)] == [3, 0, 0]
    assert (tmp_path / "count").read_text() == "ran\n"
    assert sum("was done already, by" in it for it in told) == 1


def test_once_that_another_one_runs_is_not_taken_for_done(holdfast: Command, tmp_path: Path) -> None:
    key = f"busy {tmp_path.name}"
    with holdfast.started("once", "--per", "1h", key, "sleep", "30"):
        until(lambda: key in holdfast.run("ls").stdout)
        for words, code in ((("-n",), 75), (("-w", "0.1s"), 75), (("-n", "-E", "0"), 0), (("-n", "-E", "9"), 9)):
            done = holdfast.run("once", "--per", "1h", *words, key, "true")
            assert (done.returncode, bool(done.stderr)) == (code, code != 0)


def test_the_days_of_once_are_those_of_a_zone(holdfast: Command, tmp_path: Path) -> None:
    words = ("once", "--per", "day", "--keep", "2d", f"night {tmp_path.name}", "-c", f"echo ran >> {tmp_path}/count")
    for zone in ("Pacific/Kiritimati", "Pacific/Niue"):
        # The two differ by 25 hours, so they never have the same day.
        assert holdfast.run(*words[:1], "--zone", zone, *words[1:]).returncode == 0
    assert (tmp_path / "count").read_text() == "ran\n" * 2
    hourly = ("--per", "hour", "--keep", "1d", f"hour {tmp_path.name}", "-c", f"echo ran >> {tmp_path}/hours")
    for zone in ("UTC", "Asia/Kolkata", "UTC"):
        assert holdfast.run("once", "--zone", zone, *hourly).returncode == 0
    assert (tmp_path / "hours").read_text() == "ran\n" * 2


REFUSED: dict[str, tuple[tuple[str, ...], int, str]] = {
    "no exit status": (("run", "-E", "256", "x", "true"), 64, "is no exit status. Write a number from 0 to 255"),
    "no whole number": (("run", "-E", "1.5", "x", "true"), 64, "is no exit status. Write a number from 0 to 255"),
    "no nodes, though the environment has some": (("run", "--nodes", "", "x", "true"), 64, ""),
    "no descriptor": (("run", "--status-fd", "9" * 20, "x", "true"), 64, ""),
    "readers with a note": (("hold", "-s", "--note", "me", "x"), 64, "-s has no --note"),
    "no port": (("serve", "--listen", "127.0.0.1:²"), 64, ""),
    "no rate": (("rate", "x", "²/1m", "true"), 64, ""),
    "no text": (("run", "\udcff", "true"), 78, "is not valid UTF-8"),
    "one address for two": (("ls", "--nodes", "redis://a,redis://b"), 78, "separate them by spaces, `--nodes 'redis://a redis://b'`"),
    "once, for nobody knows how long": (("once", "key", "true"), 64, ""),
    "once a day, for nobody knows how long": (("once", "--per", "day", "key", "true"), 64, ""),
    "a zone, and no day": (("once", "--per", "1h", "--zone", "UTC", "key", "true"), 64, "it goes with --per hour, day, week or month"),
    "a word after nodes": (("nodes", "adopted"), 64, "invalid choice: 'adopted'"),
    "watching what is done once": (("nodes", "adopt", "--watch"), 64, "leave --watch out"),
    "no zone": (("once", "--per", "day", "--keep", "2d", "--zone", "Nowhere/Atall", "key", "true"), 78, ""),
    "no verb": (("rnu",), 64, "Did you mean run?"),
    "nothing to lock": (("lock",), 64, ""),
    "an unknown option": (("lock", "--bogus", "alias"), 64, ""),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_work_is_refused_in_plain_words(case: str, holdfast: Command) -> None:
    words, code, says = REFUSED[case]
    done = holdfast.run(*words)
    assert (done.returncode, done.stdout) == (code, "")
    assert says in done.stderr and "Traceback" not in done.stderr


def test_a_short_longest_lease_shortens_the_usual_one(holdfast: Command) -> None:
    assert holdfast.run("ls", "--max-ttl", "5s").returncode == 0


@pytest.mark.parametrize("charmap", ["ANSI_X3.4-1968", "ISO-8859-1"])
def test_b10_a_name_is_the_same_lock_whatever_the_locale_is(holdfast: Command, locks: Holdfast, tmp_path: Path, charmap: str) -> None:
    """The first is the locale C, in which Python keeps bytes that are no ASCII as halves of surrogate pairs."""
    elsewhere = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    if charmap == "ISO-8859-1":
        # (Its status is 1 for a warning, too.)
        subprocess.run(["localedef", "-c", "-i", "de_DE", "-f", charmap, tmp_path / "de_DE"], check=False, capture_output=True)
        elsewhere |= {"LC_ALL": "de_DE", "LOCPATH": str(tmp_path)}
    asked = subprocess.run(
        [sys.executable, "-c", "import locale; print(locale.nl_langinfo(locale.CODESET))"],
        env={**os.environ, **elsewhere}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert asked.stdout == f"{charmap}\n", "the locale is not there (Debian: `apt install locales`)"
    name, second = f"prüfung €:{charmap}", f"zweite ü:{charmap}"
    tell = 'holdfast check && printf \'%s\' "$HOLDFAST_NAMES" >names && holdfast inspect "$HOLDFAST_NAME"; sleep 30'
    with holdfast.started("run", "--note", "für alle", "--and", second, name, "-c", tell, env=elsewhere, cwd=tmp_path):
        until(lambda: locks.is_locked(name) and locks.is_locked(second) and (tmp_path / "names").exists())
        assert locks.inspect(name).note == "für alle"
        assert (tmp_path / "names").read_text("utf-8") == f"{name}\n{second}", "in the bytes that `check` and others take"
        assert name in holdfast.run("inspect", name, env=elsewhere, encoding="utf-8").stdout
        assert holdfast.run("run", "-n", name, "true", env=elsewhere).returncode == 75
        assert name in holdfast.run("ls", "prüf*:*", env=elsewhere, encoding="utf-8").stdout
    again = "printf ü; HOLDFAST_PREFIX=ü: env -u HOLDFAST_HELD holdfast run -n shown true; echo $?"
    printed = holdfast.run("run", "--prefix", "ü:", "shown", "-c", again, env=elsewhere, encoding="utf-8")
    assert printed.stdout == "ü75\n", "the command's own words are as they were typed, and the variable says the same"
    wrong = subprocess.run(
        [os.fsencode(it) for it in holdfast.words("run")] + [b"\xfc", b"true"],
        env={**holdfast.environment, **elsewhere}, capture_output=True, check=False,
    )  # fmt: skip
    assert wrong.returncode == 78 and b"is not valid UTF-8" in wrong.stderr


def test_whoever_leads_is_seen_and_the_next_one_takes_over(holdfast: Command, locks: Holdfast, tmp_path: Path) -> None:
    assert holdfast.run("inspect", "office").returncode == 1
    with holdfast.started("elect", "--value", "first", "office", "-c", f"echo $HOLDFAST_TERM > {tmp_path}/term; exec sleep 60") as process:
        until(lambda: (tmp_path / "term").exists() and (tmp_path / "term").read_text())
        for name in ("office", "office[election]"):
            seen = json.loads(holdfast.run("inspect", "--json", name).stdout)
            assert (seen["name"], seen["leader"]) == ("office[election]", "first")
            assert seen["fence"] == int((tmp_path / "term").read_text())
        assert holdfast.run("inspect", "office").stdout.endswith("\n  leader: first\n")
        with locks.lock("office"):
            both = json.loads(holdfast.run("inspect", "--json", "office").stdout)
            assert (both["name"], both["owner"], both["leader"]) == ("office", "the-test", "first")
        assert holdfast.run("elect", "-w", "200ms", "office", "true").returncode == 75
        process.terminate()
        assert process.wait(10) == -signal.SIGTERM
    ended = holdfast.run("inspect", "--json", "office")
    assert (ended.returncode, json.loads(ended.stdout)["leader"]) == (1, None)


def test_elect_again_campaigns_again_until_a_signal(holdfast: Command, tmp_path: Path) -> None:
    file = tmp_path / "terms"
    with holdfast.started("elect", "--again", "office", "-c", f"echo $HOLDFAST_TERM >> {file}") as process:
        began = time.monotonic()
        until(lambda: file.exists() and len(file.read_text().splitlines()) >= 3)
        # A command that ends at once keeps neither the host nor the nodes busy.
        assert time.monotonic() - began >= 2.0
        process.terminate()
        # A command that has just ended by itself ends with 0.
        assert process.wait(10) in (0, -signal.SIGTERM)
    terms = [int(it) for it in file.read_text().splitlines()]
    assert terms == sorted(set(terms))


def test_rate_becomes_the_command(holdfast: Command) -> None:
    words = ("rate", "-n", "turn", "1/1h", "-c", "echo $$; exit 4")
    with holdfast.started(*words, stdout=subprocess.PIPE) as process:
        assert process.stdout.read() == f"{process.pid}\n"
        assert process.wait(10) == 4
    second = holdfast.run(*words)
    assert (second.returncode, second.stdout) == (75, "")
    assert holdfast.run("rate", "-n", "--key", "other", *words[2:]).returncode == 4
    assert holdfast.run("rate", "turn", "often", "true").returncode == 64


# ------------------------------------------------ looking


@pytest.mark.parametrize("words", ["rate scripts 9/1m", "local -n 1", "run script"])
def test_every_verb_executes_what_a_shell_would(words: str, holdfast: Command, tmp_path: Path) -> None:
    for name, text in (("plain", 'echo "$1"\n'), ("lost", "#!/nonexistent/interpreter\n")):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    done = holdfast.run(*words.split(), "--", str(tmp_path / "plain"), "told")
    assert (done.returncode, done.stdout, done.stderr) == (0, "told\n", "")
    done = holdfast.run(*words.split(), "--", str(tmp_path / "lost"))
    assert (done.returncode, done.stderr) == (126, f"holdfast: {tmp_path}/lost cannot be executed: No such file or directory\n")


def test_ls_and_inspect(holdfast: Command, locks: Holdfast) -> None:
    with locks.lock("seen:\n1") as lease:
        assert holdfast.run("ls", "seen:*").stdout == "seen:\\n1\n"
        assert "the-test" in holdfast.run("ls", "-l", "seen:*").stdout
        row, last = lines(holdfast.run("ls", "--json", "seen:*").stdout)
        assert (row["name"], row["fence"], row["holder"], row["owner"]) == ("seen:\n1", lease.fence, lease.token, "the-test")
        assert (row["kind"], row["waiting"], row["note"]) == ("exclusive", 0, None)
        assert row["votes"] in (3, 4, 5), "a majority is enough for a survey"
        assert last == {"scanned": last["scanned"], "nodes": 3, "complete": True}
        shown = holdfast.run("inspect", "--json", "seen:\n1")
        assert shown.returncode == 0
        (status,) = lines(shown.stdout)
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT.*Z", status["asked"])
        assert [it["holder"] for it in status["nodes"]] == [lease.token] * 5
    assert holdfast.run("inspect", "seen:\n1").returncode == 1
    assert holdfast.run("inspect", "seen[slot 0]").returncode == 1, "no election can have this name"
    assert holdfast.run("ls", "seen:*").stdout == ""


def test_nodes(holdfast: Command, nodes: Nodes) -> None:
    found = json.loads(holdfast.run("nodes", "--json").stdout)
    assert (found["quorum"], found["up"], found["spare"]) == (3, 5, 2)
    assert {it["run_id"] for it in found["nodes"]} == nodes.run_ids
    assert all(it["rtt"] > 0 and it["uptime"] > 0 and it["answered"] > 0 and it["guard_left"] is None for it in found["nodes"])
    none = holdfast.run("nodes", "--nodes", "redis://127.0.0.1:1")
    assert none.returncode == 69
    assert "0 of 1 are up, 1 are needed" in none.stdout


def test_release_takes_it_from_the_one_that_is_named(holdfast: Command, locks: Holdfast) -> None:
    lease = locks.lock("taken", wait=0).acquire()
    words = ("release", "--reason", "a test", "taken")
    assert holdfast.run(*words).returncode == 64, "neither --only nor --any"
    assert holdfast.run(*words[:-1], "--any", "taken", stdin=subprocess.DEVNULL).returncode == 64, "nobody can be asked, and no --yes"
    assert holdfast.run(*words[:-1], "--yes", "--only", "somebody", "taken").returncode == 75
    assert lease.held
    assert holdfast.run(*words[:-1], "--yes", "--only", lease.token, "taken").returncode == 0
    until(lambda: not lease.held)
    free = holdfast.run(*words[:-1], "--yes", "--any", "taken")
    assert (free.returncode, free.stdout.splitlines()[-1]) == (1, "nobody holds it")


@pytest.mark.parametrize("typed, code", [("no", 1), ("asked", 0)])
def test_on_a_terminal_release_asks_for_the_name(typed: str, code: int, holdfast: Command, locks: Holdfast) -> None:
    lease = locks.lock("asked", wait=5).acquire()
    ours, theirs = pty.openpty()
    with holdfast.started("release", "--reason", "a test", "--any", "asked", stdin=theirs, stdout=subprocess.PIPE) as process:
        os.write(ours, f"{typed}\n".encode())
        said = process.stdout.read()
        assert process.wait(10) == code
    os.close(ours)
    os.close(theirs)
    assert "type its name (asked)" in said
    assert ("taken on" in said) == (code == 0)
    if code:
        lease.release()
    else:
        until(lambda: not lease.held)


@pytest.mark.parametrize("words", ["inspect watched", "nodes"])
def test_watch_says_first_how_it_looks(words: str, holdfast: Command) -> None:
    with holdfast.started(words.split()[0], "--watch", *words.split()[1:], stdout=subprocess.PIPE) as process:
        assert process.stdout.readline().startswith("# looks every")
        process.terminate()


# ------------------------------------------------ local, help


def test_local_nodes_are_gone_with_the_command(holdfast: Command) -> None:
    inner = "holdfast run a -c 'echo $HOLDFAST_FENCE; exit 7'; echo $?; echo $HOLDFAST_NODES"
    done = holdfast.run("local", "-n", "3", "--", "sh", "-c", inner, env={"HOLDFAST_NODES": ""})
    fence, status, urls = done.stdout.splitlines()
    assert fence.isdigit()
    assert status == "7"
    assert len(urls.split()) == 3
    assert not any(Path(it.removeprefix("unix://")).exists() for it in urls.split())
    assert holdfast.run("local", "--", "sh", "-c", "exit 9").returncode == 9


def test_local_passes_a_signal_on(holdfast: Command, tmp_path: Path) -> None:
    with holdfast.started("local", "-n", "1", "--", "sh", "-c", f"echo $$ > {tmp_path}/pid; exec sleep 60") as process:
        until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text())
        process.terminate()
        assert process.wait(10) == 128 + signal.SIGTERM
        assert not alive(int((tmp_path / "pid").read_text()))


def test_help(holdfast: Command) -> None:
    first, whole = holdfast.run(), holdfast.run("--help")
    assert (first.returncode, whole.returncode) == (0, 0)
    for verb in VERBS:
        assert f"  {verb} " in first.stdout and f"  {verb} " in whole.stdout
        assert holdfast.run(verb, "--help").stdout.startswith(f"usage: holdfast {verb} ")
    assert "The lease was lost" in whole.stdout
    assert "config.toml" in whole.stdout
    assert "except in four cases" in holdfast.run("run", "--help").stdout
    assert holdfast.run("--version").stdout == f"holdfast {VERSION}\n"


@pytest.mark.parametrize("words", [("errors", "NoQuorum"), ("[holdfast/errors#noquorum]",), ("errors.md#noquorum",)])
def test_help_prints_a_section_of_a_page(holdfast: Command, words: tuple[str, ...]) -> None:
    told = holdfast.run("help", *words).stdout
    assert told.startswith("### NoQuorum\n") and told.count("\n### ") == 0
    assert holdfast.run("help", "errors").stdout.startswith("# Errors, log lines and alerts\n")
    for wrong, lists in ((("erors",), "errors, "), (("errors", "quorum"), "noquorum, ")):
        done = holdfast.run("help", *wrong)
        assert (done.returncode, lists in done.stderr) == (64, True)


def test_lock_is_run_with_a_command_and_hold_without(holdfast: Command) -> None:
    assert holdfast.run("lock", "alias", "echo", "ran").stdout == "ran\n"
    assert json.loads(holdfast.run("lock", "alias", stdin=subprocess.DEVNULL).stdout)["name"] == "alias"


@pytest.mark.parametrize("words", ["--version", "inspect full", "rate --help"])
def test_output_that_cannot_be_written_is_an_error_and_none_of_ours(words: str, holdfast: Command) -> None:
    how = {"capture_output": False, "stderr": subprocess.PIPE, "env": {"PYTHONUNBUFFERED": ""}}
    with open("/dev/full", "w") as full:
        done = holdfast.run(*words.split(), stdout=full, **how)
    assert (done.returncode, done.stderr) == (70, "holdfast: stdout cannot be written to: [Errno 28] No space left on device\n")
    # What was printed at once, and not read any more, is no error.
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as gone:
        done = holdfast.run(*words.split(), stdout=gone, **how)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_standard_file_that_is_closed_is_none_of_a_node(holdfast: Command) -> None:
    # Its stdin would be a file of its own, which does not end.
    done = holdfast.run("hold", "closed", preexec_fn=lambda: os.close(0))
    assert (done.returncode, done.stderr) == (0, "")


def test_it_dies_of_an_interrupt_so_that_a_loop_around_it_ends(holdfast: Command) -> None:
    with holdfast.started("top", "--json", "--count", "100", stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == -signal.SIGINT
        assert process.stderr.read() == ""


def test_a_reader_that_goes_away_is_no_error(holdfast: Command, locks: Holdfast) -> None:
    with locks.lock("pipe:a"), locks.lock("pipe:b"):
        words = " ".join(holdfast.words("ls"))
        done = subprocess.run(["bash", "-c", f"{words} | true"], env=holdfast.environment, capture_output=True, text=True, check=True)
    assert done.stderr == ""


# ------------------------------------------------ a value that never expires


CALLS = {
    "call force_release('nightly', reason, only='9d9').": "run `holdfast release nightly --reason TEXT --only 9d9`.",
    'call force_release("it\'s", reason).': "run `holdfast release 'it'\"'\"'s' --reason TEXT --any`.",
    "call force_release('a', reason, only=locked_by('a')).": (
        "run `holdfast release a --reason TEXT --only TOKEN` (`holdfast inspect a` shows the token)."
    ),
    "If it is right, force_release() repairs the fence.": "If it is right, `holdfast release NAME --reason TEXT --any` repairs the fence.",
}


@pytest.mark.parametrize("said", CALLS)
def test_a_call_is_said_as_a_command(said: str) -> None:
    assert in_shells(f"x: {said}\ny: {said}") == f"x: {CALLS[said]}\ny: {CALLS[said]}"


def test_the_command_that_removes_a_value_without_expiry_works(tmp_path: Path) -> None:
    with Nodes(1) as nodes:
        holdfast = Command(tmp_path, nodes.environment)
        with redis.Redis.from_url(nodes.urls[0]) as node:
            node.set("the job", "worker 7")
        done = holdfast.run("run", "-n", "the job", "true")
        advice = "run `holdfast release 'the job' --reason TEXT --only 'worker 7'`"
        assert done.returncode == 75 and advice in done.stderr, done.stderr
        waited = holdfast.run("run", "-w", "2s", "the job", "true")
        assert waited.stderr.count(advice) >= 1 and "force_release" not in waited.stderr, waited.stderr
        assert holdfast.run("release", "the job", "--reason", "TEXT", "--only", "worker 7", "--yes").returncode == 0
        assert holdfast.run("run", "-n", "the job", "true").returncode == 0


def test_a_lock_of_another_library_is_shown_by_inspect_as_the_help_says(tmp_path: Path) -> None:
    with Nodes(1) as nodes:
        holdfast = Command(tmp_path, nodes.environment)
        with redis.Redis.from_url(nodes.urls[0]) as node, node.lock("theirs", timeout=60):
            listed = [holdfast.run("ls", *more).stdout for more in ([], ["-l"])]
            shown = holdfast.run("inspect", "theirs")
    assert not any("theirs" in it for it in listed)
    assert shown.returncode == 0 and "theirs" in shown.stdout
    said = " ".join(holdfast.run("ls", "--help").stdout.split())
    assert "the locks of holdfast that are held. For a lock of another library: `holdfast inspect NAME`" in said
