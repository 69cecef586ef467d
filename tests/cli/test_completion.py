"""Completion scripts: files in deploy/command, loaded by real shells. Pressing TAB starts no Python."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

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
