"""The scripts of rates, held against the same in fractions: answer by answer and key by key, on simulated servers and on real ones.

An answer tells the node's clock, so what it has to be is known exactly, on real servers, too. What may be allowed in which time is a law of
its own, which both have to obey.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from math import floor
from typing import Any

import pytest
from scripts.bench import Bench, Simulated, simulated
from scripts.dialects import REDIS_7_2, VALKEY_9

from holdfast.primitives.rate.commands import SECOND, TURN, Gcra, Limit, RateAnswer, Window
from holdfast.scripts import GCRA, WINDOW

pytestmark = pytest.mark.servers

KEYS = [b"{mail}:rate:%d" % it for it in range(3)]
KEY = KEYS[0]
SEEDS = range(8)
STEPS = 50
RATES = [(1, 1), (3, 3), (3, 1), (7, 2), (5, 12), (1000, 1000), (10**6, 10**5)]  # limit and burst, in SPAN
SPAN = 20_000  # microseconds: the period, short enough for real servers to see it pass
GRACE = 100_000  # microseconds: a line is over when nothing has been owed for so long
MOST = 100_000  # microseconds: as much is counted ahead at most
REFUSED, ALLOWED, RESERVED, AHEAD = range(4)


def one(calls: int, period: int, burst: int | None = None) -> list[Limit]:
    """A single limit."""
    return [Limit(calls, period, calls if burst is None else burst)]


# ------------------------------------------------ the same, in fractions


@dataclass
class Bucket:
    """What one key of gcra.lua holds: when nothing is owed, and the end of the line; 0 if there is none. Times in microseconds."""

    limit: Limit
    free: Fraction = Fraction(0)
    line: int = 0

    @property
    def most(self) -> Fraction:
        return self.share(self.limit.burst)

    def share(self, cost: int) -> Fraction:
        return Fraction(cost * self.limit.period, self.limit.calls)

    def look(self, now: int, writes: bool = True) -> tuple[Fraction, int]:
        """What is owed, and the end of a line that means anything."""
        if max(floor(self.free), self.line) // 1000 + 1 < now // 1000:  # it has expired, and stays away when the clock goes back
            self.free, self.line = Fraction(0), 0
        owed, line = max(self.free - now, Fraction(0)), self.line
        if floor(self.free) - now <= -GRACE:
            line = 0
        if owed > self.most + MOST:
            line = max(line - (floor(owed) - floor(self.most)), 0)
            owed = self.most
            if writes:
                self.keep(now, owed, line)
        return owed, line if line > now + floor(owed) else 0

    def keep(self, now: int, owed: Fraction, line: int) -> None:
        if owed:
            self.free = now + owed
        elif not line:
            self.free = Fraction(0)
        else:
            self.free = Fraction(floor(self.free) or now)
        self.line = line

    def kept(self) -> bytes:
        whole = floor(self.free)
        line = b" %d" % self.line if self.line else b""
        return b"%d %d%b" % (whole, (self.free - whole) * self.limit.calls, line) if self.free else b""


def up(owed: Fraction) -> int:
    return -floor(-owed)


@dataclass
class GcraModel:
    limits: Sequence[Limit]
    buckets: list[Bucket] = field(default_factory=list)
    due: int = 0  # microseconds after which the last call would have been allowed

    def __post_init__(self) -> None:
        self.buckets = [Bucket(it) for it in self.limits]

    def take(self, cost: int, now: int, patience: int = 0) -> int:
        seen = [(it, *it.look(now)) for it in self.buckets]
        found = [Fraction(line - now) if line and patience >= 0 else owed for _, owed, line in seen]
        delay = max(owed + it.share(cost) - it.most for (it, _, _), owed in zip(seen, found, strict=True))
        self.due = max(up(delay), 0)
        if delay <= (min(MOST, TURN - patience) if patience < 0 else 0):
            for it, owed, line in seen:
                follows = line and patience >= 0
                it.keep(now, owed + it.share(cost), line + up(it.share(cost)) if follows else line)
            return ALLOWED if delay <= 0 else AHEAD
        if up(delay) > patience:
            return REFUSED
        for (it, owed, _), there in zip(seen, found, strict=True):
            it.keep(now, owed, now + up(there) + up(it.share(cost)))
        return RESERVED

    def peek(self, cost: int, now: int) -> int:
        seen = [(it, *it.look(now, writes=False)) for it in self.buckets]
        return int(all((line - now if line else owed) + it.share(cost) <= it.most for it, owed, line in seen))

    def give(self, cost: int, at: Sequence[int], now: int) -> None:
        for it in self.buckets:
            owed, line = it.look(now)
            if (back := it.share(cost) - max(now - at[0], 0)) >= 0 and 0 < owed <= it.most:
                it.keep(now, max(owed - back, Fraction(0)), line)
                if owed <= back and line:
                    it.free = Fraction(now)

    def kept(self) -> list[bytes]:
        return [it.kept() for it in self.buckets]


@dataclass
class WindowModel:
    """What the keys of window.lua hold: the end of each limit's window, and what was taken in it."""

    limits: Sequence[Limit]
    ends: list[int] = field(default_factory=list)
    taken: list[int] = field(default_factory=list)
    due: int = 0

    def __post_init__(self) -> None:
        self.ends = [0] * len(self.limits)
        self.taken = [0] * len(self.limits)

    def _at(self, now: int, writes: bool = True) -> list[tuple[int, int]]:
        found = []
        for it, limit in enumerate(self.limits):
            if self.ends[it] // 1000 + 1 < now // 1000:
                self.ends[it] = 0
            ends, taken = self.ends[it], self.taken[it]
            if ends <= now:
                ends, taken = now + limit.period, 0
            elif ends > now + limit.period:
                ends = now + limit.period
                if writes:
                    self.ends[it] = ends
            found.append((ends, taken))
        return found

    def take(self, cost: int, now: int, patience: int = 0) -> int:
        found = self._at(now)
        full = [ends - now for (ends, taken), limit in zip(found, self.limits, strict=True) if taken + cost > limit.calls]
        self.due = max(full, default=0)
        if full:
            return REFUSED
        self.ends, self.taken = [ends for ends, _ in found], [taken + cost for _, taken in found]
        return ALLOWED

    def peek(self, cost: int, now: int) -> int:
        found = self._at(now, writes=False)
        return int(all(taken + cost <= limit.calls for (_, taken), limit in zip(found, self.limits, strict=True)))

    def give(self, cost: int, at: Sequence[int], now: int) -> None:
        for it, (ends, taken) in enumerate(self._at(now)):
            if ends == at[it]:
                self.ends[it], self.taken[it] = ends, max(taken - cost, 0)

    def kept(self) -> list[bytes]:
        return [b"%d %d" % it if it[0] else b"" for it in zip(self.ends, self.taken, strict=True)]


