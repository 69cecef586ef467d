"""request.lua where no conversation of tests/scripts/locks shows it: tracking, all keys, errors.

Every test is a function of a bench alone.
"""

from __future__ import annotations

import hiredis
import pytest
from scripts.bench import LONG, NAME, Bench, Denied, Granted, about, keys


def test_who_tracks_the_name_of_a_foreign_holder_hears_when_it_goes(bench: Bench) -> None:
    bench.operator.say("SET", NAME, "foreign", "PX", LONG)
    bench.client.say("CLIENT", "TRACKING", "ON", "OPTIN", "NOLOOP")
    _, reply = bench.client.batch(("CLIENT", "CACHING", "YES"), bench.words(bench.token(1)))
    assert reply[0] == 0 and bench.client.heard() == []
    bench.operator.say("DEL", NAME)
    assert bench.client.heard() == [([NAME],)]


def test_names_do_not_meet(bench: Bench) -> None:
    names = (b"a\0b", b"\xff\xfe", bytes(range(1, 123)), b"{tag}", b"a{tag}b", b"{a}{b}", b"{", b"tag", b"n", b"z", b"{n}x")
    for number, name in enumerate(names):
        assert bench.request(bench.token(number), name=name) == Granted(bench.base + number, 0, 1)
        assert isinstance(bench.request(bench.token(100 + number), name=name), Denied)
    assert bench.operator.say("DBSIZE") == 4 * len(names)


def test_an_error_leaves_no_key_for_ever(bench: Bench) -> None:
    bench.operator.batch(("HSET", keys(NAME)[1], "no", "number"), ("PEXPIRE", keys(NAME)[1], LONG))
    with pytest.raises(hiredis.ReplyError, match="WRONGTYPE"):
        bench.request(bench.token(1))
    bench.mortal()
    assert about(bench.operator.say("PTTL", NAME), LONG)
