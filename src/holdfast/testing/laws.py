"""What must hold, whatever happens: watched at every event, with what no client can see.

Knows the protocol's promises (P-S1 and so on), claims, and the truth about the nodes. Must not know
which faults there are, but for the hands of operators, who may take away what is held.

While an operator's hands are at work, another may be granted the lock before its holder can know:
this the laws excuse, and want it noticed as soon as every node has spoken since.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any

from ..errors import ConfigError, NoQuorum
from ..protocol import quorum
from ..protocol.claim import Claim, State
from ..protocol.command import READER, WRITER
from ..protocol.joint import JointRequest
from ..protocol.readwrite import rw_keys_of
from ..protocol.ticket import kind_of
from ..scripts import ADOPT, RELEASE, REQUEST, RETIRE, RW_RELEASE, RW_REQUEST
from ..wire.connection import Connection, ConnectionState
from .client import SimulatedClient
from .network import Node, SimulatedConnection
from .values import SortedSet
from .windows import Fences, HeldWindow
from .world import Violation, World

LAWS = {
    "exclusion": "P-S1: no name is granted while it is held, by the one true clock; only readers hold it together",
    "fence": "P-S2: for a name, each grant's fence is greater than the one before it, unless it adopts that lease; a "
    "reader's is above all writers'",
    "counted": "P-V: a node that a client counts holds its token",
    "majority": "nobody else can get a name that is held: without its holder's nodes, no majority is left",
    "gap": "when a majority has lost the token, its holder knows as soon as every node has spoken since",
    "unfounded": "a lease is lost to a gap only if a node that had its token has really lost it, or its fence record",
    "silent": "a holder whose time is up hears of it at that moment",
    "risen": "a lease or a wait that was lost, released or refused stays so",
    "zombie": "no node is asked for a token that was given back, lost or cancelled",
    "max_hold": "no lease lasts longer than its max_hold",
    "no expiry": "P-M1: every key on every node has an expiry, at every moment",
    "half open": "a connection on which no answer can come is given up within node_timeout and one excuse",
    "release": "a node that has the token of a claim that is over is told so, at once or when it is connected again",
    "known": "whenever an acquire raises NoQuorum, `nodes()` says within 1 s that a majority is of no use, and why",
}
# Seconds within which a client has to know that it has no majority.
KNOWN = 1.0
# Seconds by which a timer may be late.
TICK = 0.001
# Seconds for which ended claims are watched.
MEMORY = 1.0
# Of what asks for a token or gives it back: other scripts have as many keys. (What takes the place of
# a token gives that one back.)
BACK = (RELEASE.sha, RW_RELEASE.sha, RETIRE.sha, ADOPT.sha)
_SHAS = b"|".join((REQUEST.sha, RW_REQUEST.sha, *BACK))
COMMANDS = re.compile(
    rb"\$40\r\n(%b)\r\n\$1\r\n[2346]\r\n.*?\$(?:58|60)\r\n([0-9a-f:]{58}(?::[rw])?)\r\n" % _SHAS, re.DOTALL
)
SHARED = b"shared"
# The bytes of a token before its kind.
BARE = 58


@dataclass(eq=False, slots=True)
class HeldClaim:
    """What is known of a claim that its client believes to be held. Times are the client's."""

    driver: SimulatedClient
    # The nodes that it has had.
    own: set[Node] = field(default_factory=set)
    # Its deadline, as it was last looked at.
    until: float = 0.0
    # Its time was up.
    expired: bool = False
    # When a majority was last within the reach of others, by an operator's doing.
    danger: float = -inf
    # When too many nodes that it has had were lost, all at once; or another was granted the lock.
    taken: float = -inf
    # What had happened to the nodes when they were last looked at for it.
    seen: int = -1
    # Until when, in the world's time, they are as they were then if nothing more happens to them.
    sure: float = -inf
    # When their keys run out, in the world's time, as they were last looked at.
    ends: dict[Node, float] = field(default_factory=dict)
    # A node that it counted, or that has had its token since, was without it for a moment.
    missed: bool = False


