"""request.lua on names that somebody waits for or has: who is promoted, asked, ceded to, tried past; on simulated and on real servers.

Every test is a function of a bench alone.
"""

from __future__ import annotations

import hiredis
import pytest
from scripts.bench import FREE, INBOXES, LONG, NAME, SHORT, Bench, Denied, Granted, K, about, keys

# Promoting: what `request` does on a free name that somebody waits for


def waiting(bench: Bench, *leases: tuple[int, int, int], holder: int = 0) -> list[bytes]:
    """Waiters, as (ticket, inbox, ttl), on a name that is free again."""
    bench.request(bench.token(holder, INBOXES[3]))
    tokens = [bench.token(ticket, INBOXES[inbox]) for ticket, inbox, _ in leases]
    for token, (_, _, ttl) in zip(tokens, leases, strict=True):
        bench.request(token, ttl)
    bench.operator.say("DEL", NAME)
    bench.lapse()
    return tokens


def test_the_lapsed_and_the_deaf_are_passed_over(bench: Bench) -> None:
    listener = bench.connect(INBOXES[0], INBOXES[2])
    lapsed, deaf, first, second = waiting(bench, (1, 0, SHORT), (2, 1, LONG), (3, 2, LONG), (4, 0, LONG))
    last = bench.token(9)
    denied = bench.request(last)
    assert isinstance(denied, Denied) and denied.holder == first and denied.place == 1
    seen = bench.see()
    assert list(seen.queue) == [second, last] and about(seen.holder_left, LONG)
    # Being granted a moment raised the fence, as it must: the deaf one may have heard.
    assert listener.heard() == [(INBOXES[2], b"g %b %d n" % (first, bench.base + 3))]
    assert lapsed not in seen.queue and deaf not in seen.queue


def test_when_nobody_of_those_who_waited_is_left_the_caller_gets_it(bench: Bench) -> None:
    for mode in "wtc":
        waiting(bench, (11, 0, SHORT), (12, 1, LONG))
        granted = bench.request(bench.token(12, INBOXES[2]), LONG, mode)
        assert granted == Granted(bench.base + 13, lower=0, fresh=1)  # above the 12 that nobody heard of
        assert bench.see().queue == {} and about(bench.see().holder_left, LONG)
        bench.operator.say("FLUSHALL")


def test_a_waiter_that_lapsed_and_asks_again_counts_from_now(bench: Bench) -> None:
    [lapsed] = waiting(bench, (1, 0, SHORT))
    assert bench.request(lapsed, LONG) == Granted(bench.base + 1, 0, 1)
    assert about(bench.see().holder_left, LONG)


def test_a_grant_is_the_rest_of_the_waiter_s_lease(bench: Bench) -> None:
    bench.connect(INBOXES[0])
    waiting(bench, (1, 0, 20_000))
    bench.request(bench.token(9), LONG)
    assert about(bench.see().holder_left, 20_000)


def test_a_grant_never_runs_longer_than_any_lease_may(bench: Bench) -> None:
    """A clock that stepped back leaves deadlines that are too far away."""
    # Rule Q6.
    bench.connect(INBOXES[0])
    waiting(bench, (1, 0, 60 * LONG))
    bench.request(bench.token(9))
    assert about(bench.see().holder_left, 2 * K)


def test_nor_does_the_caller_s_own(bench: Bench) -> None:
    [token] = waiting(bench, (1, 0, 60 * LONG))
    assert isinstance(bench.request(token, 1000), Granted)
    assert about(bench.see().holder_left, 2 * K)


def test_a_pushed_grant_s_fence_is_at_least_the_ticket(bench: Bench) -> None:
    listener = bench.connect(INBOXES[0])
    [token] = waiting(bench, (5, 0, LONG))
    bench.request(bench.token(9), P=bench.base + 90)  # the caller's proposal is for itself alone
    assert listener.heard() == [(INBOXES[0], b"g %b %d n" % (token, bench.base + 5))]
    assert bench.see().fence == b"%d" % (bench.base + 5) and about(bench.see().fence_left, 10**6 + K)


def test_and_above_the_last_fence(bench: Bench) -> None:
    listener = bench.connect(INBOXES[0])
    [token] = waiting(bench, (5, 0, LONG), holder=70)
    bench.request(bench.token(9))
    assert listener.heard() == [(INBOXES[0], b"g %b %d n" % (token, bench.base + 71))]
    assert bench.see().fence == b"%d" % (bench.base + 71)


