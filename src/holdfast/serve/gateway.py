"""One gateway: its client, its options, and what all requests share.

Knows the client for asyncio. Must not know HTTP's routes.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING

from ..aio import Holdfast
from ..errors import ConfigError, HoldfastError
from . import identity
from .audit import Audit
from .identity import Identity, TokenFile
from .leases import LONGEST_NAME, VERBS, Leases
from .load import Lag, Limits
from .options import Options
from .problems import Problem
from .surveys import Surveys

if TYPE_CHECKING:
    from .peers import Peers

# What the names of the elections begin with by which gateways find each other. Clients may not lead them: their leader
# gets requests, and tokens, of other clients.
ELECTION = "holdfast.gateway:"
ALPHABET = "abcdefghijkmnpqrstuvwxyz23456789"


class Gateway:
    """What all requests of one gateway share.

    Attributes:
        locks: The client.
        options: The options.
        name: What lease ids of this gateway begin with. Each start has another one.
        clients: The clients that may come. None: nobody is asked.
        audit: The audit log.
        lag: How late the event loop is.
        leases: The leases of clients.
        limits: How many requests each client may make.
        beats: How many leases each client may keep or release.
        streams: The client of each open event stream, by what is set to end the stream.
        answers: How many answers had each status.
        peers: The other gateways. None: this one is alone.
        draining: Whether it is about to end, and grants nothing any more.
        surveys: What everybody who looks at locks shares.
    """

    def __init__(self, locks: Holdfast, options: Options) -> None:
        if locks.settings.guardian:
            raise ConfigError("a gateway cannot have a guardian: its clients live on when it is killed")
        self.locks = locks
        self.options = options
        self.name = "g" + "".join(secrets.choice(ALPHABET) for _ in range(7))
        self.clients: TokenFile | None = None
        self.audit = Audit(options.audit)
        self.lag = Lag()
        self.leases = Leases(locks, self.name, options)
        self.limits = Limits(options.max_requests)
        self.beats = Limits(options.max_keepalives)
        self.streams: dict[asyncio.Event, Identity] = {}
        self.surveys = Surveys(locks)
        self.answers: Counter[int] = Counter()
        self.peers: Peers | None = None
        if options.advertise is not None:
            # A gateway that is alone needs no client for HTTP.
            from .peers import Peers

            self.peers = Peers(locks, self.name, options.advertise, options.peer_ca)
        self.draining = False
        # What goes on between requests.
        self._tasks: list[asyncio.Future[None]] = []
        self.reload()

    def reload(self) -> None:
        """Read the file of tokens again.

        Waits and streams of clients that it does not allow any more end.

        Raises:
            ConfigError: The file cannot be read, or is wrong. The clients stay as they were.
        """
        if self.options.tokens is not None:
            self.clients = identity.read(self.options.tokens)
            self._end_waits()
            self.end_streams()

    def end_streams(self) -> None:
        """End those of clients that are not as they were, and all of them at the end."""
        for over, client in self.streams.items():
            if self.draining or (self.clients is not None and self.clients.now(client) != client):
                over.set()

    def now(self, client: Identity) -> Identity:
        """Return a client that has come before, as it is now.

        Raises:
            Problem: unauthenticated.
        """
        found = client if self.clients is None else self.clients.now(client)
        if found is None:
            raise Problem("unauthenticated", f"The token or the certificate of {client.name} is not valid any more.")
        return found

    def _end_waits(self) -> None:
        """End the waits of clients that may not wait any more, and all of them at the end."""
        for hold in self.leases:
            if hold.state == "waiting":
                try:
                    if self.draining:
                        self.refuse_unless_open()
                    self.authorize(self.now(hold.client), VERBS[hold.wanted.kind], *hold.wanted.names)
                except Problem as problem:
                    hold.fail(problem)

    def refuse_too_many(self, who: str, beats: int = 0) -> None:
        """Count a request of a client, or leases that it keeps or releases.

        Raises:
            Problem: too-many.
        """
        limits, most, what = self.limits, self.options.max_requests, "requests"
        if beats:
            limits, most, what = self.beats, self.options.max_keepalives, "keepalives"
        wait = limits.take(who, time.monotonic(), beats or 1)
        if wait:
            hint = "Keep less often, or longer." if beats else "`POST /v1/keepalive` keeps many leases in one."
            raise Problem("too-many", f"{who} may make {most} {what} a second. {hint}", after=wait, what=what)

    def drain(self) -> None:
        """Grant nothing any more. Leases that are held can still be kept and released."""
        self.draining = True
        self._end_waits()
        self.end_streams()

    @property
    def busy(self) -> bool:
        """Whether it is so late that only keepalives, releases and health are served."""
        return self.lag.late > self.options.max_lag

    @property
    def findable(self) -> bool:
        """Whether the other gateways, if there are any, can find this one."""
        return self.peers is None or self.peers.announced

    def start(self) -> None:
        """Begin what goes on between requests, in the running loop. Has no effect later."""
        if not self._tasks:
            # A balancer sends nothing before the nodes are connected, and without a lease nobody would connect.
            going_on = [self.lag.measure(), self._connect(), *([] if self.peers is None else [self.peers.announce()])]
            self._tasks = [asyncio.ensure_future(it) for it in going_on]

    async def _connect(self) -> None:
        # How the nodes are is what `/readyz` says.
        with suppress(HoldfastError):
            await self.locks.ready()

    async def stop(self) -> None:
        """End what goes on between requests."""
        ending = [*self._tasks, *([] if self.surveys.task is None else [self.surveys.task])]
        for it in ending:
            it.cancel()
        await asyncio.gather(*ending, return_exceptions=True)
        self.audit.close()
        if self.peers is not None:
            await self.peers.close()

    def refuse_unless_open(self) -> None:
        """Refuse to grant anything while the others cannot find this gateway, and at its end.

        Raises:
            Problem: draining; or no-quorum.
        """
        if self.draining:
            raise Problem("draining", "This gateway is about to end. Ask another one, or ask again.", after=1.0)
        if not self.findable:
            detail = "This gateway has not announced its address to the others yet: too few nodes answer. Ask again."
            raise Problem("no-quorum", detail, after=1.0, nodes={})

    def authorize(self, client: Identity, verb: str, *names: str) -> None:
        """Refuse a client that may not do this.

        Args:
            client: The client.
            verb: As in `Identity.may`.
            names: The names that it wants to do it with. None: every name.

        Raises:
            Problem: forbidden. It names the scope that is missing. Or name-too-long.
        """
        if verb == "lead" and any(it.startswith(ELECTION) for it in names):
            raise Problem("forbidden", "Gateways find each other by these elections.", scope=f"lead:{names[0]}")
        for name in names or ("*",):
            if (size := len(name.encode())) > LONGEST_NAME:
                detail = f"A name has at most {LONGEST_NAME} bytes, and this one has {size}."
                raise Problem("name-too-long", detail)
            if not (client.may(verb, name) if names else client.everywhere(verb)):
                scope = f"{verb}:{name}"
                self.audit.note("forbidden", client=client.name, name=name, scope=scope)
                raise Problem("forbidden", f"{client.name} lacks a scope that covers {scope}.", scope=scope)
        if verb == "force" and not self.options.allow_force:
            self.audit.note("forbidden", client=client.name, name=names[0], scope="--allow-force")
            detail = "This gateway takes no locks away: start it with --allow-force."
            raise Problem("forbidden", detail, scope=f"force:{names[0]}")
