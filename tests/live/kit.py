"""What tests of clients for threads on real servers share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from contract.cluster import Cluster
from contract.programs import Program, program

from holdfast import Holdfast
from holdfast.drivers.threads.io_thread import IOThread


@contextmanager
def connected(nodes: Cluster, **options: Any) -> Iterator[Holdfast]:
    """A client that speaks with every node."""
    with Holdfast(*nodes.urls, **options) as client:
        client.ready()
        yield client


@contextmanager
def holding(nodes: Cluster, what: str, options: str = "", **more: str) -> Iterator[Program]:
    """A program with a client of these options, which holds `locks.WHAT`, and has it."""
    source = f"locks = Holdfast({options})\nlease = locks.{what}.acquire()\nsay('held')\ntime.sleep(60)"
    with program(source, nodes, **more) as running:  # type: ignore[arg-type]  # (options of several types)
        running.expect("held")
        yield running


def io_thread_of(client: Holdfast) -> IOThread:
    return client._driver.io_thread