def test_a_pushed_grant_without_a_record_is_above_the_clock_floor(bench: Bench) -> None:
    listener = bench.connect(INBOXES[0])
    before = bench.now()
    [token] = waiting(bench, (-bench.base + 7, 0, LONG))
    bench.operator.say("DEL", keys(NAME)[1])
    bench.request(bench.token(9))
    [(_, message)] = listener.heard()
    kind, whose, fence, name = message.split()
    assert (kind, whose, name) == (b"g", token, b"n")
    assert before * 1000 - K * 500 <= int(fence) <= bench.now() * 1000 - K * 500
    assert bench.see().fence == fence


def test_a_grant_stands_when_the_server_forbids_to_tell(bench: Bench) -> None:
    """PUBLISH refused (ACL): no reason not to grant; the heartbeat will find it."""
    [token] = waiting(bench, (1, 0, LONG))
    with bench.mute():
        denied = bench.request(bench.token(2))
    assert isinstance(denied, Denied) and denied.holder == token
    assert bench.request(token) == Granted(bench.base + 1, 0, fresh=0)


def test_a_waiter_whose_connection_has_gone_is_deaf(bench: Bench) -> None:
    # Rule Q4.
    listener = bench.connect(INBOXES[0])
    waiting(bench, (1, 0, LONG))
    listener.close()
    bench.operator.say("PING")
    bench.settle(lambda: bench.operator.say("PUBLISH", INBOXES[0], "anybody?") == 0)
    assert isinstance(bench.request(bench.token(2)), Granted)


# Inquiries


def test_a_new_lower_ticket_asks_the_holder_to_make_way(bench: Bench) -> None:
    # Rule Q7.
    listener = bench.connect(INBOXES[1])
    holder = bench.token(5, INBOXES[1])
    bench.request(holder)
    bench.request(bench.token(3))
    assert listener.heard() == [(INBOXES[1], b"i %b 0 n" % holder)]
    bench.request(bench.token(4), mode="c")  # lower than the holder, though not the lowest
    assert listener.heard() == [(INBOXES[1], b"i %b 0 n" % holder)]


def test_only_once(bench: Bench) -> None:
    listener = bench.connect(INBOXES[1])
    lower = bench.token(3)
    bench.request(bench.token(5, INBOXES[1]))
    bench.request(lower)
    assert len(listener.heard()) == 1
    bench.request(lower)
    bench.request(lower, mode="c")
    assert listener.heard() == []


def test_again_after_it_had_left_the_queue(bench: Bench) -> None:
    listener = bench.connect(INBOXES[1])
    lower = bench.token(3)
    bench.request(bench.token(5, INBOXES[1]))
    bench.request(lower)
    bench.release(lower)
    bench.request(lower)
    assert len(listener.heard()) == 2


def test_a_higher_ticket_and_a_try_ask_nothing(bench: Bench) -> None:
    listener = bench.connect(INBOXES[1])
    bench.request(bench.token(5, INBOXES[1]))
    bench.request(bench.token(6))
    bench.request(bench.token(3), mode="t")
    assert listener.heard() == []


def test_nobody_asks_a_holder_that_is_not_one_of_ours(bench: Bench) -> None:
    reader = b"%016d:%b:%08x:r" % (bench.base + 5, INBOXES[1], 1)
    for foreign in (b"z" * 58, reader, b"%016d:" % (bench.base + 5) + b"z" * 41):
        listener = bench.connect(foreign[17:49])
        bench.operator.say("SET", NAME, foreign, "PX", LONG)
        assert isinstance(bench.request(bench.token(3)), Denied)
        assert listener.heard() == []


def test_an_inquiry_that_the_server_forbids_changes_nothing(bench: Bench) -> None:
    holder = bench.token(5)
    bench.request(holder)
    with bench.mute():
        denied = bench.request(bench.token(3))
    assert isinstance(denied, Denied) and denied.holder == holder and denied.place == 0


# Ceding


def test_a_holder_cedes_to_the_lowest_ticket(bench: Bench) -> None:
    listener = bench.connect(INBOXES[1])
    lower, holder = bench.token(3, INBOXES[1]), bench.token(5)
    bench.request(holder)
    bench.request(lower, 20_000)
    denied = bench.request(holder, LONG, "c")
    assert isinstance(denied, Denied)
    assert denied.holder == lower and denied.place == 0 and about(denied.pttl, 20_000)
    assert listener.heard() == [(INBOXES[1], b"g %b %d n" % (lower, bench.base + 6))]
    seen = bench.see()
    assert seen.holder == lower and seen.fence == b"%d" % (bench.base + 6)
    assert list(seen.queue) == [holder] and about(seen.queue[holder].left, LONG) and about(seen.queue_left, LONG)


