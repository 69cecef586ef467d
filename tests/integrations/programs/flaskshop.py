"""A Flask application whose views hold locks: made by a factory, after the views were decorated."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

from flask import Blueprint, Flask, Response
from record import note

from holdfast import Misuse, NoQuorum
from holdfast.integrations.flask import Locks

ext = Locks()
views = Blueprint("views", __name__)


@views.post("/hold/<name>")
@ext.locked("held:{name}", wait=5)
def hold(name: str) -> str:
    note("enter", name)
    time.sleep(0.01)
    note("leave", name)
    return "done"


@views.get("/busy/<name>")
@ext.locked("held:{name}", wait=0)
def busy(name: str) -> str:
    return "done"


@views.get("/lost")
@ext.locked("lost", max_hold=0.2)
def lost() -> str:
    time.sleep(0.7)
    return "done"


@views.get("/stream")
def stream() -> Response:
    locks = ext.locks  # the body runs without the application's context

    def body() -> Iterator[str]:
        with locks.lock("stream", max_hold=0.2) as lease:
            yield "begun "
            lease.lost.wait(10)

    return Response(body())


@views.get("/limited/<tenant>")
@ext.limited(lambda request: request.endpoint, 100, 60, burst=2, key="{tenant}")
def limited(tenant: str) -> str:
    return tenant


@views.get("/wrong")
def wrong() -> str:
    raise Misuse("a mistake in the program")


def create_app(**config: object) -> Flask:
    app = Flask(__name__)
    app.config.update({"HOLDFAST_TTL": "2", "HOLDFAST_MAX_TTL": 4, **config})
    ext.init_app(app)
    app.register_blueprint(views)
    return app


app = create_app()
app.config["HOLDFAST_PREFIX"] = "flask:"
# As a program that uses its client in the process that forks: with gunicorn's --preload, this is the parent.
with app.app_context(), contextlib.suppress(NoQuorum):
    ext.locks.is_locked("nothing")
