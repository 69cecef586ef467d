"""Flask, in one process and under its servers: `./task guests flask`."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from flask import Blueprint, Flask
from integrations.stage import Stage, overlaps, staged
from integrations.tasks import imported

from holdfast import ConfigError, Holdfast
from holdfast.embedded import Nodes
from holdfast.integrations.flask import Locks

pytestmark = pytest.mark.timeout(200)

TTL = 2.0


@pytest.fixture
def stage(nodes: Nodes, tmp_path: Path) -> Iterator[Stage]:
    environment = {"HOLDFAST_NODES": ",".join(nodes.urls)}
    with staged(tmp_path, environment) as stage:
        yield stage


@pytest.fixture
def shop(stage: Stage) -> Iterator[Any]:
    """The module of the application, in this process."""
    with imported("flaskshop", stage) as program:
        yield program
        program.app.extensions["holdfast"].close()


@pytest.fixture
def other(nodes: Nodes) -> Iterator[Holdfast]:
    with Holdfast(*nodes.urls, prefix="flask:", ttl=2, max_ttl=4) as client:
        # On a busy machine, connecting takes long, and operators' calls do not wait for it.
        client.ready(30)
        yield client


def test_a_busy_lock_is_409_and_the_next_request_gets_it(shop: Any, other: Holdfast) -> None:
    client = shop.app.test_client()
    with other.lock("held:a", wait=5):
        answer = client.get("/busy/a")
        assert (answer.status_code, answer.json["type"]) == (409, "about:holdfast/busy")
        assert answer.content_type == "application/problem+json"
        assert 1 <= int(answer.headers["retry-after"]) <= TTL
        assert "held:a" not in answer.text
    assert client.get("/busy/a").status_code == 200


@pytest.mark.parametrize(
    "path, status, kind",
    [("/lost", 503, "lost"), (f"/busy/{'x' * 600}", 422, "name"), ("/busy/a[once]", 422, "name"), ("/wrong", 500, "")],
    ids=["lost", "long", "once", "mistake"],
)
def test_errors_become_statuses_but_for_mistakes_in_the_program(shop: Any, path: str, status: int, kind: str) -> None:
    answer = shop.app.test_client().get(path)
    assert (answer.status_code, (answer.json or {}).get("type", "")) == (status, kind and f"about:holdfast/{kind}")
    assert "retry-after" not in answer.headers


def test_requests_above_a_rate_are_429(shop: Any) -> None:
    client = shop.app.test_client()
    answers = [client.get(f"/limited/{it}") for it in "aaab"]
    assert [it.status_code for it in answers] == [200, 200, 429, 200]
    assert [it.headers["ratelimit-policy"] for it in answers[:2]] == ['"default";q=100;w=60'] * 2
    assert answers[0].headers["ratelimit"].startswith('"default";r=1;t=')
    assert answers[2].headers["retry-after"] == "1"


def test_each_application_has_its_own_client(shop: Any) -> None:
    another = shop.create_app(HOLDFAST_PREFIX="another:")
    with another.app_context():
        assert shop.ext.locks.settings.prefix == "another:"
    with shop.app.app_context():
        assert shop.ext.locks.settings.prefix == "flask:"
    for app, status in ((another, 200), (shop.app, 409)):
        with Holdfast(*shop.app.extensions["holdfast"].locks.urls, prefix="flask:", ttl=2, max_ttl=4) as locks:
            with locks.lock("held:b", wait=5):
                assert app.test_client().get("/busy/b").status_code == status
    another.extensions["holdfast"].close()


def test_mistakes_are_found_where_they_are_written(shop: Any) -> None:
    with pytest.raises(ConfigError, match="'colour'"):
        shop.ext.locked("{colour}")(lambda name: None)
    with pytest.raises(ConfigError, match="unknown lock option 'tll'"):
        shop.ext.locked("a", tll=3)(lambda name: None)
    wrong = shop.create_app(HOLDFAST_TTLL=3)
    with wrong.app_context(), pytest.raises(ConfigError, match=r"app\.config: unknown setting 'HOLDFAST_TTLL'"):
        _ = shop.ext.locks
    with Flask("lonely").app_context(), pytest.raises(ConfigError, match=r"'lonely' has no client: call init_app\(app\)"):
        _ = shop.ext.locks


def test_a_decorator_above_the_route_is_refused(nodes: Nodes) -> None:
    """The view was registered before it was locked."""
    ext, app, other, plain = Locks(), Flask("app"), Blueprint("other", __name__), Holdfast(*nodes.urls)
    app.testing = True
    app.config["HOLDFAST_NODES"] = list(nodes.urls)
    ext.init_app(app)

    def register(route: Any, locked: Any) -> None:
        @locked("a:{name}")
        @route("/above/<name>")
        def above(name: str) -> str:
            return name

    register(app.get, ext.locked)
    register(other.get, plain.locked)
    # Where the application, or the blueprint, has a name, it is seen at once.
    for it in (app, other):
        with pytest.raises(ConfigError, match=r"below the route, not above it: (Flask|Blueprint) has registered"):

            @plain.locked("a:{name}")
            @it.get("/named/<name>")
            def named(name: str) -> str:
                return name

    @app.get("/below/<name>")
    @ext.locked("a:{name}")
    def below(name: str) -> str:
        return name

    app.register_blueprint(other, url_prefix="/other")
    client = app.test_client()
    for path, endpoint in (("/above/a", "above"), ("/other/above/a", "other.above")):
        with pytest.raises(ConfigError, match=f"view '{endpoint}' "):
            client.get(path)
    assert [client.get(it).status_code for it in ("/below/a", "/nowhere")] == [200, 404]
    app.extensions["holdfast"].close()


def serve(stage: Stage, *words: str) -> str:
    return stage.serve(*words, path="/busy/start")


GUNICORN = ("gunicorn", "flaskshop:app", "-b", "127.0.0.1:{port}", "-w", "2", "--log-level", "warning")


@pytest.mark.parametrize(
    "words",
    [GUNICORN, (*GUNICORN, "--preload"), (*GUNICORN, "-k", "gthread", "--threads", "4"), (*GUNICORN, "-k", "gevent")],
    ids=["sync", "preload", "gthread", "gevent"],
)
def test_servers(stage: Stage, words: tuple[str, ...]) -> None:
    """Requests for a name come one after the other, also if the client was used in the parent of the workers."""
    address = serve(stage, *words)
    with ThreadPoolExecutor(8) as pool, httpx.Client(timeout=60) as client:
        paths = [f"{address}/hold/{number % 3}" for number in range(60)]
        statuses = Counter(pool.map(lambda it: client.post(it).status_code, paths))
    assert statuses == {200: 60}
    assert len(stage.entries("enter")) == 60
    assert overlaps(stage.entries()) == []


def test_operators_have_a_command(shop: Any, other: Holdfast) -> None:
    runner = shop.app.test_cli_runner()
    with other.lock("order:7", wait=5) as lease:
        names = runner.invoke(args=["holdfast", "ls", "order:*"])
        assert (names.exit_code, names.output) == (0, "order:7\n")
        assert lease.token in runner.invoke(args=["holdfast", "inspect", "order:7"]).output
        release = ["holdfast", "release", "--yes", "--reason", "a test", "--only", "somebody", "order:7"]
        kept = runner.invoke(args=release)
        assert (kept.exit_code, other.is_locked("order:7")) == (75, True)
    nodes = runner.invoke(args=["holdfast", "nodes", "--json"])
    assert (nodes.exit_code, json.loads(nodes.output)["up"]) == (0, 5)
    assert runner.invoke(args=["holdfast", "explode"]).exit_code == 64


def test_without_nodes_the_command_says_so(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delenv("HOLDFAST_NODES", raising=False)
    app = Flask("empty")
    Locks(app)
    done = app.test_cli_runner().invoke(args=["holdfast", "ls"])
    assert (done.exit_code, done.stdout) == (78, "")
    assert capfd.readouterr().err == "holdfast: no nodes: name them in the settings of the application, or set HOLDFAST_NODES\n"


def test_losing_the_lock_of_a_stream_cuts_it_off(stage: Stage) -> None:
    address = serve(stage, *GUNICORN)
    with pytest.raises(httpx.RemoteProtocolError):
        httpx.get(f"{address}/stream", timeout=30)
