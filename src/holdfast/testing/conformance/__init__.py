"""Shows whether a server can be a node of holdfast: `python -m holdfast.testing.conformance URL`.

It needs the rights of a client on keys that begin with a prefix of its own, and leaves nothing that
does not expire. docs/nodes.md explains the table that it prints.

The modules, from the bottom up:

- `connection`: asks one server.
- `contract`: what each script answers.
- `storm`: one lock, and many who want it.
- `behaviour`: greeting, expiries, pushes, tracking and restarts.
- `examination`: all of it for one server.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...lazy import lazy

if TYPE_CHECKING:
    from .examination import Check, Examination, examine
else:
    __getattr__, __dir__ = lazy(__name__, {".examination": ["Check", "Examination", "examine"]})

__all__ = ["Check", "Examination", "examine"]
