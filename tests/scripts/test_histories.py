"""The same random histories on a real server and on the simulated one, compared answer by answer, push by push and key by key.

So the simulated server is held against the real ones, with whatever the scripts make of it.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest
from scripts.bench import INBOXES, LONG, NAME, SHORT, Bench, Client, Granted, Waiter, Words, keys, real, simulated
from scripts.dialects import VALKEY_9

pytestmark = pytest.mark.servers

STEPS = 40
SEEDS = range(25)
SLACK = 4_000  # ms by which times may differ: a real server's clock runs on between two looks. Leases differ by more.
TTLS = (SHORT, SHORT, 10_000, 20_000, LONG, 4 * LONG)  # the last is more than the cap


def alike(left: Any, right: Any) -> bool:
    """Equal, but for the times in it."""
    if type(left) is type(right) and hasattr(left, "_fields"):
        pairs = zip(left._fields, left, right, strict=True)
        return all(near(one, other) if name.endswith(("left", "pttl")) else alike(one, other) for name, one, other in pairs)
    if isinstance(left, dict) and isinstance(right, dict):
        in_line = any(isinstance(it, Waiter) for it in left.values())  # there, order says who is next
        same = list(left) == list(right) if in_line else left.keys() == right.keys()
        return same and all(alike(it, right[key]) if isinstance(it, Waiter) else near(it, right[key]) for key, it in left.items())
    return bool(left == right)


def near(left: int, right: int) -> bool:
    return left == right or ((left >= 0) == (right >= 0) and abs(left - right) <= SLACK)


class Twins:
    """One random sequence of steps, and both servers on which it is taken. `ears`: by inbox, who listens on each."""

    def __init__(self, seed: int, left: Any, right: Any) -> None:
        self.dice, self.benches = random.Random(seed), (left, right)
        self.base = left.now() * 1000 + 10**9  # above every clock floor: those depend on when the step is taken
        self.ears: dict[bytes, list[Client]] = {}
        self.fence = self.base
        self.seen: Counter[str] = Counter()
        self.told: list[str] = []

    def first_difference(self, steps: int) -> str | None:
        """Take the steps; what differs first, with all that led to it."""
        for _ in range(steps):
            left, right = self.step()
            if not alike(left, right):
                return "\n".join([*self.told, f"answers differ: {left} | {right}"])
            pushes = [[ears[side].heard() for ears in self.ears.values()] for side in (0, 1)]
            if pushes[0] != pushes[1]:
                return "\n".join([*self.told, f"pushes differ: {pushes[0]} | {pushes[1]}"])
            self.seen.update(message[:1].decode() for heard in pushes[0] for _, message in heard)
            states = [bench.see() for bench in self.benches]
            if not alike(*states):
                return "\n".join([*self.told, f"states differ: {states[0]} | {states[1]}"])
        return None

    def step(self) -> tuple[Any, Any]:
        """Do something on both; what each answers."""
        raise NotImplementedError

    def both(self, act: Callable[[Any], Any], what: str) -> tuple[Any, Any]:
        left, right = self.benches
        right.place.pass_time(max(left.now() - right.now(), 0) / 1000)  # a real server's clock runs: the other one's follows
        self.told.append(what)
        left, right = (act(bench) for bench in self.benches)
        self.told.append(f"    {left}")
        return left, right

    def listen(self, inbox: bytes) -> None:
        self.told.append(f"listen {inbox!r}")
        self.ears[inbox] = [bench.connect(inbox) for bench in self.benches]

    def lapse(self) -> None:
        for bench in self.benches:
            bench.lapse()


class History(Twins):
    """Of a lock."""

    def __init__(self, seed: int, left: Bench, right: Bench) -> None:
        super().__init__(seed, left, right)
        self.tokens = [b"%016d:%b:%08x" % (self.base + ticket, inbox, 1) for ticket in (2, 4, 4, 6, 8) for inbox in INBOXES[:3]]
        for inbox in INBOXES[:2]:
            self.listen(inbox)

    def step(self) -> tuple[Any, Any]:
        chance = self.dice.random()
        if chance < 0.6:
            return self.request()
        if chance < 0.85:
            token = self.dice.choice(self.tokens)
            holder = self.benches[0].see().holder
            if holder in self.tokens and self.dice.random() < 0.5:
                token = holder
            return self.both(lambda bench: bench.release(token), f"release {token!r}")
        if chance < 0.95:
            return self.foreign()
        inbox = self.dice.choice(INBOXES[:3])
        if inbox in self.ears:
            self.told.append(f"deaf {inbox!r}")
            for ear in self.ears.pop(inbox):
                ear.unsubscribe(inbox)
        else:
            self.listen(inbox)
        return None, None

    def request(self) -> tuple[Any, Any]:
        token, ttl, mode = self.dice.choice(self.tokens), self.dice.choice(TTLS), self.dice.choice("wwwwtc")
        holder = self.benches[0].see().holder
        if holder in self.tokens and self.dice.random() < 0.3:
            token, mode = holder, self.dice.choice("wcc")
        P = self.dice.choice([0, 0, self.fence, self.fence + self.dice.randrange(3)])
        left, right = self.both(lambda bench: bench.request(token, ttl, mode, P=P), f"request {token!r} {ttl} {mode} {P}")
        if isinstance(left, Granted):
            self.fence = max(self.fence, left.fence)
            self.seen[f"granted {mode} {left.fresh}{left.lower}"] += 1
        else:
            self.seen[f"denied {mode}{' a holder' * (holder == token)}{' a stranger' * (left.holder is None)}"] += 1
        if ttl == SHORT:
            self.lapse()
        return left, right

    def foreign(self) -> tuple[Any, Any]:
        commands: list[Words] = [
            ("SET", NAME, b"foreign\0" * 10, "NX", "PX", 10_000),
            ("SET", NAME, "foreign", "PX", LONG),
            ("DEL", NAME),
            ("DEL", NAME),
            ("DEL", keys(NAME)[1]),
            ("DEL", *keys(NAME)[2:]),
        ]
        command = self.dice.choice(commands)
        return self.both(lambda bench: bench.operator.say(*command), f"foreign {command}")


def test_a_real_server_and_the_simulated_one_are_alike(real_url: str) -> None:
    seen: Counter[str] = Counter()
    for seed in SEEDS:
        with closing(real(real_url)) as left, closing(simulated(VALKEY_9, now=left.now() / 1000)) as right:
            history = History(seed, left, right)
            assert (difference := history.first_difference(STEPS)) is None, f"seed {seed}:\n{difference}"
        seen += history.seen
    # What such histories are for has happened in them:
    wanted = {"g", "i", "granted w 10", "granted w 00", "granted w 01", "granted t 10", "granted c 10", "granted c 00"}
    wanted |= {"denied w", "denied t", "denied c", "denied c a holder"}
    assert wanted <= seen.keys(), wanted - seen.keys()
