"""The votes of one claim: asks the nodes for one token, and keeps what each of them said.

Knows which nodes may know the token, what is proposed to them, and the vote of each. Must not know
whether the claim waits or is held, nor what the time means for it: `claim` decides.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from math import inf

from .command import CEDE, READER, RELEASE, TRY, WAIT, Command, Recipe
from .nodes import NodeSet, Standing
from .quorum import UNMARKED
from .ticket import Tickets
from .vote import Vote


class Ballot(ABC):
    """What is asked of the nodes for one token, and what they said.

    In the usual case every answer is the same text, the ticket. Then votes are only counted
    (`as_usual`). `_unfold` makes one `Vote` a node of that, and from then on each is kept apart.

    Args:
        recipe: How its primitive talks to a node about the name.
        ttl: The length of the lease, in seconds.
        ticket: Its place in the queue, and the fence that it proposes first.
        tickets: Where its tokens come from.
        node_set: The nodes, and which of them can be spoken to.
        patient: Wait in the queue. If not, try once.
    """

    # fmt: off
    __slots__ = (
        "__weakref__", "_above", "_base", "_largest", "_may_know", "_mode", "_node_set", "_propose", "_quorum",
        "as_usual", "began", "counted", "fence", "recipe", "sends", "ticket", "tickets", "token", "ttl", "usual",
        "votes",
    )
    # fmt: on

    def __init__(
        self, recipe: Recipe, ttl: float, ticket: int, tickets: Tickets, node_set: NodeSet, patient: bool
    ) -> None:
        self.recipe = recipe
        self.ttl = ttl
        self.tickets = tickets
        self._node_set = node_set
        self._quorum = node_set.quorum
        # The mode of its requests until it is held.
        self._mode = WAIT if patient else TRY
        # When it began.
        self.began = 0.0
        # What is to be sent.
        self.sends: list[tuple[Sequence[int], Command]] = []
        # T, once it is held.
        self.fence = 0
        # T is above it: the largest fence that a node has told which denied (rule F11), or the floor
        # of the nodes (rule F12).
        self._above = 0
        # Nodes that may know the token.
        self._may_know: Sequence[int] = ()
        # The nodes that gave it; None once every vote is kept apart.
        self.as_usual: list[int] | None = []
        # Until when a grant of the first request counts.
        self._base = 0.0
        self.votes: Sequence[Vote] = ()
        # Never less than the number of nodes that count.
        self.counted = 0
        self.takes(ticket)

    def takes(self, ticket: int) -> None:
        """Have this ticket, before anything is asked."""
        self.ticket = ticket
        self.token = self.tickets.token(ticket) + self.recipe.kind
        # P, and the largest P ever.
        self._propose = self.recipe.proposes or ticket
        self._largest = self._propose
        # The answer as usual: granted now, nobody waits, and the fence is the ticket.
        self.usual = self.token[:16]

    @abstractmethod
    def answered(self, node: int, command: Command, reply: object, now: float) -> bool:
        """Take in what a node has answered to a command of this ballot."""

    # ------------------------------------------------ asking

    def _request(self, mode: bytes, ttl: float, now: float, watch: bool = False) -> Command:
        """Make a request of this moment."""
        clock = self.ticket if now == self.began else self.ticket + int((now - self.began) * 1e6)
        lasting = ttl if ttl <= UNMARKED else self._node_set.lasting(ttl, now)
        return Command(self, mode, self.token, now, ttl, self._propose, watch=watch, clock=clock, lasting=lasting)

    def _ask(self, nodes: Sequence[int], mode: bytes, now: float, ttl: float = 0.0, watch: bool = False) -> bool:
        """Send a request to these nodes, if there are any.

        Args:
            nodes: The nodes to ask.
            mode: The mode of the request.
            now: The time.
            ttl: Seconds; 0: the ttl of the claim.
            watch: The nodes are to tell when the name's key has changed (rule Q14).

        Returns:
            True: this is something to do.
        """
        if nodes:
            for node in nodes:
                self.votes[node].asked()
                if node not in self._may_know:
                    self._may_know = sorted((*self._may_know, node))
            self.sends.append((nodes, self._request(mode, ttl or self.ttl, now, watch)))
        return True

    def _rise(self) -> None:
        """Propose more than a node can have forgotten that is used after a short guard (F12).

        A lease that is handed over keeps its fence.
        """
        floor = self._node_set.floor
        if floor > self._above and not self.recipe.proposes:
            self._above = floor
            self._propose = self._largest = max(self._propose, floor + 1)

    def _undo(self, nodes: Sequence[int], now: float, heard: bool = False, rest: float = 0.0) -> bool:
        """Send a release to these nodes.

        Args:
            nodes: The nodes to tell.
            now: The time.
            heard: Somebody waits for the answers.
            rest: In how many seconds the name is to be free (rule RT1).

        Returns:
            True: this is something to do.
        """
        self.sends.append((nodes, Command(self if heard else None, RELEASE, self.token, now, rest)))
        return True

    def _cede(self, now: float) -> None:
        """Make way at each node that counts and at which a lower ticket waits (rule Q8)."""
        for node in self._node_set.up:
            vote = self.votes[node]
            if vote.granted and vote.lower:
                vote.cedes()
                self._ask((node,), CEDE, now)

    def _write_back(self, now: float) -> None:
        """Propose the largest fence where less was granted, once a quorum counts (rule F9)."""
        good = {node: vote.fence for node, vote in enumerate(self.votes) if vote.granted}
        if not self._quorum.met(good):
            return
        fence = max(self._propose, *good.values())
        self._propose = fence
        self._largest = fence
        behind = []
        for node in self._node_set.up:
            vote = self.votes[node]
            if vote.granted and vote.fence < fence and vote.wrote != fence:
                vote.written_to(fence)
                behind.append(node)
        self._ask(behind, self._mode, now)

    # ------------------------------------------------ another token

    def _start_over(self, now: float) -> bool:
        """Ask with a new token of the same ticket, hence the same place in line (rule Q11)."""
        old = self.token
        before = self._may_know
        self.token = self.tickets.token(self.ticket) + self.recipe.kind
        self.votes = [Vote() for _ in self.votes]
        self.counted = 0
        self._may_know = ()
        # The old token leaves after the new one has queued.
        self._ask(self._node_set.up, self._mode, now)
        if before:
            self.sends.append((before, Command(None, RELEASE, old, now)))
        return True

    def _share(self) -> None:
        """Take the token of the other kind (rule D2).

        A node that has the writer's token takes it for the reader's, and gives it to no other
        writer.
        """
        self.token = self.token[: -len(READER)] + READER
        # A reader's fence is above every writer's, its own included: what it wrote late is refused.
        self._propose = self.fence + 1
        # A node whose answer is still under way may have gone one beyond what was ever proposed.
        self._largest += 1
        for vote in self.votes:
            vote.turned_reader()

    # ------------------------------------------------ counting

    def _unfold(self) -> None:
        """Keep apart from here on what each node said: something is not as usual."""
        usual = self.as_usual or ()
        self.votes = [Vote() for _ in range(self._node_set.size)]
        for node in self._may_know:
            self.votes[node].asked()
        for node in usual:
            self.votes[node].granted_as_usual(self.ticket, self._base, self.began)
        self.counted = len(usual)
        self.as_usual = None

    def counting(self, now: float) -> int:
        """Return how many nodes count now.

        This is for those who look from outside: it changes nothing.
        """
        # Read once: another thread may look while the I/O thread unfolds it, which takes the list
        # away.
        nodes = self.as_usual
        if nodes is not None:
            return len(nodes) if now < self._base else 0
        return sum(vote.counts(now) for vote in self.votes)

    def latest(self, now: float) -> int:
        """Return the largest fence that a sound node can have granted by now (rule F5).

        Clocks of nodes that are used are at most half the horizon from the median. So is ours, and
        another half is to spare. A fence above that is not counted, and is proposed to nobody. A
        record that was damaged, or written by a clock that is wrong, must not become the record of
        all nodes.
        """
        return self.ticket + int((now - self.began) * 1e6) + self._node_set.horizon * 1500

    def _hopeless(self) -> bool:
        """Return whether fewer than a quorum can still grant a try (rule Q15).

        To ask whether a quorum has refused would not do: with an even N that may never be true.
        """
        reachable = (Standing.UP, Standing.CONNECTING)
        standing = self._node_set.standing
        able = [node for node, vote in enumerate(self.votes) if vote.may_grant(standing[node] in reachable)]
        return not self._quorum.met(able)

    def _away(self) -> bool:
        """Return whether fewer than a quorum are of use: not down, and without error (C17)."""
        standing = self._node_set.standing
        of_use = [i for i, vote in enumerate(self.votes) if vote.error is None and standing[i] is not Standing.DOWN]
        return not self._quorum.met(of_use)

    def _next_expiry(self) -> float:
        """Return when the first of the holders' keys runs out, as far as nodes told (rule Q13)."""
        return min((vote.expiry for vote in self.votes), default=inf)
