"""Flask, in one process and under its servers: `./task guests flask`."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from integrations.stage import PROGRAMS, Stage, free_port, overlaps, staged

from holdfast import ConfigError, Holdfast
from holdfast.embedded import Nodes

pytestmark = pytest.mark.timeout(200)

TTL = 2.0


@pytest.fixture
def stage(nodes: Nodes, tmp_path: Path) -> Iterator[Stage]:
    environment = {"HOLDFAST_NODES": ",".join(nodes.urls)}
    with staged(tmp_path, environment) as stage:
        yield stage


@pytest.fixture
def shop(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The module of the application, in this process."""
    for name in ("HOLDFAST_NODES", "RECORD"):
        monkeypatch.setenv(name, stage.environment[name])
    monkeypatch.syspath_prepend(PROGRAMS)
    sys.modules.pop("flaskshop", None)
    import flaskshop

    yield flaskshop
    flaskshop.app.extensions["holdfast"].close()
    sys.modules.pop("flaskshop")


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


def test_losing_the_lock_is_503_without_retry_after(shop: Any) -> None:
    answer = shop.app.test_client().get("/lost")
    assert (answer.status_code, answer.json["type"]) == (503, "about:holdfast/lost")
    assert "retry-after" not in answer.headers


def test_without_a_majority_the_answer_is_503(shop: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_NODES", "redis://127.0.0.1:1")
    app = shop.create_app(HOLDFAST_OUTAGE=0.2)
    answer = app.test_client().get("/busy/a")
    assert (answer.status_code, answer.json["type"]) == (503, "about:holdfast/unavailable")
    app.extensions["holdfast"].close()


@pytest.mark.parametrize("name", ["x" * 600, "a[once]"])
def test_a_value_that_makes_an_impossible_name_is_422(shop: Any, name: str) -> None:
    answer = shop.app.test_client().get(f"/busy/{name}")
    assert (answer.status_code, answer.json["type"]) == (422, "about:holdfast/name")


def test_requests_above_a_rate_are_429(shop: Any) -> None:
    client = shop.app.test_client()
    answers = [client.get(f"/limited/{it}") for it in "aaab"]
    assert [it.status_code for it in answers] == [200, 200, 429, 200]
    assert [it.headers["ratelimit-policy"] for it in answers[:2]] == ['"default";q=100;w=60'] * 2
    assert answers[0].headers["ratelimit"].startswith('"default";r=1;t=')
    assert answers[2].headers["retry-after"] == "1"


def test_a_mistake_in_the_program_is_500(shop: Any) -> None:
    assert shop.app.test_client().get("/wrong").status_code == 500


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
    from flask import Flask

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
    from flask import Blueprint, Flask

    from holdfast.integrations.flask import Locks

    ext, app = Locks(), Flask("above", static_folder=None)
    app.testing = True
    app.config["HOLDFAST_NODES"] = list(nodes.urls)
    ext.init_app(app)
    other = Blueprint("other", __name__)
    plain = Holdfast(*nodes.urls)

    def logged(view: Any) -> Any:
        return functools.wraps(view)(lambda **kwargs: view(**kwargs))

    def register(above: Any, higher: Any) -> None:
        @ext.locked("above:{name}")
        @above("/above/<name>")
        def above(name: str) -> str:
            return name

        @plain.locked("above:{name}")
        @logged
        @higher("/higher/<name>")
        def higher(name: str) -> str:
            return name

    register(app.get, other.get)
    # Where the application, or the blueprint, has a name, it is seen at once.
    for it in (app, other):
        with pytest.raises(ConfigError, match=r"below the route, not above it: (Flask|Blueprint) has registered"):

            @plain.locked("above:{name}")
            @it.get("/named/<name>")
            def named(name: str) -> str:
                return name

    @app.get("/below/<name>")
    @ext.locked("below:{name}")
    @logged
    def below(name: str) -> str:
        return name

    def twice(name: str) -> str:
        return name

    app.register_blueprint(other)
    app.add_url_rule("/plain/<name>", "plain", twice)
    app.add_url_rule("/twice/<name>", "twice", logged(ext.locked("twice:{name}")(twice)))
    client = app.test_client()
    for path, endpoint in (("/above/a", "above"), ("/higher/a", "other.higher")):
        with pytest.raises(ConfigError, match=f"view '{endpoint}' "):
            client.get(path)
    assert [client.get(it).status_code for it in ("/below/a", "/plain/a", "/twice/a", "/nowhere")] == [200, 200, 200, 404]
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


UWSGI = ("uwsgi", "--http-socket", "127.0.0.1:{port}", "--module", "flaskshop:app", "--master", "--processes", "2", "--die-on-term")
HOOKS = "--py-call-uwsgi-fork-hooks"


@pytest.mark.parametrize(
    "options",
    [
        [],
        [HOOKS],
        ["--enable-threads"],
        ["--enable-threads", HOOKS],
        ["--lazy-apps"],
        ["--lazy-apps", "--enable-threads", "--threads", "2", HOOKS],
    ],
    ids=lambda it: " ".join(it) or "default",
)
def test_uwsgi(stage: Stage, options: list[str]) -> None:
    """uWSGI forks in C, and tells Python of it only with the hooks. The program uses its client in the master."""
    program = Path(sys.executable).with_name("uwsgi")
    if not program.exists():
        pytest.skip("pyuwsgi has no wheel for this system")
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    stage.start(*(it.format(port=port) for it in UWSGI), *options, program=str(program), PAUSE="0.5")
    stage.until(lambda: "spawned uWSGI worker 2" in stage.logs(), "uWSGI has workers")
    # Each answer comes, and soon: a worker that waits for a thread of the master would wait for ever.
    # uWSGI closes each connection after its answer.
    with ThreadPoolExecutor(4) as pool:
        asked = pool.map(lambda it: httpx.post(f"{address}/hold/{it % 3}", timeout=20), range(12))
        statuses = Counter(it.status_code for it in asked)
    assert statuses == {200: 12}
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


@pytest.mark.parametrize("verb", [("ls",), ("inspect", "a"), ("nodes",), ("top",), ("doctor",), ("repair",)])
def test_without_nodes_the_command_says_so(
    verb: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    from flask import Flask

    from holdfast.integrations.flask import Locks

    monkeypatch.delenv("HOLDFAST_NODES", raising=False)
    app = Flask("empty")
    Locks(app)
    done = app.test_cli_runner().invoke(args=["holdfast", *verb])
    assert (done.exit_code, done.stdout) == (78, "")
    assert capfd.readouterr().err == "holdfast: no nodes: name them in the settings of the application, or set HOLDFAST_NODES\n"


def test_the_command_uses_the_settings_of_its_application(stage: Stage) -> None:
    """As a process, and without a majority."""
    words = [sys.executable, "-m", "flask", "--app", "flaskshop:app", "holdfast", "nodes"]
    environment = {**stage.environment, "HOLDFAST_NODES": "redis://127.0.0.1:1"}
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, "redis://127.0.0.1:1  down" in done.stdout) == (69, True), done.stderr


def test_losing_the_lock_of_a_stream_cuts_it_off(stage: Stage) -> None:
    address = serve(stage, *GUNICORN)
    with pytest.raises(httpx.RemoteProtocolError):
        httpx.get(f"{address}/stream", timeout=30)


def test_a_reloaded_program_leaves_no_lock_behind(stage: Stage) -> None:
    """The reloader replaces the process that holds the lock."""
    program = stage.folder / "flaskshop.py"
    program.write_text((PROGRAMS / "flaskshop.py").read_text())
    stage.environment["PYTHONPATH"] = os.pathsep.join([str(stage.folder), stage.environment["PYTHONPATH"]])
    address = serve(stage, "flask", "--app", "flaskshop:app", "run", "--port", "{port}", "--reload")
    with ThreadPoolExecutor(1) as pool:
        held = pool.submit(httpx.post, f"{address}/long/1", timeout=60)
        stage.until(lambda: stage.entries("enter"), "the first request holds the lock")
        first = stage.entries("enter")[0].pid
        os.utime(program, (time.time() + 5, time.time() + 5))
        assert isinstance(held.exception(), httpx.TransportError)
        stage.until(lambda: _answers(f"{address}/hold/1"), "the next program answers")
    assert stage.entries("enter")[-1].pid != first
    assert stage.entries("enter")[-1].at - stage.entries("enter")[0].at < 30


def _answers(url: str) -> bool:
    try:
        return httpx.post(url, timeout=30).status_code == 200
    except httpx.TransportError:
        return False
