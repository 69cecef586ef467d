"""Findings in wire/lane.py: each of these fails today. The restart guard first: that is safety."""

from __future__ import annotations

import random

import pytest
from wire.test_lane import GUARD, LOADED, TALK, Asked, Server, a_lane, array, bulk, converse, log, meet, opens, up, whole

from holdfast.errors import ConfigError
from holdfast.wire.lane import GREETING, GUARDED, LOADING, UP

# ------------------------------------------------ S1: the restart guard


def test_an_earlier_run_that_answered_the_greeting_has_answered_this_client() -> None:
    """Run a answers at 100, and serves others. The node restarts, its wall clock is set forward, and its uptime says 5000 s.

    PROTOCOL 5: an uptime is wrong if an earlier run answered this client less than G ago. The lane counts only what came while it was
    UP, so it opens at 110, while leases that run a granted to others after 100 run on. (The prototype counts the greeting, too.)
    """
    lane = a_lane(guard=GUARD)
    assert opens(lane, 100.0, "a", 5) == 128.0  # guarded: it greeted, and was not used yet
    lane.broke(109.0)
    assert opens(lane, 110.0, "b", 5000) == 100.0 + GUARD


def test_an_earlier_run_that_took_the_scripts_has_answered_this_client() -> None:
    """The same after a failure: the answers to SCRIPT LOAD come while the lane is LOADING, and do not count; it is UP for 7 s."""
    lane = a_lane(guard=GUARD)
    lane.dial(0.0)
    lane.broke(0.0)
    meet(lane, 100.0, Server({"run_id": "a"}))
    lane.opened(100.0)
    assert lane.line is LOADING
    lane.received(LOADED, 100.0)
    assert lane.line is UP
    lane.broke(107.0)
    assert opens(lane, 108.0, "b", 5000) == 100.0 + GUARD


# ------------------------------------------------ one node that says rubbish must not end the engine


FACTS = [
    pytest.param({"uptime_in_seconds": "long"}, id="uptime"),
    pytest.param({"uptime_in_seconds": "1e9"}, id="uptime in another notation"),
    pytest.param({"redis_version": "\u00b2.8"}, id="a digit that is no number"),
    pytest.param({"redis_version": "7." + "1" * 5000}, id="a version of thousands of digits"),
]


@pytest.mark.parametrize("facts", FACTS)
def test_facts_that_are_no_numbers_are_bad(facts: dict[str, object]) -> None:
    lane = a_lane(guard=GUARD)
    meet(lane, 0.0, Server(facts))
    assert lane.bad is not None and lane.line is GREETING


TIMES = {
    "no numbers": array(bulk(b"a"), bulk(b"b")),
    "nothing": array(b"_\r\n", b"_\r\n"),
    "an infinity": array(b",inf\r\n", b":0\r\n"),
    "a list": array(b"*0\r\n", b":0\r\n"),
}


@pytest.mark.parametrize("which", TIMES)
def test_a_time_that_is_none_is_bad(which: str) -> None:
    lane = a_lane()
    lane.connected(0.0)
    lane.received(b"".join([*Server().answers()[:-1], TIMES[which]]), 0.0)
    assert lane.bad is not None and lane.line is GREETING


CLASHES = {
    "a set of lists": b"~1\r\n*0\r\n",
    "a map whose key is a list": b"%1\r\n*0\r\n:1\r\n",
    "a map whose key is a map": b"%1\r\n%0\r\n:1\r\n",
    "a list of 2^31 items": b"*2147483648\r\n:1\r\n",
}


@pytest.mark.parametrize("which", CLASHES)
def test_what_hiredis_cannot_hold_is_bad(which: str) -> None:
    # TypeError and MemoryError come from its `gets`, not ProtocolError.
    lane = a_lane()
    up(lane)
    lane.say(Asked(b"?"))
    lane.received(CLASHES[which], 1.0)
    assert lane.bad is not None and log(lane) == []


