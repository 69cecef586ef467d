"""A simulated history on a machine whose clocks nobody may read: `python virtual_time.py broken` (or `whole`).

Prints all that happened. `broken`: the machine's clocks jump by an hour with every look, and a look
by holdfast raises. They are replaced before holdfast is loaded, so it does not matter which module
keeps which clock under which name. Four more arguments plant a fault into what ships: a class
("holdfast.face.lease:Lease"), the name of its method, and its text before and after.
"""

from __future__ import annotations

import datetime
import sys
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

CLOCKS = (
    "time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "clock_gettime", "clock_gettime_ns",
)  # fmt: skip
LOADING = [True]  # (a module may look at the time while it is loaded: the simulated world does not exist yet)
JUMPS = [0]
READS: list[str] = []  # what holdfast has read. (An event loop survives what a callback raises.)


class Read(BaseException):
    """holdfast has read a clock of the machine."""


def _jump(depth: int) -> int:
    """How many seconds the clock that is read now is ahead."""
    frame = sys._getframe(depth)
    if not LOADING[0] and frame.f_globals.get("__name__", "").startswith("holdfast"):
        READS.append(f"{frame.f_globals['__name__']} reads the machine's clock, in line {frame.f_lineno}")
        raise Read(READS[-1])
    JUMPS[0] += 3600
    return JUMPS[0]


def _broken(clock: Callable[..., Any], unit: int) -> Callable[..., Any]:
    return lambda *which: clock(*which) + _jump(2) * unit


class Broken(datetime.datetime):
    """A datetime that reads the machine's clock no better."""

    def __repr__(self) -> str:
        return super().__repr__().replace("Broken", "datetime.datetime")

    @classmethod
    def now(cls, tz: datetime.tzinfo | None = None) -> Any:
        return super().now(tz) + datetime.timedelta(seconds=_jump(2))

    @classmethod
    def utcnow(cls) -> Any:
        return super().now() + datetime.timedelta(seconds=_jump(2))

    @classmethod
    def today(cls) -> Any:
        return super().now() + datetime.timedelta(seconds=_jump(2))


def break_clocks() -> None:
    """From now on nobody can rely on the machine's clocks."""
    for name in CLOCKS:
        setattr(time, name, _broken(getattr(time, name), 10**9 if name.endswith("_ns") else 1))
    datetime.datetime = Broken  # type: ignore[misc]  # (a class is replaced)


def plant(kind: str, name: str, text: str, other: str) -> None:
    """Another text in a method of what ships."""
    import pytest

    sys.path.insert(0, str(Path(__file__).parent.parent))
    patches = import_module("proof.patches")
    module, _, kind = kind.partition(":")
    patches.method(pytest.MonkeyPatch(), getattr(import_module(module), kind), name, text, other)


def main() -> list[str]:
    """All that happens in the world."""
    import asyncio
    import gc
    import warnings

    from holdfast import HoldfastError
    from holdfast.testing.simulation import Simulation

    warnings.simplefilter("ignore", ResourceWarning)
    simulation = Simulation(nodes=3, seed=7, max_ttl=4.0)
    told: list[str] = []
    cache: dict[str, Any] = {}
    fence: list[int] = []

    def tell(event: object) -> None:
        told.append(f"{simulation.now:.6f} {event.at.timestamp():.6f} {event!r}")  # type: ignore[attr-defined]  # (an event)

    async def works(number: int) -> None:
        options: dict[str, Any] = {"ttl": 1.0, "max_ttl": 4.0, "outage": 1.0, "observer": tell, "owner": f"{number}"}
        async with simulation.client(**options) as locks:
            for turn in range(4):
                try:
                    async with locks.lock("register", on_lost=lambda lease: told.append(repr(lease))) as lease:
                        await asyncio.sleep(0.7)
                        told.append(f"{lease.remaining:.6f} {lease.votes} {lease.waited:.6f} {lease!r}")
                        await lease.extend(2.0)
                    fence.append(lease.fence)
                    async with locks.rwlock("paper").write() as lease:
                        await lease.downgrade()
                    async with locks.semaphore("gpus", 2):
                        await asyncio.sleep(0.1)
                    told.append(f"{(await locks.rate('api', 2, 1).take())!r}")
                    told.append(f"{await locks.fill('price', 1, _price, cache=cache).get()!r} {cache!r}")
                    told.append(f"{await locks.fill('fare', 1, _price).get()!r}")
                    told.append(f"{await locks.once(f'job {turn}', keep=60, per=5).run(_price)!r}")
                    async with locks.election("boss", f"{number}", wait=3) as term:
                        await term.publish("busy")
                except HoldfastError as error:
                    told.append(f"{simulation.now:.6f} {error!r}")
            await locks.latch("all", 3).arrive(f"{number}")
            told.append(f"{await locks.barrier('all here', 3).wait(id=f'{number}')}")

    async def leaves(options: dict[str, Any]) -> None:
        async with simulation.client(**options) as locks:
            await locks.ready()
            dropped = await locks.lock("dropped").acquire()
            told.append(f"{dropped.held}")
            del dropped
            gc.collect()
            await asyncio.sleep(0.1)
            told.append(f"{await locks.force_release('nobody has it', 'to see when')}")
            await asyncio.sleep(2)
            told.append(f"{[repr(it) for it in locks.nodes()]} {locks.stats()}")
            for node in simulation.nodes[:2]:
                node.stop()
            await locks.lock("open", fail_open=True, wait=0).acquire()
            await locks.rate("open", 1, 1, fail_open=True).take()
            await asyncio.sleep(0.1)

    async def tells() -> None:
        simulation.storm(faults=2.0)
        await asyncio.gather(*[works(number) for number in range(3)])
        simulation.calm()
        await asyncio.sleep(10)
        await leaves({"ttl": 1.0, "max_ttl": 4.0, "outage": 1.0, "observer": tell, "owner": "leaves"})

    simulation.run(tells())
    return [*told, f"{fence}", f"{simulation.world.seen}", simulation.timeline()]


async def _price() -> int:
    import asyncio

    await asyncio.sleep(0.2)
    return 7


if __name__ == "__main__":
    if sys.argv[1] == "broken":
        break_clocks()
    import_module("holdfast.testing.simulation")
    if sys.argv[2:]:
        plant(*sys.argv[2:])
    # Whatever is loaded when it is first needed is loaded now.
    for it in ("face.aio.semaphore", *[f"primitives.{it}.aio" for it in ("election", "fill", "latch", "once", "rate")]):
        import_module(f"holdfast.{it}")
    LOADING[0] = False
    print("\n".join(main()))
    if READS:
        sys.exit("\n".join(READS))
