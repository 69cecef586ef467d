"""When the drivers look at the clock, and what they judge by it: the same scenarios for both.

The faults that each has to notice are in `tests/faults.toml`.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from drivers.bench import TTL, Bench, Call, Socket, Taken, closing
from drivers.on_asyncio import AsyncioBench
from drivers.on_threads import ThreadsBench

from holdfast.protocol.claim import Claim, State
from holdfast.protocol.command import NEWS, TAKEN

BENCHES: dict[str, type[ThreadsBench] | type[AsyncioBench]] = {"threads": ThreadsBench, "asyncio": AsyncioBench}
CHUNK = 65536  # bytes that a driver reads at once
# More than a driver reads at once: a key has changed, again and again, and nobody has asked the node to watch it.
CHATTER = b">2\r\n$10\r\ninvalidate\r\n*1\r\n$5\r\nother\r\n" * 4000


@pytest.fixture(params=BENCHES)
def bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    """A driver that is connected to three nodes."""
    with closing(BENCHES[request.param]()) as made:
        yield made


def only_claim(bench: Bench) -> Claim:
    """The claim of the one who has asked for something."""
    (claim,) = bench.engine.live.values()
    assert isinstance(claim, Claim)
    return claim


def renewing(bench: Bench) -> tuple[Taken, Claim]:
    """A claim that is held, and whose renewal all nodes have just answered: the answers are still under way.

    Keep the first: a lease that is dropped is not renewed.
    """
    call = bench.acquired()
    claim = only_claim(bench)
    bench.passes(2.8)
    bench.silent |= {0, 1, 2}
    bench.passes(0.2)
    if [len(it.of("request")) for it in bench.nodes] != [2, 2, 2]:
        raise RuntimeError("no renewal is under way: this scenario shows nothing")
    return call, claim


# ------------------------------------------------ the scenarios


def test_answers_are_judged_by_the_time_at_which_they_were_read(bench: Bench) -> None:
    """The process is stopped between the beginning of a turn and the reading of bytes: the lease runs out meanwhile.

    Answers that lie unread then cannot save it: whoever has asked in the meantime was told that it is lost.
    """
    call, claim = renewing(bench)
    bench.arrives(0, 1, 2)

    def stopped() -> None:
        bench.time.now += TTL

    bench.before_reading = stopped
    bench.turn()
    assert bench.before_reading is None, "it has read"
    assert (claim.state, claim.reason, call.lease.fell) == (State.LOST, "slow", 1)
    assert [len(it.of("release")) for it in bench.nodes] == [1, 1, 1]


def test_a_first_grant_is_judged_by_the_time_at_which_it_was_read(bench: Bench) -> None:
    """The same while the lock is waited for: what was granted too late is never held."""
    bench.silent |= {0, 1, 2}
    call = bench.acquire()
    bench.settle()
    claim = only_claim(bench)
    bench.arrives(0, 1, 2)

    def stopped() -> None:
        bench.time.now += TTL

    bench.before_reading = stopped
    bench.turn()
    assert claim.state is State.WAITING
    bench.passes(1.0)
    call.result()
    assert call.at < call.until


def test_a_connection_to_a_silent_node_is_closed_with_a_reset(bench: Bench) -> None:
    """Else a command that waits in the kernel would be executed later, after what is said on the next connection."""
    # Rule T4.
    bench.silent.add(2)
    bench.acquired()
    bench.passes(0.9)
    assert bench.ends == []
    bench.passes(0.3)
    assert bench.ends == [(2, "reset")]


def test_nobody_is_told_of_the_loss_of_a_lease_that_nobody_had(bench: Bench) -> None:
    """The lock is held and lost within one turn, before its caller runs: it asks again, and is told of no loss."""
    bench.silent |= {0, 1, 2}
    call = bench.acquire()
    bench.settle()
    claim = only_claim(bench)
    bench.arrives(0, 1)
    bench.says(1, bench.tells(TAKEN, claim.token))
    bench.turn()
    assert claim.state is State.LOST and not call.done
    bench.arrives(2)
    bench.passes(1.0)
    call.result()
    assert only_claim(bench) is not claim
    assert call.at < call.until
    assert call.lease.fell == 0


def test_the_loss_of_a_lease_that_somebody_had_is_told_once(bench: Bench) -> None:
    call = bench.acquired()
    claim = only_claim(bench)
    for number in (0, 1):
        bench.says(number, bench.tells(TAKEN, claim.token))
    bench.settle()
    assert (claim.state, call.lease.fell) == (State.LOST, 1)
    bench.passes(TTL)
    assert call.lease.fell == 1


def test_a_lease_that_ran_out_on_its_way_is_not_handed_over(bench: Bench) -> None:
    """The engine holds it, and the caller runs much later: it asks again."""
    bench.silent |= {0, 1, 2}
    call = bench.acquire()
    bench.settle()
    claim = only_claim(bench)
    bench.arrives(0, 1, 2)
    bench.turn()
    assert claim.state is State.HELD and not call.done
    bench.time.now = claim.until
    bench.callers()
    bench.passes(1.0)
    call.result()
    assert call.at < call.until, "it was over when the caller had it"
    assert only_claim(bench) is not claim
    assert call.lease.fell == 0
    assert all(it.of("release") for it in bench.nodes)


def test_what_lies_unread_is_not_late(bench: Bench) -> None:
    """Answers arrive after the driver has looked, and then it is time to judge silence: it looks again first."""
    call, claim = renewing(bench)

    def meanwhile() -> None:
        bench.time.now = max(bench.time.now, bench.engine.next_wake()) + 0.001
        bench.arrives(0, 1, 2)

    bench.after_looking = meanwhile
    bench.settle()
    assert bench.after_looking is None
    assert bench.ends == [], "a connection was taken for dead whose answers lay unread"
    assert (claim.state, claim.doubt, call.lease.fell) == (State.HELD, False, 0)
    assert claim.until > bench.time.now + TTL / 2, "it is renewed"


def test_however_much_lies_unread_it_is_not_late(bench: Bench) -> None:
    """The same if the answers come after more bytes than are read at once."""
    call, claim = renewing(bench)
    assert len(CHATTER) > 2 * CHUNK

    def meanwhile() -> None:
        bench.time.now = max(bench.time.now, bench.engine.next_wake()) + 0.001
        for number in (0, 1, 2):
            bench.says(number, CHATTER)
        bench.arrives(0, 1, 2)

    bench.after_looking = meanwhile
    bench.settle()
    assert bench.ends == []
    assert (claim.state, claim.doubt, call.lease.fell) == (State.HELD, False, 0)
    assert claim.until > bench.time.now + TTL / 2


def test_what_arrives_while_it_reads_is_not_late(bench: Bench) -> None:
    """Reading takes so long that answers would be late by then, but for those which arrived meanwhile.

    Silence is judged by the time that was taken before everything was read, not by the time after.
    """
    calls = [bench.acquired("a")]
    bench.passes(0.95)
    calls.append(bench.acquired("b"))
    bench.passes(1.85)
    bench.silent |= {0, 1, 2}
    bench.passes(1.0)
    if [len(it.of("request")) for it in bench.nodes] != [3, 3, 3]:
        raise RuntimeError("only the renewal of one should be under way: this scenario shows nothing")

    def slowly() -> None:
        # (Less than what is an excuse by itself.)
        bench.time.now += 0.1
        bench.arrives(0, 1, 2)

    def meanwhile() -> None:
        bench.time.now = max(bench.time.now, bench.engine.next_wake()) + 0.001
        bench.says(0, CHATTER[: len(CHATTER) // 4000])
        bench.before_reading = slowly

    bench.after_looking = meanwhile
    bench.settle()
    assert bench.before_reading is bench.after_looking is None
    assert bench.ends == [], "a connection was taken for dead whose answers lay unread"
    assert [call.lease.fell for call in calls] == [0, 0]


def test_a_process_that_was_stopped_for_less_than_its_lease_still_has_it(bench: Bench) -> None:
    """Stopped for longer than a node may take, with all answers unread: no node is dead, nothing is in doubt."""
    call, claim = renewing(bench)

    def stopped() -> None:
        bench.time.now += 2.0
        bench.arrives(0, 1, 2)

    bench.after_looking = stopped
    bench.settle()
    assert bench.ends == []
    assert (claim.state, call.lease.fell) == (State.HELD, 0)
    assert [len(it.of("request")) for it in bench.nodes] == [2, 2, 2], "what is in doubt is asked again"


def test_news_is_heard_once(bench: Bench) -> None:
    """One who watches waits for the next news, and does not poll."""
    watch = bench.engine.listen(bench.time())
    first = bench._call(Call(), lambda: bench.driver.sleep(5.0, watch=watch))
    bench.settle()
    assert not first.done
    bench.says(0, bench.tells(NEWS, watch.token))
    bench.settle()
    first.result()
    second = bench._call(Call(), lambda: bench.driver.sleep(5.0, watch=watch))
    bench.settle()
    assert not second.done, "that news was heard already"
    bench.passes(5.5)
    second.result()


# ------------------------------------------------ a node that does its worst, and a process that has nothing left

# What comes again and again: as many bytes as are read at once, so that there are always more.
FLOODS = {
    "pushes": b">2\r\n$7\r\nnothing\r\n$65509\r\n" + b"x" * 65509 + b"\r\n",
    "a list that is too long": b"*2147483647\r\n" + b"x" * (CHUNK - 13),
    "what nobody asked for": b":1\r\n" * (CHUNK // 4),
}


def flooded(bench: Bench, flood: bytes) -> None:
    """Whenever the first node's connection is read, more has come meanwhile."""
    wire = bench.wires[0]
    if wire is None or "recv_into" in vars(wire):
        return

    def read(buffer: bytearray | memoryview) -> int:
        size = Socket.recv_into(wire, buffer)
        wire.unread += flood
        return size

    wire.unread += flood
    wire.recv_into = read  # type: ignore[method-assign]  # (a fake in its place)


@pytest.mark.parametrize("flood", FLOODS)
def test_a_node_that_sends_without_end_takes_no_lease_from_anybody(bench: Bench, flood: str) -> None:
    """Nothing is renewed or judged while a driver only reads."""
    # Rule T10.
    assert len(FLOODS[flood]) == CHUNK
    call, claim = bench.acquired(), only_claim(bench)
    for number in range(40):
        flooded(bench, FLOODS[flood])
        bench.passes(2 * TTL / 40)
        if number % 10 == 0:
            bench.acquired(f"other {number}")
    assert (claim.state, call.lease.fell) == (State.HELD, 0)
    assert claim.until > bench.time.now


def test_without_descriptors_leases_survive_and_the_error_names_the_cause(bench: Bench) -> None:
    call, claim = bench.acquired(), only_claim(bench)
    bench.descriptors = False
    bench.silent.add(2)
    bench.passes(2 * TTL)
    assert (claim.state, call.lease.fell) == (State.HELD, 0)
    assert "Too many open files" in str(bench.driver.status()[2].cause)
    bench.descriptors = True
    bench.silent.clear()
    bench.passes(TTL)
    assert [it.state for it in bench.driver.status()] == ["up"] * 3
