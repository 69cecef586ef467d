"""Several claims under one ticket: one lease for several names, all or nothing, or for some of many slots.

Knows claims, and stands for them before the crew and the faces as if it were one. Must not know nodes or messages.

Every name is asked for at once, and the whole is held when as many as are needed have their quorum at the same moment. Until then each
claim answers every inquiry by making way, also for a name that is complete: so the lowest ticket waits for nobody but holders, holders
wait for nobody, and no order of names is needed.

Where only some are needed (the slots of a semaphore), no more than those are asked for at first, and all others as soon as a node says
that somebody else has one. What is granted besides the ones that are held is given back at once.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Generic, TypeVar

from ..errors import ConfigError
from .claim import HELD, LOST, WAITING, Claim, State
from .command import Recipe


class Some(Sequence[Recipe]):
    """Recipes of which only some are needed, whichever. `label`: what users call them together."""

    label: str

    @abstractmethod
    def first(self, ticket: int) -> Sequence[Recipe]:
        """Those that this ticket asks for first, as many as it needs."""

    @abstractmethod
    def others(self, ticket: int) -> Sequence[Recipe]:
        """All others, in the order in which it would like to have them."""

    @abstractmethod
    def tells(self, expiry: float) -> bytes:
        """The bytes that note on a node how many there are, for `expiry` seconds. The answer is the note that was there."""

    @abstractmethod
    def differs(self, before: object) -> str:
        """What to warn of, if another client has noted another number; empty if none has."""


T = TypeVar("T", bound="Claim | Goal")


class Several(Generic[T]):
    """What is held together, known as if it were one: the least, the worst, the first trouble. `parts`: claims, or goals."""

    __slots__ = ("parts",)

    def __init__(self, parts: Sequence[T]) -> None:
        self.parts = tuple(parts)

    @property
    def state(self) -> State:
        """Lost as soon as one is."""
        states = {it.state for it in self.parts}
        return LOST if LOST in states else self.parts[0].state

    @property
    def until(self) -> float:
        """Until when all of it is held: the least."""
        return min(it.until for it in self.parts)

    @property
    def limit(self) -> float:
        """When `max_hold` ends it."""
        return self.parts[-1].limit

    @property
    def began(self) -> float:
        """When it began."""
        return self.parts[0].began

    @property
    def since(self) -> float:
        """When it was held."""
        return self.parts[-1].since

    @property
    def reason(self) -> str:
        """Why it was lost."""
        return next((it.reason for it in self.parts if it.reason), "")

    @property
    def refusal(self) -> Exception | None:
        """Why it came to nothing."""
        return next((it.refusal for it in self.parts if it.refusal is not None), None)

    @property
    def setback(self) -> Exception | None:
        """Why its latest extension came to nothing."""
        return next((it.setback for it in self.parts if it.setback is not None), None)

    @property
    def doubt(self) -> bool:
        """Is a renewal of any of it not confirmed?"""
        return any(it.doubt for it in self.parts)

    @property
    def contended(self) -> bool:
        """Was somebody else in the way of any of it?"""
        return any(it.contended for it in self.parts)

    def counting(self, now: float, fence: int = 0) -> int:
        """How many nodes count now for all of it, at least, and have this fence or a larger one."""
        return min(it.counting(now, fence) for it in self.parts)


class Goal(Several[Claim]):
    """The claims of one ticket, one for each name: asked for, held and given back together.

    `claims`: as many as are needed, and asked for first; `spares`: makes the others that would do as well.
    """

    __slots__ = ("__weakref__", "_began", "_needed", "_over", "_spares", "stirred")

    def __init__(self, claims: Iterable[Claim], spares: Callable[[], Sequence[Claim]] | None = None) -> None:
        super().__init__(tuple(claims))  # those that are in play: in the end, those that are held
        self.stirred: list[Claim] = []  # those that changed because another one did: to be acted on
        self._began = 0.0
        self._needed, self._spares = len(self.claims), spares
        self._over = True  # what the claims tell of themselves is not looked at
        for claim in self.claims:
            claim.company = self

    # ------------------------------------------------ what the caller wants

    def begin(self, now: float) -> None:
        """Ask for all names at once. (What is hopeless from the beginning is so for each of them, and each says so.)"""
        self._began = now
        for claim in self.claims:
            claim.begin(now)
        self._over = False

    def extend(self, ttl: float, now: float, fence: int = 0, share: bool = False) -> bool:
        """Make every lease last at least `ttl` seconds from now, and raise all fences to this one. False: they are not held.

        `share`: writers become readers.
        """
        going = [claim.extend(ttl, now, fence, share) for claim in self._soonest()]  # (every one, whatever the first says)
        return all(going)

    def release(self, now: float, heard: bool = False) -> None:
        """Give everything back, or stop waiting."""
        for claim in self._soonest():
            claim.release(now, heard)
        self._leave_out(self.claims[self._needed :])

    def abandon(self) -> None:
        """Its owner is gone without a release."""
        for claim in self.claims:
            claim.abandon()

    def _soonest(self) -> list[Claim]:
        """The claims, the one that ends first at the head: if it has ended, so have all, before anything is asked or given back."""
        return sorted(self.claims, key=lambda it: it.until)

    # ------------------------------------------------ what a claim says of itself

    def complete(self, claim: Claim, now: float) -> bool:
        """The claim could be held. Could enough others, at this moment? Then they are, and what is too much goes back."""
        others = [it for it in self.claims if it is not claim]
        able = [(it, *terms) for it in others if (terms := it.could_hold(now))[0]][: self._needed - 1]
        if len(able) < self._needed - 1:
            return False
        for other, fence, until in able:
            other.hold(fence, until, now)
        spare = [it for it in others if it.state is WAITING]
        for other in spare:
            other.release(now)
        self._leave_out(spare)
        self._spares = None
        self.stirred += others
        return True

    def denied(self, now: float) -> bool:
        """Somebody else has what was asked for. The others would do as well."""
        if self._over or self._spares is None:
            return False
        spares, self._spares = self._spares(), None
        self.parts += tuple(spares)
        for spare in spares:
            spare.company = self
        for spare in spares:
            if spare.state is WAITING:  # (the first may have shown that all is in vain)
                spare.begin(now)
        self.stirred += spares
        return True

    def ended(self, claim: Claim, now: float) -> None:
        """The claim is lost, or came to nothing: so do the others, for the same reason, unless a try has enough others left."""
        if self._over:
            return
        left = [it for it in self.claims if it.state is WAITING]
        if not claim.patient and len(left) >= self._needed and not isinstance(claim.refusal, ConfigError):
            self._leave_out([claim])
            return
        self._over = True
        others = [it for it in self.claims if it is not claim]
        for other in others:
            if other.state is HELD:
                other.lose(now, claim.reason)
            elif other.state is WAITING and claim.refusal is not None:
                other.refuse(claim.refusal, now)
        self._leave_out(others[self._needed - 1 :])
        self.stirred += others

    def _leave_out(self, claims: Sequence[Claim]) -> None:
        """They are over, and nobody needs to know."""
        for claim in claims:
            claim.news = False
        self.parts = tuple(it for it in self.claims if it not in claims)

    def verdict(self, now: float) -> Exception:
        """What to tell a caller who waited in vain: of the first name that was not to be had."""
        return next((it for it in self.claims if not it.could_hold(now)[0]), self.claims[0]).verdict(now)

    @property
    def settled(self) -> bool:
        """Is there news of the whole? (All claims change their state together, but confirm one by one.)"""
        return not any(it.awaited for it in self.claims)

    # ------------------------------------------------ what is known of the whole

    @property
    def claims(self) -> tuple[Claim, ...]:
        """Those that are in play."""
        return self.parts

    @property
    def began(self) -> float:
        """When it began."""
        return self._began

    @property
    def freed(self) -> int:
        """How many nodes have confirmed the release of every name, at least."""
        return min(it.freed for it in self.claims)

    @property
    def done(self) -> bool:
        """Is there nothing more to hear about any of it?"""
        return all(it.done for it in self.claims)
