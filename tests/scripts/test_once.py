"""The scripts of what is done once, on simulated servers and on real ones: what they keep, promise and refuse, and whom they tell."""

from __future__ import annotations

import pytest
from scripts.bench import INBOXES, SLACK, Bench, Granted, Simulated, about, keys, simulated
from scripts.dialects import REDIS_7_2

from holdfast.primitives.once.commands import OnceLook, Register, seen
from holdfast.scripts import LOOK, STORE

K = 16_000
NAME = b"n[once]"
RESULT = b"{n[once]}:result"
FENCE, QUEUE = keys(NAME)[1:3]
KEEP = 20_000  # ms


class Node:
    """One server, and what it is asked with the bytes of the recipe."""

    def __init__(self, bench: Bench) -> None:
        self.bench, self.register = bench, Register(NAME, K)
        bench.load(LOOK, STORE)

    def look(self, ballot: int = 0, token: bytes = b"") -> OnceLook:
        [told] = seen({0: self.bench.told(self.register.look(ballot, token))}).values()
        return told

    def store(self, ballot: int, value: bytes = b"v", left: int = KEEP) -> int:
        answer: int = self.bench.told(self.register.store(ballot, value, left))
        return answer

    def see(self, key: bytes) -> tuple[bytes | None, int]:
        value, left = self.bench.operator.batch(("GET", key), ("PTTL", key))
        return value, left

    @property
    def kept(self) -> bytes | None:
        return self.see(RESULT)[0]

    @property
    def fence(self) -> int:
        return int(self.see(FENCE)[0] or 0)

    def floor(self) -> int:
        """What a node's fence stands at where nothing is written: half a horizon behind its clock."""
        return self.bench.now() * 1000 - K * 500

    def acquire(self, ticket: int) -> tuple[bytes, int]:
        token = self.bench.token(ticket)
        granted = self.bench.request(token, name=NAME)
        assert isinstance(granted, Granted)
        return token, granted.fence


@pytest.fixture
def node(bench: Bench) -> Node:
    return Node(bench)


# ------------------------------------------------ looking and promising


def test_nothing_is_there(node: Node) -> None:
    assert node.look() == OnceLook(False, 0, None)
    assert node.bench.operator.say("DBSIZE") == 0, "a look without a ballot writes nothing"


