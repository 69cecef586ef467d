"""One claim, or several under one ticket, and their nodes. `protocol.script` plays conversations with them.

A node is an ordered connection: its answer is to the oldest command that it owes. Whatever happens, these are looked at, too:
an input that returns False has left nothing to do, and whoever waits is told of every new state.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from math import inf
from typing import Any

from holdfast.protocol.claim import Claim, State
from holdfast.protocol.command import CEDE, KEEP, RELEASE, TRY, WAIT, Command
from holdfast.protocol.joint import JointRequest
from holdfast.protocol.nodes import NodeSet, Standing
from holdfast.protocol.ticket import GOLDEN, Tickets
from holdfast.protocol.timing import Timing

P = 1_700_000_000_000_000  # the ticket, and so the fence that is proposed first
INBOX = b"%08x" % (-P * GOLDEN % 2**32) + b"a" * 24  # of a client in which this ticket's place is 0: it asks no sooner than others
TTL = 9.0
UNTIL = 8.908  # a grant asked for at 0 counts until then: 9 s less 1 % less 2 ms
OTHER = b"1600000000000000:" + b"b" * 32 + b":00000001"
FOREIGN = b"my_random_value"  # what a client of another kind writes

WORDS = {WAIT: "request", KEEP: "request", TRY: "try", CEDE: "cede", RELEASE: "release"}
HORIZON = 16_000  # K, in milliseconds


def usual() -> object:
    """The answer of a free node where nobody waits: it gives back P as the text that it was sent."""
    return b"%016d" % P


def granted(fence: int = P, *, lower: bool = False) -> list[object]:
    """Granted now."""
    return [fence, int(lower), 1]


def kept(fence: int = P, *, lower: bool = False) -> object:
    """Granted before, and all the time since."""
    return [fence, 1, 0] if lower else fence


def denied(left: int = 5000, place: int = 2, holder: bytes | None = OTHER) -> list[object]:
    """Another has it, for `left` ms; our place in the queue is `place`."""
    return [0, left, place, holder]


def node_set(nodes: int, standing: Mapping[int, Standing], patience: float = 1.0, outage: float = 9.0, since: float = 0.0) -> NodeSet:
    """All are up, save those that `standing` names, which have stood so `since` then."""
    made = NodeSet([f"node{i}" for i in range(nodes)], patience, outage, HORIZON)
    for node in range(nodes):
        how = standing.get(node, Standing.UP)
        made.note(node, how, since, ConnectionError("refused") if how is Standing.DOWN else None, free=8.25)
    return made


class Mute:
    """A recipe of which nothing but the name and the kind is of interest: a claim packs nothing."""

    basic, proposes = True, 0

    def __init__(self, label: str = "jobs", kind: bytes = b"") -> None:
        self.kind = kind
        self.name, self.label, self.part = label.encode(), label, label

    def request(self, token: bytes, ttl: float, mode: bytes, fence: int) -> bytes:
        raise AssertionError("a claim packs nothing")

    def release(self, token: bytes, held: bool, rest: float) -> bytes:
        raise AssertionError("a claim packs nothing")


class Conversation:
    """A claim that has begun, at 0 unless told otherwise, its nodes, and what they say to one another."""

    def __init__(
        self,
        nodes: int = 3,
        *,
        ttl: float = TTL,
        standing: Mapping[int, Standing] | None = None,
        patience: float = 1.0,
        outage: float = 9.0,
        patient: bool = True,
        deadline: float = inf,
        renew: bool = True,
        max_hold: float = inf,
        news_needed: int = 0,
        since: float = 0.0,
        begins: float = 0.0,
        kind: bytes = b"",
        inbox: bytes = INBOX,
    ) -> None:
        self.now = begins
        self.node_set = node_set(nodes, standing or {}, patience, outage, since)
        timing = Timing(ttl, None if patient else 0.0, renew, max_hold, news_needed)
        self.claim = Claim(Mute(kind=kind), timing, P, Tickets(inbox), self.node_set, deadline)
        self._listen()
        self.claim.begin(begins)
        self.happened(True, asked=True)

    def _listen(self) -> None:
        self.token = self.claim.token
        self.inputs: list[tuple[int, str, str, object]] = []  # what has happened, as the player has it
        self.said: list[tuple[Sequence[int], Command]] = []
        self.ledgers: list[deque[Command]] = [deque() for _ in range(self.node_set.size)]
        self.news = False  # did the last input bring news?
        self.notes: list[str] = []  # the names of the events that observers should hear
        self.unfit: list[int] = []  # the nodes that a warning should name
        self.absurd: list[int] = []  # those that have told a fence that no clock allows
        self._before = State.WAITING

    def at(self, moment: float) -> None:
        """It is this moment now."""
        assert not self.said, f"nobody looked at {self.said}"
        assert moment >= self.now
        self.now = moment

    # ------------------------------------------------ what nodes say

    def answers(self, node: int, reply: object) -> bool:
        """The node answers the oldest command that it owes. (One that nobody waits for is answered in passing.)"""
        ledger = self.ledgers[node]
        while ledger and ledger[0].owner is None:
            ledger.popleft()
        assert ledger, f"node {node} owes no answer"
        return self.happened(self.claim.answered(node, ledger.popleft(), reply, self.now))

    def breaks(self, node: int, standing: Standing = Standing.DOWN) -> bool:
        """The connection is gone, and with it what was on its way."""
        self.node_set.note(node, standing, self.now, ConnectionResetError("gone") if standing is Standing.DOWN else None)
        self.ledgers[node].clear()
        return self.happened(self.claim.broke(node, self.now))

    def joins(self, node: int, restarted: bool = False) -> bool:
        """There is a new connection, perhaps to another run of the server, which may be empty."""
        self.node_set.note(node, Standing.UP, self.now)
        return self.happened(self.claim.joined(node, self.now, restarted))

    def stands(self, node: int, standing: Standing, cause: Exception | None = None) -> bool:
        """A node that was not up is not up in another way."""
        self.node_set.note(node, standing, self.now, cause)
        return self.happened(self.claim.tick(self.now))

    def tick(self) -> bool:
        """Time has passed."""
        if self.claim.armed <= self.now:
            self.claim.armed = inf
        return self.happened(self.claim.tick(self.now))

    def wakes(self) -> None:
        """It is woken when it wants to be, or as soon as can be if that is past."""
        assert self.claim.armed <= self.claim.wake, "nobody will wake it that early"
        self.at(max(self.claim.wake, self.now))
        self.tick()

    # ------------------------------------------------ what the caller wants

    def release(self, heard: bool = False) -> None:
        self.claim.release(self.now, heard)
        self.happened(True, asked=True)

    def extend(self, ttl: float = TTL, share: bool = False, hold: float | None = None) -> list[str]:
        """What is said if it cannot be extended."""
        going = self.claim.extend(ttl, self.now, share, hold)
        assert type(going) is bool
        self.happened(True)
        return [] if going else ["it is not held"]

    def close(self) -> None:
        self.claim.close(self.now)
        self.happened(True)

    # ------------------------------------------------ within

    def happened(self, something: bool, asked: bool = False) -> bool:
        """What an engine does after an input."""
        claim = self.claim
        assert type(something) is bool
        self.news, claim.news = claim.news, False
        if not something:
            assert not claim.sends and not self.news, "it says that there is nothing to do"
            assert not claim.notes and not claim.unfit and not claim.absurd, "observers are told late"
            assert claim.done or claim.wake >= claim.armed, "nobody will wake it that early"
        if claim.state is not self._before:
            assert self.news or asked, "whoever waits is not told"
            self._before = claim.state
        said, claim.sends = claim.sends, []
        self.said = [*self.said, *said]
        self.notes += [it.__name__ for it in claim.notes]
        self.unfit += claim.unfit
        self.absurd += claim.absurd
        claim.notes, claim.unfit, claim.absurd = [], [], []
        for nodes, command in said:
            for node in nodes:
                if self.node_set.standing[node] is Standing.UP:
                    self.ledgers[node].append(command)
        if claim.done:
            claim.armed = inf
        elif something:
            claim.armed = min(claim.armed, claim.wake)
        return something


class Together:
    """A joint request that has begun, at 0, and the conversation of each of its names. `needed`: how many of them."""

    def __init__(
        self,
        *names: str,
        nodes: int = 3,
        standing: Mapping[int, Standing] | None = None,
        since: float = 0.0,
        needed: int | None = None,
        patient: bool = True,
        deadline: float = inf,
        **options: Any,
    ) -> None:
        self.now = 0.0
        self.node_set, tickets = node_set(nodes, standing or {}, since=since), Tickets(INBOX)
        timing = Timing(TTL, None if patient else 0.0, **options)
        self.parts: dict[str, Part] = {}

        def claims(names: Sequence[str]) -> list[Claim]:
            made = [Claim(Mute(it), timing, P, tickets, self.node_set, deadline) for it in names]
            self.parts |= {claim.recipe.label: Part(self, claim) for claim in made}
            return made

        self.joint = JointRequest(claims(names[:needed]), None if needed is None else lambda: claims(names[needed:]))
        self.claim = self.joint  # what is asked for
        self.inputs: list[tuple[int, str, str, object]] = []
        self.news = 0  # how often whoever waits was told
        self.joint.begin(0.0)
        for it in self:
            it.happened(True, asked=True)

    def __getitem__(self, name: str) -> Part:
        return self.parts[name]

    def __iter__(self) -> Iterator[Part]:
        return iter(self.parts.values())

    # ------------------------------------------------ what happens

    def answers(self, node: int, reply: object) -> None:
        """The node answers the same about every name."""
        for it in self:
            it.answers(node, reply)

    def breaks(self, node: int) -> None:
        """The connection is gone."""
        self.node_set.note(node, Standing.DOWN, self.now, ConnectionResetError("gone"))
        for it in self:
            it.ledgers[node].clear()
            it.happened(it.claim.broke(node, self.now))

    def joins(self, node: int) -> None:
        """There is a new connection."""
        self.node_set.note(node, Standing.UP, self.now)
        for it in self:
            it.happened(it.claim.joined(node, self.now))

    def wakes(self) -> None:
        """Those are woken that want to be first."""
        self.at(max(min(it.claim.wake for it in self), self.now))
        for it in self:
            assert it.claim.done or it.claim.armed <= it.claim.wake, "nobody will wake it that early"
            if it.claim.wake <= self.now:
                it.tick()

    def at(self, moment: float) -> None:
        """It is this moment now."""
        for it in self:
            Conversation.at(it, moment)

    def happened(self, part: Part, something: bool) -> None:
        """What an engine does after an input to one claim."""
        assert something or not self.joint.stirred, "others have changed, and nobody looks"
        self.news += part.news and self.joint.settled
        stirred, self.joint.stirred = self.joint.stirred, []
        for claim in stirred:
            self[claim.recipe.label].happened(True)

    # ------------------------------------------------ what the caller wants

    def release(self, heard: bool = False) -> None:
        self.joint.release(self.now, heard)
        for it in self:
            it.happened(True, asked=True)

    def extend(self, ttl: float = TTL, hold: float | None = None) -> list[str]:
        """What is said if they cannot be extended."""
        going = self.joint.extend(ttl, self.now, hold=hold)
        for it in self:
            it.happened(True)
        return [] if going else ["it is not held"]

    def close(self) -> None:
        for it in self:
            it.claim.close(self.now)
            it.happened(True)


class Part(Conversation):
    """The conversation about one of several names."""

    def __init__(self, whole: Together, claim: Claim) -> None:
        self.whole, self.claim, self.node_set = whole, claim, whole.node_set
        self._listen()

    @property
    def now(self) -> float:
        return self.whole.now

    @now.setter
    def now(self, now: float) -> None:
        self.whole.now = now

    def at(self, moment: float) -> None:
        self.whole.at(moment)

    def happened(self, something: bool, asked: bool = False) -> bool:
        super().happened(something, asked or self.claim not in self.whole.joint.claims)  # (nobody waits for what was left out)
        self.whole.happened(self, something)
        return something
