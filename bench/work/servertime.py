"""What one command costs a node: many of one kind, in batches, while the node measures itself (INFO commandstats)."""

from __future__ import annotations

from typing import Any

from ..floors import sockets
from . import step

NAMES = 2000
BATCH = 100


def alone(parameters: dict[str, Any]) -> dict[str, Any]:
    """`adapter` is plain or scripts; `half`: which of the two commands the node is to measure, "request" or "release"."""
    floor = (sockets.Scripts if parameters["adapter"] == "scripts" else sockets.Plain)(parameters)
    locks = [floor.lock(f"bench:server:{i}") for i in range(NAMES)]
    tokens = [it.token() for it in locks]
    requests = [it.request(token) for it, token in zip(locks, tokens, strict=True)]
    releases = [it.release(token) for it, token in zip(locks, tokens, strict=True)]

    def say(commands: list[bytes]) -> None:
        for i in range(0, NAMES, BATCH):
            floor.ask(b"".join(commands[i : i + BATCH]), BATCH)

    for _ in range(3):  # once more than once: fences are there, and scripts compiled
        say(requests)
        say(releases)
    if parameters["half"] == "release":
        say(requests)
    step.wait()
    say(requests if parameters["half"] == "request" else releases)
    return {"command": "set" if (parameters["half"], parameters["adapter"]) == ("request", "plain") else "evalsha"}
