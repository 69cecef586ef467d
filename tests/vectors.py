"""Writes down what clients in other languages can be held to: conversations of a claim, and what else can be computed.

    ./task vectors
    ./task vectors --rewrite

The conversations are those of `tests/protocol/claim`. Left out are those with what only some clients have: `max_hold`, leases
without renewal, downgrades, ballots, results of others, and the caller's deadline. Times are in ms from the conversation's own
beginning, fences in microseconds. `clients/vectors/README.md` describes the format. `parts.json` has inputs and results: the keys of
names, the arguments of a request, servers that are of no use, and guards.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import conversations
from engine import talk as engine_talk
from protocol import script
from protocol.conversation import HORIZON, TTL, Conversation, P
from scripts import talk as node_talk
from testing import conformance_talk, network_talk
from wire import servers as wire
from wire import talk as connection_talk
from wire import test_handshake

from holdfast.errors import ConfigError
from holdfast.protocol import exclusive
from holdfast.protocol.command import CEDE, KEEP, RELEASE, TRY, WAIT
from holdfast.protocol.nodes import UP

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "clients/vectors"
# The folders of conversations, and how they are played.
TEXTS = {"protocol": script.ways, "scripts/locks": node_talk.ways}
TEXTS |= {"testing/conformance": conformance_talk.ways, "testing/network": network_talk.ways}
TEXTS |= {"engine": engine_talk.ways} | dict.fromkeys(("wire/connection", "wire/server", "wire/handshake"), connection_talk.ways)
TALKS = sorted((ROOT / "tests/protocol/claim").glob("*.txt"))
# Conversations in which a client may say something else.
OWN = {
    # Python repeats a renewal once more than it has to.
    "test_a_lease_can_be_in_doubt_more_than_once",
    "test_an_extension_that_fails_tells_why",
    # A client need not renew early (rule C8).
    "test_a_renewal_may_leave_a_little_before_it_is_due",
}
MOST = 8  # conversations of one test, whose parameters often make hundreds
MODES = {WAIT: "w", KEEP: "k", TRY: "t", CEDE: "c", RELEASE: "release"}
PUSHES = {"pushed": "g", "inquired": "i", "taken": "x"}
# What only some clients have: options, and what happens.
OURS = {"news", "expects", "downgrade", "close"}
SHARED = {"nodes", "ttl", "patient", "patience", "outage", "begins", "standing", "inbox"}


def ms(seconds: float) -> float:
    return round(seconds * 1000, 6)


def _is_plain(reply: object) -> bool:
    """Does it look the same in all languages? (A node's texts are bytes here.)"""
    if isinstance(reply, list):
        return all(map(_is_plain, reply))
    return reply is None or isinstance(reply, Exception) or type(reply) in (int, bytes)


def _standing(standing: str) -> str:
    return {"connecting": "dialling"}.get(standing, standing)


class Recorder(Conversation):
    """A conversation that writes itself down."""

    written: ClassVar[list[Recorder]] = []

    def __init__(self, nodes: int = 3, **options: Any) -> None:
        self.options = options
        self.steps: list[dict[str, Any]] = []
        self.tokens: list[bytes] = []
        self.extending = False
        self.heard = 0
        super().__init__(nodes, **options)
        begins = options.get("begins", 0.0)
        self.head = {
            "nodes": nodes,
            "standing": [_standing(options.get("standing", {}).get(it, UP).name.lower()) for it in range(nodes)],
            "ttl": ms(self.claim.ttl),
            "patient": options.get("patient", True),
            "ticket": P,
            "K": HORIZON,
            "nodeTimeout": ms(options.get("patience", 1.0)),
            "outage": ms(options.get("outage", 9.0)),
            "began": ms(begins),
            "place": self.claim.tickets.place(P),
        }
        Recorder.written.append(self)

    def happened(self, something: bool, asked: bool = False) -> bool:
        result = super().happened(something, asked)
        claim = self.claim
        if claim.token not in self.tokens:
            self.tokens.append(claim.token)
        event = _event(*self.inputs[-1]) if len(self.inputs) > self.heard else {"event": "tick" if self.steps else "begin"}
        self.heard = len(self.inputs)
        step = {"at": ms(self.now), **event}
        step["sends"] = [self._sent(nodes, command) for nodes, command in self.said]
        step["state"] = claim.state.name.lower()
        if step["state"] == "held":
            step |= {"held": claim.fence, "until": ms(claim.until)}
            if self.extending and not claim.awaited:
                step["extended"] = claim.setback is None
        self.extending = claim.awaited
        if claim.reason == "refused":
            step["refused"] = True
        self.steps.append(step)
        return result

    def _sent(self, nodes: Any, command: Any) -> dict[str, Any]:
        # Whatever cannot be sent now is not sent at all, but for a release.
        to = [it for it in nodes if command.mode is RELEASE or self.node_set.standing[it] is UP]
        said: dict[str, Any] = {"to": to, "what": MODES[command.mode], "token": self.tokens.index(command.token)}
        if command.mode is not RELEASE:
            said |= {"P": command.fence, "watch": command.watch}
            if command.ttl != self.claim.ttl:
                said["ttl"] = ms(command.ttl)
        return said

    def is_shared(self) -> bool:
        """Can clients in all languages have this conversation?"""
        if self.claim.stays or self.claim.dropped or set(self.options) - SHARED:
            return False
        ours = (word in OURS or rest in ("heard", "empty") or (word == "extend" and "=" in rest) for _, word, rest, _ in self.inputs)
        return not any(ours) and all(_is_plain(reply) for *_, reply in self.inputs)


def _event(node: int, word: str, rest: str, reply: object) -> dict[str, Any]:
    """Return what has happened, in the words of the vectors."""
    match word:
        case "pushed" | "inquired" | "taken":
            return {"event": "push", "node": node, "kind": PUSHES[word], "fence": script.fence(rest) if rest else 0}
        case "changed" | "flushed":
            return {"event": word, "node": node}
        case "broken":
            return {"event": "disconnected", "node": node, "standing": _standing(rest or "down")}
        case "joined":
            return {"event": "connected", "node": node}
        case "useless" | "down":
            return {"event": "stands", "node": node, "standing": word}
        case "release":
            return {"event": "end"}
        case "moves":
            return {"event": "corrected", "by": round(float(rest) * 1_000_000)}
        case "extend":
            return {"event": "extend", "ttl": ms(script.extension(rest).get("ttl", TTL))}
    if word in script.CALLER or word in script.NODE:
        return {"event": "tick"}
    said = {"reply": None, "error": str(reply)} if isinstance(reply, Exception) else {"reply": _in_json(reply)}
    return {"event": "answer", "node": node, **said}


def _in_json(reply: object) -> object:
    return json.loads(json.dumps(reply, default=lambda text: text.decode("utf-8", "replace"))) if _is_plain(reply) else None


def vectors() -> list[dict[str, Any]]:
    """Play the conversations, and return them."""
    script.Conversation = Recorder  # type: ignore[misc]  # (from now on all conversations write themselves down)
    found = []
    for it in [it for file in TALKS for it in conversations.read(file.read_text())]:
        Recorder.written = []
        labels = []
        # Of many, the first ones are shared: the short path first.
        for label, meant, begins in sorted(conversations.plays(it, script.ways), key=lambda play: "vote by vote" in play[0]):
            conversations.check(meant, begins())
            labels += [label] * (len(Recorder.written) - len(labels))
        shared = [(label, it) for label, it in zip(labels, Recorder.written, strict=True) if it.is_shared()]
        for label, talk in shared[:MOST] if it.name not in OWN else []:
            found.append({"test": f"{it.name}{label}", "number": labels.index(label), **talk.head, "steps": talk.steps})
    return found


# What a client of level 1 hears of. A claim that waits goes on where a try ends (C4, C5, F5, C17), and a client of a higher level
# repeats a renewal (C9).
KNOWN = {"begin", "answer", "connected", "disconnected", "stands", "tick", "end"}
HIGHER = {
    "test_B20_S01_what_is_granted_too_late_is_no_grant",
    "test_an_answer_that_our_scripts_never_give_is_an_error",
    "test_a_majority_whose_fences_no_clock_allows_is_an_outage_that_tells_why",
    "test_B18_waiting_has_an_end_when_a_majority_is_away",
    "test_a_short_lease_is_in_doubt_after_a_third_of_it",
}


def level1(vector: dict[str, Any]) -> dict[str, Any]:
    """What a client of level 1 does of a conversation: up to the first step that is about something else.

    That is: pushes, ceding and waiting, time for a majority that is away (C17), and a renewal that is repeated (C9).
    """
    steps: list[dict[str, Any]] = []
    asked = vector["began"]
    for step in vector["steps"]:
        event, words = step["event"], {it["what"] for it in step["sends"]}
        waiting = not steps or steps[-1]["state"] == "waiting"
        denied = "error" in step or (isinstance(step.get("reply"), list) and step["reply"][:1] == [0])
        waits = vector["patient"] and waiting and (denied or (steps and event != "answer"))
        away = waiting and event in ("stands", "disconnected", "tick") and (event != "tick" or step["state"] == "waiting")
        away = away and (event != "tick" or vector["patient"] or bool(words))
        again = event == "tick" and "k" in words and step["at"] < asked + vector["ttl"] / 3 - 200
        at_once = event == "connected" and not waiting and words
        if event not in KNOWN or "c" in words or waits or away or again or at_once:
            break
        if event == "tick" and words:
            asked = step["at"]
        sends = [{name: it[name] for name in it if name not in ("token", "watch")} for it in step["sends"]]
        steps.append(step | {"sends": [it | {"what": "t" if it["what"] == "w" else it["what"]} for it in sends]})
    return {name: vector[name] for name in vector if name != "patient"} | {"steps": steps}


def lines(found: Sequence[dict[str, Any]]) -> str:
    return "[\n" + ",\n".join(json.dumps(it, separators=(",", ":")) for it in found) + "\n]\n"


def parts() -> str:
    """Return the text of the other file."""
    found = {"keys": keys(), "request": requests(), "servers": servers(), "guards": guards()}
    lists = (f'"{name}": [\n' + ",\n".join(json.dumps(it) for it in items) + "\n]" for name, items in found.items())
    return "{\n" + ",\n".join(lists) + "\n}\n"


def keys() -> list[dict[str, Any]]:
    """The four keys of names; none: the name is refused."""
    names = [("", "invoice:42"), ("app:", "invoice:42"), ("", "a{b}c"), ("", "{a}"), ("", "{a}:b"), ("", "a{b"), ("", "fence"), ("", "a b")]
    names += [("", "ü"), ("", "x" * 512), ("", "a[slot x]"), ("", "a[slot 7] "), ("", "a{}b{c}"), ("", "{a}:fences"), ("", "{a{b}:x")]
    names += [("", ""), ("p", ""), ("", "x" * 513), ("", "ü" * 257), ("", "a}"), ("", "{}"), ("", "{a}:fence"), ("", "{a}:queue:b")]
    names += [("", it) for it in ("a[slot 7]", "a[slot 12]", "a[election]", "a[once]", "a[once day]", "a[fill]", "{a}:note", "{a{b}:fence")]
    found = []
    for prefix, name in names:
        try:
            four = [it.decode() for it in exclusive.keys_of(exclusive.key_of(name, prefix))]
        except ConfigError:
            four = None
        found.append({"prefix": prefix, "name": name, "keys": four})
    return found


def requests() -> list[dict[str, Any]]:
    """The arguments of `request`, after the keys. `passed`: ms since the claim began."""
    found = []
    terms = [(9.0, 0, 16000, 0.0), (0.05, 7, 1025, 12.9), (9.0, 9_000_001, 16000, 0.5), (30.0, 9_000_001, 16000, 86_400_000.5)]
    for mode in (TRY, WAIT, CEDE, KEEP):
        for ttl, ahead, horizon, passed in terms:
            recipe = exclusive.Exclusive("x", ttl=ttl, horizon=horizon)
            token = b"%d:%b:00000001" % (P, b"b" * 32)
            data = recipe.request(token, ttl, mode, P + ahead, P + round(passed * 1000))
            said = {"ticket": P, "ttl": ms(ttl), "mode": MODES[mode], "P": P + ahead, "K": horizon, "passed": passed}
            found.append(said | {"arguments": [it.decode() for it in data.split(b"\r\n")[1:-1][1::2]][7:]})
    return found


def servers() -> list[dict[str, Any]]:
    """What a server says of itself in INFO, and whether it is of use (rule T9)."""
    other = {"dragonfly_version": "df-1", "garnet_version": "1", "kvrocks_version": "2", "pika_version": "3", "redict_version": "7"}
    wrong = [{name: text} for name, text in other.items()]
    wrong += [
        {"executable": "/bin/keydb-server"},
        {"features": "cluster_mget"},
        {"server_name": "other"},
        *(facts for facts, _ in test_handshake.UNFIT.values()),
    ]
    sound: list[dict[str, object]] = [{}, {"redis_version": "6.2.0"}, {"redis_version": "7.2.4", "valkey_version": "9.1.2"}]
    found = []
    for facts in sound + wrong:
        server, connection = wire.Server(facts, verbatim=False), wire.a_connection()
        wire.meet(connection, 0.0, server)
        info = b"".join(server.info(*names).partition(b"\r\n")[2] for names in wire.SECTIONS)
        found.append({"info": info.decode(), "fit": connection.bad is None})
    return found


def guards() -> list[dict[str, Any]]:
    """Runs of servers that a client meets at one address, `at` ms, and from when on it uses them (rules G1 and G2)."""
    stories = [[(100.0, "a", uptime)] for uptime in (0, 10, 32, 33, 5000)]
    stories += [[(100.0, "a", 5), (120.0, "a", 25), (122.0, "a", 0), (140.0, "a", 0)]]
    stories += [[(100.0, "a", 5000), (115.0, "b", 5000), (120.0, "b", 5000), (140.0, "b", 5000)], [(100.0, "a", 9), (190.0, "b", 40)]]
    found = []
    for story in stories:
        connection = wire.a_connection(guard=wire.GUARD)
        steps = []
        for at, run, uptime in story:
            wire.meet(connection, at, wire.Server({"run_id": run, "uptime_in_seconds": uptime}))
            steps.append({"at": ms(at), "run": run, "uptime": uptime, "usable": ms(connection.wake)})
            connection.broke(at + 1)
        found.append({"guard": ms(wire.GUARD), "steps": steps})
    return found


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description="write the conversations of tests/protocol as vectors for other clients")
    parser.add_argument("--to", type=Path, default=FOLDER, help="the folder to write into")
    parser.add_argument("--rewrite", action="store_true", help="first write what the conversations say again, after a change that is meant")
    options = parser.parse_args(arguments)
    for folder, ways in TEXTS.items() if options.rewrite else ():
        for file in (ROOT / "tests" / folder).rglob("*.txt"):
            file.write_text(conversations.rewritten(file.read_text(), ways))
    talks = vectors()
    least = [level1(it) for it in talks if it["test"].partition("[")[0] not in HIGHER and not it["place"]]
    least = [it for it in least if len(it["steps"]) > 1]
    for name, text in (("claim.json", lines(talks)), ("level1.json", lines(least)), ("parts.json", parts())):
        (options.to / name).write_text(text)


if __name__ == "__main__":
    main(sys.argv[1:])
