"""A real Prometheus on loopback for tests, and its `promtool`.

Both are in the folder HOLDFAST_PROMETHEUS: no wheel has them. `.ci/run` gives Debian's.
"""

from __future__ import annotations

import json
import os
import urllib.parse
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from nemesis.processes import Running, until

FOLDER = os.environ.get("HOLDFAST_PROMETHEUS", "")
PROMTOOL = Path(FOLDER) / "promtool"
NEEDS_PROMETHEUS = pytest.mark.skipif(not FOLDER, reason="HOLDFAST_PROMETHEUS=/usr/bin tests it, as ./task test metrics does")


class Server:
    """A Prometheus that runs, at an address."""

    def __init__(self, address: str) -> None:
        self.address = address

    def ask(self, path: str, **arguments: str) -> Any:
        """The data of an answer of its HTTP API."""
        asked = f"http://{self.address}/api/v1/{path}?{urllib.parse.urlencode(arguments)}"
        with urllib.request.urlopen(asked, timeout=10) as answer:
            return json.load(answer)["data"]

    def ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://{self.address}/-/ready", timeout=1) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False


@contextmanager
def prometheus(folder: Path, port: int, targets: Sequence[str], rules: str) -> Iterator[Server]:
    """Scrapes the targets every second, and judges the rules as often."""
    (folder / "rules.yaml").write_text(rules)
    told = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(folder / "rules.yaml")],
        "scrape_configs": [{"job_name": "workers", "static_configs": [{"targets": list(targets)}]}],
    }
    config = folder / "prometheus.yaml"
    config.write_text(json.dumps(told))
    server = Server(f"127.0.0.1:{port}")
    where = [f"--config.file={config}", f"--storage.tsdb.path={folder / 'data'}", f"--web.listen-address={server.address}"]
    with (folder / "log").open("w") as log, Running(Path(FOLDER) / "prometheus", *where, "--log.level=warn", stdout=log, stderr=log):
        until(server.ready, 30, f"{folder}/log says why Prometheus does not start")
        yield server
