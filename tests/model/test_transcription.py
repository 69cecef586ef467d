"""The model's node, which is PROTOCOL.md, section 4, written down in Python, held against the scripts that ship.

The same random histories on both, compared answer by answer, push by push and key by key, to the millisecond: the simulated server
runs the shipped Lua, and is itself held against real servers (tests/scripts). That such histories find a node that is a little wrong
is shown with some that are.
"""

from __future__ import annotations

import random
from collections import Counter
from contextlib import closing
from typing import Any

import pytest
from core.nodes import HORIZON, Node
from proof import patches
from scripts.bench import INBOXES, NAME, Granted, K, answered, simulated

from holdfast.core.command import CEDE, RELEASE, TRY, WAIT, Command
from holdfast.testing.server import VALKEY_9

SEEDS, STEPS = range(120), 60
TTLS = (500, 2_000, 5_000, 20_000)  # ms


def differences(seed: int, kind: type[Node] = Node) -> tuple[str | None, Counter[str]]:
    """The first difference in one history, and what was seen in it."""
    dice, seen, told = random.Random(seed), Counter[str](), list[str]()
    with closing(simulated(VALKEY_9)) as bench:
        heard: list[tuple[bytes, bytes, int]] = []
        listening = dict.fromkeys(INBOXES[:3], True)
        ears = {inbox: bench.connect(inbox) for inbox in listening}

        def publish(push: bytes, token: bytes, fence: int) -> bool:
            if listening[token[17:49]]:
                heard.append((push, token, fence))
            return listening[token[17:49]]

        node = kind(publish)
        base = bench.now() * 1000
        tickets = [base + dice.choice((0, 1, -K * 700, 3 * 10**6)) + i for i in range(4)]
        tokens = [b"%016d:%b:%08x" % (ticket, inbox, 1) for ticket in tickets for inbox in listening]
        fence = base
        for _ in range(STEPS):
            token, ttl = dice.choice(tokens), dice.choice(TTLS)
            holder = bench.see().holder
            if holder and dice.random() < 0.3:
                token = holder
            now = bench.now()
            match dice.choices(("request", "release", "time", "ears"), (6, 2, 2, 1))[0]:
                case "request":
                    mode = dice.choice((WAIT, WAIT, WAIT, TRY, CEDE, CEDE))
                    proposed = dice.choice((int(token[:16]), fence, fence + 1))
                    told.append(f"{mode!r} {token!r} {ttl} {proposed} at {now}")
                    reply = bench.request(token, ttl, mode.decode(), P=proposed)
                    left: Any = tuple(reply)
                    answer = node.execute(Command(None, mode, token, 0.0, ttl / 1000, proposed), now)
                    known = answered(answer)
                    right: Any = tuple(known)
                    if isinstance(known, Granted):
                        fence = max(fence, known.fence)
                    seen[f"{mode.decode()} granted {right[1:]}" if isinstance(known, Granted) else f"{mode.decode()} denied"] += 1
                case "release":
                    told.append(f"release {token!r} at {now}")
                    left = bench.release(token)
                    right = node.execute(Command(None, RELEASE, token, 0.0), now)
                    seen[f"released {right}"] += 1
                case "time":
                    by = dice.choice((125, 500, 1_500, 2_000, 9_000, 40_000, -20_000))  # (what a float holds exactly)
                    told.append(f"{by} ms pass")
                    if by < 0:
                        node.become(node.state(now))  # what has run out is gone for good (and was looked at, so that the server knows)
                    bench.place.pass_time(by / 1000)
                    left = right = None
                case _:
                    inbox = dice.choice(list(listening))
                    listening[inbox] ^= True
                    (ears[inbox].subscribe if listening[inbox] else ears[inbox].unsubscribe)(inbox)
                    told.append(f"{inbox!r} listens: {listening[inbox]}")
                    left = right = None
            pushes = sorted(tuple(it[-1].split(b" ")) for ear in ears.values() for it in ear.heard())
            expected = sorted((push, token, b"%d" % fence, NAME) for push, token, fence in heard)
            seen.update(push.decode() for push, _, _ in heard)
            heard.clear()
            if (left, pushes, kept(bench)) != (right, expected, node.state(bench.now())):
                told += [f"the scripts: {left} {pushes} {kept(bench)}", f"the node:    {right} {expected} {node.state(bench.now())}"]
                return "\n".join(told), seen
    return None, seen


def kept(bench: Any) -> tuple[object, ...]:
    """What the server keeps, as the node would say it."""
    it, now = bench.see(), bench.now()
    waiters = tuple(sorted((token, now + waiter.left) for token, waiter in it.queue.items()))
    return (
        it.holder or b"", now + it.holder_left if it.holder else 0, int(it.fence or 0), now + it.fence_left if it.fence else 0,
        now + it.queue_left if waiters else 0, waiters,
    )  # fmt: skip


def test_the_node_does_what_the_scripts_do() -> None:
    assert K == HORIZON
    seen: Counter[str] = Counter()
    for seed in SEEDS:
        difference, happened = differences(seed)
        assert difference is None, f"seed {seed}:\n{difference}"
        seen += happened
    wanted = {"g", "i", "w granted (0, 1)", "w granted (0, 0)", "w granted (1, 0)", "w denied", "t granted (0, 1)", "t denied"}
    wanted |= {"c granted (0, 0)", "c denied", "released 1", "released 0"}
    assert wanted <= seen.keys(), wanted - seen.keys()


FAULTS = {
    "no clock floor": ("else now * 1000 - self._horizon * 500 - 1", "else 0"),
    "a fence is kept for ever": ("return self._fence if now <= self._forgotten else", "return self._fence or"),
    "a grant does not raise": ("self._known(now) + 1", "self._known(now)"),
    "a renewal moves the expiry back": ("self._until = max(self._until, now + ttl)", "self._until = now + ttl"),
    "a renewal does not raise": ("self._fence = max(self._known(now), proposed)", "pass"),
    "no cap": ("min(deadline, now + 2 * self._horizon)", "deadline"),
    "the lapsed are granted": ("if deadline <= now:", "if False:"),
    "the deaf keep it": ('            self._name = b""\n        return 0', "            return 0\n        return 0"),
    "no inquiry": ("self._publish(INQUIRY, holder, 0)", "pass"),
    "an inquiry at every request": ("elif new and token < holder:", "elif token < holder:"),
    "a deadline moves back": ("max(deadline, self._waiters.get(token, 0))", "deadline"),
    "the queue is kept for ever": ("if now > self._queue_until:", "if False:"),
    "a cede leaves the queue": ("            self._enqueue(token, now + ttl)\n", ""),
    "a release hands on to nobody": ("        if not self.holder(now):\n            self._promote(now)\n", ""),
    "the highest is first": ("head = min(self._waiters)", "head = max(self._waiters)"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_node_that_is_a_little_wrong_is_found(fault: str) -> None:
    kind = patches.whole(Node, *FAULTS[fault])
    assert any(differences(seed, kind)[0] for seed in SEEDS), "no history shows it"
