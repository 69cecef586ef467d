"""`./task bench serve`: what the gateway costs, beside an empty route of FastAPI, and one that only calls the library.

Knows HTTP and the CPU time of processes. Must not know how the gateway works. All is measured in one run, in turn, and
the best round of each counts: a machine that is busy for a while is so for all of them. The CPU of the server says how
many requests one core can serve, however busy the machine is.
"""

from __future__ import annotations

import argparse
import os
import re
import secrets
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx

from holdfast import Holdfast
from holdfast.embedded import Nodes

from .crowd import crowded
from .environments import ROOT

EMPTY = """
import fastapi, uvicorn
app = fastapi.FastAPI()
@app.post("/")
async def empty() -> dict[str, bool]:
    return {"ok": True}
uvicorn.run(app, port=0, log_level="info", access_log=False, http="h11", timeout_keep_alive=600)
"""
# What a route costs that does with the library what a gateway's does, and nothing else.
LIBRARY = """
import asyncio, contextlib, fastapi, uvicorn
from holdfast.aio import Holdfast
held = []
def lock(name):
    # As the gateway asks for it: it renews nothing.
    return locks.lock(name, ttl=30, renew=False)
@contextlib.asynccontextmanager
async def life(app):
    global locks
    async with Holdfast() as locks:
        held.extend([await lock(f"library:{it}").acquire() for it in range(100)])
        yield
app = fastapi.FastAPI(lifespan=life)
@app.post("/keepalive")
async def keepalive() -> dict[str, bool]:
    await held[0].extend()
    return {"ok": True}
@app.post("/many")
async def many() -> dict[str, bool]:
    await asyncio.gather(*[it.extend() for it in held])
    return {"ok": True}
@app.put("/pair")
async def acquire() -> dict[str, bool]:
    held.append(await lock("library:pair").acquire())
    return {"ok": True}
@app.delete("/pair")
async def release() -> dict[str, bool]:
    await held.pop().release()
    return {"ok": True}
uvicorn.run(app, port=0, log_level="info", access_log=False, http="h11", timeout_keep_alive=600)
"""
SERVE = ["-m", "holdfast", "serve", "--bind", "127.0.0.1:0", "--max-lag", "1m", "--no-page"]
SERVE += ["--max-requests", "1000000", "--max-keepalives", "1000000"]
MANY = 100
TTL = 30_000
# Milliseconds, of a lease whose gateway is killed.
SHORT = 1500