INSERTS = (
    *CLASHES.values(),
    b"*0\r\n",
    b">0\r\n",
    b"(99\r\n",
    b"|1\r\n+a\r\n+b\r\n",
    b"-\xff\r\n",
    b"$-1\r\n",
    b"=1\r\nt\r\n",
    b",nan\r\n",
    b"#t\r\n",
)


@pytest.mark.parametrize("seed", range(300))
def test_no_damage_at_all_raises(seed: int) -> None:
    chance = random.Random(seed)  # (the seed is this test's name)

    def damaged(data: bytes) -> list[bytes]:
        result = bytearray(data)
        for _ in range(chance.randint(1, 3)):
            at = chance.randrange(len(result))
            match chance.randrange(4):
                case 0:
                    result[at] = chance.randrange(256)
                case 1:
                    del result[at : at + chance.randint(1, 5)]
                case 2:
                    result[at:at] = chance.randbytes(chance.randint(1, 5))
                case 3:
                    result[at:at] = chance.choice(INSERTS)
        return [bytes(result)]

    lane = a_lane()
    lane.connected(9.0)
    lane.received(damaged(Server().greets())[0], 9.0)
    assert lane.bad is not None or lane.line in (GREETING, GUARDED)
    heard = [it[1] for it in log(converse(whole, lambda data: damaged(LOADED + TALK))) if len(it) == 4]
    assert heard == sorted(heard, key=[b"first", b"second", b"third", b"fourth"].index)


# ------------------------------------------------ lateness


def test_a_release_that_is_said_again_is_late_from_then_on() -> None:
    """After an outage: the release keeps the moment at which it was first said, so that the node is late as soon as it is said again.

    Whenever a tick looks at the lanes before the answer is here (another node is being dialled), the node that came back is hung up.
    """
    lane = a_lane(patience=1.0, keep=30.0)
    up(lane)
    lane.say(Asked(b"release", 0.0, again=True))
    lane.broke(0.5)
    meet(lane, 10.0)
    lane.opened(10.0)
    lane.received(LOADED, 10.0)
    assert lane.line is UP and [it.data for it in lane.ledger] == [b"release"]
    assert not lane.late(10.0)
    assert lane.due() == 11.0


@pytest.mark.parametrize("failed", [False, True])
def test_a_connection_on_which_nothing_was_ever_answered_was_of_no_use(failed: bool) -> None:
    """With the default node_timeout of 1 s: a node that greets and then hangs is "of use" for 1 s = SHORT, until it is found late.

    So its failures are forgotten, it counts as hoped for, and then as UP again: each claim asks it, and waits for it, for ever.
    """
    lane = a_lane(patience=1.0)
    if failed:
        lane.dial(0.0)
        lane.broke(0.0)
    meet(lane, 10.0)
    lane.opened(10.0)
    lane.say(Asked(b"?", 10.0))
    assert lane.late(11.0)
    lane.broke(11.0)
    assert lane.fails > failed


# ------------------------------------------------ causes


TRANSIENT = {
    "loading": (9, b"-LOADING Redis is loading the dataset in memory\r\n"),
    "busy": (6, b"-BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.\r\n"),
    "full": (0, b"-ERR max number of clients reached\r\n"),
}


@pytest.mark.parametrize("which", TRANSIENT)
def test_a_refusal_that_time_will_mend_is_no_config_error(which: str) -> None:
    """`ready()` gives up on a ConfigError at once, and tells the user to check password and permissions."""
    place, refusal = TRANSIENT[which]
    lane = a_lane("redis://:pw@h/1")
    lane.connected(0.0)
    answers = Server().answers(1)
    answers[place] = refusal
    lane.received(b"".join(answers), 0.0)
    assert lane.bad is not None and not isinstance(lane.bad, ConfigError)


def test_scripts_that_a_loading_server_does_not_take_are_no_config_error() -> None:
    lane = a_lane()
    meet(lane)
    lane.opened(0.0)
    lane.received(TRANSIENT["loading"][1], 0.0)
    assert lane.bad is not None and not isinstance(lane.bad, ConfigError)
