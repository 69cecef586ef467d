"""`./task bench serve --crowd`: a gateway that has 10,000 leases held and 10,000 waiters on open requests.

Knows HTTP, and the process of the gateway. Must not know how the gateway works. Each waiter waits for a lease of its
own on a connection of its own. The leases are kept by requests of 100, as a client does that has many.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import random
import re
import resource
import secrets
import statistics
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import uvloop

from holdfast.embedded import Nodes

TTL = 30_000  # milliseconds
# Requests that keep this many leases, each a third of the ttl after the one before it.
TOGETHER = 100
# A client may have this many leases, and wait for as many, unless the gateway's options say otherwise.
EACH = 1_000
# How long a waiter waits in one request.
LONGEST = 30_000  # milliseconds
# Connections over which leases are asked for and kept.
CONNECTIONS = 20
# Leases that are released at the end, to see that their waiters get them.
HANDED = 100
_LAG = re.compile(rb"^holdfast_gateway_lag_seconds (\S+)", re.MULTILINE)
_LENGTH = re.compile(rb"content-length: (\d+)", re.IGNORECASE)


class Connection:
    """A connection to the gateway, which asks one thing at a time."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._one = asyncio.Lock()
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, method: str, path: str, body: Any, token: str) -> tuple[int, dict[str, Any]]:
        """Send a request, and return the status and what the answer says."""
        status, said = await self.send(method, path, body, token)
        return status, json.loads(said)

    async def send(self, method: str, path: str, body: Any, token: str) -> tuple[int, bytes]:
        """Send a request, and return the status and the answer."""
        async with self._one:
            if self._streams is None:
                self._streams = await asyncio.open_connection("127.0.0.1", self._port)
            reader, writer = self._streams
            sent = json.dumps(body)
            writer.write(
                f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nAuthorization: Bearer {token}\r\n"
                f"Content-Length: {len(sent)}\r\n\r\n{sent}".encode()
            )
            head = await reader.readuntil(b"\r\n\r\n")
            length = _LENGTH.search(head)
            assert length is not None, head
            return int(head[9:12]), await reader.readexactly(int(length[1]))


