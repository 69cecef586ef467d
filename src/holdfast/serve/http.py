"""HTTP: the application on uvicorn, with deadlines for requests.

Knows uvicorn and h11. Must not know how connections are accepted: `server` does.
"""

from __future__ import annotations

import asyncio
import logging

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from .application import application_of
from .gateway import Gateway
from .identity import ARRIVED, Arrived, arrived_of
from .server import REQUEST

# Seconds for which an idle connection stays open.
IDLE = 75
# Seconds that answers may take once everything else has ended.
LAST = 5


class HttpConnection(H11Protocol):
    """A connection that is closed if a request does not arrive in time, with all of its body."""

    _late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """Begin to wait for the first request."""
        super().connection_made(transport)
        self._wait(True)

    def data_received(self, data: bytes) -> None:
        """Take what has arrived, and wait for the rest of the request."""
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        """Begin with the next request, of which some may have arrived already."""
        super().on_response_complete()
        self._watch()

    def _watch(self) -> None:
        its = self.conn.their_state
        self._wait(its is h11.SEND_BODY or (its is h11.IDLE and bool(self.conn.trailing_data[0])))

    def _wait(self, wanted: bool) -> None:
        """Wait for the rest of a request, for as long as since its beginning; or for nothing."""
        if wanted and self._late is None:
            self._late = self.loop.call_later(REQUEST, self.transport.abort)
        elif not wanted and self._late is not None:
            self._late.cancel()
            self._late = None

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        self._wait(False)
        arrived_of({"state": self.app_state}).gone()
        super().connection_lost(exc)


class Http:
    """The door that speaks HTTP."""

    async def open(self, gateway: Gateway) -> None:
        """Begin to serve."""
        # It says a line of its own for each request that cannot be read. The client is told it, too.
        logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
        self._config = uvicorn.Config(
            application_of(gateway),
            http=HttpConnection,
            ws="none",
            log_config=None,
            access_log=False,
            server_header=False,
            # The address of a client is that of its connection, whatever a header says.
            proxy_headers=False,
            timeout_keep_alive=IDLE,
            timeout_graceful_shutdown=LAST,
        )
        self._config.load()
        # The steps of `uvicorn.Server.serve`, but for those that accept connections and handle signals.
        self._server = uvicorn.Server(self._config)
        self._server.servers = []
        self._server.lifespan = self._config.lifespan_class(self._config)
        await self._server.lifespan.startup()
        self._running = asyncio.ensure_future(self._server.main_loop())

    def speak(self, arrived: Arrived) -> HttpConnection:
        """Make what serves one connection."""
        state = {**self._server.lifespan.state, ARRIVED: arrived}
        return HttpConnection(self._config, self._server.server_state, state)

    async def close(self) -> None:
        """Let answers end, and close all connections."""
        self._server.should_exit = True
        await self._running
        await self._server.shutdown()
