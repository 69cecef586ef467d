"""The service of the demonstration: an API that may create at most three items, served by several processes on one SQLite file.

`create_item` is the naive code of a thousand services: it looks, works for a while, and writes, each in a transaction of its own.
Only a lock around it keeps the limit, and DEMO_LOCK chooses which: none, set_nx or holdfast. run.py sets all the variables below;
`python app.py` then serves on a free port, prints it, and ends together with whoever holds the other end of its stdin.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from random import uniform
from time import sleep
from typing import Any

import uvicorn
from fastapi import FastAPI, HTTPException, Request, status
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry

from holdfast import Holdfast, HoldfastError, StaleFence

MAX_ITEM_NUM = 3
FOLDER = Path(os.environ["DEMO_FOLDER"])  # has items.db, and what run.py and `inside` tell each other

app = FastAPI()


class ItemCreate(BaseModel):
    name: str


@app.post("/items", status_code=status.HTTP_201_CREATED)
def create_item(item_in: ItemCreate) -> dict[str, Any]:
    with lock("create_item") as fence:
        if len(items()) >= MAX_ITEM_NUM:  # 1. Look.
            raise HTTPException(status.HTTP_400_BAD_REQUEST, f"Cannot create more than {MAX_ITEM_NUM} items.")
        with inside():
            sleep(0.1)  # 2. Do some other tasks.
            insert(item_in.name, fence)  # 3. Write.
        created = items()
    return {"items": created, "total": len(created)}


@app.exception_handler(HoldfastError)
def not_held(request: Request, error: HoldfastError) -> JSONResponse:
    """The lock was not acquired, or was lost on the way: the client may try again. (Lost after the insert, the item is there.)"""
    return JSONResponse({"detail": str(error)}, status.HTTP_503_SERVICE_UNAVAILABLE)


# ------------------------------------------------ the locks

locks = Holdfast(ttl=1.5, max_ttl=1.5)  # nodes: HOLDFAST_NODES. One client a process, shared by its threads; connects when it is used
node = Redis.from_url(os.environ["DEMO_REDIS"], retry=Retry(NoBackoff(), 0))


@contextmanager
def holdfast(name: str) -> Iterator[int | None]:
    """The right tool. (In a program of your own this is one line: `with locks.lock(name, wait=30) as lease`.)"""
    with locks.lock(name, wait=30) as lease:
        yield lease.fence


UNLOCK_SCRIPT = 'if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("del", KEYS[1]) else return 0 end'


@contextmanager
def set_nx(name: str, timeout: int = 3) -> Iterator[None]:
    """The wrong tool: it is right for as long as its only node remembers."""
    value = os.urandom(20)
    while not granted(lambda: node.set(name, value, nx=True, ex=timeout)):
        sleep(uniform(0.1, 0.2))
    try:
        yield
    finally:
        granted(lambda: node.eval(UNLOCK_SCRIPT, 1, name, value))


def granted(ask: Callable[[], object]) -> bool:
    """What the node says; no, while it is away."""
    try:
        return bool(ask())
    except RedisError:
        return False


@contextmanager
def none(name: str) -> Iterator[None]:
    """No tool at all."""
    yield


lock = {"none": none, "set_nx": set_nx, "holdfast": holdfast}[os.environ["DEMO_LOCK"]]


# ------------------------------------------------ the storage


def items() -> list[str]:
    with closing(sqlite3.connect(FOLDER / "items.db", timeout=30, isolation_level=None)) as database:
        return [name for (name,) in database.execute("SELECT name FROM items ORDER BY id")]


def insert(name: str, fence: int | None) -> None:
    """Write an item, with the fence of the lock under which this was decided; refused if a later holder has been here before."""
    newest = "INSERT INTO items (name, fence) SELECT :name, :fence WHERE NOT EXISTS (SELECT 1 FROM items WHERE fence >= :fence)"
    with closing(sqlite3.connect(FOLDER / "items.db", timeout=30, isolation_level=None)) as database:
        if database.execute(newest, {"name": name, "fence": fence}).rowcount == 0:
            raise StaleFence("create_item", fence)


# ------------------------------------------------ for the demonstration only


@contextmanager
def inside() -> Iterator[None]:
    """Tell run.py that a request is between looking and writing. If there is a trap, the first one is caught, and waits to be let go."""
    journal = os.open(FOLDER / "journal", os.O_WRONLY | os.O_APPEND)
    try:
        os.write(journal, b"+")
        caught = FOLDER / f"caught-{os.getpid()}-{threading.get_ident()}"
        with suppress(FileNotFoundError):
            (FOLDER / "trap").rename(caught)
        while caught.exists():
            sleep(0.005)
        yield
    finally:
        os.write(journal, b"-")
        os.close(journal)


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
