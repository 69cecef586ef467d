"""The marks of the nodes: whether some client may use a long ttl (rules G14 and G15).

A server that has restarted may have forgotten leases. Most clients use no ttl above `UNMARKED`. A
client that does says so on a majority of the nodes first, and again for as long as it lives. So a
majority of the other nodes can tell for how long a restarted one has to be left alone.

Knows what a mark is, and when a guard may end early. Must not know claims: it calls those that wait
for the mark.
"""

from collections.abc import Callable, Mapping
from math import inf

from ..errors import ConfigError
from ..protocol.command import Command
from ..protocol.query import Query
from ..protocol.quorum import UNMARKED
from ..wire.connection import Connection, ConnectionState
from ..wire.resp import pack
from .settings import SLACK, Settings
from .upkeep import UP, Upkeep, attempt

MARK = b"{holdfast}:mark"
# Seconds until nodes are asked again whether a guard may end.
AGAIN = 1.0
REFUSED = (
    "a ttl above {:g} s needs a note on the nodes, and they refuse to take it: let this user use the key {}"
)

Then = Callable[[float], object]
Ask = Callable[[Query, Callable[[Query, float], None], float], None]


class Marks:
    """What one client says and asks of marks.

    Args:
        settings: The client's.
        upkeep: Its connections.
        ask: Sends a query. Calls something with it, and with the time, when it is over.
        plan: Is called when `due` has changed.

    Attributes:
        due: When to call `tick` next.
        permitted: Is called with the time when grants may count for the whole of a long ttl, and
            could not just before.
        refusal: Why no lock can have a long ttl here.
    """

    def __init__(self, settings: Settings, upkeep: Upkeep, ask: Ask, plan: Callable[[], None]) -> None:
        self._settings = settings
        self._upkeep = upkeep
        self._connections = upkeep.connections
        self._node_set = upkeep.node_set
        self._ask = ask
        self._plan = plan
        # Seconds for which an answer counts: more would be too late (rule G14).
        self._patience = min(settings.node_timeout, SLACK)
        # Nobody has told the nodes so far.
        self._node_set.permitted = -inf
        self.permitted: Then = lambda now: None
        self.refusal: ConfigError | None = None
        # Callers that wait until a majority has the mark, and until when at most.
        self._waiting: list[tuple[float, Then]] = []
        self._writing = False
        # Whether this client has used a long ttl.
        self._needed = False
        # When to write the mark again, and when to ask for the marks of others.
        self._write_due = inf
        self._read_due = inf
        self.due = inf

    def tick(self, now: float) -> None:
        """Do what is due."""
        if self._write_due <= now:
            self._write(now)
        if self._read_due <= now:
            self._read(now)
        self.flush(now, now)
        self._planned()

    def _planned(self) -> None:
        self.due = min(self._write_due, self._read_due, *(until for until, _ in self._waiting))
        self._plan()

    # ------------------------------------------------ a client that uses a long ttl

    def missing(self, now: float) -> bool:
        """Return whether the nodes have to be told before a long ttl is used."""
        return now >= self._node_set.permitted

    def first(self, then: Then, now: float, until: float = inf) -> None:
        """Call this when a majority has the mark, or has not taken it in time.

        Args:
            then: What to call.
            now: The time.
            until: When to call it at the latest.
        """
        self._needed = True
        self._waiting.append((until, then))
        if not self._writing:
            self._write(now)
        self._planned()

    def up(self, now: float) -> None:
        """Write the mark on nodes that are up again, if this client needs it."""
        if self._needed and not self._writing and self._write_due == inf:
            self._write_due = now
            self._planned()

    def flush(self, now: float, until: float = inf) -> None:
        """Call all that wait until then at most."""
        ready = [then for latest, then in self._waiting if latest <= until]
        self._waiting = [it for it in self._waiting if it[0] > until]
        for then in ready:
            then(now)

    def _write(self, now: float) -> None:
        self._writing = True
        self._write_due = inf
        lasts = b"%d" % (self._settings.mark_lasts * 1000)
        mark = pack(b"SET", MARK, b"1", b"PX", lasts)
        self._ask(self._query(dict.fromkeys(range(self._node_set.size), mark), now), self._written, now)

    def _written(self, query: Query, now: float) -> None:
        """See whether a majority has taken the mark in time.

        A node that answered long ago may have restarted and lost it before the last one answered.
        """
        self._writing = False
        longest = self._settings.max_ttl
        able = [it for it in range(self._node_set.size) if not str(query.causes.get(it)).startswith("NOPERM")]
        hopeless = not self._node_set.quorum.met(able)
        self.refusal = ConfigError(REFUSED.format(UNMARKED, MARK.decode())) if hopeless else None
        good = query.sufficient and now - query.began <= SLACK
        begins = good and now >= self._node_set.permitted
        if good:
            self._node_set.permitted = query.began + longest / 2
        # Without a node there is nobody to tell. The next one that is up will be told.
        pause = longest / 6 if good else self._patience
        self._write_due = now + pause if self._node_set.up else inf
        self._planned()
        self.flush(now)
        if begins:
            self.permitted(now)

    # ------------------------------------------------ a guard that may end early

    def guarded(self, connection: Connection[Command]) -> None:
        """Ask for marks when the guard of this node may end."""
        if connection.server.soonest < self._read_due:
            self._read_due = connection.server.soonest
            self._planned()

    def _read(self, now: float) -> None:
        """Ask nodes that cannot have lost a mark, if they are a majority."""
        guarded = [it.server.soonest for it in self._connections if it.state is ConnectionState.GUARDED]
        self._read_due = min((it if it > now else now + AGAIN for it in guarded if it < inf), default=inf)
        sure = [it.node for it in self._connections if it.state is UP and it.server.remembers <= now]
        if self._node_set.quorum.met(sure) and any(it <= now for it in guarded):
            asks = dict.fromkeys(sure, pack(b"GET", MARK))
            self._ask(self._query(asks, now), self._told, now)

    def _told(self, query: Query, now: float) -> None:
        """End guards if no node that was asked has a mark."""
        if not query.sufficient or any(it is not None for it in query.answers.values()):
            return
        for connection in self._connections:
            # A node that was not due when the others were asked may have restarted since.
            if connection.state is ConnectionState.GUARDED and connection.server.soonest <= query.began:
                self._shorten(connection, now)
        self._upkeep.open_free(now)

    def _shorten(self, connection: Connection[Command], now: float) -> None:
        """End a guard, if no later fence can be below one that the node has forgotten (rule F12).

        The node's clock floor is above all of those only after the whole guard. Until then, new
        fences are. They are then further ahead of the clocks than usual, and must not be so by K.
        """
        horizon, short = self._settings.horizon / 1000, self._settings.short_guard
        server = connection.server
        assert server.ahead is not None and short is not None
        floor = now + server.ahead + server.blur - short + 1.5 * horizon
        servers = [it.server for it in self._connections]
        clocks = [now + it.ahead - it.blur for it in servers if it.ahead is not None]
        if len(clocks) == self._node_set.size and floor < min(clocks) + horizon:
            self._node_set.floor = max(self._node_set.floor, int(floor * 1e6))
            attempt(connection, connection.shorten, None, now)

    # ------------------------------------------------ within

    def _query(self, asks: Mapping[int, bytes], now: float) -> Query:
        """Make a query that is over when a majority has answered."""
        return Query(asks, self._node_set, deadline=now + self._patience, enough=self._node_set.quorum.met)
