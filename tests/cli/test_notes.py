"""What others see of a holder: `--note`, in `ls -l`, `inspect`, and in what a waiter is told."""

from __future__ import annotations

import os
import socket
from argparse import Namespace

import pytest
from cli.kit import Command, lines

from holdfast.cli.running import note_of

LS = "holdfast ls --json {}"


@pytest.mark.parametrize("words", ["run", "run -x", "run --slots 2", "run --and other", "once --keep 1h", "elect"])
def test_the_note_of_every_verb_is_seen(words: str, holdfast: Command) -> None:
    done = holdfast.run(*words.split(), "--note", "build 4711", "noted", "-c", "holdfast ls --json 'noted*'")
    rows = lines(done.stdout)[:-1]
    if words == "elect":
        # (An election's note is what the leader says.)
        assert [it["kind"] for it in rows] == ["election"]
        assert lines(holdfast.run("elect", "--note", "me", "noted", "-c", "holdfast inspect --json noted").stdout)[0]["leader"] == "me"
    else:
        assert [it["note"] for it in rows] == ["build 4711"], done.stdout


def test_without_a_note_others_see_who_runs_what(holdfast: Command) -> None:
    done = holdfast.run("run", "noted:2", "-c", LS.format("noted:2"), env={"LOGNAME": "ci"})
    (row, _) = lines(done.stdout)
    host = socket.gethostname()
    assert row["note"].startswith(f"ci@{host} ")
    assert row["note"].endswith(": sh -c 'holdfast ls --json noted:2'")
    assert row["asked"] is not None


def test_an_empty_note_says_nothing(holdfast: Command) -> None:
    (row, _) = lines(holdfast.run("run", "--note", "", "noted:3", "-c", LS.format("noted:3")).stdout)
    assert row["note"] is None


def test_readers_have_no_note(holdfast: Command) -> None:
    (row, _) = lines(holdfast.run("run", "-s", "noted:4", "-c", LS.format("noted:4")).stdout)
    assert (row["kind"], row["note"]) == ("read", None)
    refused = holdfast.run("run", "-s", "--note", "me", "noted:4", "true")
    assert (refused.returncode, "-s has no --note" in refused.stderr) == (64, True)


def test_who_waits_is_told_the_note(holdfast: Command) -> None:
    inner = "env -u HOLDFAST_HELD holdfast run -w 6s noted:6 true"
    done = holdfast.run("run", "--note", "the first", "noted:6", "-c", inner)
    assert "(the first)" in done.stderr


def test_a_long_command_is_cut_and_bytes_that_are_no_text_are_escaped() -> None:
    note = note_of(Namespace(note=None), "echo \udcff " + "x" * 500)
    assert len(note) <= 203
    assert f" {os.getpid()}: echo \\udcff x" in note
    assert note_of(Namespace(note="mine"), "true") == "mine"


def test_a_user_without_a_name_is_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody() -> str:
        raise KeyError("getpwuid(): uid not found")

    monkeypatch.setattr("getpass.getuser", nobody)
    assert note_of(Namespace(note=None), "true").startswith(f"{os.getuid()}@")
