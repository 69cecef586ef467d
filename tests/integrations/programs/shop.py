"""A FastAPI application with everything that holdfast adds: statuses, dependencies, idempotency, health."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from typing import Annotated

from fastapi import FastAPI
from fastapi.responses import StreamingResponse
from record import note

import holdfast
from holdfast import Allowance
from holdfast.aio import Holdfast, Lease
from holdfast.integrations.asgi import health
from holdfast.integrations.fastapi import Limited, Locked, install
from holdfast.integrations.idempotency import Idempotency

locks = Holdfast(ttl=2, max_ttl=4)
threads = holdfast.Holdfast(ttl=2, max_ttl=4)


async def seed() -> None:
    note("seeded")


app = FastAPI()
app.add_middleware(Idempotency, locks=locks)
install(app, locks, once={"seed@1": seed})
app.mount("/alive", health(locks))
app.mount("/deep", health(locks, deep=True))


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
async def order(number: int, seconds: float = 0) -> dict[str, int]:
    note("run", number)
    await asyncio.sleep(seconds)
    note("ran", number)
    return {"number": number}


@app.get("/lost/endpoint")
@locks.locked("lost:endpoint", max_hold=0.2)
async def lost_endpoint() -> None:
    await asyncio.sleep(5)


@app.get("/lost/dependency")
async def lost_dependency(lease: Annotated[Lease, Locked("lost:dependency", max_hold=0.2)]) -> None:
    await asyncio.sleep(5)


@app.get("/lost/stream")
async def lost_stream() -> StreamingResponse:
    async def body() -> AsyncIterator[bytes]:
        async with locks.lock("lost:stream", max_hold=0.2):
            yield b"begun "
            await asyncio.sleep(5)
            yield b"ended"

    return StreamingResponse(body())


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


@app.get("/lost/thread")
@threads.locked("lost:thread", max_hold=0.2)
def lost_thread() -> None:
    time.sleep(0.6)


@app.get("/limited/{user}")
async def limited(user: str, allowance: Annotated[Allowance, Limited("api", 3, 60, key="{user}")]) -> None:
    note("limited", user)
