"""The gateway `holdfast serve`: locks for programs in other languages, over HTTP and RESP.

Knows the client for asyncio. `app` is the ASGI application, which needs Starlette; RESP needs
nothing that the library does not.
"""

from typing import TYPE_CHECKING

from ..lazy import lazy

if TYPE_CHECKING:
    from .application import app
    from .gateway import Gateway
    from .identity import Identity
    from .options import Options
    from .problems import Problem
else:
    __getattr__, __dir__ = lazy(
        __name__,
        {
            ".application": ["app"],
            ".gateway": ["Gateway"],
            ".identity": ["Identity"],
            ".options": ["Options"],
            ".problems": ["Problem"],
        },
    )

__all__ = ["Gateway", "Identity", "Options", "Problem", "app"]
