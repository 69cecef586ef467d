"""The examples for Prefect and Airflow run as they stand, and wait for the lock that somebody else has."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

from holdfast import Holdfast
from holdfast.embedded import Nodes

PIPELINES = Path(__file__).parents[2] / "examples/pipelines"
(FRAMEWORK,) = [it for it in ("prefect", "airflow") if find_spec(it) is not None]  # an environment has one of them
PATIENCE = 600.0  # seconds: both begin with a database of their own


def test_the_example_waits_for_its_lock(nodes: Nodes, tmp_path: Path) -> None:
    environment = {
        **os.environ,
        "HOLDFAST_NODES": ",".join(nodes.urls),
        "PREFECT_HOME": str(tmp_path),
        "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": f"{PATIENCE:.0f}",
        "AIRFLOW_HOME": str(tmp_path),
        "AIRFLOW__CORE__DAGS_FOLDER": str(PIPELINES),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
    }
    if FRAMEWORK == "airflow":
        migrate = [str(Path(sys.executable).with_name("airflow")), "db", "migrate"]
        subprocess.run(migrate, env=environment, check=True, timeout=PATIENCE, capture_output=True)
    words, log = [sys.executable, str(PIPELINES / f"{FRAMEWORK}_feeds.py"), "a", "a"], tmp_path / "log"
    with Holdfast(*nodes.urls) as locks, log.open("wb") as file:
        lease, until = locks.lock("feed:a").acquire(), time.monotonic() + PATIENCE
        with subprocess.Popen(words, env=environment, stdout=file, stderr=file) as flow:
            try:
                while not locks.inspect("feed:a").queue:
                    assert flow.poll() is None and time.monotonic() < until, log.read_text()
                    time.sleep(0.05)
                lease.release()
                assert flow.wait(PATIENCE) == 0, log.read_text()
            finally:
                flow.kill()
    assert "a was read" in log.read_text()
