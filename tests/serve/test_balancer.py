"""Two gateways behind a real HAProxy, which takes them in turn: leases outlive nothing but their gateway."""

from __future__ import annotations

import contextlib
import itertools
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from cli.kit import Command, until
from serve.balancer import Balancer, balanced, free
from serve.serving import address
from serve.test_clients import CLIENTS, PATIENCE, PIPES, ended

from holdfast.embedded import Nodes

numbers = itertools.count()


class Gateways:
    """Two gateways, and the balancer before them."""

    def __init__(self, processes: dict[int, subprocess.Popen[str]], balancer: Balancer) -> None:
        self.processes, self.balancer, self.url = processes, balancer, balancer.url

    def name(self, port: int) -> str:
        """The name of the gateway at this port."""
        return str(httpx.get(f"http://127.0.0.1:{port}/v1/leases", timeout=20).json()["gateway"])


@pytest.fixture
def holdfast(tmp_path: Path, own_nodes: Nodes) -> Command:
    """The command, on nodes whose leases are short. So is the time for which gateways are remembered."""
    return Command(tmp_path, {**own_nodes.environment, "HOLDFAST_MAX_TTL": "8", "HOLDFAST_TTL": "8"})


@pytest.fixture
def gateways(holdfast: Command, tmp_path: Path) -> Iterator[Gateways]:
    ports = [free(), free()]
    with contextlib.ExitStack() as stack:
        processes = {}
        for port in ports:
            url = f"http://127.0.0.1:{port}"
            words = ("serve", "--bind", f"127.0.0.1:{port}", "--advertise", url, "--max-lag", "1m")
            processes[port] = stack.enter_context(holdfast.started(*words, "--drain", "100ms", **PIPES))
            address(processes[port])
            until(lambda url=url: httpx.get(f"{url}/readyz", timeout=20).status_code == 200)
        balancer = stack.enter_context(balanced(tmp_path, ports))
        until(lambda: _answers(balancer.url))
        yield Gateways(processes, balancer)


def _answers(url: str) -> bool:
    with contextlib.suppress(httpx.TransportError):
        return httpx.get(f"{url}/readyz", timeout=20).status_code == 200
    return False


def put(url: str, name: str, **more: object) -> httpx.Response:
    lease = f"a-lease-behind-a-balancer-{next(numbers)}"
    return httpx.put(f"{url}/v1/leases/{lease}", json={"names": [name], **more}, timeout=40)


def test_every_request_finds_its_lease(gateways: Gateways) -> None:
    said = put(gateways.url, "balancer:finds").json()
    for _ in range(6):
        assert httpx.post(f"{gateways.url}/v1/leases/{said['id']}/keepalive", json={}, timeout=20).status_code == 200
    # Also after the balancer has dropped all connections.
    gateways.balancer.restart()
    until(lambda: _answers(gateways.url))
    for _ in range(3):
        assert httpx.get(f"{gateways.url}/v1/leases/{said['id']}", timeout=20).json()["fence"] == said["fence"]
    assert httpx.delete(f"{gateways.url}/v1/leases/{said['id']}", timeout=20).json()["state"] == "released"


@pytest.mark.parametrize("client", CLIENTS)
def test_clients_beat_through_it(gateways: Gateways, holdfast: Command, client: str) -> None:
    env = {**holdfast.environment, "HOLDFAST_GATEWAY": gateways.url, "TTL_MS": "2000"}
    with subprocess.Popen([*CLIENTS[client], f"balancer:{client}", "sleep", "4"], env=env, text=True, **PIPES) as process:
        assert ended(process) == 0


@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGTERM])
def test_a_gateway_ends(gateways: Gateways, ending: signal.Signals) -> None:
    name = f"balancer:ends {ending}"
    began = time.monotonic()
    said = put(gateways.url, name, ttl_ms=2_000).json()
    port = next(it for it in gateways.processes if said["id"].startswith(gateways.name(it)))
    gateways.processes[port].send_signal(ending)
    gateways.processes[port].wait(PATIENCE)
    lease = f"{gateways.url}/v1/leases/{said['id']}"
    until(lambda: _kind(httpx.post(f"{lease}/keepalive", json={}, timeout=20)) == "gateway-unreachable")
    # The next holder has it as soon as the first one cannot believe in it any more.
    after = put(gateways.url, name, wait_ms=20_000).json()
    assert after["state"] == "held"
    assert said["valid_ms"] / 1000 <= time.monotonic() - began < 12
    # Once all leases of the other gateway are over, that is what is said.
    until(lambda: _kind(httpx.post(f"{lease}/keepalive", json={}, timeout=20)) == "gateway-gone")
    assert after["fence"] > said["fence"]


def _kind(answer: httpx.Response) -> str:
    return str(answer.json().get("type", "")).removeprefix("/problems/")
