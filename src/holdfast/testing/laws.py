"""What must hold, whatever happens: watched at every event, with what no client can see.

Knows the protocol's promises (P-S1 and so on), claims, and the truth about the nodes. Must not know which faults there are, but for
the hands of operators, who may take away what is held.

While an operator's hands are at work, another may be granted the lock before its holder can know: this the laws excuse, and want
it noticed as soon as every node has spoken since.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf

from ..core import quorum
from ..core.claim import HELD, LOST, WAITING, Claim, State
from ..core.command import READER, WRITER
from ..core.ticket import kind_of
from ..recipes.readwrite import rw_keys_of
from ..scripts import LOADED, RELEASE, RW_RELEASE
from ..wire.lane import Line
from .driver import Driver, Witness
from .network import Node
from .server import SortedSet
from .world import Violation, World

TICK = 0.001  # seconds by which a timer may be late
MEMORY = 1.0  # seconds for which ended claims are watched
_SHAS = b"|".join(it.sha for it in LOADED)
_COMMANDS = re.compile(rb"\$40\r\n(%b)\r\n\$1\r\n[46]\r\n.*?\$(?:58|60)\r\n([0-9a-f:]{58}(?::[rw])?)\r\n" % _SHAS, re.DOTALL)
SHARED = b"shared"


@dataclass(eq=False, slots=True)
class Held:
    """What is known of a claim that its client believes to be held. Times are the client's."""

    driver: Driver
    own: set[Node] = field(default_factory=set)  # the nodes that it has had
    until: float = 0.0  # its deadline, as it was last looked at
    expired: bool = False  # its time was up
    danger: float = -inf  # when a majority was last within the reach of others, by an operator's doing
    taken: float = -inf  # when too many nodes that it has had were lost, all at once; or another was granted the lock


