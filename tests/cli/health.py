"""What each tool says of each fault of a node: harms real servers, asks every tool, and makes the rows of docs/watching.md.

A client, a gateway and the log are there before the fault. The command's verbs come afterwards.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import httpx
from cli.kit import Command
from nemesis.servers import EVERY_SECOND, FORGETFUL, Server, compiled_shim
from prometheus_client import CollectorRegistry
from serve.serving import client_of

from holdfast import Holdfast, NoQuorum, embedded
from holdfast.aio import Holdfast as Tasks
from holdfast.errors import ConfigError
from holdfast.metrics import Metrics

PAGE = Path(__file__).parents[2] / "docs/watching.md"
BEGIN, END = "<!-- each fault: tests/cli/health.py -->", "<!-- end -->"
SIZE = 3
FORBIDS = "--rename-command PEXPIRE gone"
KILL_LISTENERS = ("CLIENT", "KILL", "TYPE", "pubsub")  # which clients of holdfast are


Fault = Callable[[Server], Awaitable[None]]


def _told(*commands: Sequence[object]) -> Fault:
    """A server is told this, on one connection: a password is wanted of later ones."""

    async def tell(server: Server) -> None:
        answers = await server.asks(commands)
        assert not [it for it in answers if isinstance(it, Exception)], answers

    return tell


def _done(harm: Callable[[Server], None]) -> Fault:
    async def do(server: Server) -> None:
        harm(server)

    return do


async def _full_disk(server: Server) -> None:
    server.fill_disk(0)
    while "MISCONF" not in str(await server.ask("SET", "more", "than fits", "PX", 1)):
        await asyncio.sleep(0.05)


async def _restarts(server: Server) -> None:
    server.kill()
    await server.start()


async def _forbids(server: Server) -> None:
    (server.folder / "more").write_text(FORBIDS)
    await _restarts(server)


# By what an operator calls it: how it is done to a server that runs.
FAULTS: dict[str, Fault] = {
    "memory is full": _told(("CONFIG", "SET", "maxmemory", "100kb")),
    "disk is full": _full_disk,
    "too few replicas": _told(("CONFIG", "SET", "min-replicas-to-write", 1)),
    "became read-only": _told(("REPLICAOF", "127.0.0.1", 1)),
    "is a replica": _told(("REPLICAOF", "127.0.0.1", 1), KILL_LISTENERS),
    "wants a password": _told(("CONFIG", "SET", "requirepass", "secret"), KILL_LISTENERS),
    "user lacks a right": _told(("ACL", "SETUSER", "default", "-set")),
    "lacks a command": _forbids,
    "restarted empty": _restarts,
    "frozen": _done(Server.freeze),
    "killed": _done(Server.kill),
    "clock is wrong": _done(lambda server: server.step(60.0)),
}


class Seen(NamedTuple):
    """What the tools said. `state`: of the nodes that were harmed; `code`: the exit status of each verb."""

    state: str
    majority: bool
    acquire: str
    log: str
    spare: int
    refused: int
    ready: int
    nodes: int
    top: int
    doctor: int
    run: int

    def outcome(self) -> str:
        """Return what the page says above the table: what is the same for all faults."""
        codes = f"`nodes` and `top` exit with {self.nodes}"
        if self.acquire == "granted":
            return f"an acquire is granted, `HoldfastNoSpareNode` fires, `/readyz` answers {self.ready}, and {codes}"
        codes = f"`nodes`, `top` and `doctor` exit with {self.doctor}"
        alerts = "`HoldfastNoQuorum` and `HoldfastAcquireFails` fire"
        return f"an acquire raises {self.acquire}, {alerts}, `/readyz` answers {self.ready}, and {codes}"

    def contradictions(self) -> list[str]:
        """Return in what the tools contradict each other."""
        said = {
            "nodes()": self.majority,
            "acquire": self.acquire == "granted",
            "metrics": self.spare >= 0,
            "metrics of callers": self.refused == 0,
            "/readyz": self.ready == 200,
            "holdfast nodes": self.nodes == 0,
            "holdfast top": self.top == 0,
            "holdfast doctor": self.doctor != 69,
            "holdfast run": self.run == 0,
        }
        return [] if len(set(said.values())) == 1 else [it for it, well in said.items() if well]


class _Lines(logging.Handler):
    """Keeps what is logged of nodes."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def wrapper(folder: Path) -> Path:
    """Return a server that may be told more on its command line each time that it starts."""
    program = folder / "server"
    program.write_text(f'#!/bin/sh\nexec {embedded.find_server()} "$@" $(cat "$(dirname "$SKEW_FILE")/more" 2>/dev/null)\n')
    program.chmod(0o755)
    return program


