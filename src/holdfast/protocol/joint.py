"""Several claims under one ticket: one lease for all of several names, or for some of many slots.

Knows claims, and stands for them before the engine and the faces as if it were one claim. Must not
know nodes or messages.

Every name is asked for at once. The whole is held when as many as are needed have their quorum at
the same moment. Until then each claim answers every inquiry by making way, also for a name that is
complete. So the lowest ticket waits for holders only, holders wait for nobody, and no order of
names is needed.

Where only some are needed (the slots of a semaphore), no more than those are asked for at first.
The others are asked for as soon as a node says that somebody else has one. What is granted besides
the ones that are held is given back at once.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence

from ..errors import ConfigError
from .claim import Claim, Decision, State
from .command import Recipe


class Some(Sequence[Recipe]):
    """Recipes of which only some are needed, no matter which."""

    # What users call them together.
    label: str

    @abstractmethod
    def first(self, ticket: int) -> Sequence[Recipe]:
        """Return those that this ticket asks for first, as many as it needs."""

    @abstractmethod
    def others(self, ticket: int) -> Sequence[Recipe]:
        """Return all others, in the order in which this ticket would like to have them."""

    @abstractmethod
    def tells(self, expiry: float) -> bytes:
        """Return the bytes that note on a node how many exist, for `expiry` seconds.

        The answer is the note that was there before.
        """

    @abstractmethod
    def differs(self, before: object) -> str:
        """Return what to warn of, if another client has noted another number; else nothing."""


class JointRequest:
    """The claims of one ticket, one for each name: asked for, held and given back together.

    Args:
        claims: As many as are needed. They are asked for first.
        spares: Makes the others, which would do as well.
    """

    def __init__(self, claims: Iterable[Claim], spares: Callable[[], Sequence[Claim]] | None = None) -> None:
        # Those in play: in the end, those that are held.
        self.claims = tuple(claims)
        # Claims that changed because another one did: the engine has to act on them.
        self.stirred: list[Claim] = []
        self.began = 0.0
        self._needed = len(self.claims)
        self._spares = spares
        # While it is over, or has not begun, what the claims tell of themselves is not looked at.
        self._over = True
        # What observers know the acquisition by, and what they were told: the state, whether it
        # waits, and whether a renewal is overdue.
        self.want = self.claims[0].want
        self.told = State.WAITING
        self.queued = False
        self.doubted = False
        # The claims with a confirmed renewal that observers have not been told of, and what was
        # left of each just before.
        self._renewals: dict[Claim, float] = {}
        for claim in self.claims:
            claim.company = self

    # ------------------------------------------------ what the caller wants

    def begin(self, now: float) -> None:
        """Ask for all names at once.

        What is hopeless from the beginning is so for each of them, and each says so.
        """
        self.began = now
        for claim in self.claims:
            claim.begin(now)
        self._over = False

    def extend(self, ttl: float, now: float, share: bool = False, hold: float | None = None) -> bool:
        """Make every lease last at least `ttl` seconds from now.

        Args:
            ttl: Seconds from now.
            now: The time.
            share: Make readers of writers.
            hold: Move the end that `max_hold` sets to this many seconds from now.

        Returns:
            False if they are not held.
        """
        # Every one is extended, no matter what the first says.
        going = [claim.extend(ttl, now, share, hold) for claim in self._soonest()]
        return all(going)

    def release(self, now: float, heard: bool = False) -> None:
        """Give everything back, or stop waiting."""
        for claim in self._soonest():
            claim.release(now, heard)
        self._leave_out(self.claims[self._needed :])

    def abandon(self, owner: object = None) -> None:
        """Stop renewing: the owner is gone without a release.

        Args:
            owner: The weak reference to it, if this is what that calls.
        """
        for claim in self.claims:
            claim.abandon()

    def stay(self) -> None:
        """Have all keys stay on the nodes when it ends, until they run out."""
        for claim in self.claims:
            claim.stay()

    def _soonest(self) -> list[Claim]:
        """Return the claims, the one that ends first at the head.

        If it has ended, so have all, before anything is asked or given back.
        """
        return sorted(self.claims, key=lambda it: it.until)

    # ------------------------------------------------ what a claim says of itself

    def complete(self, claim: Decision, now: float) -> bool:
        """Hold the whole, if enough others could be held at this moment. The rest goes back.

        Args:
            claim: The claim that could be held.
            now: The time.

        Returns:
            True if the others are held, so that the claim may be, too.
        """
        others = [it for it in self.claims if it is not claim]
        able = [(it, *terms) for it in others if (terms := it.could_hold(now))[0]]
        able = able[: self._needed - 1]
        if len(able) < self._needed - 1:
            return False
        for other, fence, until in able:
            other.hold(fence, until, now)
        spare = [it for it in others if it.state is State.WAITING]
        for other in spare:
            other.release(now)
        self._leave_out(spare)
        self._spares = None
        self.stirred += others
        return True

    def denied(self, now: float) -> bool:
        """Ask for the others, because somebody else has what was asked for first.

        Returns:
            True if others are asked for from now on.
        """
        if self._over or self._spares is None:
            return False
        spares = self._spares()
        self._spares = None
        self.claims += tuple(spares)
        for spare in spares:
            spare.company = self
        for spare in spares:
            # The first may have shown that all is in vain.
            if spare.state is State.WAITING:
                spare.begin(now)
        self.stirred += spares
        return True

    def ended(self, claim: Decision, now: float) -> None:
        """End the others for the same reason, unless a try has enough others left.

        Args:
            claim: The claim that is lost, or came to nothing.
            now: The time.
        """
        if self._over:
            return
        left = [it for it in self.claims if it.state is State.WAITING]
        if not claim.patient and len(left) >= self._needed and not isinstance(claim.refusal, ConfigError):
            self._leave_out([claim])
            return
        self._over = True
        others = [it for it in self.claims if it is not claim]
        for other in others:
            if other.state is State.HELD:
                other.lose(now, claim.reason)
            elif other.state is State.WAITING and claim.refusal is not None:
                other.refuse(claim.refusal, now)
        self._leave_out(others[self._needed - 1 :])
        self.stirred += others

    def _leave_out(self, claims: Sequence[Decision]) -> None:
        """Take claims out of play that are over. Nobody needs to know."""
        for claim in claims:
            claim.news = False
        self.claims = tuple(it for it in self.claims if it not in claims)

    def verdict(self, now: float) -> Exception:
        """Return what to tell a caller who waited in vain: of the first name that is missing."""
        missing = (it for it in self.claims if not it.could_hold(now)[0])
        return next(missing, self.claims[0]).verdict(now)

    @property
    def settled(self) -> bool:
        """Is there news of the whole?

        All claims change their state together, but nodes confirm them one by one.
        """
        return not any(it.awaited for it in self.claims)

    # ------------------------------------------------ what observers are told

    def waits(self) -> bool:
        """Return whether too few claims are left that no node has denied."""
        return self._spares is None and sum(not it.queued for it in self.claims) < self._needed

    def renewed(self, claim: Claim) -> float | None:
        """Note that a renewal of one claim is confirmed.

        Returns:
            None, until every claim has been renewed once more. Then the seconds that were left of
            the lease, at least, just before.
        """
        self._renewals[claim] = claim.left
        if not all(it in self._renewals for it in self.claims):
            return None
        left = min(self._renewals.values())
        self._renewals = {}
        return left

    # ------------------------------------------------ what is known of the whole

    @property
    def state(self) -> State:
        """The state of all. It is LOST as soon as one is."""
        states = {it.state for it in self.claims}
        return State.LOST if State.LOST in states else self.claims[0].state

    @property
    def until(self) -> float:
        """Until when all of it is held: the least of the claims."""
        return min(it.until for it in self.claims)

    @property
    def limit(self) -> float:
        """When `max_hold` ends it."""
        return self.claims[-1].limit

    @property
    def since(self) -> float:
        """When it was held."""
        return self.claims[-1].since

    @property
    def reason(self) -> str:
        """Why it was lost."""
        return next((it.reason for it in self.claims if it.reason), "")

    @property
    def why(self) -> str:
        """What the nodes have against its latest renewal."""
        return next((it.why for it in self.claims if it.why), "")

    @property
    def refusal(self) -> Exception | None:
        """Why it came to nothing."""
        return next((it.refusal for it in self.claims if it.refusal is not None), None)

    @property
    def setback(self) -> Exception | None:
        """Why its latest extension came to nothing."""
        return next((it.setback for it in self.claims if it.setback is not None), None)

    @property
    def doubt(self) -> bool:
        """Is a renewal of any of it not confirmed?"""
        return any(it.doubt for it in self.claims)

    @property
    def stays(self) -> bool:
        """Are the keys of any of it to stay on the nodes when it ends?"""
        return any(it.stays for it in self.claims)

    @property
    def contended(self) -> bool:
        """Was somebody else in the way of any of it?"""
        return any(it.contended for it in self.claims)

    def counting(self, now: float) -> int:
        """Return how many nodes count for each of it, at least."""
        return min(it.counting(now) for it in self.claims)

    @property
    def freed(self) -> int:
        """How many nodes, at least, have confirmed the release of every name."""
        return min(it.freed for it in self.claims)

    @property
    def done(self) -> bool:
        """Is there nothing more to hear about any of it?"""
        return all(it.done for it in self.claims)