def test_it_stands_behind_all_that_are_lower(bench: Bench) -> None:
    bench.connect(INBOXES[1])
    first, second, holder = bench.token(3, INBOXES[1]), bench.token(4), bench.token(5)
    bench.request(holder)
    bench.request(second)
    bench.request(first)
    denied = bench.request(holder, mode="c")
    assert isinstance(denied, Denied) and denied.holder == first and denied.place == 1


def test_with_nobody_lower_a_cede_renews(bench: Bench) -> None:
    holder, higher = bench.token(5), bench.token(6)
    bench.request(holder, 20_000)
    bench.request(higher)
    assert bench.request(holder, LONG, "c") == Granted(bench.base + 5, lower=0, fresh=0)
    seen = bench.see()
    assert seen.holder == holder and about(seen.holder_left, LONG) and list(seen.queue) == [higher]


def test_when_the_lower_ones_are_gone_a_cede_takes_the_node_back_as_a_new_grant(bench: Bench) -> None:
    holder = bench.token(5)
    bench.request(holder)
    bench.request(bench.token(3), SHORT)
    bench.request(bench.token(4, INBOXES[1]))  # deaf
    bench.lapse()
    assert bench.request(holder, LONG, "c", P=bench.base + 40) == Granted(bench.base + 40, lower=0, fresh=1)
    seen = bench.see()
    assert seen.holder == holder and seen.queue == {} and about(seen.holder_left, LONG)
    assert seen.fence == b"%d" % (bench.base + 40)


def test_a_cede_said_twice_is_ceded_once(bench: Bench) -> None:
    bench.connect(INBOXES[1])
    lower, holder = bench.token(3, INBOXES[1]), bench.token(5)
    bench.request(holder)
    bench.request(lower)
    once = bench.request(holder, mode="c")
    before = bench.see().timeless
    assert isinstance(once, Denied)
    again = bench.request(holder, mode="c")
    assert isinstance(again, Denied) and again[1:] == once[1:]
    assert bench.see().timeless == before


def test_a_cede_that_comes_late_does_not_cede_for_another(bench: Bench) -> None:
    bench.connect(INBOXES[1])
    ceded, holder = bench.token(3), bench.token(5, INBOXES[1])
    bench.request(holder)
    denied = bench.request(ceded, mode="c")
    assert isinstance(denied, Denied) and denied.holder == holder


# Trying


def test_a_try_that_is_denied_leaves_nothing(bench: Bench) -> None:
    holder = bench.token(5)
    bench.request(holder)
    before = bench.see().timeless
    denied = bench.request(bench.token(3), mode="t")
    assert isinstance(denied, Denied) and denied.place == -1 and denied.holder == holder and about(denied.pttl, LONG)
    assert bench.see().timeless == before and bench.see().queue_left == FREE


def test_a_try_never_passes_a_live_waiter(bench: Bench) -> None:
    listener = bench.connect(INBOXES[0])
    [waiter] = waiting(bench, (9, 0, LONG))
    denied = bench.request(bench.token(3), mode="t")  # though its ticket is lower
    assert isinstance(denied, Denied) and denied.holder == waiter and denied.place == -1
    assert listener.heard() == [(INBOXES[0], b"g %b %d n" % (waiter, bench.base + 9))]
    assert bench.see().queue == {}


def test_a_try_takes_its_own_place_in_the_queue(bench: Bench) -> None:
    """It can have one by a late command only."""
    [token] = waiting(bench, (1, 0, LONG))
    assert bench.request(token, mode="t", P=bench.base + 4) == Granted(bench.base + 4, lower=0, fresh=1)
    assert bench.see().queue == {}


def test_a_try_tells_its_own_place_if_it_has_one(bench: Bench) -> None:
    first, token = bench.token(1), bench.token(2)
    bench.request(bench.token(0))
    bench.request(first)
    bench.request(token)
    denied = bench.request(token, mode="t")
    assert isinstance(denied, Denied) and denied.place == 1


# Holders that are not ours: plain Redlock


