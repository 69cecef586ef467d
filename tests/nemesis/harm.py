"""Harm that ends by itself, for tests of every kind: nodes and processes that stand still for as long as a block.

Knows signals and nodes. Must not know who is harmed, or what may come of it.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager

from holdfast.cli import tree
from holdfast.embedded import Nodes


@contextmanager
def frozen(nodes: Nodes, *which: int) -> Iterator[None]:
    """These nodes say nothing; their connections stay."""
    for it in which:
        nodes.freeze(it)
    try:
        yield
    finally:
        for it in which:
            nodes.thaw(it)


@contextmanager
def stopped(*pids: int) -> Iterator[None]:
    """These processes stand still."""
    for it in pids:
        tree.send(it, signal.SIGSTOP)
    try:
        yield
    finally:
        for it in pids:
            tree.send(it, signal.SIGCONT)
