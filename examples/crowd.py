"""A crowd of clients that lock, wait, lead and read, to look at on the page of `holdfast serve`.

    holdfast local -- sh -c 'python examples/crowd.py & holdfast serve'

Then open http://localhost:7420. It ends with Ctrl-C, or after `--seconds`. The nodes are those in
`HOLDFAST_NODES`.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
from collections.abc import Coroutine
from typing import Any

from holdfast import LockBusy, LockLost, NoQuorum
from holdfast.aio import Holdfast

# What may happen to a client that works while somebody kills nodes, or takes its lock away.
USUAL = (LockBusy, LockLost, NoQuorum)
BUILDS = ("ansible-playbook site.yml", "terraform apply", "./deploy.sh staging", "helm upgrade shop")


async def deploys(locks: Holdfast, chance: random.Random, build: int) -> None:
    """One of several builds that deploy one at a time, for a while each."""
    while True:
        note = f"build-{build} · {chance.choice(BUILDS)}"
        with contextlib.suppress(*USUAL):
            async with locks.lock("deploy", note=note):
                await asyncio.sleep(chance.uniform(8, 30))
        await asyncio.sleep(chance.uniform(1, 20))


async def trains(locks: Holdfast, chance: random.Random, job: int) -> None:
    """One of several jobs that want one of four GPUs."""
    while True:
        with contextlib.suppress(*USUAL):
            async with locks.semaphore("gpu", 4, note=f"train-{job}"):
                await asyncio.sleep(chance.uniform(20, 90))
        await asyncio.sleep(chance.uniform(0, 10))


async def reads(locks: Holdfast, chance: random.Random) -> None:
    """A reader of a catalog, which is rewritten now and then."""
    while True:
        with contextlib.suppress(*USUAL):
            async with locks.rwlock("catalog").read():
                await asyncio.sleep(chance.uniform(5, 20))
        await asyncio.sleep(chance.uniform(0, 5))


async def leads(locks: Holdfast, name: str, value: str) -> None:
    """A candidate of an election, which leads until its lease is lost."""
    while True:
        with contextlib.suppress(*USUAL):
            async with locks.election(name, value) as leadership:
                await leadership.lost.wait()


async def bills(locks: Holdfast, chance: random.Random, invoices: int, pause: float) -> None:
    """A worker that locks one invoice after the other for a moment."""
    while True:
        with contextlib.suppress(*USUAL):
            async with locks.lock(f"invoice:{chance.randrange(invoices)}", wait=5):
                await asyncio.sleep(pause * chance.uniform(0.5, 1.5))


async def keeps(locks: Holdfast, name: str) -> None:
    """A lock that somebody holds for long."""
    while True:
        with contextlib.suppress(*USUAL):
            async with locks.lock(name, note="keeps it") as lease:
                await lease.lost.wait()
        await asyncio.sleep(1)


async def main(held: int, changes: float, seconds: float) -> None:
    """Let the crowd work.

    Args:
        held: Locks that are held all the time.
        changes: Invoices that are locked each second, about.
        seconds: When it ends.
    """
    chance = random.Random(22)
    workers = max(1, round(changes / 10) if changes > 20 else round(changes * 3))
    async with contextlib.AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(Holdfast(owner=it)) for it in ("ci@build-7:4121", "api-3:118", "10.0.0.7:8000")]
        ci, api, pollers = clients
        crowd: list[Coroutine[Any, Any, None]] = [
            *[deploys(ci, chance, it) for it in range(7, 11)],
            *[trains(api, chance, it) for it in range(1, 7)],
            *[reads(api, chance) for _ in range(5)],
            *[leads(it, "poller", value) for it, value in ((pollers, "http://10.0.0.7:8000"), (api, "http://10.0.0.8:8000"))],
            *[bills(api, chance, 5000, workers / max(changes, 0.1)) for _ in range(workers)],
            *[keeps(pollers, f"shard:{it:05}") for it in range(held)],
        ]
        tasks = [asyncio.ensure_future(it) for it in crowd]
        try:
            await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_EXCEPTION)
        finally:
            for task in tasks:
                task.cancel()
            found = await asyncio.gather(*tasks, return_exceptions=True)
    for it in found:
        if isinstance(it, Exception):
            raise it


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Lock, wait, lead and read, to look at on the page of `holdfast serve`.")
    parser.add_argument("--held", type=int, default=40, help="locks that are held all the time (default: %(default)s)")
    parser.add_argument("--changes", type=float, default=4, help="invoices that are locked each second (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=10**9, help="when it ends (default: at Ctrl-C)")
    options = parser.parse_args()
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(main(options.held, options.changes, options.seconds))
