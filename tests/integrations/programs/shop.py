"""A FastAPI application with what holdfast adds and servers may spoil: statuses, idempotency, streams."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator

from fastapi import FastAPI
from fastapi.responses import StreamingResponse
from record import note

import holdfast
from holdfast.aio import Holdfast
from holdfast.integrations.asgi import health
from holdfast.integrations.fastapi import install
from holdfast.integrations.idempotency import Idempotency

locks = Holdfast(ttl=2, max_ttl=4)
threads = holdfast.Holdfast(ttl=2, max_ttl=4)

app = FastAPI()
app.add_middleware(Idempotency, locks=locks)
install(app, locks)
app.mount("/alive", health(locks))


@app.post("/work/{name}")
@locks.locked("work:{name}", wait=0.5)
async def work(name: str) -> dict[str, str]:
    note("enter", name)
    await asyncio.sleep(0.005)
    note("leave", name)
    return {"done": name}


@app.post("/hold/{name}")
@locks.locked("work:{name}", wait=5)
async def hold(name: str, seconds: float) -> dict[str, str]:
    note("enter", name)
    await asyncio.sleep(seconds)
    note("leave", name)
    return {"held": name}


@app.post("/orders/{number}")
async def order(number: int) -> dict[str, int]:
    return {"number": number}


@app.get("/left/async")
async def left_async() -> StreamingResponse:
    async def body() -> AsyncIterator[bytes]:
        async with locks.lock("left"):
            while True:
                yield b"more "
                await asyncio.sleep(0.05)

    return StreamingResponse(body())


@app.get("/left/plain")
def left_plain() -> StreamingResponse:
    def body() -> Iterator[bytes]:
        with threads.lock("left", max_hold=2):
            while True:
                yield b"more "
                time.sleep(0.05)

    return StreamingResponse(body())
