"""The model's node of a read-write lock, held against the scripts that ship: as `test_transcription` does for the exclusive lock."""

from __future__ import annotations

import random
from collections import Counter
from contextlib import closing

import pytest
from core.nodes import HORIZON
from core.rw_nodes import RWNode
from proof import patches
from scripts.bench import INBOXES, NAME, Denied, K, answered
from scripts.rw_bench import RWBench, simulated

from holdfast.core.command import CEDE, RELEASE, TRY, WAIT, Command
from holdfast.testing.server import VALKEY_9

SEEDS, STEPS = range(80), 60
TTLS = (500, 2_000, 5_000, 20_000)  # ms


def differences(seed: int, kind: type[RWNode] = RWNode) -> tuple[str | None, Counter[str]]:
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
        tokens = [b"%016d:%b:%08x:%b" % (it, inbox, 1, dice.choice((b"r", b"w"))) for it in tickets for inbox in listening]
        fence = base
        for _ in range(STEPS):
            token, ttl = dice.choice(tokens), dice.choice(TTLS)
            state = bench.see()
            holding = [it for it in tokens if it == state.holder or it in state.readers]
            if holding and dice.random() < 0.4:
                token = dice.choice(holding)
            if dice.random() < 0.1:
                token = token[:-1] + b"r"
            now, left, right = bench.now(), None, None
            match dice.choices(("request", "release", "time", "ears"), (6, 2, 2, 1))[0]:
                case "request":
                    mode = dice.choice((WAIT, WAIT, WAIT, TRY, CEDE, CEDE))
                    proposed = dice.choice((int(token[:16]), fence, fence + 1))
                    told.append(f"{mode!r} {token!r} {ttl} {proposed} at {now}")
                    reply = bench.request(token, ttl, mode.decode(), P=proposed)
                    left = tuple(reply) if not isinstance(reply, Denied) else (0, *reply)
                    known = answered(node.execute(Command(None, mode, token, 0.0, ttl / 1000, proposed), now))
                    right = tuple(known) if not isinstance(known, Denied) else (0, *known)
                    fence = max(fence, right[0])
                    seen[f"{mode.decode()} {token[-1:].decode()} {right[1:] if right[0] else 'denied'}"] += 1
                case "release":
                    told.append(f"release {token!r} at {now}")
                    left, right = bench.release(token), node.execute(Command(None, RELEASE, token, 0.0), now)
                    seen[f"released {right}"] += 1
                case "time":
                    by = dice.choice((125, 500, 1_500, 2_000, 9_000, 40_000))  # (what a float holds exactly)
                    told.append(f"{by} ms pass")
                    bench.place.pass_time(by / 1000)
                case _:
                    inbox = dice.choice(list(listening))
                    listening[inbox] ^= True
                    (ears[inbox].subscribe if listening[inbox] else ears[inbox].unsubscribe)(inbox)
                    told.append(f"{inbox!r} listens: {listening[inbox]}")
            pushes = sorted(tuple(it[-1].split(b" ")) for ear in ears.values() for it in ear.heard())
            expected = sorted((push, token, b"%d" % it, NAME) for push, token, it in heard)
            seen.update(push.decode() for push, _, _ in heard)
            heard.clear()
            if (left, pushes, kept(bench)) != (right, expected, node.state(bench.now())):
                told += [f"the scripts: {left} {pushes} {kept(bench)}", f"the node:    {right} {expected} {node.state(bench.now())}"]
                return "\n".join(told), seen
    return None, seen


def kept(bench: RWBench) -> tuple[object, ...]:
    """What the server keeps, as the node would say it: readers whose lease is over count no more."""
    it, now = bench.see(), bench.now()
    waiters = tuple(sorted((token, now + waiter.left) for token, waiter in it.queue.items()))
    readers = tuple(sorted((token, now + left) for token, left in it.readers.items() if left > 0))
    holder = b"" if it.holder is None or (it.holder == b"shared" and not readers) else it.holder
    return (
        holder, now + it.holder_left if holder else 0, int(it.fence or 0), now + it.fence_left if it.fence else 0,
        now + it.queue_left if waiters else 0, waiters, int(it.rfence or 0), now + it.rfence_left if it.rfence else 0,
        readers if holder == b"shared" else (),
    )  # fmt: skip


def test_the_node_does_what_the_scripts_do() -> None:
    assert K == HORIZON
    seen: Counter[str] = Counter()
    for seed in SEEDS:
        difference, happened = differences(seed)
        assert difference is None, f"seed {seed}:\n{difference}"
        seen += happened
    wanted = {"g", "i", "released 1", "released 0"}
    wanted |= {f"{mode} {kind} {what}" for mode in "wtc" for kind in "rw" for what in ("denied", "(0, 1)")}
    wanted |= {f"c {kind} {what}" for kind in "rw" for what in ("(0, 0)",)}
    assert wanted <= seen.keys(), wanted - seen.keys()


FAULTS = {
    "a reader's fence is not above": ("max(self._fence + 1, proposed)", "max(self._fence, proposed)"),
    "a writer ignores readers": ("self._known_readers(now) + 1, proposed)", "proposed)"),
    "a renewal shortens": ("self._until = max(self._until, deadline)", "self._until = deadline"),
    "a reader's renewal shortens": ("max(deadline, self._readers.get(token, 0))", "deadline"),
    "the first that leaves frees it": ("            if self._readers:\n                return\n", ""),
    "the lapsed stay": ("if deadline > now}", "}"),
    "a dead writer keeps readers out": ("if deadline > now and not self._fits(head):", "if not self._fits(head):"),
    "the deaf keep it": ("elif not self._publish(GRANTED, head, fence):", "elif not self._publish(GRANTED, head, fence) and False:"),
    "one at a time": ("                got = fence\n", "                return fence\n"),
    "a downgrade is fresh": (
        "            self._promote(now)\n            return [fence, 0, 0]",
        "            self._promote(now)\n            return [fence, 0, 1]",
    ),
    "no downgrade": ("if reads(token) and self._name == twin(token):", "if False:"),
    "a release without the twin": ("(token, twin(token)) if reads(token) else (token,)", "(token,)"),
    "no inquiry": ("self._publish(INQUIRY, other, 0)", "pass"),
    "readers pass who waits": ("elif self._fits(token) and not self._waiters:", "elif self._fits(token):"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_node_that_is_a_little_wrong_is_found(fault: str) -> None:
    kind = patches.whole(RWNode, *FAULTS[fault])
    assert any(differences(seed, kind)[0] for seed in SEEDS), "no history shows it"
