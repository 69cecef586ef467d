"""Tools for testing code that uses holdfast, and the simulator that holdfast itself is tested with.

Knows nodes, clients and faults in virtual time. Must not know the clients of `holdfast`,
except for `simulation` and `plugin`. The driver that runs in simulated worlds is the one for
asyncio.

For your own code there are `memory()` (nodes in your test's process), `simulation` (your asyncio
code in virtual time) and `plugin` (pytest fixtures). docs/testing.md shows all three.

The simulator consists of these modules:

- `server`: one node.
- `world`: time.
- `chance`: which faults happen.
- `network`: nodes and connections.
- `loop`: an event loop in the world's time.
- `process`: what is paused and crashed together.
- `client`: a client, as laws see it.
- `laws`: what must hold.
- `windows`: the laws of two holders.
- `faults`: what can go wrong.
- `timeline`: the history as text.

The worlds in which holdfast is tested are not in the package. They are in the repository, in
`tests/swarm`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..lazy import lazy

if TYPE_CHECKING:
    from .ending import at_end
    from .inprocess import MemoryNodes, memory
else:
    __getattr__, __dir__ = lazy(__name__, {".ending": ["at_end"], ".inprocess": ["MemoryNodes", "memory"]})

__all__ = ["MemoryNodes", "at_end", "memory"]
