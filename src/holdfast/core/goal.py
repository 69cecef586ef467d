"""Several claims under one ticket, all or nothing: one lease for several names.

Knows claims, and stands for them before the crew and the faces as if it were one. Must not know nodes or messages.

Every name is asked for at once, and the whole is held when every name has its quorum at the same moment. Until then each claim
answers every inquiry by making way, also for a name that is complete: so the lowest ticket waits for nobody but holders, holders
wait for nobody, and no order of names is needed.
"""

from __future__ import annotations

from collections.abc import Sequence

from .claim import HELD, LOST, WAITING, Claim, State


class Goal:
    """The claims of one ticket, one for each name. What it knows is that of all together: the least, the worst, the first trouble."""

    __slots__ = ("__weakref__", "_begun", "claims", "stirred")

    def __init__(self, claims: Sequence[Claim]) -> None:
        self.claims = tuple(claims)
        self.stirred: list[Claim] = []  # those that changed because another one did: to be acted on
        self._begun = False
        for claim in claims:
            claim.company = self

    # ------------------------------------------------ what the caller wants

    def begin(self, now: float) -> None:
        """Ask for all names at once. (What is hopeless from the beginning is so for each of them, and each says so.)"""
        for claim in self.claims:
            claim.begin(now)
        self._begun = True

    def extend(self, ttl: float, now: float, share: bool = False) -> bool:
        """Make every lease last at least `ttl` seconds from now. False: they are not held."""
        going = [claim.extend(ttl, now, share) for claim in self._soonest()]  # (every one, whatever the first says)
        return all(going)

    def release(self, now: float, heard: bool = False) -> None:
        """Give everything back, or stop waiting."""
        for claim in self._soonest():
            claim.release(now, heard)

    def abandon(self) -> None:
        """Its owner is gone without a release."""
        for claim in self.claims:
            claim.abandon()

    def _soonest(self) -> list[Claim]:
        """The claims, the one that ends first at the head: if it has ended, so have all, before anything is asked or given back."""
        return sorted(self.claims, key=lambda it: it.until)

    # ------------------------------------------------ what a claim says of itself

    def complete(self, claim: Claim, now: float) -> bool:
        """The claim could be held. Could all others, at this moment? Then they are."""
        others = [it for it in self.claims if it is not claim]
        terms = [it.could_hold(now) for it in others]
        if not all(fence for fence, _ in terms):
            return False
        for other, (fence, until) in zip(others, terms, strict=True):
            other.hold(fence, until, now)
        self.stirred += others
        return True

    def ended(self, claim: Claim, now: float) -> None:
        """The claim is lost, or came to nothing: so do the others, for the same reason."""
        if not self._begun:
            return
        for other in self.claims:
            if other.state is HELD:
                other.lose(now, claim.reason)
            elif other.state is WAITING and claim.refusal is not None:
                other.refuse(claim.refusal, now)
        self.stirred += [it for it in self.claims if it is not claim]

    def verdict(self, now: float) -> Exception:
        """What to tell a caller who waited in vain: of the first name that was not to be had."""
        return next((it for it in self.claims if not it.could_hold(now)[0]), self.claims[0]).verdict(now)

    @property
    def settled(self) -> bool:
        """Is there news of the whole? (All claims change their state together, but confirm one by one.)"""
        return not any(it.awaited for it in self.claims)

    # ------------------------------------------------ what is known of the whole

    @property
    def state(self) -> State:
        """Lost as soon as one is."""
        states = {it.state for it in self.claims}
        return LOST if LOST in states else self.claims[0].state

    @property
    def until(self) -> float:
        """Until when all of it is held: the least."""
        return min(it.until for it in self.claims)

    @property
    def limit(self) -> float:
        """When `max_hold` ends it."""
        return self.claims[0].limit

    @property
    def began(self) -> float:
        """When it began."""
        return self.claims[0].began

    @property
    def since(self) -> float:
        """When it was held."""
        return self.claims[0].since

    @property
    def reason(self) -> str:
        """Why it was lost."""
        return next((it.reason for it in self.claims if it.reason), "")

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
        """Is a renewal of any name not confirmed?"""
        return any(it.doubt for it in self.claims)

    @property
    def contended(self) -> bool:
        """Was somebody else in the way of any name?"""
        return any(it.contended for it in self.claims)

    @property
    def freed(self) -> int:
        """How many nodes have confirmed the release of every name, at least."""
        return min(it.freed for it in self.claims)

    @property
    def done(self) -> bool:
        """Is there nothing more to hear about any of it?"""
        return all(it.done for it in self.claims)

    def counting(self, now: float) -> int:
        """How many nodes count now for every name, at least."""
        return min(it.counting(now) for it in self.claims)
