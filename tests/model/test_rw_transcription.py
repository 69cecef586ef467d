"""The model's node of a read-write lock, held against the scripts that ship: as `test_transcription` does for the exclusive lock."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from random import Random
from typing import Any

import pytest
from model.transcription import Transcription
from protocol.rw_nodes import RWNode
from scripts.bench import Denied, answered
from scripts.dialects import VALKEY_9
from scripts.rw_bench import RWBench, simulated

pytestmark = pytest.mark.worlds

SEEDS = range(80)


class ReadWrite(Transcription):
    """The read-write lock."""

    node = RWNode
    bench = partial(simulated, VALKEY_9)

    def token(self, dice: Random, ticket: int, inbox: bytes) -> bytes:
        return b"%016d:%b:%08x:%b" % (ticket, inbox, 1, dice.choice((b"r", b"w")))

    def choice(self, dice: Random, tokens: Sequence[bytes], state: Any) -> bytes:
        holding = [it for it in tokens if it == state.holder or it in state.readers]
        token = dice.choice(holding if holding and dice.random() < 0.4 else tokens)
        return token[:-1] + b"r" if dice.random() < 0.1 else token

    def told(self, answer: Any) -> tuple[int, ...]:
        known = answer if isinstance(answer, tuple) else answered(answer)
        return (0, *known) if isinstance(known, Denied) else tuple(known)

    def says(self, token: bytes, told: tuple[int, ...]) -> str:
        return f"{token[-1:].decode()} {told[1:] if told[0] else 'denied'}"

    def kept(self, bench: RWBench) -> tuple[object, ...]:
        """(Readers whose lease is over count no more.)"""
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
    wanted = {f"{mode} {kind} {what}" for mode in "wtc" for kind in "rw" for what in ("denied", "(0, 1)")}
    ReadWrite().agrees(SEEDS, wanted | {"g", "i", "released 1", "released 0", "c r (0, 0)", "c w (0, 0)"})
