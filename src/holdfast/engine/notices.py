"""Questions to the nodes for whose answers no caller waits.

The nodes are told this client's settings and permits, and whether they write to a disk is asked.
Others ask here for clocks, and to copy again what a node has lost.

Knows what to do with each answer. Must not know claims.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from functools import partial
from math import inf

from ..protocol.joint import Some
from ..protocol.nodes import Standing
from ..protocol.query import Query
from ..wire.connection import MET
from ..wire.resp import pack
from .marks import Marks
from .recorder import Recorder
from .registry import Registry, Straggler
from .settings import Settings
from .upkeep import Upkeep, failure

# How many jobs run at a time. None of them is urgent, and other work comes first.
JOBS = 8
# Seconds after which the same job is run again, if it is still wanted.
REST = 5.0
# How many jobs have their rest remembered. Then the oldest is forgotten.
RESTING = 1000
FORGETFUL = (
    "it does not log what is written to it (appendonly no), and this client uses {} there: "
    "results and counts may be forgotten when the node restarts. "
    "Set appendonly yes, or call repair() after each restart and before the next."
)

# What is called with a query that is over, and with the time; and what sends one, and says so then.
Then = Callable[[Query, float], None]
Ask = Callable[[Query, Then, float], None]
# A job: it yields what to ask which node, and is sent the query when it is over.
Job = Generator[Mapping[int, bytes], Query, object]


class Notices:
    """The questions of one client that no caller waits for.

    Args:
        settings: The client's.
        registry: Knows the other clients of the nodes.
        upkeep: Its connections.
        record: Warns.
        ask: Sends a query. Calls something with it, and with the time, when it is over.

    Attributes:
        due: When to call `tick` next.
        eager: Whether there is something to say along with the next request.
        marks: Whether some client may use a long ttl.
        lasting: What this client keeps that should outlive a restart, such as "once". Empty:
            nothing.
        registers: Whether this client notes its settings on the nodes. A client that only looks
            does not.
    """

    def __init__(self, settings: Settings, registry: Registry, upkeep: Upkeep, record: Recorder, ask: Ask) -> None:
        self._patience = settings.node_timeout
        self._registry = registry
        self._connections = upkeep.connections
        self._node_set = upkeep.node_set
        self._record = record
        self._ask = ask
        self.marks = Marks(settings, upkeep, ask, self._plan)
        self.due = inf
        self.eager = False
        self.registers = True
        self._running = 0
        # By what a job is about: until when no such job is run again.
        self._rests: dict[bytes, float] = {}
        # When nodes are to be asked whether they write to a disk.
        self._examine_due = inf
        # The run of each node's server that was asked.
        self._examined: dict[int, str] = {}
        self.lasting = ""

    def ask(self, asks: Mapping[int, bytes], then: Then, now: float) -> None:
        """Ask nodes something.

        Args:
            asks: The bytes for each node.
            then: Is called with the query when it is over, and with the time.
            now: The time.
        """
        self._ask(Query(asks, self._node_set, deadline=now + self._patience), then, now)

    def tick(self, now: float) -> None:
        """Ask what is due."""
        if self._registry.due <= now:
            self._register(now)
        if self._examine_due <= now:
            self._examine(now)
        if self.marks.due <= now:
            self.marks.tick(now)
        self._plan()

    def _plan(self) -> None:
        self.due = min(self._registry.due, self._examine_due, self.marks.due)
        self.eager = bool(self._registry.fresh or self._registry.permits)

    # ------------------------------------------------ jobs

    def run(self, about: bytes, job: Job, now: float) -> None:
        """Ask nodes something, one query after the other.

        Does nothing if the same was asked just before, or if `JOBS` are at work.

        Args:
            about: What it is about: the same job is run again after `REST` seconds at the earliest.
            job: Yields what to ask which node, and is sent the query when it is over. What it
                raises ends it, and nothing else.
            now: The time.
        """
        if self._running >= JOBS or now < self._rests.get(about, -inf):
            return
        self._rests.pop(about, None)
        self._rests[about] = now + REST
        if len(self._rests) > RESTING:
            del self._rests[next(iter(self._rests))]
        self._running += 1
        self._further(job, None, now)

    def _further(self, job: Job, told: Query | None, now: float) -> None:
        """Take a job's next step."""
        try:
            asks = next(job) if told is None else job.send(told)
        except Exception as error:
            self._running -= 1
            if not isinstance(error, StopIteration):
                # No lease depends on a job.
                self._record.warn(self._node_set.labels[0], str(failure(error)), now, "bug")
        else:
            self.ask(asks, partial(self._further, job), now)

    # ------------------------------------------------ whether nodes write to a disk

    def keeps(self, what: str, now: float) -> None:
        """Note that this client keeps something on the nodes that should outlive a restart.

        Args:
            what: What uses it, such as "once".
            now: The time.
        """
        if not self.lasting:
            self.lasting = what
            self.examine_soon(now)

    def examine_soon(self, now: float) -> None:
        """Ask the nodes whether they write to a disk, if this client keeps something there."""
        if self.lasting:
            # Not at once: what this client is about to do comes first.
            self._examine_due = min(self._examine_due, now + self._patience)
            self._plan()

    def _examine(self, now: float) -> None:
        """Ask that of the nodes, once in each run of their servers."""
        self._examine_due = inf
        runs = [it.server.run_id for it in self._connections]
        nodes = [node for node in self._node_set.up if self._examined.get(node) != runs[node]]
        if nodes:
            self.run(b"persistence", self._persistence(nodes, now), now)

    def _persistence(self, nodes: Sequence[int], now: float) -> Job:
        seen = yield dict.fromkeys(nodes, pack(b"INFO", b"persistence"))
        for node, told in seen.answers.items():
            self._examined[node] = self._connections[node].server.run_id
            text = told if isinstance(told, str) else told.decode("utf-8", "replace") if isinstance(told, bytes) else ""
            if "aof_enabled:0" in text.split():
                self._record.warn(self._node_set.labels[node], FORGETFUL.format(self.lasting), now, "persistence")
        return None

    # ------------------------------------------------ this client and others

    def up(self, node: int, due: float) -> None:
        """Note the settings on a node that is connected, at `due` or with the first use."""
        self.marks.up(due)
        if self.registers:
            self._registry.up(node, due)
            self._plan()

    def wanted(self, slots: Some, now: float) -> None:
        """Note the permits of a semaphore along with its next request, unless they were lately."""
        self._registry.wanted(slots, now)
        self._plan()

    def along(self, now: float) -> None:
        """Say what is to be said along with a request: permits, and the settings at first use."""
        for slots, data in self._registry.sizes():
            self.ask(dict.fromkeys(range(len(self._connections)), data), partial(self._told, slots), now)
        if self._registry.fresh:
            self._registry.used(now)
            self._register(now)
        self._plan()

    def seen(self, node: int, now: float) -> tuple[tuple[Straggler, ...] | None, tuple[str, ...]]:
        """Return the stragglers that a node has told of, or None, and how other clients differ."""
        return self._registry.seen(node, now)

    def end(self) -> None:
        """Note nothing any more, because the client is closed."""
        self._registry.end()
        self._plan()

    def _register(self, now: float) -> None:
        """Note this client's settings on the nodes on which that is due."""
        dialled = Standing.CONNECTING in self._node_set.standing
        runs = [it.server.run_id if it.state in MET and not dialled else "" for it in self._connections]
        if asked := self._registry.questions(runs, self._node_set.up, now):
            self.ask(asked, partial(self._told, None), now)

    def _told(self, slots: Some | None, query: Query, now: float) -> None:
        """Warn of other clients whose settings or permits differ."""
        lasted = {it.server.run_id: now - it.server.started for it in self._connections if it.state in MET}
        for node, kind, warning in self._registry.told(query, slots, lasted, now):
            self._record.warn(self._node_set.labels[node], warning, now, kind, warning)
