"""`./task bench light`: what `holdfast serve --resp` costs, beside the gateway over HTTP and the library itself.

Knows RESP, HTTP and the CPU time of processes. Must not know how the gateway works. All is measured in one run, in turn,
and the best round of each counts: a machine that is busy for a while is so for all of them.
"""

from __future__ import annotations

import argparse
import os
import re
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

from holdfast import Holdfast
from holdfast.embedded import Nodes

from .environments import ROOT
from .serving import SERVE, Server, pair

RESP = ["-m", "holdfast", "serve", "--resp", "127.0.0.1:0", "--max-lag", "1m"]
FIRST = b"LOCK light:first WAIT 60000 TTL 1000"
# Holds a lock for the length of its connection, and says so. Then it only waits to be killed.
HOLDER = """
import socket, sys
its = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
its.sendall(b"LOCK light:killed TTL 30000 WAIT 60000 SESSION\\n")
its.recv(4096)
print("held", flush=True)
its.recv(1)
"""
# Passes on what it is sent to one node, and the answers back, and does nothing else: the floor of a gateway in asyncio.
RELAY = """
import asyncio, sys
class Side(asyncio.Protocol):
    def connection_made(self, transport):
        self.transport = transport
    def data_received(self, data):
        self.other.transport.write(data)
async def main(node):
    def arrived():
        side = Side()
        side.other, inner.other = inner, side
        return side
    loop = asyncio.get_running_loop()
    _, inner = await loop.create_unix_connection(Side, node)
    server = await loop.create_server(arrived, "127.0.0.1", 0)
    print("redis://127.0.0.1:%d" % server.sockets[0].getsockname()[1], file=sys.stderr, flush=True)
    await server.serve_forever()
asyncio.run(main(sys.argv[1]))
"""


