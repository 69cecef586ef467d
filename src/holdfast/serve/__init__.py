"""The gateway `holdfast serve`: locks over HTTP, as an ASGI application.

Knows Starlette, and the client for asyncio. Must not know how a server is started: `holdfast.cli`
does that.
"""

from __future__ import annotations

try:
    import starlette  # noqa: F401 - only to say which extra is missing
except ImportError as missing:
    raise ImportError('holdfast.serve needs Starlette: pip install "holdfast[serve]"', name="starlette") from missing

from .application import app
from .gateway import Gateway
from .identity import Identity
from .options import Options
from .problems import Problem

__all__ = ["Gateway", "Identity", "Options", "Problem", "app"]
