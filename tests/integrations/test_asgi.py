"""The ASGI middleware for errors, lifespans and health, on real nodes."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
from integrations.requests_ import Answer, ask, respond
from proof.misuse import misuse

import holdfast
from holdfast import ConfigError, aio
from holdfast.embedded import Nodes
from holdfast.errors import LockLost, Misuse, NoQuorum
from holdfast.integrations.asgi import Errors, health, lifespan


@pytest.fixture
async def locks(nodes: Nodes) -> AsyncIterator[aio.Holdfast]:
    async with aio.Holdfast(*nodes.urls, prefix="asgi:", ttl=2) as client:
        yield client


def raising(error: Exception) -> Any:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        raise error

    return app


async def test_a_busy_lock_is_409(locks: aio.Holdfast) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        async with locks.lock("a", wait=0):
            await respond(send, 204)

    wrapped = Errors(app)
    assert (await ask(wrapped)).status == 204
    other = aio.Holdfast(*locks.urls, prefix="asgi:", ttl=2)
    async with other, other.lock("a"):
        answer = await ask(wrapped)
        assert (answer.status, answer.whole) == (409, True)
        assert 1 <= int(answer.headers["retry-after"]) <= 2
        assert int(answer.headers["content-length"]) == len(answer.body)
    assert (await ask(wrapped)).status == 204


@pytest.mark.parametrize("more", [True, False])
async def test_after_the_response_has_begun_the_error_goes_on(caplog: pytest.LogCaptureFixture, more: bool) -> None:
    """A whole response is not cut off by what a background task raises."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await respond(send, 200, b"half", more=more)
        raise LockLost("a", "expired", 7)

    answer = Answer()
    with caplog.at_level(logging.ERROR, "holdfast.web"), pytest.raises(LockLost):
        await ask(Errors(app), into=answer)
    assert (answer.status, answer.body, answer.whole) == (200, b"half", not more)
    assert ("the response had begun, and is cut off" in caplog.text) is more


@pytest.mark.parametrize("more", [False, True])
async def test_an_application_that_answers_500_and_raises_gets_the_status_of_the_error(more: bool) -> None:
    """As Starlette's do. What has been sent stays: here, the first part of a page."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await respond(send, 500, b"sorry", more=more)
        raise errors[0]

    errors: list[Exception] = [ConfigError("a[once]", "bad_name"), KeyError("other")]
    answer = Answer()
    with suppress(ConfigError):
        await ask(Errors(app), into=answer)
    assert (answer.status, answer.body == b"sorry") == ((500, True) if more else (422, False))
    del errors[0]
    answer = Answer()
    with pytest.raises(KeyError):
        await ask(Errors(app), into=answer)
    assert (answer.status, answer.body) == (500, b"sorry")


@pytest.mark.parametrize(
    "error, sent, code",
    [
        (LockLost("a", "expired", 7), [], 1011),
        (LockLost("a", "expired", 7), ["websocket.accept", "websocket.send"], 1011),
        (ConfigError("a[once]", "bad_name"), [], 1008),
        (NoQuorum("a", 1.0, {}, 2), [], 1013),
    ],
)
async def test_a_websocket_is_closed_with_a_code(error: Exception, sent: list[str], code: int) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        for kind in sent:
            await send({"type": kind})
        raise error

    seen: list[Any] = []

    async def send(message: Any) -> None:
        seen.append(message)

    await Errors(app)({"type": "websocket", "path": "/"}, None, send)  # type: ignore[arg-type]  # (nothing is received)
    assert [it["type"] for it in seen] == ["websocket.accept", *sent[1:], "websocket.close"]
    assert (seen[-1]["code"], "a[once]" in seen[-1]["reason"]) == (code, False)

    async def gone(message: Any) -> None:
        raise OSError("the client has gone")

    await Errors(raising(error))({"type": "websocket", "path": "/"}, None, gone)  # type: ignore[arg-type]  # (as above)


async def test_mistakes_and_other_errors_go_on() -> None:
    for error in (Misuse("not held", "not_held"), ConfigError("wrong"), KeyError("other")):
        with pytest.raises(type(error)):
            await ask(Errors(raising(error)))


async def test_what_is_no_request_passes() -> None:
    seen = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append(scope["type"])

    await Errors(app)({"type": "lifespan"}, None, None)  # type: ignore[arg-type]  # (neither is called)
    assert seen == ["lifespan"]


async def test_a_lifespan_can_be_entered_many_times(nodes: Nodes) -> None:
    client, threads = aio.Holdfast(*nodes.urls, prefix="life:"), holdfast.Holdfast(*nodes.urls, prefix="life:")
    order = []

    @asynccontextmanager
    async def inner(app: Any) -> AsyncIterator[dict[str, int]]:
        order.append("in")
        async with client.lock("inner", wait=5):
            yield {"state": 1}
        order.append("out")

    span = lifespan(client, threads, ready=5, inner=inner)
    for _ in range(20):
        async with span(None) as state:
            assert state == {"state": 1}
            async with client.lock("a", wait=5):
                pass
            with threads.lock("b", wait=5):
                pass
        with misuse("closed"):
            threads.lock("b").acquire()
    assert order == ["in", "out"] * 20


@pytest.mark.parametrize("kind", [aio.Holdfast, holdfast.Holdfast])
async def test_a_client_without_nodes_is_refused_when_the_application_starts(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOLDFAST_NODES", raising=False)
    began = []

    @asynccontextmanager
    async def inner(app: Any) -> AsyncIterator[None]:
        began.append(app)
        yield

    with pytest.raises(holdfast.ConfigError, match="no nodes"):
        async with lifespan(kind(), inner=inner)(None):
            pass
    assert began == []


async def test_of_several_processes_one_seeds(nodes: Nodes) -> None:
    clients = [aio.Holdfast(*nodes.urls, prefix="seed:") for _ in range(3)]
    ran = []

    async def seed() -> None:
        ran.append(1)

    for client in clients:
        async with lifespan(client, once={"seed@1": seed})(None):
            pass
    assert ran == [1]
    threads = holdfast.Holdfast(*nodes.urls, prefix="seed:")
    async with lifespan(threads, once={"seed@2": lambda: ran.append(2)})(None):
        pass
    assert ran == [1, 2]
    with pytest.raises(ConfigError, match="once= needs a client"):
        lifespan(once={"seed": seed})


async def test_health_shows_states_and_no_addresses(locks: aio.Holdfast, nodes: Nodes) -> None:
    await locks.ready()
    for client in (locks, holdfast.Holdfast(*nodes.urls)):
        answer = await ask(health(client, deep=True), method="GET")
        assert answer.status == 200
        assert json.loads(answer.body) == {"status": "pass", "nodes": ["up"] * 5}
        if isinstance(client, holdfast.Holdfast):
            client.close()
            assert (await ask(health(client))).status == 200
            assert (await ask(health(client, deep=True))).status == 503
    closed = aio.Holdfast("redis://nowhere")
    await closed.close()
    assert json.loads((await ask(health(closed))).body) == {"status": "pass", "nodes": []}


async def test_health_without_a_majority() -> None:
    with Nodes(3) as few:
        async with aio.Holdfast(*few.urls, node_timeout=0.3) as client:
            await client.ready()
            few.kill(0)
            few.kill(1)
            assert (await ask(health(client))).status == 200
            answer = await ask(health(client, deep=True, wait=0.5))
            assert answer.status == 503
            assert json.loads(answer.body)["status"] == "fail"
