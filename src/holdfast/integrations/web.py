"""What web frameworks answer to requests that holdfast's errors have ended.

Knows statuses, headers and problem documents (RFC 9457). Must not know frameworks.

A response has nothing that a stranger must not know: no holder, no address of a node, no cause. All
of it goes to the log.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any

from .. import errors
from ..fencing.http import status_of
from ..kit import fill
from .calls import example

__all__ = ["Counting", "ProblemResponse", "Statuses", "problem"]

LOGGER = "holdfast.web"
LONGEST_WAIT = 60.0  # seconds that a client is asked to wait for a lock


@dataclass(frozen=True, slots=True)
class ProblemResponse:
    """A response that says what went wrong, as RFC 9457 describes it.

    Attributes:
        status: The HTTP status.
        headers: Names and values. The content type is one of them.
        body: JSON, in UTF-8.
    """

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Statuses:
    """How errors become responses.

    Attributes:
        busy: The status for a busy lock: 409 (the default) or 423.
        names: Whether responses contain the lock's name (default: False). Names may contain what
            your users must not see.
        outage: Seconds after which clients should come back if most nodes are unreachable
            (default: 10).
    """

    busy: int = 409
    names: bool = False
    outage: float = 10.0

    def __post_init__(self) -> None:
        if self.busy not in (409, 423):
            raise errors.ConfigError(f"busy is the status for a busy lock, 409 or 423, not {self.busy!r}")

    def answer(self, error: errors.HoldfastError, where: str) -> ProblemResponse:
        """Choose the response for an error, and log what the response leaves out.

        Args:
            error: What ended the request.
            where: The request's method and path, for the log.

        Returns:
            The response.

        Raises:
            HoldfastError: The same error, if it is a mistake in the program, which no client can
                mend.
        """
        name = getattr(error, "name", None) if self.names else None
        level = logging.WARNING
        match error:
            case errors.LockBusy():
                # Load is no trouble, so a busy lock and a rate limit make no noise in the log.
                level = logging.DEBUG
                left = min(LONGEST_WAIT, error.ttl_left or 1.0)
                found = problem(self.busy, "busy", "Another request is at work on this.", _after(left), lock=name)
            case errors.RateLimited():
                level = logging.DEBUG
                limits = rate_headers([(error.limit, error.period)], 0, error.retry_after)
                title, after = "Too many requests.", _after(error.retry_after)
                found = problem(429, "rate-limited", title, after, *limits, lock=name)
            case errors.NoQuorum() | errors.Misuse(reason="closed"):
                title = "The lock service is not available. Nothing was done."
                found = problem(503, "unavailable", title, _after(self.outage), lock=name)
            case errors.StaleFence() | errors.BadFence():
                title = "A later holder has written, or the fence is missing."
                found = problem(status_of(error), "fence", title, lock=name)
            case errors.ConfigError(reason="bad_name"):
                # A value of the request, such as an id of 600 bytes, makes a name that cannot be.
                found = problem(422, "name", "A value of the request cannot be part of a lock's name.")
            case errors.LockLost():
                level = logging.ERROR
                # No Retry-After: the work may be done in part, and nobody should repeat it unasked.
                title = "The lock was lost during the request. It may be done in part."
                found = problem(503, "lost", title, lock=name)
            case _:
                raise error
        told = "%s: the request was answered with status %d: %s"
        logging.getLogger(LOGGER).log(level, told, where, found.status, errors.message_of(error))
        return found


class Answering:
    """What the middleware `Errors` of ASGI and of WSGI share: the application, and the statuses."""

    def __init__(self, app: Any, *, busy: int = 409, names: bool = False, outage: float = 10.0) -> None:
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
        self.app = app
        self._statuses = Statuses(busy=busy, names=names, outage=outage)

    def _answer(self, error: errors.HoldfastError, where: str, begun: bool) -> ProblemResponse:
        """Choose the response for an error, or let the error go on if the response has begun."""
        if not begun:
            return self._statuses.answer(error, where)
        told = "%s: the response had begun, and is cut off: %s"
        logging.getLogger(LOGGER).error(told, where, errors.message_of(error))
        raise error


def problem(status: int, kind: str, title: str, *headers: tuple[str, str], lock: str | None = None) -> ProblemResponse:
    """Make a problem document.

    Args:
        status: The HTTP status.
        kind: The last part of its type, such as "busy". The type is "about:holdfast/busy".
        title: What happened, for people.
        headers: More headers, as pairs of name and value.
        lock: The lock's name, if the response may contain it (default: None).

    Returns:
        The response.
    """
    said: dict[str, object] = {"type": f"about:holdfast/{kind}", "title": title, "status": status}
    if lock is not None:
        said["lock"] = lock
    return ProblemResponse(status, (("content-type", "application/problem+json"), *headers), json.dumps(said).encode())


def rate_headers(limits: Sequence[tuple[int, float]], remaining: int, reset: float) -> tuple[tuple[str, str], ...]:
    """Write the headers `RateLimit` and `RateLimit-Policy` of the IETF's draft.

    One limit is called "default". Several are called by their seconds, and what remains of all of
    them is that of "all".
    """
    one = len(limits) == 1
    policy = [f'"{"default" if one else ceil(w)}";q={q};w={ceil(w)}' for q, w in limits]
    name = "default" if one else "all"
    return ("ratelimit", f'"{name}";r={remaining};t={ceil(reset)}'), ("ratelimit-policy", ", ".join(policy))


class Counting:
    """What requests are counted for.

    Args:
        name: A template over what the URL captures, or a function of the request.
        limit: As for `rate`, and so for `period`.
        period: Seconds.
        key: Which requests share the limits, as `name`. None: all do.
        options: Those of `rate`. `wait` is 0 unless it is among them.

    Raises:
        ConfigError: An option cannot work.
    """

    def __init__(self, name: Any, limit: Any, period: Any, key: Any, options: Any) -> None:
        self._name, self._key, self._options = name, key, {"wait": 0, **options}
        self._limits = (limit, period)
        self._policy = example().rate("any", limit, period, **self._options).limits

    def rate(self, locks: Any, fill: Callable[[Any], str]) -> Any:
        """Return the rate that a request counts for.

        Args:
            locks: A client.
            fill: From a template, or a function, to the name that this request means.
        """
        key = None if self._key is None else fill(self._key)
        return locks.rate(fill(self._name), *self._limits, key=key, **self._options)

    def tell(self, allowance: Any, response: Any) -> Any:
        """Add to the headers of a response. Nothing is known if too few nodes have answered."""
        if allowance.cause is None:
            for name, value in rate_headers(self._policy, allowance.remaining, allowance.reset_after):
                response.headers[name] = value
        return response


def filled(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """Fill a template from what a request's URL captures.

    Args:
        name: The template.
        args: What is captured without a name.
        kwargs: What is captured by a name.

    Returns:
        The name of a lock.

    Raises:
        ConfigError: The URL does not capture what the template needs, or captures a value that
            another process would write differently.
    """
    return fill(name, args, kwargs, f"the URL, which captures {', '.join(kwargs) or 'nothing'}")


def _after(seconds: float) -> tuple[str, str]:
    return "retry-after", str(max(1, ceil(seconds)))
