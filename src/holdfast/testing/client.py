"""A client in a simulated world, as laws and faults see it: the driver that ships, its process and
its connections.

Knows the asyncio driver. Must not know which laws and faults there are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from ..drivers.aio.driver import Driver
from ..drivers.aio.timer import Timer
from ..engine.engine import Engine
from ..engine.ready import Want
from .world import DriftingClock, World

if TYPE_CHECKING:
    from .loop import Transport
    from .network import SimulatedConnection
    from .process import Process


class SimulatedClient:
    """A driver in its world.

    Attributes:
        nodes: The nodes that it names, in its own order.
        laws: The laws that watch it. None: nobody does.
        process: The process that it belongs to. None: the code outside of all processes.
        transports: Its connections, from the dialling on.
    """

    def __init__(self, world: World, driver: Driver, process: Process[Any] | None) -> None:
        self.world, self.driver = world, driver
        self.process: Any = process
        self.engine, self.settings = driver.engine, driver.settings
        # A loop of a world has no other ones.
        self.clock = cast(DriftingClock, driver.clock)
        # Nobody lives at an address that is no node's, so there is no node to look at.
        self.nodes: list[Any] = [world.hosts.get(it.host) or object() for it in driver.settings.addresses]
        named = set(self.nodes)
        self.laws = next((it for it in world.laws if not named.isdisjoint(it.nodes)), None)
        if self.laws is not None:
            # A claim may be refused at once: nobody would find it among those that live.
            self.engine.begin = self._begins  # type: ignore[method-assign]  # (of this one engine)
        self.transports: dict[Transport, None] = {}
        if process is not None:
            process.clients.append(self)

    def __repr__(self) -> str:
        return f"client {self.engine.tickets.inbox[:4].decode()}"

    def _begins(self, want: Want, now: float, told: bool = False) -> None:
        if self.laws is not None and not told:
            for claim in want.claims:
                self.laws.began(self, claim)
        Engine.begin(self.engine, want, now, told)

    def link(self, node: int) -> SimulatedConnection | None:
        """The connection to a node, by its place in `nodes`, if it can be used."""
        protocol = self.driver.sockets.links[node]
        transport: Any = None if protocol is None else protocol.transport
        return None if transport is None else transport.link

    @property
    def links(self) -> list[SimulatedConnection | None]:
        """The connections to all nodes."""
        return [self.link(node) for node in range(len(self.nodes))]

    @property
    def closed(self) -> bool:
        """Was it told to end?"""
        return self.driver.closed

    @property
    def gone(self) -> bool:
        """Does it do nothing any more?"""
        return self.driver._over

    @property
    def dead(self) -> bool:
        """Was its process crashed?"""
        return self.process is not None and self.process.crashed

    @property
    def stopped(self) -> bool:
        """Can it not be expected to have noticed anything?"""
        return self.process is not None and self.process.stopped

    @property
    def stops(self) -> int:
        """How often its process was paused, and resumed."""
        return 0 if self.process is None else self.process.turns

    def end(self) -> None:
        """The process is dead: the kernel closes its connections, and nothing more is said."""
        self.driver.closed = True
        self.driver._shut()
        for transport in list(self.transports):
            transport.pull()


def works(callback: Callable[..., object]) -> bool:
    """Does a client work by this callback: does it hear of a node, or of the time?"""
    from .loop import Transport

    return isinstance(getattr(callback, "__self__", None), Driver | Timer | Transport)
