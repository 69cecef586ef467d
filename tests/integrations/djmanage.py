"""Programs of a Django project on a stage: its commands, and a client that shares its names.

Knows programs/djsite.py. Must not know what is tested.
"""

from __future__ import annotations

import subprocess
import sys
from urllib.parse import parse_qs, urlsplit

from fencing.databases import Database
from integrations.stage import PROGRAMS, Stage

from holdfast import Holdfast
from holdfast.embedded import Nodes


def environment(nodes: Nodes, database: Database) -> dict[str, str]:
    return {
        "HOLDFAST_NODES": ",".join(nodes.urls),
        "POSTGRES": parse_qs(urlsplit(database.url).query)["host"][0],
    }


def manage(stage: Stage, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command of `manage.py` to its end."""
    return subprocess.run(
        [sys.executable, str(PROGRAMS / "djsite.py"), *words],
        env={**stage.environment, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def other(stage: Stage) -> Holdfast:
    """A client that shares the names of the site."""
    nodes = stage.environment["HOLDFAST_NODES"].split(",")
    return Holdfast(*nodes, prefix=stage.environment["LOCK_PREFIX"], ttl=2, max_ttl=4)