Model = GcraModel | WindowModel


class Node:
    """One server, and what it is asked with the bytes of the recipe."""

    def __init__(self, bench: Bench, kind: str) -> None:
        self.bench, self.kind = bench, kind
        self.bench.operator.batch(*[("SCRIPT", "LOAD", it.source) for it in (GCRA, WINDOW)])

    @property
    def seeds(self) -> range:
        """As many histories as it has time for: a real server's takes as long as it says."""
        return SEEDS if isinstance(self.bench.place, Simulated) else range(2)

    def algorithm(self, limits: Sequence[Limit]) -> Gcra | Window:
        return (Gcra if self.kind == "gcra" else Window)(KEYS[: len(limits)], limits)

    def model(self, limits: Sequence[Limit]) -> Model:
        return (GcraModel if self.kind == "gcra" else WindowModel)(limits)

    def say(self, data: bytes) -> Any:
        words = data.split(b"\r\n")[2::2]
        reply = self.bench.client.say(*words)
        self.bench.mortal()
        return reply

    def _read(self, limits: Sequence[Limit], cost: int, data: bytes) -> tuple[RateAnswer, int]:
        reply = self.say(data)
        told = self.algorithm(limits).read(cost, reply)
        assert told is not None, reply
        return told, reply[1]

    def take(self, limits: Sequence[Limit], cost: int = 1, patience: int = 0) -> tuple[RateAnswer, int]:
        """What is told, and the node's clock."""
        return self._read(limits, cost, self.algorithm(limits).take(cost, patience))

    def peek(self, limits: Sequence[Limit], cost: int = 1) -> tuple[RateAnswer, int]:
        return self._read(limits, cost, self.algorithm(limits).peek(cost))

    def give(self, limits: Sequence[Limit], cost: int, at: Sequence[int]) -> int:
        """Its clock."""
        now: int = self.say(self.algorithm(limits).give(cost, at))[1]
        return now

    def passes(self, micros: float) -> None:
        self.bench.place.pass_time(micros / SECOND)

    def forget(self) -> None:
        self.bench.operator.say("DEL", *KEYS)

    def holds(self) -> list[bytes | None]:
        return list(self.bench.operator.batch(*[("GET", it) for it in KEYS]))


