"""What a node must do beside its scripts: greet, expire, push in order, track, and restart.

Knows docs/nodes.md and sections 3 and 9 of docs/protocol.md. Each check returns what it measured,
or raises `BadServer`.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from typing import Any

from ... import scripts
from ...protocol.exclusive import keys_of
from ...wire.handshake import OLDEST
from ...wire.resp import Push, Refusal
from .connection import PATIENCE, BadServer, BareConnection, Word
from .contract import LEASE, K, expect, request

# Seconds: a lease that is waited for, and by how much it may end late.
SHORT = 0.1
LATE = 0.005
# Seconds by which its clock and ours may move apart while those leases run.
DRIFT = 0.25
# How many leases are waited for, and messages counted.
ROUNDS = 5
MESSAGES = 500
# Seconds that a server may take to come back.
COMEBACK = 60.0


class NotPermitted(Exception):
    """The user may not do what is optional."""


def facts_of(connection: BareConnection) -> dict[str, str]:
    """Return what the server says of itself in `INFO`."""
    text = "\n".join(_text(connection.ask("INFO", it)) for it in ("server", "replication"))
    return dict(line.strip().partition(":")[::2] for line in text.splitlines() if ":" in line)


def product_of(facts: dict[str, str]) -> str:
    """Return the server's product and version, such as `valkey 9.1.2`."""
    others = {it.removesuffix("_version"): facts[it] for it in facts if it.endswith("_version")}
    redis = others.pop("redis", "")
    others.pop("gcc", None)
    named = facts.get("server_name", "")
    name = named if named in others else next(iter(others), "redis")
    return f"{name} {others.get(name, redis)}"


def greeting(dial: Callable[[], BareConnection]) -> str:
    """RESP3, a subscription on the connection of commands, and what INFO has to say."""
    it = dial()
    try:
        hello = it.ask("HELLO", 3)
        if not isinstance(hello, dict):
            raise BadServer(f"HELLO 3 answers {hello!r}, and not a map: RESP3 is needed")
        facts = facts_of(it)
        for wanted in ("redis_version", "role", "run_id", "uptime_in_seconds"):
            if not facts.get(wanted):
                raise BadServer(f"INFO does not show {wanted}")
        version = tuple(int(part) for part in facts["redis_version"].split(".")[:2] if part.isdigit())
        if version < OLDEST:
            raise BadServer(f"it is compatible with Redis {facts['redis_version']} only; 6.2 is the oldest that works")
        expect("INFO, for the role,", facts["role"], "master")
        expect("INFO, for the uptime,", facts["uptime_in_seconds"].isdigit(), True)
        again = facts_of(it)["run_id"]
        expect("INFO, asked again for the run id,", again, facts["run_id"])
        skew = abs(it.time() - time.time())
        return f"{product_of(facts)}, clock {skew * 1000:.0f} ms off"
    finally:
        it.close()


