"""Where the other gateways are. Each one leads an election of its own, and announces its address.

Knows the client's elections. Must not know requests.

A lease lives in the gateway that granted it, and the gateway's name is in the lease's id. The entry
of a gateway lasts for `max_ttl`, and no lease lasts longer. So once no entry is left, the leases of
that gateway are over, too.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from ..errors import Closed, HoldfastError, message_of
from .problems import Problem

if TYPE_CHECKING:
    from ..aio import Holdfast
    from ..aio.election import Leadership

# What the names of these elections begin with. Clients may not lead them: their leader gets
# requests, and tokens, of other clients.
ELECTION = "holdfast.gateway:"
# Addresses that are remembered. A gateway's address never changes, so they only have to be bounded.
MOST = 1_000
AGAIN = 1.0  # seconds until it is tried again to announce an address
log = logging.getLogger("holdfast.serve")


class Peers:
    """The gateways that share their clients with this one.

    Args:
        locks: The client.
        name: This gateway's name.
        url: The address at which the other gateways reach this one.
    """

    def __init__(self, locks: Holdfast, name: str, url: str) -> None:
        self._locks = locks
        self._name = name
        self._url = url
        self._known: dict[str, str] = {}
        self._task: asyncio.Task[None] | None = None
        self._announced = False
        # If nobody had it, it would count as forgotten.
        self._leading: Leadership | None = None

    @property
    def announced(self) -> bool:
        """Whether the others can find this gateway. It grants nothing before that."""
        return self._announced

    def start(self) -> None:
        """Begin to announce this gateway, in the running loop. Has no effect the second time."""
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._announce())

    async def _announce(self) -> None:
        most = self._locks.settings.max_ttl
        while True:
            try:
                election = self._locks.election(ELECTION + self._name, self._url, ttl=most)
                self._leading = leading = await election.campaign()
                self._announced = True
                await leading.lost.wait()
            except Closed:
                return
            except HoldfastError as error:
                log.warning("the address of this gateway is not announced yet: %s", message_of(error))
                await asyncio.sleep(AGAIN)
            finally:
                self._announced = False

    async def close(self) -> None:
        """Stop announcing. The entry runs out by itself, after all leases of this gateway."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def known(self, name: str) -> str | None:
        """Return the address of a gateway that was found before."""
        return self._known.get(name)

    async def find(self, name: str) -> str:
        """Ask the nodes for the address of a gateway.

        Raises:
            Problem: gateway-gone.
            NoQuorum: Too few nodes answered to know.
        """
        found = (await self._locks.election(ELECTION + name).leader()).value
        # An address without TLS would be that of a stranger, if gateways use TLS.
        if found is None or urlsplit(found).scheme != urlsplit(self._url).scheme:
            self._known.pop(name, None)
            raise gone(name)
        if len(self._known) >= MOST:
            self._known.clear()
        self._known[name] = found
        return found


def gone(name: str) -> Problem:
    """The problem of a lease whose gateway has ended."""
    return Problem("gateway-gone", f"The gateway {name} has ended, and so have its leases. Use a new id.")
