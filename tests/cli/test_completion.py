"""Completion scripts: files in deploy/command, loaded by real shells. Pressing TAB starts no Python."""

from __future__ import annotations

import os
import pty
import re
import select
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest
from cli.kit import PATIENCE

from holdfast.cli.options import VERBS, parser_of

ROOT = Path(__file__).parents[2]
FILES = {it: ROOT / "deploy/command" / name for it, name in {"bash": "holdfast.bash", "zsh": "_holdfast", "fish": "holdfast.fish"}.items()}


@pytest.mark.parametrize("shell", FILES)
def test_it_knows_every_verb_and_option(shell: str) -> None:
    text = FILES[shell].read_text()
    for verb in VERBS:
        assert re.search(rf"(?m)(^|[ '\"(]){verb}\b", text)
        for option in (it for action in parser_of(verb)._actions for it in action.option_strings):
            assert (option if shell != "fish" else option.lstrip("-")) in text


def test_bash_completes() -> None:
    ask = 'COMP_WORDS=(holdfast {}); COMP_CWORD={}; _shtab_holdfast; echo "${{COMPREPLY[@]}}"'
    source = FILES["bash"].read_text()
    wanted = {
        ("ru", 1): "run",
        ("run --max-h", 2): "--max-hold",
        ("run --max-", 2): "--max-hold --max-ttl",
        ("run --on-lost k", 3): "kill",
        ("run deploy -- mkfif", 4): "mkfifo",
    }
    for asked, found in wanted.items():
        done = subprocess.run(["bash", "-c", source + ask.format(*asked)], capture_output=True, text=True, check=True)
        assert set(done.stdout.split()) == set(found.split())


def test_fish_completes(tmp_path: Path) -> None:
    fish = shutil.which("fish")
    assert fish is not None, "install fish, as .ci/run does"
    asked = {
        "holdfast ru": {"run"},
        "holdfast run --max-": {"--max-hold", "--max-ttl"},
        "holdfast nodes --wa": {"--watch"},
        "holdfast run deploy -- mkfif": {"mkfifo"},
    }
    for line, wanted in asked.items():
        words = [fish, "--no-config", "-c", f"source {FILES['fish']}; complete -C '{line}'"]
        done = subprocess.run(words, env={**os.environ, "HOME": str(tmp_path)}, capture_output=True, text=True, check=True)
        assert {it.split("\t")[0] for it in done.stdout.splitlines()} == wanted


SET_UP = {
    "bash": ("bash --norc --noprofile -i", "source {folder}/holdfast.bash"),
    "zsh": ("zsh -f -i", "fpath=({folder} $fpath); autoload -Uz compinit; compinit -u -D"),
}


@pytest.mark.parametrize("shell", SET_UP)
def test_pressing_tab_completes_and_starts_no_python(shell: str, tmp_path: Path) -> None:
    words, load = SET_UP[shell]
    assert shutil.which(shell), f"install {shell}, as .ci/run does"
    started = tmp_path / "started"
    for name in ("holdfast", "python", "python3"):
        trap = tmp_path / "bin" / name
        trap.parent.mkdir(exist_ok=True)
        trap.write_text(f'#!/bin/sh\necho "$0 $*" >> {started}\n')
        trap.chmod(0o755)
    path = f"{tmp_path}/bin:{os.environ['PATH']}"
    environment = {"PATH": path, "HOME": str(tmp_path), "TERM": "dumb", "PS1": "READY> ", "PROMPT": "READY> "}
    pid, fd = pty.fork()
    if pid == 0:
        os.execvpe(shell, words.split(), environment)
    try:
        _expect(fd, "READY> ")
        os.write(fd, load.format(folder=FILES[shell].parent).encode() + b"; echo LOAD''ED\n")
        _expect(fd, r"LOADED(?s:.)*READY> ")
        os.write(fd, b"holdfast run --max-h\t")
        _expect(fd, r"--max-hold ")
        os.write(fd, b"\x15holdfast elec\t")
        _expect(fd, r"elect ")
        os.write(fd, b"\x15holdfast run deploy -- mkfif\t")
        _expect(fd, r"mkfifo ")
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(fd)
    assert not started.exists(), started.read_text()


def _expect(fd: int, pattern: str) -> None:
    shown, deadline = "", time.monotonic() + PATIENCE
    while not re.search(pattern, shown):
        assert time.monotonic() < deadline, f"{pattern!r} did not come; the terminal shows {shown!r}"
        if select.select([fd], [], [], 0.2)[0]:
            shown += os.read(fd, 65536).decode(errors="replace")
