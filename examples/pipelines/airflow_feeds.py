"""Airflow: a task that never runs twice at a time for the same feed, in whatever DAG or worker.

A pool of one slot does that within one installation, as long as no worker is lost. A lock does it
across installations, and for programs that are no DAG. The client is made where the task runs,
because the scheduler reads this file every half minute and needs no client.
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime

from airflow.sdk import dag, task

from holdfast import Holdfast


@task
def read_feed(url: str) -> str:
    with Holdfast() as locks, locks.lock(f"feed:{url}", wait=60):  # nodes from HOLDFAST_NODES
        return f"{url} was read"


@dag(schedule="@hourly", start_date=datetime(2026, 1, 1, tzinfo=UTC), catchup=False)
def feeds() -> None:
    read_feed("a")


made = feeds()

if __name__ == "__main__":
    run = made.test()
    print(run.state)
    sys.exit(run.state != "success")
