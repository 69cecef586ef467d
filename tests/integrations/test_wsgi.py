"""Statuses in any WSGI application, without a server."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from holdfast import LockBusy, LockLost, Misuse
from holdfast.errors import ConfigError, HoldfastError
from holdfast.integrations.wsgi import Errors

BUSY = LockBusy("secret", 0.0, None, 7.0)


def ask(app: Callable[..., Iterable[bytes]], method: str = "GET") -> tuple[str, dict[str, str], bytes]:
    """Send one request."""
    answered: list[Any] = []

    def start_response(status: str, headers: list[tuple[str, str]], info: Any = None) -> None:
        assert not answered or info, "only an error replaces a response"
        answered[:] = [status, dict(headers)]

    body = b"".join(Errors(app)({"REQUEST_METHOD": method, "PATH_INFO": "/a"}, start_response))
    return answered[0], answered[1], body


def test_a_response_passes(caplog: pytest.LogCaptureFixture) -> None:
    def app(environ: Any, start_response: Any) -> Iterable[bytes]:
        start_response("200 OK", [("x", "y")])
        return [b"a", b"b"]

    assert ask(app) == ("200 OK", {"x": "y"}, b"ab")
    assert not caplog.records


@pytest.mark.parametrize("late", [False, True])
def test_a_busy_lock_is_409(late: bool) -> None:
    """Also where the application is a generator, or has announced another status."""

    def function(environ: Any, start_response: Any) -> Iterable[bytes]:
        raise BUSY

    def generator(environ: Any, start_response: Any) -> Iterable[bytes]:
        start_response("200 OK", [])
        yield b""
        raise BUSY

    status, headers, body = ask(generator if late else function)
    assert (status, headers["retry-after"], headers["content-length"]) == ("409 Conflict", "7", str(len(body)))
    assert headers["content-type"] == "application/problem+json"
    assert b"secret" not in body


def test_a_response_to_head_has_no_body() -> None:
    def app(environ: Any, start_response: Any) -> Iterable[bytes]:
        raise BUSY

    whole, head = ask(app), ask(app, "HEAD")
    assert head == (*whole[:2], b"")


def test_what_has_begun_is_cut_off(caplog: pytest.LogCaptureFixture) -> None:
    def app(environ: Any, start_response: Any) -> Iterable[bytes]:
        start_response("200 OK", [])
        yield b"begun"
        raise LockLost("secret", "expired", 7, "it has run out")

    with caplog.at_level(logging.ERROR), pytest.raises(LockLost):
        ask(app)
    assert "GET /a: the response had begun, and is cut off" in caplog.text


@pytest.mark.parametrize("error", [Misuse("a mistake"), ConfigError("a mistake")])
def test_mistakes_go_on(error: HoldfastError) -> None:
    def app(environ: Any, start_response: Any) -> Iterable[bytes]:
        raise error

    with pytest.raises(type(error)):
        ask(app)


def test_the_body_is_closed() -> None:
    closed = []

    class Body:
        def __iter__(self) -> Any:
            return iter([b"a"])

        def close(self) -> None:
            closed.append(1)

    def app(environ: Any, start_response: Any) -> Iterable[bytes]:
        start_response("200 OK", [])
        return Body()

    assert ask(app)[2] == b"a"
    assert closed == [1]
