"""FastAPI in one process: statuses, dependencies, the schema, and lifespans."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import time
import warnings
from typing import Annotated, Any
from urllib.parse import quote

import pytest
from fastapi import APIRouter, Depends, FastAPI, Path, Request, WebSocket, WebSocketDisconnect
from fastapi.responses import JSONResponse, PlainTextResponse

import holdfast
from holdfast import ConfigError, aio
from holdfast.embedded import Nodes
from holdfast.integrations import fastapi as guest
from holdfast.integrations.fastapi import Limited, Locked, install

with warnings.catch_warnings():
    # Starlette prefers an HTTP client that is not installed here.
    warnings.simplefilter("ignore")
    from fastapi.testclient import TestClient


@pytest.fixture
def locks(nodes: Nodes, request: pytest.FixtureRequest) -> aio.Holdfast:
    return aio.Holdfast(*nodes.urls, prefix=f"{request.node.name}:", ttl=2)


@pytest.fixture
def other(locks: aio.Holdfast) -> Any:
    with holdfast.Holdfast(*locks.urls, prefix=locks.settings.prefix, ttl=2) as client:
        yield client


def shop(locks: aio.Holdfast) -> FastAPI:
    app = FastAPI()
    install(app, locks, names=True)

    @app.post("/orders/{number}/pay")
    @locks.locked("order:{number}", wait=0)
    async def pay(number: int, cents: int) -> dict[str, int]:
        return {"paid": cents}

    @app.get("/orders/{number}")
    async def look(number: int, lease: Annotated[aio.Lease, Locked("order:{number}", wait=0)]) -> dict[str, Any]:
        return {"fence": lease.fence, "held": lease.held}

    @app.get("/limited/{user}")
    async def limited(user: str, allowance: Annotated[Any, Limited("api", 2, 60, key="{user}")]) -> dict[str, int]:
        return {"left": allowance.remaining}

    @app.get("/lost/endpoint")
    @locks.locked("lost", max_hold=0.2)
    async def lost_endpoint() -> None:
        await asyncio.sleep(5)

    @app.get("/lost/dependency")
    async def lost_dependency(lease: Annotated[aio.Lease, Locked("lost", max_hold=0.2)]) -> None:
        await asyncio.sleep(0.6)

    @app.get("/wrong")
    async def wrong(lease: Annotated[Any, Locked("order:{number}")]) -> None: ...

    return app


def test_the_function_keeps_its_signature_and_a_busy_lock_is_409(locks: aio.Holdfast, other: holdfast.Holdfast) -> None:
    with TestClient(shop(locks)) as client:
        assert client.post("/orders/7/pay?cents=3").json() == {"paid": 3}
        assert client.post("/orders/7/pay").status_code == 422
        with other.lock("order:7"):
            for answer in (client.post("/orders/7/pay?cents=3"), client.get("/orders/7")):
                assert answer.status_code == 409
                assert answer.json()["lock"] == "order:7"
        assert client.get("/orders/7").json()["held"] is True
        assert not other.is_locked("order:7")


@pytest.mark.parametrize("where", ["endpoint", "dependency"])
def test_losing_the_lock_is_503(locks: aio.Holdfast, where: str) -> None:
    with TestClient(shop(locks)) as client:
        began = time.monotonic()
        answer = client.get(f"/lost/{where}")
        assert (answer.status_code, answer.json()["type"], "retry-after" in answer.headers) == (503, "about:holdfast/lost", False)
        # The decorator cancels it.
        assert time.monotonic() - began < 4


def twice(account: int) -> int:
    """A dependency that has the parameter."""
    return 2 * account


Held = Annotated[aio.Lease, Locked("a:{account}")]


def typed(locks: aio.Holdfast) -> FastAPI:
    """Routes whose parameters have types, and which answer with their lock's name."""
    app = FastAPI()
    install(app, locks)
    router = APIRouter(prefix="/prefix/{account}")

    @app.get("/int/{account}")
    @router.get("/int")
    async def number(account: int, lease: Held) -> str:
        return lease.name

    @app.get("/renamed/{account}")
    async def renamed(number: Annotated[int, Path(alias="account")], lease: Held) -> str:
        return lease.name

    @app.get("/dependency/{account}")
    async def dependency(number: Annotated[int, Depends(twice)], lease: Held) -> str:
        return lease.name

    @app.get("/both/{account}")
    async def both(account: str, number: Annotated[int, Depends(twice)], lease: Held) -> str:
        return lease.name

    @app.get("/limited/{account}")
    async def limited(account: int, allowance: Annotated[Any, Limited("api", 2, 60, key="{account}")]) -> int:
        return allowance.remaining

    @app.websocket("/socket/{account}")
    async def socket(socket: WebSocket, account: int, lease: Held) -> None:
        await socket.accept()
        await socket.send_text(lease.name)
        await socket.close()

    @app.websocket("/busy/{account}")
    async def busy(socket: WebSocket, account: int, lease: Annotated[aio.Lease, Locked("a:{account}", wait=0)]) -> None: ...

    @router.websocket("/socket")
    async def included(socket: WebSocket, account: int, lease: Held) -> None:
        await socket.accept()
        await socket.send_text(lease.name)
        await socket.close()

    app.include_router(router)
    outer = APIRouter(prefix="/outer")
    outer.include_router(router)
    app.include_router(outer)
    return app


