"""Prefect: a task that never runs twice at a time for the same feed, in whatever flow or process.

`wait` is for a worker that may stand still so long. To skip a feed that somebody else is reading,
use `locks.locked(…, wait=0)` and catch LockBusy.
"""

from __future__ import annotations

import sys

from prefect import flow, task

from holdfast import Holdfast

locks = Holdfast()  # nodes from HOLDFAST_NODES


@task
@locks.locked("feed:{url}", wait=60)
def read_feed(url: str) -> str:
    return f"{url} was read"


@flow
def feeds(urls: list[str]) -> list[str]:
    return [it.result() for it in read_feed.map(urls)]


if __name__ == "__main__":
    print(*feeds(sys.argv[1:]), sep="\n")