class Crowd:
    """Clients of one gateway: half of their leases are held, the other half are waited for.

    Args:
        port: The gateway's.
        tokens: Those of its clients.
        many: How many leases are held, and how many are waited for.
    """

    def __init__(self, port: int, tokens: list[str], many: int) -> None:
        self.said: Counter[str] = Counter()
        self.lags: list[float] = []
        self.least = TTL
        self._connections = [Connection(port) for _ in range(CONNECTIONS)]
        self._port = port
        self._token = [tokens[it // EACH] for it in range(many)]
        self._held = [secrets.token_hex(16) for _ in range(many)]
        self._acquired: set[str] = set()
        self._lines: list[asyncio.Task[dict[str, Any]]] = []
        self._keeping: asyncio.Task[None] | None = None

    async def gather(self) -> None:
        """Acquire what is held, and begin to wait for the same."""

        async def acquire(at: int) -> None:
            connection = self._connections[at % CONNECTIONS]
            body = {"names": [f"crowd:{at}"], "ttl_ms": TTL}
            status, said = await connection.ask("PUT", f"/v1/leases/{self._held[at]}", body, self._token[at])
            if status != 201:
                raise RuntimeError(f"the gateway is too slow for so many: {said}")
            self._acquired.add(self._held[at])

        # The first ones must be kept before the last ones are there.
        self._keeping = asyncio.create_task(self._keep())
        for first in range(0, len(self._held), CONNECTIONS):
            await asyncio.gather(*[acquire(it) for it in range(first, min(first + CONNECTIONS, len(self._held)))])
            self._lines += [asyncio.create_task(self._wait(it)) for it in range(first, min(first + CONNECTIONS, len(self._held)))]

    async def _wait(self, at: int) -> dict[str, Any]:
        """Wait for a lease, in one request after another, on a connection of its own."""
        connection, lease = Connection(self._port), secrets.token_hex(16)
        # Clients that know nothing of each other do not come back in step.
        wait = random.randrange(1_000, LONGEST)
        while True:
            body = {"names": [f"crowd:{at}"], "ttl_ms": TTL, "linger_ms": 10_000, "wait_ms": wait}
            status, said = await connection.ask("PUT", f"/v1/leases/{lease}", body, self._token[at])
            self.said[said.get("state", said.get("type", ""))] += 1
            if status != 202:
                return said
            wait = LONGEST

    async def _keep(self) -> None:
        """Keep all leases for ever, one part after another."""
        parts = [(it, self._held[it : it + TOGETHER]) for it in range(0, len(self._held), TOGETHER)]
        asking: set[asyncio.Task[None]] = set()
        pause = TTL / 1000 / 3 / len(parts)
        while True:
            for at, leases in parts:
                if known := [it for it in leases if it in self._acquired]:
                    asking.add(asyncio.create_task(self._kept(at, known)))
                await asyncio.sleep(pause)
            asking = {it for it in asking if not it.done()}

    async def _kept(self, at: int, leases: list[str]) -> None:
        _, said = await self._connections[at // TOGETHER % CONNECTIONS].ask("POST", "/v1/keepalive", {"leases": leases}, self._token[at])
        for it in said["leases"]:
            self.said[f"kept: {it['state']}"] += 1
            if it["state"] == "held":
                self.least = min(self.least, it["valid_ms"])

    async def watch(self, seconds: float) -> None:
        """Read how late the gateway's loop is, four times a second, as it says itself."""
        ends = time.monotonic() + seconds
        connection = Connection(self._port)
        while time.monotonic() < ends:
            _, said = await connection.send("GET", "/metrics", {}, self._token[0])
            lag = _LAG.search(said)
            assert lag is not None, said
            self.lags.append(float(lag[1]))
            await asyncio.sleep(0.25)

    async def hand_over(self) -> int:
        """Release some of the leases. Returns how many of their waiters got them."""
        for at in range(HANDED):
            self._acquired.discard(self._held[at])
            await self._connections[0].ask("DELETE", f"/v1/leases/{self._held[at]}", {}, self._token[at])
        done = await asyncio.wait_for(asyncio.gather(*self._lines[:HANDED]), 60)
        return sum(it.get("state") == "held" for it in done)


@contextmanager
def known(many: int) -> Iterator[tuple[Path, list[str]]]:
    """A file of so many clients that all leases and all waiters are within what each may have. Yields their tokens, too."""
    tokens = [secrets.token_urlsafe(32) for _ in range(-(-many // EACH))]
    with TemporaryDirectory() as folder:
        file = Path(folder) / "tokens.toml"
        file.touch(0o600)
        tables = [
            f'[client.crowd-{at}]\nsha256 = "{hashlib.sha256(it.encode()).hexdigest()}"\nmax_leases = {2 * EACH}\n'
            'scopes = ["lock:crowd:*", "metrics"]\n'
            for at, it in enumerate(tokens)
        ]
        file.write_text("".join(tables))
        yield file, tokens


def memory(pid: int) -> int:
    """The bytes of memory that a process has."""
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return 1024 * int(found[1])


def as_many_files_as_it_may() -> None:
    """Let this process, and those that it starts, have as many connections as they may."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


async def gathered(gateway: Any, tokens: list[str], many: int, seconds: float) -> None:
    """Have a crowd at a gateway, and print what was seen of it."""
    crowd, before = Crowd(gateway.port, tokens, many), memory(gateway.pid)
    began = time.monotonic()
    await crowd.gather()
    # All waiters have come back at least once.
    await asyncio.sleep(LONGEST / 1000)
    print(f"{many:,} leases are held, and {many:,} requests wait, after {time.monotonic() - began:.0f} s")
    used = gateway.cpu()
    await crowd.watch(seconds)
    share, after = (gateway.cpu() - used) / seconds, memory(gateway.pid)
    got = await crowd.hand_over()
    doubt = crowd.said["kept: in-doubt"]
    lost = sum(count for said, count in crowd.said.items() if said.startswith("kept: ")) - crowd.said["kept: held"] - doubt
    late = statistics.quantiles(crowd.lags, n=100)
    print("| What | Found | Wanted |\n| --- | --- | --- |")
    print(f"| Memory of the gateway, which had {before / 1e6:.0f} MB before | {after / 1e6:.0f} MB | <= 600 MB |")
    print(f"| Lag of its event loop: median, 99th percentile | {1000 * late[49]:.0f} ms, {1000 * late[98]:.0f} ms | <= 50 ms |")
    print(f"| Leases lost in {seconds:g} s, of {crowd.said['kept: held']:,} keepalives | {lost} | 0 |")
    print(f"| Keepalives that were not confirmed in time, so that the lease lasts as long as before | {doubt} | |")
    print(f"| The least that a keepalive left of {TTL / 1000:g} s | {crowd.least / 1000:.1f} s | |")
    print(f"| Waiters that got the lock, of {HANDED} whose holder released it | {got} | {HANDED} |")
    print(f"| CPU of the gateway | {100 * share:.0f} % of a core | |")


def crowded(started: Any, serve: list[str], environment: dict[str, str], many: int, seconds: float) -> None:
    """Measure a gateway with so many leases, and as many waiters.

    Args:
        started: Starts a server, given its words and its environment.
        serve: The words of a gateway.
        environment: Its environment, without the nodes.
        many: How many leases are held, and how many are waited for.
        seconds: How long it is watched.
    """
    as_many_files_as_it_may()
    with Nodes(5) as nodes, known(many) as (file, tokens):
        with started([*serve, "--tokens", str(file)], {**environment, **nodes.environment}) as gateway:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(gathered(gateway, tokens, many, seconds))
