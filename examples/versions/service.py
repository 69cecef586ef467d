"""The service of the walkthrough: it may create three items, and a lock chosen by WALK_LOCK surrounds its work.

The locks are those of the document "Redlock: Distributed Lock Manager with Redis", version by version, and holdfast.
`../walkthrough.py` starts several processes of this file on one SQLite database. It sets WALK_FOLDER, WALK_LOCK
and HOLDFAST_NODES. Each process serves on a free port, prints it, and ends when its stdin ends.
"""

from __future__ import annotations

import json
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from contextvars import ContextVar
from functools import partial
from pathlib import Path
from random import uniform
from time import monotonic, sleep, time
from typing import Any

import uvicorn
from fastapi import FastAPI, HTTPException, Request, status
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry

from holdfast import Holdfast, HoldfastError

MAX_ITEM_NUM = 3
FOLDER = Path(os.environ["WALK_FOLDER"])

app = FastAPI()


class ItemCreate(BaseModel):
    name: str


@app.post("/items", status_code=status.HTTP_201_CREATED)
def create_item(item_in: ItemCreate) -> dict[str, Any]:
    """Look how many items exist, work for 0.1 s, write one more. Only the lock keeps the limit."""
    item.set(item_in.name)
    passes("arrived")
    with lock("create_item"):
        try:
            count = len(items())
            passes("looked", count)
            if count >= MAX_ITEM_NUM:
                raise HTTPException(status.HTTP_400_BAD_REQUEST, f"Cannot create more than {MAX_ITEM_NUM} items.")
            sleep(0.1)
            passes("wrote", insert(item_in.name))
        finally:
            passes("left")
    created = items()
    return {"items": created, "total": len(created)}


@app.exception_handler(HoldfastError)
def not_held(request: Request, error: HoldfastError) -> JSONResponse:
    """Answer 503 if the lock was not acquired, or was lost: the client may try again."""
    return JSONResponse({"detail": f"{type(error).__name__}: {error}"}, status.HTTP_503_SERVICE_UNAVAILABLE)


# ------------------------------------------------ the locks

# As redis-py was when the document was written: no timeout, and one more try on a new connection. (redis-py 8 gives up
# on a silent server after 5 s, and tries 10 more times.)
servers = [
    Redis.from_url(url, socket_timeout=None, socket_connect_timeout=None, retry=Retry(NoBackoff(), 1))
    for url in os.environ["HOLDFAST_NODES"].split()
]
# Seconds. The document's locks last 3. Here they last longer, so that no lock expires because this machine is slow.
TIMEOUT = 30
UNLOCK_SCRIPT = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0"


@contextmanager
def bare(name: str) -> Iterator[None]:
    """No lock."""
    yield


@contextmanager
def version_0(name: str) -> Iterator[None]:
    """GET, then SET, then DEL, on one server."""
    try:
        while servers[0].get(name):
            pause()
        passes("free")
        servers[0].set(name, b"1")
        yield
    finally:
        servers[0].delete(name)


@contextmanager
def version_1(name: str, timeout: int = TIMEOUT) -> Iterator[None]:
    """SET NX with an expiry and a random value on one server. A script releases the lock if it has that value."""
    value = os.urandom(20)
    try:
        while not servers[0].set(name, value, nx=True, ex=timeout):
            pause()
        yield
    finally:
        servers[0].eval(UNLOCK_SCRIPT, 1, name, value)


@contextmanager
def version_2(name: str, timeout: int = TIMEOUT) -> Iterator[None]:
    """Redlock: version 1 on a majority of the servers, which are asked one after the other."""
    value = os.urandom(20)
    while not majority_grants(name, value, timeout):
        release(name, value)
        pause()
    try:
        yield
    finally:
        release(name, value)


