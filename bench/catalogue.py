"""Who takes part: holdfast, its peers, and the floors.

Knows names, environments and which adapter speaks for whom. Must not know what is measured.
"""

from __future__ import annotations

from dataclasses import dataclass

OURS, FLOOR, PEER = "ours", "floor", "peer"
THREADS, ASYNCIO, UVLOOP, C = "threads", "asyncio", "uvloop", "C"


@dataclass(frozen=True, slots=True)
class Contender:
    """One that is measured. `adapter`: module and class, or the mode of the C program; `most`: the most nodes that it can use."""

    name: str
    kind: str
    face: str
    environment: str
    adapter: str
    most: int = 99


def _ours(suffix: str, face: str, adapter: str) -> Contender:
    return Contender(f"holdfast{suffix}", OURS, face, "holdfast", f"contenders.holdfast:{adapter}")


def _floor(name: str, face: str, adapter: str) -> Contender:
    return Contender(f"floor: {name}", FLOOR, face, "holdfast", adapter)


def _peer(name: str, face: str, environment: str, adapter: str, most: int = 99) -> Contender:
    return Contender(name, PEER, face, environment, f"contenders.{adapter}", most)


ALL = (
    # holdfast, as it is by default, and waiting for the answers of the release as all others do
    _ours("", THREADS, "Threads"),
    _ours(" confirmed", THREADS, "ThreadsConfirmed"),
    _ours(" asyncio", ASYNCIO, "Asyncio"),
    _ours(" asyncio confirmed", ASYNCIO, "AsyncioConfirmed"),
    _ours(" uvloop", UVLOOP, "Asyncio"),
    _ours(" uvloop confirmed", UVLOOP, "AsyncioConfirmed"),
    # the floors, with the plain commands of Redlock and with our two scripts
    _floor("C, plain", C, "plain"),
    _floor("C, scripts", C, "scripts"),
    _floor("sockets, plain", THREADS, "floors.sockets:Plain"),
    _floor("sockets, scripts", THREADS, "floors.sockets:Scripts"),
    _floor("asyncio, plain", ASYNCIO, "floors.loop:Plain"),
    _floor("asyncio, scripts", ASYNCIO, "floors.loop:Scripts"),
    _floor("uvloop, plain", UVLOOP, "floors.loop:Plain"),
    _floor("uvloop, scripts", UVLOOP, "floors.loop:Scripts"),
    _floor("coalescing, plain", ASYNCIO, "floors.loop:CoalescedPlain"),
    _floor("coalescing, scripts", ASYNCIO, "floors.loop:CoalescedScripts"),
    _floor("batches, plain", THREADS, "floors.sockets:Plain"),
    _floor("batches, scripts", THREADS, "floors.sockets:Scripts"),
    _floor("batches in C, plain", C, "plain"),
    _floor("batches in C, scripts", C, "scripts"),
    _floor("push by hand", THREADS, "floors.push:Threads"),
    _floor("push by hand, asyncio", ASYNCIO, "floors.push:Asyncio"),
    # the peers
    _peer("redis-py Lock", THREADS, "redis", "redis_py:Threads", 1),
    _peer("redis-py Lock asyncio", ASYNCIO, "redis", "redis_py:Asyncio", 1),
    _peer("redis-py in turn", THREADS, "redis", "redis_py:InTurn"),
    _peer("python-redis-lock", THREADS, "python-redis-lock", "python_redis_lock:Threads", 1),
    _peer("pottery", THREADS, "pottery", "pottery_redlock:Threads"),
    _peer("pottery asyncio", ASYNCIO, "pottery", "pottery_redlock:Asyncio"),
    _peer("redlock-py", THREADS, "redlock-py", "redlock_py:Threads"),
    _peer("pyredlock", THREADS, "pyredlock", "pyredlock_both:Threads"),
    _peer("pyredlock asyncio", ASYNCIO, "pyredlock", "pyredlock_both:Asyncio"),
    _peer("redlock-ng", THREADS, "redlock-ng", "redlock_ng:Threads"),
    _peer("redlock-ng asyncio", ASYNCIO, "redlock-ng", "redlock_ng:Asyncio"),
    _peer("aioredlock", ASYNCIO, "aioredlock", "aioredlock_asyncio:Asyncio"),
    _peer("coredis Lock", ASYNCIO, "coredis", "coredis_lock:Asyncio", 1),
)
BY_NAME = {it.name: it for it in ALL}


def named(*names: str) -> tuple[Contender, ...]:
    """The contenders with these names."""
    return tuple(BY_NAME[name] for name in names)


def peers(*faces: str, nodes: int) -> tuple[Contender, ...]:
    """The peers with these faces that can use so many nodes; of several nodes' locks, not those that are meant for one."""
    return tuple(
        it for it in ALL if it.kind == PEER and it.face in faces and it.most >= nodes and (nodes > 1 or it.name != "redis-py in turn")
    )
