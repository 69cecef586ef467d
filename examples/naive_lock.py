"""Version 0, the naive lock: look with GET, take with SET, open with DEL. Three items are allowed, five come.

The original stands in "Redlock: Distributed Lock Manager with Redis".

Five processes have a request each, at the same time. `create` looks how many items there are, works
for a while, and writes.

Unsafe in the original:

- it looks in one step and takes in another. A: GET, nothing; B: GET, nothing; A: SET, inside; B:
  SET, inside;
- the key has no owner. When A leaves, its DEL opens the door behind which B still is, and C comes
  in (`./task demo plain_del` plays it). A process that is interrupted while it still waits
  deletes the key, too, and never had it;
- the key has no expiry: a process that dies inside keeps all others out for ever.

Instead: `with locks.lock("create_item")`. A node takes a name in one step, for one token, with an
expiry, and only that token gives it back.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from demo.stage import Stage, orders, plain_client, play_a_part, say

from holdfast import Holdfast

REQUESTS, MOST = 5, 3


@contextmanager
def naive(key: str) -> Iterator[None]:
    """The original, at its unluckiest: each process is held up after it has looked, as any scheduler may do."""
    with plain_client() as node:
        try:
            while node.get(key):
                time.sleep(0.05)
            say("has looked")
            next(orders())
            node.set(key, "taken")
            yield
        finally:
            node.delete(key)


@contextmanager
def right(key: str) -> Iterator[None]:
    """The same with holdfast."""
    with Holdfast() as locks:
        locks.ready(wait=30)
        say("comes")
        next(orders())
        with locks.lock(key, wait=30):
            yield


def request(way: str, number: str, database: str) -> None:
    """One process, which creates an item if there are not too many."""
    with naive("example:naive") if way == "naive" else right("example:naive"):
        items = Path(database).read_text().splitlines()
        if len(items) < MOST:
            time.sleep(0.3)  # works for a while
            with Path(database).open("a") as file:
                file.write(f"item {number}\n")


def created(stage: Stage, way: str) -> int:
    """How many items are there after five requests at once?"""
    database = stage.folder / way
    database.touch()
    parts = [stage.start(request, way, number, database) for number in range(REQUESTS)]
    for it in parts:
        it.says()
    for it in parts:
        it.tell("go on")
    for it in parts:
        it.rest()
    return len(database.read_text().splitlines())


def main() -> bool:
    with Stage() as stage:
        stage.node.delete("example:naive")
        print(f"{REQUESTS} processes create an item each, and {MOST} are allowed:")
        wrong = created(stage, "naive")
        print(f"GET, then SET:    {wrong} items{': TOO MANY' if wrong > MOST else ''}")
        items = created(stage, "holdfast")
        print(f"holdfast:         {items} items{': TOO MANY' if items > MOST else ''}")
    return wrong > MOST and items == MOST


if __name__ == "__main__":
    play_a_part(request)
    sys.exit(not main())
