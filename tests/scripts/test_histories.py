"""The same random histories on a real server and on the simulated one, compared answer by answer, push by push and key by key.

So the simulated server is held against the real ones, with whatever the scripts make of it. That such histories find a server that is a
little wrong is shown with servers that are.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest
from scripts.bench import INBOXES, LONG, NAME, SHORT, Bench, Client, Denied, Granted, Seen, Words, keys, real, simulated

from holdfast.testing.values import REDIS_6_2, VALKEY_9

pytestmark = pytest.mark.servers

STEPS = 40
SEEDS = range(25)
SLACK = 4_000  # ms by which times may differ: a real server's clock runs on between two looks. Leases differ by more.
TTLS = (SHORT, SHORT, 10_000, 20_000, LONG, 4 * LONG)  # the last is more than the cap


def alike(left: Any, right: Any) -> bool:
    """Equal, but for the times in it."""
    match left, right:
        case (Denied(), Denied()) | (Seen(), Seen()):
            times = {"pttl", "holder_left", "fence_left", "queue_left", "waiters_left"}
            pairs = [(name, getattr(left, name), getattr(right, name)) for name in left._fields]
            return all(near(one, other) if name in times else alike(one, other) for name, one, other in pairs)
        case dict(), dict():
            return list(left) == list(right) and all(
                one.score == right[token].score and near(one.left, right[token].left) for token, one in left.items()
            )
    return bool(left == right)


def near(left: int, right: int) -> bool:
    return left == right or ((left >= 0) == (right >= 0) and abs(left - right) <= SLACK)


class History:
    """One random sequence of steps, and both servers on which it is taken."""

    def __init__(self, seed: int, left: Bench, right: Bench) -> None:
        self.random, self.benches = random.Random(seed), (left, right)
        self.base = left.now() * 1000 + 10**9  # above every clock floor: those depend on when the step is taken
        self.tokens = [b"%016d:%b:%08x" % (self.base + ticket, inbox, 1) for ticket in (2, 4, 4, 6, 8) for inbox in INBOXES[:3]]
        self.ears: dict[bytes, list[Client]] = {}
        self.fence = self.base
        self.seen: Counter[str] = Counter()
        self.told: list[str] = []
        for inbox in INBOXES[:2]:
            self.listen(inbox)

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

    def both(self, act: Callable[[Bench], Any], what: str) -> tuple[Any, Any]:
        left, right = self.benches
        right.place.pass_time(max(left.now() - right.now(), 0) / 1000)  # a real server's clock runs: the other one's follows
        self.told.append(what)
        left, right = (act(bench) for bench in self.benches)
        self.told.append(f"    {left}")
        return left, right

    def step(self) -> tuple[Any, Any]:
        chance = self.random.random()
        if chance < 0.6:
            return self.request()
        if chance < 0.85:
            token = self.random.choice(self.tokens)
            holder = self.benches[0].see().holder
            if holder in self.tokens and self.random.random() < 0.5:
                token = holder
            return self.both(lambda bench: bench.release(token), f"release {token!r}")
        if chance < 0.95:
            return self.foreign()
        inbox = self.random.choice(INBOXES[:3])
        if inbox in self.ears:
            self.told.append(f"deaf {inbox!r}")
            for ear in self.ears.pop(inbox):
                ear.unsubscribe(inbox)
        else:
            self.listen(inbox)
        return None, None

    def listen(self, inbox: bytes) -> None:
        self.told.append(f"listen {inbox!r}")
        self.ears[inbox] = [bench.connect(inbox) for bench in self.benches]

    def request(self) -> tuple[Any, Any]:
        token, ttl, mode = self.random.choice(self.tokens), self.random.choice(TTLS), self.random.choice("wwwwtc")
        holder = self.benches[0].see().holder
        if holder in self.tokens and self.random.random() < 0.3:
            token, mode = holder, self.random.choice("wcc")
        P = self.random.choice([0, 0, self.fence, self.fence + self.random.randrange(3)])
        left, right = self.both(lambda bench: bench.request(token, ttl, mode, P=P), f"request {token!r} {ttl} {mode} {P}")
        if isinstance(left, Granted):
            self.fence = max(self.fence, left.fence)
            self.seen[f"granted {mode} {left.fresh}{left.lower}"] += 1
        else:
            self.seen[f"denied {mode}{' a holder' * (holder == token)}{' a stranger' * (left.holder is None)}"] += 1
        if ttl == SHORT:
            for bench in self.benches:
                bench.lapse()
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
        command = self.random.choice(commands)
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


# Servers that are a little wrong: each must be found by the same histories. What is wrong is told with the command that does
# something else; that is given what really executes it, the connection, and the command's arguments.


def test_two_that_are_the_same_are_found_alike() -> None:
    """Not every difference is one: this would show a comparison that cannot succeed."""
    for seed in SEEDS:
        with closing(simulated(REDIS_6_2)) as left, closing(simulated(VALKEY_9)) as right:
            assert History(seed, left, right).first_difference(STEPS) is None
