"""One claim, or several under one ticket, talk with their nodes, and a test writes down who says what, in which order, and when.

    talk = Conversation(nodes=3)
    talk.sends("request to 0 1 2")
    talk.answers(0, granted(lower=True), at=0.1)
    talk.sends("cede to 0")

A node is an ordered connection: its answer is to the oldest command that it owes. Whatever happens, these are looked at, too:
an input that returns False has left nothing to do, whoever waits is told of every new state, and commands are stamped with the moment
at which they are said.

    talk = Together("a", "b")
    talk.sends("a: request to 0 1 2", "b: request to 0 1 2")
    talk["a"].answers(0, granted(), at=0.1)

Here each name's claim has a conversation of its own, in one reach and at one time.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from math import inf
from typing import Any, TypeVar

import pytest

from holdfast.protocol.claim import Claim, State
from holdfast.protocol.command import CEDE, GRANTED, INQUIRY, KEEP, RELEASE, TAKEN, TRY, WAIT, Command
from holdfast.protocol.joint import JointRequest
from holdfast.protocol.nodes import NodeSet, Standing
from holdfast.protocol.ticket import GOLDEN, Tickets
from holdfast.protocol.timing import Timing

P = 1_700_000_000_000_000  # the ticket, and so the fence that is proposed first
INBOX = b"%08x" % (-P * GOLDEN % 2**32) + b"a" * 24  # of a client in which this ticket's place is 0: it asks no sooner than others
TTL = 9.0
UNTIL = 8.908  # a grant asked for at 0 counts until then: 9 s less 1 % less 2 ms
BEAT = 3.0  # ttl/3: the first heartbeat
RENEWAL = 2.908  # and the first renewal: ttl/3 counted back from the deadline
OTHER = b"1600000000000000:" + b"b" * 32 + b":00000001"
FOREIGN = b"my_random_value"  # what a client of another kind writes

WORDS = {WAIT: "request", KEEP: "request", TRY: "try", CEDE: "cede", RELEASE: "release"}
LINE = re.compile(r"(request|try|cede|release)( watching| old)? to ([\d ]*?)(?: proposing (\d+))?(?: for ([\d.]+))?")

E = TypeVar("E", bound=Exception)

HORIZON = 16_000  # K, in milliseconds


def good_until(sent: float, ttl: float = TTL) -> float:
    """Until when a grant counts that was asked for at `sent`."""
    return sent + ttl - ttl / 100 - 0.002


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

    def __init__(self, label: str = "jobs", kind: bytes = b"") -> None:
        self.kind = kind
        self.name, self.label, self.part = label.encode(), label, label

    def request(self, token: bytes, ttl: float, mode: bytes, fence: int) -> bytes:
        raise AssertionError("a claim packs nothing")

    def release(self, token: bytes) -> bytes:
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
        self._happened(True, asked=True)

    def _listen(self) -> None:
        self.token = self.claim.token
        self.said: list[tuple[Sequence[int], Command]] = []
        self.ledgers: list[deque[Command]] = [deque() for _ in range(self.node_set.size)]
        self.yes: object = granted()  # what a free node answers here
        self.news = False  # did the last input bring news?
        self.notes: list[str] = []  # the names of the events that observers should hear
        self.unfit: list[int] = []  # the nodes that a warning should name
        self.absurd: list[int] = []  # those that have told a fence that no clock allows
        self._before = State.WAITING

    # ------------------------------------------------ what the claim says

    def sends(self, *lines: str) -> None:
        """Just this was said since the last look. P and the ttl are the first ones unless a line says otherwise."""
        told = [self._line(nodes, command) for nodes, command in self.said]
        self.said = []
        assert told == [self._normal(line) for line in lines]

    def _line(self, nodes: Sequence[int], command: Command) -> str:
        assert command.sent == self.now, "what is looked at late cannot be checked"
        assert command.token in (self.token, self.claim.token)
        how = " old" if command.token != self.claim.token else " watching" if command.watch else ""
        line = f"{WORDS[command.mode]}{how} to {' '.join(map(str, nodes))}"
        return line if command.mode is RELEASE else f"{line} proposing {command.fence} for {command.ttl:g}"

    def _normal(self, line: str) -> str:
        match = LINE.fullmatch(line)
        assert match, f"what is {line!r}?"
        word, how, nodes, fence, ttl = match.groups()
        said = f"{word}{how or ''} to {nodes}"
        return said if word == "release" else f"{said} proposing {fence or P} for {float(ttl or self.claim.ttl):g}"

    # ------------------------------------------------ what nodes say

    def answers(self, node: int, reply: object, at: float | None = None) -> bool:
        """The node answers the oldest command that it owes. (One that nobody waits for is answered in passing.)"""
        self._at(at)
        ledger = self.ledgers[node]
        while ledger and ledger[0].owner is None:
            ledger.popleft()
        assert ledger, f"node {node} owes no answer"
        return self._happened(self.claim.answered(node, ledger.popleft(), reply, self.now))

    def grants(self, node: int, fence: int, at: float | None = None) -> bool:
        """The node says of its own accord that it is ours now."""
        self._at(at)
        return self._happened(self.claim.pushed(node, GRANTED, fence, self.now))

    def inquires(self, node: int, at: float | None = None) -> bool:
        """A lower ticket has come to the node."""
        self._at(at)
        return self._happened(self.claim.pushed(node, INQUIRY, 0, self.now))

    def expects(self, fence: int) -> None:
        """Its owner raises the nodes' fences by other means."""
        self.claim.expects(fence)

    def takes(self, node: int, at: float | None = None) -> bool:
        """An operator has taken the lock away there."""
        self._at(at)
        return self._happened(self.claim.pushed(node, TAKEN, 0, self.now))

    def hears(self, node: int, at: float | None = None) -> bool:
        """A node has news of what is waited for."""
        self._at(at)
        return self._happened(self.claim.had_news(node, self.now))

    def changes(self, node: int, at: float | None = None) -> bool:
        """Something has happened to the key there, which the node was to watch."""
        self._at(at)
        return self._happened(self.claim.changed(node, self.now))

    def flushes(self, node: int, at: float | None = None) -> bool:
        """The node says that all of its keys may be gone."""
        self._at(at)
        return self._happened(self.claim.changed(node, self.now, flushed=True))

    # ------------------------------------------------ what else happens

    def breaks(self, node: int, at: float | None = None, standing: Standing = Standing.DOWN) -> bool:
        """The connection is gone, and with it what was on its way."""
        self._at(at)
        self.node_set.note(node, standing, self.now, ConnectionResetError("gone") if standing is Standing.DOWN else None)
        self.ledgers[node].clear()
        return self._happened(self.claim.broke(node, self.now))

    def joins(self, node: int, at: float | None = None, restarted: bool = False) -> bool:
        """There is a new connection, perhaps to another run of the server, which may be empty."""
        self._at(at)
        self.node_set.note(node, Standing.UP, self.now)
        return self._happened(self.claim.joined(node, self.now, restarted))

    def stands(self, node: int, standing: Standing, at: float | None = None, cause: Exception | None = None) -> bool:
        """A node that was not up is not up in another way."""
        self._at(at)
        self.node_set.note(node, standing, self.now, cause)
        return self._happened(self.claim.tick(self.now))

    def tick(self, at: float) -> bool:
        """Time has passed."""
        self._at(at)
        return self._ticks()

    def _ticks(self) -> bool:
        if self.claim.armed <= self.now:
            self.claim.armed = inf
        return self._happened(self.claim.tick(self.now))

    def pause(self, until: float) -> None:
        """Nobody does anything."""
        self._at(until)

    def wakes(self, at: float | None = None) -> None:
        """It wants to be woken at this moment (or whenever it wants), and is, or as soon as can be if that is past."""
        assert at is None or self.claim.wake == pytest.approx(at, abs=1e-9)
        assert self.claim.armed <= self.claim.wake, "nobody will wake it that early"
        self.tick(max(self.claim.wake, self.now))

    # ------------------------------------------------ what the caller wants

    def release(self, at: float | None = None, heard: bool = False) -> None:
        self._at(at)
        self.claim.release(self.now, heard)
        self._happened(True, asked=True)

    def extend(self, ttl: float = TTL, at: float | None = None, fence: int = 0, hold: float | None = None) -> bool:
        self._at(at)
        going = self.claim.extend(ttl, self.now, fence, hold=hold)
        assert type(going) is bool
        self._happened(True)
        return going

    def moves(self, seconds: float, at: float | None = None) -> bool:
        """The clock that its ticket was taken from was wrong by so much."""
        self._at(at)
        return self._happened(self.claim.moved(seconds, self.now))

    def downgrade(self, at: float | None = None) -> bool:
        self._at(at)
        going = self.claim.extend(self.claim.ttl, self.now, share=True)
        self._happened(True)
        return going

    def close(self, at: float | None = None) -> None:
        self._at(at)
        self.claim.close(self.now)
        self._happened(True)

    # ------------------------------------------------ how it stands

    def waits(self) -> None:
        assert self.claim.state is State.WAITING
        assert not self.claim.done

    def held(self, fence: int = P, until: float | None = None) -> None:
        claim = self.claim
        assert (claim.state, claim.fence, claim.done) == (State.HELD, fence, False)
        if until is not None:
            assert claim.until == pytest.approx(until, abs=1e-9)

    def lost(self, reason: str) -> None:
        """It is lost just now, and all nodes are told."""
        assert (self.claim.state, self.claim.reason, self.claim.done, self.claim.wake) == (State.LOST, reason, True, inf)
        self.sends("release to " + " ".join(map(str, range(self.node_set.size))))

    def lost_at(self, when: float) -> None:
        """Nothing more happens, and it runs out then."""
        self.pause(self.claim.until)
        assert self.now == pytest.approx(when)
        self.tick(self.now)
        self.lost("expired")

    def refused(self, kind: type[E]) -> E:
        """It has come to nothing, and why."""
        assert (self.claim.state, self.claim.done) == (State.OVER, True)
        error = self.claim.refusal
        assert isinstance(error, kind), repr(error)
        return error

    # ------------------------------------------------ within

    def _at(self, at: float | None) -> None:
        assert not self.said, f"nobody looked at {[self._line(*it) for it in self.said]}"
        if at is not None:
            assert at >= self.now
            self.now = at

    def _happened(self, something: bool, asked: bool = False) -> bool:
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
    """A goal that has begun, at 0, and the conversation of each of its names. `needed`: how many of them; options: of the demand."""

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
        self.news = 0  # how often whoever waits was told
        self.joint.begin(0.0)
        for it in self:
            it._happened(True, asked=True)

    def __getitem__(self, name: str) -> Part:
        return self.parts[name]

    def __iter__(self) -> Iterator[Part]:
        return iter(self.parts.values())

    def sends(self, *lines: str) -> None:
        """Just this was said since the last look: each line begins with its name, or else is said about every name."""
        for name, it in self.parts.items():
            it.sends(*[line.removeprefix(f"{name}: ") for line in lines if line.startswith(f"{name}: ") or ": " not in line])

    # ------------------------------------------------ what happens

    def answers(self, node: int, reply: object, at: float | None = None) -> None:
        """The node answers the same about every name."""
        for it in self:
            it.answers(node, reply, at)

    def breaks(self, node: int, at: float | None = None) -> None:
        """The connection is gone."""
        self._at(at)
        self.node_set.note(node, Standing.DOWN, self.now, ConnectionResetError("gone"))
        for it in self:
            it.ledgers[node].clear()
            it._happened(it.claim.broke(node, self.now))

    def joins(self, node: int, at: float | None = None) -> None:
        """There is a new connection."""
        self._at(at)
        self.node_set.note(node, Standing.UP, self.now)
        for it in self:
            it._happened(it.claim.joined(node, self.now))

    def wakes(self, at: float | None = None) -> None:
        """Some want to be woken at this moment (or whenever they want), and are."""
        then = min(it.claim.wake for it in self)
        assert at is None or then == pytest.approx(at, abs=1e-9)
        self._at(max(then, self.now))
        for it in self:
            assert it.claim.done or it.claim.armed <= it.claim.wake, "nobody will wake it that early"
            if it.claim.wake <= self.now:
                it._ticks()

    def _at(self, at: float | None) -> None:
        for it in self:
            Conversation._at(it, at)

    def _happened(self, part: Part, something: bool) -> None:
        """What an engine does after an input to one claim."""
        assert something or not self.joint.stirred, "others have changed, and nobody looks"
        self.news += part.news and self.joint.settled
        stirred, self.joint.stirred = self.joint.stirred, []
        for claim in stirred:
            self[claim.recipe.label]._happened(True)

    # ------------------------------------------------ what the caller wants

    def release(self, at: float | None = None, heard: bool = False) -> None:
        self._at(at)
        self.joint.release(self.now, heard)
        for it in self:
            it._happened(True, asked=True)

    def extend(self, ttl: float = TTL, at: float | None = None, fence: int = 0, hold: float | None = None) -> bool:
        self._at(at)
        going = self.joint.extend(ttl, self.now, fence, hold=hold)
        for it in self:
            it._happened(True)
        return going

    def close(self, at: float | None = None) -> None:
        self._at(at)
        for it in self:
            it.claim.close(self.now)
            it._happened(True)

    # ------------------------------------------------ how it stands

    def waits(self) -> None:
        assert (self.joint.state, self.joint.done, self.news) == (State.WAITING, False, 0)
        for it in self:
            it.waits()

    def held(self, until: float | None = None) -> None:
        assert (self.joint.state, self.joint.done) == (State.HELD, False)
        for it in self:
            it.held(it.claim.fence)
        if until is not None:
            assert self.joint.until == pytest.approx(until, abs=1e-9)

    def lost(self, reason: str) -> None:
        """All are lost just now, all nodes are told about each, and whoever waits is told."""
        for it in self:
            it.lost(reason)
        assert (self.joint.state, self.joint.reason, self.joint.done) == (State.LOST, reason, True)

    def refused(self, kind: type[E]) -> E:
        """It has come to nothing, and why."""
        for it in self:
            it.refused(kind)
        assert (self.joint.state, self.joint.done) == (State.OVER, True)
        assert isinstance(self.joint.refusal, kind)
        return self.joint.refusal


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

    def _at(self, at: float | None) -> None:
        self.whole._at(at)

    def _happened(self, something: bool, asked: bool = False) -> bool:
        super()._happened(something, asked or self.claim not in self.whole.joint.claims)  # (nobody waits for what was left out)
        self.whole._happened(self, something)
        return something
