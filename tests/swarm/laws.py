"""What must hold in worlds in which more happens than in any storm: leases are extended, operators delete keys, nodes forget.

Knows the laws that hold everywhere. Must not know which faults there are.

A node that forgets a fence record may grant the same lease again, or a lower fence. No client can tell that, so laws excuse it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf

from holdfast.protocol.claim import Claim, State
from holdfast.protocol.exclusive import keys_of
from holdfast.protocol.readwrite import rw_keys_of
from holdfast.testing.client import SimulatedClient
from holdfast.testing.laws import BACK, COMMANDS, TICK, HeldClaim, Laws, has_token, runs_out
from holdfast.testing.network import Node
from holdfast.testing.windows import HeldWindow
from holdfast.testing.world import Violation, World
from holdfast.wire.connection import ConnectionState

MORE = {
    "extension": "a lease lasts as long as an extension has confirmed, unless a node that had its token has lost it",
    "whole": "the names of a set are held together, or none of them is",
    "patience": "no caller waits longer than its `wait`",
    "recovery": "P-L2: when faults have ended, on a majority at least, every waiter is served within a bound",
    "core": "R-L3: whatever a minority does, a newcomer gets a free lock in two round trips and a node_timeout",
    "well": "when a majority of the nodes has been well for long, no client says that it has none",
    "left over": "when no caller wants anything, clients have nothing left, and owe no node an answer or a command",
    "left for ever": "P-M1: in the end, no node has a key",
}


class SwarmLaws(Laws):
    """Watches one shard, and is told what is done to it by hand."""

    def __init__(self, world: World, nodes: Sequence[Node], guard: float) -> None:
        super().__init__(world, nodes, guard)
        self.looked |= dict.fromkeys(MORE, 0)
        # Until when the longest extension that was confirmed makes a lease last, by its holder's clock.
        self.promised: dict[Claim, float] = {}
        # How many requests were sent, by token.
        self.requests: dict[bytes, int] = {}

    # ------------------------------------------------ what is done by hand

    def takes_away(self, node: Node, name: bytes) -> None:
        """An operator is about to delete the key on this node."""
        self._is_taken(node, node.holder(name))

    def forgets(self, node: Node, do: Callable[[], object]) -> None:
        """A node loses keys by this, while it runs: what it had then was taken away there."""
        had = [it for it in self.open if has_token(node, it.recipe.name, it.token)]
        ends = [runs_out(node, it.recipe.name, it.token) for it in had]
        fences = _fences(node)
        do()
        for claim, end in zip(had, ends, strict=True):
            name, token = claim.recipe.name, claim.token
            if not has_token(node, name, token) or runs_out(node, name, token) < end:
                self._is_taken(node, token)
        now = _fences(node)
        if any(now.get(key, 0) < fence for key, fence in fences.items()):
            self.forgot = self.world.now

    def extended(self, driver: SimulatedClient, claim: Claim, until: float) -> None:
        """An extension is confirmed: from now on its end counts."""
        if claim.state is State.HELD and claim in self.held:
            self.looked["extension"] += 1
            self.promised[claim] = max(self.promised.get(claim, -inf), until)
            self._lasts(claim, claim.until)

    # ------------------------------------------------ what must hold

    def look(self) -> None:
        """See whether everything is as it must be."""
        super().look()
        for company in {it.company for it in self.held if it.company is not None}:
            held = sum(it.state is State.HELD for it in company.claims)
            self.looked["whole"] += 1
            if held != len(company.claims):
                raise Violation(f"whole: of {[it.recipe.label for it in company.claims]} {held} are held")

    def sends(self, driver: SimulatedClient, node: Node, data: bytes) -> None:
        """A client is about to send this to a node."""
        super().sends(driver, node, data)
        for sha, token in COMMANDS.findall(data):
            if sha not in BACK:
                self.requests[token] = self.requests.get(token, 0) + 1

    def quiet(self, driver: SimulatedClient) -> None:
        """Check that a driver that nobody uses any more holds nothing and waits for nothing."""
        engine = driver.engine
        self.looked["left over"] += 1
        busy = [it for it in engine.connections if it.state is ConnectionState.UP and (it.ledger or it.out)]
        if engine.live or busy:
            tokens = [claim.token.decode() for claim in engine.live.values()]
            raise Violation(f"left over: {driver} still has {tokens}, or waits for answers")

    def _lasts(self, claim: Claim, until: float) -> None:
        """See that a lease that ends at `until`, or has ended then, lasts as an extension said."""
        wanted = min(self.promised.get(claim, -inf), claim.limit)
        if until < wanted - TICK and not self._was_missed(claim):
            raise Violation(f"extension: {claim.token.decode()} ends {wanted - until:.6f} s before what an extension confirmed")

    def _holds(self, claim: Claim, held: HeldClaim, happened: int) -> bool:
        before = held.until
        holds = super()._holds(claim, held, happened)
        if holds and held.until != before:
            self._lasts(claim, claim.until)
        return holds

    def _is_lost(self, claim: Claim, driver: SimulatedClient) -> None:
        super()._is_lost(claim, driver)
        if claim.reason != "closed":
            self._lasts(claim, driver.clock())

    def _ends(self, claim: Claim) -> None:
        super()._ends(claim)
        self.promised.pop(claim, None)

    # ------------------------------------------------ what a node that forgot excuses

    def _has_missed(self, claim: Claim) -> bool:
        """Or was a fence record deleted, and a late request of the claim has made a higher one?

        No client can tell that from another grant (rules C14 and F1).
        """
        held = self.held[claim]
        raised = any(_fences(it).get(key, 0) > claim.fence for it in held.own for key in _records(claim))
        return super()._has_missed(claim) or (raised and self.forgot >= held.driver.clock.when(claim.began))

    def _is_excused(self, claim: Claim, driver: SimulatedClient, earlier: HeldWindow) -> bool:
        """Or has a node forgotten the earlier fence, and none told this claim that knows it?"""
        if super()._is_excused(claim, driver, earlier):
            return True
        if self.forgot < earlier.begins:
            return False
        heard = claim.as_usual or [i for i, vote in enumerate(claim.votes) if vote.sent > -inf]
        return max(_fences(driver.nodes[node]).get(key, 0) for node in heard for key in _records(claim)) < earlier.fence


def _records(claim: Claim) -> tuple[bytes, bytes]:
    """The keys of a name that have a record of fences."""
    return keys_of(claim.recipe.name)[1], rw_keys_of(claim.recipe.name)[5]


def _fences(node: Node) -> dict[bytes, int]:
    """The fences that the node has a record of, by key."""
    space = node.server.data[0].values
    return {key: int(it) for key, it in space.items() if b"fence" in key and isinstance(it, bytes)}
