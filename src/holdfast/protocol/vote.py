"""What one node said last about one token, and everything that can happen to that.

Knows the rules of a vote: when it counts, until when, and since when it is certain that the node
has had the token. Must not know how many votes decide, nor what is sent: the claim does.

Each method that changes a vote is one thing that happens. Its text names the rule of
`docs/protocol.md` that it carries out. Nothing outside this module changes a vote.
"""

from __future__ import annotations

from math import inf

from .answer import NO_KEY, Denied, Granted


class Vote:
    """What one node said last about one token.

    Defaults are on the class, because most votes never leave them.
    """

    # ------------------------------------------------ the grant

    # Was the node's latest word a grant?
    granted: bool = False
    # F, as the latest grant told it; 0 if the node grants nothing.
    fence: int = 0
    # Until when the grant counts.
    bound: float = -inf
    # Does a lower ticket wait there?
    lower: bool = False

    # ------------------------------------------------ what is under way

    # How many requests the node has not answered yet.
    owed: int = 0
    # Did a connection break that owed an answer, and has none come since? It may have been a grant.
    unheard: bool = False
    # The fence that was last sent to be written back.
    wrote: int = 0
    # Was the node asked to make way, and has it not answered? Then nothing that it says counts.
    ceding: bool = False
    # Will that answer never come? Then the node never counts again for this token.
    burnt: bool = False

    # ------------------------------------------------ since when it is certain

    # When the latest request was sent that this connection has answered; -inf: none yet.
    sent: float = -inf
    # The bound that a pushed grant has, by that request.
    base: float
    # `sent`, as it was when the latest grant arrived; -inf: there was none, or it was ceded since.
    last: float = -inf
    # Since when a holder is certain of the node: its grants are an unbroken series from then on.
    # -inf: since the lease began; inf: there is no series.
    since: float = inf

    # ------------------------------------------------ who has the name instead

    # Has the node denied, or did an operator take the name away?
    denied: bool = False
    # The first bytes of the holder's value, as the latest denial told them.
    holder: bytes | None = None
    # Milliseconds that the holder's key had when that was told, or LASTING, or NO_KEY.
    left: int = NO_KEY
    # When that was told.
    told: float = 0.0
    # When to ask again because the holder's key has run out; inf: no such moment is known.
    expiry: float = inf
    # The value whose end the node was asked to tell of: a node tells each change only once.
    watched: bytes | None = None
    # The latest answer, if it was an error.
    error: Exception | None = None

    # ------------------------------------------------ what the claim sends

    def asked(self) -> None:
        """Note a request to the node, which now owes one more answer."""
        self.owed += 1

    def written_to(self, fence: int) -> None:
        """Note the fence that is written back to the node, so that it is sent once (rule F9)."""
        self.wrote = fence

    def cedes(self) -> None:
        """Count nothing from the sending of a cede until its answer (rule Q9)."""
        self._grants_nothing()
        self.ceding = True
        self.since = inf
        self.last = -inf

    def watches(self, holder: bytes) -> None:
        """Note the value whose end the node tells of (rule Q14)."""
        self.watched = holder

    def turned_reader(self) -> None:
        """Take the writer's grant for the reader's, whose fence is higher by one (rule D2).

        What was asked for the writer is not listened to.
        """
        self.owed = 0
        if self.granted:
            self.fence += 1

    # ------------------------------------------------ what the node answers

    def heard(self) -> None:
        """Note that an answer has come, whatever it says."""
        self.owed -= 1

    def failed(self, error: Exception) -> None:
        """Note an answer that is an error. No bound moves (rule C4)."""
        self.error = error

    def relents(self) -> None:
        """Forget an answer that was an error: the node would not give it any more."""
        self.error = None

    def answered(self, sent: float, base: float) -> None:
        """Note an answer that the script gave.

        If it answers a cede, the node may count again (rule Q9).

        Args:
            sent: When the request was sent.
            base: Until when a grant that this request brings counts (rule C2).
        """
        self.sent = sent
        self.base = base
        self.unheard = False
        self.ceding = False
        self.error = None

    def grants(self, answer: Granted, again: bool, since: float) -> bool:
        """Count the grant that has just been answered (rule C2).

        Args:
            answer: The grant.
            again: The node has granted the token again. Then its lease may be shorter than before.
            since: When a series that this grant begins is certain from (rule C13).

        Returns:
            True if the grant counts for less long than the one before.
        """
        before = self.bound
        bound = self.base
        if self.granted and not again:
            bound = max(bound, before)
        self._grants(answer.fence, answer.lower, bound, since)
        return bound < before

    def keeps(self, fence: int, sent: float, base: float) -> bool:
        """Count the usual answer to a renewal: held before, at this fence, and nobody lower waits.

        It says the same as `answered` and `grants` do together, in one step, because most of what
        nodes ever answer is this.

        Args:
            fence: The fence that the node has told.
            sent: When the request was sent.
            base: Until when a grant that this request brings counts (rule C2).

        Returns:
            False if it is not as usual. Then the vote is unchanged, and the answer is read in full.
        """
        if fence != self.fence or not self.granted:
            return False
        self.sent = sent
        self.base = base
        self.unheard = False
        self.error = None
        self.lower = False
        self.last = sent
        if base > self.bound:
            self.bound = base
        return True

    def denies(self, answer: Denied, now: float) -> None:
        """Note that somebody else has the name, and who."""
        self._grants_nothing()
        self.denied = True
        self.left = answer.left
        self.told = now
        self.holder = answer.holder

    def expects_expiry(self, left: int, now: float) -> None:
        """Plan to ask 1 ms after the holder's key has run out (rule Q13)."""
        self.expiry = now + (left + 1) / 1000

    def granted_as_usual(self, fence: int, bound: float, sent: float) -> None:
        """Take over an answer that was only counted: granted by the first request, at its fence."""
        self.granted = True
        self.fence = fence
        self.since = -inf
        self.owed = 0
        self.bound = bound
        self.base = bound
        self.sent = sent
        self.last = sent

    # ------------------------------------------------ what the node says by itself

    def grants_by_push(self, fence: int, since: float) -> None:
        """Count a pushed grant, by the latest request that was answered (rule C3).

        Before the first answer on a connection, a pushed grant has no bound and counts for nothing.

        Args:
            fence: The fence that the node has granted.
            since: When a series that this grant begins is certain from (rule C13).
        """
        if self.sent > -inf:
            self._grants(fence, False, self.base, since)
        else:
            self._grants_nothing()

    def inquires(self) -> None:
        """Note that a lower ticket waits there, if the node counts (rule Q7)."""
        self.lower = self.granted

    def taken(self) -> None:
        """Note that an operator has taken the name away."""
        self._grants_nothing()
        self.denied = True

    def changed(self) -> None:
        """Note that the value which the node watched has changed: it tells of nothing more."""
        self.watched = None

    # ------------------------------------------------ what else happens

    def expired(self, now: float) -> bool:
        """Return whether the holder's key has run out by now. This is told once (rule Q13)."""
        if now < self.expiry:
            return False
        self.expiry = inf
        return True

    def lapses(self) -> None:
        """Count the grant no longer: its bound has passed."""
        self.granted = False

    def breaks(self) -> None:
        """End the series: the node has lost the token by itself (rule C12)."""
        self.since = inf

    def refused(self, error: Exception) -> None:
        """Give the node no vote: the fence that it grants is further ahead than any clock (F5)."""
        self._grants_nothing()
        self.breaks()
        self.error = error

    def disconnected(self) -> None:
        """Forget what was under way. What the node has granted counts on (rule C11).

        What was under way may have been granted: the next grant is not the first (rule C13), and
        may tell of that one (rule C14).
        """
        if self.owed:
            self.last = max(self.last, 0.0)
            self.unheard = True
        self.owed = 0
        self.sent = -inf
        self.wrote = 0
        self.expiry = inf
        self.denied = False
        self.error = None
        self.watched = None

    def burns(self) -> None:
        """Never count the node again: its cede may be executed at any later time (rule Q10)."""
        self.burnt = True
        self.granted = False
        self.since = inf

    def _grants(self, fence: int, lower: bool, bound: float, since: float) -> None:
        """The node's latest word is a grant."""
        self.granted = True
        self.fence = fence
        self.lower = lower
        self.bound = bound
        self.last = self.sent
        self.denied = False
        if self.since == inf:
            self.since = since

    def _grants_nothing(self) -> None:
        """The node's latest word is no grant."""
        self.granted = False
        self.fence = 0
        self.lower = False
        self.bound = 0.0
        self.wrote = 0
        self.denied = False

    # ------------------------------------------------ what it is worth

    def counts(self, now: float) -> bool:
        """Return whether the node certainly has the token now (rules C2 and C5)."""
        return self.granted and now < self.bound

    def covers(self, moment: float, now: float) -> bool:
        """Return whether the node counts, and certainly had the token at this moment (rule C12)."""
        return self.granted and now < self.bound and self.since <= moment

    def raised(self, fence: int, largest: int) -> bool:
        """Return whether a fence shows that the node granted the token again unheard (rule C14).

        In the first answer after one that was lost, what was proposed before explains nothing: a
        grant may have had that fence, too.

        Args:
            fence: The fence of a grant that the node does not call new.
            largest: The largest fence that this claim has ever proposed.
        """
        return fence > (self.fence if self.unheard else max(self.fence, largest))

    def may_grant(self, reachable: bool) -> bool:
        """Return whether a try may still get this node: one that denied or failed cannot (Q15).

        Args:
            reachable: The node is up or being dialled.
        """
        return self.granted or (reachable and self.sent == -inf and self.error is None)

    @property
    def against(self) -> bool:
        """Is somebody else in the way at this node?"""
        return self.denied or self.lower or self.ceding

    @property
    def no_lock(self) -> bool:
        """Is the name's key there of another type than a lock's?"""
        # Redis 6.2 puts words of its own before the code of an error within a script.
        return "WRONGTYPE" in str(self.error)
