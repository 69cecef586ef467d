"""A gateway behind a real server, in the process of the test; and copies of the package with a fault planted."""

from __future__ import annotations

import asyncio
import hashlib
import re
import socket
import ssl
import subprocess
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import trustme
import uvicorn
from cli.kit import Command
from nemesis.processes import PIPES
from starlette.applications import Starlette

from holdfast.aio import Holdfast
from holdfast.serve import Gateway, app, models
from holdfast.serve.problems import KINDS, MEDIA

# Machines that run tests are busy. How the gateway is when it is busy has a test of its own.
PATIENT = 60.0


def gateway_app(locks: Holdfast, **options: Any) -> Starlette:
    """The application, which serves all requests however busy the machine is."""
    return app(locks, **{"max_lag": PATIENT, **options})


def client_of(locks: Holdfast, **options: Any) -> httpx.AsyncClient:
    """A client of an application of its own, without a server between them. It checks the form of every problem."""
    transport, hooks = httpx.ASGITransport(gateway_app(locks, **options)), {"response": [well_formed]}
    return httpx.AsyncClient(transport=transport, base_url="http://localhost:7420", timeout=30, event_hooks=hooks)


async def well_formed(answer: httpx.Response) -> None:
    """Check that a problem has the form that every problem has."""
    if answer.headers.get("content-type") == MEDIA and answer.request.method != "HEAD":
        document = models.ProblemDocument.model_validate_json(await answer.aread())
        assert (document.status, document.title) == (answer.status_code, KINDS[document.type.removeprefix("/problems/")][1])
        assert document.detail


def gateway_of(client: httpx.AsyncClient) -> Gateway:
    """The gateway behind such a client."""
    transport: Any = client._transport
    found: Gateway = transport.app.state.gateway
    return found


def write_tokens(path: Path, **scopes: str) -> None:
    """A file of clients whose tokens are their names."""
    path.touch(0o600)
    clients = {it: hashlib.sha256(it.encode()).hexdigest() for it in scopes}
    path.write_text("".join(f'[client.{it}]\nsha256 = "{clients[it]}"\nscopes = [{scope}]\n' for it, scope in scopes.items()))


def certified(folder: Path) -> tuple[list[str], ssl.SSLContext]:
    """The options of a gateway with TLS, and what trusts it."""
    authority, paths = trustme.CA(), [str(folder / it) for it in ("cert.pem", "key.pem")]
    paper, context = authority.issue_cert("127.0.0.1", "localhost"), ssl.create_default_context()
    paper.cert_chain_pems[0].write_to_path(paths[0])
    paper.private_key_pem.write_to_path(paths[1])
    authority.configure_trust(context)
    return ["--server-cert", paths[0], "--server-key", paths[1]], context


@dataclass
class Serving:
    url: str
    gateway: Gateway
    server: uvicorn.Server


def listening() -> socket.socket:
    """A port of its own."""
    found = socket.socket()
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    found.bind(("127.0.0.1", 0))
    return found


def url_of(listening: socket.socket) -> str:
    """The address of a server that listens there."""
    host, port = listening.getsockname()
    return f"http://{host}:{port}"


@asynccontextmanager
async def serving(application: Any, at: socket.socket | None = None, **more: Any) -> AsyncIterator[Serving]:
    """Serve an application on a port of its own."""
    with at or listening() as bound:
        server = uvicorn.Server(uvicorn.Config(application, log_level="warning", timeout_graceful_shutdown=2, **more))
        task = asyncio.create_task(server.serve(sockets=[bound]))
        while not server.started:
            await asyncio.sleep(0.01)
        try:
            yield Serving(url_of(bound), application.state.gateway, server)
        finally:
            server.should_exit = True
            await task


@contextmanager
def served(holdfast: Command, *options: str, at: Sequence[str] = ("--bind", "127.0.0.1:0")) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """A gateway in a process of its own, which serves all requests however busy the machine is: where it serves, and the process."""
    with holdfast.started("serve", *at, "--max-lag", "1m", *options, **PIPES) as process:
        yield address(process), process


def address(process: subprocess.Popen[str]) -> str:
    """Where a gateway that was started says that it serves."""
    for line in process.stderr:
        if found := re.search(r"serving at (\S+)", line):
            return found[1]
    raise AssertionError("the gateway has ended")
