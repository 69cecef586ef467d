"""The scripts of rates, held against the same in fractions: answer by answer and key by key, on simulated servers and on real ones.

An answer tells the node's clock, so what it has to be is known exactly, on real servers, too. What may be allowed in which time is a law of
its own, which both have to obey; scripts with a fault break it.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from fractions import Fraction
from math import floor
from typing import Any

import pytest
from scripts.bench import Bench, Simulated, simulated

from holdfast.recipes.rate import SECOND, Gcra, Told, Window
from holdfast.scripts import GCRA, WINDOW, Script
from holdfast.testing.server import REDIS_7_2, VALKEY_9

KEY = b"{mail}:rate"
SEEDS = range(8)
STEPS = 50
RATES = [(1, 1), (3, 3), (3, 1), (7, 2), (5, 12), (1000, 1000), (10**6, 10**5)]  # limit and burst, in SPAN
SPAN = 20_000  # microseconds: the period, short enough for real servers to see it pass


# ------------------------------------------------ the same, in fractions


@dataclass
class GcraModel:
    """What one key of gcra.lua is to hold: the moment at which nothing is owed, 0 if nothing is. Times in microseconds."""

    limit: int
    period: int
    burst: int
    free: Fraction = Fraction(0)

    def _owed(self, now: int) -> Fraction:
        if floor(self.free) // 1000 + 1 < now // 1000:  # it has expired, and stays away when the clock goes back
            self.free = Fraction(0)
        self.free = min(self.free, now + Fraction(self.burst * self.period, self.limit))
        return max(self.free - now, Fraction(0))

    def take(self, cost: int, now: int) -> bool:
        then = self._owed(now) + Fraction(cost * self.period, self.limit)
        if allowed := then <= Fraction(self.burst * self.period, self.limit):
            self.free = now + then
        return allowed

    def give(self, cost: int, at: int, now: int) -> None:
        owed = self._owed(now)
        if (back := Fraction(cost * self.period, self.limit) - max(now - at, 0)) > 0 and owed:
            self.free = now + owed - back if owed > back else Fraction(0)

    def kept(self, now: int) -> bytes:
        """The key's value; empty: there need not be one."""
        whole = floor(self.free)
        return b"%d %d" % (whole, (self.free - whole) * self.limit) if self.free > now else b""


@dataclass
class WindowModel:
    """What one key of window.lua is to hold: the end of the window, and what was taken in it."""

    limit: int
    period: int
    burst: int = 0
    end: int = 0
    taken: int = 0

    def _at(self, now: int) -> None:
        if self.end // 1000 + 1 < now // 1000:
            self.end = 0
        if self.end <= now:
            self.end, self.taken = now + self.period, 0
        self.end = min(self.end, now + self.period)

    def take(self, cost: int, now: int) -> bool:
        before = self.end, self.taken
        self._at(now)
        if allowed := self.taken + cost <= self.limit:
            self.taken += cost
        elif before[0] <= now:
            self.end, self.taken = before
        return allowed

    def give(self, cost: int, at: int, now: int) -> None:
        if self.end > now:  # (else there is nothing to give back to)
            self._at(now)
            if self.end == at:
                self.taken = max(self.taken - cost, 0)

    def kept(self, now: int) -> bytes:
        return b"%d %d" % (self.end, self.taken) if self.end > now else b""


Model = GcraModel | WindowModel