@pytest.mark.parametrize(
    "path, name",
    [
        ("int/07", "7"),
        ("prefix/007/int", "7"),
        ("outer/prefix/007/int", "7"),
        ("renamed/07", "7"),
        ("dependency/07", "7"),
        ("both/07", "07"),
    ],
)
def test_a_template_is_filled_from_the_values_that_the_endpoint_gets(locks: aio.Holdfast, path: str, name: str) -> None:
    with TestClient(typed(locks)) as client:
        assert client.get(path).json() == f"a:{name}"


def test_limits_and_wrong_values_of_typed_parameters(locks: aio.Holdfast) -> None:
    with TestClient(typed(locks)) as client:
        assert [client.get(f"/limited/{it}").json() for it in ("7", "07")] == [1, 0]
        assert client.get("/int/seven").status_code == 422


def test_a_websocket_holds_a_lock(locks: aio.Holdfast, other: holdfast.Holdfast) -> None:
    with TestClient(typed(locks)) as client:
        for path in ("/socket/07", "/prefix/07/socket"):
            with client.websocket_connect(path) as socket:
                assert socket.receive_text() == "a:7"
        assert not other.is_locked("a:7")
        with other.lock("a:7"):
            assert code_of(client, "/busy/07") == 1013
        assert code_of(client, "/socket/%5Bonce%5D") == 1008


def code_of(client: Any, path: str) -> int:
    """The code with which a websocket is closed, after it was accepted."""
    with pytest.raises(WebSocketDisconnect) as closed, client.websocket_connect(path) as socket:
        socket.receive_text()
    return closed.value.code


IMPOSSIBLE = ["x" * 600, "a[once]", "a[slot 1]", "x}"]


@pytest.mark.parametrize("user", IMPOSSIBLE, ids=["long", "once", "slot", "brace"])
def test_a_value_that_makes_an_impossible_name_is_the_clients_mistake(locks: aio.Holdfast, user: str) -> None:
    app = FastAPI()
    install(app, locks)

    @app.get("/locked/{user}")
    async def locked(user: str, lease: Annotated[Any, Locked("a:{user}")]) -> None: ...

    @app.get("/limited/{user}", dependencies=[Limited("api", 2, 60, key="{user}{user}{user}")])
    async def limited(user: str) -> None:
        async with locks.lock(user):
            pass

    @app.get("/program")
    async def program() -> None:
        locks.lock("a", ttl=-1)

    with TestClient(app, raise_server_exceptions=False) as client:
        for path in ("locked", "limited"):
            answer = client.get(f"/{path}/{quote(user)}")
            assert (answer.status_code, answer.json()["type"]) == (422, "about:holdfast/name"), path
        assert client.get("/program").status_code == 500


@pytest.mark.parametrize("way", ["app", "router", "mounted"])
@pytest.mark.parametrize("started", [True, False])
def test_a_decorator_above_the_route_is_refused(locks: aio.Holdfast, way: str, started: bool) -> None:
    """FastAPI has registered the function that is below, which would run without its lock."""
    app, inner, router = FastAPI(), FastAPI(), APIRouter()
    install(app, locks)
    ran = []

    def register(place: Any) -> None:
        @locks.locked("a")
        @place
        async def run() -> None:
            ran.append(1)

    register({"app": app.get("/run/a"), "router": router.get("/a"), "mounted": inner.get("/a")}[way])

    @app.get("/right")
    @locks.locked("a")
    async def right() -> None: ...

    app.include_router(router, prefix="/run")
    app.mount("/run", inner)
    client = TestClient(app)
    with pytest.raises(ConfigError, match=r"route \S*/a "):
        client.__enter__() if started else client.get("/right")
    assert ran == []


def test_an_application_that_is_mounted_has_the_client_and_the_statuses(locks: aio.Holdfast, other: holdfast.Holdfast) -> None:
    app, inner, innermost = FastAPI(), FastAPI(debug=True), FastAPI()
    install(app, locks)

    @inner.get("/held")
    @innermost.get("/held")
    async def held(lease: Annotated[Any, Locked("a", wait=0)]) -> str:
        return lease.name

    @innermost.get("/wrong")
    async def wrong() -> None:
        raise ConfigError("the program's")

    @innermost.get("/own")
    async def own() -> Any:
        return JSONResponse("its own", 500)

    inner.mount("/most", innermost)
    app.mount("/in", inner)
    with TestClient(app, raise_server_exceptions=False) as client:
        for path in ("/in/held", "/in/most/held"):
            assert client.get(path).json() == "a"
            with other.lock("a"):
                assert (client.get(path).status_code, client.get(path).json()["status"]) == (409, 409)
        assert [client.get(f"/in/most/{it}").text for it in ("wrong", "own")] == ["Internal Server Error", '"its own"']


