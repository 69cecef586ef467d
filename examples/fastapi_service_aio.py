"""The service with asyncio, in four uvicorn processes: it may create three items and creates five.

The original stands in "Redlock: Distributed Lock Manager with Redis".

Unsafe in the original: a path operation that is an `async def` looks how many items there are,
awaits something, and writes. At each `await` another request runs, and other processes run at any
time. All five requests look before any of them has written: five items. An `asyncio.Lock` would
help within one process, and not against the other three.

Instead: `@locks.locked("create_item", wait=30)` below the route, with `holdfast.aio`. If the lock
is lost, the request's task is cancelled, and the client gets 503. One client for each process is
opened in the application's lifespan. examples/fastapi_service.py is the same with threads.
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
from demo.stage import Stage, play_a_part, serve
from fastapi import FastAPI, HTTPException, Request, status
from fastapi.responses import JSONResponse
from pydantic import BaseModel

from holdfast import HoldfastError
from holdfast.aio import Holdfast

MAX_ITEM_NUM = 3
PROCESSES, REQUESTS = 4, 5


class ItemCreate(BaseModel):
    name: str


def service(database: str) -> None:
    """One process of the service. Its database is a file, to which all processes write."""
    locks = Holdfast()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with locks:
            yield

    app = FastAPI(lifespan=lifespan)

    @app.post("/items", status_code=status.HTTP_201_CREATED)
    @locks.locked("example:create_item_aio", wait=30)
    async def create_item(item_in: ItemCreate) -> dict[str, Any]:
        return await create(item_in)

    @app.post("/without-a-lock/items", status_code=status.HTTP_201_CREATED)
    async def create(item_in: ItemCreate) -> dict[str, Any]:
        items = Path(database).read_text().splitlines()
        if len(items) >= MAX_ITEM_NUM:
            raise HTTPException(status.HTTP_400_BAD_REQUEST, f"Cannot create more than {MAX_ITEM_NUM} items.")
        await asyncio.sleep(0.3)  # does some other tasks
        with Path(database).open("a") as file:
            file.write(f"{item_in.name}\n")
        return {"items": [*items, item_in.name], "total": len(items) + 1}

    @app.exception_handler(HoldfastError)
    async def not_held(request: Request, error: HoldfastError) -> JSONResponse:
        return JSONResponse({"detail": str(error)}, status.HTTP_503_SERVICE_UNAVAILABLE)

    serve(app)


async def ask(ports: list[str], path: str) -> Counter[int]:
    """Send five requests at once, each to the next process, as a load balancer would. Which statuses come back?"""
    async with httpx.AsyncClient(timeout=60) as client:
        urls = [f"http://127.0.0.1:{ports[number % PROCESSES]}{path}" for number in range(REQUESTS)]
        requests = [client.post(url, json={"name": str(number)}) for number, url in enumerate(urls)]
        answers = await asyncio.gather(*requests)
    return Counter(it.status_code for it in answers)


def main() -> bool:
    with Stage() as stage:
        database = stage.folder / "items"
        parts = [stage.start(service, database) for _ in range(PROCESSES)]
        ports = [it.says() for it in parts]
        items, statuses = list[int](), list[Counter[int]]()
        print(f"{REQUESTS} requests at once, to {PROCESSES} uvicorn processes that may create {MAX_ITEM_NUM} items:")
        for told, path in (("without a lock: ", "/without-a-lock/items"), ("holdfast:       ", "/items")):
            database.write_text("")
            statuses.append(asyncio.run(ask(ports, path)))
            items.append(len(database.read_text().splitlines()))
            codes = ", ".join(f"{count} times {code}" for code, count in sorted(statuses[-1].items()))
            print(f"{told}{codes}; {items[-1]} items{': TOO MANY' if items[-1] > MAX_ITEM_NUM else ''}")
    as_allowed = {201: MAX_ITEM_NUM, 400: REQUESTS - MAX_ITEM_NUM}
    return items[0] > MAX_ITEM_NUM and items[1] == MAX_ITEM_NUM and statuses[1] == as_allowed


if __name__ == "__main__":
    play_a_part(service)
    sys.exit(not main())