class Node:
    """One server, and what it is asked with the bytes of the recipe. `scripts`: those that stand for the shipped ones."""

    def __init__(self, bench: Bench, kind: str, scripts: dict[bytes, Script] | None = None) -> None:
        self.bench, self.kind, self.scripts = bench, kind, scripts or {}
        self.bench.operator.batch(*[("SCRIPT", "LOAD", it.source) for it in [GCRA, WINDOW, *self.scripts.values()]])

    @property
    def seeds(self) -> range:
        """As many histories as it has time for: a real server's takes as long as it says."""
        return SEEDS if isinstance(self.bench.place, Simulated) else range(2)

    def algorithm(self, limit: int, period: int, burst: int) -> Gcra | Window:
        return Gcra(KEY, limit, period, burst) if self.kind == "gcra" else Window(KEY, limit, period)

    def model(self, limit: int, period: int, burst: int) -> Model:
        return (GcraModel if self.kind == "gcra" else WindowModel)(limit, period, burst)

    def say(self, data: bytes) -> Any:
        words = data.split(b"\r\n")[2::2]
        if words[1] in self.scripts:
            words[1] = self.scripts[words[1]].sha
        reply = self.bench.client.say(*words)
        self.bench.mortal()
        return reply

    def take(self, limit: int, period: int, burst: int, cost: int = 1) -> tuple[Told, int]:
        """What is told, and the node's clock."""
        algorithm = self.algorithm(limit, period, burst)
        reply = self.say(algorithm.take(cost))
        told = algorithm.read(cost, reply)
        assert told is not None, reply
        return told, reply[3]

    def give(self, limit: int, period: int, burst: int, cost: int, at: int) -> int:
        """Its clock."""
        now: int = self.say(self.algorithm(limit, period, burst).give(cost, at))[3]
        return now

    def passes(self, micros: float) -> None:
        self.bench.place.pass_time(micros / SECOND)


@pytest.fixture(params=["gcra", "window"])
def node(request: pytest.FixtureRequest, bench: Bench) -> Node:
    return Node(bench, request.param)


# ------------------------------------------------ it is what it should be


def ends(value: bytes | None) -> int:
    """Until when a key's value means anything."""
    return floor(float(value.split()[0])) if value else 0


