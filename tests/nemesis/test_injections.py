"""A session cut at some of its bytes. (All of them: `./task nemesis`.)"""

from __future__ import annotations

import random

from nemesis.injections import CUT, Injection, everywhere, plan
from nemesis.proxy import DOWN, UP

LENGTHS = {(0, UP): 9, (0, DOWN): 4, (1, UP): 7, (1, DOWN): 5}


def test_every_byte_is_in_the_plan() -> None:
    sessions = list(plan(LENGTHS, random.Random(1)))
    cuts = [it for session in sessions for it in session if it.what == CUT]
    assert set(cuts) == {Injection(CUT, who, way, n) for (who, way), most in LENGTHS.items() for n in range(1, most)}
    assert all(len({it.client for it in session}) == len(session) <= 2 for session in sessions), "never a majority of anybody's connections"


async def test_some_sessions() -> None:
    outcome = await everywhere(3, 30.0, lambda line: None, most=12)
    assert outcome.broken == []
    assert outcome.sessions == 12
    assert outcome.injections >= 20
    assert all(outcome.lengths[way] > 40 for way in LENGTHS), outcome.lengths
