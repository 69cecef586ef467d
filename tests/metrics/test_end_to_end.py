"""A real Prometheus scrapes eight workers on five nodes that fail: every panel has data, and the right alerts fire."""

from __future__ import annotations

import contextlib
import json
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from contract.cluster import Cluster
from contract.programs import Program, program
from metrics.prometheus_server import NEEDS_PROMETHEUS, Server, prometheus
from nemesis.processes import free_port, until

from holdfast.embedded import Nodes
from holdfast.metrics import alerts, dashboard

pytestmark = NEEDS_PROMETHEUS

WORKERS = 8
TTL = 2.0

# Uses one of each kind, over and over, and holds a lock for so long that it is renewed. Takes away the lock that it is told.
WORKER = """
import random
from prometheus_client import start_http_server
from holdfast.metrics import Metrics

number, port = int(sys.argv[1]), int(sys.argv[2])
metrics = Metrics()
start_http_server(port, "127.0.0.1")
locks = Holdfast(*URLS, observer=metrics, ttl=TTL, max_ttl=TTL, outage=1)
metrics.follow(locks)
readers = locks.rwlock("report")
permits = locks.semaphore("pool", 3)
cached = locks.fill("price", 0.5, lambda: 7)
limit = locks.rate("mails", 20, 1)

def some(body):
    try:
        body()
    except (NotAcquired, LockLost):
        time.sleep(0.1)

def exclusive():
    with locks.lock("invoice", wait=2):
        time.sleep(0.01)

def long():
    # For so long that it is renewed.
    with locks.lock(f"long:{number}"):
        time.sleep(TTL * 1.5)

def read():
    with readers.read(wait=2):
        time.sleep(0.01)

def write():
    with readers.write(wait=2):
        time.sleep(0.01)

def permit():
    with permits:
        time.sleep(0.01)

def once():
    locks.once(f"job:{random.randrange(20)}", keep=1).run(lambda: 1)

def repeat(*bodies):
    while True:
        for body in bodies:
            some(body)
            time.sleep(0.05)

threading.Thread(target=repeat, args=(long,), daemon=True).start()
threading.Thread(target=repeat, args=(exclusive, read, write, permit, once, limit.take, cached.get), daemon=True).start()
say("ready")
for line in sys.stdin:
    say(locks.force_release(line.strip(), "a test"))
os._exit(0)
""".replace("TTL", str(TTL))


@contextlib.contextmanager
def workers(five: Cluster, ports: list[int]) -> Iterator[list[Program]]:
    with contextlib.ExitStack() as stack:
        them = [stack.enter_context(program(WORKER, five, number, port)) for number, port in enumerate(ports)]
        for it in them:
            it.expect("ready")
        yield them


def soon(server: Server, alert: str, within: float = 30.0) -> None:
    """Wait until an alert fires."""
    until(lambda: alert in firing(server), within, alert)


def firing(server: Server) -> set[str]:
    return {it["labels"]["alertname"] for it in server.ask("alerts")["alerts"] if it["state"] == "firing"}


def impatient(rules: str) -> str:
    """The rules with a second's patience: what they wait for takes minutes."""
    return re.sub(r"^( +for:) \w+$", r"\1 1s", rules, flags=re.M)


def harm(server: Server, five: Cluster, them: list[Program]) -> None:
    """One fault after the other. After each, its alert fires."""
    them[0].tell("long:1")
    assert int(them[0].hear()) > 0, "nodes on which it was held"
    soon(server, "HoldfastLeaseForced")
    five.nodes.kill(0)
    five.nodes.kill(1)
    soon(server, "HoldfastNoSpareNode")
    them[2].signal(signal.SIGSTOP)
    time.sleep(3 * TTL)
    them[2].signal(signal.SIGCONT)
    soon(server, "HoldfastLeaseLost")
    five.nodes.kill(2)
    soon(server, "HoldfastNoQuorum")
    for node in (0, 1, 2):
        five.nodes.restart(node)
    soon(server, "HoldfastNodeRestarted")


def without_data(server: Server, began: float) -> list[str]:
    """The panels of which no expression has data."""
    empty = []
    for panel in json.loads(dashboard())["panels"]:
        found = 0
        for target in panel.get("targets", ()):
            expression = re.sub(r"\$\w+", ".*", target["expr"].replace("$__rate_interval", "15s"))
            asked = server.ask("query_range", query=expression, start=str(began), end=str(time.time()), step="1")
            found += any(point[1] != "NaN" for line in asked["result"] for point in line["values"])
        if found < len(panel.get("targets", ())):
            empty.append(f"{panel['title']}: {found} of {len(panel['targets'])}")
    return empty


@pytest.mark.timeout(240)
def test_every_panel_has_data_and_the_right_alerts_fire(tmp_path: Path) -> None:
    ports = [free_port() for _ in range(WORKERS + 1)]
    began = time.time()
    with Cluster(Nodes(5)) as five, workers(five, ports[1:]) as them:
        targets = [f"127.0.0.1:{port}" for port in ports[1:]]
        with prometheus(tmp_path, ports[0], targets, impatient(alerts())) as server:
            spare = {"query": "holdfast_quorum_spare == 2"}
            until(lambda: len(server.ask("query", **spare)["result"]) == WORKERS, 30, "every worker is scraped")
            assert firing(server) <= {"HoldfastDangerousNode"}, "these nodes have no persistence, and clients warn of it"
            harm(server, five, them)
            soon(server, "HoldfastDangerousNode")
            assert without_data(server, began) == []
            assert not firing(server) & {"HoldfastClock", "HoldfastWaitsLong"}
