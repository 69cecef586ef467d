"""One client of the experiment, in its contender's environment: lock, read, think, write, unlock, again and again.

Knows an adapter of the bench, the register, and where it may be stopped. Must not know who stops it, or what the others do.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import json
import os
import random
import signal
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from .storage import Refused, Register

PATIENCE = 0.05  # seconds after which a client asks again for a lock that was refused


class Stopped(Exception):
    """The lock says that it is not held any more, so nothing is written."""


class Client:
    """`parameters`: the adapter's own (`urls`, `ttl`), and which `adapter`; the `name` of the lock, the `file` of the register;
    the `number` of this client, and its `seed`; for how long it may `think`, in seconds; does it show its `fence`, does it `check` its lock
    before it writes; where the `trap` is set."""

    def __init__(self, parameters: dict[str, Any]) -> None:
        self._parameters = parameters
        place, _, name = parameters["adapter"].partition(":")
        self._make = getattr(importlib.import_module(f"bench.{place}"), name)
        self._register, self._dice = Register(parameters["file"]), random.Random(parameters["seed"])
        self._trap, self._until = Path(parameters["trap"]), 0.0
        self._serial = parameters["number"] * 1_000_000
        self.acknowledged: list[int] = []
        self.others: Counter[str] = Counter()  # what else came of it

    def run(self) -> None:
        """Until it is over."""
        if inspect.iscoroutinefunction(self._make.acquire):
            asyncio.run(self._tasks())
        else:
            self._threads()

    def _threads(self) -> None:
        locks = self._make(self._parameters)
        locks.open()
        self._start()
        lock = locks.lock(self._parameters["name"])
        while time.monotonic() < self._until:
            try:
                held = locks.acquire(lock)
            except Exception:  # (each library has its own)
                self.others["not acquired"] += 1
                time.sleep(PATIENCE)
                continue
            try:
                fence, new = self._begin(held)
                elements = self._register.read(fence)
                time.sleep(self._thought())
                if self._parameters["check"] and not locks.holds(held):
                    raise Stopped
                self._write(elements, new, fence)
            except Refused:
                self.others["refused"] += 1
            except Stopped:
                self.others["stopped"] += 1
            try:
                locks.release(held)
            except Exception:
                self.others["lost, as it was given back"] += 1
        locks.close()

    async def _tasks(self) -> None:
        """With a face that stops the body of a block when the lock is lost."""
        locks = self._make(self._parameters)
        await locks.open()
        self._start()
        while time.monotonic() < self._until:
            body = ""
            try:
                async with locks.lock(self._parameters["name"]) as held:
                    body = "stopped"
                    fence, new = self._begin(held)
                    try:
                        elements = self._register.read(fence)
                        await asyncio.sleep(self._thought())
                        body = "lost, as it was given back"
                        self._write(elements, new, fence)
                    except Refused:
                        self.others["refused"] += 1
            except Exception:
                self.others[body or "not acquired"] += 1
                await asyncio.sleep(PATIENCE)
        await locks.close()

    def _start(self) -> None:
        """Nobody begins before all have connected."""
        print("ready", flush=True)
        self._until = float(sys.stdin.readline())

    def _begin(self, held: Any) -> tuple[int | None, int]:
        """The fence to be shown, if there is one, and the new element."""
        self._serial += 1
        return (held.fence if self._parameters["fence"] else None), self._serial

    def _thought(self) -> float:
        return self._dice.uniform(0.0, float(self._parameters["think"]))

    def _write(self, elements: list[int], new: int, fence: int | None) -> None:
        """The end of an update. Between whatever was checked and this write, the process may stand still for any time."""
        try:
            self._trap.rename(self._trap.with_name(f"caught {os.getpid()}"))
        except FileNotFoundError:
            pass
        else:  # as a collection of garbage, or a machine that is moved, would do it
            os.kill(os.getpid(), signal.SIGSTOP)
        self._register.write([*elements, new], fence)
        self.acknowledged.append(new)


if __name__ == "__main__":
    client = Client(json.loads(sys.argv[1]))
    client.run()
    print(json.dumps({"acknowledged": client.acknowledged, "others": client.others}), flush=True)
    os._exit(0)  # whatever threads a library has left
