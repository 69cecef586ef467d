"""The routes of the live page: its files, the snapshot that it shows, and one lock in full.

Knows the surveys of the gateway, and the folder `page`. Must not know how the page draws anything.
There is no build step: a browser gets the files as they are, compressed and each with a digest, and
the page names its modules, so that a browser asks for all of them at once.

The files need no token: they are the same for everybody, and they ask for the token. The snapshot
needs the scope `look:*`.
"""

from __future__ import annotations

import asyncio
import gzip
import hashlib
from importlib.resources import files
from typing import Annotated, Any, NamedTuple

from pydantic import Field
from pydantic_core import to_json
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from ..clock import sources_of
from ..kit import majorities
from ..typing import Row
from . import models
from .gateway import Gateway
from .identity import Identity
from .problems import milliseconds
from .routing import Table

TYPES = {".css": "text/css", ".js": "text/javascript"}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    # The digest tells whether a browser has the newest.
    "cache-control": "no-cache",
    "vary": "accept-encoding",
}
# Milliseconds since 1970, on the gateway's clock: the page counts on from them.
NOW = "holdfast-now"
# Seconds for which an answer waits for the survey that is under way.
FRESH = 0.5


class Name(models.Parameters):
    """Which lock is shown."""

    name: Annotated[str, Field(min_length=1)]


def routes(gateway: Gateway) -> Table:
    """Return the routes of the page."""
    found, snapshots = Table(), Snapshots(gateway)

    @found.add("GET", "/ui/snapshot")
    async def snapshot(request: Request, gateway: Gateway, client: Identity) -> Response:
        gateway.authorize(client, "look")
        newest = await snapshots.newest()
        return _sent(request, newest, {NOW: str(_now())})

    @found.add("GET", "/ui/lock")
    async def lock(gateway: Gateway, client: Identity, asked: Name) -> Response:
        gateway.authorize(client, "look", asked.name)
        found = models.LockBody.model_validate(await gateway.locks.inspect(asked.name))
        may_force = gateway.options.allow_force and client.may("force", asked.name)
        return JSONResponse({"lock": found.model_dump(), "may_force": may_force})

    for path, it in assets().items():
        found.add("GET", f"/{path}", {200: it.kind}, public=True)(_sender(it))
    return found


def _sender(it: Asset) -> Any:
    async def send(request: Request) -> Response:
        return _sent(request, it, {})

    return send


def _sent(request: Request, it: Asset, more: dict[str, str]) -> Response:
    headers = {**HEADERS, "etag": it.digest, **more}
    if request.headers.get("if-none-match") == it.digest:
        return Response(status_code=304, headers=headers)
    if "gzip" in request.headers.get("accept-encoding", ""):
        return Response(it.packed, headers={**headers, "content-encoding": "gzip"}, media_type=it.kind)
    return Response(it.body, headers=headers, media_type=it.kind)


class Asset(NamedTuple):
    """A file as it is sent.

    Attributes:
        kind: Its media type.
        body: Its bytes.
        packed: The same, compressed with gzip.
        digest: Changes with its bytes, for the header `ETag`.
    """

    kind: str
    body: bytes
    packed: bytes
    digest: str


def assets() -> dict[str, Asset]:
    """Return the files of the page by their paths, such as "ui/app.js"; "" is the page itself."""
    page = files("holdfast.serve") / "page"
    found = {"": asset("text/html", (page / "index.html").read_bytes())}
    for folder, path in ((page, "ui/"), (page / "vendor", "ui/vendor/")):
        for it in folder.iterdir():
            if it.is_file() and (kind := TYPES.get(it.name[it.name.rindex(".") :])):
                found[path + it.name] = asset(kind, it.read_bytes())
    return found


def asset(kind: str, body: bytes, level: int = 9) -> Asset:
    """Return a file as it is sent, compressed at this level."""
    # Without the time, so that the same file is the same bytes.
    packed = gzip.compress(body, level, mtime=0)
    return Asset(f"{kind}; charset=utf-8", body, packed, f'"{hashlib.sha256(body).hexdigest()[:16]}"')


class Snapshots:
    """What the page shows, made once for all viewers.

    A new one is made when a survey has ended, when a node is in another state, and when a lock was
    taken away. The figures of nodes are those of that moment. Moments are milliseconds since 1970,
    and of several shards, the numbers are those of the worst.
    """

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._made: tuple[Any, Asset] | None = None
        self._making = asyncio.Lock()

    async def newest(self) -> Asset:
        """Return the newest one."""
        gateway, surveys = self._gateway, self._gateway.surveys
        await asyncio.wait((surveys.next(),), timeout=FRESH)
        async with self._making:
            nodes, taken = gateway.locks.nodes(), tuple(gateway.audit.forced)
            states = [(it.node, it.state, it.warnings) for it in nodes]
            of = (surveys.number, len(surveys.rows), states, taken)
            if self._made is None or self._made[0] != of:
                spare, up, needed, *_ = min(majorities(nodes))
                facts = {
                    "at": _now(), "prefix": gateway.locks.settings.prefix, "why": surveys.why,
                    "complete_at": surveys.complete_at and milliseconds(surveys.complete_at),
                    "interval_ms": milliseconds(surveys.interval), "grafana_url": gateway.options.grafana_url,
                    "majority": needed, "up": up, "spare": spare, "taken": taken,
                    "nodes": [models.NodeBody.model_validate(it) for it in nodes],
                }  # fmt: skip
                # With 10,000 locks that takes a tenth of a second.
                self._made = of, await asyncio.to_thread(_packed, facts, [*surveys.rows.values()])
            return self._made[1]


def _packed(facts: dict[str, Any], rows: list[Row]) -> Asset:
    locks = [models.RowBody.model_validate(it) for it in rows]
    return asset("application/json", to_json({**facts, "locks": locks}), level=1)


def _now() -> int:
    return milliseconds(sources_of(asyncio.get_running_loop()).wall())
