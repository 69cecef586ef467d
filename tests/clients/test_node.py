"""The client for Node on real servers: what it says when something fails, and when."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from typing import Any

import pytest
from clients.storm import CLIENT
from contract.cluster import ask

from holdfast import Holdfast
from holdfast.embedded import Nodes

HEAD = f"""
import {{ Holdfast, LockBusy, LockLost, NoQuorum }} from {json.dumps(str(CLIENT / "dist/src/index.js"))};
import {{ setTimeout as sleep }} from 'node:timers/promises';
const {{ urls }} = JSON.parse(process.argv[1]);
const client = (options) => new Holdfast(urls, {{ maxTtl: 3000, ...options }});
const failed = async (what) => await what().then(() => 'nothing', (error) => `${{error.constructor.name}}: ${{error.message}}`);
"""


@pytest.fixture
def servers() -> Iterator[Nodes]:
    with Nodes(3, tcp=True) as nodes:
        yield nodes


def program(nodes: Nodes, text: str, urls: tuple[str, ...] = ()) -> subprocess.Popen[str]:
    told = json.dumps({"urls": urls or nodes.urls})
    command = ["node", "--input-type=module", "-e", HEAD + text, told]
    return subprocess.Popen(command, text=True, stdout=subprocess.PIPE)


def said(nodes: Nodes, text: str, urls: tuple[str, ...] = ()) -> Any:
    """Run a program, and return the JSON that it prints."""
    with program(nodes, text, urls) as process:
        out, _ = process.communicate(timeout=30)
    assert process.returncode == 0
    return json.loads(out)


def test_a_waiter_is_granted_the_lock_by_a_push(servers: Nodes) -> None:
    waited, fences = said(
        servers,
        """
        const a = client(), b = client();
        const first = await a.acquire('jobs', { ttl: 3000 });
        const waiting = b.acquire('jobs', { ttl: 3000 });
        await sleep(1500);
        const began = performance.now();
        first.release();
        const second = await waiting;
        console.log(JSON.stringify([performance.now() - began, [first.fence, second.fence]]));
        await a.close(); await b.close();
        """,
    )
    assert fences[0] < fences[1]
    assert waited < 900, "heartbeats are 1 s apart"


def test_a_try_is_refused_while_another_language_holds_the_lock(servers: Nodes) -> None:
    text = """
        const a = client({ maxTtl: 30_000 });
        console.log(JSON.stringify(await failed(() => a.acquire('jobs', { wait: 0, ttl: 10_000 }))));
        await a.close();
    """
    with Holdfast(*servers.urls) as locks:
        with locks.lock("jobs", wait=5):
            assert said(servers, text).startswith("LockBusy")
        assert said(servers, text) == "nothing"


def test_a_released_lock_is_free_at_once_for_another_language(servers: Nodes) -> None:
    fence = said(
        servers,
        "const a = client(); const lease = await a.acquire('jobs'); lease.release(); console.log(lease.fence); await a.close();",
    )
    with Holdfast(*servers.urls, max_ttl=3, ttl=3) as locks, locks.lock("jobs", wait=0) as lease:
        assert lease.fence > fence


def test_servers_that_may_have_forgotten_locks_are_not_used(servers: Nodes) -> None:
    for url in servers.urls:
        ask(url, "DEL", "{holdfast}:adopted")
    text = """
        const a = client({ maxTtl: 30_000 });
        console.log(JSON.stringify(await failed(() => a.acquire('jobs', { wait: 0, ttl: 10_000 }))));
        await a.close();
    """
    told = said(servers, text)
    assert told.startswith("NoQuorum: 0 of 3 nodes usable")
    assert "it may have forgotten locks" in told


def test_a_lease_is_lost_in_time_when_a_majority_hangs(servers: Nodes) -> None:
    text = """
        const a = client();
        const lease = await a.acquire('jobs', { ttl: 1000 });
        console.log('held');
        const until = performance.now() + 10_000;
        lease.signal.addEventListener('abort', async () => {
          console.log(JSON.stringify([lease.remaining(), await failed(async () => lease.check())]));
          process.exit(0);
        });
        await sleep(until - performance.now());
    """
    with program(servers, text) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        servers.freeze(0)
        servers.freeze(1)
        began = time.monotonic()
        remaining, told = json.loads(process.stdout.readline())
        took = time.monotonic() - began
        servers.thaw(0)
        servers.thaw(1)
    assert remaining == 0
    assert told.startswith("LockLost")
    assert took < 3, "a lease of 1 s outlives its nodes"