class Laws:
    """Watches one shard in a world, and the clients that use it.

    Clients may name all of its nodes, or some.

    Args:
        world: The world.
        nodes: The nodes of the set.
        guard: Seconds for which nobody may use a node that has restarted, whatever clients believe.

    Attributes:
        looked: How often each law had something to look at.
    """

    def __init__(self, world: World, nodes: Sequence[Node], guard: float) -> None:
        self.world = world
        self.nodes = nodes
        self.guard = guard
        self.looked = dict.fromkeys(LAWS, 0)
        # The nodes that each client names.
        self.named: dict[SimulatedClient, list[frozenset[Node]]] = {}
        # The clients that have asked for each name.
        self.asked: dict[bytes, set[SimulatedClient]] = {}
        # Claims that are not over, and since when.
        self.open: dict[Claim, tuple[SimulatedClient, float]] = {}
        self.held: dict[Claim, HeldClaim] = {}
        self.fences = Fences()
        self.ended: deque[tuple[float, Claim, State]] = deque()
        # Of claims that have ended.
        self.tokens: set[bytes] = set()
        # Where an operator took away a token, which has not been there since.
        self.taken_away: dict[bytes, set[Node]] = {}
        # When an operator last took away a token there.
        self.hands: dict[tuple[bytes, Node], float] = {}
        # The connection on which a node was last told that a token is given back.
        self.given_back: dict[tuple[Node, bytes], SimulatedConnection | None] = {}
        # The nodes that have the token of a claim that is over: whose it was, and when it ended.
        self.owed: dict[Node, dict[bytes, tuple[SimulatedClient, Claim, float]]] = {it: {} for it in nodes}
        # When a node last forgot a fence while it ran. (Only in the swarm does one.)
        self.forgot = -inf
        # When each client last knew that it has no majority.
        self.dark: dict[SimulatedClient, float] = {}
        # Acquires that told it so: since when it may have known, and until when it has to.
        self.unknown: dict[Claim, tuple[SimulatedClient, float, float]] = {}
        for node in nodes:
            node.executed = self.executed
            node.published = self.published
            node.unanswered = self.unanswered
        world.laws.append(self)
        world.passes.append(self.passed)
        world.looks.append(self.look)

    # ------------------------------------------------ what drivers do

    def began(self, driver: SimulatedClient, claim: Claim) -> None:
        """A claim is about to begin."""
        self.open[claim] = driver, self.world.now
        self.asked.setdefault(claim.recipe.name, set()).add(driver)
        if driver not in self.named:
            lists = driver.engine.settings.lists or (range(len(driver.nodes)),)
            self.named[driver] = [frozenset(driver.nodes[node] for node in it) for it in lists]

    def sends(self, driver: SimulatedClient, node: Node, data: bytes) -> None:
        """No zombies: once a token is given back on a node, or is over, nothing is asked for it."""
        for sha, token in COMMANDS.findall(data):
            if sha in BACK:
                self.given_back[node, token] = self._link(driver, node)
                continue
            self.looked["zombie"] += 1
            if token in self.tokens or (node, token) in self.given_back:
                raise Violation(f"zombie: {driver} asks {node} for {token.decode()}, which is over")

    def unanswered(self, link: SimulatedConnection) -> None:
        """A client waits for what will never come."""
        if link.client is not None and not link.watched:
            link.watched = True
            self._gives_up(link, link.client, -1)

    def _gives_up(self, link: SimulatedConnection, driver: SimulatedClient, stops: int) -> None:
        """Look whether a client has given up the connection, unless it was stopped meanwhile."""
        if link.broken or driver.gone:
            return
        if driver.stops == stops and not driver.stopped:
            raise Violation(f"half open: {driver} still waits for {link.node}, from which no answer can come")
        self.looked["half open"] += 1
        # And one excuse.
        within = 2.02 * driver.settings.node_timeout + TICK
        self.world.after(within, self._gives_up, link, driver, driver.stops)

    def turned(self, driver: SimulatedClient) -> None:
        """What has ended by now has said all that it had to say.

        The rest counts no node that has not got its token.
        """
        if driver.engine.node_set.states.count("up") < driver.engine.node_set.quorum.least:
            causes = [it.cause for it in driver.engine.health.status(driver.clock()) if it.state != "up"]
            if len(driver.nodes) - sum(it is not None for it in causes) < driver.engine.node_set.quorum.least:
                self.dark[driver] = self.world.now
        ended = []
        for claim, (whose, _) in self.open.items():
            if whose is not driver:
                continue
            if claim.state is State.WAITING or claim.state is State.HELD:
                # There are none while all is as usual.
                if claim.votes:
                    self._counts(claim, driver.clock())
            else:
                ended.append(claim)
        for claim in ended:
            if claim in self.held and claim.state is State.LOST:
                self._is_lost(claim, driver)
        for claim in ended:
            self._ends(claim)
        self._are_told(driver)

    def _is_lost(self, claim: Claim, driver: SimulatedClient) -> None:
        """A holder has just heard that its lease is lost."""
        if claim.reason == "gap":
            self.looked["unfounded"] += 1
            if not self._was_missed(claim):
                raise Violation(
                    f"unfounded: {_of(claim)} is lost to a gap, though every node that had its token has it still"
                )

    def executed(self, node: Node) -> None:
        """P-M1: nothing stays in Redis for ever."""
        space = node.server.data[0]
        self.looked["no expiry"] += 1
        if len(space.values) != len(space.deadlines):
            raise Violation(f"no expiry: {sorted(space.values.keys() - space.deadlines.keys())} on {node}")
        if owed := self.owed[node]:
            for token in [it for it, (_, claim, _) in owed.items() if not has_token(node, claim.recipe.name, it)]:
                del owed[token]

    def published(self, node: Node, message: bytes) -> None:
        """A node publishes a message.

        `force_release` publishes the token of each holder that it takes the lock from.
        """
        match message.split(b" ", 2):
            case [b"x", token, _]:
                self._is_taken(node, token)

    def _is_taken(self, node: Node, token: bytes) -> None:
        # (A downgrade changes the rest of a token.)
        self.taken_away.setdefault(token[:BARE], set()).add(node)
        self.hands[token[:BARE], node] = self.world.now

    # ------------------------------------------------ at every event

    def passed(self) -> None:
        """Check, after time has passed, that no holder whose time is up still believes it holds."""
        for claim, held in self.held.items():
            if claim.state is State.HELD and (now := held.driver.clock()) >= claim.until:
                held.expired = True
                self.looked["silent"] += 1
                if now >= claim.until + TICK and not held.driver.stopped:
                    raise Violation(
                        f"silent: the time of {_of(claim)} was up {now - claim.until:.6f} s ago, "
                        "and its holder does not know"
                    )

    def _is_known(self) -> None:
        """Check that a client for which too few nodes were usable says so of its nodes, too."""
        for claim, (driver, since, latest) in list(self.unknown.items()):
            if driver.dead or driver.stopped or self.dark.get(driver, -inf) >= since:
                del self.unknown[claim]
            elif self.world.now > latest:
                raise Violation(
                    f"known: {_of(claim)}: {claim.refusal}, and its client says {driver.engine.node_set.states}"
                )

    def look(self) -> None:
        """See whether everything is as it must be."""
        self._is_known()
        dead = []
        for claim, (driver, _) in self.open.items():
            if driver.dead:
                dead.append(claim)
            elif claim.state is State.HELD and claim not in self.held:
                self._notes(driver, claim)
                self._granted(claim, driver)
        for claim in dead:
            self._ends(claim)
        if self.held:
            happened = sum([node.changes + node.clock.steps for node in self.nodes])
            for claim in [claim for claim, held in self.held.items() if not self._holds(claim, held, happened)]:
                del self.held[claim]
        while self.ended and self.ended[0][0] < self.world.now - MEMORY:
            self.looked["risen"] += 1
            self.ended.popleft()
        for _, claim, state in self.ended:
            if claim.state is not state:
                raise Violation(f"risen: {_of(claim)} was {state.name}, and is {claim.state.name}")

    def _granted(self, claim: Claim, driver: SimulatedClient) -> None:
        """P-S1 and P-S2, at the moment at which a client learns that it holds the lock."""
        window = _window(claim, self.world.now)
        self.looked["exclusion"] += 1
        self.world.saw(
            "read by two", window.shared and any(_reads(it) and it.recipe.name == window.name for it in self.held)
        )
        for other, theirs in self.held.items():
            if other.state is not State.HELD or not window.within(
                _window(other, -inf, theirs.driver.clock.when(other.until))
            ):
                continue
            if theirs.danger == -inf:
                left = other.until - theirs.driver.clock()
                raise Violation(f"exclusion: {_of(claim)} is granted while {_of(other)} holds, for {left:.6f} s more")
            theirs.taken = theirs.driver.clock()
            self.world.saw("held by two, after an operator took it away")
        self.looked["fence"] += claim.recipe.name in self.fences
        self.looked["max_hold"] += claim.timing.max_hold < inf
        earlier = self.fences.passed(window)
        stays = earlier is not None and claim.recipe.proposes == claim.fence == earlier.fence
        if earlier is not None and not stays and not self._is_excused(claim, driver, earlier):
            raise Violation(f"fence: {_of(claim)} is granted with {claim.fence}, after {earlier.fence}")
        held = HeldClaim(driver)
        self.held[claim] = held
        counted = (
            claim.as_usual if claim.as_usual is not None else [i for i, vote in enumerate(claim.votes) if vote.granted]
        )
        held.own = {driver.nodes[node] for node in counted}

    def _notes(self, driver: SimulatedClient, claim: Claim) -> None:
        news = (claim.token, claim.state.name, claim.fence, claim.reason, claim.until, claim.recipe.label)
        self.world.note(driver, "has news of", *news)

    def _holds(self, claim: Claim, held: HeldClaim, happened: int) -> bool:
        """While it is held: never again after its time was up, always by a majority, never through
        a gap.

        False: it no longer is.

        `happened`: how much has, to the nodes: while that is the same, and no key of theirs runs
        out, they are as they were.
        """
        if claim.state is not State.HELD:
            return False
        now = held.driver.clock()
        if now >= claim.until:
            return True
        if held.expired:
            raise Violation(
                f"risen: the time of {_of(claim)} was up, and it is held until {claim.until - now:.6f} s from now"
            )
        # Whatever ran out too early is out by then: look at the last moment, in any case.
        if claim.until != held.until:
            held.until = claim.until
            if claim.until > claim.since + claim.timing.max_hold + 1e-6:
                most = claim.timing.max_hold
                lasts = claim.until - claim.since
                raise Violation(f"max_hold: {_of(claim)} may last for {most:.6f} s, and does for {lasts:.6f}")
            self.world.at(held.driver.clock.when(claim.until) - 1e-6, _nothing)
        if _reads(claim):
            # A downgrade raises it.
            self.fences.note(_window(claim, claim.since))
        if happened != held.seen or self.world.now >= held.sure:
            held.seen = happened
            self._has_majority(claim, held, now)
        if held.taken > -inf and claim.as_usual is None:
            self.looked["gap"] += 1
            # If a fence record was deleted since, its node may hide that it has granted the token
            # again (rule C14).
            told = self.forgot < held.driver.clock.when(held.taken)
            if told and min(it.sent for it in claim.votes) >= held.taken:
                since = now - held.taken
                raise Violation(
                    f"gap: {_of(claim)} is held through a gap, {since:.6f} s ago, though every node has spoken since"
                )
        return True

    def _has_majority(self, claim: Claim, held: HeldClaim, now: float) -> None:
        """No majority of the nodes is within the reach of others."""
        name = claim.recipe.name
        token = claim.token
        self.looked["majority"] += 1
        own = {node for node in self.nodes if has_token(node, name, token)}
        kept = {node for node in self.nodes if node not in own and self._keeps(node, name, token)}
        safe = own | kept
        held.own |= own
        held.missed |= len(own) < len(held.own) or any(held.ends.get(node, inf) <= self.world.now for node in own)
        held.ends = {node: runs_out(node, name, token) for node in own}
        sure = min(
            [*[node.runs_out(name) for node in own], *[_had(node, name, token) + self.guard for node in kept]],
            default=-inf,
        )
        # A shared key outlives each of its readers.
        held.sure = -inf if _reads(claim) else sure
        taken_away = self.taken_away.get(token[:BARE], set())
        taken_away -= own
        if self._in_reach(name, safe):
            held.danger = now
            held.sure = -inf
            if self._in_reach(name, safe | taken_away | {it for it in self.nodes if self._unheard(claim, it)}):
                has = sorted(node.index for node in own)
                raise Violation(
                    f"majority: {_of(claim)} is held for {claim.until - now:.6f} s more, but has only {has}"
                )
        if any(_majority_of(named, named & (held.own - safe)) for named in self.named[held.driver]):
            held.taken = now
            held.sure = -inf

    def _in_reach(self, name: bytes, safe: set[Node]) -> bool:
        """Could a client take a majority of each of its lists, without these nodes?

        A client that names other nodes than the rest is dangerous as soon as it asks for the name.
        """
        clients = [self.named[driver] for driver in self.asked[name] if not driver.gone and driver in self.named]
        return any(all(_majority_of(named, named - safe) for named in lists) for lists in clients)

    def _was_missed(self, claim: Claim) -> bool:
        """Did a node miss the token of this claim, or of one that is held together with it?"""
        together = claim.company.claims if isinstance(claim.company, JointRequest) else [claim]
        return any(self._has_missed(it) for it in together if it in self.held)

    def _has_missed(self, claim: Claim) -> bool:
        """Has a node lost the token since the claim was held, was one killed with it, or has an
        operator taken it away?
        """
        name = claim.recipe.name
        token = claim.token
        held = self.held[claim]
        began = held.driver.clock.when(claim.began)
        missing = any(not has_token(node, name, token) for node in held.own)
        return (
            held.missed
            or missing
            or any(_had(it, name, token) >= began or (token[:BARE], it) in self.hands for it in self.nodes)
        )

    def _keeps(self, node: Node, name: bytes, token: bytes) -> bool:
        """Did the node have the token when it was killed, so lately that nobody may use it yet?

        And has it given it to nobody since?
        """
        lately = self.world.now - self.guard
        if node.born <= lately or _had(node, name, token) <= lately:
            return False
        # What it had written down may be of before.
        return node.holder(name) in (b"", node.woke.get(name))

    def _unheard(self, claim: Claim, node: Node) -> bool:
        """Did an operator take the token away there, after all that the client has heard of the
        node?

        (It may have been there again since: by a late command, and for a shorter time.)
        """
        taken = self.hands.get((claim.token[:BARE], node))
        if taken is None:
            return False
        driver = self.open[claim][0]
        heard = claim.votes[driver.nodes.index(node)].last if claim.votes else claim.began
        return driver.clock.when(heard) <= taken

    def _counts(self, claim: Claim, now: float) -> None:
        """P-V: a node that a client counts holds its token.

        (Or it was taken away by an operator, or forgotten lately.)
        """
        name = claim.recipe.name
        token = claim.token
        self.looked["counted"] += 1
        for node, vote in zip(self.open[claim][0].nodes, claim.votes, strict=True):
            if not vote.granted or vote.ceding or now >= vote.bound or has_token(node, name, token):
                continue
            if (
                not self._keeps(node, name, token)
                and node not in self.taken_away.get(token[:BARE], ())
                and not self._unheard(claim, node)
            ):
                has = node.holder(name).decode()
                raise Violation(
                    f"counted: {_of(claim)} counts {node} for {vote.bound - now:.6f} s more, which has {has!r}"
                )

    def _is_excused(self, claim: Claim, driver: SimulatedClient, earlier: HeldWindow) -> bool:
        """Does it count a node from which an operator took its token, before it could hear of
        that?
        """
        return any(self._unheard(claim, node) for node in driver.nodes)

    # ------------------------------------------------ what is said of a claim that is over

    def _link(self, driver: SimulatedClient, node: Node) -> SimulatedConnection | None:
        """The connection of a client to a node."""
        return driver.link(driver.nodes.index(node))

    def _are_told(self, driver: SimulatedClient) -> None:
        """T6: on each connection that can be used now, the node has heard of what is over."""
        if driver.closed:
            return
        for node, connection, link in zip(driver.nodes, driver.engine.connections, driver.links, strict=True):
            if link is not None and not link.told and _usable(connection, driver):
                link.told = True
                for token, (whose, claim, ended) in list(self.owed[node].items()):
                    if whose is driver:
                        self._is_told(link, claim, token, ended)

    def _is_told(self, link: SimulatedConnection, claim: Claim, token: bytes, ended: float) -> None:
        node, driver = link.node, link.client
        assert driver is not None
        lately = self.world.now < ended + driver.settings.max_ttl * 0.99
        # (An error is an answer, too.)
        if lately and link.server is node.server and node.erred < ended:
            self.looked["release"] += 1
            if self.given_back.get((node, token)) is not link:
                raise Violation(f"release: {driver} is connected to {node}, and has not given {_of(claim)} back there")

    def _ends(self, claim: Claim) -> None:
        driver, began = self.open.pop(claim)
        if not driver.closed and not driver.dead and not claim.stays:
            for node, connection in zip(driver.nodes, driver.engine.connections, strict=True):
                if has_token(node, claim.recipe.name, claim.token):
                    self.owed[node][claim.token] = driver, claim, self.world.now
                    if _usable(connection, driver) and (link := self._link(driver, node)) is not None:
                        self._is_told(link, claim, claim.token, self.world.now)
        if driver.gone:
            self.named.pop(driver, None)
        self.held.pop(claim, None)
        if isinstance(error := claim.refusal, NoQuorum) and not driver.gone:
            # What is about one name says nothing of a node, and who gave up early may not know.
            known = sum(not isinstance(it, TimeoutError | ConfigError) for it in error.causes.values())
            if len(driver.nodes) - known < error.needed:
                self.looked["known"] += 1
                self.unknown[claim] = driver, began, self.world.now + KNOWN
        self.tokens.add(claim.token)
        if not driver.dead:
            self._notes(driver, claim)
            self.ended.append((self.world.now, claim, claim.state))


