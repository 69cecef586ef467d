"""The third driver: the engine in virtual time, against simulated nodes that run the shipped scripts, in a world full of faults.

Knows drivers' business, and faults. Must not know faces. `python -m holdfast.testing --help` explores.

For your own code there are `memory()`, `simulation` and the pytest fixtures in `plugin`, which docs/testing.md shows. The last two use
the faces.

Read `server` (one node), `world` (time), `chance` (which faults), `network` (nodes and connections in it), `driver` (a client in it),
`laws` (what must hold), `faults`, `stage`, `scenes` and `explore` (what a seed stands for), `campaign` (many of them), `shrink` (a failing
one made small), `timeline` and `picture` (telling it).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..later import later

if TYPE_CHECKING:
    from .inprocess import MemoryNodes as MemoryNodes
    from .inprocess import memory as memory
else:
    __getattr__, __dir__ = later(__name__, {".inprocess": ["MemoryNodes", "memory"]})

__all__ = ["MemoryNodes", "memory"]
