"""When a claim asks all nodes again, and which of its questions no majority has confirmed yet.

Knows moments, and counts grants. Must not know votes or nodes, nor what is sent: the claim asks.
"""

from __future__ import annotations

from math import inf

# Seconds by which a renewal may leave early, together with others. Short leases allow less.
AHEAD = 0.1


class Renewal:
    """The schedule of one claim, and what it waits to have confirmed.

    A waiter sends a heartbeat when `due`, and a holder renews its lease. Besides, a caller may ask
    for an extension. So two things can be unconfirmed at a time, each since the moment at which it
    was sent:

    * a renewal, for which nobody waits. If it takes too long, the lease is in `doubt`.
    * an extension, whose caller waits.

    Claims that begin together would ask together for ever. So each has a place of its own in the
    period of ttl/3. It comes to its place by asking up to ttl/6 sooner the first two times, and
    keeps it: what leaves late, or early with others, moves nothing that comes after it.

    Args:
        ttl: The length of the lease, in seconds.
        least: No fewer grants than these confirm something.
        wanted: Renew the lease for as long as it is held.
        place: Its place in the period, from 0 to less than 1. 0 asks no sooner.
    """

    __slots__ = (
        "_asked", "_early", "_extended", "_goal", "_least", "_missing", "_ttl", "_turn", "_waiting", "doubt", "due",
        "wanted",
    )  # fmt: skip

    def __init__(self, ttl: float, least: int, wanted: bool, place: float = 0.0) -> None:
        self._ttl = ttl
        self._least = least
        # By how many seconds it asks sooner, each of the first two times.
        self._early = ttl / 6 * place
        # The turn of the period that is next, or was last.
        self._turn = inf
        self.wanted = wanted
        # When to ask all nodes again.
        self.due = inf
        # Is a renewal overdue?
        self.doubt = False
        # When the renewal was sent that is not confirmed yet, and the latest extension.
        self._asked = inf
        self._extended = inf
        # When the first extension was sent whose caller still waits. A grant has to confirm the
        # latest one, which may have raised a fence. But new ones must not prolong the wait of all.
        self._waiting = inf
        # Until when that extension has to make the lease last.
        self._goal = 0.0
        # How many grants are missing, at least, before either can be confirmed.
        self._missing = 0

    # ------------------------------------------------ when to ask

    def waits(self, now: float) -> None:
        """Plan the first heartbeat of a waiter (rule Q12)."""
        self.due = now + self._ttl / 3 - self._early
        self._turn = self.due - self._early

    def beats(self, now: float) -> bool:
        """Return whether a heartbeat is due. If it is, plan the next one (rule Q12)."""
        if now < self.due:
            return False
        self.due = self._next_turn(now)
        return True

    def holds(self, until: float, now: float) -> None:
        """Plan the first renewal of a lease that is held from now on (rule C8).

        Args:
            until: When the lease ends, by the votes.
            now: The time.
        """
        if self.wanted:
            self.due = until - self._ttl * 2 / 3 - self._early
            self._turn = self.due - self._early
        elif until - now < self._ttl * 0.9:
            # It waited for its lease: renewed once, at once.
            self.due = now
        else:
            self.due = inf

    def leaves(self, now: float, patience: float) -> bool:
        """Return whether a renewal leaves now. If it does, plan the next one (rules C8 and C9)."""
        if now < self.due - min(AHEAD, self._ttl / 30):
            return False
        if not self.wanted:
            self.due = inf
        elif self.doubt:
            self.due = now + patience
        else:
            self.due = self._next_turn(now)
        self._sent(now)
        return True

    def hurries(self, now: float) -> None:
        """Renew at once a lease that is renewed at all. Its turns stay as they were."""
        if self.wanted:
            self.due = now

    def stops(self) -> None:
        """Ask for nothing more: the lease ends when it has run out."""
        self.wanted = False
        self.due = inf

    def wake(self, patience: float) -> float:
        """Return when a held claim has to look again: something is due, or takes too long."""
        asked = self._waiting if self.doubt else min(self._asked, self._waiting)
        return min(self.due, asked + patience)

    def _next_turn(self, now: float) -> float:
        """Go on to the next turn after `now`, and after the one that may leave early now."""
        period = self._ttl / 3
        missed = max(0.0, now - self._turn) // period
        self._turn += period * (1 + missed)
        return self._turn

    # ------------------------------------------------ what is asked, and takes too long

    def extends(self, until: float, now: float) -> None:
        """Note that an extension is sent (rule C18).

        Args:
            until: When the lease is to end at the earliest. What an extension that is not yet
                confirmed asked for is kept.
            now: The time.
        """
        self._sent(now)
        if self._extended == inf:
            self._goal = 0.0
            self._waiting = now
        self._goal = max(until, self._goal)
        self._extended = now

    def doubts(self, now: float, patience: float) -> bool:
        """Return whether the lease gets into doubt now: a renewal was not confirmed in time (C9).

        The renewal is then repeated at once, and more often while the doubt lasts.
        """
        if self.doubt or now < self._asked + patience:
            return False
        self.doubt = True
        if self.wanted:
            self.due = now
        return True

    def gives_up(self, now: float, patience: float) -> float:
        """Return when the first extension was sent whose caller waits no longer; inf: none was.

        Callers of later ones wait no longer, either: no majority has answered for all that time.
        """
        sent = self._waiting
        if now < sent + patience:
            return inf
        self._extended = self._waiting = inf
        return sent

    @property
    def extending(self) -> bool:
        """Does a caller wait for an extension?"""
        return self._extended < inf

    def _sent(self, now: float) -> None:
        """Note that something is sent which only a quorum of grants confirms."""
        if self._asked == inf:
            if self._extended == inf:
                self._missing = self._least
            self._asked = now

    # ------------------------------------------------ what is confirmed

    def hears(self) -> bool | None:
        """Count one grant.

        Returns:
            True if a quorum may have confirmed something by now, False if more grants are needed.
            None if nothing is to be confirmed.
        """
        if self._asked == inf and self._extended == inf:
            return None
        if self._missing > 0:
            self._missing -= 1
        return self._missing == 0

    def confirms(self, sent: float, until: float) -> tuple[bool, bool]:
        """Take in what a quorum of nodes has granted.

        Args:
            sent: Up to when what was sent is answered by a quorum.
            until: When the lease ends, by the votes.

        Returns:
            Whether the renewal is confirmed by this, and whether the extension is.
        """
        renewed = self._asked <= sent
        if renewed:
            self._asked = inf
            self.doubt = False
        extended = self._extended <= sent and self._goal <= until
        if extended:
            self._extended = self._waiting = inf
        return renewed, extended
