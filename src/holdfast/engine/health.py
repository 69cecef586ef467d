"""What a client knows of its nodes: how each stands, its clock, and what is dangerous about it.

Knows connections, and the words for the state of a node. Must not know claims or queries: their
owner is told of every node that stands differently from before.

Other threads look in while the thread of the engine works: by `status`, `servers`, `readiness` and
`met`. Such a method must read each value once, and judge only what it has read.
"""

from collections.abc import Callable, Mapping
from math import inf

from .. import events
from ..errors import ConfigError
from ..protocol.command import Command
from ..protocol.nodes import Standing, too_few, unusable
from ..protocol.query import Query
from ..wire.connection import MET, Connection, ConnectionState
from ..wire.handshake import clustered, replicas
from ..wire.resp import pack
from .notices import Notices
from .recorder import Recorder
from .settings import SLACK, Settings
from .status import EFFICIENT, SAFE, UNPROVEN, NodeStatus, majorities
from .upkeep import UP, Upkeep, attempt

# Seconds for which the measure of a node's clock is exact: no two clocks drift apart by much in a
# minute.
RECENT = 60.0
# Seconds after which a client that is in use asks the nodes for their clocks again.
RECHECK = 1200.0

Moved = Callable[[float, float], None]
Stands = Callable[[int, Standing, str, float, bool], None]
REPLACED = "its server is new to clients of this node, and does not know which leases an earlier one granted"
STARTED = "it started lately and may have forgotten leases"
PROMOTED = "it was a replica, was promoted lately, and may lack leases that its old primary granted"


