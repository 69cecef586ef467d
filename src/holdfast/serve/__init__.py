"""The gateway `holdfast serve`: locks over HTTP, as an ASGI application.

Knows FastAPI, and the client for asyncio. Must not know how a server is started: `holdfast.cli`
does that.
"""

from __future__ import annotations

try:
    import fastapi  # noqa: F401 - only to say which extra is missing
except ImportError as missing:
    raise ImportError('holdfast.serve needs FastAPI: pip install "holdfast[serve]"', name="fastapi") from missing

from .application import app
from .gateway import Gateway
from .identity import Identity
from .options import Options
from .problems import Problem

__all__ = ["Gateway", "Identity", "Options", "Problem", "app"]
