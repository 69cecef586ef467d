"""The scripts of the read-write lock where no conversation shows it: costs, forced releases, histories."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from scripts import rw_bench
from scripts.bench import INBOXES, LONG, NAME, SHORT, Denied, Granted, K, keys
from scripts.dialects import VALKEY_9
from scripts.kinds import DIALECTS, REAL, kinds, url
from scripts.rw_bench import RWBench, rw_keys, simulated
from scripts.test_histories import Twins

from holdfast.scripts import FORCE_RELEASE, RW_FORCE_RELEASE


@pytest.fixture(params=kinds(*DIALECTS, *REAL))
def rw(request: pytest.FixtureRequest) -> Iterator[RWBench]:
    """A server, empty: each kind in its turn."""
    dialect = DIALECTS.get(request.param)
    with closing(simulated(dialect) if dialect else rw_bench.real(url(request.param))) as made:
        yield made


def forced(rw: RWBench, only: bytes) -> list[object]:
    """What the scripts of a forced release answer, in the order in which they are sent."""
    return [
        rw.operator.say("EVAL", FORCE_RELEASE.source, 4, *keys(NAME), K, only),
        rw.operator.say("EVAL", RW_FORCE_RELEASE.source, 6, *rw_keys(NAME), only, K),
    ]


@pytest.mark.parametrize("only", [b"", b"foreign"], ids=["whoever has it", "that one only"])
def test_whoever_waits_has_what_was_taken_from_a_foreign_holder(rw: RWBench, only: bytes) -> None:
    waiter = rw.writer(1)
    rw.eternal.add(NAME)
    rw.operator.say("SET", NAME, "foreign")
    rw.connect(INBOXES[0])
    denied = rw.request(waiter)
    assert isinstance(denied, Denied) and denied.holder == b"foreign"
    assert forced(rw, b"another") == [None, None]
    assert rw.see().holder == b"foreign"
    assert forced(rw, only) == [b"foreign", None]
    assert rw.see().holder == waiter


def test_what_a_reader_costs_where_nobody_writes(rw: RWBench) -> None:
    """The first one leaves a record that lasts: for those who come within the horizon it is as where somebody has just written."""
    first, second = rw.reader(1), rw.reader(2)
    rw.request(first)
    rw.release(first)
    usual = {"exists": 1, "time": 1, "get": 2, "pttl": 1, "set": 2, "zadd": 1, "pexpireat": 1}
    assert rw.cost(lambda: rw.client.say(*rw.words(second))) == usual
    assert rw.cost(lambda: rw.client.say(*rw.release_words(second))) == {"exists": 1, "get": 1, "time": 1, "zrange": 1, "del": 1}


# ------------------------------------------------ histories


class History(Twins):
    """Of a read-write lock."""

    def __init__(self, seed: int, left: RWBench, right: RWBench) -> None:
        super().__init__(seed, left, right)
        kinds = (b":r", b":r", b":w")
        self.tokens = [
            b"%016d:%b:%08x%b" % (self.base + t, inbox, 1, kind) for t in (2, 4, 6) for inbox in INBOXES[:2] for kind in kinds[t // 4 :]
        ]
        self.listen(INBOXES[0])
        for bench in self.benches:  # without records there would be the clock floor, by clocks that differ
            bench.operator.batch(*[("SET", rw_keys(NAME)[it], self.base, "PX", 10**7) for it in (1, 5)])

    def step(self) -> tuple[Any, Any]:
        dice, chance = self.dice, self.dice.random()
        token = dice.choice(self.tokens)
        if chance < 0.3 and (
            held := [it for it in self.tokens if it == self.benches[0].see().holder or it in self.benches[0].see().readers]
        ):
            token = dice.choice(held)
            token = token[:-1] + b"r" if dice.random() < 0.2 else token
        if chance < 0.25 or 0.3 < chance < 0.45:
            return self.both(lambda bench: bench.release(token), f"release {token!r}")
        if chance > 0.95:
            command = dice.choice([("DEL", NAME), ("SET", NAME, "foreign", "NX", "PX", LONG), ("DEL", rw_keys(NAME)[4])])
            return self.both(lambda bench: bench.operator.say(*command), f"{command}")
        ttl, mode, P = dice.choice((SHORT, 10_000, LONG, 4 * LONG)), dice.choice("wwwwtcc"), dice.choice((0, self.fence, self.fence + 1))
        left, right = self.both(lambda bench: bench.request(token, ttl, mode, P=P), f"request {token!r} {ttl} {mode} {P}")
        if isinstance(left, Granted):
            self.fence = max(self.fence, left.fence)
        self.seen[f"{mode} {token[-1:].decode()} {'granted' if isinstance(left, Granted) else 'denied'}"] += 1
        if ttl == SHORT:
            self.lapse()
        return left, right


WANTED = {"g", "i", *[f"{mode} {kind} {what}" for mode in "wtc" for kind in "rw" for what in ("granted", "denied")]}


@pytest.mark.slow
def test_a_real_server_and_the_simulated_one_are_alike() -> None:
    seen: Counter[str] = Counter()
    for which in REAL:
        for seed in range(12):
            with closing(rw_bench.real(url(which))) as left, closing(simulated(VALKEY_9, now=left.now() / 1000)) as right:
                history = History(seed, left, right)
                assert (difference := history.first_difference(40)) is None, f"{which}, seed {seed}:\n{difference}"
            seen += history.seen
    assert seen.keys() >= WANTED, WANTED - seen.keys()
