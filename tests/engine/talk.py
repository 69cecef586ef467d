"""Plays a conversation of an engine with its nodes that is written down as text, in `World`.

    world connected; 0.5: waits a => a waiting
    0.6: 0 1 away => 0 1 2 asked: request a; tells: down 0, down 1; 0 down: cut 0; 1 down: cut 1; a held!

The first step makes the engine and its nodes, with these settings. `connected`: half a second passes.
Each further step has a moment in seconds, up to which the time passes, and what happens then. Behind `=>`
stands what this has led to since the step before: what the nodes were asked, what observers hear, and
what is new of how the nodes and the claims stand. `!` is each time that the caller of a claim was told.

| A node, or several | |
| --- | --- |
| `0 1 away`, `0 cut` | the connection breaks, and the node refuses others; the connection breaks |
| `0 accepts`, `0 refuses`, `0 hangs` | what becomes of attempts to connect |
| `0 mute` | it reads and never answers |
| `0 has name`, `0 lost` | somebody else has this name there; the node has lost all locks |
| `0 forgot` | it has lost the scripts |
| `0 is run=7 uptime=0`, `0 ahead 9` | what it says of itself; its clock is 9 s ahead |
| `0 answers {text}\\|`, `0 obeys` | its answer to requests (`|` ends a line, `{text}` is a string); it does what it is asked |
| `0 pushes g <a> 5 name` | a message to our inbox, with the token of claim a (`<digits>`: a number of 5,000 digits) |

| A caller | |
| --- | --- |
| `waits a ttl=10`, `tries a`, `waits a,b` | wants a lock, or several; `as=x` names the claim |
| `asks 0 1` | asks these nodes a question |
| `ends a`, `ends a heard`, `stays a` | releases; releases, and waits for the answers; is to stay |
| `closes`, `farewell`, `wait` | closes the client; (a question) until when that waits; nothing |
| `counts a`, `looks 0 of TIME` | (a question) how many nodes count for the claim; how often the node was asked for this |
| `verdict` | (a question) what is wrong with the nodes |
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from itertools import groupby
from typing import Any

from conversations import Step
from engine.world import ANOTHER, START, World, bulk, run_id
from proof.books import word
from protocol.script import number, options

from holdfast.errors import message_of
from holdfast.events import LeaseEvent, NodeEvent
from holdfast.protocol.claim import State

FACTS = {"run": "run_id", "uptime": "uptime_in_seconds", "replicas": "connected_slaves", "mode": "redis_mode"}
FACTS |= {"good": "min_slaves_good_slaves", "policy": "maxmemory_policy", "replid": "master_replid"}
KEPT = ("request", "release", "PING", "SAYS")


def briefly(wrong: Exception | None) -> str:
    """Return what an error says, without its advice."""
    return message_of(wrong).replace("\n", "") if wrong is not None else ""


class Talk:
    """One conversation that is being played."""

    world: World

    def __call__(self, line: str) -> list[str]:
        """Let a line happen."""
        first, _, rest = line.partition(" ")
        if first == "world":
            self._opens(*options(rest))
            return []
        moment = START + float(first.removesuffix(":"))
        if moment > self.world.now:
            self.world.run(moment - self.world.now)
        told = [it for text in rest.split("; ") for it in self._happens(text)]
        self.world.run(0.0)
        return [*told, *self._asked(), *self._events(), *self._news()]

    def _opens(self, words: list[str], named: dict[str, str]) -> None:
        given: dict[str, Any] = {it: text if it in ("query", "prefix") else float(text) for it, text in named.items() if it != "guard"}
        given |= {"restart_guard": None if named["guard"] == "none" else float(named["guard"])} if "guard" in named else {}
        given["nodes"] = int(given.get("nodes", 3))
        self.world = World(in_step="in_step" in words, telling="telling" in words, **given)
        self.wants: dict[str, Any] = {}
        self.tokens: dict[bytes, str] = {}
        if "connected" in words:
            self.world.connect()
        self.seen = [len(it.asked) for it in self.world.nodes]
        self.before = dict(self._stands())

    # ------------------------------------------------ what happens

    def _happens(self, text: str) -> list[str]:
        found = re.fullmatch(r"((?:\d+ )*)(\w+) ?(.*)", text)
        assert found, f"what is {text!r}?"
        numbers, what, rest = [int(it) for it in found[1].split()], found[2], found[3]
        if numbers:
            return [it for number in numbers for it in self._of_node(number, what, rest)]
        return self._of_caller(what, rest)

    def _of_node(self, number: int, what: str, rest: str) -> list[str]:
        world, node = self.world, self.world.nodes[number]
        match what:
            case "away":
                world.cut(number, dialled="refuses")
            case "cut":
                world.cut(number)
            case "accepts" | "refuses" | "hangs":
                node.dialled = what
            case "mute":
                node.mute = True
            case "has":
                node.holders[rest.encode()] = ANOTHER
            case "lost":
                node.holders.clear()
            case "forgot":
                node.scripts.clear()
            case "is":
                _, named = options(rest)
                told: dict[str, object] = {FACTS.get(it, it): None if text == "none" else text for it, text in named.items()}
                node.facts = told | ({"run_id": run_id(int(named["run"]))} if "run" in named else {})
            case "ahead":
                node.ahead = float(rest)
            case "answers":
                said = re.sub(rb"\{(.*?)\}", lambda found: bulk(found[1]), rest.replace("|", "\r\n").encode())
                node.answer = lambda asked: said
            case "obeys":
                node.answer = node.first_come
            case "pushes":
                world.publishes(number, self._meant(rest))
            case _:
                raise ValueError(f"what is {what!r}?")
        return []

    def _of_caller(self, what: str, rest: str) -> list[str]:
        world = self.world
        words, named = options(rest)
        match what:
            case "waits" | "tries":
                how = {it: float(text) for it, text in named.items() if it != "as"}
                if "deadline" in how:
                    how["deadline"] += world.now
                self.wants[named.get("as", words[0])] = world.want(*words[0].split(","), patient=what == "waits", **how)
            case "asks":
                self.wants["the question"] = world.consult(*map(int, words))
            case "ends":
                world.end(self.wants[words[0]], heard="heard" in words)
            case "stays":
                world.engine.stay(self.wants[words[0]])
            case "closes":
                world.engine.close(world.now)
            case "farewell":
                return [f"until {number(world.engine.farewell(world.now) - START)}"]
            case "counts":
                return [f"{self.wants[words[0]].claims[0].counting(world.now)} count"]
            case "looks":
                return [f"{len(world.nodes[int(words[0])].of(words[2]))}"]
            case "verdict":
                return [briefly(world.engine.health.verdict(0.0, world.now)) or "nothing is wrong"]
            case "wait":
                pass
            case _:
                raise ValueError(f"what is {what!r}?")
        return []

    def _meant(self, text: str) -> bytes:
        """Return a message with the tokens that it names: of several names, that of the last."""
        for name, want in self.wants.items():
            if f"<{name}>" in text:
                text = text.replace(f"<{name}>", want.claims[-1].token.decode())
        return text.replace("<digits>", "1" * 5000).encode().decode("unicode_escape").encode("latin-1")

    # ------------------------------------------------ what that leads to

    def _asked(self) -> Iterator[str]:
        """Tell what each node was asked since the last line, and all nodes that were asked the same at once."""
        for name, want in self.wants.items():
            for at, claim in enumerate(getattr(want, "claims", ())):
                token = f"{name}" if len(want.claims) == 1 else name.split(",")[at]
                if claim.token not in self.tokens:
                    self.tokens[claim.token] = token + "'" * list(self.tokens.values()).count(token)
        alike: dict[str, list[str]] = {}
        for which, node in enumerate(self.world.nodes):
            asked = [(said, len([*same])) for said, same in groupby(map(self._request, node.asked[self.seen[which] :])) if said]
            self.seen[which] = len(node.asked)
            if asked:
                text = ", ".join(f"{said} {times} times" if times > 1 else said for said, times in asked)
                alike.setdefault(text, []).append(str(which))
        yield from (f"{' '.join(numbers)} asked: {asked}" for asked, numbers in alike.items())

    def _request(self, asked: Any) -> str:
        if asked.word not in KEPT:
            return ""
        name, by = asked.name.decode("latin-1"), self.tokens.get(asked.token, "nobody")
        said = f"{asked.word} {name}".strip()
        return said if by in (name, "nobody") else f"{said} of {by}"

    def _events(self) -> Iterator[str]:
        told = []
        for it in self.world.events:
            if isinstance(it, NodeEvent):
                node = it.node.removeprefix("redis://n").partition(":")[0]
                yield from [f"warns of {node} ({it.about}): {it.warning}"] if word(it) == "warned" else []
                away = f" after {number(round(it.down, 1))} s" if it.down >= 0.05 else ""
                told += [] if word(it) == "warned" else [f"{word(it)} {node}{away}"]
            elif isinstance(it, LeaseEvent):
                told.append(f"{word(it)} {it.name}")
        self.world.events.clear()
        if told:
            yield "tells: " + ", ".join(told)

    def _news(self) -> list[str]:
        before, self.before = self.before, dict(self._stands())
        alike: dict[str, list[str]] = {}
        for name, it in self.before.items():
            if it != before.get(name):
                alike.setdefault(it, []).append(name)
        return [f"{' '.join(names)} {it}" for it, names in alike.items()]

    def _stands(self) -> Iterator[tuple[str, str]]:
        for which, it in enumerate(self.world.engine.health.status(self.world.now)):
            cause = re.sub(r"\d+\.\d+ s left", "some time left", briefly(it.cause))
            yield str(which), f"{it.state}{', ' + it.guarantee if it.guarantee != 'safe' else ''}{': ' + cause if cause else ''}"
        settled, found, live = self.world.settled, self.world.found, set(self.world.engine.live.values())
        assert live <= {it for want in self.wants.values() for it in getattr(want, "claims", ()) if not it.done}
        for name, it in self.wants.items():
            if not hasattr(it, "claims"):
                yield name, f"answered by {' '.join(map(str, it.answers)) or 'nobody'}{', over' * it.over}{'!' * found.count(it)}"
                continue
            stands = [it.state.name.lower(), it.reason if it.state is State.LOST else ""]
            claim = it.claims[0]
            stands += [
                f"freed by {claim.freed}" * bool(claim.freed),
                "in doubt" * claim.doubt,
                "done" * (it.done and it.state is State.OVER and it.refusal is None),
            ]
            stands += [f"fence {claim.fence - claim.ticket:+}" * bool(claim.fence and claim.fence != claim.ticket)]
            yield name, ", ".join(filter(None, stands)) + "!" * settled.count(it) + f": {briefly(it.refusal)}" * (it.refusal is not None)


def ways(text: str) -> Mapping[str, Callable[[], Step]]:
    """Return the one way to play a conversation."""
    return {"": Talk}