class Light:
    """A gateway that speaks RESP, and one connection to it."""

    def __init__(self, environment: dict[str, str], program: Sequence[str] = RESP, first: bytes = FIRST) -> None:
        began = time.perf_counter()
        self.process = subprocess.Popen([sys.executable, *program], env=environment, stderr=subprocess.PIPE, text=True)
        assert self.process.stderr is not None
        found = next(it for line in self.process.stderr if (it := re.search(r"redis://127\.0\.0\.1:(\d+)", line)))
        self.started = time.perf_counter() - began
        self.port = int(found[1])
        self.bytes = 0
        self._socket = self.connect()
        self.ask(first)
        self.idle = memory(self.process.pid)

    def connect(self) -> socket.socket:
        """Another connection."""
        its = socket.create_connection(("127.0.0.1", self.port))
        its.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return its

    def ask(self, line: bytes, over: socket.socket | None = None) -> list[bytes]:
        """Send a command, and return the lines of the answer."""
        its, words = over or self._socket, line.split()
        sent = b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%b\r\n" % (len(it), it) for it in words)
        its.sendall(sent)
        answer = its.recv(4096)
        if answer.startswith(b"-"):
            raise RuntimeError(f"{line!r}: {answer!r}")
        self.bytes += len(sent) + len(answer)
        return answer.split(b"\r\n")

    def pair(self) -> None:
        """Acquire and release."""
        self.ask(b"UNLOCK %b" % self.ask(b"LOCK light:pair")[2])

    def floor(self) -> None:
        """What `pair` is, if only a node answers."""
        self.ask(b"SET light:pair token NX PX 10000")
        self.ask(b"DEL light:pair")

    def cpu(self) -> float:
        """Seconds of CPU so far, by Linux's clock of another process."""
        return time.clock_gettime((~self.process.pid << 3) | 2)

    def waiters(self, count: int) -> float:
        """Return the seconds in which so many waiters of one lock are served one after the other."""
        first = self.ask(b"LOCK light:crowd TTL 30000")[2]
        ready = threading.Barrier(count + 1)

        def wait() -> None:
            with self.connect() as its:
                ready.wait()
                lease = self.ask(b"LOCK light:crowd TTL 30000 WAIT 60000", its)[2]
                self.ask(b"UNLOCK %b" % lease, its)

        threads = [threading.Thread(target=wait) for _ in range(count)]
        for it in threads:
            it.start()
        ready.wait()
        # All are in line before the first one is served.
        time.sleep(1)
        began = time.perf_counter()
        self.ask(b"UNLOCK %b" % first)
        for it in threads:
            it.join()
        return time.perf_counter() - began

    def killed(self) -> float:
        """Return the seconds from the end of a client that is killed until the next one has its lock."""
        with subprocess.Popen([sys.executable, "-c", HOLDER, str(self.port)], stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            process.stdout.readline()
            at: list[float] = []

            def wait() -> None:
                with self.connect() as its:
                    lease = self.ask(b"LOCK light:killed WAIT 60000", its)[2]
                    at.append(time.perf_counter())
                    self.ask(b"UNLOCK %b" % lease, its)

            waiter = threading.Thread(target=wait)
            waiter.start()
            time.sleep(0.1)
            began = time.perf_counter()
            process.kill()
            waiter.join()
            return at[0] - began


class Cost(NamedTuple):
    """What a pair costs: seconds on the clock, in the median, and of the server's CPU."""

    clock: float
    cpu: float


def memory(pid: int) -> float:
    """MB of a process that are in memory."""
    line = next(it for it in Path(f"/proc/{pid}/status").read_text().splitlines() if it.startswith("VmRSS"))
    return int(line.split()[1]) / 1000


def cost(cpu: Callable[[], float], one: Callable[[], object], count: int) -> Cost:
    """Measure so many pairs."""
    before, took = cpu(), list[float]()
    for _ in range(count):
        began = time.perf_counter()
        one()
        took.append(time.perf_counter() - began)
    return Cost(statistics.median(took), (cpu() - before) / count)


@contextmanager
def http(environment: dict[str, str]) -> Iterator[tuple[Server, float, float]]:
    """The gateway over HTTP, its seconds to start, and its memory when it is idle."""
    began = time.perf_counter()
    with subprocess.Popen([sys.executable, *SERVE], env=environment, stderr=subprocess.PIPE, text=True) as process:
        server = Server(process)
        took = time.perf_counter() - began
        pair(server)
        yield server, took, memory(process.pid)
        process.kill()


def measure(count: int, rounds: int, nodes: Nodes) -> dict[str, list[float]]:
    """Measure each in turn. The first round warms up and does not count."""
    environment = {**os.environ, **nodes.environment, "PYTHONPATH": str(ROOT / "src")}
    rows: dict[str, list[float]] = {}
    with ExitStack() as stack, Holdfast(*nodes.urls) as library:
        lock = library.lock("light:library")
        for turn in range(rounds + 1):
            light = Light(environment)
            stack.callback(light.process.kill)
            heavy, heavy_start, heavy_idle = stack.enter_context(http(environment))
            light.bytes = 0
            light.pair()
            relay = Light(environment, ["-c", RELAY, nodes.urls[0].removeprefix("unix://")], b"PING")
            stack.callback(relay.process.kill)
            floor = cost(relay.cpu, relay.floor, count)
            its, other = cost(light.cpu, light.pair, count), cost(heavy.cpu, partial(pair, heavy), count // 4)
            own = cost(time.process_time, lambda: lock.acquire().release(), count)
            found = {
                "start": light.started, "start, HTTP": heavy_start, "idle": light.idle, "idle, HTTP": heavy_idle,
                "pair": its.clock, "pair, HTTP": other.clock, "pair, library": own.clock,
                "floor": floor.clock, "cpu": its.cpu, "cpu, HTTP": other.cpu, "cpu, floor": floor.cpu, "bytes": light.bytes / (count + 1),
                "waiters": light.waiters(500), "killed": statistics.median(light.killed() for _ in range(10)),
            }  # fmt: skip
            stack.close()
            for name, value in found.items():
                rows.setdefault(name, []).extend([value] if turn else [])
    return rows


def main() -> int:
    """Measure, and print a table. A goal that is missed is no failure: the machine may be busy."""
    parser = argparse.ArgumentParser(prog="./task bench light", description="What the gateway costs that speaks RESP.")
    parser.add_argument("--rounds", type=int, default=3, help="how often each is measured (default 3)")
    parser.add_argument("--count", type=int, default=2000, help="pairs in a round (default 2000)")
    options = parser.parse_args()
    print(f"Load of the machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores\n")
    print("| What | `serve --resp` | Goal | `serve` (HTTP) | The library | A relay |\n| --- | --- | --- | --- | --- | --- |")
    for size, goals in ((1, ("300 µs", "150 µs")), (5, ("450 µs", ""))):
        with Nodes(size) as nodes:
            rows = measure(options.count, options.rounds, nodes)
        it = {name: min(values) for name, values in rows.items()}
        if size == 1:
            print(f"| Start-up | {it['start'] * 1e3:.0f} ms | 150 ms | {it['start, HTTP'] * 1e3:.0f} ms | | |")
            print(f"| Memory, idle | {it['idle']:.0f} MB | 30 MB | {it['idle, HTTP']:.0f} MB | | |")
            print(f"| Bytes of a pair | {it['bytes']:.0f} | 200 | | | |")
            print(f"| 500 waiters served | {it['waiters']:.2f} s | 0.2 s | | | |")
            print(f"| The lock of a killed client is free after | {it['killed'] * 1e3:.0f} ms | 50 ms | its ttl | its ttl | |")
        floors = ("", "") if size > 1 else (f"{it['floor'] * 1e6:.0f} µs", f"{it['cpu, floor'] * 1e6:.0f} µs")
        pairs = f"{it['pair'] * 1e6:.0f} µs | {goals[0]} | {it['pair, HTTP'] * 1e6:.0f} µs | {it['pair, library'] * 1e6:.0f} µs"
        print(f"| A pair, {size} node{'s' * (size > 1)} | {pairs} | {floors[0]} |")
        costs = f"{it['cpu'] * 1e6:.0f} µs | {goals[1]} | {it['cpu, HTTP'] * 1e6:.0f} µs | | {floors[1]}"
        print(f"| CPU of the gateway for it | {costs} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
