"""What is known of the server at a node's address, and from when on it may be used.

A server that has restarted may have forgotten leases, and one that was promoted may lack them. So
it is left alone for a guard, unless it is sure to have nothing to forget.

Knows runs of servers, their reigns since a promotion, and their clocks. Must not know bytes: a
`Connection` asks, and tells what was answered.
"""

from __future__ import annotations

from math import inf

from ..errors import ConfigError
from . import handshake
from .address import Address
from .handshake import ConnectionSettings


class KnownServer:
    """The server of one node, over all connections to it. Its state is for reading only."""

    def __init__(self, address: Address, settings: ConnectionSettings) -> None:
        self._address = address
        self._settings = settings
        # What it said of itself, and what it calls itself in its answer to HELLO.
        self.facts: dict[str, str] = {}
        self.product = ""
        # The node's clock less ours, seconds.
        self.ahead: float | None = None
        # By how much that may be wrong, either way.
        self.blur = 0.0
        # And when it was measured.
        self.measured = -inf
        self.run_id = ""
        # The replication id that it took when it was promoted in this run.
        self.reign = ""
        # What the node's note says of this reign.
        self.noted: object = None
        # The run of a server of which an operator has said that it is new, as the node has it.
        self.adopted: object = None
        # Since when this client knows this run, or its reign since a promotion.
        self._known = 0.0
        # When an earlier run, or an earlier reign, last spoke on a connection in use.
        self._before = -inf
        # Runs that were here before this one, and until when.
        self._left: dict[str, float] = {}
        # Did this run begin while the one before it still answered?
        self.several = False
        # When it was last connected to, seconds.
        self.uptime = 0
        # And when it started by that, by our clock.
        self.started = -inf
        # Did the guard that is running, or that ran last, begin with a promotion?
        self.promoted = False
        # Or with a server that no client had met at the node's address?
        self.replaced = False
        # When its guard may end, if nobody can have used a long ttl; inf: only when it is over.
        self.soonest = inf
        # From when on it has every mark that counts (rule G15); inf: nobody knows.
        self.remembers = inf
        # The run whose guard has ended early.
        self._shortened = ""
        # L, seconds: for how long a server may be used after another one took its place. None:
        # nobody knows. Where the node's place can be asked for, the clients see to that themselves.
        self.outlives = max(address.failover or 0.0, settings.keep / 2) if address.moves else address.failover
        # Could a failover hand its locks to others, and has nobody said when a deposed primary
        # stops (`failover` in the address)?
        self.unbounded = False

    def greeted(self) -> None:
        """Forget what each greeting tells: another server may be there."""
        self.facts = {}
        self.product = ""
        self.noted = None

    @property
    def stranger(self) -> str:
        """The name of the server's product, if it is neither Redis nor Valkey. Else ""."""
        return handshake.other_product(self.facts, self.product)

    # ------------------------------------------------ its clock

    def clock(self, time: float, sent: float, now: float) -> None:
        """Take in what its clock showed at some moment between `sent` and now."""
        self.ahead = time - (sent + now) / 2
        self.blur = (now - sent) / 2
        self.measured = now

    def told_time(self, reply: object, sent: float, now: float) -> None:
        """It was asked for its clock again, between `sent` and now: the new measure counts if the
        clock was set since the first one.
        """
        time = handshake.time_of(reply)
        if time is None or self.ahead is None:
            return
        self.measured = now
        if abs(time - (sent + now) / 2 - self.ahead) > (now - sent) / 2 + self.blur:
            self.clock(time, sent, now)

    def stamp(self, since: float) -> bytes:
        """Return a time of ours as a note has it, by the node's clock."""
        assert self.ahead is not None
        return b"%d" % round((since + self.ahead + self.blur) * 1e6)

    def ends(self, sure: float) -> bytes:
        """Return when a note ends that lasts until then, in milliseconds of the node's clock.

        It is a moment, because the node may execute this later.
        """
        assert self.ahead is not None
        return b"%d" % round((sure + self.ahead - self.blur) * 1000)

    # ------------------------------------------------ its reign

    @property
    def tenure(self) -> str:
        """What its time as this node is known by: its reign if it was promoted.

        Where the node's place is found before each connection, any server may be there the next
        time, and INFO does not tell that. So the run of a server that was never promoted is a
        reign, too. Elsewhere it is "".
        """
        return handshake.reign(self.facts) or (self.facts["run_id"] if self._address.moves else "")

    @property
    def brief(self) -> bool:
        """Does the node's note last no longer than its place is known?

        If a function of the user's finds the place, a server may be the node, then another one, and
        then the first one again. What its note says is not true any more then. So the note has to
        be gone before the other server grants anything.
        """
        return self._address.moves and self._address.sentinels is None

    def since(self, tenure: str, now: float) -> float:
        """Return since when this client knows this tenure of the server, to be noted on the node.

        A promotion has a name of its own. Another server may have been in the place of a server
        that was never promoted, or that a function finds, since this client first met it.
        """
        reigns = handshake.reign(self.facts) and not self.brief
        return self._known if reigns and tenure == self.reign else now

    def _reigned(self, now: float) -> float:
        """For how many seconds, at least, this server has been a primary, by the node's note and
        the node's clock.
        """
        noted = handshake.number(self.noted)
        if noted is None or self.ahead is None:
            return 0.0
        return max(0.0, now + self.ahead - self.blur - noted / 1e6)

    # ------------------------------------------------ its guard

    def met(self, now: float, heard: float, parted: bool) -> float:
        """Take in that a connection has been introduced to the server.

        Args:
            now: The time.
            heard: When a server of this node last spoke on a connection in use.
            parted: Whether the node's place was not known for a while before this connection.

        Returns:
            From when on the server may be used: after its guard, if it restarted or was promoted.

        Raises:
            ConfigError: The address leads to several servers.
        """
        facts, tenure = self.facts, self.tenure
        uptime = handshake.number(facts["uptime_in_seconds"]) or 0
        reign = handshake.reign(facts)
        if facts["run_id"] != self.run_id or (tenure and tenure != self.reign):
            self._replace(facts["run_id"], tenure, now - uptime, heard, now)
        elif parted and self.brief:
            # Another server may have been the node meanwhile.
            self._known = now
        self.uptime = uptime
        self.started = now - uptime
        self.promoted = self.replaced = False
        self.soonest = self.remembers = inf
        self.unbounded = self.outlives is None and bool(reign or handshake.replicas(facts))
        guard = self._settings.guard
        if guard is None:
            return now
        # A primary that was replaced may have granted leases for so long after the promotion. (A
        # run without a trace of a promotion may hide one: a server that was promoted, and then
        # restarted without its data, has forgotten that, too.)
        guard += self.outlives or 0.0
        # A server that was adopted has nothing to forget, as one that has run for long. Its uptime
        # is rounded, and follows its wall clock, and an operator may be mistaken: neither counts if
        # an earlier run spoke to us less than a guard ago.
        lasted = inf if self.adopted == self.run_id.encode() else uptime
        aged = self._aged(guard, lasted, now)
        if tenure and (settled := max(now + guard - self._reigned(now), self._before + guard)) >= aged:
            # A server that was just made has forgotten nothing, but a replica that is promoted may
            # lack what its primary had granted, and another server what the former one had.
            aged = settled
            self.promoted = bool(reign)
            self.replaced = not reign
        if not tenure and not self.outlives and (short := self._settings.short_guard) is not None:
            if self.run_id == self._shortened:
                self.shorten(now)
                return now
            self.soonest = min(self._known + short, self._aged(short, lasted, now))
            marked = self._settings.marked
            self.remembers = min(self._known + marked, self._aged(marked, lasted, now))
        return max(now, min(self._known + guard, aged))

    def shorten(self, now: float) -> None:
        """End the guard: no lease counts any more that the server can have forgotten."""
        self.remembers = now
        self.soonest = inf
        self._shortened = self.run_id

    def _aged(self, least: float, lasted: float, now: float) -> float:
        """When the server has run for so long, by its uptime; no sooner than that after an earlier
        run spoke to us.
        """
        return max(now + least + 1 - lasted, self._before + least)

    def _replace(self, run: str, tenure: str, began: float, heard: float, now: float) -> None:
        """Another run answers than before, or another reign: after a restart or a promotion, or
        because the address leads to several servers.
        """
        former, back = self.run_id, False
        # A node that may fail over is another server afterwards, and its old primary goes on.
        if former and not tenure and self._address.failover is None:
            lately = now - (self._settings.guard or self._settings.keep)
            self._left = {it: until for it, until in self._left.items() if until > lately}
            back = run in self._left
            self._left[former] = now
            # (A server tells its uptime in whole seconds.)
            self.several = began + 1 < heard
        self.run_id = run
        self.reign = tenure
        self._known = now
        self._before = heard
        if back:
            # No process comes back. Clients of such an address lock on different servers.
            raise ConfigError(
                f"its address leads to several servers ({run[:8]} and {former[:8]} take turns, by their run ids): "
                "name a single server, and no load balancer before several"
            )