class Laws(Witness):
    """Watches a world. `guard`: for how long nobody may use a node that has restarted (whatever clients believe).

    `calm`: in a world without faults, how long a message takes at most; there more is promised.
    """

    def __init__(self, world: World, nodes: Sequence[Node], guard: float, calm: float | None = None) -> None:
        self.world, self.nodes, self.guard, self.calm = world, nodes, guard, calm
        self.least = len(nodes) + 1 - quorum.majority(len(nodes))  # with so many nodes a majority is out of all others' reach
        self.open: dict[Claim, tuple[Driver, float]] = {}  # claims that are not over, and since when
        self.held: dict[Claim, Held] = {}
        self.fences: dict[bytes, tuple[int, int]] = {}  # the last of each name: of who was alone, of readers
        self.ended: deque[tuple[float, Claim, State]] = deque()
        self.tokens: set[bytes] = set()  # of claims that have ended
        self.taken_away: dict[bytes, set[Node]] = {}  # where an operator took away a token, which has not been there since
        self.hands: dict[tuple[bytes, Node], float] = {}  # when an operator last took away a token there
        self.given_back: set[tuple[Node, bytes]] = set()
        self.requests: dict[bytes, int] = {}  # how many were sent, by token
        self.idle: dict[bytes, float] = {}  # since when nobody has the name, and somebody waits
        for node in nodes:
            node.executed = self.executed
        world.passes.append(self.passed)
        world.looks.append(self.look)

    # ------------------------------------------------ what drivers do

    def began(self, driver: Driver, claim: Claim) -> None:
        self.open[claim] = driver, self.world.now

    def sends(self, driver: Driver, node: Node, data: bytes) -> None:
        """No zombies: once a token is given back on a node, or is over, nothing is asked for it."""
        for sha, token in _COMMANDS.findall(data):
            if sha in (RELEASE.sha, RW_RELEASE.sha):
                self.given_back.add((node, token))
                continue
            self.requests[token] = self.requests.get(token, 0) + 1
            if token in self.tokens or (node, token) in self.given_back:
                raise Violation(f"zombie: {driver} asks {node} for {token.decode()}, which is over")

    def turned(self, driver: Driver) -> None:
        """What has ended by now has said all that it had to say. The rest counts no node that has not got its token."""
        for claim, (whose, _) in list(self.open.items()):
            if whose is not driver:
                continue
            if claim.state is WAITING or claim.state is HELD:
                self._counts(claim, driver.clock())
            else:
                self._ends(claim)

    def executed(self, node: Node) -> None:
        """P-M1: nothing stays in Redis for ever."""
        space = node.server.data[0]
        if len(space.values) != len(space.deadlines):
            raise Violation(f"no expiry: {sorted(space.values.keys() - space.deadlines.keys())} on {node}")

    def takes_away(self, node: Node, name: bytes) -> None:
        """An operator is about to delete the key on this node."""
        self.taken_away.setdefault(node.holder(name), set()).add(node)
        self.hands[node.holder(name), node] = self.world.now

    # ------------------------------------------------ at every event

    def passed(self) -> None:
        """Time has passed. Whose time is up has been told so, if it could be."""
        for claim, held in self.held.items():
            now = held.driver.clock()
            if now >= claim.until and claim.state is HELD:
                held.expired = True
                if now >= claim.until + TICK and not held.driver.stopped:
                    raise Violation(f"silent: the time of {_of(claim)} was up {now - claim.until:.6f} s ago, and nobody was told")

    def look(self) -> None:
        """See whether everything is as it must be."""
        for claim, (driver, _) in list(self.open.items()):
            if driver.dead:
                self._ends(claim)
            elif claim.state is HELD and claim not in self.held:
                self._granted(claim, driver)
        for claim, held in list(self.held.items()):
            if claim.state is HELD:
                self._holds(claim, held)
            else:
                del self.held[claim]
        while self.ended and self.ended[0][0] < self.world.now - MEMORY:
            self.ended.popleft()
        for _, claim, state in self.ended:
            if claim.state is not state:
                raise Violation(f"risen: {_of(claim)} was {state.name}, and is {claim.state.name}")
        if self.calm is not None:
            self._served(self.calm)

    def quiet(self, driver: Driver) -> None:
        """Nobody wants anything of it any more: nothing is left in it, and it owes nobody a word."""
        crew = driver.crew
        if crew.live or any(lane.ledger or lane.out for lane in crew.lanes if lane.line is Line.UP):
            raise Violation(f"left over: {driver} still has {[_of(claim) for claim in crew.live.values()]}, or waits for answers")

    def _granted(self, claim: Claim, driver: Driver) -> None:
        """P-S1 and P-S2, at the moment at which a client learns that it holds the lock."""
        name = claim.recipe.name
        for other, theirs in self.held.items():
            if other.recipe.name != name or other.state is not HELD or theirs.driver.clock() >= other.until:
                continue
            if _reads(claim) and _reads(other):
                self.world.saw("read by two")
                continue
            if theirs.danger == -inf:
                left = other.until - theirs.driver.clock()
                raise Violation(f"exclusion: {_of(claim)} is granted while {_of(other)} holds, for {left:.6f} s more")
            theirs.taken = theirs.driver.clock()
            self.world.saw("held by two, after an operator took it away")
        alone, readers = self.fences.get(name, (0, 0))
        if claim.fence <= (alone if _reads(claim) else max(alone, readers)):
            raise Violation(f"fence: {_of(claim)} is granted with {claim.fence}, after {alone} and {readers}")
        self.fences[name] = (alone, max(readers, claim.fence)) if _reads(claim) else (claim.fence, readers)
        self.held[claim] = Held(driver)
        if self.calm is not None:
            self._in_order(claim, self.calm)

    def _holds(self, claim: Claim, held: Held) -> None:
        """While it is held: never again after its time was up, always by a majority, never through a gap."""
        name, now = claim.recipe.name, held.driver.clock()
        if now >= claim.until:
            return
        if held.expired:
            raise Violation(f"risen: the time of {_of(claim)} was up, and it is held until {claim.until - now:.6f} s from now")
        token = claim.token
        if claim.until != held.until:  # whatever ran out too early is out by then: look at the last moment, in any case
            held.until = claim.until
            if claim.until > claim.since + claim.max_hold + 1e-6:
                raise Violation(f"max_hold: {_of(claim)} may last for {claim.max_hold:.6f} s, and does for {claim.until - claim.since:.6f}")
            self.world.at(held.driver.clock.when(claim.until) - 1e-6, _nothing)
        if _reads(claim):
            alone, readers = self.fences[name]
            self.fences[name] = alone, max(readers, claim.fence)  # (a downgrade raises it)
        own = {node for node in self.nodes if _has(node, name, token)}
        safe = own | {node for node in self.nodes if node not in own and self._keeps(node, name, token)}
        held.own |= own
        taken_away = self.taken_away.get(token, set())
        taken_away -= own
        if len(safe) < self.least:
            held.danger = now
            if len(safe | taken_away | {node for node in self.nodes if self._unheard(claim, node)}) < self.least:
                has = sorted(node.index for node in own)
                raise Violation(f"majority: {_of(claim)} is held for {claim.until - now:.6f} s more, but has only {has}")
        if len(self.nodes) - len(held.own - safe) < self.least:
            held.taken = now
        if held.taken > -inf and claim.plain is None and min(it.sent for it in claim.votes) >= held.taken:
            raise Violation(f"gap: {_of(claim)} is held through a gap, {now - held.taken:.6f} s ago, though every node has spoken since")

    def _keeps(self, node: Node, name: bytes, token: bytes) -> bool:
        """Has the node forgotten the token so lately that nobody may use it yet, or at least gives it to nobody?"""
        forgot = node.forgot.get(name)
        if kind_of(token) == READER and not node.holder(name) and forgot in (SHARED, _twin(token)):
            forgot = token
        return not node.holder(name) and self.world.now - node.born < self.guard and forgot == token

    def _unheard(self, claim: Claim, node: Node) -> bool:
        """Did an operator take the token away there, after all that the client has heard of the node?

        (It may have been there again since: by a late command, and for a shorter time.)
        """
        taken = self.hands.get((claim.token, node))
        if taken is None:
            return False
        heard = claim.votes[node.index].last if claim.votes else claim.began
        return self.open[claim][0].clock.when(heard) <= taken

    def _counts(self, claim: Claim, now: float) -> None:
        """P-V: a node that a client counts holds its token. (Or it was taken away by an operator, or forgotten lately.)"""
        name, token = claim.recipe.name, claim.token
        for node, vote in zip(self.nodes, claim.votes, strict=False):  # (there are none while all is as usual)
            if not vote.granted or vote.ceding or now >= vote.bound or _has(node, name, token):
                continue
            if not self._keeps(node, name, token) and node not in self.taken_away.get(token, ()) and not self._unheard(claim, node):
                has = node.holder(name).decode()
                raise Violation(f"counted: {_of(claim)} counts {node} for {vote.bound - now:.6f} s more, which has {has!r}")

    def _ends(self, claim: Claim) -> None:
        driver, began = self.open.pop(claim)
        self.held.pop(claim, None)
        self.tokens.add(claim.token)
        if not driver.dead:
            self.ended.append((self.world.now, claim, claim.state))
        if self.calm is not None:
            self._no_polling(claim, self.world.now - began)
            if claim.state is LOST and not driver.dead:
                raise Violation(f"lost: {_of(claim)} is lost ({claim.reason}), though nothing has happened")

    # ------------------------------------------------ what is promised where there are no faults

    def _in_order(self, claim: Claim, swift: float) -> None:
        """P-L3: nobody passes a lower ticket that every node knows, and that has had the time to ask for way."""
        for other, (_, began) in self.open.items():
            waits = other.state is WAITING and other.patient and other.recipe.name == claim.recipe.name
            waits = waits and not (_reads(other) and _reads(claim))
            if waits and other.ticket < claim.ticket and began + 3 * swift < self.world.now:
                raise Violation(f"order: {_of(claim)} is served before {_of(other)}, which waits since {began:.6f}")

    def _served(self, swift: float) -> None:
        """P-L1: when a lock is free, it is not free for long, and no lease has to run out for that."""
        taken = {claim.recipe.name for claim in self.held}
        waited_for = {
            claim.recipe.name
            for claim, (_, began) in self.open.items()
            if claim.state is WAITING and claim.patient and began + 2 * swift < self.world.now
        } - taken
        self.idle = {name: self.idle.get(name, self.world.now) for name in waited_for}
        for name, since in self.idle.items():
            if self.world.now > since + 12 * swift:
                raise Violation(f"idle: nobody has had {name.decode()!r} since {since:.6f}, and somebody waits")

    def _no_polling(self, claim: Claim, lasted: float) -> None:
        """Requests are few: to each node the first, some to make way or to agree, and one in every third of a ttl."""
        most = len(self.nodes) * (5 + 3 * lasted / claim.ttl)
        if self.requests.pop(claim.token, 0) > most:
            raise Violation(f"polling: {_of(claim)} has sent more than {most:.0f} requests in {lasted:.3f} s")


def _nothing() -> None:
    pass


def _reads(claim: Claim) -> bool:
    return kind_of(claim.token) == READER


def _twin(token: bytes) -> bytes:
    """The writer that a reader was before its downgrade."""
    return token[: -len(READER)] + WRITER


def _has(node: Node, name: bytes, token: bytes) -> bool:
    """Is the token on the node: in the key; or, a reader's, among those who share it, or still as the writer's that it was?"""
    holder = node.holder(name)
    if holder == SHARED:
        readers = node.server.data[0].values.get(rw_keys_of(name)[4])
        deadline = readers.score(token) if isinstance(readers, SortedSet) else None
        return deadline is not None and deadline > node.server.micros() // 1000
    return holder == token or (kind_of(token) == READER and holder == _twin(token))


def _of(claim: Claim) -> str:
    return claim.token.decode()
