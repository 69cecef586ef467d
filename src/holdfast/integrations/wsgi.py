"""WSGI applications: statuses for holdfast's errors.

Knows the WSGI protocol. Must not know frameworks.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from http import HTTPStatus
from typing import Any

from ..errors import HoldfastError
from .web import Answering

__all__ = ["Errors"]


class Errors(Answering):
    """Middleware that answers requests which holdfast's errors have ended.

    The statuses are those of `holdfast.integrations.asgi.Errors`. After the response has begun, the
    error goes on, and the server cuts the response off.
    """

    def __call__(self, environ: Mapping[str, Any], start_response: Callable[..., Any]) -> Iterator[bytes]:
        """Handle a request."""
        begun = False
        where = f"{environ['REQUEST_METHOD']} {environ.get('PATH_INFO', '')}"
        body: Iterable[bytes] = ()
        try:
            body = self.app(environ, start_response)
            for part in body:
                begun = begun or bool(part)
                yield part
        except HoldfastError as error:
            found = self._answer(error, where, begun)
            headers = [*found.headers, ("content-length", str(len(found.body)))]
            start_response(f"{found.status} {HTTPStatus(found.status).phrase}", headers, sys.exc_info())
            if environ["REQUEST_METHOD"] != "HEAD":
                # (Some servers would send it, and the client would take it for its next response.)
                yield found.body
        finally:
            if hasattr(body, "close"):
                body.close()