class Health:
    """The health of a client's nodes.

    Args:
        settings: The client's.
        upkeep: Its connections. This class keeps its node set.
        notices: Ask the nodes for their clocks again, and know other clients.
        record: Has the client's own clock, events and warnings.
        moved: Is called with the seconds by which the clock of tickets has turned out to be wrong,
            and the time.
        stands: Is told of a node that stands differently: the node, its standing and its state
            before, the time, and whether its server may lack leases that are still held.

    Attributes:
        ahead: The clock of tickets, less `now`. None: our own clock, because no node has told its
            own.
        recheck: When to ask the nodes for their clocks again.
    """

    def __init__(
        self, settings: Settings, upkeep: Upkeep, notices: Notices, record: Recorder, moved: Moved, stands: Stands
    ) -> None:
        self._settings = settings
        self._upkeep = upkeep
        self._connections = upkeep.connections
        self._node_set = upkeep.node_set
        self._notices = notices
        self._record = record
        self._moved = moved
        self._stands = stands
        # The state of each node that observers have heard of.
        self._told = [""] * len(self._connections)
        # Since when each node cannot be used, as far as observers and the log were told.
        self._fell = [inf] * len(self._connections)
        # By the run of a server: its node, and when this last heard from it. inf: it is connected.
        self._runs: dict[str, tuple[int, float]] = {}
        # The run of each node's server when it was up last.
        self._served: dict[int, str] = {}
        # By run id: whether that run of a server was repaired.
        self._repaired: dict[str, bool] = {}
        self.ahead: float | None = None
        self.recheck = inf
        # Seconds by which the clock of a node may be off.
        self._far_off = settings.horizon / 2000
        # Whether the nodes are being asked for their clocks, and when that was begun last.
        self._asking = False
        self._asked = -inf

    # ------------------------------------------------ for callers

    def status(self, now: float) -> tuple[NodeStatus, ...]:
        """Return the state of the nodes, in the order of their addresses."""
        node_set = self._node_set
        seen = [self._notices.seen(node, now) for node in range(len(self._connections))]
        return tuple(
            NodeStatus(
                node=connection.address.label,
                state=node_set.states[i],
                cause=node_set.cause(i, now),
                version=_software(connection.server.facts),
                run_id=connection.server.run_id,
                ahead=None if connection.server.ahead is None else connection.server.ahead - self._record.epoch,
                shard=self._settings.shard,
                stragglers=seen[i][0],
                repaired=self._repaired.get(connection.server.run_id),
                guard_left=max(0.0, node_set.free[i] - now) if node_set.standing[i] is Standing.GUARDED else None,
                since=max(0.0, now - node_set.since[i]),
                uptime=now - connection.server.started if connection.state in MET else None,
                rtt=connection.rtt if connection.answered else None,
                answered=connection.answered,
                owing=len(connection.ledger),
                warnings=self._record.kinds_of(connection.address.label),
                guarantee=_guarantee(connection),
                differences=seen[i][1],
                lists=self._settings.lists_of(i),
            )
            for i, connection in enumerate(self._connections)
        )

    def verdict(self, waited: float, now: float) -> Exception | None:
        """Return why these nodes cannot be used, or None if they can.

        A ConfigError does not get better by waiting.
        """
        causes = {
            label: cause
            for i, label in enumerate(self._node_set.labels)
            if (cause := self._node_set.cause(i, now)) is not None
        }
        if wrong := {label: cause for label, cause in causes.items() if isinstance(cause, ConfigError)}:
            return unusable(wrong)
        node_set = self._node_set
        if node_set.quorum.met([i for i, it in enumerate(node_set.states) if it == "up"]):
            return None
        return too_few("a majority of the nodes", waited, causes, node_set.quorum, "reach", now - node_set.dark)

    def readiness(self, waited: float, wait: float, now: float) -> tuple[NodeStatus, ...] | None:
        """Decide for a caller that waits until the nodes can be used.

        Args:
            waited: Seconds that it has waited.
            wait: Seconds that it waits at most.
            now: The time.

        Returns:
            The state of the nodes. None: it waits on, and asks again when there is news, or soon.

        Raises:
            ConfigError: What is wrong does not get better by waiting.
            NoQuorum: A majority cannot be used, and the time is over.
        """
        late = waited >= wait
        wrong = self.verdict(waited, now)
        if wrong is not None and (late or isinstance(wrong, ConfigError)):
            raise wrong
        # Other threads ask while nodes come and go. So the state is read last, and judged by
        # itself.
        status = self.status(now)
        usable = majorities(status)[0].spare >= 0 and all(it.state != "connecting" for it in status)
        return status if late or usable else None

    def met(self, waited: float, within: float, now: float) -> bool:
        """Decide for a caller that waits until it is known which servers these nodes are.

        Args:
            waited: Seconds that it has waited.
            within: Seconds that it waits at most. Nodes that are being dialled are waited for
                `node_timeout` at most.
            now: The time.

        Returns:
            True if it is known. False: it waits on, and asks again when there is news, or soon.

        Raises:
            ConfigError: A node cannot be used, and the time is over.
            NoQuorum: A majority cannot be reached, and the time is over.
        """
        if self.acquainted(min(within, self._settings.node_timeout) - waited):
            return True
        if waited >= within and (wrong := self.verdict(waited, now)) is not None:
            raise wrong
        return False

    def servers(self) -> frozenset[str]:
        """Return the runs of the servers that the connections are connected to, by run id."""
        return frozenset(it.server.run_id for it in self._connections if it.state in MET)

    def acquainted(self, left: float) -> bool:
        """Return whether it is known which servers these nodes are.

        A majority must have said so. While time is left, nodes that are being dialled must have,
        too.
        """
        undecided = Standing.CONNECTING in self._node_set.standing and left > 0
        return not undecided and len(self.servers()) >= self._node_set.quorum.least

    def repaired(self, runs: Mapping[str, bool]) -> None:
        """Note of these runs of servers, by run id, whether they have been repaired."""
        self._repaired.update(runs)

    # ------------------------------------------------ what connections have become

    def introduced(self, connection: Connection[Command], now: float) -> None:
        """Judge a connection that has learned which server it speaks to.

        It is bad afterwards if the server cannot be used.
        """
        twin = self._twin(connection, now)
        if twin is not None:
            connection.bad = ConfigError(
                f"it is the same server as {twin.address.label}: a majority of one server means nothing"
            )
            return
        self._runs[connection.server.run_id] = connection.node, inf
        self._look_over(connection, now)
        self._compare_clocks(now)
        self.recheck = min(self.recheck, now + RECHECK)
        self._judge_clocks(now, connection)

    def fell(self, connection: Connection[Command], now: float, cause: Exception) -> None:
        """Note that a connection has ended."""
        if self._runs.get(connection.server.run_id) == (connection.node, inf):
            self._runs[connection.server.run_id] = connection.node, connection.heard
        self.stands(connection, now, cause)
        self._compare_clocks(now)

    def stands(self, connection: Connection[Command], now: float, cause: Exception | None = None) -> None:
        """Note how a node stands after something has happened to its connection.

        If that is new, tell observers, and the owner of the claims.
        """
        node, node_set = connection.node, self._node_set
        before = node_set.standing[node]
        if connection.state is ConnectionState.LOADING:
            # As before, until it has taken the scripts.
            return
        if connection.state is UP:
            standing = Standing.UP
        elif connection.state is ConnectionState.GUARDED:
            standing = Standing.GUARDED
        else:
            standing = Standing.CONNECTING if not connection.fails else Standing.DOWN
        if standing is Standing.GUARDED:
            self._notices.marks.guarded(connection)
            cause = ConnectionError(told) if (told := _guarded(connection)) else None
        elif standing is Standing.DOWN:
            cause = cause or node_set.causes[node]
        else:
            cause = connection.refusal if standing is Standing.UP else None
        state = node_set.states[node]
        node_set.note(node, standing, now, cause, connection.wake, now - connection.server.uptime)
        if node_set.states[node] == state:
            return
        self._note_state(connection, node_set.states[node], now)
        risen = standing is Standing.UP and before is not Standing.UP
        self._stands(node, before, state, now, risen and self._forgetful(connection))

    def _note_state(self, connection: Connection[Command], state: str, now: float) -> None:
        """Tell observers and the log of a node's state, if it is new to them."""
        # While a node is down, the reason may change at each attempt to connect.
        news = "down" if state == "unfit" else state
        if news in ("connecting", self._told[connection.node]):
            return
        self._told[connection.node] = news
        at = self._record.at(now)
        label = connection.address.label
        fell = self._fell[connection.node]
        self._fell[connection.node] = inf if news in ("up", "guarded") else min(fell, now)
        down = max(0.0, now - fell)
        if news == "up":
            self._record.note(events.NodeEvent(at=at, node=label, state="up", down=down))
            self._notices.examine_soon(now)
        elif news == "guarded":
            why = _guarded(connection) or STARTED + self._node_set.hint
            left = connection.wake - now
            self._record.note(events.NodeEvent(at=at, node=label, state="guarded", left=left, cause=why, down=down))
        else:
            cause = self._node_set.causes[connection.node] or ConnectionError("no connection")
            event = events.NodeEvent(at=at, node=label, state="down", cause=cause)
            self._record.note(event.replace(state="refuses") if news == "refusing" else event)

    def _forgetful(self, connection: Connection[Command]) -> bool:
        """Return whether a node that is up again may lack leases that are still held.

        Its server is another run than before, and there is no guard, which would have outlasted
        them.
        """
        server = connection.server
        before = self._served.get(connection.node, server.run_id)
        self._served[connection.node] = server.run_id
        return before != server.run_id and self._settings.guard is None

    def _twin(self, connection: Connection[Command], now: float) -> Connection[Command] | None:
        """Return another connection that may have votes of the server that this connection has met,
        or None.

        Votes outlive a connection by a lease at most.
        """
        lately = now - self._settings.max_ttl - SLACK
        self._runs = {run_id: it for run_id, it in self._runs.items() if it[1] > lately}
        node, _ = self._runs.get(connection.server.run_id, (connection.node, inf))
        return None if node == connection.node else self._connections[node]

    def _look_over(self, connection: Connection[Command], now: float) -> None:
        """Warn of what works on this node, and is dangerous."""
        for about, warning in self._dangers(connection).items():
            topic = warning if about == "eviction" else None
            self._record.warn(connection.address.label, warning, now, about, topic)

    def _dangers(self, connection: Connection[Command]) -> dict[str, str]:
        """Return the dangers of this node: by what each is about, how the user can end it."""
        server, found = connection.server, dict[str, str]()
        policy = server.facts.get("maxmemory_policy", "noeviction")
        if policy != "noeviction":
            found["eviction"] = (
                f"its maxmemory-policy is {policy}: it may evict locks that are held. Set maxmemory-policy noeviction."
            )
        if connection.address.tls is not None and not connection.address.tls.verify:
            found["tls"] = (
                "nobody verifies its certificate (ssl_cert_reqs=none), so others can pose as it. Name its "
                "authority: ssl_ca_certs."
            )
        if server.stranger:
            found["product"] = (
                f"its server is {server.stranger}, which is neither Redis nor Valkey. It is used because its "
                "address says unproven, but nobody has shown that locks are safe on it. Examine it: python -m "
                "holdfast.testing.conformance URL."
            )
        if server.several:
            found["several servers"] = (
                "another server answers at its address than before, and it was running already while the former one "
                "answered. If the address leads to several servers, clients lock on different ones, and two can "
                "hold the same lock: name a single server."
            )
        # A failover could give a lock of this node to a second client.
        if server.unbounded:
            found["replicas"] = _unbounded(replicas(server.facts), self._settings.guard)
        # Where the place can be asked for, clients do not depend on what the server does.
        stops = connection.address.moves or clustered(server.facts) or "min_slaves_good_slaves" in server.facts
        if connection.address.failover and not stops:
            found["failover"] = (
                f"its address says failover={connection.address.failover:g}, but the server goes on granting locks "
                "without replicas. Set min-replicas-to-write to the number of its replicas, and min-replicas-max-lag "
                "to at most those seconds."
            )
        return found

    # ------------------------------------------------ clocks

    @property
    def clock(self) -> float:
        """The clock that tickets are taken from, less `now`."""
        return self._record.epoch if self.ahead is None else self.ahead

    def _compare_clocks(self, now: float) -> None:
        """Warn of nodes whose clocks are far from what most of them say.

        If they cannot outvote one another, the client's own clock decides.
        """
        asked = [it for it in self._connections if self._node_set.standing[it.node] is not Standing.DOWN]
        if any(it.server.ahead is None for it in asked):
            # Nodes that have not told their time may turn those that seem to be wrong into the
            # majority.
            return
        ours = self._record.epoch
        told = [(it.address.label, it.server.ahead) for it in self._connections if it.server.ahead is not None]
        voices = sorted([it for _, it in told] + [ours] * (1 - len(told) % 2))
        right = voices[len(voices) // 2] if len(told) > 1 else ours
        for label, ahead in told:
            if abs(ahead - right) > self._far_off:
                danger = "it is not used" if len(self._connections) > 1 else "after a restart, fences may repeat"
                warning = f"its clock is {_off(ahead - right, len(told) > 1)}: {danger}. Set it (NTP)."
                self._record.warn(label, warning, now, "clock")

    def _judge_clocks(self, now: float, new: Connection[Command] | None = None) -> None:
        """Find the time by most clocks. A node whose clock is far from it is not used.

        Its fences would be far from all others'.

        Each node has a voice. If a node has not told its time, our own clock has the voice, and if
        the number of nodes is even, our own clock has one more. So no minority of nodes decides,
        and once a majority has told its time, neither does our own clock. A node that is alone is
        always right.

        Args:
            now: The time.
            new: The connection that is just being introduced. Its caller hangs it up.
        """
        told = [(it.server.ahead, it.server.blur) for it in self._connections if it.server.ahead is not None]
        size, ours = len(self._connections), (self._record.epoch, 0.0)
        voices = sorted([*told, *[ours] * (size - len(told) + (size % 2 == 0))])
        right, blur = voices[len(voices) // 2]
        # Each process of one machine would be wrong by as long as its greeting took, and the queue
        # would not be in order. So tickets are taken from our own clock if what the nodes say
        # leaves room for it.
        before = self.clock
        self.ahead = self._record.epoch if abs(right - self._record.epoch) <= blur else right
        old = [it for it in self._connections if it.state is UP and it.server.measured < now - RECENT]
        for connection in self._connections:
            if connection.server.ahead is None or connection.state not in MET:
                continue
            if abs(off := connection.server.ahead - right) <= self._far_off:
                continue
            # Our own clock runs at another rate than theirs. So old measures prove nothing, and are
            # taken again first.
            if old:
                self.check_clocks(now)
            if connection in old:
                continue
            cause = ConnectionError(f"not used: its clock is {_off(off, 2 * len(told) > size)}. Set it (NTP).")
            if connection is new:
                connection.bad = cause
            else:
                self._upkeep.lost(connection.node, now, cause)
        if abs(self.ahead - before) > self._far_off:
            self._moved(self.ahead - before, now)

    def check_clocks(self, now: float) -> None:
        """Ask the nodes for their clocks again, because they may have been set meanwhile."""
        if not self._asking and now >= self._asked + self._upkeep.patience:
            self._asking = True
            self._asked = now
            self.recheck = now + RECHECK
            self._notices.ask(dict.fromkeys(self._node_set.up, pack(b"TIME")), self._clocks_told, now)

    def _clocks_told(self, query: Query, now: float) -> None:
        """Take in the clocks that the nodes have told again.

        What a connection measured when it connected is more exact, unless it is wrong by now.
        """
        self._asking = False
        for node, reply in query.answers.items():
            connection = self._connections[node]
            attempt(connection, connection.server.told_time, None, reply, query.began, now)
        self._judge_clocks(now)


def _guarded(connection: Connection[Command]) -> str:
    """Return why the guard of a node began. Empty: its server restarted."""
    return PROMOTED if connection.server.promoted else REPLACED if connection.server.replaced else ""


def _guarantee(connection: Connection[Command]) -> str:
    """What `NodeStatus.guarantee` says of the node of a connection."""
    if connection.server.stranger:
        return UNPROVEN
    return EFFICIENT if connection.server.unbounded else SAFE


def _unbounded(count: int, guard: float | None) -> str:
    """Return the warning of a node that has replicas, or was promoted, and no `failover`."""
    cost = (
        "no client waits for them to end"
        if guard is None
        else f"clients leave the promoted server alone for {guard:g} s"
    )
    failed = (
        f"it has replicas ({count}). If one is promoted in its place, the locks that it had not received are "
        f"forgotten, and {cost}."
        if count
        else "it was a replica, and was promoted."
    )
    return (
        f"{failed} As long as the old primary goes on, two clients can hold the same lock: this node is "
        f"{EFFICIENT}. Say in its address for how many seconds an old primary can go on, such as ?failover=15 "
        "(0: not at all), or use primaries without replicas."
    )


def _software(facts: dict[str, str]) -> str:
    """Return what a server says it is, like "valkey 9.1.2". Empty until it has said so."""
    if version := facts.get("valkey_version"):
        return f"valkey {version}"
    return f"redis {facts['redis_version']}" if "redis_version" in facts else ""


def _off(seconds: float, known: bool) -> str:
    """Return by how much a clock is off. `known`: most nodes have told theirs."""
    word = "ahead of" if seconds > 0 else "behind"
    others = "what most nodes say" if known else "this machine's, and no other node tells which of them is wrong"
    return f"{abs(seconds):.0f} s {word} {others}"
