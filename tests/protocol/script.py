"""Plays a conversation of a claim that is written down as text, and tells what it says and decides.

The first step is how the claim begins. It `waits`, or it `tries`, or it is `held` since 0.1 on all
nodes that are up (`held tries`: by a try). The usual requests of this beginning are not told.

    waits nodes=5 down=2,3 outage=2

Each further step has a moment in seconds, and what happens then, in this order. Only the last of it
leads to something.

    0.1: 0 granted P+5; 1 2 denied left=500 place=0; 3 broken
    3: wakes
    3.5: release heard

P is the ticket. Nodes are `up`, `down`, `connecting` or `guarded`. A moment that the claim itself
names, its wake or its end, is meant exactly.

| A node | |
| --- | --- |
| `granted`, `granted P+5`, `granted lower` | grants now, with this fence, while a lower ticket waits there |
| `kept`, with the same | granted before, and all the time since |
| `usual` | answers as a free node where nobody waits; `yes`: in both ways that a claim may take this |
| `denied left=500 place=0 by=foreign P+5` | denies: ms that are left, our place in line, the holder, the fence |
| `failed READONLY`, `said [0, -2]` | answers with an error, or with this |
| `freed`, `absent` | answers a release: it had the token, or had it no longer |
| `pushed P+1`, `inquired`, `taken` | tells that it has granted, that a lower ticket came, that an operator was there |
| `news`, `changed`, `flushed` | tells of news, of a change of the key, of a flush of all keys |
| `broken`, `broken guarded` | its connection is gone, and it is down, or stands like this |
| `joined`, `joined empty` | has a new connection, to another run of the server |
| `down`, `useless it is a replica` | could not be connected; is of no use |
| `error`, `warning` | (a question) the error of its vote, or what to warn of |

| The caller | |
| --- | --- |
| `tick`, `wakes` | time has passed; it is the moment at which the claim wants to be woken |
| `release`, `release heard`, `close` | gives it back, waits for the answers, closes the client |
| `extend`, `extend 30 hold=9` | extends the lease |
| `downgrade`, `stay`, `abandon` | becomes a reader, leaves the keys, is gone |
| `moves -3600`, `expects P+7` | the clock was wrong; fences rise by other means |
| `counting`, `kind`, `message` | (a question) how many count; the token's kind; the error's text |

Several names have one ticket in `waits names=a,b`, and some of many in `waits names=a,b,c needed=1`.
Then `a 0 granted` is about one name, and `0 granted` about each. What is said of all names alike is
told once. Then comes what is new of them together: which ones are asked for, how they stand, and by
how many claims their caller is told. `waiting` and `staying` are questions about this.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import inf
from typing import Any

from conversations import Step
from protocol.conversation import FOREIGN, INBOX, OTHER, WORDS, Conversation, P, Together, denied, granted, kept, usual

from holdfast.errors import ConfigError, LockBusy, NoQuorum, message_of
from holdfast.protocol.claim import State
from holdfast.protocol.command import GRANTED, INQUIRY, RELEASE, SHARED, TAKEN, WRITER, Command
from holdfast.protocol.nodes import Standing
from holdfast.protocol.ticket import GOLDEN

WAYS: Mapping[str, object] = {"short path": usual(), "vote by vote": granted()}
ERRORS = {
    "READONLY": "READONLY You can't write against a read only replica.",
    "WRONGTYPE": "WRONGTYPE Operation against a key holding the wrong kind of value",
    "MISCONF": "MISCONF Redis is configured to save",
}
HOLDERS: Mapping[str, bytes | None] = {
    "other": OTHER,
    "itself": b"1600000000000000:%b:00000001" % INBOX,
    "writer": OTHER + WRITER,
    "readers": SHARED,
    "foreign": FOREIGN,
    "nobody": None,
}
STANDINGS = {it.name.lower(): it for it in Standing}

# ------------------------------------------------ words


def number(seconds: float) -> str:
    """Return seconds as a conversation has them."""
    return f"{seconds:.6f}".rstrip("0").rstrip(".")


def fence(text: str) -> int:
    """Return the fence that a text such as P+5 means."""
    return P + int(text[1:] or "0")


def as_text(number: int) -> str:
    """Return a fence as a conversation has it."""
    return f"P{number - P:+d}" if number != P else "P"


def options(text: str) -> tuple[list[str], dict[str, str]]:
    """Return the words of a text, and its options such as place=0."""
    words = text.split()
    return [it for it in words if "=" not in it], dict(it.split("=", 1) for it in words if "=" in it)


def reply(word: str, rest: str, yes: object) -> object:
    """Return what a node answers."""
    if word == "failed":
        return Exception(ERRORS.get(rest, rest))
    if word == "said":
        return ast.literal_eval(rest)
    words, named = options(rest)
    fences = [fence(it) for it in words if it != "lower"]
    if word == "denied":
        by = named.get("by", "other")
        holder = HOLDERS[by] if by in HOLDERS else ast.literal_eval(by)
        return [*denied(int(named.get("left", "5000")), int(named.get("place", "2")), holder), *fences]
    if word in ("granted", "kept"):
        return (granted if word == "granted" else kept)(*fences, lower="lower" in words)
    return {"yes": yes, "usual": usual(), "freed": 1, "absent": 0}[word]


def trouble(error: Exception) -> str:
    """Return what an error tells, without its advice."""
    match error:
        case LockBusy():
            named = {it.decode(): name for name, it in HOLDERS.items() if it is not None}
            by = named.get(error.holder or "", "nobody" if error.holder is None else repr(error.holder))
            left = "" if error.ttl_left is None else f", {number(error.ttl_left)} s left"
            return f"LockBusy after {number(error.waited)} s: {error.name} is held by {by}{left}"
        case NoQuorum():
            causes = "; ".join(f"{node}: {message_of(cause)}" for node, cause in error.causes.items())
            return f"NoQuorum after {number(error.waited)} s: {error.name}, {causes or 'no causes'}"
        case _:
            return f"{type(error).__name__}: {message_of(error)}".replace("\n", "")


def extension(text: str) -> dict[str, Any]:
    """Return what an extension such as `30 hold=9` asks for."""
    words, named = options(text)
    how: dict[str, Any] = {"ttl": float(words[0])} if words else {}
    return how | {name: float(it) for name, it in named.items()}


# ------------------------------------------------ what happens

NODE: Mapping[str, Callable[[Any, int, str], object]] = {
    "pushed": lambda talk, node, rest: talk.happened(talk.claim.pushed(node, GRANTED, fence(rest), talk.now)),
    "inquired": lambda talk, node, rest: talk.happened(talk.claim.pushed(node, INQUIRY, 0, talk.now)),
    "taken": lambda talk, node, rest: talk.happened(talk.claim.pushed(node, TAKEN, 0, talk.now)),
    "news": lambda talk, node, rest: talk.happened(talk.claim.had_news(node, talk.now)),
    "changed": lambda talk, node, rest: talk.happened(talk.claim.changed(node, talk.now)),
    "flushed": lambda talk, node, rest: talk.happened(talk.claim.changed(node, talk.now, flushed=True)),
    "broken": lambda talk, node, rest: talk.breaks(node, **({"standing": STANDINGS[rest]} if rest else {})),
    "joined": lambda talk, node, rest: talk.joins(node, **({"restarted": True} if rest == "empty" else {})),
    "useless": lambda talk, node, rest: talk.stands(node, Standing.DOWN, cause=ConfigError(rest)),
    "down": lambda talk, node, rest: talk.stands(node, Standing.DOWN, cause=ConnectionError("refused")),
    "error": lambda talk, node, rest: [message_of(talk.claim.votes[node].error)],
    "warning": lambda talk, node, rest: [talk.claim.warning(node)],
}
# After these a claim looks at all that is due, and does not say whether there was anything.
TICKS = ("useless", "down")
# What the options of the first step mean; those that are not here are seconds.
OPTIONS: Mapping[str, Callable[[str], Any]] = {
    "nodes": int,
    "needed": int,
    "news_needed": int,
    "names": lambda text: text.split(","),
    "kind": {"writer": WRITER}.__getitem__,
    "place": lambda text: b"%08x" % ((int(float(text) * 2**32) - P * GOLDEN) % 2**32) + b"a" * 24,
}
# How a claim stands that has not begun.
START = {"state": State.WAITING, "fence": 0, "until": 0.0, "limit": inf, "doubt": False, "contended": False}


CALLER: Mapping[str, Callable[[Any, str], object]] = {
    "tick": lambda talk, rest: talk.tick(),
    "release": lambda talk, rest: talk.release(heard=rest == "heard"),
    "extend": lambda talk, rest: talk.extend(**extension(rest)),
    "downgrade": lambda talk, rest: talk.extend(talk.claim.ttl, share=True),
    "close": lambda talk, rest: talk.close(),
    "moves": lambda talk, rest: talk.happened(talk.claim.moved(float(rest), talk.now)),
    "expects": lambda talk, rest: talk.claim.expects(fence(rest)),
    "abandon": lambda talk, rest: talk.claim.abandon(),
    "stay": lambda talk, rest: talk.claim.stay(),
    "counting": lambda talk, rest: [f"{talk.claim.counting(talk.now)} count"],
    "kind": lambda talk, rest: [talk.claim.token[-2:].decode()],
    "waiting": lambda talk, rest: ["yes" if talk.claim.waits() else "no"],
    "staying": lambda talk, rest: ["yes" if talk.claim.stays else "no"],
    "message": lambda talk, rest: message_of(talk.claim.refusal or talk.claim.setback).splitlines(),
}


class Script:
    """One conversation that is being played. `yes`: what a free node answers."""

    talk: Any

    def __init__(self, yes: object) -> None:
        self.yes = yes
        # How each claim stood at the last look.
        self.before: dict[str, Mapping[str, Any]] = {}

    def step(self, text: str) -> list[str]:
        """Let a line happen, and return what is said and decided then."""
        word, _, rest = text.partition(" ")
        if word in ("waits", "tries", "held"):
            return self._opens(word, rest)
        moment, _, inputs = text.partition(": ")
        if inputs.endswith("wakes"):
            self._meant(inputs)[0].wakes()
            woken = number(self.talk.now)
            return ([] if woken == moment else [f"woken at {woken}"]) + self._told()
        self.talk.at(self._moment(float(moment)))
        *before, last = inputs.split("; ")
        early = [line for it in before for line in self._happens(it)]
        assert not early, f"{early} is said before {last!r}: write another line"
        return self._happens(last)

    def _opens(self, word: str, rest: str) -> list[str]:
        words, named = options(rest)
        how: dict[str, Any] = {"standing": {}, "patient": word == "waits" or (word == "held" and "tries" not in words)}
        for name, text in named.items():
            if name in STANDINGS:
                how["standing"] |= dict.fromkeys(map(int, text.split(",")), STANDINGS[name])
            else:
                how["inbox" if name == "place" else name] = OPTIONS.get(name, float)(text)
        how |= {"renew": False} if "unrenewed" in words else {}
        self.before = {}
        self._begins(how)
        up = self.talk.node_set.up
        said = self._told()
        asked = f"{'request' if how['patient'] else 'try'} to {' '.join(map(str, up))}"
        said = said[1:] if said[:1] == [asked] else said
        if word == "held":
            self.talk.at(0.1)
            for node in up:
                self._happens(f"{node} yes")
            assert all(it.claim.state is State.HELD for it in self._parts().values())
        return said

    def _begins(self, how: dict[str, Any]) -> None:
        self.talk = Conversation(**how)

    def _parts(self) -> Mapping[str, Any]:
        return {"": self.talk}

    def _meant(self, text: str) -> tuple[Any, str]:
        """Return what a text is about, and the text without that."""
        return self.talk, text

    def _moment(self, at: float) -> float:
        named: list[float] = [moment for it in self._parts().values() for moment in (it.claim.wake, it.claim.until)]
        return next((it for it in (self.talk.now, *named) if abs(it - at) < 1e-6), at)

    def _happens(self, text: str) -> list[str]:
        talk, text = self._meant(text)
        found = re.fullmatch(r"((?:\d+ )*)(\w+) ?(.*)", text)
        assert found, f"what is {text!r}?"
        nodes, word, rest = found[1].split(), found[2], found[3]
        said: list[str] = []
        for node in nodes or [None]:
            assert not said, f"{said} is said before node {node}: write another line"
            armed = self._armed()
            told = reply(word, rest, self.yes) if node and word not in NODE else None
            talk.inputs.append((int(node or 0), word, rest, told))
            if node is None:
                answer = CALLER[word](talk, rest)
            elif word in NODE:
                answer = NODE[word](talk, int(node), rest)
            else:
                answer = talk.answers(int(node), told)
            said = [*(answer if isinstance(answer, list) else []), *self._told()]
            idle = node and answer is True and word not in TICKS and not said and self._armed() >= armed
            assert not idle, "it asks to be looked at, and has nothing to tell"
        return said

    def _armed(self) -> float:
        return min(it.claim.armed for it in self._parts().values())

    def _told(self) -> list[str]:
        """Return what was said since the last look, and what is new of how all of it stands."""
        told = {name: self._told_by(name, it) for name, it in self._parts().items()}
        if len({tuple(it) for it in told.values()}) == 1:
            return next(iter(told.values()))
        return [f"{name}: {it}" for name, lines in told.items() for it in lines]

    def _told_by(self, name: str, talk: Any) -> list[str]:
        lines = [line(talk, *it) for it in talk.said]
        lines += [f"warns of {it}" for it in talk.unfit] + [f"discounts {it}" for it in talk.absurd]
        now = {it: getattr(talk.claim, it) for it in START}
        lines += decided(talk, self.before.get(name, START), now)
        self.before[name] = now
        talk.said, talk.unfit, talk.absurd, talk.notes, talk.news = [], [], [], [], False
        return lines


class Joint(Script):
    """A conversation of several claims under one ticket. What is said of all of them alike is told once."""

    def _begins(self, how: dict[str, Any]) -> None:
        self.talk = Together(*how.pop("names"), **how)
        self.whole: dict[str, Any] = {"state": State.WAITING, "until": 0.0, "names": list(self.talk.parts), "news": 0}

    def _parts(self) -> Mapping[str, Any]:
        return self.talk.parts

    def _meant(self, text: str) -> tuple[Any, str]:
        name, _, rest = text.partition(" ")
        return (self.talk[name], rest) if name in self.talk.parts else (self.talk, text)

    def _told(self) -> list[str]:
        return [*super()._told(), *self._of_the_whole()]

    def _of_the_whole(self) -> Iterator[str]:
        joint, before, claims = self.talk.joint, self.whole, self.talk.joint.claims
        now = {it: getattr(joint, it) for it in ("state", "until")}
        now |= {"names": [it.recipe.label for it in claims], "news": self.talk.news}
        self.whole = now
        assert (joint.done, joint.settled) == (all(it.done for it in claims), not any(it.awaited for it in claims))
        assert (joint.doubt, joint.contended) == (any(it.doubt for it in claims), any(it.contended for it in claims))
        if now["names"] != before["names"]:
            yield f"in play: {' '.join(now['names'])}"
        state, changed, told = now["state"], now["state"] is not before["state"], now["news"] - before["news"]
        if state is State.HELD and changed:
            assert (joint.began, joint.since) == (0.0, self.talk.now)
        if state is State.HELD and now["until"] != before["until"]:
            yield f"all held until {number(now['until'])}"
        if state is State.LOST and changed:
            yield f"all lost: {joint.reason}"
        if state is State.OVER and changed:
            yield f"all refused: {trouble(joint.refusal)}" if joint.refusal else "all over"
        if told:
            yield f"told by {told}"
        if told and state is State.HELD and not changed:
            yield "all extended" if joint.setback is None else f"not extended: {trouble(joint.setback)}"
        if told and state is State.OVER and not joint.refusal:
            yield f"all free on {joint.freed}"


def line(talk: Any, nodes: Sequence[int], command: Command) -> str:
    """Return a command as a conversation has it. P and the ttl are told if they are unusual."""
    assert command.sent == talk.now, "what is looked at late cannot be checked"
    assert command.token in (talk.token, talk.claim.token)
    how = " old" if command.token != talk.claim.token else " watching" if command.watch else ""
    said = f"{WORDS[command.mode]}{how} to {' '.join(map(str, nodes))}".rstrip()
    if command.mode is RELEASE:
        return said
    proposing = "" if command.fence == P else f" proposing {as_text(command.fence)}"
    return f"{said}{proposing}" + ("" if command.ttl == talk.claim.ttl else f" for {number(command.ttl)}")


def trouble_of(claim: Any) -> str:
    """Return why a claim is refused, unless the whole of several is, for the same reason."""
    told = getattr(claim.company, "refusal", None) is claim.refusal
    return "" if told else f": {trouble(claim.refusal)}"


def decided(talk: Any, before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    """Tell what is new of a claim."""
    claim, notes, state = talk.claim, list(talk.notes), now["state"]
    assert claim.done is (state is State.LOST or (state is State.OVER and not claim.awaited))
    assert state is not State.LOST or claim.wake == inf, "it would be woken for nothing"
    assert state is State.LOST or now["doubt"] or not claim.why, "it tells of trouble that is over"
    assert (int(claim.token[:16]), claim.token[17:49]) == (claim.ticket, talk.token[17:49]), "it has lost its place in line"
    assert claim.routed == talk.token, "the engine has to learn the new one"
    if "Queued" in notes:
        yield f"queued at place {claim.place}"
    elif now["contended"] != before["contended"]:
        yield "contended"
    if "Renewed" in notes:
        yield f"renewed, with {number(claim.left)} left"
    if now["doubt"] != before["doubt"] or "Doubt" in notes:
        assert now["doubt"] == ("Doubt" in notes)
        yield f"in doubt: {claim.why}".removesuffix(": ") if now["doubt"] else "out of doubt"
    changed = state is not before["state"]
    if state is State.HELD and changed:
        assert claim.since == talk.now
    if state is State.HELD and any(now[it] != before[it] for it in ("state", "fence", "until")):
        most = " by max_hold" if now["until"] == now["limit"] else ""
        yield f"held {as_text(now['fence'])} until {number(now['until'])}{most}"
    if state is State.LOST and changed:
        yield f"lost: {claim.reason}" + (f", {claim.why}" if claim.reason == "refused" else "")
    if state is State.OVER and changed:
        yield f"refused{trouble_of(claim)}" if claim.refusal else "over"
    if talk.news and state is State.HELD and not changed:
        yield "extended" if claim.setback is None else f"not extended: {trouble(claim.setback)}"
    if talk.news and state is State.OVER and not claim.refusal:
        yield f"told: free on {claim.freed}"


def ways(text: str) -> Mapping[str, Callable[[], Step]]:
    """Return the ways to play a conversation: two, if a free node answers or a lock is held."""
    plays = Joint if " names=" in text else Script

    def begins(yes: object) -> Callable[[], Step]:
        return lambda: plays(yes).step

    if re.search(r"^held|\byes\b", text, re.MULTILINE):
        return {way: begins(yes) for way, yes in WAYS.items()}
    return {"": begins(None)}
