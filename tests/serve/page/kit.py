"""What the tests of the page share: a gateway that can be stopped and started again, clients that work, and the browser's eyes."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import uvicorn
from nemesis.processes import free_port, until
from serve.serving import gateway_app

from holdfast import Holdfast as Threads
from holdfast.aio import Holdfast
from holdfast.embedded import Nodes

PATIENCE = 30.0  # seconds for anything that must happen
# Restart guards that end while a test runs, for nodes that no other test uses.
QUICK = {"max_ttl": 4.0, "ttl": 2.0}


class Gateway:
    """A gateway in a thread of its own, on real nodes.

    Args:
        nodes: The nodes.
        times: Options of its client.
        options: Those of `holdfast.serve.app`.
    """

    def __init__(self, nodes: Nodes, times: Mapping[str, float] = {}, **options: Any) -> None:
        self._nodes, self._times, self._options = nodes, dict(times), options
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}/"
        self._server: uvicorn.Server | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start it, and return when it listens."""
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)
        self._thread.start()
        until(lambda: self._server is not None and self._server.started)

    def stop(self) -> None:
        """Stop it, with all its connections."""
        assert self._server is not None and self._thread is not None
        self._server.should_exit = True
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()
        self._server = None

    async def _serve(self) -> None:
        async with Holdfast(*self._nodes.urls, **self._times) as locks:
            application = gateway_app(locks, **self._options)
            config = uvicorn.Config(application, port=self.port, log_level="error", access_log=False, timeout_graceful_shutdown=1)
            self._server = uvicorn.Server(config)
            await self._server.serve()


@contextmanager
def gateway(nodes: Nodes, times: Mapping[str, float] = {}, **options: Any) -> Iterator[Gateway]:
    """A gateway that runs."""
    found = Gateway(nodes, times, **options)
    found.start()
    try:
        yield found
    finally:
        found.stop()


@contextmanager
def client(nodes: Nodes, owner: str, times: Mapping[str, float] = {}) -> Iterator[Threads]:
    """A client that works, with a name of its own."""
    with Threads(*nodes.urls, owner=owner, **times) as locks:
        yield locks


def commands(nodes: Nodes) -> int:
    """How many commands the nodes have carried out in all, without those of this function and of connections."""
    import redis

    total = 0
    for url in nodes.urls:
        with redis.Redis.from_url(url) as node:
            for name, stats in node.info("commandstats").items():
                if not name.startswith(("cmdstat_info", "cmdstat_client", "cmdstat_hello", "cmdstat_ping", "cmdstat_auth")):
                    total += stats["calls"]
    return total


# What a page says that went wrong, among it what its policy refuses.
EYES = """
window.violations = [];
document.addEventListener("securitypolicyviolation", it => violations.push(`${it.violatedDirective} ${it.blockedURI}`));
window.alert = () => violations.push("alert");
"""


def opened(browser: Any, url: str, *, place: str = "", theme: str = "light", width: int = 1440, height: int = 900, **options: Any) -> Any:
    """A page that is live."""
    context = browser.new_context(color_scheme=theme, viewport={"width": width, "height": height}, reduced_motion="reduce", **options)
    context.add_init_script(EYES)
    context.set_default_timeout(PATIENCE * 1000)
    page = context.new_page()
    page.wrong = []
    page.on("console", lambda it: page.wrong.append(it.text) if it.type in ("error", "warning") else None)
    page.on("pageerror", lambda it: page.wrong.append(str(it)))
    page.on("request", lambda it: None if it.url.startswith((url, "data:")) else page.wrong.append(f"asks for {it.url}"))
    page.goto(url + place)
    return page


def line(page: Any, name: str) -> Any:
    """The line of a lock in the table."""
    return page.locator(f".line:has(.name[title={name!r}])")