def expiries(one: BareConnection, two: BareConnection, name: bytes) -> str:
    """A lease ends when its ttl is over, not earlier, and a few milliseconds later at most."""
    early, lates = 0.0, list[float]()
    ahead = one.time() - one.clock()
    for _ in range(ROUNDS):
        token = one.token()
        before = one.clock()
        one.ask(*request(name, token, "t", round(SHORT * 1000)))
        after = one.clock()
        denied = after
        while True:
            asked = one.clock()
            other = two.token()
            answer = two.ask(*request(name, other, "t"))
            if not isinstance(answer, list) or answer[0]:
                break
            denied = asked
            if denied > after + SHORT + PATIENCE:
                raise BadServer(f"a lease of {SHORT:g} s does not end within {PATIENCE:g} s")
        early = max(early, before + SHORT - one.clock())
        lates.append(max(denied - after - SHORT, 0.0))
        two.call(scripts.RELEASE, keys_of(name), other, K)
    drift = one.time() - one.clock() - ahead
    if abs(drift) > DRIFT:
        raise BadServer(f"meanwhile its clock and ours moved apart by {abs(drift):.1f} s")
    # Servers count in milliseconds, so a lease may end in the middle of its last one.
    if early > 0.002:
        raise BadServer(f"a lease of {SHORT:g} s ended {early * 1000:.1f} ms early")
    # One that is late may have waited for a processor.
    late = sorted(lates)[ROUNDS // 2]
    if late > LATE:
        raise BadServer(f"a lease of {SHORT:g} s still held {late * 1000:.1f} ms after its end")
    return f"{late * 1000:.1f} ms late"


def pushes(one: BareConnection, two: BareConnection) -> str:
    """Messages arrive in order, and before the answer to any later command of their cause."""
    one.messages()
    two.batch(*[("PUBLISH", one.inbox, number) for number in range(MESSAGES)])
    heard = [int(it) for it in one.messages()]
    misplaced = [it for it in range(MESSAGES) if heard[it : it + 1] != [it]]
    if misplaced:
        raise BadServer(f"of {MESSAGES} messages of another client, number {misplaced[0] + 1} is not in its place")
    one.send(*[words for it in range(MESSAGES) for words in (("PUBLISH", one.inbox, it), ("TIME",))])
    latest = answered = -1
    while answered < MESSAGES - 1:
        for it in one.arrived():
            if isinstance(it, Push):
                latest = int(it[2])
            # To TIME: the answer to PUBLISH is a number.
            elif not isinstance(it, int):
                answered += 1
                expect("a message before the answer to the next command", latest, answered)
    return f"{2 * MESSAGES} messages"


def tracking(one: BareConnection, two: BareConnection, name: bytes) -> str:
    """The server says when a key that a script has read was changed, or has expired."""
    two.ask("SET", name, "foreign", "PX", LEASE)
    _track(one, ("CLIENT", "TRACKING", "ON", "OPTIN", "NOLOOP"))
    _track(one, ("CLIENT", "CACHING", "YES"), request(name, one.token(), "t"))
    two.ask("DEL", name)
    if not one.invalidated(name):
        raise BadServer("it does not say that a tracked key was deleted")
    two.ask("SET", name, "foreign", "PX", round(SHORT * 1000))
    _track(one, ("CLIENT", "CACHING", "YES"), request(name, one.token(), "t"))
    one.sleep(SHORT + LATE)
    # A server may notice the end of a key when somebody asks for it.
    two.ask("EXISTS", name)
    if not one.invalidated(name):
        raise BadServer("it does not say that a tracked key has expired")
    return "deleted and expired keys"


def _ran(command: str) -> None:
    """Run a shell command."""
    done = subprocess.run(command, shell=True, check=False, capture_output=True, text=True, timeout=COMEBACK)
    if done.returncode:
        raise BadServer(f"the restart command ended with {done.returncode}: {done.stderr.strip()}")


def _back(dial: Callable[[], BareConnection], earlier: BareConnection, deadline: float) -> BareConnection:
    """Connect again, as soon as the server takes connections."""
    while True:
        try:
            return dial()
        except BadServer as error:
            if earlier.clock() > deadline:
                raise BadServer(f"it did not come back within {COMEBACK:g} s: {error}") from None
            earlier.sleep(0.05)


def _track(one: BareConnection, *commands: tuple[Word, ...]) -> None:
    """Say a command of tracking, and what it is for right behind it."""
    answer = one.batch(*commands)[0]
    if isinstance(answer, Refusal):
        shown = " ".join(map(str, commands[0][:2]))
        if str(answer).startswith("NOPERM"):
            raise NotPermitted(f"{shown} is denied: waiters notice other clients by a timer")
        raise BadServer(f"it refuses {shown}: {answer}")


def restart(dial: Callable[[], BareConnection], name: bytes, command: str | Callable[[], object]) -> str:
    """After a restart the run id is another one, and the uptime begins again.

    Args:
        dial: Makes a connection that was greeted.
        name: A key of its own.
        command: The shell command that restarts the server, or a function that does it.

    Returns:
        Whether the data survived.

    Raises:
        BadServer: The restart cannot be noticed, or the server does not come back.
    """
    one = dial()
    before = facts_of(one)
    one.ask("SET", name, "kept", "PX", round(COMEBACK * 2000))
    one.close()
    began = one.clock()
    if callable(command):
        command()
    else:
        _ran(command)
    one = _back(dial, one, began + COMEBACK)
    try:
        after = facts_of(one)
        if after["run_id"] == before["run_id"]:
            raise BadServer("its run id is the same after a restart, so clients would not notice it")
        if int(after["uptime_in_seconds"]) > one.clock() - began + 2:
            raise BadServer(f"it says that it has run for {after['uptime_in_seconds']} s after a restart")
        kept = one.ask("GET", name) is not None
        one.ask("DEL", name)
        return "noticed, data kept" if kept else "noticed, data lost"
    finally:
        one.close()


def _text(answer: Any) -> str:
    return answer if isinstance(answer, str) else answer.decode("utf-8", "replace")
