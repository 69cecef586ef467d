"""Random histories on a node of the model and on the scripts that ship, compared answer by answer, push by push and key by key, to the ms.

The simulated server runs the shipped Lua, and is itself held against real servers (tests/scripts).
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import closing
from typing import Any

from protocol.nodes import HORIZON
from scripts.bench import INBOXES, NAME, K

from holdfast.protocol.command import CEDE, KEEP, RELEASE, TRY, WAIT, Command

STEPS = 60
TTLS = (500, 2_000, 5_000, 20_000)  # ms


class Transcription(ABC):
    """A node of the model, and the bench of the scripts that it was written down from. `times`: by how many ms the clock may be moved."""

    node: Callable[..., Any]
    bench: Callable[[], Any]
    times: Sequence[int] = (125, 500, 1_500, 2_000, 9_000, 40_000)  # (what a float holds exactly)

    @abstractmethod
    def token(self, dice: random.Random, ticket: int, inbox: bytes) -> bytes:
        """One that may ask."""

    @abstractmethod
    def choice(self, dice: random.Random, tokens: Sequence[bytes], state: Any) -> bytes:
        """Who asks now; `state`: what the bench sees."""

    @abstractmethod
    def told(self, answer: Any) -> tuple[int, ...]:
        """An answer to a request: the fence, or 0, and the rest."""

    @abstractmethod
    def says(self, token: bytes, told: tuple[int, ...]) -> str:
        """What was seen, in a word."""

    @abstractmethod
    def kept(self, bench: Any) -> tuple[object, ...]:
        """What the server keeps, as the node would say it."""

    def difference(self, seed: int) -> tuple[str | None, Counter[str]]:
        """The first difference in one history, and what was seen in it."""
        dice, seen, told = random.Random(seed), Counter[str](), list[str]()
        with closing(self.bench()) as bench:
            heard: list[tuple[bytes, bytes, int]] = []
            listening = dict.fromkeys(INBOXES[:3], True)
            ears = {inbox: bench.connect(inbox) for inbox in listening}

            def publish(push: bytes, token: bytes, fence: int) -> bool:
                if listening[token[17:49]]:
                    heard.append((push, token, fence))
                return listening[token[17:49]]

            master = self.node(publish)
            fence = base = bench.now() * 1000
            tickets = [base + dice.choice((0, 1, -K * 700, 3 * 10**6)) + i for i in range(4)]
            tokens = [self.token(dice, ticket, inbox) for ticket in tickets for inbox in listening]
            for _ in range(STEPS):
                ttl, token = dice.choice(TTLS), self.choice(dice, tokens, bench.see())
                now, left, right = bench.now(), None, None
                match dice.choices(("request", "release", "time", "ears"), (6, 2, 2, 1))[0]:
                    case "request":
                        mode = dice.choice((WAIT, WAIT, WAIT, KEEP, KEEP, TRY, CEDE, CEDE))
                        proposed = max(int(token[:16]), dice.choice((0, fence, fence + 1)))  # (never below its ticket)
                        clock = dice.choice((0, now * 1000))
                        told.append(f"{mode!r} {token!r} {ttl} {proposed} {clock} at {now}")
                        left = self.told(bench.request(token, ttl, mode.decode(), P=proposed, clock=clock))
                        right = self.told(master.execute(Command(None, mode, token, 0.0, ttl / 1000, proposed, clock=clock), now))
                        fence = max(fence, right[0])
                        seen[f"{mode.decode()} {self.says(token, right)}"] += 1
                    case "release":
                        told.append(f"release {token!r} at {now}")
                        left, right = bench.release(token), master.execute(Command(None, RELEASE, token, 0.0), now)
                        seen[f"released {right}"] += 1
                    case "time":
                        by = dice.choice(self.times)
                        told.append(f"{by} ms pass")
                        if by < 0:
                            master.become(master.state(now))  # what has run out is gone for good (and was looked at: the server knows)
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
                kept, state = self.kept(bench), master.state(bench.now())
                if (left, pushes, kept) != (right, expected, state):
                    return "\n".join([*told, f"the scripts: {left} {pushes} {kept}", f"the node:    {right} {expected} {state}"]), seen
        return None, seen

    def agrees(self, seeds: Iterable[int], wanted: Collection[str]) -> None:
        """No history shows a difference, and all of this was seen in them."""
        assert K == HORIZON
        seen: Counter[str] = Counter()
        for seed in seeds:
            difference, happened = self.difference(seed)
            assert difference is None, f"seed {seed}:\n{difference}"
            seen += happened
        assert set(wanted) <= seen.keys(), set(wanted) - seen.keys()