async def started(folder: Path, disk: str) -> list[Server]:
    """Return servers of a folder."""
    shim = compiled_shim(folder)
    assert shim is not None, "cc is not installed"
    program = str(wrapper(folder))
    servers = [Server(node, folder, disk, None, shim, program) for node in range(SIZE)]
    await asyncio.gather(*[it.start() for it in servers])
    return servers


async def acquired(locks: Holdfast, name: str) -> str:
    """Try it, and say how it ended."""

    def take() -> str:
        try:
            locks.lock(name, wait=0).acquire().release()
        except NoQuorum:
            return "`NoQuorum`"
        except ConfigError:
            return "`ConfigError`"
        return "granted"

    return await asyncio.to_thread(take)


async def look(faults: Sequence[str], folder: Path) -> Seen:
    """Harm as many servers as there are faults, and ask every tool."""
    servers = await started(folder, EVERY_SECOND if "disk is full" in faults else FORGETFUL)
    urls = [it.url for it in servers]
    log, registry = _Lines(), CollectorRegistry()
    logging.getLogger("holdfast.node").addHandler(log)
    metrics = Metrics(registry=registry)
    locks = Holdfast(*urls, observer=metrics)
    command = Command(folder, {"HOLDFAST_NODES": " ".join(urls)})
    try:
        async with Tasks(*urls) as tasks:
            async with client_of(tasks) as http:
                assert await acquired(locks, "before") == "granted"
                assert (await lease(http, "before")) == 201
                log.lines.clear()
                for fault, server in zip(faults, servers, strict=False):
                    await FAULTS[fault](server)
                outcome, before = "", 0.0
                for turn in range(3):
                    # What is frozen is known after `node_timeout`.
                    before = failed(registry)
                    outcome = await acquired(locks, f"during {turn}")
                    await lease(http, f"during {turn}")
                    await asyncio.sleep(0.6)
                ready = (await http.get("/readyz")).status_code
        nodes = locks.nodes()
        metrics.sample(nodes, locks.stats())
        codes = await asyncio.gather(
            *[
                asyncio.to_thread(command.run, *words, timeout=60)
                for words in (("nodes",), ("top",), ("doctor", "--json"), ("run", "-w", "2", "it", "--", "true"))
            ]
        )
        harmed = list(dict.fromkeys(it.state for it in nodes[: len(faults)]))
        said = [it.split(" ", 1)[1] for it in log.lines if it.split(" ", 1)[0] in {node.node for node in nodes[: len(faults)]}]
        words = next((it for it in ("refuses writes", "is down", "is left alone") if any(it in line for line in said)), "nothing")
        spare = registry.get_sample_value("holdfast_quorum_spare", {"shard": ""})
        assert spare is not None
        return Seen(
            state=", ".join(harmed),
            majority=sum(it.state == "up" for it in nodes) > SIZE // 2,
            acquire=outcome,
            log=words,
            spare=int(spare),
            refused=int(failed(registry) - before),
            ready=ready,
            nodes=codes[0].returncode,
            top=codes[1].returncode,
            doctor=codes[2].returncode,
            run=codes[3].returncode,
        )
    finally:
        logging.getLogger("holdfast.node").removeHandler(log)
        await asyncio.to_thread(locks.close)
        for server in servers:
            server.kill()


def failed(registry: CollectorRegistry) -> float:
    """Return how many requests of callers ended in NoQuorum."""
    return registry.get_sample_value("holdfast_acquire_total", {"kind": "exclusive", "outcome": "no_quorum"}) or 0.0


async def lease(http: httpx.AsyncClient, name: str) -> int:
    """Ask the gateway for a lease."""
    answer = await http.put(f"/v1/leases/{secrets.token_hex(16)}", json={"names": [name], "wait_ms": 0})
    return answer.status_code


def row(fault: str, one: Seen, two: Seen) -> str:
    """Return the row of a fault: what is seen when one node of three has it, and how `run` exits when two have it."""
    return f"| {fault} | `{one.state}` | {one.log} | {one.doctor} | {two.run} |"


def shown(page: str) -> list[str]:
    """Return what the page says of each fault: a row for each fault that a row of the page names."""
    rows = [it for it in page.partition(BEGIN)[2].partition(END)[0].splitlines() if it.startswith("| ")][2:]
    apart = [(fault, rest) for names, _, rest in (it[2:].partition(" | ") for it in rows) for fault in names.split(", ")]
    apart.sort(key=lambda it: [*FAULTS, it[0]].index(it[0]))
    return [f"| {fault} | {rest}" for fault, rest in apart]