def test_a_promise_raises_the_fence(node: Node) -> None:
    ballot, began = node.bench.base, node.bench.now()
    assert node.look(ballot) == OnceLook(True, ballot, None)
    value, left = node.see(FENCE)
    assert value == b"%d" % ballot
    assert about(left, ballot // 1000 + K - began), "gone only once the clock floor is above it"
    assert node.look(ballot + 1) == OnceLook(True, ballot + 1, None)


def test_a_promise_lowers_nothing(node: Node) -> None:
    ballot = node.bench.base
    node.look(ballot)
    assert node.look(ballot - 1) == OnceLook(True, ballot, None), "nothing below is stored here: that holds as it is"
    assert node.fence == ballot


def test_the_clock_floor_promises_where_nothing_is_written(node: Node) -> None:
    low = node.floor() - 10 * SLACK * 1000
    told = node.look(low)
    assert told.promised and told.fence >= node.floor() - SLACK * 1000
    assert node.fence == told.fence, "and what is written is not below it"
    assert node.store(low) == node.fence
    assert node.kept is None


def test_a_ballot_of_the_holder_s_own_is_promised_where_it_holds_the_lock(node: Node) -> None:
    token, fence = node.acquire(1)
    ballot = fence + K * 500
    assert node.look(ballot, token) == OnceLook(True, ballot, None)
    assert node.look(ballot, token) == OnceLook(True, ballot, None), "said again"
    assert node.look(ballot - 1, token) == OnceLook(False, ballot, None), "something is above it"
    other = node.bench.token(2)
    assert node.look(ballot + 1, other) == OnceLook(False, ballot, None), "the lock is another's"
    node.bench.release(token, name=NAME)
    assert node.look(ballot + 1, token) == OnceLook(False, ballot, None), "nobody's"
    assert node.fence == ballot


# ------------------------------------------------ storing


def test_what_is_stored_is_seen(node: Node) -> None:
    ballot = node.bench.base
    assert node.look(ballot).promised
    value = bytes(range(256)) + b" \r\n "
    assert node.store(ballot, value) == ballot
    told = node.look().copy
    assert told is not None
    assert (told.ballot, told.value) == (ballot, value)
    assert about(told.left, KEEP)
    later = node.look(ballot + 1)
    assert later == OnceLook(True, ballot + 1, later.copy), "with a promise as well"
    assert later.copy is not None and later.copy.value == value


def test_the_fence_record_outlives_the_lease(node: Node) -> None:
    """Whatever a ballot makes of it: the one who holds the lock has its fence for as long as the lease lasts."""
    token = node.bench.token(node.floor() - node.bench.base)
    granted = node.bench.request(token, 3 * K, name=NAME)
    assert isinstance(granted, Granted)
    node.bench.operator.say("SET", FENCE, granted.fence - 10**9, "PX", KEEP)
    assert node.look(granted.fence - 10**6).promised
    assert node.see(FENCE)[1] > 2 * K
    node.store(granted.fence - 10**6 + 1)
    assert node.see(FENCE)[1] > 2 * K


def test_where_a_promise_was_not_heard_a_store_is_one(node: Node) -> None:
    ballot, began = node.bench.base, node.bench.now()
    assert node.store(ballot) == ballot
    assert node.fence == ballot
    assert about(node.see(FENCE)[1], ballot // 1000 + K - began)


def test_a_store_below_a_promise_is_refused(node: Node) -> None:
    ballot = node.bench.base
    node.look(ballot + 5)
    assert node.store(ballot) == ballot + 5
    assert node.kept is None
    assert node.store(ballot + 5) == ballot + 5


def test_a_store_below_another_result_is_refused_though_its_promise_is_forgotten(node: Node) -> None:
    ballot = node.bench.base
    node.store(ballot + 5, b"new")
    node.bench.operator.say("DEL", FENCE)
    assert node.store(ballot, b"old") == ballot + 5
    assert node.kept == b"%016d new" % (ballot + 5)


def test_a_store_below_the_clock_floor_is_refused(node: Node) -> None:
    """A promise that has run out was below it; and a node that has restarted may have forgotten one."""
    low = node.floor() - 10 * SLACK * 1000
    assert node.store(low) >= node.floor() - SLACK * 1000
    assert node.kept is None


def test_said_again_it_lasts_no_longer(node: Node) -> None:
    ballot = node.bench.base
    node.store(ballot, left=10_000)
    node.look(ballot + 9)
    assert node.store(ballot, left=10**9) == ballot, "it is stored, whatever was promised since"
    assert about(node.see(RESULT)[1], 10_000)
    assert node.fence == ballot + 9


def test_what_somebody_else_has_written_there_is_replaced(node: Node) -> None:
    for text in ("x", "", "1 2", "0000000000000000 y"):
        node.bench.operator.say("SET", RESULT, text, "PX", 10_000)
        assert node.look().copy is None
        node.bench.base += 1
        assert node.store(node.bench.base) == node.bench.base
        assert node.look().copy is not None


def test_numbers_as_servers_write_them_that_are_to_be_written_otherwise() -> None:
    """Redis 7.2.0 to 7.2.4 write large numbers with an exponent, which is no expiry."""
    node = Node(simulated(REDIS_7_2, now=1_800_000_000.0))
    for ballot in (node.bench.base, 10**15, 8 * 10**15):
        node.bench.operator.say("FLUSHALL")
        assert node.look(ballot).promised
        assert node.store(ballot) == max(ballot, node.floor() - 1)


# ------------------------------------------------ whom it tells


def test_all_who_wait_are_told_to_look(node: Node) -> None:
    bench = node.bench
    waiters = bench.connect(*INBOXES[:3])
    held, fence = node.acquire(1)
    tokens = [bench.token(5 + it, INBOXES[it % 3]) for it in range(4)]
    for it in tokens:
        bench.request(it, name=NAME)
    waiters.heard()
    assert node.store(fence) == fence
    if not isinstance(bench.place, Simulated):
        bench.operator.say("PING")
    assert sorted(waiters.heard()) == sorted((it[17:49], b"n " + it + b" 0 " + NAME) for it in tokens)
    assert node.store(fence) == fence
    assert waiters.heard() == [], "said again it is no news"
    node.look(fence + 1)
    assert node.store(fence) == fence
    assert node.store(fence - 1) == fence + 1
    assert waiters.heard() == [], "nor is a refusal"
    assert bench.see(NAME).holder == held, "and the lock stays as it was"
    assert list(bench.see(NAME).queue) == tokens


def test_a_user_who_may_not_publish_stores_all_the_same(node: Node) -> None:
    _, fence = node.acquire(1)
    node.bench.request(node.bench.token(2), name=NAME)
    with node.bench.mute():
        assert node.store(fence) == fence
    assert node.kept is not None
