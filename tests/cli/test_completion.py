"""Completion scripts: files in deploy/command, loaded by real shells. Pressing TAB starts no Python."""

from __future__ import annotations

import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
FILES = {it: ROOT / "deploy/command" / name for it, name in {"bash": "holdfast.bash", "zsh": "_holdfast", "fish": "holdfast.fish"}.items()}


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
