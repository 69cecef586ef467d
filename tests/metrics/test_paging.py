"""A real Prometheus with the rules as they are shipped: an operator is paged within 15 s of a total outage of each kind."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from pathlib import Path

import pytest
from cli.health import FAULTS, started
from metrics.prometheus_server import NEEDS_PROMETHEUS, Server, prometheus
from metrics.test_end_to_end import firing, free_ports
from nemesis.processes import SOURCE
from nemesis.servers import EVERY_SECOND, FORGETFUL

from holdfast.metrics import alerts

pytestmark = NEEDS_PROMETHEUS

WITHIN = 15.0  # seconds
# Wants a lock all the time, as programs do.
PROGRAM = """
import sys, time
from prometheus_client import start_http_server
from holdfast import Holdfast, HoldfastError
from holdfast.metrics import Metrics

port, *urls = sys.argv[1:]
metrics = Metrics()
start_http_server(int(port), "127.0.0.1")
locks = Holdfast(*urls, observer=metrics)
metrics.follow(locks)
number = 0
while True:
    number += 1
    try:
        with locks.lock(f"job:{number}", wait=1):
            pass
    except HoldfastError:
        pass
    time.sleep(0.2)
"""


async def soon(server: Server, query: str, within: float) -> float:
    """Wait until a query has a result. Returns how long that took."""
    began = time.monotonic()
    while not (await asyncio.to_thread(server.ask, "query", query=query))["result"]:
        assert time.monotonic() < began + within, f"not within {within} s: {query}; firing: {firing(server)}"
        await asyncio.sleep(0.2)
    return time.monotonic() - began


@pytest.mark.parametrize("fault", FAULTS)
async def test_an_operator_is_paged_within_15_s_of_a_total_outage(fault: str, tmp_path: Path) -> None:
    servers = await started(tmp_path, EVERY_SECOND if fault == "disk is full" else FORGETFUL)
    port, exported = free_ports(2)
    words = [sys.executable, "-c", PROGRAM, str(exported), *[it.url for it in servers]]
    program = subprocess.Popen(words, env={"PYTHONPATH": str(SOURCE)})
    try:
        with prometheus(tmp_path, port, [f"127.0.0.1:{exported}"], alerts()) as server:
            await soon(server, 'holdfast_acquire_total{outcome="held"} > 0 and on () holdfast_quorum_spare == 1', 30.0)
            assert not firing(server) & {"HoldfastNoQuorum", "HoldfastAcquireFails"}
            for number, it in enumerate(servers):
                await FAULTS[fault](it)
                if fault == "clock is wrong":
                    # Clocks that were wrong alike would agree.
                    it.step(60.0 * number)
            took = await soon(server, 'ALERTS{alertstate="firing", severity="page"}', WITHIN)
            print(f"{fault}: {took:.1f} s")
            await soon(server, "holdfast_quorum_spare < 0", 1.0)
    finally:
        program.kill()
        program.wait()
        for it in servers:
            it.kill()
