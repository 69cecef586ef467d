"""Plays what happens to one node and its connections in virtual time, and tells all that was noted and has changed.

    seed 3
    a sends SET k 1; node freeze 5.0

| A step | |
| --- | --- |
| `seed 3` | begins again with this chance (0), and connects a |
| `a connects` | dials the node, as somebody called a |
| `a sends SET k 1, GET k` | in one write; keys live for 60 s |
| `a cut late=1.0`, `node freeze 5.0` | calls this method of the connection or the node |
| `node.lag = 0.5` | sets this attribute |
| `refuse SET OOM no` | the server refuses the command |
| `storm faults=9.0`, `storm end` | from now on things go wrong with this node and two others; no longer |
| `tell DEL a` | an operator says a command |
| `wait 0.1` | so many seconds pass |
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from math import inf
from typing import Any

from conversations import Step
from scripts.bench import pack
from swarm.nodes import ReplaceableNode

from holdfast.testing.faults import Faults, StormSettings
from holdfast.testing.network import WALL, Node, SimulatedConnection
from holdfast.testing.world import DriftingClock, World


class Peer:
    """Who is at the other end, and notes what it is told."""

    def __init__(self, talk: Talk, name: str) -> None:
        self.talk, self.name = talk, name

    def __repr__(self) -> str:
        return self.name

    def connected(self, link: SimulatedConnection) -> None:
        self.talk.world.note(self, "is connected")

    def heard(self, link: SimulatedConnection, data: bytes) -> None:
        self.talk.world.note(self, "hears", repr(data).replace("$", ""))

    def lost(self, link: SimulatedConnection, cause: Exception) -> None:
        self.talk.world.note(self, "is told", str(cause))


class Talk:
    """One world, with one node."""

    def __init__(self) -> None:
        self.begins(0)

    def begins(self, seed: int) -> None:
        self.world = World(seed)
        self.node = ReplaceableNode(self.world, 0, DriftingClock(self.world, WALL))
        self.those: dict[str, Any] = {"node": self.node, "world": self.world}
        self.nodes = [self.node, *(Node(self.world, it, DriftingClock(self.world, WALL)) for it in (1, 2))]
        self.node.unanswered = lambda link: self.world.note(link, "gets no answer")
        self.node.published = lambda node, message: self.world.note(node, "publishes", str(message))
        self.node.executed = lambda node: self.world.saw("executed")
        self.step("a", "connects")
        self.step("wait", "0.1")
        self.told, self.was = len(self.world.record), self.state()

    def state(self) -> dict[str, object]:
        node, server = self.node, self.node.server
        return {
            "keys": dict(zip(node.keys(), server.data[0].values.values(), strict=True)),
            "run": int(server.run_id[-20:]),
            "up since": int(self.world.now) - server.uptime(),
            "born": round(node.born, 3),
            "reigns": len(server.reigns),
            "woke": dict(node.woke),
            "had": {it: round(when, 3) for it, when in node.had.items()},
            "links": [*node.links],
            "changes": node.changes,
            "erred": node.erred if node.erred < 0 else round(node.erred, 3),
            "host": node.host,
            "runs": node.running,
            "refuses": dict(server.refuse),
            "old": node.old and [*node.old.data[0].values],
            "delivered": self.world.delivered,
            "flights": [f"{it.leaves:.3f} to {it.lands or inf:.3f}" for it in self.world.flights[-2:]],
            "seen": dict(self.world.seen),
        }

    def step(self, who: str, verb: str, *words: str) -> None:
        match who, verb:
            case "seed", _:
                self.begins(int(verb))
            case "wait", _:
                self.world.run(self.world.now + float(verb))
            case "refuse", _:
                self.node.server.refuse[verb.encode()] = " ".join(words).encode()
            case "storm", _ if verb != "end":
                options = {name: ast.literal_eval(it) for name, it in (it.split("=") for it in (verb, *words))}
                self.those[who] = Faults(self.world, self.nodes, StormSettings(**options), guard=1.0)
            case "tell", _:
                self.node.tell(pack(verb, *words))
            case _, "connects":
                self.those[who] = SimulatedConnection(self.world, Peer(self, who), self.node)
            case _, "sends":
                said = [it.split() for it in " ".join(words).split(", ")]
                self.those[who].send(b"".join(pack(*it, *(("PX", "60000") if it[0] == "SET" else ())) for it in said))
            case _, "=":
                name, attribute = who.split(".")
                setattr(self.those[name], attribute, float(words[0]))
            case _:
                named = dict(it.split("=") for it in words if "=" in it)
                options = {name: ast.literal_eval(it) for name, it in named.items()}
                getattr(self.those[who], verb)(*[float(it) for it in words if "=" not in it], **options)

    def __call__(self, line: str) -> Sequence[str]:
        for step in line.split("; "):
            self.step(*step.split())
        found = [self.noted(it) for it in self.world.record[self.told :]]
        # A new world is shown whole, unless more happens in it.
        self.was = {} if step == line != step.removeprefix("seed ") else self.was
        was, self.was, self.told = self.was, self.state(), len(self.world.record)
        return found + [f"{name}: {it}" for name, it in self.was.items() if name not in was or it != was[name]]

    def noted(self, record: tuple[Any, ...]) -> str:
        when, who, what, *details = record
        return " ".join(
            [f"{when:.3f}", str(who), what, *map(str, details if what not in ("sends to", "is told") or type(details[0]) is str else ())]
        )


def ways(text: str) -> Mapping[str, Callable[[], Step]]:
    """Return the one way to play these lines."""
    return {"": Talk}
