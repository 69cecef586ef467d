"""What guests use beside the public names: the seam between them and the kernel.

The command, the gateway, the modules for frameworks and the locks for other libraries import
nothing else of what lies below the clients. A module is loaded when one of its names is used.
"""

from typing import TYPE_CHECKING

from .lazy import lazy

if TYPE_CHECKING:
    from .engine.plans import Ask, Plan
    from .engine.registry import ALL_CLIENTS, RECENT, ask_registry, registered
    from .engine.status import EFFICIENT, majorities
    from .face.decorators import Current, fields, fill, function_of, kinds, named, noted, unlocked, written
    from .face.environment import utf8
    from .face.values import JSON, packed
    from .primitives.once.plan import digest
    from .protocol.query import Query
    from .protocol.quorum import majority
    from .protocol.ticket import TOKEN
    from .wire.handshake import ADOPTED
    from .wire.resp import pack
    from .wire.rights import OPTIONAL, forbidden, rule
else:
    _DECORATORS = ["Current", "fields", "fill", "function_of", "kinds", "named", "noted", "unlocked", "written"]
    __getattr__, __dir__ = lazy(
        __name__,
        {
            ".engine.plans": ["Ask", "Plan"],
            ".engine.registry": ["ALL_CLIENTS", "RECENT", "ask_registry", "registered"],
            ".engine.status": ["EFFICIENT", "majorities"],
            ".face.decorators": _DECORATORS,
            ".face.environment": ["utf8"],
            ".face.values": ["JSON", "packed"],
            ".primitives.once.plan": ["digest"],
            ".protocol.query": ["Query"],
            ".protocol.quorum": ["majority"],
            ".protocol.ticket": ["TOKEN"],
            ".wire.handshake": ["ADOPTED"],
            ".wire.resp": ["pack"],
            ".wire.rights": ["OPTIONAL", "forbidden", "rule"],
        },
    )

__all__ = [
    "ADOPTED", "ALL_CLIENTS", "Ask", "Current", "EFFICIENT", "JSON", "OPTIONAL", "Plan", "Query", "RECENT", "TOKEN",
    "ask_registry", "digest", "fields", "fill", "forbidden", "function_of", "kinds", "majorities",
    "majority", "named", "noted", "pack", "packed", "registered", "rule", "unlocked", "utf8", "written",
]  # fmt: skip
