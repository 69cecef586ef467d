"""The model's node, which is docs/protocol.md, section 5, written down in Python, held against the scripts that ship."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from random import Random
from typing import Any

import pytest
from model.transcription import Transcription
from protocol.nodes import Node
from scripts.bench import Granted, answered, simulated
from scripts.dialects import VALKEY_9

pytestmark = pytest.mark.worlds

SEEDS = range(120)


class Exclusive(Transcription):
    """The lock."""

    node = Node
    bench = partial(simulated, VALKEY_9)
    times = (*Transcription.times, -20_000)

    def token(self, dice: Random, ticket: int, inbox: bytes) -> bytes:
        return b"%016d:%b:%08x" % (ticket, inbox, 1)

    def choice(self, dice: Random, tokens: Sequence[bytes], state: Any) -> bytes:
        token = dice.choice(tokens)
        return state.holder if state.holder and dice.random() < 0.3 else token

    def told(self, answer: Any) -> tuple[int, ...]:
        known = answer if isinstance(answer, tuple) else answered(answer)
        return tuple(known) if isinstance(known, Granted) else (0, *known)

    def says(self, token: bytes, told: tuple[int, ...]) -> str:
        return f"granted {told[1:]}" if told[0] else "denied"

    def kept(self, bench: Any) -> tuple[object, ...]:
        it, now = bench.see(), bench.now()
        waiters = tuple(sorted((token, now + waiter.left) for token, waiter in it.queue.items()))
        return (
            it.holder or b"", now + it.holder_left if it.holder else 0, int(it.fence or 0), now + it.fence_left if it.fence else 0,
            now + it.queue_left if waiters else 0, waiters,
        )  # fmt: skip


def test_the_node_does_what_the_scripts_do() -> None:
    wanted = {"g", "i", "w granted (0, 1)", "w granted (0, 0)", "w granted (1, 0)", "w denied", "t granted (0, 1)", "t denied"}
    Exclusive().agrees(SEEDS, wanted | {"c granted (0, 0)", "c denied", "released 1", "released 0"})
