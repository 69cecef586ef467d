"""A FastAPI endpoint that may create three items, asked five times at once.

The original stands in "Redlock: Distributed Lock Manager with Redis".

Unsafe in the original: a path operation that is a plain `def` runs in a thread for each request. Each looks how many items there are
before any has written one: five times 201, five items. In several processes, where one runs services, no lock of the process's own can
help.

Instead: `@locks.locked("create_item", wait=30)` below the route: three times 201, twice 400. The same with four processes on one database,
while nodes are being killed, is `./task demo` (examples/demo). Of the errors, LockBusy and NoQuorum are 503 here: the client may try
again.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import httpx
from fastapi import FastAPI, HTTPException, Request, status
from fastapi.responses import JSONResponse
from pydantic import BaseModel

from holdfast import Holdfast, HoldfastError

MAX_ITEM_NUM = 3
Handler = Callable[..., dict[str, Any]]


class ItemCreate(BaseModel):
    name: str


def service(guarded: Callable[[Handler], Handler]) -> FastAPI:
    """The service, with its own items. `guarded`: what is put around `create_item`."""
    app, items = FastAPI(), list[str]()

    @app.post("/items", status_code=status.HTTP_201_CREATED)
    @guarded
    def create_item(item_in: ItemCreate) -> dict[str, Any]:
        if len(items) >= MAX_ITEM_NUM:
            raise HTTPException(status.HTTP_400_BAD_REQUEST, f"Cannot create more than {MAX_ITEM_NUM} items.")
        time.sleep(0.1)
        items.append(item_in.name)
        return {"items": items, "total": len(items)}

    @app.exception_handler(HoldfastError)
    def not_held(request: Request, error: HoldfastError) -> JSONResponse:
        return JSONResponse({"detail": str(error)}, status.HTTP_503_SERVICE_UNAVAILABLE)

    return app


async def five_requests(app: FastAPI) -> Counter[int]:
    """The statuses of five answers to five requests at once."""
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://service") as client:
        answers = await asyncio.gather(*[client.post("/items", json={"name": str(it)}) for it in range(5)])
    return Counter(it.status_code for it in answers)


def main() -> bool:
    with Holdfast() if "HOLDFAST_NODES" in os.environ else Holdfast.local() as locks:
        bare = asyncio.run(five_requests(service(lambda handler: handler)))
        print("without a lock:", ", ".join(f"{count} times {code}" for code, count in sorted(bare.items())))
        ours = asyncio.run(five_requests(service(locks.locked("example:create_item", wait=30))))
        print("holdfast:      ", ", ".join(f"{count} times {code}" for code, count in sorted(ours.items())))
        return bare[201] > MAX_ITEM_NUM and ours == {201: MAX_ITEM_NUM, 400: 2}


if __name__ == "__main__":
    sys.exit(not main())