@contextmanager
def version_2_1(name: str, timeout: int = TIMEOUT, max_retries: int = 5) -> Iterator[None]:
    """Redlock with an allowance for clock drift. After five failed tries the work is done without the lock."""
    value = os.urandom(20)
    for _ in range(max_retries):
        if majority_grants(name, value, timeout, clock_drift=0.005):
            try:
                yield
            finally:
                release(name, value)
            return
        release(name, value)
        pause()
    yield


locks = Holdfast(ttl=3, max_ttl=3)


@contextmanager
def holdfast(name: str) -> Iterator[None]:
    """What to use instead."""
    with locks.lock(name, wait=30):
        yield


def majority_grants(name: str, value: bytes, timeout: int, clock_drift: float = 0.0) -> bool:
    """Ask every server in turn for the lock. Does a majority grant it before it expires?"""
    began = time()
    granted = sum(succeeds(partial(server.set, name, value, nx=True, ex=timeout)) for server in servers)
    return granted > len(servers) // 2 and time() - began + clock_drift < timeout


def release(name: str, value: bytes) -> None:
    """Take the lock back from every server, in turn."""
    for server in servers:
        succeeds(partial(server.eval, UNLOCK_SCRIPT, 1, name, value))


def succeeds(ask: Callable[[], object]) -> bool:
    """Does the server say yes? A server that is away does not."""
    try:
        return bool(ask())
    except RedisError:
        return False


def pause() -> None:
    """Wait for a random time between two tries."""
    passes("busy")
    sleep(uniform(0.1, 0.2))


LOCKS: dict[str, Callable[[str], AbstractContextManager[None]]] = {
    "bare": bare,
    "version-0": version_0,
    "version-1": version_1,
    "version-2": version_2,
    "version-2.1": version_2_1,
    "holdfast": holdfast,
}
lock = LOCKS[os.environ["WALK_LOCK"]]


# ------------------------------------------------ the storage


def items() -> list[str]:
    """The names of all items, in the order in which they were written."""
    with closing(connect()) as database:
        return [name for (name,) in database.execute("SELECT name FROM items ORDER BY id")]


def insert(name: str) -> int:
    """Write an item. Return how many items exist now."""
    with closing(connect()) as database:
        database.execute("BEGIN IMMEDIATE")
        database.execute("INSERT INTO items (name) VALUES (?)", (name,))
        (total,) = database.execute("SELECT count(*) FROM items").fetchone()
        database.execute("COMMIT")
    return int(total)


def connect() -> sqlite3.Connection:
    return sqlite3.connect(FOLDER / "items.db", timeout=30, isolation_level=None)


# ------------------------------------------------ for the walkthrough only

HELD_AT_MOST = 120.0  # seconds
item: ContextVar[str] = ContextVar("item")  # which request this thread works for


def passes(point: str, count: int | None = None) -> None:
    """Note in the journal that a request has come to a point of its way. Wait there while the walkthrough holds it.

    `count` is how many items the request saw, if it looked. The file `hold-POINT` holds all requests, and
    `go-POINT-ITEM` lets one of them go on.
    """
    told = {"at": monotonic(), "process": os.getpid(), "item": item.get(), "point": point, "items": count}
    with open(FOLDER / "journal", "ab", buffering=0) as journal:
        journal.write(json.dumps(told).encode() + b"\n")
    hold = FOLDER / f"hold-{point}"
    let_go = FOLDER / f"go-{point}-{item.get()}"
    until = monotonic() + HELD_AT_MOST
    while hold.exists() and not let_go.exists() and monotonic() < until:
        sleep(0.005)


def end_with_parent() -> None:
    os.read(0, 1)
    os._exit(1)


if __name__ == "__main__":
    threading.Thread(target=end_with_parent, daemon=True).start()
    config = uvicorn.Config(app, host="127.0.0.1", port=0, log_level="warning")
    listener = config.bind_socket()
    listener.listen(128)
    print(listener.getsockname()[1], flush=True)
    uvicorn.Server(config).run([listener])