def test_the_lock_of_a_dependency_is_released_before_the_response_is_sent(locks: aio.Holdfast, other: holdfast.Holdfast) -> None:
    """With FastAPI's own default, the lock would be held while a slow client receives the response."""
    app, held = FastAPI(), []

    class Watching:
        def __init__(self, app: Any) -> None:
            self.app = app

        async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
            async def sending(message: Any) -> None:
                held.append(await locks.is_locked("order:7"))
                await send(message)

            await self.app(scope, receive, sending if scope["type"] == "http" else send)

    install(app, locks)
    app.add_middleware(Watching)
    dependency: Any = Locked("order:7")
    kept_longer = Depends(dependency.dependency, scope="request")

    @app.get("/ours")
    async def ours(lease: Any = dependency) -> None: ...

    @app.get("/longer")
    async def longer(lease: Any = kept_longer) -> None: ...

    with TestClient(app) as client:
        client.get("/ours")
        assert not any(held)
        held.clear()
        client.get("/longer")
        assert any(held), "the test can see a lock that is held for too long"


def test_rates_have_headers(locks: aio.Holdfast) -> None:
    with TestClient(shop(locks)) as client:
        left = [client.get("/limited/ben") for _ in range(3)]
        assert [it.status_code for it in left] == [200, 200, 429]
        assert [it.headers["ratelimit-policy"] for it in left] == ['"default";q=2;w=60'] * 3
        assert left[0].headers["ratelimit"].startswith('"default";r=1;t=')
        assert 1 <= int(left[2].headers["retry-after"]) <= 30
        assert client.get("/limited/ann").status_code == 200


def test_a_rate_without_a_majority_counts_nothing_if_you_say_so() -> None:
    locks = aio.Holdfast("redis://127.0.0.1:1", ttl=1, node_timeout=0.2)
    app = FastAPI()
    install(app, locks)
    app.get("/open", dependencies=[Limited("open", 1, 60, fail_open=True)])(lambda: None)
    app.get("/closed", dependencies=[Limited("closed", 1, 60)])(lambda: None)
    with TestClient(app) as client:
        answers = [client.get("/open") for _ in range(2)]
        assert [it.status_code for it in answers] == [200, 200]
        assert "ratelimit" not in answers[0].headers
        assert client.get("/closed").status_code == 503


@pytest.mark.parametrize("wrong", [{"limit": 0, "period": 60}, {"limit": 3}, {"limit": 3, "period": 60, "burst": -1}])
def test_a_rate_that_cannot_be_is_refused_where_it_is_written(wrong: dict[str, Any]) -> None:
    with pytest.raises(holdfast.ConfigError):
        Limited("api", **wrong)


def test_the_schema_has_the_statuses(locks: aio.Holdfast) -> None:
    responses = shop(locks).openapi()["paths"]["/orders/{number}/pay"]["post"]["responses"]
    assert {"200", "409", "429", "503", "422"} <= set(responses)


def test_the_applications_own_lifespan_is_kept(locks: aio.Holdfast) -> None:
    @contextlib.asynccontextmanager
    async def own(app: FastAPI) -> Any:
        async with locks.lock("own", wait=5) as lease:
            yield {"kept": lease.name}

    app = FastAPI(lifespan=own)
    install(app, locks, ready=5)

    @app.get("/")
    async def root(request: Request) -> str:
        return request.state.kept

    for _ in range(2):
        with TestClient(app) as client:
            assert client.get("/").json() == "own"


def test_a_handler_of_the_applications_own_comes_first(locks: aio.Holdfast, other: holdfast.Holdfast) -> None:
    app = shop(locks)

    @app.exception_handler(holdfast.LockBusy)
    async def busy(request: Any, error: Any) -> PlainTextResponse:
        return PlainTextResponse("mine", 418)

    with TestClient(app) as client, other.lock("order:7"):
        assert client.get("/orders/7").status_code == 418


def test_mistakes_are_said_in_words(locks: aio.Holdfast, nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="needs a client for asyncio"):
        install(FastAPI(), holdfast.Holdfast(*nodes.urls))  # type: ignore[arg-type]  # (the mistake)
    with pytest.raises(ConfigError, match="409 or 423"):
        install(FastAPI(), locks, busy=404)
    with TestClient(shop(locks)) as client, pytest.raises(ConfigError, match=r"cannot be filled from the URL, which captures nothing"):
        client.get("/wrong")
    app = FastAPI()
    install(app, locks)

    @app.get("/")
    async def user(lease: Annotated[Any, Locked(lambda request: f"user:{request}")]) -> None: ...

    with TestClient(app) as client, pytest.raises(ConfigError, match="every process has another address there"):
        client.get("/")
    app = FastAPI()

    @app.get("/")
    async def root(lease: Annotated[Any, Locked("a")]) -> None: ...

    with TestClient(app) as client, pytest.raises(ConfigError, match=r"call install\(app, locks\)"):
        client.get("/")
    monkeypatch.setattr(guest, "Depends", lambda dependency: None)
    assert "scope" in inspect.signature(Depends).parameters
    with pytest.raises(ConfigError, match=r"need FastAPI 0\.121"):
        Locked("a")
