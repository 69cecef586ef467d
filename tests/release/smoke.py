"""The wheel alone, in a bare environment of each Python that this machine has."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

OLDEST = (3, 11)

PROGRAM = """
import asyncio, sys
import holdfast
from holdfast import Holdfast
from holdfast.aio import Holdfast as Async
from holdfast.embedded import Nodes
assert "site-packages" in holdfast.__file__, holdfast.__file__
assert holdfast.__version__ == sys.argv[1], holdfast.__version__
with Holdfast.local() as locks, locks.lock("threads") as lease:
    assert lease.fence > 0

async def main():
    async with Async.local() as locks:
        async with locks.lock("asyncio") as lease:
            assert lease.fence > 0

asyncio.run(main())
from holdfast.testing.conformance.__main__ import main as examine
with Nodes(1) as nodes:
    assert examine([*nodes.urls, "--requests", "1000"]) == 0
"""


def pythons() -> dict[str, Path]:
    """Every CPython from 3.11 on that is installed here: on PATH, of pyenv and of uv, one for each version."""
    candidates = [Path(sys.executable)]
    candidates += [Path(path) for n in range(OLDEST[1], 30) if (path := shutil.which(f"python3.{n}"))]
    roots = [Path.home() / ".pyenv/versions", Path(os.environ.get("PYENV_ROOT", "/nowhere")) / "versions"]
    roots.append(Path.home() / ".local/share/uv/python")
    candidates += [it for root in roots for it in sorted(root.glob("*/bin/python3"))]
    found: dict[str, Path] = {}
    free = "sysconfig.get_config_var('Py_GIL_DISABLED') or 0"
    ask = f"import sys, sysconfig, venv; print(sys.implementation.name, *sys.version_info[:2], {free})"
    for it in candidates:
        done = subprocess.run([it, "-c", ask], capture_output=True, text=True, check=False)
        said = re.fullmatch(r"cpython (\d+) (\d+) (\d)\n", done.stdout)
        if done.returncode == 0 and said and (int(said[1]), int(said[2])) >= OLDEST:
            found.setdefault(f"{said[1]}.{said[2]}{'t' if said[3] == '1' else ''}", it)
    return dict(sorted(found.items(), key=lambda it: [int(part) for part in re.findall(r"\d+", it[0])]))
