"""Flask: a client from the application's settings, statuses for errors, and decorators for views
that are written before there is an application.

Knows Flask. What other WSGI applications need too is in `wsgi`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial, wraps
from typing import Any, Unpack

import click
from flask import Flask, Response, after_this_request, current_app, request

from .. import Holdfast
from ..checks import Seconds
from ..config import Clients
from ..errors import ConfigError, HoldfastError
from ..kit import noted, unlocked, written
from ..typing import Options, RateOptions
from .calls import example
from .web import Counting, Statuses, filled

__all__ = ["Locks"]

Named = str | Callable[[Any], str]


class Locks:
    """The extension: `ext = Locks()`, and then `ext.init_app(app)`.

    The client is made at its first use, from the settings `HOLDFAST_NODES`, `HOLDFAST_TTL` and so
    on in `app.config`, and from the environment. `app.extensions["holdfast"]` has the clients.
    """

    def __init__(self, app: Flask | None = None, *, busy: int = 409, names: bool = False) -> None:
        """Make the extension.

        Args:
            app: An application (default: call `init_app`).
            busy: The status for a busy lock, 409 (the default) or 423.
            names: Whether responses contain the lock's name (default: False).

        Raises:
            ConfigError: `busy` is another status.
        """
        self._statuses = Statuses(busy=busy, names=names)
        if app is not None:
            self.init_app(app)

    def init_app(self, app: Flask) -> None:
        """Connect an application with a client, and turn holdfast's errors into responses.

        The application also gets the command `flask holdfast`.

        Args:
            app: The application.
        """
        app.extensions["holdfast"] = Clients(lambda: app.config, "HOLDFAST_", "app.config")
        app.register_error_handler(HoldfastError, self._answer)
        app.before_request(self._check)
        # The command reads its words itself.
        words = click.Argument(["words"], nargs=-1, type=click.UNPROCESSED)
        told = "Show who holds a lock, which locks are held and how the nodes are."
        given = {"ignore_unknown_options": True, "help_option_names": []}
        app.cli.command("holdfast", help=told, params=[words], context_settings=given)(self._command)

    @property
    def locks(self) -> Holdfast:
        """The client of the current application.

        Raises:
            ConfigError: The application was not connected, or a setting cannot work.
            RuntimeError: There is no current application.
        """
        found = current_app.extensions.get("holdfast")
        if not isinstance(found, Clients):
            raise ConfigError(f"the Flask application {current_app.name!r} has no client: call init_app(app)")
        return found.locks

    def locked(self, name: str, **options: Unpack[Options]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Decorate a view, below the route, so that it holds a lock of the current application.

        Args:
            name: A template over the view's parameters, such as "order:{id}".
            options: Those of `lock`.

        Returns:
            A decorator.

        Raises:
            ConfigError: An option cannot work, or the template has a field that is no parameter. If
                the decorator is above the route, each request for the view raises it.
        """

        def decorate(view: Callable[..., Any]) -> Callable[..., Any]:
            @wraps(example().locked(name, **options)(view))
            def run(*args: Any, **kwargs: Any) -> Any:
                return self.locks.locked(name, **options)(view)(*args, **kwargs)

            return run

        return decorate

    def limited(
        self,
        name: Named,
        limit: int | Sequence[tuple[int, Seconds]],
        period: Seconds | None = None,
        *,
        key: Named | None = None,
        **options: Unpack[RateOptions],
    ) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Decorate a view, below the route, so that requests above a rate get 429.

        The response has the headers `RateLimit` and `RateLimit-Policy`, and a refusal
        `Retry-After`.

        Args:
            name: A template over the view's parameters, or a function of the request.
            limit: How many requests are allowed in a period; or several pairs of requests and
                seconds.
            period: Seconds. Leave it out if `limit` is a list of pairs.
            key: Each key has a limit of its own: a template, or a function of the request. Default:
                all requests share the limit.
            options: Those of `rate`, such as `burst` and `fail_open`. `wait` is 0 unless you set
                it.

        Returns:
            A decorator.

        Raises:
            ConfigError: An option cannot work.
        """
        counting = Counting(name, limit, period, key, options)

        def fill(name: Named) -> str:
            return written(name(request), name) if callable(name) else filled(name, (), request.view_args or {})

        def decorate(view: Callable[..., Any]) -> Callable[..., Any]:
            @wraps(view)
            def run(*args: Any, **kwargs: Any) -> Any:
                after_this_request(partial(counting.tell, counting.rate(self.locks, fill).acquire()))
                return view(*args, **kwargs)

            made: Callable[..., Any] = noted(run, view, "rate")
            return made

        return decorate

    def _check(self) -> None:
        """Refuse a view that was registered before it was locked, so that its lock is not taken."""
        found = unlocked((f"the view {name!r}", it) for name, it in current_app.view_functions.items())
        if told := found.get(f"the view {request.endpoint!r}"):
            raise ConfigError(told)

    def _command(self, words: tuple[str, ...]) -> None:
        # Servers of requests do without it.
        from ..cli import main

        sys.exit(main(words, lambda: self.locks))

    def _answer(self, error: HoldfastError) -> Response:
        found = self._statuses.answer(error, f"{request.method} {request.path}")
        return Response(found.body, found.status, list(found.headers))