def history(node: Node, seed: int) -> str | None:
    """A random history on the server and in the model; where they differ first. Limits change, and on simulated servers clocks step."""
    dice, steps = random.Random(seed), isinstance(node.bench.place, Simulated)
    limit, burst = dice.choice(RATES)
    model, period, taken = node.model(limit, SPAN, burst), SPAN, list[tuple[int, int]]()
    node.bench.operator.say("DEL", KEY)
    for step in range(STEPS):
        if dice.random() < 0.5:
            node.passes(dice.choice([0, 1, SPAN / limit, SPAN / 5, SPAN * 1.5]) * dice.random())
        if steps and dice.random() < 0.1:
            node.passes(dice.uniform(-3, 3) * SPAN)
        if dice.random() < 0.05:
            limit, burst = dice.choice(RATES)
            period = dice.choice([SPAN, SPAN // 3, SPAN * 7])
            model.limit, model.burst, model.period = limit, burst, period
            if isinstance(model, GcraModel):  # what is left of a part is of the old limit
                model.free = Fraction(floor(model.free))
                node.bench.operator.say("DEL", KEY)
                model.free = Fraction(0)
        most = node.algorithm(limit, period, burst).most
        if taken and dice.random() < 0.3:
            cost, at = taken.pop(dice.randrange(len(taken)))
            now = node.give(limit, period, burst, cost, at)
            model.give(cost, at, now)
        else:
            cost = dice.choice([1, 1, 1, min(2, most), dice.randint(1, most)])
            told, now = node.take(limit, period, burst, cost)
            if told.allowed is not model.take(cost, now):
                return f"seed {seed}, step {step}: {told} at {now}, {model}"
            if told.allowed:
                taken.append((cost, told.at))
        value, left = node.bench.operator.batch(("GET", KEY), ("PTTL", KEY))
        wanted, clock = model.kept(now), node.bench.now()
        if ends(value) > now or ends(wanted) // 1000 > clock:  # (else it may be there or not: it means nothing)
            if value != wanted:
                return f"seed {seed}, step {step}: holds {value!r} at {now}, not {wanted!r}"
        if value is not None and not left <= int(value.split()[0]) // 1000 + 1 - now // 1000:
            return f"seed {seed}, step {step}: {value!r} stays for {left} ms"
    return None


def test_a_history_is_what_it_is_in_fractions(node: Node) -> None:
    for seed in node.seeds:
        assert (difference := history(node, seed)) is None, difference


# ------------------------------------------------ the law


def excess(node: Node, seed: int) -> str | None:
    """Where more was allowed, and not given back, than may be; None if nowhere. Callers come in bursts and evenly; some give back late.

    GCRA: in any stretch of a period less than limit + burst. Window: in each no more than the limit, and windows do not overlap.
    """
    dice = random.Random(seed)
    limit, burst = dice.choice([(1, 1), (3, 3), (3, 1), (7, 2), (5, 12)])
    kept: list[tuple[int, int]] = []  # when, and how much
    owing: list[tuple[int, int, int]] = []
    node.bench.operator.say("DEL", KEY)
    for _ in range(2 * STEPS):
        node.passes(dice.choice([0, 0, 1, SPAN / limit / 2, SPAN / limit, SPAN / 4]))
        cost = dice.choice([1, 1, 1, min(2, burst, limit)])
        told, now = node.take(limit, SPAN, burst, cost)
        if told.allowed:
            kept.append((now, cost))
            if dice.random() < 0.4:
                owing.append((now, cost, told.at))
        if owing and dice.random() < 0.5:
            when, cost, at = owing.pop(0)
            node.give(limit, SPAN, burst, cost, at)
            kept.remove((when, cost))
    least = limit + burst - 1 if node.kind == "gcra" else 2 * limit
    for start, _ in kept:
        if (count := sum(cost for when, cost in kept if start <= when < start + SPAN)) > least:
            return f"seed {seed}: {count} in a period of {limit} (burst {burst}), from {start}"
    return None


def test_never_more_is_allowed_than_may_be(node: Node) -> None:
    for seed in node.seeds:
        assert (broken := excess(node, seed)) is None, broken


def test_all_of_a_burst_and_no_more(node: Node) -> None:
    assert [node.take(3, 10 * SECOND, 3)[0].allowed for _ in range(5)] == [True, True, True, False, False]
    node.bench.operator.say("DEL", KEY)
    assert [node.take(3, 10 * SECOND, 3, cost)[0].allowed for cost in (2, 2, 1, 1)] == [True, False, True, False]


def test_what_a_refused_caller_is_told_is_true(node: Node) -> None:
    for _ in range(3):
        node.take(3, SPAN, 3)
    for _ in range(10):
        told, _ = node.take(3, SPAN, 3)
        if told.allowed:
            continue
        if isinstance(node.bench.place, Simulated):
            node.passes(told.retry - 5)
            assert not node.take(3, SPAN, 3)[0].allowed, "not sooner"
            node.passes(8)  # (its clock is a float)
        else:
            node.passes(told.retry)
        assert node.take(3, SPAN, 3)[0].allowed


def steady(node: Node, limit: int = 3, calls: int = 40) -> int:
    """How many calls of somebody who stays just below the limit are allowed."""
    allowed = 0
    for _ in range(calls):
        allowed += node.take(limit, SPAN, limit)[0].allowed
        node.passes(SPAN / limit + 1)
    return allowed


def test_who_stays_below_the_limit_is_never_refused(node: Node) -> None:
    assert steady(node) == 40


def after_a_step_back(node: Node) -> float:
    """For how many periods everybody is refused after the clock went back by a thousand."""
    while node.take(3, SPAN, 3)[0].allowed:
        pass
    node.passes(-1000 * SPAN)
    for halves in range(2100):
        if node.take(3, SPAN, 3)[0].allowed:
            return halves / 2
        node.passes(SPAN / 2)
    raise AssertionError("never")


def odd(kind: str, scripts: dict[bytes, Script] | None = None) -> Node:
    return Node(simulated(VALKEY_9), kind, scripts)


@pytest.mark.parametrize("kind", ["gcra", "window"])
def test_a_clock_that_goes_back_refuses_for_a_period_at_most(kind: str) -> None:
    node = odd(kind)
    assert after_a_step_back(node) <= 1
    node.passes(1000 * SPAN)
    assert [node.take(3, SPAN, 3)[0].allowed for _ in range(4)] == [True, True, True, False], "forward: as if nothing had been taken"


def test_numbers_as_servers_write_them_that_are_to_be_written_otherwise() -> None:
    """Redis 7.2.0 to 7.2.4 write large numbers with an exponent, and Lua does so above 2 ** 53 / 100."""
    for kind in ("gcra", "window"):
        node = Node(simulated(REDIS_7_2, now=1_800_000_000.0), kind)
        for limit, period in ((10**12, 10**14), (1, 10**14), (10**12, 1000)):
            node.bench.operator.say("DEL", KEY)
            told, now = node.take(limit, period, limit, limit)
            assert told.allowed
            model = node.model(limit, period, limit)
            model.take(limit, now)
            assert node.bench.operator.say("GET", KEY) == model.kept(now)


def test_what_somebody_else_has_written_there_is_as_if_nothing_were(node: Node) -> None:
    for value in ("x", "1", "1 x", "", "1 2 3", "-1 5"):
        node.bench.operator.say("SET", KEY, value, "PX", 10_000)
        assert node.take(3, 10 * SECOND, 3)[0].remaining == 2


# ------------------------------------------------ scripts with a fault


def damaged(script: Script, there: str, instead: str) -> dict[bytes, Script]:
    import hashlib

    assert script.source.count(there.encode()) == 1, there
    source = script.source.replace(there.encode(), instead.encode())
    return {script.sha: script._replace(source=source, sha=hashlib.sha1(source).hexdigest().encode())}


Found = Callable[[Node], bool]


def breaks_the_law(node: Node) -> bool:
    return any(excess(node, seed) for seed in SEEDS)


def differs(node: Node) -> bool:
    return any(history(node, seed) for seed in SEEDS)


def starves(node: Node) -> bool:
    """The sources' bug: a caller below the limit, who is refused in the end, and never let in again."""
    return steady(node) <= 3


def hangs_back(node: Node) -> bool:
    return after_a_step_back(node) > 900


FAULTS: dict[str, tuple[Script, str, str, Found]] = {
    "gives back what has flowed back already": (GCRA, "q - math.max(now - at, 0)", "q", breaks_the_law),
    "gives back more if the clock goes back": (GCRA, "math.max(now - at, 0)", "(now - at)", differs),
    "gives back only whole microseconds": (GCRA, "owed - back, rest - r", "owed - back, rest", differs),
    "allows one call too many": (GCRA, "if sum > Q or sum == Q and more > R then", "if owed > Q then", breaks_the_law),
    "forgets parts of microseconds": (GCRA, "owed, rest = sum, more", "owed, rest = sum, 0", differs),
    "takes without writing it down": (GCRA, "    owed, rest = sum, more\n    keep()", "    owed, rest = sum, more", breaks_the_law),
    "lets time pass twice": (GCRA, "(tonumber(free) or 0) - now", "(tonumber(free) or 0) - now - 2000", breaks_the_law),
    "waits for a clock that went back": (GCRA, "    owed, rest = Q, R\n    keep()", "    owed, rest = Q, R", hangs_back),
    "believes a clock that went back": (WINDOW, "elseif ends > now + period then", "elseif false then", hangs_back),
    "pushes the window forward with every call": (
        WINDOW, "if taken + cost > limit then", "ends = now + period if taken + cost > limit then keep()", starves,
    ),
    "pushes the window forward with those that it allows": (
        WINDOW, "    taken = taken + cost\n", "    taken, ends = taken + cost, now + period\n", differs,
    ),
    "gives back in the wrong window": (WINDOW, "elseif ends == at then", "else", breaks_the_law),
    "allows one more in a window": (WINDOW, "taken + cost > limit", "taken >= limit", breaks_the_law),
    "begins a window too early": (WINDOW, "if ends <= now then", "if ends <= now + 9000 then", breaks_the_law),
    "keeps for ever": (WINDOW, ", 'PXAT', string.format('%.0f', math.floor(ends / 1000) + 1)", "", differs),
    "keeps for a day": (GCRA, "math.floor(free / 1000) + 1)", "math.floor(free / 1000) + 86400000)", differs),
    "writes numbers as Lua does": (GCRA, "string.format('%.0f %.0f', free, rest)", "tostring(free) .. ' ' .. tostring(rest)", differs),
}  # fmt: skip


def test_a_sound_script_passes_all_of_it() -> None:
    for kind in ("gcra", "window"):
        node = odd(kind)
        assert not breaks_the_law(node)
        assert not differs(node)
        assert not starves(odd(kind))
        assert not hangs_back(odd(kind))


@pytest.mark.parametrize("fault", FAULTS)
def test_a_script_with_a_fault_is_found(fault: str) -> None:
    script, there, instead, found = FAULTS[fault]
    node = odd(script.name, damaged(script, there, instead))
    with closing(node.bench):
        try:
            assert found(node), fault
        except AssertionError as error:  # (what the bench itself complains of: a key that would stay for ever)
            if fault in str(error):
                raise
