"""The scripts of elections, held against a model, answer by answer, on simulated servers and on real ones."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import pytest
from scripts.bench import INBOXES, SLACK, Bench, Simulated, simulated
from scripts.dialects import REDIS_7_2, VALKEY_9

from holdfast.primitives.election.commands import LAST, ElectionLock, Word
from holdfast.scripts import ELECTION

OFFICE = ElectionLock("boss", "", ttl=10, horizon=16_000)
LEADER, WATCHERS = b"{boss[election]}:leader", b"{boss[election]}:watchers"
KEEP = 32_000  # ms for which a word is remembered
LONG, SHORT = 20.0, 0.002  # seconds: for as long as any test runs; over by the next `lapse`
SEEDS = range(6)
STEPS = 40
VALUES = ["", "a:1", "1 2 3", " x ", "two\nlines", "nul\0byte", "{}%s\\", "é", "x" * 5000]


@dataclass
class Node:
    """One server, and what it is asked with the bytes of the recipe."""

    bench: Bench

    def __post_init__(self) -> None:
        self.bench.load(*ELECTION)

    @property
    def exact(self) -> bool:
        """Does its clock stand still while nobody lets time pass?"""
        return isinstance(self.bench.place, Simulated)

    def announce(self, term: int, version: int = 1, left: float = LONG, value: str = "v") -> int:
        answer: int = self.bench.told(OFFICE.announce(Word(term, version, left, value)))
        return answer

    def watch(self, token: bytes = b"", ttl: float = LONG) -> tuple[int, int, int, str]:
        """Term, version, ms left, value."""
        term, version, left, value = self.bench.told(OFFICE.watch(token, ttl))
        return term, version, left, value.decode()

    def left(self, key: bytes) -> int:
        """The expiry of a key."""
        ms: int = self.bench.operator.say("PTTL", key)
        return ms

    def is_about(self, ms: int, wanted: int) -> bool:
        return ms == wanted if self.exact else wanted - SLACK < ms <= wanted

    def watchers(self) -> list[bytes]:
        found: list[bytes] = self.bench.operator.say("ZRANGE", WATCHERS, 0, -1)
        return found


@pytest.fixture
def node(bench: Bench) -> Node:
    return Node(bench)


def odd(dialect: Any = VALKEY_9) -> Node:
    return Node(simulated(dialect))


# ------------------------------------------------ the register


def history(node: Node, seed: int) -> str | None:
    """Where a node differs from the model; None: nowhere. The highest (term, version) stays, and is good for as long as anybody said."""
    dice = random.Random(seed)
    node.bench.operator.say("DEL", LEADER, WATCHERS)
    rank, ends, kept, value = (0, 0), 0.0, 0.0, ""
    clock = 0.0  # seconds that have passed, as far as the model knows
    values: dict[tuple[int, int], str] = {}
    for step in range(STEPS):
        if node.exact and dice.random() < 0.4:
            passed = dice.choice([1, 5, 9])
            node.bench.place.pass_time(passed)
            clock += passed
            if kept <= clock:
                rank, ends, value = (0, 0), 0.0, ""
        term, version = rank if rank[0] and dice.random() < 0.4 else (dice.randint(1, 4), dice.choice([1, 2, 3, LAST]))
        left = 0.0 if version == LAST else dice.choice([8.0, LONG])
        words = "" if version == LAST else values.setdefault((term, version), dice.choice(VALUES))
        answer = node.announce(term, version, left, words)
        if answer != ((term, version) >= rank):
            return f"seed {seed}, step {step}: {answer} to {term} {version} over {rank}"
        if (term, version) == rank:
            ends = max(ends, clock + left)
        elif (term, version) > rank:
            rank, ends, value = (term, version), clock + left, words
        if answer:
            kept = max(ends, clock) + KEEP / 1000
        *found, ms, told = node.watch()
        wanted = round(max(ends - clock, 0) * 1000)
        if (tuple(found), told) != (rank, value) or not node.is_about(ms, wanted):
            return f"seed {seed}, step {step}: {found} {ms} {told!r} instead of {rank} {wanted} {value!r}"
        if not node.is_about(node.left(LEADER), round((kept - clock) * 1000)):
            return f"seed {seed}, step {step}: kept for {node.left(LEADER)} ms instead of {kept - clock} s"
    return None


def test_a_history_is_what_the_model_says(node: Node) -> None:
    for seed in SEEDS if node.exact else range(2):
        assert (difference := history(node, seed)) is None, difference


def test_nothing_is_known_at_first(node: Node) -> None:
    assert node.watch() == (0, 0, 0, "")
    assert node.watchers() == [], "who only looks is told nothing"


def test_after_a_resignation_nothing_of_that_term_counts(node: Node) -> None:
    # Rule E4.
    node.announce(7, 2)
    assert node.announce(7, LAST, 0.0, "") == 1
    assert node.watch() == (7, LAST, 0, "")
    assert node.announce(7, 3) == 0
    assert node.announce(8) == 1


@pytest.mark.parametrize("value", VALUES)
def test_what_is_said_is_what_is_heard(node: Node, value: str) -> None:
    node.announce(2**53 - 2, LAST - 1, LONG, value)
    term, version, _, told = node.watch()
    assert (term, version, told) == (2**53 - 2, LAST - 1, value)


def test_what_somebody_else_has_written_there_is_as_if_nothing_were(node: Node) -> None:
    for value in ("x", "7 1", "7 1 x v", ""):
        node.bench.operator.say("SET", LEADER, value, "PX", 10_000)
        assert node.watch() == (0, 0, 0, "")
        assert node.announce(1) == 1
        assert node.watch()[:2] == (1, 1)


def after_a_step_back(node: Node) -> int:
    """For how long a word is good that is said again when the clock has gone back by a day."""
    node.announce(7, 1, LONG)
    node.bench.place.pass_time(-86_400)
    node.announce(7, 1, LONG)
    return node.watch()[2]


def test_a_clock_that_goes_back_makes_nobody_leader_for_a_day() -> None:
    assert after_a_step_back(odd()) == KEEP


def test_numbers_as_servers_write_them_that_are_to_be_written_otherwise() -> None:
    node = odd(dialect=REDIS_7_2)
    assert history(node, 1) is None


# ------------------------------------------------ who is told


def token(which: int, serial: int = 1) -> bytes:
    return b"%016d:%b:%08x" % (1, INBOXES[which], serial)


def told(listener: Any) -> list[bytes]:
    return [it[1] for it in listener.heard()]


def test_who_watches_is_told_of_changes_only(node: Node) -> None:
    one, other = node.bench.connect(INBOXES[0]), node.bench.connect(INBOXES[1])
    for it in (0, 1):
        node.watch(token(it))
    node.announce(7)
    news = [b"n " + token(it) + b" 0 " + LEADER for it in (0, 1)]
    assert (told(one), told(other)) == ([news[0]], [news[1]])
    node.announce(7)
    node.announce(6)
    assert (told(one), told(other)) == ([], []), "the same again, and what is refused, is no news"
    node.announce(7, 2)
    node.announce(7, LAST, 0.0, "")
    assert (told(one), told(other)) == ([news[0]] * 2, [news[1]] * 2)


def test_whose_watch_is_over_is_told_nothing_and_forgotten(node: Node) -> None:
    one = node.bench.connect(INBOXES[0])
    node.watch(token(0), SHORT)
    node.watch(token(0, 2), LONG)
    node.bench.lapse()
    node.announce(7)
    assert told(one) == [b"n " + token(0, 2) + b" 0 " + LEADER]
    assert node.watchers() == [token(0, 2)]


def test_a_new_watcher_drops_those_whose_time_is_over(node: Node) -> None:
    node.watch(token(0, 8))
    for serial in range(3):
        node.watch(token(0, serial), SHORT)
    node.bench.lapse()
    node.watch(token(0, 9))
    assert node.watchers() == [token(0, 8), token(0, 9)]
    assert node.is_about(node.left(WATCHERS), round(LONG * 1000))
    node.watch(token(0, 9), 1.0)
    assert node.left(WATCHERS) > 1000, "an expiry is never moved back: others may watch for longer"


def test_a_watcher_whom_nobody_listens_for_is_forgotten(node: Node) -> None:
    node.watch(token(2))
    node.announce(7)
    assert node.watchers() == []


def test_who_may_not_publish_announces_all_the_same(node: Node) -> None:
    node.watch(token(0))
    with node.bench.mute():
        assert node.announce(7) == 1
    assert node.watch()[:2] == (7, 1)
    assert node.watchers() == [token(0)]