@pytest.fixture(params=["gcra", "window"])
def node(request: pytest.FixtureRequest, bench: Bench) -> Node:
    return Node(bench, request.param)


@pytest.fixture
def even(bench: Bench) -> Node:
    return Node(bench, "gcra")


# ------------------------------------------------ it is what it should be


def ends(value: bytes | None) -> int:
    """Until when a key's value means anything."""
    words = (value or b"0").split()
    return max(int(float(words[0])), int(float(words[2])) if len(words) > 2 else 0)


def verdict(told: RateAnswer) -> int:
    return RESERVED if told.reserved else AHEAD if told.allowed and told.retry else int(told.allowed)


def history(node: Node, seed: int) -> str | None:
    """A random history on the server and in the model; where they differ first. On simulated servers clocks step."""
    dice, steps = random.Random(seed), isinstance(node.bench.place, Simulated)
    limits = []
    for _ in range(dice.choice([1, 1, 2, 3])):
        calls, burst = dice.choice(RATES)
        limits.append(Limit(calls, dice.choice([SPAN, SPAN // 3, SPAN * 7]), burst if node.kind == "gcra" else calls))
    model, taken, most = node.model(limits), list[tuple[int, Sequence[int]]](), node.algorithm(limits).most
    node.forget()
    due = 0  # microseconds: until the last call would be allowed, or nothing is owed
    for step in range(STEPS):
        if steps and dice.random() < 0.4:
            node.passes(max(due - dice.choice([0, 0, 1]), 0))
        elif dice.random() < 0.5:
            node.passes(dice.choice([0, 1, SPAN / limits[0].calls, SPAN / 5, SPAN * 1.5]) * dice.random())
        if dice.random() < 0.03:
            node.passes(GRACE + 2 * SPAN * dice.random())
        if steps and dice.random() < 0.1:
            node.passes(dice.uniform(-3, 3) * SPAN * dice.choice([1, 1, 10]))
        cost = dice.choice([1, 1, 1, min(2, most), dice.randint(1, most)])
        before = node.holds()
        if taken and dice.random() < 0.3:
            cost, at = taken.pop(dice.randrange(len(taken)))
            now = node.give(limits, cost, at)
            model.give(cost, at, now)
        elif dice.random() < 0.2:
            told, now = node.peek(limits, cost)
            if verdict(told) != model.peek(cost, now):
                return f"seed {seed}, step {step}: {told} of a peek at {now}, {model}"
            if any(it not in (was, None) for it, was in zip(node.holds(), before, strict=True)):
                return f"seed {seed}, step {step}: a peek has changed {before}"
            continue
        else:
            patience = dice.choice([0, TURN, TURN - dice.randrange(8 * SPAN), dice.randrange(4 * SPAN), due, TURN - due, TURN - due + 1])
            told, now = node.take(limits, cost, patience)
            due = told.retry or told.reset
            if (verdict(told), told.retry) != (model.take(cost, now, patience), model.due):
                return f"seed {seed}, step {step}: {told} at {now}, patience {patience}, {model}"
            if told.allowed:
                taken.append((cost, told.at))
        holds, clock = node.holds(), node.bench.now()
        for key, value, wanted in zip(KEYS, holds, model.kept(), strict=False):
            if ends(value) > now or ends(wanted) // 1000 > clock:  # (else it may be there or not: it means nothing)
                if value != wanted:
                    return f"seed {seed}, step {step}: holds {value!r} at {now}, not {wanted!r}"
            left = node.bench.operator.say("PTTL", key)
            if value is not None and not left <= ends(value) // 1000 + 1 - now // 1000:
                return f"seed {seed}, step {step}: {value!r} stays for {left} ms"
    return None


def test_a_history_is_what_it_is_in_fractions(node: Node) -> None:
    for seed in node.seeds:
        assert (difference := history(node, seed)) is None, difference


# ------------------------------------------------ the law


def excess(node: Node, seed: int) -> str | None:
    """Where more was allowed, and not given back, than may be; None if nowhere. Callers come in bursts and evenly, some reserve turns, and
    some give back late.

    GCRA: in any stretch of a period less than limit + burst. Window: in each no more than the limit, and windows do not overlap.
    """
    dice = random.Random(seed)
    limits = []
    for factor in dice.choice([(1,), (1, 3)]):
        calls, burst = dice.choice([(1, 1), (3, 3), (3, 1), (7, 2), (5, 12)])
        limits.append(Limit(calls * factor, SPAN * factor, burst if node.kind == "gcra" else calls * factor))
    kept: list[tuple[int, int]] = []  # when, and how much
    owing: list[tuple[int, int, Sequence[int]]] = []
    most = node.algorithm(limits).most
    node.forget()
    for _ in range(2 * STEPS):
        node.passes(dice.choice([0, 0, 1, SPAN / limits[0].calls / 2, SPAN / limits[0].calls, SPAN / 4]))
        cost = dice.choice([1, 1, 1, min(2, most)])
        told, now = node.take(limits, cost, dice.choice([0, 0, TURN, TURN - SPAN, SPAN]))
        if told.allowed:
            kept.append((now + told.retry, cost))
            if dice.random() < 0.4:
                owing.append((now + told.retry, cost, told.at))
        if owing and dice.random() < 0.5:
            when, cost, at = owing.pop(0)
            node.give(limits, cost, at)
            kept.remove((when, cost))
    for calls, period, burst in limits:
        least = calls + burst - 1 if node.kind == "gcra" else 2 * calls
        for start, _ in kept:
            if (count := sum(cost for when, cost in kept if start <= when < start + period)) > least:
                return f"seed {seed}: {count} in a period of {calls} (burst {burst}), from {start}"
    return None


def test_never_more_is_allowed_than_may_be(node: Node) -> None:
    for seed in node.seeds:
        assert (broken := excess(node, seed)) is None, broken


def test_a_call_counts_for_all_limits_or_for_none(node: Node) -> None:
    """Is a call that one limit refuses not counted by the others?"""
    # Rule RA5.
    node.forget()
    limits = [*one(9, 1000 * SECOND), *one(2, 1000 * SECOND), *one(8, 1000 * SECOND)]
    told = [node.take(limits)[0] for _ in range(5)]
    assert [it.allowed for it in told] == [True, True, False, False, False]
    assert {it.limit for it in told[2:]} == {1}, "the one that is used up"
    alone = [Gcra, Window][node.kind == "window"](KEYS[:1], limits[:1])
    found = alone.read(1, node.say(alone.peek(1)))
    assert found is not None
    assert found.remaining == 7


def test_a_peek_tells_what_a_take_would_be_told(node: Node) -> None:
    node.forget()
    three = one(3, 1000 * SECOND)
    for left in (3, 2, 1):
        told = [node.peek(three)[0] for _ in range(3)]
        assert [(it.allowed, it.remaining, it.retry) for it in told] == [(True, left, 0)] * 3
        node.take(three)
    last, _ = node.peek(three)
    assert not last.allowed and last.remaining == 0 and 0 < last.retry <= 1000 * SECOND


# ------------------------------------------------ turns

HOUR = 3600 * SECOND


def test_each_caller_has_a_turn_of_its_own_in_order(even: Node) -> None:
    # Rule RA6.
    hourly = one(1, HOUR)
    assert even.take(hourly)[0].allowed
    told = [even.take(hourly, 1, 10 * HOUR)[0] for _ in range(4)]
    assert [(it.reserved, round(it.retry / HOUR)) for it in told] == [(True, hours) for hours in range(1, 5)]


def test_a_line_that_nobody_comes_from_is_over_soon() -> None:
    """Nine callers reserve turns and never come. Is another one allowed: when the first turn has come; soon after; and once more?"""
    # Rule RA8.
    node = Node(simulated(VALKEY_9, now=1000.0), "gcra")
    hourly = one(1, HOUR)
    node.take(hourly)
    for _ in range(9):
        assert node.take(hourly, 1, 100 * HOUR)[0].reserved
    node.passes(HOUR + GRACE - 1)
    told = [node.take(hourly)[0].allowed]
    node.passes(1)
    assert [*told, node.take(hourly)[0].allowed, node.take(hourly)[0].allowed] == [False, True, False]


def test_a_caller_may_come_a_moment_before_its_turn() -> None:
    """A call a second. Those whose turn has come come half a tenth of a second early: are they allowed, and when do they count?"""
    # Rule RA9.
    node, each = odd("gcra"), one(1, SECOND)
    node.take(each)
    told = []
    for _ in range(3):
        node.passes(SECOND - 50_000)
        told.append(node.take(each, 1, TURN - MOST)[0])
        assert not node.take(each, 1, TURN)[0].allowed
        assert not node.take(each)[0].allowed
        node.passes(50_000)
    assert [(it.allowed, round(it.retry, -3)) for it in told] == [(True, 50_000)] * 3


def test_nobody_is_counted_further_ahead_than_a_moment() -> None:
    node, each = Node(simulated(VALKEY_9, now=1000.0), "gcra"), one(1, SECOND)
    node.take(each)
    node.passes(SECOND - MOST - 1)
    assert not node.take(each, 1, TURN - SECOND)[0].allowed
    node.passes(1)
    assert node.take(each, 1, TURN - SECOND)[0].allowed
    assert node.take(each)[0].retry == SECOND + MOST, "and counts in full"


def after_a_step_back(node: Node) -> float:
    """For how many periods everybody is refused after the clock went back by a thousand."""
    three = one(3, SPAN)
    while node.take(three)[0].allowed:
        pass
    node.passes(-1000 * SPAN)
    for halves in range(2100):
        if node.take(three)[0].allowed:
            return halves / 2
        node.passes(SPAN / 2)
    raise AssertionError("never")


def odd(kind: str) -> Node:
    return Node(simulated(VALKEY_9), kind)


@pytest.mark.parametrize("kind", ["gcra", "window"])
def test_a_clock_that_goes_back_refuses_for_a_period_at_most(kind: str) -> None:
    node = odd(kind)
    assert after_a_step_back(node) <= 1
    node.passes(1000 * SPAN)
    told = [node.take(one(3, SPAN))[0].allowed for _ in range(4)]
    assert told == [True, True, True, False], "forward: as if nothing had been taken"


def test_a_clock_that_goes_back_takes_the_line_with_it() -> None:
    """How many periods long a line of ten periods is for those who come after the clock went back by a thousand."""
    node, hourly = odd("gcra"), one(1, HOUR)
    node.take(hourly)
    for _ in range(9):
        assert node.take(hourly, 1, 100 * HOUR)[0].reserved
    node.passes(-1000 * HOUR)
    assert round(node.take(hourly)[0].retry / HOUR) == 10


def test_numbers_as_servers_write_them_that_are_to_be_written_otherwise() -> None:
    """Redis 7.2.0 to 7.2.4 write large numbers with an exponent, and Lua does so above 2 ** 53 / 100."""
    for kind in ("gcra", "window"):
        node = Node(simulated(REDIS_7_2, now=1_800_000_000.0), kind)
        for calls, period in ((10**12, 10**14), (1, 10**14), (10**12, 1000)):
            node.forget()
            limits = one(calls, period)
            model = node.model(limits)
            for patience, wanted in ((0, ALLOWED), (10**15, RESERVED if kind == "gcra" else REFUSED)):
                told, now = node.take(limits, calls, patience)
                assert verdict(told) == wanted == model.take(calls, now, patience)
                assert node.holds()[:1] == model.kept()


def test_what_somebody_else_has_written_there_is_as_if_nothing_were(node: Node) -> None:
    soon = (node.bench.now() + 10_000) * 1000
    for value in ("x", "1", "1 x", "", "1 2 3", "-1 5", "1 2 x", "1 2 3 4", f"x{soon} 3", f"{soon} 3x", f"{soon} "):
        node.bench.operator.say("SET", KEY, value, "PX", 10_000)
        assert node.take(one(3, 10 * SECOND))[0].remaining == 2