def _majority_of(named: Collection[Node], nodes: Collection[Node]) -> bool:
    """Are these a majority of the nodes that a client names?"""
    return len(nodes) >= quorum.majority(len(named))


def _nothing() -> None:
    pass


def _window(claim: Claim, begins: float, ends: float = inf) -> HeldWindow:
    return HeldWindow(claim.recipe.name, _of(claim), claim.fence, begins, ends, _reads(claim))


def _reads(claim: Claim) -> bool:
    return kind_of(claim.token) == READER


def _twin(token: bytes) -> bytes:
    """The writer that a reader was before its downgrade."""
    return token[: -len(READER)] + WRITER


def has_token(node: Node, name: bytes, token: bytes) -> bool:
    """Is the token on the node: in the key; or, a reader's, among those who share it, or still as
    the writer's that it was?
    """
    holder = node.holder(name)
    if holder == SHARED:
        readers = node.server.data[0].values.get(rw_keys_of(name)[4])
        deadline = readers.score(token) if isinstance(readers, SortedSet) else None
        return deadline is not None and deadline > node.server.micros() // 1000
    return holder == token or (kind_of(token) == READER and holder == _twin(token))


def runs_out(node: Node, name: bytes, token: bytes) -> float:
    """When, in the world's time, the node will be without the token, if nothing happens to it."""
    if node.holder(name) == SHARED and isinstance(
        readers := node.server.data[0].values.get(rw_keys_of(name)[4]), SortedSet
    ):
        return node.clock.when((readers.score(token) or 0) / 1000)
    return node.runs_out(name)


def _had(node: Node, name: bytes, token: bytes) -> float:
    """When the node was last killed that had the token; a reader's: that was shared, or had the
    writer's that it was.
    """
    values = (token, SHARED, _twin(token)) if kind_of(token) == READER else (token,)
    return max(node.had.get((name, it), -inf) for it in values)


def _usable(connection: Connection[Any], driver: SimulatedClient) -> bool:
    """May the node be spoken to now? (Where its place can be asked for, it has to be known.)"""
    return connection.state is ConnectionState.UP and driver.clock() < connection.sure


def _of(claim: Claim) -> str:
    return claim.token.decode()
