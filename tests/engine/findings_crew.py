"""Findings in engine/crew.py, or seen through it: each of these fails today."""

from __future__ import annotations

import hiredis
import pytest
from engine import world as worlds
from engine.test_crew import ANOTHER, away, busy, lines
from engine.world import World

from holdfast import events
from holdfast.core.claim import HELD, WAITING

# ------------------------------------------------ what anybody who may publish can do


def test_a_message_cannot_put_words_into_our_mouth() -> None:
    """A grant for a token that is none is released with that token packed as if it had 58 bytes: the bytes behind it are commands."""
    world = World().connect()
    world.nodes[0].writes.clear()
    world.publishes(0, b"g " + b"x" * 58 + b"\r\n$5\r\n16000\r\n*1\r\n$8\r\nFLUSHALL 5 a")
    parser = hiredis.Reader()
    parser.feed(b"".join(world.nodes[0].writes))
    while (words := parser.gets()) is not False:
        assert words[0] == b"EVALSHA"


@pytest.mark.parametrize("token", [b"", b"token", ANOTHER + b"0", b"\0" * 58])
def test_a_grant_for_no_token_is_ignored(token: bytes) -> None:
    world = World().connect()
    writes = len(world.nodes[0].writes)
    world.publishes(0, b"g %b 5 a" % token)
    assert len(world.nodes[0].writes) == writes and lines(world) == ["up"] * 3


def test_a_fence_of_thousands_of_digits_is_ignored() -> None:
    world = World().connect()
    busy(world)
    claim = world.claim()
    world.run(0.1)
    world.publishes(0, b"g %b %b a" % (claim.token, b"1" * 5000))  # int() raises ValueError
    assert claim.state is WAITING


# ------------------------------------------------ nodes that hang, or come back


def test_a_node_that_greets_and_then_takes_no_scripts_counts_as_down() -> None:
    """As test_crew has it with 0.7 s; with the default node_timeout, 1 s, each such connection was "of use" for as long as SHORT."""
    world = World()
    frozen = world.nodes[2]
    answers = frozen.reads
    frozen.reads = lambda data, now: b"" if data.startswith(worlds.SCRIPTS) else answers(data, now)  # type: ignore[method-assign]
    world.run(3.0)
    asked = len(frozen.of("request"))
    world.claim()
    for _ in range(10):
        world.run(0.5)
        assert lines(world)[2] == "down"
    assert len(frozen.of("request")) == asked


@pytest.mark.parametrize("offset", range(20))
def test_a_node_that_comes_back_is_not_hung_up_over_a_release_that_is_said_again(offset: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """At 100 ms of round trip, while another node is being dialled: some of these fail (see wire/findings_lane.py)."""
    monkeypatch.setattr(worlds, "TRIP", 0.05)
    world = World(5)
    world.run(3.0)
    claim = world.claim()
    world.run(0.5)
    away(world, 3)
    world.run(offset / 32)
    away(world, 4)
    world.end(claim)
    world.run(5.0)
    before = world.nodes[4].connection
    world.nodes[4].dialled = "accepts"
    world.run(5.0)
    assert (lines(world)[4], world.nodes[4].connection) == ("up", before + 1)


def test_a_grant_that_is_given_back_and_not_answered_is_found_out() -> None:
    """`told` sends a release without looking at the time: if nothing else happens, the silent node is never found late."""
    world = World().connect()
    world.run(5.0)
    world.nodes[0].mute = True
    world.publishes(0, b"g %b 5 a" % ANOTHER)
    assert world.crew.next_wake() <= world.now + 1.0
    world.run(2.0)
    assert lines(world)[0] != "up"


# ------------------------------------------------ answers that no script of ours gives


ANSWERS = {
    "a word": b"*3\r\n+x\r\n:0\r\n:0\r\n",
    "a list": b"*3\r\n*0\r\n:0\r\n:0\r\n",
    "nothing": b"*3\r\n_\r\n:0\r\n:0\r\n",
    "an error inside": b"*3\r\n-ERR x\r\n:0\r\n:0\r\n",
    "an infinity": b"*3\r\n,inf\r\n:0\r\n:0\r\n",
    "no PTTL": b"*4\r\n:0\r\n_\r\n:0\r\n_\r\n",
    "a PTTL that is none": b"*4\r\n:0\r\n+x\r\n:0\r\n_\r\n",
    "a holder that is none": b"*4\r\n:0\r\n:5\r\n:0\r\n:7\r\n",
}


@pytest.mark.parametrize("which", ANSWERS)
def test_one_node_that_answers_rubbish_does_not_end_the_engine(which: str) -> None:
    """Raised through `received` into the driver, where the keeper dies: all leases of this client are lost, on all nodes; and again."""
    world = World(telling=True).connect()
    world.nodes[1].answer = lambda asked: ANSWERS[which]
    claim = world.claim()
    world.run(1.0)
    assert claim.state is HELD


# ------------------------------------------------ what observers and operators see


def test_an_attempt_has_waited_for_no_time() -> None:
    world = World(telling=True).connect()
    world.claim()
    attempt = world.events[0]
    assert isinstance(attempt, events.Attempt) and attempt.waited == 0.0  # today: seconds since the machine started


def test_a_claim_whose_client_is_closed_is_told_of() -> None:
    """Attempt and Queued are told, and no end: `end` tells Refused, `close` does not."""
    world = World(telling=True).connect()
    busy(world)
    world.claim()
    world.run(0.1)
    world.crew.close(world.now)
    world.run(0.1)
    assert isinstance(world.events[-1], events.Refused)
