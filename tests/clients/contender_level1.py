"""One process of the storm with the client of level 1, as in `contender`."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import random
import sys
import time
from typing import Any


def loaded(file: str) -> Any:
    """The client that is in a file."""
    spec = importlib.util.spec_from_file_location("level1", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


async def main(task: dict[str, Any]) -> None:
    level1 = loaded(task["level1"])
    file = os.open(task["file"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    reader, writer = await asyncio.open_connection("127.0.0.1", task["register"])

    async def says(*words: object) -> str:
        writer.write(" ".join(map(str, words)).encode() + b"\n")
        return (await reader.readline()).decode().strip()

    options = {"max_ttl": task["maxTtl"] / 1000, "prefix": task["prefix"]}
    async with level1.Client(*task["urls"], **options) as client:
        while True:
            claim = await client.acquire(task["name"], ttl=task["ttl"] / 1000, wait=5)
            if claim is None:
                continue
            try:
                old = await says("read", claim.fence)
                for _ in range(500 if random.random() < task["long"] else random.randint(3, 10)):
                    now = time.monotonic_ns()
                    client.check(claim)
                    os.write(file, b"%d %d\n" % (claim.fence, now))
                    await asyncio.sleep(0.001)
                if old != "refused":
                    await says("write", claim.fence, old, int(old) + 1)
            except level1.Lost:
                pass
            client.release(claim)


if __name__ == "__main__":
    asyncio.run(main(json.loads(sys.argv[1])))
