"""What one command costs a node: many of one kind, in batches, while the node measures itself (INFO commandstats).

Beside our `request`, scripts that are given the same and do less: what nobody's script can do without.
"""

from __future__ import annotations

import hashlib
from typing import Any

from holdfast.scripts import REQUEST
from holdfast.wire.resp import pack

from ..floors import sockets
from . import step

NAMES = 2000
BATCH = 100
LESS = {
    "six commands": b"local held = redis.call('GET', KEYS[1]) redis.call('EXISTS', KEYS[3]) local F = redis.call('GET', KEYS[2]) "
    b"redis.call('PTTL', KEYS[1]) redis.call('PEXPIRE', KEYS[1], ARGV[2]) redis.call('PTTL', KEYS[2]) return tonumber(F)",
    "nothing": b"return ARGV[4]",
    "commands": b"redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) redis.call('EXISTS', KEYS[3]) "
    b"redis.call('SET', KEYS[2], ARGV[4], 'PXAT', ARGV[6], 'GET') return ARGV[4]",
}


def alone(parameters: dict[str, Any]) -> dict[str, Any]:
    """`adapter`: plain, scripts, or one of LESS; `half`: which command the node is to measure, "request", "release" or "renewal"."""
    floor = (sockets.Plain if parameters["adapter"] == "plain" else sockets.Scripts)(parameters)
    locks = [floor.lock(f"bench:server:{i}") for i in range(NAMES)]
    sha = REQUEST.sha
    mine = "renewal" if parameters["half"] == "renewal" else "request"
    if (less := LESS.get(parameters["adapter"])) is not None:
        sha = hashlib.sha1(less, usedforsecurity=False).hexdigest().encode()
        floor.ask(pack(b"SCRIPT", b"LOAD", less), 1)

    def commands() -> dict[str, list[bytes]]:
        """Of one more acquisition of every name: with a ticket of its own, as every acquisition has."""
        tokens = [it.token() for it in locks]
        renewals = [it.renewal(token) for it, token in zip(locks, tokens, strict=True)] if mine == "renewal" else []
        requests = [it.request(token) for it, token in zip(locks, tokens, strict=True)]
        return {
            "renewal": [it.replace(REQUEST.sha, sha) for it in renewals],
            "request": requests if renewals else [it.replace(REQUEST.sha, sha) for it in requests],
            "release": [it.release(token) for it, token in zip(locks, tokens, strict=True)],
        }

    def say(them: list[bytes]) -> list[Any]:
        return [answers[0] for i in range(0, NAMES, BATCH) for answers in floor.ask(b"".join(them[i : i + BATCH]), BATCH)]

    for _ in range(3):  # once more than once: fences are there, and scripts compiled
        known = commands()
        say(known["request"])
        say(known["release"])
    measured = commands()
    if parameters["half"] != "request":
        say(measured["request"])
    step.wait()
    answers = say(measured[parameters["half"]])
    if parameters["half"] == "request" and not all(map(locks[0].granted, answers)):
        raise RuntimeError(f"not the usual case: {answers[0]!r}")
    if parameters["half"] == "renewal" and not all(type(it) is int for it in answers):
        raise RuntimeError(f"not the usual renewal: {answers[0]!r}")
    return {"command": "set" if (parameters["half"], parameters["adapter"]) == ("request", "plain") else "evalsha"}