def test_a_foreign_holder_is_named_by_its_first_64_bytes(bench: Bench) -> None:
    for value, told in ((b"7f3a", b"7f3a"), (b"", b""), (b"\0\r\n%s\xff", b"\0\r\n%s\xff"), (bytes(range(100)), bytes(range(64)))):
        bench.operator.say("SET", NAME, value, "PX", LONG)
        for mode in "wtc":
            denied = bench.request(bench.token(1), mode=mode)
            assert isinstance(denied, Denied) and denied.holder == told and about(denied.pttl, LONG)


def test_one_without_an_expiry_is_waited_for(bench: Bench) -> None:
    bench.operator.say("SET", NAME, "for ever")
    bench.eternal.add(NAME)
    denied = bench.request(bench.token(1))
    assert isinstance(denied, Denied) and denied.pttl == -1 and denied.place == 0


def test_plain_redlock_is_kept_out_while_we_hold(bench: Bench) -> None:
    token = bench.token(1)
    bench.request(token)
    assert bench.operator.say("SET", NAME, "foreign", "NX", "PX", LONG) is None
    compare_and_delete = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end"
    assert bench.operator.say("EVAL", compare_and_delete, 1, NAME, "foreign") == 0
    assert bench.see().holder == token
    bench.release(token)
    assert bench.operator.say("SET", NAME, "foreign", "NX", "PX", LONG) == b"OK"
    assert isinstance(bench.request(token), Denied)
    assert bench.operator.say("EVAL", compare_and_delete, 1, NAME, "foreign") == 1
    assert isinstance(bench.request(token), Granted)


def test_who_tracks_the_name_of_a_foreign_holder_hears_when_it_goes(bench: Bench) -> None:
    bench.operator.say("SET", NAME, "foreign", "PX", LONG)
    bench.client.say("CLIENT", "TRACKING", "ON", "OPTIN", "NOLOOP")
    _, reply = bench.client.batch(("CLIENT", "CACHING", "YES"), bench.words(bench.token(1)))
    assert reply[0] == 0 and bench.client.heard() == []
    bench.operator.say("DEL", NAME)
    assert bench.client.heard() == [([NAME],)]


# Names


NAMES = (b"a\0b", b"100%s %d", bytes(range(1, 123)), b"\xff\xfe", b"{tag}", b"a{tag}b", b"{a}{b}", b"{", b"spaces and\r\nlines")


def test_any_bytes_are_a_name(bench: Bench) -> None:
    listener = bench.connect(INBOXES[1], INBOXES[2])
    for name in NAMES:
        holder, lower = bench.token(5, INBOXES[1]), bench.token(3, INBOXES[2])
        assert bench.request(holder, name=name) == Granted(bench.base + 5, 0, 1)
        assert isinstance(bench.request(lower, name=name), Denied)
        assert listener.heard() == [(INBOXES[1], b"i %b 0 %b" % (holder, name))]
        bench.request(holder, name=name, mode="c")
        assert listener.heard() == [(INBOXES[2], b"g %b %d %b" % (lower, bench.base + 6, name))]
        assert bench.see(name).holder == lower
        assert list(bench.see(name).queue) == [holder]


def test_names_do_not_meet(bench: Bench) -> None:
    names = (*NAMES, b"tag", b"n", b"z", b"{n}x")
    for number, name in enumerate(names):
        assert bench.request(bench.token(number), name=name) == Granted(bench.base + number, 0, 1)
        assert isinstance(bench.request(bench.token(100 + number), name=name), Denied)
    assert bench.operator.say("DBSIZE") == 4 * len(names)


# Saying it twice


def test_saying_it_twice_changes_nothing_more(bench: Bench) -> None:
    bench.connect(*INBOXES)
    for mode in "wtc":
        name = mode.encode()
        holder, waiter = bench.token(5), bench.token(3)
        for token in (holder, waiter):
            first = bench.request(token, mode=mode, name=name)
            before = bench.see(name).timeless
            second = bench.request(token, mode=mode, name=name)
            assert bench.see(name).timeless == before
            if isinstance(first, Granted):
                assert second == first._replace(fresh=0)
            else:
                assert isinstance(second, Denied) and second[1:] == first[1:]


def test_an_error_leaves_no_key_for_ever(bench: Bench) -> None:
    bench.operator.batch(("HSET", keys(NAME)[1], "no", "number"), ("PEXPIRE", keys(NAME)[1], LONG))
    with pytest.raises(hiredis.ReplyError, match="WRONGTYPE"):
        bench.request(bench.token(1))
    bench.mortal()
    assert about(bench.operator.say("PTTL", NAME), LONG)
