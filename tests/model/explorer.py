"""Every interleaving of a small world: the shipped `Claim`, talking with nodes that are a transcription of the scripts.

What is explored. N nodes and some clients, one name. A client has one claim at a time, of the shipped class, and an ordered
connection to each node. What can happen, at any time and in any order: a client begins, gives the lock back, gives up, extends, is
woken if it wants to be; a node executes what is next on a connection; a client hears what is next; a connection breaks at the
client, and what was under way is executed later, or never; it breaks at the node, and the client learns of it later; a new
connection is made; a node restarts empty; a replica is promoted in its place, and the old primary goes on for a while with the
connections that it has; time passes. `Bounds` says how often faults and the passing of time may happen in one
history, and how much may be under way. Within that nothing is left out, and nothing is left to chance.

Time. It stands still while things happen, and passes in steps of a little more than ttl/3, in three such at once (a lease) or in
four (the guard). So any number of things happens between two deadlines, in any order, and every deadline is either ahead of all of
them or behind. What happens in one step has an order all the same: each input to a client is given a moment of its own, an instant
(1 ns) after the last one, since the gap rule asks which of two came first. Clocks are exact here. How much they may differ, and that
`quorum.bound` allows for it, is arithmetic: argued in docs/proof.md, and tested in the simulator, where clocks drift and step.

States. A history is forgotten for what it led to. Two states are one if they differ in the numbers of nodes (nodes are alike), or in
how many instants lie between inputs whose order is the same. What a claim does with an input depends on its own state only, so it
is asked once for each, and the rest is looking up.

What must hold is in `Model.look` (at every state), `_held` and `_ask` (whenever a lock is granted, or a claim has heard something);
`Model.recovers`, and the end of `search.Search.run`, say what must follow.

Knows claims, the rules by which an engine hands on what it hears, and `protocol.nodes.Node`. Must not know what a claim is made of:
whatever fields it has are taken as they are, and one whose kind is not known is refused (`_Shape`).
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from operator import attrgetter
from typing import Any, ClassVar

from protocol.nodes import Lock, Node
from protocol.rw_nodes import SHARED, RWNode, reads, twin

from holdfast.protocol.claim import Claim, State
from holdfast.protocol.command import GRANTED, RELEASE, Command
from holdfast.protocol.nodes import NodeSet, Standing
from holdfast.protocol.quorum import Quorum
from holdfast.protocol.renewal import Renewal
from holdfast.protocol.ticket import Tickets
from holdfast.protocol.timing import Timing
from holdfast.protocol.vote import Vote

TTL, PATIENCE = 9.0, 1.0  # seconds
STEP = 3.01  # seconds: by how much time passes at least. A little more than ttl/3: whatever is due by then is due.
LEASE, GUARD = 3, 4  # steps after which a lease is over, and after which a node that restarted may be used
OUTLIVES = 2  # steps for which an old primary may go on after the promotion
PROMOTED = GUARD + OUTLIVES  # steps after which a server that was promoted may be used (rule G10)
EARLIER = -2 * PROMOTED  # the step of an earlier promotion of the old primary, as the note says that stands on it at first (rule G3)
HORIZON = 5500  # K, ms: half of the guard, which is the ttl and 2 s
EPOCH = 1_700_000_000_000  # ms
INSTANT = 1e-9  # seconds between two inputs to one client, while time stands still

# A connection, as its client and its node see it: one tuple of these.
# LISTS: in which of its client's lists the node is, a bit for each; OLD: it leads to the old primary
LINE, LISTS, VOTE, PLAIN, TOUCHED, LEDGER, OUT, BACK, LATE, GHOST, UNSAID, OLD = range(12)
NOTICED, SAID_AGAIN, IDLE = range(3)  # would anybody notice an input: yes; only by a repetition, if the connection broke before it; no
DOWN, SOUND, CUT = range(3)  # LINE; cut: the node has lost it, and the client does not know yet
FRESH = (SOUND, 1, None, False, False, (), 0, (), (), False, (), False)
FORMER, NEXT, JOINT = 1, 2, 3  # the bits of a list that is changed, and both: which a node is in, and which a client knows

OTHERS, ITS = range(2)  # whose reign a note is of: the old primary's, or that of the server on which it stands


def reigns_since(note: tuple[int, int] | None, now: int) -> int:
    """Since which step a server is a primary, as clients take it that meet it now (rules G3 and G12): by the note of this reign, which
    the first of them writes."""
    return note[1] if note is not None and note[0] == ITS else now


Half = tuple[Any, ...]
Situation = tuple[int, Any, tuple[int, ...], tuple[int, ...], tuple[int, ...]]  # step, highest fence, budget, cores, columns
BREAKS, CUTS, RESTARTS, FORKS, PASSES, CANCELS, EXTENDS, DOWNGRADES = range(8)  # the budget


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """What is explored. How often, in one history: `breaks` of connections at the client, `cuts` at the node, `restarts`, and so on.

    `forks`: promotions of a replica, which has all or nothing of what its primary had; not together with `breaks` or `restarts`.

    `holds`: how many times each client wants the lock; `steps`: by how many steps time may pass at once; `skew`: seconds that each
    client's tickets are ahead; `tries`: clients that do not wait; `renew`: do holders? `busy`: with how many messages under way, at
    most, something goes wrong or time passes; `kinds`: what each client's tokens end in, of a read-write lock; `room`: how many may be
    under way to clients; `guard`, `recovery`: are they looked at?

    `change`: the list of nodes is changed. How many nodes are only in the former list, in both, and only in the next one. `knows`: which
    of them each client knows.
    """

    nodes: int = 3
    clients: int = 2
    holds: int = 1
    breaks: int = 0
    cuts: int = 0
    restarts: int = 0
    forks: int = 0
    passes: int = 0
    cancels: int = 0
    extends: int = 0
    downgrades: int = 0
    kinds: tuple[bytes, ...] = ()
    change: tuple[int, int, int] = (0, 0, 0)
    knows: tuple[int, ...] = ()
    busy: int = 99
    room: int = 99
    steps: tuple[int, ...] = (1, LEASE, GUARD)
    skew: tuple[float, ...] = ()
    tries: tuple[int, ...] = ()
    renew: bool = True
    guard: bool = True
    recovery: bool = True

    @property
    def lists(self) -> Iterator[tuple[int, ...]]:
        """For each node, in which of its lists each client has it."""
        for node in range(self.nodes):
            former, both, _ = self.change
            is_in = JOINT if not self.knows else FORMER if node < former else JOINT if node < former + both else NEXT
            yield tuple(is_in & knows for knows in self.knows or (FORMER,) * self.clients)

    @property
    def faultless(self) -> bool:
        """Does nothing go wrong, and no time pass?"""
        return not (self.breaks or self.cuts or self.restarts or self.forks or self.passes)


class Broken(Exception):
    """A law is broken. `trace`: how it came to that, one line an event."""

    def __init__(self, law: str) -> None:
        super().__init__(law)
        self.law, self.trace = law, list[str]()

    def __str__(self) -> str:
        return "\n".join([self.law, *self.trace])


# ---------------------------------------------------------------- claims as values


class Asker(Claim):
    """The shipped claim, in a world in which all clocks are right.

    Moments of earlier steps become their order, so it cannot tell for how long it has asked, and which fence would be too late for
    the clocks. None is, here. (Worlds with wrong clocks are the simulator's: `./task sim --skewed`.)
    """

    __slots__ = ()

    def latest(self, now: float) -> int:
        return 2**63


class _Shape:
    """Takes a claim apart into a value, and puts it together again.

    Most fields are taken as they are. These are not, and why.
    """

    # The same for all states of a client, or made from others.
    CONSTANT = frozenset(
        {"__weakref__", "_quorum", "_node_set", "usual", "timing", "tickets", "recipe", "_renewal._least", "_renewal._ttl"}
    )
    FOR_PEOPLE: ClassVar[Mapping[str, Any]] = {  # told to callers and observers, or kept for them
        "armed": inf, "contended": False, "dropped": False, "_freed": (), "left": 0.0,
        "news": False, "notes": (), "place": 0, "queued": True, "reason": "", "refusal": None,
        "routed": b"", "sends": [], "setback": None, "want": 0,
    }  # fmt: skip
    BY_NODE = frozenset({"votes", "as_usual", "_may_know", "_parting"})  # said of single nodes: kept with their connections
    PARTS: ClassVar[Mapping[str, type]] = {"_renewal": Renewal}  # objects of the claim's own: their fields are taken like its fields
    # Moments that are compared with others of the same step.
    ORDERED = frozenset({"_renewal._asked", "_renewal._extended", "began", "since"})
    VOTE_FOR_PEOPLE = frozenset({"denied", "error", "holder", "left", "told"})
    VOTE_ORDERED = frozenset({"last", "sent", "since"})

    def __init__(self) -> None:
        special = self.CONSTANT | self.FOR_PEOPLE.keys() | self.BY_NODE | self.PARTS.keys()
        own = {it for kind in Claim.__mro__ for it in getattr(kind, "__slots__", ())} - special
        of_parts = {f"{part}.{it}" for part, kind in self.PARTS.items() for it in kind.__slots__}  # type: ignore[attr-defined]  # (all of these classes have slots)
        self.core = sorted((own | of_parts) - self.CONSTANT)
        self.take = attrgetter(*self.core)
        self.moments = attrgetter(*sorted(self.ORDERED))
        self.vote = sorted(Vote.__annotations__.keys() - self.VOTE_FOR_PEOPLE)

    def known(self, name: str, value: object) -> Any:
        """A value of which something is known: it may be kept, compared and set again. (A tuple, while nothing is in it.)"""
        if value.__class__ in _EXACT:
            return value
        if value is None or isinstance(value, int | float | bytes | str) or hasattr(value, "name"):
            return value
        if value == ():
            return value
        raise TypeError(f"{name} = {value!r} is of a kind that the model does not know: say in _Shape what it means")


_EXACT = {int, bool, float, bytes, str, type(None)}


@functools.lru_cache(maxsize=100_000, typed=True)
def _plain(value: Any) -> Any:
    """A moment without its instants: compared only with moments of other steps."""
    return round(value, 6) if isinstance(value, float) else value


class Model:
    """The world within some bounds."""

    def __init__(self, bounds: Bounds) -> None:
        self.bounds, self.shape = bounds, _Shape()
        self.inboxes = [b"%032x" % client for client in range(bounds.clients)]
        self.node_set = NodeSet([f"node{i}" for i in range(bounds.nodes)], PATIENCE, inf, HORIZON)
        self._quorums: dict[tuple[int, ...], Quorum] = {}
        self._values: list[Any] = []  # what the numbers in states stand for: cores, halves, nodes and columns
        self._numbers: dict[Any, int] = {}
        self._done: dict[Any, Any] = {}  # what came of an input to a client
        self._local: dict[tuple[int, int], list[tuple[Any, int, int]]] = {}  # what can happen at a node, and what comes of it
        self._counted: dict[int, tuple[int, int]] = {}
        self._swapped: dict[tuple[int, int, int], int] = {}
        self.seen = Counter[str]()  # what happened, counted once for each state of what it happened to
        self._recovered: dict[Situation, int] = {}
        self._fine: set[tuple[int, int, int, int]] = set()
        self._empty: tuple[object, ...] = (b"", 0, 0, 0, 0, (), 0, 0, ()) if bounds.kinds else (b"", 0, 0, 0, 0, ())

    def quorum(self, lists: tuple[int, ...]) -> Quorum:
        """What decides for a client. `lists`: in which of its lists each node is."""
        if lists not in self._quorums:
            self._quorums[lists] = decides(lists)
        return self._quorums[lists]

    # ------------------------------------------------ numbers for values

    def _number(self, value: Any) -> int:
        number = self._numbers.get(value)
        if number is None:
            number = self._numbers[value] = len(self._values)
            self._values.append(value)
        return number

    def first(self) -> Situation:
        """Nothing has happened."""
        bounds = self.bounds
        columns = []
        for lists in bounds.lists:
            # There is no connection to a node that is in none of the client's lists.
            halves = tuple(self._number((SOUND if it else DOWN, it, *FRESH[2:])) for it in lists)
            columns.append(self._number((self._number(self._empty), -GUARD, halves, None)))
        core = self._number(("idle", 0, 0, 0))
        faults = (bounds.breaks, bounds.cuts, bounds.restarts, bounds.forks)
        budget = (*faults, bounds.passes, bounds.cancels, bounds.extends, bounds.downgrades)
        return self.ordered((0, (0, 0), budget, (core,) * bounds.clients, tuple(columns)))

    # ------------------------------------------------ what can happen

    def successors(self, state: Situation) -> Iterator[tuple[tuple[Any, ...], Situation]]:
        """Everything that can happen now, and what comes of it. The columns of what comes of it are not in order yet."""
        step, highest, budget, cores, columns = state
        values, clients = self._values, range(self.bounds.clients)
        if all(values[core][0] == "idle" and values[core][1] == self.bounds.holds for core in cores):
            return  # all have had it, or given up: nothing is left that could be wrong
        found: list[tuple[tuple[Any, ...], Situation]] = []
        coming, going = map(sum, zip(*map(self._under_way, columns), strict=True))
        calm, full = coming + going <= self.bounds.busy, coming >= self.bounds.room
        before = -1
        for node, column in enumerate(columns):
            if column == before:  # alike in all: what happens there may as well happen here
                continue
            before = column
            halves = values[column][2]
            for client in clients:
                half = values[halves[client]]
                if half[BACK]:
                    label = ("hears", client, node)
                    result, idle = self._input(state, client, label, node)
                    if idle == IDLE or (idle == SAID_AGAIN and half[LINE] == SOUND and not half[OLD] and not any(budget[:PASSES])):
                        yield label, result  # nobody would know: so let it happen now, whatever else there is to do
                        return
                    found.append((label, result))
                if half[LINE] == CUT:
                    found.append(self._event(state, "learns that it is cut", client, node))
                elif half[LINE] == SOUND:
                    if budget[BREAKS] and calm:
                        label, result = self._event(state, "breaks", client, node)
                        found.append((label, _spent(result, BREAKS)))
                elif half[LISTS] and (not self.bounds.guard or step >= values[column][1] + GUARD):
                    found.append(self._event(state, "joins", client, node))
            for label, cost, other in self._at(column, step):
                if budget[cost] and calm if cost >= 0 else not (full and "executes" in label[0]):
                    result = step, highest, budget, cores, (*columns[:node], other, *columns[node + 1 :])
                    found.append(((*label, node), _spent(result, cost) if cost >= 0 else result))
        for client in clients:
            core = values[cores[client]]
            if core[0] == "idle":
                if core[1] < self.bounds.holds:
                    found.append(self._event(state, "begins", client))
                continue
            if core[4] is State.HELD:
                found.append(self._event(state, "gives it back", client))
                if budget[EXTENDS]:
                    label, result = self._event(state, "extends", client)
                    found.append((label, _spent(result, EXTENDS)))
                if budget[DOWNGRADES] and core[7].endswith(b":w"):
                    label, result = self._event(state, "downgrades", client)
                    found.append((label, _spent(result, DOWNGRADES)))
            elif budget[CANCELS]:
                label, result = self._event(state, "gives up", client)
                found.append((label, _spent(result, CANCELS)))
            if core[5] <= step * STEP:
                label, result = self._event(state, "is woken", client)
                if result != state:
                    found.append((label, result))
        if budget[PASSES] and calm:
            for by in self.bounds.steps:
                found.append((("time passes", by), _spent(self.later(state, by), PASSES)))
        yield from found

    # ------------------------------------------------ what must follow

    def recovers(self, state: Situation) -> None:
        """P-L2: if nothing more goes wrong, whoever waits is served, in as many steps as a lease, the guard and a heartbeat last.

        Everything under way arrives, connections are made anew, holders give the lock back; time passes when nothing else is left to do.
        """
        budget = (0,) * len(state[2])
        state, path = self.ordered((*state[:2], budget, *state[3:])), list[tuple[Situation, int]]()
        while state not in self._recovered:
            after = self._goes_on(state)
            if after is None:
                self._recovered[state] = 0
                break
            path.append((state, after[0] - state[0]))
            if len(path) > 1000:
                raise Broken("recovery: it goes on for ever")
            state = self.ordered(after)
        took = self._recovered[state]
        for before, steps in reversed(path):
            took += steps
            self._recovered[before] = took
            if took > LEASE + GUARD + 2 + (OUTLIVES if self.bounds.forks else 0):
                raise Broken(f"recovery: it takes {took} steps until everybody is served")

    def _goes_on(self, state: Situation) -> Situation | None:
        """What happens next, if nothing goes wrong; None: everybody is served."""
        step, highest, budget, cores, columns = state
        values, clients = self._values, range(self.bounds.clients)
        if all(values[it][0] == "idle" for it in cores):
            return None
        for node, column in enumerate(columns):
            _, born, halves, _ = values[column]
            for client in clients:
                half = values[halves[client]]
                if half[BACK]:
                    return self._event(state, "hears", client, node)[1]
                if half[LINE] == CUT:
                    return self._event(state, "learns that it is cut", client, node)[1]
                if half[LINE] == DOWN and half[LISTS] and (not self.bounds.guard or step >= born + GUARD):
                    return self._event(state, "joins", client, node)[1]
            for _, cost, other in self._at(column, step):
                if cost < 0:
                    return step, highest, budget, cores, (*columns[:node], other, *columns[node + 1 :])
        for client in clients:
            core = values[cores[client]]
            if core[0] == "live":
                if core[5] <= step * STEP:
                    after = self._event(state, "is woken", client)[1]
                    if after != state:
                        return after
                if core[4] is State.HELD:
                    return self._event(state, "gives it back", client)[1]
        return self.later(state, 1)

    def _under_way(self, column: int) -> tuple[int, int]:
        """How many messages are under way from a node, and to it. (What will be executed late is not: it may take for ever.)"""
        counted = self._counted.get(column)
        if counted is None:
            halves = [self._values[it] for it in self._values[column][2]]
            counted = self._counted[column] = sum(len(it[BACK]) for it in halves), sum(it[OUT] for it in halves)
        return counted

    def later(self, state: Situation, by: int) -> Situation:
        """Time passes."""
        step, highest, budget, cores, columns = state
        return step + by, highest, budget, cores, columns

    # ------------------------------------------------ at a node

    def _at(self, column: int, step: int) -> list[tuple[Any, int, int]]:
        """What can happen at a node without a client's taking part: (label, what it costs, the column that comes of it)."""
        local = self._local.get((column, step))
        if local is not None:
            return local
        local = self._local[column, step] = []
        node, born, halves, old = self._values[column]
        lines = [self._values[it] for it in halves]
        for client, half in enumerate(lines):
            if half[OUT] and half[OLD]:
                assert old is not None
                if step <= old[1]:
                    after = self._executes(old[0], lines, half[LEDGER][len(half[LEDGER]) - half[OUT]], step, client)
                    local.append((("executes on the old primary", client), -1, self._column(node, born, after[1], (after[0], old[1]))))
            elif half[OUT]:
                command = half[LEDGER][len(half[LEDGER]) - half[OUT]]
                after = self._executes(node, lines, command, step, client)
                local.append((("executes", client), -1, self._column(after[0], born, after[1], old)))
            if half[GHOST]:
                if half[LATE]:
                    after = self._executes(node, lines, half[LATE][0], step, None)
                    ghost = after[1][client]
                    after[1][client] = (*ghost[:LATE], ghost[LATE][1:], *ghost[GHOST:])
                    local.append((("executes late", client), -1, self._column(after[0], born, after[1], old)))
                gone = list(lines)
                gone[client] = (*half[:LATE], (), False, *half[UNSAID:])
                local.append((("learns of the break of", client), -1, self._column(node, born, gone, old)))
            if half[LINE] == SOUND and self.bounds.cuts:
                cut = list(lines)
                cut[client] = (CUT, *half[1:OUT], 0, *half[BACK:OLD], False)
                local.append((("loses", client), CUTS, self._column(node, born, cut, old)))
        if self.bounds.restarts:
            empty = [(CUT if it[LINE] == SOUND else it[LINE], *it[1:OUT], 0, it[BACK], (), False, it[UNSAID], False) for it in lines]
            local.append((("restarts",), RESTARTS, self._column(self._number(self._empty), step, empty)))
        if old is not None:
            left = [(CUT, *it[1:OUT], 0, *it[BACK:OLD], False) if it[OLD] else it for it in lines]
            local.append((("the old primary stops",), -1, self._column(node, born, left)))
        elif self.bounds.forks:
            there = [(*it[:OLD], it[LINE] == SOUND) for it in lines]
            # A replica has the note of its primary's own promotion, too. It is about another reign.
            for what, has, note in (("nothing", self._number(self._empty), None), ("all", node, (OTHERS, EARLIER))):
                first = reigns_since(note, step) + PROMOTED - GUARD
                local.append(((f"is promoted with {what}",), FORKS, self._column(has, first, there, (node, step + OUTLIVES))))
        return local

    def _column(self, node: int, born: int, halves: Sequence[Half], old: tuple[int, int] | None = None) -> int:
        waiting = {token[17:49] for token, _ in self._values[node][5]}
        for client, half in enumerate(halves):
            if half[GHOST] and not half[LATE] and (half[LINE] == SOUND or self.inboxes[client] not in waiting):
                # The node does not know of the break yet, and it makes no difference: nothing more comes, or would be lost.
                halves = [*halves[:client], (*half[:GHOST], False, *half[UNSAID:]), *halves[client + 1 :]]
        return self._number((node, born, tuple(map(self._number, halves)), old))

    def _executes(self, node: int, lines: list[Half], command: tuple[Any, ...], step: int, asker: int | None) -> tuple[int, list[Half]]:
        """The node executes a command. `asker`: who hears the answer."""
        lines = list(lines)
        there = asker is not None and lines[asker][OLD]
        mode, token, ttl, fence = command[:4]

        def publish(kind: bytes, whose: bytes, fence: int) -> bool:
            client = self.inboxes.index(whose[17:49])
            self.seen[f"push {kind.decode()}"] += 1
            half = lines[client]
            if half[LINE] == SOUND and half[OLD] != there:
                return False
            if half[LINE] == SOUND:
                lines[client] = (*half[:BACK], (*half[BACK], (kind, whose, fence)), *half[LATE:])
            return bool(half[LINE] == SOUND or half[GHOST])

        master = (RWNode if self.bounds.kinds else Node)(publish, HORIZON)
        master.become(self._values[node])
        now = EPOCH + round(step * STEP * 1000)
        reply = master.execute(Command(None, mode, token, 0.0, ttl, fence), now)
        self.seen[f"{'late ' if asker is None else 'old ' if there else ''}{mode.decode()}"] += 1
        if asker is not None:
            half = lines[asker]
            said = tuple(reply) if isinstance(reply, list) else reply
            lines[asker] = (*half[:OUT], half[OUT] - 1, (*half[BACK], ("answer", said)), *half[LATE:])
        return self._number(master.state(now)), lines

    # ------------------------------------------------ at a client

    def _event(self, state: Situation, kind: str, client: int, node: int = -1) -> tuple[tuple[Any, ...], Situation]:
        label = (kind, client, node) if node >= 0 else (kind, client)
        return label, self._input(state, client, label, node)[0]

    def _input(self, state: Situation, client: int, label: tuple[Any, ...], node: int) -> tuple[Situation, int]:
        """What comes of an input to a client; and whether anybody would notice it."""
        step, highest, budget, cores, columns = state
        values = self._values
        halves = [values[column][2][client] for column in columns]
        if node < 0:
            order = sorted(range(len(halves)), key=halves.__getitem__)
        else:
            order = sorted(range(len(halves)), key=lambda i: (halves[i], i != node))
        key = (client, cores[client], tuple([halves[i] for i in order]), label[0], order.index(node) if node >= 0 else -1, step)
        done = self._done.get(key)
        if done is None:
            self.seen[label[0]] += 1
            done = self._done[key] = self._ask(*key)
        core, after, fence, idle = done
        if fence:
            highest = self._held(highest, fence, reads(values[core][7]))
        changed = list(columns)
        for i, half in zip(order, after, strict=True):
            if half != halves[i]:
                changed[i] = self._swap(columns[i], client, half)
        cores = (*cores[:client], core, *cores[client + 1 :])
        return (step, highest, budget, cores, tuple(changed)), idle

    def _swap(self, column: int, client: int, half: int) -> int:
        swapped = self._swapped.get((column, client, half))
        if swapped is None:
            node, born, halves, old = self._values[column]
            swapped = self._column(node, born, [self._values[it] for it in (*halves[:client], half, *halves[client + 1 :])], old)
            self._swapped[column, client, half] = swapped
        return swapped

    def _held(self, highest: tuple[int, int], fence: int, shared: bool) -> tuple[int, int]:
        """P-S2. The highest fences so far: of those that were alone, and of readers, who may have the same."""
        alone, readers = highest
        if fence <= (alone if shared else max(highest)):
            raise Broken(f"fence: {fence} is granted after {alone} and {readers}")
        return (alone, max(readers, fence)) if shared else (fence, readers)

    def _ask(self, client: int, core: int, numbers: tuple[int, ...], kind: str, node: int, step: int) -> tuple[int, list[int], int, int]:
        """Put an input to a claim, and see what it says: core and halves after it, the fence if it is held now, would anybody notice?"""
        halves = [list(self._values[it]) for it in numbers]
        engine = _Engine(self, client, self._values[core], halves, step)
        idle = engine.happens(kind, node)
        held = engine.claim is not None and engine.claim.state is State.HELD and engine.claim.fence != engine.fence
        if engine.was_late and engine.claim is not None and engine.claim.state is State.HELD and engine.claim.until > engine.now:
            raise Broken("risen: its time was up, and it holds on")
        if held and engine.claim is not None and engine.claim.until <= engine.now:
            raise Broken("late: it is granted when its time is up")
        after = engine.take_apart()
        return self._number(after), [self._number(tuple(it)) for it in halves], engine.claim.fence if held and engine.claim else 0, idle

    # ------------------------------------------------ what must hold

    def look(self, state: Situation) -> None:
        """P-S1, and that every node that counts holds the token (V). P-M1 is for the scripts: all that they keep has an expiry."""
        step, _, _, cores, columns = state
        holders, alone = 0, False
        for client, number in enumerate(cores):
            core = self._values[number]
            if core[0] == "idle":
                continue
            holds = core[4] is State.HELD and step * STEP < core[6]
            holders += holds
            alone |= holds and not reads(core[7])
            for column in columns:
                seen = client, number, column, step
                if seen not in self._fine:
                    self._counts(client, core, self._values[column], step)
                    self._fine.add(seen)
        if holders > 1 and alone:
            raise Broken("exclusion: two hold it")

    def _counts(self, client: int, core: tuple[Any, ...], column: tuple[Any, ...], step: int) -> None:
        """V, for one node. Until a server that was promoted may be used, the old primary is the node."""
        node, born, halves, old = column
        half, now = self._values[halves[client]], step * STEP
        vote = half[VOTE]
        if (half[PLAIN] and now < core[8]) if vote is None else vote[0] and now < vote[1]:
            holder, there = self._holder(node, core[7], step)
            if step < born + GUARD and self.bounds.forks:
                holder, there = (b"", True) if old is None else self._holder(old[0], core[7], step)
            if not there and (holder or step >= born + GUARD):
                raise Broken(f"counted: client {client} counts a node that has {holder.decode()!r}")

    def _holder(self, node: int, token: bytes, step: int) -> tuple[bytes, bool]:
        """Whose token is on a server, and whether that is as good as this one."""
        now = EPOCH + round(step * STEP * 1000)
        holder, until = self._values[node][:2]
        holder = holder if now <= until else b""
        if holder == SHARED:
            return holder, dict(self._values[node][8]).get(token, 0) > now
        return holder, holder == token or (reads(token) and holder == twin(token))

    def waits(self, state: Situation) -> bool:
        """Does anybody wait?"""
        return any(core[0] == "live" and core[4] is State.WAITING for core in map(self._values.__getitem__, state[3]))

    def holds(self, state: Situation) -> bool:
        """Does anybody believe to hold it?"""
        return any(core[0] == "live" and core[4] is State.HELD for core in map(self._values.__getitem__, state[3]))

    def ordered(self, state: Situation) -> Situation:
        """The same state with its nodes in order."""
        return (*state[:4], tuple(sorted(state[4])))


def decides(lists: tuple[int, ...]) -> Quorum:
    found = [[node for node, it in enumerate(lists) if it & bit] for bit in (FORMER, NEXT)]
    return Quorum(*[it for it in found if it])


def _spent(state: Situation, what: int) -> Situation:
    step, highest, budget, cores, columns = state
    return step, highest, (*budget[:what], budget[what] - 1, *budget[what + 1 :]), cores, columns


class _Engine:
    """A client while something happens to it: its claim, put together, and what an engine does between a claim and its connections."""

    def __init__(self, model: Model, client: int, core: tuple[Any, ...], halves: list[list[Any]], step: int) -> None:
        self.model, self.client, self.core, self.halves, self.step = model, client, core, halves, step
        self.tickets, self.recipe = Tickets(model.inboxes[client]), Lock("x", model.bounds.kinds[client] if model.bounds.kinds else b"")
        self.tickets._serial = core[2]
        self._timing = Timing(TTL, 0.0 if client in model.bounds.tries else None, model.bounds.renew)
        node_set = self.node_set = model.node_set
        node_set.quorum = model.quorum(tuple(it[LISTS] for it in halves))
        down = [Standing.CONNECTING if it[LISTS] else Standing.DOWN for it in halves]
        node_set.standing = [at_worst if it[LINE] == DOWN else Standing.UP for at_worst, it in zip(down, halves, strict=True)]
        node_set.up = tuple(i for i, it in enumerate(halves) if it[LINE] != DOWN)
        node_set.enough = node_set.quorum.met(node_set.up)
        self.claim: Claim | None = self._put_together() if core[0] == "live" else None
        self.was_held = self.claim is not None and self.claim.state is State.HELD
        self.fence = self.claim.fence if self.claim is not None and self.was_held else 0
        instants = [self._instant(it) for it in self._moments()]
        base = round(step * STEP, 6)
        self.now = base + INSTANT * (1 + max((k for b, k in instants if b == base), default=0))
        self.was_late = self.was_held and self.claim is not None and self.now >= self.claim.until

    # ------------------------------------------------ what happens

    def happens(self, kind: str, node: int) -> int:
        """Returns whether anybody would notice."""
        half = self.halves[node]
        if kind == "hears":
            message, half[BACK] = half[BACK][0], half[BACK][1:]
            return self._answer(node, message[1]) if message[0] == "answer" else self._push(node, *message)
        if kind == "begins":
            self._begin()
        elif kind in ("breaks", "learns that it is cut"):
            unexecuted = half[LEDGER][len(half[LEDGER]) - half[OUT] :]
            if kind == "breaks":
                half[LATE], half[GHOST] = half[LATE] + tuple(it[:4] for it in unexecuted), True
            half[UNSAID] += tuple(it[1] for it in half[LEDGER] if it[0] == RELEASE)
            half[LINE], half[LEDGER], half[OUT], half[BACK] = DOWN, (), 0, ()
            self._stands(node, Standing.CONNECTING)
            if self.claim is not None:
                self.claim.broke(node, self.now)
        elif kind == "joins":
            half[LINE] = SOUND
            self._stands(node, Standing.UP)
            unsaid, half[UNSAID] = half[UNSAID], ()
            for token in unsaid:
                self._say(node, Command(None, RELEASE, token, self.now))
            if self.claim is not None:
                self.claim.joined(node, self.now)
        else:
            assert self.claim is not None
            if kind == "is woken":
                self.claim.tick(self.now)
            elif kind == "extends":
                self.claim.extend(TTL, self.now)
            elif kind == "downgrades":
                self.claim.extend(TTL, self.now, share=True)
            else:
                self.claim.release(self.now)
        self._act()
        return NOTICED

    def _begin(self) -> None:
        bounds, number = self.model.bounds, self.core[1] + 1
        skew = bounds.skew[self.client] if bounds.skew else 0.0
        ticket = self.tickets.ticket(EPOCH / 1000 + self.step * STEP + skew) + 1000 * number + 10 * self.client
        self.core = (*self.core[:1], number, *self.core[2:])
        self.claim = Asker(self.recipe, self._timing, ticket, self.tickets, self.node_set)
        self.claim.begin(self.now)

    def _answer(self, node: int, said: Any) -> int:
        half = self.halves[node]
        (mode, token, ttl, fence, sent, owner), half[LEDGER] = half[LEDGER][0], half[LEDGER][1:]
        claim = self.claim
        if claim is None or owner != self.core[1] or token != claim.token:
            return SAID_AGAIN if mode == RELEASE else IDLE
        command = Command(claim, mode, claim.token, sent, ttl, fence)
        claim.answered(node, command, list(said) if isinstance(said, tuple) else said, self.now)
        self._act()
        return NOTICED

    def _push(self, node: int, kind: bytes, token: bytes, fence: int) -> int:
        claim = self.claim
        if claim is not None and token == claim.token:
            claim.pushed(node, kind, fence, self.now)
            self._act()
            return NOTICED
        if kind == GRANTED:  # one that nobody wants any more
            self._say(node, Command(None, RELEASE, token, self.now))
            return NOTICED
        return IDLE

    def _stands(self, node: int, standing: Any) -> None:
        self.node_set.standing[node] = standing
        self.node_set.up = tuple(i for i, it in enumerate(self.node_set.standing) if it is Standing.UP)
        self.node_set.enough = self.node_set.quorum.met(self.node_set.up)

    def _act(self) -> None:
        claim = self.claim
        if claim is not None:
            sends, claim.sends = claim.sends, []
            for nodes, command in sends:
                for node in nodes:
                    self._say(node, command)

    def _say(self, node: int, command: Command) -> None:
        half = self.halves[node]
        if half[LINE] == DOWN:
            if command.again:
                half[UNSAID] += (command.token,)
            return
        owner = 0 if command.owner is None else self.core[1]
        half[LEDGER] += ((command.mode, command.token, command.ttl, command.fence, command.sent, owner),)
        half[OUT] += half[LINE] == SOUND

    # ------------------------------------------------ a claim as a value

    def _put_together(self) -> Claim:
        shape, claim = self.model.shape, object.__new__(Asker)
        for part, kind in shape.PARTS.items():
            setattr(claim, part, object.__new__(kind))
        claim._renewal._least, claim._renewal._ttl = self.node_set.quorum.least, TTL
        for name, value in zip(shape.core, self.core[9], strict=True):
            part, dot, field_ = name.rpartition(".")
            setattr(getattr(claim, part) if dot else claim, field_, value)
        for name, value in shape.FOR_PEOPLE.items():
            setattr(claim, name, list(value) if isinstance(value, list) else value)
        claim.recipe, claim.tickets, claim._node_set, claim._quorum = self.recipe, self.tickets, self.node_set, self.node_set.quorum
        claim.timing = self._timing
        claim.usual, claim._parting, claim.routed = claim.token[:16], set(), claim.token
        claim._may_know = [i for i, it in enumerate(self.halves) if it[TOUCHED]]
        plain = self.halves[0][VOTE] is None
        claim.as_usual = [i for i, it in enumerate(self.halves) if it[PLAIN]] if plain else None
        claim.votes = []
        if not plain:
            for half in self.halves:
                vote = Vote()
                for name, value in zip(shape.vote, half[VOTE][2:], strict=True):
                    if name != "base" or value is not None:
                        setattr(vote, name, value)
                claim.votes.append(vote)
        return claim

    def take_apart(self) -> tuple[Any, ...]:
        """The core, as a value; the votes go into the halves. Moments become their order."""
        claim, shape = self.claim, self.model.shape
        if claim is None or claim.done:
            for half in self.halves:
                half[VOTE], half[PLAIN], half[TOUCHED] = None, False, False
                half[LEDGER] = tuple((*it[:4], 0.0, 0) for it in half[LEDGER])
            return ("idle", self.core[1], self.tickets._serial, 0)
        if claim.as_usual is None:
            claim.began = claim._base = 0.0  # told to the votes by now
        order = self._order()
        values = tuple(
            order.get(value, value) if name in shape.ORDERED else _plain(value)
            for name, taken in zip(shape.core, shape.take(claim), strict=True)
            for value in [shape.known(name, taken)]
        )
        for node, half in enumerate(self.halves):
            half[PLAIN], half[TOUCHED] = claim.as_usual is not None and node in claim.as_usual, node in claim._may_know
            half[LEDGER] = tuple((*it[:4], order[it[4]] if it[5] else 0.0, it[5]) for it in half[LEDGER])
            if claim.as_usual is None:
                vote = claim.votes[node]
                half[VOTE] = (
                    vote.granted and not vote.ceding,
                    _plain(vote.bound),
                    *[
                        order.get(value, value) if name in shape.VOTE_ORDERED else _plain(value)
                        for name in shape.vote
                        for value in [shape.known(name, getattr(vote, name, None))]
                    ],
                )
        wake, until, base = _plain(claim.wake), _plain(claim.until), _plain(claim._base)
        return ("live", self.core[1], self.tickets._serial, 0, claim.state, wake, until, claim.token, base, values)

    def _moments(self) -> Iterator[float]:
        """All moments whose order within a step matters."""
        for half in self.halves:
            for command in half[LEDGER]:
                if command[5]:
                    yield command[4]
        if self.claim is not None:
            yield from self.model.shape.moments(self.claim)
            for vote in self.claim.votes:
                for name in self.model.shape.VOTE_ORDERED:
                    yield getattr(vote, name)

    def _order(self) -> dict[float, float]:
        """Each moment, and what becomes of it: the instants of a step are numbered anew."""
        instants = sorted((*self._instant(it), it) for it in set(self._moments()))
        order, before, number = dict[float, float](), None, 0
        for base, k, moment in instants:
            number = (number + 1 if base == before else 1) if k else 0
            before = base
            order[moment] = base + INSTANT * number
        return order

    def _instant(self, moment: float) -> tuple[float, int]:
        if moment in (inf, -inf):
            return moment, 0
        base = round(moment, 6)
        return base, round((moment - base) / INSTANT)
