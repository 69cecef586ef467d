"""Requests that are carried out once for each idempotency key, on real nodes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest
from integrations.requests_ import Answer, ask, respond

import holdfast
from holdfast import ConfigError, aio
from holdfast.embedded import Nodes
from holdfast.errors import LockBusy, NoQuorum, closed
from holdfast.integrations.asgi import Errors
from holdfast.integrations.idempotency import Idempotency


@pytest.fixture
async def locks(nodes: Nodes, request: pytest.FixtureRequest) -> AsyncIterator[aio.Holdfast]:
    async with aio.Holdfast(*nodes.urls, prefix=f"{request.node.name}:", ttl=2) as client:
        yield client


class Handler:
    """An application that counts its runs. `answer` is what it does."""

    def __init__(self, answer: Any = None) -> None:
        self.runs, self.answer = 0, answer
        self.bodies: list[bytes] = []
        self.extensions: Any = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.runs += 1
        self.extensions = scope["extensions"]
        if self.answer is not None:
            await self.answer(self.runs, send, receive)
            return
        whole = b""
        while True:
            message = await receive()
            whole += message["body"]
            if not message["more_body"]:
                break
        self.bodies.append(whole)
        await respond(send, 201, b"made %d" % self.runs, location=f"/things/{self.runs}")


async def test_a_key_is_one_run_and_its_response_is_replayed(locks: aio.Holdfast) -> None:
    handler = Handler()
    app = Idempotency(handler, locks)
    first = await ask(app, body=b"the body", Idempotency_Key="k")
    again = await ask(app, body=b"the body", Idempotency_Key='"k"')
    assert (first.status, first.body, first.headers) == (201, b"made 1", {"location": "/things/1"})
    assert (again.status, again.body) == (201, b"made 1")
    assert again.headers == {"location": "/things/1", "idempotent-replayed": "true"}
    assert (handler.runs, handler.bodies, handler.extensions) == (1, [b"the body"], {})


@pytest.mark.parametrize("changed", [{"body": b"another"}, {"query": b"a=1"}, {"Content_Type": "text/csv"}], ids=["body", "query", "type"])
async def test_another_request_with_the_same_key_is_422(locks: aio.Holdfast, changed: dict[str, Any]) -> None:
    handler = Handler()
    app = Idempotency(handler, locks)
    await ask(app, body=b"the body", Idempotency_Key="k")
    assert (await ask(app, **{"body": b"the body", "Idempotency_Key": "k", **changed})).status == 422
    assert handler.runs == 1


async def test_a_handler_that_reads_nothing_has_the_fingerprint_of_the_whole_body(locks: aio.Holdfast) -> None:
    async def answer(run: int, send: Any, receive: Any) -> None:
        await respond(send, 200)

    app = Idempotency(Handler(answer), locks)
    await ask(app, body=b"a long body", Idempotency_Key="k")
    assert (await ask(app, body=b"a long body", Idempotency_Key="k")).status == 200
    assert (await ask(app, body=b"a long bodY", Idempotency_Key="k")).status == 422


@pytest.mark.parametrize(
    "other",
    [{"Idempotency_Key": "j"}, {"path": "/other"}, {"method": "PATCH"}, {"Authorization": "Bearer b"}],
    ids=["key", "path", "method", "principal"],
)
async def test_requests_that_share_no_response(locks: aio.Holdfast, other: dict[str, Any]) -> None:
    handler = Handler()
    app = Idempotency(handler, locks)
    same = {"Idempotency_Key": "k", "Authorization": "Bearer a"}
    await ask(app, **same)
    assert (await ask(app, **{**same, **other})).body == b"made 2"


async def test_principals_as_the_application_knows_them(locks: aio.Holdfast) -> None:
    app = Idempotency(Handler(), locks, who=lambda scope: "ben")
    for token in ("a", "b"):
        assert (await ask(app, Idempotency_Key="k", Authorization=token)).body == b"made 1"


async def test_requests_without_a_key(locks: aio.Holdfast) -> None:
    handler = Handler()
    app = Idempotency(handler, locks)
    for _ in range(2):
        assert (await ask(app)).status == 201
        assert (await ask(app, method="PUT", Idempotency_Key="k")).status == 201
    assert handler.runs == 4
    strict = Idempotency(handler, locks, required=True)
    assert (await ask(strict)).status == 400
    assert (await ask(strict, method="GET")).status == 201
    for bad in ("", '""', "k" * 256, "a b", "ä"):
        assert (await ask(app, Idempotency_Key=bad)).status == 400
    assert (await ask(app, Idempotency_Key="k" * 255)).status == 201


async def test_a_key_whose_request_is_in_progress_is_409(locks: aio.Holdfast) -> None:
    entered, go = asyncio.Event(), asyncio.Event()

    async def answer(run: int, send: Any, receive: Any) -> None:
        entered.set()
        await go.wait()
        await respond(send, 200, b"done")

    handler = Handler(answer)
    app = Idempotency(handler, locks)
    first = asyncio.create_task(ask(app, Idempotency_Key="k"))
    await entered.wait()
    second = await ask(app, Idempotency_Key="k")
    assert (second.status, second.headers["retry-after"]) == (409, "1")
    go.set()
    assert (await first).body == b"done"
    assert (await ask(app, Idempotency_Key="k")).body == b"done"
    assert handler.runs == 1


@pytest.mark.parametrize(
    "status, headers, kept",
    [(200, {}, True), (404, {}, True), (302, {}, True), (500, {}, False), (503, {}, False), (409, {"retry_after": "1"}, False)],
)
async def test_what_is_kept(locks: aio.Holdfast, status: int, headers: dict[str, str], kept: bool) -> None:
    async def answer(run: int, send: Any, receive: Any) -> None:
        await respond(send, status, b"run %d" % run, **headers)

    app = Idempotency(Handler(answer), locks)
    first, second = [await ask(app, Idempotency_Key="k") for _ in range(2)]
    assert (first.status, first.body, first.whole) == (status, b"run 1", True)
    assert second.body == (b"run 1" if kept else b"run 2")


@pytest.mark.parametrize("status, then", [(400, b"run 2"), (201, b"another request")])
async def test_a_request_that_was_cut_off_and_refused_is_sent_again(locks: aio.Holdfast, status: int, then: bytes) -> None:
    async def answer(run: int, send: Any, receive: Any) -> None:
        while (await receive()).get("more_body"):
            pass
        await respond(send, status, b"run %d" % run)

    app = Idempotency(Handler(answer), locks)
    await ask(app, body=b"the body", cut=True, Idempotency_Key="k")
    assert then in (await ask(app, body=b"the body and its end", Idempotency_Key="k")).body


@pytest.mark.parametrize("headers, size", [({}, 1_000_001), ({"content_type": "text/event-stream"}, 10)], ids=["large", "stream"])
async def test_what_cannot_be_kept_is_sent(
    locks: aio.Holdfast, headers: dict[str, str], size: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def answer(run: int, send: Any, receive: Any) -> None:
        await respond(send, 200, b"x" * size, more=True, **headers)
        await send({"type": "http.response.body", "body": b"end"})

    handler = Handler(answer)
    app = Idempotency(handler, locks)
    with caplog.at_level(logging.WARNING, "holdfast.web"):
        for run in (1, 2):
            found = await ask(app, Idempotency_Key="k")
            assert (len(found.body), found.whole, handler.runs) == (size + 3, True, run)
    assert "the response is not kept for its idempotency key" in caplog.text


async def test_the_largest_response_is_kept(locks: aio.Holdfast) -> None:
    async def answer(run: int, send: Any, receive: Any) -> None:
        await respond(send, 200, bytes(range(256)) * 3_900, x="ÿ" * 100)

    handler = Handler(answer)
    app = Idempotency(handler, locks)
    first, second = [await ask(app, Idempotency_Key="k") for _ in range(2)]
    assert first.body == second.body
    assert handler.runs == 1


@pytest.mark.parametrize("outside", [True, False], ids=["Errors outside", "Errors inside"])
async def test_a_busy_lock_in_the_handler_is_not_kept(locks: aio.Holdfast, outside: bool) -> None:
    async def answer(run: int, send: Any, receive: Any) -> None:
        if run == 1:
            raise LockBusy("inner", 0.0, None, 3.0)
        await respond(send, 200, b"done")

    handler = Handler(answer)
    app: Any = Errors(Idempotency(handler, locks)) if outside else Idempotency(Errors(handler), locks)
    first = await ask(app, Idempotency_Key="k")
    assert (first.status, first.headers["retry-after"]) == (409, "3")
    assert b"about:holdfast/busy" in first.body
    assert (await ask(app, Idempotency_Key="k")).body == b"done"


async def test_what_a_handler_raises_goes_on_after_what_it_has_sent(locks: aio.Holdfast) -> None:
    async def answer(run: int, send: Any, receive: Any) -> None:
        if run == 1:
            await respond(send, 500, b"sorry")
            raise KeyError("x")
        await respond(send, 200, b"done")

    app, first = Idempotency(Handler(answer), locks), Answer()
    with pytest.raises(KeyError):
        await ask(app, into=first, Idempotency_Key="k")
    assert (first.status, first.body) == (500, b"sorry")
    assert (await ask(app, Idempotency_Key="k")).body == b"done"


@pytest.mark.parametrize("error", [KeyError("no mail server"), closed()], ids=["KeyError", "closed"])
async def test_a_background_task_that_fails_does_not_undo_the_request(locks: aio.Holdfast, error: Exception) -> None:
    """Frameworks run background tasks after the response, in the same call."""

    async def answer(run: int, send: Any, receive: Any) -> None:
        await respond(send, 200, b"paid")
        raise error

    handler, first = Handler(answer), Answer()
    app = Idempotency(handler, locks)
    with pytest.raises(type(error)) as caught:
        await ask(app, into=first, Idempotency_Key="k")
    assert caught.value is error
    again = await ask(app, Idempotency_Key="k")
    assert (first.body, again.body, handler.runs) == (b"paid", b"paid", 1)
    assert "idempotent-replayed" in again.headers


async def test_the_names_of_methods(locks: aio.Holdfast) -> None:
    handler = Handler()
    app = Idempotency(handler, locks, methods=["put"])
    for _ in range(2):
        await ask(app, method="PUT", Idempotency_Key="k")
    assert handler.runs == 1
    with pytest.raises(ConfigError, match=r"methods is a collection of methods, such as \('POST',\), not the text 'POST'"):
        Idempotency(handler, locks, methods="POST")


async def test_a_handler_that_loses_its_lease_is_503_and_may_run_again() -> None:
    """The nodes are frozen while it runs: its lease ends, and its response is not sent."""
    with Nodes(3) as few:
        async with aio.Holdfast(*few.urls, ttl=0.5, max_ttl=1, node_timeout=0.2) as client:

            async def answer(run: int, send: Any, receive: Any) -> None:
                if run == 1:
                    for node in (0, 1):
                        few.freeze(node)
                    await asyncio.sleep(5)
                await respond(send, 200, b"run %d" % run)

            app = Idempotency(Handler(answer), client)
            lost = await ask(app, Idempotency_Key="k")
            assert lost.status == 503
            assert b"about:holdfast/lost" in lost.body
            assert "retry-after" not in lost.headers
            # Nobody answers: nothing is done, and the client may come back.
            away = await ask(app, Idempotency_Key="other")
            assert (away.status, b"about:holdfast/unavailable" in away.body) == (503, True)
            assert int(away.headers["retry-after"]) >= 1
            for node in (0, 1):
                few.thaw(node)
            await client.ready()
            assert (await ask(app, Idempotency_Key="k")).body == b"run 2"


async def test_a_response_that_nobody_knows_to_be_kept_is_no_invitation(locks: aio.Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    handler = Handler()
    app = Idempotency(handler, locks)
    sound = aio.Once.run

    async def run(self: Any, function: Any) -> Any:
        await sound(self, function)
        raise NoQuorum("k", 1.0, {}, 2)

    monkeypatch.setattr(aio.Once, "run", run)
    answer = await ask(app, Idempotency_Key="k")
    assert (answer.status, handler.runs) == (503, 1)
    assert "retry-after" not in answer.headers


async def test_a_client_for_threads_is_refused(nodes: Nodes) -> None:
    with pytest.raises(ConfigError, match="needs a client for asyncio"):
        Idempotency(Handler(), holdfast.Holdfast(*nodes.urls))  # type: ignore[arg-type]  # (the mistake)
    with pytest.raises(ConfigError, match="keep"):
        Idempotency(Handler(), aio.Holdfast(*nodes.urls), keep=0)
