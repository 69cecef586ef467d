"""The client of level 1, which is the page in code: the conversations of its level, and the storm."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from clients.contender_level1 import loaded
from clients.storm import LEVEL_1

ROOT = Path(__file__).parent.parent.parent
level1 = loaded(str(LEVEL_1))
OF_LEVEL_1 = json.loads((ROOT / "clients/vectors/level1.json").read_text())
PARTS = json.loads((ROOT / "clients/vectors/parts.json").read_text())


class Talk:
    """A conversation with one claim, in seconds."""

    def __init__(self, vector: dict[str, Any], client: Any = level1) -> None:
        self.standing = list(vector["standing"])
        self.claim = client.Claim(vector["nodes"], vector["ticket"], vector["ttl"] / 1000, vector["K"], vector["began"] / 1000)

    def step(self, step: dict[str, Any]) -> None:
        claim, now, event = self.claim, step["at"] / 1000, step["event"]
        if event == "begin":
            claim.happens(now, claim.begin, self.standing)
        elif event == "answer":
            reply = Exception(step["error"]) if "error" in step else encoded(step["reply"])
            claim.happens(now, claim.answered, step["node"], reply)
        elif event == "tick":
            claim.happens(now, claim.tick, [node for node, it in enumerate(self.standing) if it == "up"])
        elif event == "end":
            claim.happens(now, lambda now: claim.end("over"))
        else:
            self.standing[step["node"]] = "up" if event == "connected" else step["standing"]
            claim.happens(now, claim.stands, step["node"], self.standing[step["node"]])
        said = sorted(claim.out)
        claim.out = []
        meant = [(node, it["what"], it.get("P", 0)) for it in step["sends"] for node in it["to"]]
        assert said == sorted(meant), f"what it sends after {event} at {now}"
        assert claim.state == step["state"], f"after {event} at {now}"
        if claim.state == "held":
            assert claim.fence == step["held"]
            assert abs(claim.until * 1000 - step["until"]) < 0.01


def encoded(reply: Any) -> Any:
    """A reply as it comes from a connection."""
    if isinstance(reply, list):
        return [encoded(it) for it in reply]
    return reply.encode() if isinstance(reply, str) else reply


def passes(client: Any) -> bool:
    """Whether a client says what the vectors say."""
    try:
        for it in OF_LEVEL_1:
            talk = Talk(it, client)
            for step in it["steps"]:
                talk.step(step)
        for check in (keys, requests, servers, guards):
            check(client)
    except Exception:
        return False
    return True


@pytest.mark.parametrize("vector", [pytest.param(it, id=f"{it['test']}-{it['number']}") for it in OF_LEVEL_1])
def test_it_says_what_the_vectors_say(vector: dict[str, Any]) -> None:
    talk = Talk(vector)
    for step in vector["steps"]:
        talk.step(step)


def keys(client: Any) -> None:
    for it in PARTS["keys"]:
        key = it["prefix"] + it["name"]
        if it["keys"] and not set("{}[]") & set(key):
            assert [key.decode() for key in client.keys_of(key.encode())] == it["keys"]


def requests(client: Any) -> None:
    for it in PARTS["request"]:
        claim = client.Claim(1, it["ticket"], it["ttl"] / 1000, it["K"], 5.0)
        claim.token = it["arguments"][0]
        assert [str(word) for word in client.request(claim, it["mode"], it["P"], 5.0 + it["passed"] / 1000)] == it["arguments"]


def servers(client: Any) -> None:
    for it in PARTS["servers"]:
        assert (client.unfit(client.facts_of(it["info"])) == "") is it["fit"], it["info"]


def guards(client: Any) -> None:
    for it in PARTS["guards"]:
        guard = client.Guard()
        for step in it["steps"]:
            usable = guard.meets(step["run"], step["uptime"], step["at"] / 1000, it["guard"] / 1000)
            assert usable * 1000 == step["usable"]


@pytest.mark.parametrize("part", [keys, requests, servers, guards])
def test_its_parts_are_those_of_the_vectors(part: Callable[[Any], None]) -> None:
    part(level1)


def test_it_writes_no_marks_and_refuses_a_long_ttl() -> None:
    """Rule G14."""
    with pytest.raises(ValueError, match=r"from 0\.05 to 10\.0 seconds"):
        asyncio.run(level1.Client("redis://a").acquire("x", ttl=10.1))


FAULTS = {
    "a quorum of half": ("nodes // 2 + 1", "(nodes + 1) // 2"),
    "validity counts from the answer": ("bound = sent + self.ttl", "bound = now + self.ttl"),
    "no drift": ("(self.ttl / 100 + 0.002)", "0"),
    "any majority will do, whatever its fences": ("if fences.count(agreed) >= self.quorum", "if len(fences) >= self.quorum"),
    "nothing is written back": ("elif len(counting) >= self.quorum:  # F9", "elif False:"),
    "any fence counts": ("self.horizon * 1500", "1e30"),
    "an error moves a bound": ("vote.hopeless = not counted", "vote.bound = now + self.ttl"),
    "nothing is released": ('self.out += [(node, "release", 0)', 'self.out += [(node, "t", 0)'),
    "what was never asked is released": ("if vote.touched]", "]"),
    "it is not renewed": ("now >= self.renews", "False"),
    "renewals propose the ticket": (
        "self.proposed, self.vouch, self.since = agreed",
        "self.proposed, self.vouch, self.since = self.ticket",
    ),
    "a lease does not end": ("if now >= self.until or", "if"),
    "a majority that lost the token is believed": ("len(self.votes) - len(self.vouch) >= self.quorum", "False"),
    "who came back vouches for the time before": ("self.vouch, self.asked = self.next, INF", "self.vouch, self.asked = set(counting), INF"),
    "an answer that was lost is not suspected": ("again = (fence and fresh) or", "again = (fence and fresh) or False and"),
    "a broken connection takes its grant away": (
        "vote.owed, vote.wrote = [], 0",
        "vote.owed, vote.wrote, vote.bound = [], 0, 0.0",
    ),
    "nodes that owe two answers are renewed": ("len(self.votes[node].owed) < 2", "True"),
    "T may be below a fence that a denial told": ("agreed > self.above", "True"),
    "a try has no end": ("now >= self.began + self.ttl / 3", "False"),
    "the guard trusts any uptime": (", self.before + guard)", ")"),
    "uptime is not rounded up": ("guard + 1 - uptime", "guard - uptime"),
    "the record of a fence ends early": ("5 * claim.horizon // 4", "claim.horizon"),
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_the_vectors_find_a_fault(fault: tuple[str, str]) -> None:
    text = Path(level1.__file__).read_text()
    assert text.count(fault[0]) == 1
    client: dict[str, Any] = {"__file__": level1.__file__, "__name__": "faulty"}
    exec(text.replace(*fault), client)
    assert not passes(SimpleNamespace(**client))
    assert passes(level1)
