"""An environment of its own for each contender, and the programs in C.

Knows venv, pip, uv and the C compiler. Must not know what contenders do.

An environment that cannot be made is no error: its contenders are left out, and the reason is told beside the results.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent
MADE = HERE / "environments"


class Unavailable(Exception):
    """It cannot be had here; says why."""


_failed: dict[str, Unavailable] = {}  # what cannot be made is tried once a run


def python(name: str) -> Path:
    """The interpreter of an environment, which is made if it is not there, or its list of packages has changed."""
    if name in _failed:
        raise _failed[name]
    try:
        return _python(name)
    except Unavailable as reason:
        _failed[name] = reason
        raise


def variables(name: str) -> dict[str, str]:
    """What a process in an environment needs to find the contenders' adapters, and holdfast if it is its."""
    path = [str(ROOT), *([str(ROOT / "src")] if name == "holdfast" else [])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path), "PYTHONDONTWRITEBYTECODE": ""}


def _python(name: str) -> Path:
    wanted, folder = MADE / f"{name}.txt", MADE / name
    stamp, interpreter = folder / "stamp", folder / "bin" / "python"
    state = f"{sys.version}\n{wanted.read_text()}"
    if not (stamp.exists() and stamp.read_text() == state):
        shutil.rmtree(folder, ignore_errors=True)
        venv.create(folder, with_pip=False, symlinks=True)
        _install(interpreter, wanted)
        stamp.write_text(state)
    return interpreter


def _install(interpreter: Path, wanted: Path) -> None:
    # The lists are complete: `--no-deps` gives what was measured, even where a package's own wishes have changed since.
    if uv := shutil.which("uv"):
        command = [uv, "pip", "install", "-q", "-p", str(interpreter), "--no-deps", "-r", str(wanted)]
    else:
        command = [sys.executable, "-m", "pip", "-q", "--disable-pip-version-check", "--python", str(interpreter)]
        command += ["install", "--no-deps", "--prefer-binary", "-r", str(wanted)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        shutil.rmtree(interpreter.parent.parent, ignore_errors=True)
        raise Unavailable(f"{wanted.stem} does not install: {(done.stderr.strip().splitlines() or ['no reason given'])[-1]}")


def program(name: str) -> Path:
    """A program in C of this folder, compiled if its source is newer."""
    source, made = HERE / f"{name}.c", ROOT / "build" / name.replace("/", "-")
    if not made.exists() or made.stat().st_mtime < source.stat().st_mtime:
        compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc")
        if compiler is None:
            raise Unavailable("there is no C compiler (set CC)")
        made.parent.mkdir(exist_ok=True)
        done = subprocess.run([compiler, "-O2", "-Wall", "-o", str(made), str(source)], capture_output=True, text=True, check=False)
        if done.returncode:
            raise Unavailable(f"{source.name} does not compile: {done.stderr.strip()}")
    return made