class Server:
    """A server, and one connection to it."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stderr is not None
        found = next(it for line in process.stderr if (it := re.search(r"http://127\.0\.0\.1:(\d+)", line)))
        threading.Thread(target=process.stderr.read, daemon=True).start()
        self.port = int(found[1])
        self.pid = process.pid
        self._connection = self.connect()

    def connect(self) -> httpx.Client:
        """Another connection."""
        return httpx.Client(base_url=f"http://127.0.0.1:{self.port}", timeout=60)

    def ask(self, method: str, path: str, body: Any = None, over: httpx.Client | None = None) -> dict[str, Any]:
        """Send a request, and return what the answer says."""
        answer = (over or self._connection).request(method, path, json=body or {})
        said: dict[str, Any] = answer.json()
        if answer.status_code >= 300:
            raise RuntimeError(f"{method} {path}: {answer.status_code} {said}")
        return said

    def cpu(self) -> float:
        """Seconds of CPU so far.

        This is Linux's clock of another process. What the system counts by its ticks is too coarse.
        """
        return time.clock_gettime((~self.pid << 3) | 2)


@contextmanager
def started(words: list[str], environment: dict[str, str]) -> Iterator[Server]:
    """A server in a process of its own."""
    process = subprocess.Popen([sys.executable, *words], env=environment, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    try:
        yield Server(process)
    finally:
        process.kill()
        process.wait()


def cost(server: Server, count: int, one: Callable[[], object]) -> float:
    """Return the seconds of CPU that the server needs for one."""
    before = server.cpu()
    for _ in range(count):
        one()
    return (server.cpu() - before) / count


def handed_over(release: Callable[[], object], acquire: Callable[[], object]) -> float:
    """Return the seconds from the release by one until the other, who waits, has the lock."""
    at: list[float] = []

    def wait() -> None:
        acquire()
        at.append(time.perf_counter())

    waiter = threading.Thread(target=wait)
    waiter.start()
    # It has to be in line. The lock is held, so it cannot have it earlier.
    time.sleep(0.3)
    began = time.perf_counter()
    release()
    waiter.join()
    return at[0] - began


def over_http(gateway: Server) -> float:
    """Hand a lock over between two clients of the gateway."""
    first, second, name = secrets.token_hex(16), secrets.token_hex(16), secrets.token_hex(8)
    gateway.ask("PUT", f"/v1/leases/{first}", {"names": [name]})
    other = gateway.connect()
    wanted = {"names": [name], "wait_ms": 20_000}
    found = handed_over(
        lambda: gateway.ask("DELETE", f"/v1/leases/{first}"), lambda: gateway.ask("PUT", f"/v1/leases/{second}", wanted, other)
    )
    gateway.ask("DELETE", f"/v1/leases/{second}", over=other)
    other.close()
    return found


def by_library(one: Holdfast, two: Holdfast) -> float:
    """Hand a lock over between two clients of the library."""
    name = secrets.token_hex(8)
    lease = one.lock(name).acquire()
    held: list[Any] = []
    found = handed_over(lease.release, lambda: held.append(two.lock(name, wait=20).acquire()))
    held[0].release()
    return found


def pair(gateway: Server) -> None:
    """Acquire and release."""
    lease = f"/v1/leases/{secrets.token_hex(16)}"
    gateway.ask("PUT", lease, {"names": ["bench:pair"]})
    gateway.ask("DELETE", lease)


def killed(nodes: Nodes, environment: dict[str, str], other: Holdfast) -> float:
    """Return by how many seconds the next holder is later than the ttl, after a gateway was killed."""
    name, at = secrets.token_hex(8), dict[str, float]()
    with started(SERVE, environment) as gateway:
        lease = f"/v1/leases/{secrets.token_hex(16)}"
        gateway.ask("PUT", lease, {"names": [name], "ttl_ms": SHORT})

        def wait() -> None:
            with other.lock(name, wait=60):
                at["had"] = time.perf_counter()

        waiter = threading.Thread(target=wait)
        waiter.start()
        # It has to be in line before the last keepalive.
        time.sleep(0.3)
        gateway.ask("POST", f"{lease}/keepalive")
        told = time.perf_counter()
    waiter.join()
    return at["had"] - told - SHORT / 1000


def measure(rounds: int, count: int) -> dict[str, list[float]]:
    """Measure each in turn. The first round warms up and does not count."""
    rows: dict[str, list[float]] = {}
    with Nodes(5) as nodes:
        ours = {**os.environ, **nodes.environment, "PYTHONPATH": str(ROOT / "src")}
        with (
            started(SERVE, ours) as gateway,
            started(["-c", EMPTY], ours) as empty,
            started(["-c", LIBRARY], ours) as library,
            Holdfast(*nodes.urls) as one,
            Holdfast(*nodes.urls) as two,
        ):
            rows["killed"] = [killed(nodes, ours, one) for _ in range(5)]
            leases = [secrets.token_hex(16) for _ in range(MANY)]
            for it in leases:
                gateway.ask("PUT", f"/v1/leases/{it}", {"names": [f"bench:{it}"], "ttl_ms": TTL})
            for turn in range(rounds + 1):
                # What is measured now must not have run out since the last round.
                gateway.ask("POST", "/v1/keepalive", {"leases": leases})
                library.ask("POST", "/many")
                found = {
                    "empty": cost(empty, count, lambda: empty.ask("POST", "/")),
                    "keepalive": cost(gateway, count, lambda: gateway.ask("POST", f"/v1/leases/{leases[0]}/keepalive")),
                    "many": cost(gateway, max(1, count // 20), lambda: gateway.ask("POST", "/v1/keepalive", {"leases": leases})),
                    "pair": cost(gateway, count, lambda: pair(gateway)),
                    "keepalive, library": cost(library, count, lambda: library.ask("POST", "/keepalive")),
                    "many, library": cost(library, max(1, count // 20), lambda: library.ask("POST", "/many")),
                    "pair, library": cost(library, count, lambda: (library.ask("PUT", "/pair"), library.ask("DELETE", "/pair"))),
                    "hand-over, HTTP": statistics.median(over_http(gateway) for _ in range(5)),
                    "hand-over, library": statistics.median(by_library(one, two) for _ in range(5)),
                    "request": _timed(empty),
                }
                for name, seconds in found.items():
                    rows.setdefault(name, []).extend([seconds] if turn else [])
    return rows


def _timed(empty: Server) -> float:
    began = time.perf_counter()
    empty.ask("POST", "/")
    return time.perf_counter() - began


def main() -> int:
    """Measure, and print a table. A bar that is missed is no failure: the machine may be busy."""
    parser = argparse.ArgumentParser(prog="./task bench serve", description="What the gateway costs, beside an empty route.")
    parser.add_argument("--rounds", type=int, default=20, help="how often each is measured (default 20)")
    parser.add_argument("--count", type=int, default=100, help="requests in a round (default 100)")
    parser.add_argument("--crowd", action="store_true", help="measure a gateway with many leases and many waiters instead")
    parser.add_argument("--many", type=int, default=10_000, help="how many of them there are (default 10,000 of each)")
    parser.add_argument("--seconds", type=float, default=600, help="how long they are there (default 600)")
    options = parser.parse_args()
    if options.crowd:
        crowded(started, SERVE, {**os.environ, "PYTHONPATH": str(ROOT / "src")}, options.many, options.seconds)
        return 0
    found = measure(options.rounds, options.count)
    late = statistics.median(found.pop("killed"))
    best = {name: min(it) for name, it in found.items()}
    micro = {name: f"{1e6 * it:,.0f} µs" for name, it in best.items()}
    ratio = best["hand-over, HTTP"] / (best["hand-over, library"] + best["request"])
    print(f"Load of the machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores\n")
    print("| What | Found | Wanted | A route that only calls the library |\n| --- | --- | --- | --- |")
    print(f"| An empty route: CPU | {micro['empty']} | | |")
    kept = best["empty"] / best["keepalive"]
    most = best["empty"] / best["keepalive, library"]
    print(f"| Keepalive: requests that one core serves, beside the empty route | {kept:.2f} ({micro['keepalive']}) | >= 0.5 | {most:.2f} |")
    many, floor = MANY / best["many"], MANY / best["many, library"]
    print(f"| Keepalive of {MANY} leases in one request | {many:,.0f} leases a second and core | >= 20,000 | {floor:,.0f} |")
    pairs = best["pair"] / best["empty"] / 2
    least = best["pair, library"] / best["empty"] / 2
    print(f"| Acquire and release: CPU, beside two empty routes | {pairs:.1f} ({micro['pair']}) | <= 2.5 | {least:.1f} |")
    print(f"| Hand-over between two clients, beside the library's and an empty route | {ratio:.1f} ({micro['hand-over, HTTP']}) | <= 2 | |")
    print(f"| Gateway killed: the next holder is later than the ttl by | {1000 * late:.0f} ms | <= 100 ms | |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
