"""WSGI applications: statuses for holdfast's errors.

Knows the WSGI protocol. Must not know frameworks.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from http import HTTPStatus
from typing import Any

from ..errors import HoldfastError
from .web import Statuses, cut_off, problem_of

__all__ = ["Errors"]


class Errors:
    """Middleware that answers requests which holdfast's errors have ended.

    The statuses are those of `holdfast.integrations.asgi.Errors`. After the response has begun, the
    error goes on, and the server cuts the response off.
    """

    def __init__(
        self,
        app: Callable[..., Iterable[bytes]],
        *,
        busy: int = 409,
        names: bool = False,
        outage: float = 10.0,
    ) -> None:
        """Wrap an application.

        Args:
            app: The application.
            busy: The status for a busy lock, 409 (the default) or 423.
            names: Whether responses contain the lock's name (default: False).
            outage: Seconds after which clients should come back if most nodes are unreachable
                (default: 10).

        Raises:
            ConfigError: `busy` is another status.
        """
        self.app, self._statuses = app, Statuses(busy=busy, names=names, outage=outage)

    def __call__(self, environ: Mapping[str, Any], start_response: Callable[..., Any]) -> Iterator[bytes]:
        """Handle a request."""
        begun, where = False, f"{environ['REQUEST_METHOD']} {environ.get('PATH_INFO', '')}"
        body: Iterable[bytes] = ()
        try:
            body = self.app(environ, start_response)
            for part in body:
                begun = begun or bool(part)
                yield part
        except HoldfastError as error:
            if begun:
                cut_off(error, where)
                raise
            found = problem_of(error, self._statuses, where)
            if found is None:
                raise
            headers = [*found.headers, ("content-length", str(len(found.body)))]
            start_response(f"{found.status} {HTTPStatus(found.status).phrase}", headers, sys.exc_info())
            yield found.body
        finally:
            if hasattr(body, "close"):
                body.close()
