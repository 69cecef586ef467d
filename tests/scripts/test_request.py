"""request.lua, rule by rule (docs/protocol.md, section 5), on simulated and on real servers.

Every test is a function of a bench alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from scripts.bench import FREE, GRAIN, INBOXES, LONG, NAME, SHORT, SLACK, TOP, Bench, Denied, Granted, K, about, keys

# Granting


def test_a_free_name_is_granted_at_once(bench: Bench) -> None:
    token = bench.token(1)
    assert bench.request(token, LONG) == Granted(bench.base + 1, lower=0, fresh=1)
    seen = bench.see()
    assert seen.holder == token and about(seen.holder_left, LONG)
    assert seen.fence == b"%d" % (bench.base + 1)
    assert seen.queue == {} and seen.queue_left == FREE


def test_every_mode_takes_a_free_name(bench: Bench) -> None:
    for ticket, mode in enumerate("wtc", 1):
        name = mode.encode()
        assert bench.request(bench.token(ticket), mode=mode, name=name) == Granted(bench.base + ticket, 0, 1)


def test_a_grant_raises_the_fence_by_one_at_least(bench: Bench) -> None:
    # Rule F1.
    late, early = bench.token(100), bench.token(5)
    assert bench.request(late) == Granted(bench.base + 100, 0, 1)
    bench.release(late)
    assert bench.request(early) == Granted(bench.base + 101, 0, 1)
    assert bench.see().fence == b"%d" % (bench.base + 101)
    bench.release(early)
    assert bench.request(early) == Granted(bench.base + 102, 0, 1)  # equal tokens for two holds would be none


def test_a_grant_of_the_same_proposal_is_above_the_first(bench: Bench) -> None:
    token = bench.token(7)
    bench.request(token)
    bench.release(token)
    assert bench.request(token) == Granted(bench.base + 8, 0, 1)


def test_a_proposal_above_the_fence_is_taken(bench: Bench) -> None:
    first, second = bench.token(1), bench.token(2)
    bench.request(first)
    bench.release(first)
    assert bench.request(second, P=bench.base + 50) == Granted(bench.base + 50, 0, 1)


def test_without_a_record_the_fence_is_at_least_the_clock_floor(bench: Bench) -> None:
    for mode in "wtc":
        name, before = b"floor-" + mode.encode(), bench.now()
        granted = bench.request(bench.token(-bench.base + 5), mode=mode, name=name)  # from a client whose clock says 1970
        assert isinstance(granted, Granted)
        assert before * 1000 - K * 500 <= granted.fence <= (bench.now() + 1) * 1000 - K * 500
        assert int(bench.see(name).fence or 0) == granted.fence


def test_the_clock_floor_is_a_floor_only(bench: Bench) -> None:
    assert bench.request(bench.token(-(10**9) + 10**6)) == Granted(bench.base - 10**9 + 10**6, 0, 1)  # a second ahead of the server


def test_a_fence_that_ran_out_is_below_the_clock_floor(bench: Bench) -> None:
    old = bench.now() * 1000 - (K + 60_000) * 1000
    granted = bench.request(b"%016d:%b:%08x" % (old, INBOXES[0], 1))
    assert isinstance(granted, Granted) and granted.fence > old + 60_000_000
    assert bench.see().fence_left > 0


def test_the_fence_is_kept_for_the_horizon_after_its_time(bench: Bench) -> None:
    token = bench.token(0)
    bench.request(token)
    assert about(bench.see().fence_left, 10**6 + K)  # base is 10**9 us ahead of the server
    early = bench.token(-5)
    bench.release(token)
    bench.request(early)  # by the other path: the fence is a number now, one more than it was
    assert about(bench.see().fence_left, 10**6 + K)


def test_the_floor_is_kept_for_half_the_horizon(bench: Bench) -> None:
    bench.request(bench.token(-bench.base + 5), SHORT)
    assert about(bench.see().fence_left, K // 2)


def ticket(bench: Bench, ago: int) -> int:
    """A ticket from so many milliseconds ago by the server's clock, as `Bench.token` takes it."""
    return (bench.now() - ago) * 1000 - bench.base


def test_the_fence_record_outlives_a_lease(bench: Bench) -> None:
    """The ticket is of now, just above the clock floor, or from long ago; the name is fresh, or had another holder."""
    # Rule F2.
    for ago in (0, K // 2 - 500, 10 * K):
        for known in (False, True):
            name = b"%d %d" % (ago, known)
            if known:
                other = bench.token(ticket(bench, K // 2 - 400))
                bench.request(other, SHORT, name=name)
                bench.release(other, name=name)
            assert isinstance(bench.request(bench.token(ticket(bench, ago)), 2 * K, clock=bench.now() * 1000, name=name), Granted)
            seen = bench.see(name)
            assert seen.fence_left >= seen.holder_left > K
            assert seen.fence_left <= 2 * K, "and is gone before a guard is over"


def test_the_fence_record_outlives_a_third_of_a_lease_at_no_cost(bench: Bench) -> None:
    """As long as the client's clock is within half the horizon of the server's; the next renewal then keeps it."""
    for off in (-K // 2, 0, K // 2):
        name = b"%d" % off
        token = bench.token(ticket(bench, -off))
        bench.request(token, K * 3 // 4, clock=(bench.now() + off) * 1000, name=name)
        assert K * 2 // 3 < bench.see(name).fence_left < 2 * K
        bench.release(token, name=name)
        bench.operator.say("SET", keys(name)[1], token[:16], "PX", K // 8)
        later = bench.token(ticket(bench, K))
        assert bench.request(later, K * 3 // 4, clock=bench.now() * 1000, name=name) == Granted(int(token[:16]) + 1, 0, 1)
        assert K * 2 // 3 < bench.see(name).fence_left < 2 * K


def test_the_fence_record_outlives_the_lease_of_a_claim_that_waited_for_long(bench: Bench) -> None:
    """The name is free, a record that was kept for an earlier lease is there, and the ticket is above it but long over."""
    other, late = bench.token(ticket(bench, 4 * K)), bench.token(ticket(bench, 3 * K))
    bench.request(other, LONG)
    bench.operator.say("SET", keys(NAME)[1], other[:16], "PX", LONG)
    bench.release(other)
    assert bench.request(late, 2 * K, clock=bench.now() * 1000) == Granted(int(late[:16]), 0, 1)
    seen = bench.see()
    assert seen.fence_left >= seen.holder_left > K


def test_the_fence_record_outlives_a_lease_that_was_waited_for(bench: Bench) -> None:
    bench.connect(INBOXES[0])
    for path in ("handed on", "taken by a try", "taken as its own"):
        name = path.encode()
        waiter = bench.token(ticket(bench, 10 * K))
        holder = bench.token(-bench.base + 1)
        bench.request(holder, name=name)
        if path != "taken by a try":
            bench.request(waiter, 2 * K, name=name)
        bench.operator.say("DEL", keys(name)[1])
        if path == "handed on":
            bench.release(holder, name=name)
        else:
            bench.operator.say("DEL", name)
            bench.operator.say("ZADD", keys(name)[2], b"1", bench.token(-bench.base + 3))  # a waiter without a deadline has lapsed
            bench.operator.say("PEXPIRE", keys(name)[2], LONG)
            assert isinstance(bench.request(waiter, 2 * K, "t" if path == "taken by a try" else "w", name=name), Granted)
        seen = bench.see(name)
        assert seen.holder == waiter
        assert seen.fence_left + GRAIN >= seen.holder_left > K, path


def test_a_renewal_keeps_the_fence_record(bench: Bench) -> None:
    token = bench.token(0)
    fence = bench.request(token, K)
    for left in (K // 2 - 1000, K * 3 // 2):
        bench.operator.say("PEXPIRE", keys(NAME)[1], left)
        bench.operator.say("PEXPIRE", NAME, K // 4)
        assert bench.request(token, K // 2) == Granted(fence[0], 0, 0)
        assert about(bench.see().fence_left, K * 3 // 2), "by the horizon longer than the lease: the next renewals find it long enough"
    bench.request(token, K * 7 // 4)
    assert about(bench.see().fence_left, 2 * K), "but not for longer than a guard"
    bench.operator.say("PEXPIRE", keys(NAME)[1], 1000)
    bench.request(token, K // 2)
    assert about(bench.see().fence_left, 2 * K), "for as long as the lease lasts, which an extension has made longer"


def test_a_renewal_that_raises_the_fence_keeps_its_record(bench: Bench) -> None:
    token = bench.token(ticket(bench, 6 * K))
    bench.request(token, 2 * K)
    for ago in (5 * K, 4 * K):
        bench.operator.say("SET", keys(NAME)[1], b"%016d" % (bench.base + ticket(bench, 6 * K)), "PX", LONG)
        raised = bench.base + ticket(bench, ago)
        assert bench.request(token, 2 * K, P=raised) == Granted(raised, 0, 0)
        assert about(bench.see().fence_left, 2 * K) and about(bench.see().holder_left, 2 * K)


def test_round_fences_and_times_stay_numbers(bench: Bench) -> None:
    """Redis 7.2.0 to 7.2.4 write a number that a script hands to a command as 1.9e+15, if nobody prevents it (redis#13113)."""
    # Rule K6.
    listener = bench.connect(INBOXES[1])
    for fence in (2 * 10**15, 19 * 10**14, 1950 * 10**12):
        for horizon in (K, 10**8):
            name = b"%d-%d" % (fence, horizon)
            given: dict[str, Any] = {"K": horizon, "name": name}
            below, low, high = (b"%016d:%b:%08x" % (ticket, INBOXES[1], 1) for ticket in (fence - 1, fence - 9, fence))
            bench.request(below, **given)
            bench.release(below, **given)
            assert bench.request(low, **given) == Granted(fence, 0, 1)
            assert bench.see(name).fence == b"%d" % fence
            assert bench.request(low, **given) == Granted(fence, 0, 0)
            bench.release(low, **given)
            assert bench.request(low, **given) == Granted(fence + 1, 0, 1)
            bench.operator.say("DEL", keys(name)[1])
            bench.request(high, 2 * 10**8, **given)
            bench.operator.say("DEL", name)
            bench.request(low, mode="t", **given)  # which promotes the other
            assert listener.heard() == [(INBOXES[1], b"g %b %d %b" % (high, fence, name))]
            assert bench.see(name).fence == b"%d" % fence
            assert about(bench.see(name).holder_left, min(2 * horizon, 2 * 10**8))


def test_a_day_s_lease_is_renewed(bench: Bench) -> None:
    day = 10**8  # ms, and one more that would be written 1e+8
    token, waiter = bench.token(1), bench.token(2)
    bench.request(token, 1000)
    bench.request(token, day)
    assert about(bench.see().holder_left, day)
    bench.operator.say("PEXPIRE", keys(NAME)[1], 1000)
    bench.request(token, day, K=day)
    assert about(bench.see().fence_left, 2 * day)
    bench.request(waiter, day)
    assert about(bench.see().queue_left, day)
    bench.release(token)
    bench.release(waiter)
    bench.operator.say("ZADD", keys(NAME)[2], b"1", bench.token(3))  # a waiter without a deadline has lapsed
    bench.operator.say("PEXPIRE", keys(NAME)[2], LONG)
    bench.request(token, day, "t")
    assert about(bench.see().holder_left, day)


def test_tickets_and_fences_are_exact_up_to_the_last(bench: Bench) -> None:
    last = b"%016d:%b:%08x" % (TOP - 1, INBOXES[0], 1)
    almost = b"%016d:%b:%08x" % (TOP - 2, INBOXES[1], 1)
    listener = bench.connect(INBOXES[0])
    assert bench.request(almost) == Granted(TOP - 2, 0, 1)
    bench.request(last)
    assert bench.see().queue[last].score == TOP - 1
    bench.release(almost)
    assert listener.heard() == [(INBOXES[0], b"g %b %d n" % (last, TOP - 1))]
    assert bench.see().fence == b"%d" % (TOP - 1)
    assert bench.request(last) == Granted(TOP - 1, 0, 0)
    bench.release(last)
    assert bench.request(almost) == Granted(TOP, 0, 1)
    assert bench.see().fence == b"%d" % TOP


def test_fences_one_apart_are_told_apart_at_the_top(bench: Bench) -> None:
    token = b"%016d:%b:%08x" % (TOP - 3, INBOXES[0], 1)
    assert bench.request(token) == Granted(TOP - 3, 0, 1)
    assert bench.request(token, P=TOP - 2) == Granted(TOP - 2, 0, 0)
    assert bench.request(token, P=TOP - 3) == Granted(TOP - 2, 0, 0)


# Held already: renewal, write-back


def test_asking_again_renews(bench: Bench) -> None:
    # Rule C7.
    token = bench.token(1)
    bench.request(token, 20_000)
    for mode in "wtck":
        assert bench.request(token, LONG, mode) == Granted(bench.base + 1, 0, fresh=0)
        assert about(bench.see().holder_left, LONG)
        assert bench.see().queue == {}
        bench.operator.say("PEXPIRE", NAME, 20_000)


def test_a_renewal_never_moves_the_expiry_back(bench: Bench) -> None:
    # Rule K5.
    token = bench.token(1)
    bench.request(token, LONG)
    for mode in "wtck":
        assert bench.request(token, 1000, mode) == Granted(bench.base + 1, 0, 0)
        assert about(bench.see().holder_left, LONG)


def test_a_holder_s_key_without_an_expiry_gets_one(bench: Bench) -> None:
    token = bench.token(1)
    bench.operator.say("SET", NAME, token)
    assert isinstance(bench.request(token, LONG), Granted)
    assert about(bench.see().holder_left, LONG)


def test_writing_back_raises_the_fence(bench: Bench) -> None:
    token = bench.token(1)
    bench.request(token)
    assert bench.request(token, P=bench.base + 9) == Granted(bench.base + 9, 0, 0)
    seen = bench.see()
    assert seen.fence == b"%d" % (bench.base + 9) and about(seen.fence_left, 10**6 + K)


def test_a_late_write_back_does_not_lower_the_fence(bench: Bench) -> None:
    token = bench.token(1)
    bench.request(token)
    bench.request(token, P=bench.base + 9)
    assert bench.request(token, P=bench.base + 4) == Granted(bench.base + 9, 0, 0)
    assert bench.see().fence == b"%d" % (bench.base + 9)


def test_a_renewal_restores_a_fence_that_was_lost(bench: Bench) -> None:
    token = bench.token(1)
    bench.request(token)
    bench.operator.say("DEL", keys(NAME)[1])
    assert bench.request(token, P=bench.base + 3) == Granted(bench.base + 3, 0, 0)
    bench.operator.say("DEL", keys(NAME)[1])
    floor = bench.now() * 1000 - K * 500 - 1
    granted = bench.request(token, P=5)
    assert isinstance(granted, Granted) and floor <= granted.fence < bench.base
    assert int(bench.see().fence or 0) == granted.fence
    # A holder's own fence does not rise, which would look like a grant.
    bench.operator.say("DEL", keys(NAME)[1])
    assert bench.request(token, P=5, mode="k") == Granted(5, 0, 0)


def test_a_denial_tells_the_fence(bench: Bench) -> None:
    """Rule F11."""
    bench.request(bench.token(1), P=bench.base + 7)
    denied = bench.request(bench.token(2))
    assert isinstance(denied, Denied) and denied.fence == bench.base + 7
    bench.operator.say("DEL", keys(NAME)[1])
    denied = bench.request(bench.token(3), mode="t")
    assert isinstance(denied, Denied) and denied.fence == 0


def somebody(bench: Bench, ticket: int) -> bytes:
    """A token of this ticket, always the same."""
    return b"%016d:%b:%08x" % (bench.base + ticket, INBOXES[1], 7)


SITUATIONS: dict[str, Callable[[Bench, bytes], object]] = {
    "as usual": lambda bench, name: None,
    "nearly run out": lambda bench, name: bench.operator.say("PEXPIRE", name, LONG // 3),
    "the record runs out before the lease": lambda bench, name: bench.operator.say("PEXPIRE", keys(name)[1], LONG // 3),
    "the record is gone": lambda bench, name: bench.operator.say("DEL", keys(name)[1]),
    "the record is lower": lambda bench, name: bench.operator.say("SET", keys(name)[1], bench.base, "PX", LONG),
    "the record is higher": lambda bench, name: bench.operator.say("SET", keys(name)[1], bench.base + 99, "PX", LONG),
    "a lower ticket waits": lambda bench, name: bench.request(somebody(bench, 1), name=name),
    "a higher ticket waits": lambda bench, name: bench.request(somebody(bench, 9), name=name),
    "the name is free": lambda bench, name: bench.operator.say("DEL", name),
    "another has it": lambda bench, name: bench.operator.say("SET", name, somebody(bench, 7), "PX", LONG),
    "another program has it": lambda bench, name: bench.operator.say("SET", name, b"value", "PX", LONG),
    "an operator took its expiry": lambda bench, name: bench.operator.say("SET", name, bench.see(name).holder or b""),
    "everything is gone": lambda bench, name: bench.operator.say("DEL", *keys(name)),
}


def test_a_renewal_that_expects_to_find_its_token_does_what_any_request_does(bench: Bench) -> None:
    # Rule C8.
    token = bench.token(5)
    for number, happens in enumerate(SITUATIONS.values()):
        for ttl, horizon in ((LONG, K), (LONG // 2, K), (2 * LONG, 2 * K)):
            told, seen = [], []
            for mode in "wk":
                name = b"%d-%d-%s" % (number, ttl, mode.encode())
                bench.request(token, LONG, name=name)
                happens(bench, name)
                told.append(bench.request(token, ttl, mode, K=horizon, name=name))
                seen.append(bench.see(name))
            one, other = told
            if isinstance(one, Denied) and isinstance(other, Denied):
                assert (one.place, one.holder) == (other.place, other.holder)
            else:
                assert one == other
            assert seen[0].timeless == seen[1].timeless
            for left in ("holder_left", "fence_left", "queue_left", "waiters_left"):
                assert abs(getattr(seen[0], left) - getattr(seen[1], left)) < SLACK, left


def test_a_holder_is_told_of_a_lower_ticket(bench: Bench) -> None:
    lower, holder, higher = bench.token(1), bench.token(2), bench.token(3)
    bench.request(holder)
    bench.request(higher)
    assert bench.request(holder) == Granted(bench.base + 2, lower=0, fresh=0)
    bench.request(lower)
    for mode in "wtk":
        assert bench.request(holder, mode=mode) == Granted(bench.base + 2, lower=1, fresh=0)


def test_of_equal_tickets_the_lower_token_is_lower(bench: Bench) -> None:
    lower, holder = bench.token(1, INBOXES[0]), bench.token(1, INBOXES[1])
    bench.request(holder)
    bench.request(lower)
    assert bench.request(holder) == Granted(bench.base + 1, lower=1, fresh=0)


# Waiting


def test_who_comes_second_waits(bench: Bench) -> None:
    holder, waiter = bench.token(1), bench.token(2)
    bench.request(holder, LONG)
    for mode in "wc":
        denied = bench.request(waiter, 20_000, mode)
        assert isinstance(denied, Denied)
        assert about(denied.pttl, LONG) and denied.place == 0 and denied.holder == holder
    seen = bench.see()
    assert seen.holder == holder and seen.fence == b"%d" % (bench.base + 1)
    assert list(seen.queue) == [waiter] and seen.queue[waiter].score == bench.base + 2
    assert about(seen.queue[waiter].left, 20_000) and about(seen.queue_left, 20_000) and about(seen.waiters_left, 20_000)


def test_waiters_stand_in_the_order_of_their_tickets_and_then_of_their_tokens(bench: Bench) -> None:
    # Rule Q1.
    bench.request(bench.token(0))
    fourth, second, third, first = bench.token(9), bench.token(5, INBOXES[1]), bench.token(5, INBOXES[2]), bench.token(5, INBOXES[0])
    places = [bench.request(token) for token in (fourth, third, second, first)]
    assert [denied.place for denied in places if isinstance(denied, Denied)] == [0, 0, 0, 0]
    assert list(bench.see().queue) == [first, second, third, fourth]
    again = [bench.request(token) for token in (first, second, third, fourth)]
    assert [denied.place for denied in again if isinstance(denied, Denied)] == [0, 1, 2, 3]


def test_a_heartbeat_moves_a_waiter_s_deadline_forward(bench: Bench) -> None:
    waiter = bench.token(2)
    bench.request(bench.token(1))
    bench.request(waiter, 20_000)
    bench.request(waiter, LONG)
    seen = bench.see()
    assert about(seen.queue[waiter].left, LONG) and about(seen.queue_left, LONG) and about(seen.waiters_left, LONG)


def test_a_late_request_moves_neither_a_waiter_s_deadline_nor_an_expiry_back(bench: Bench) -> None:
    # Rule Q5.
    waiter, other = bench.token(2), bench.token(3)
    bench.request(bench.token(1))
    bench.request(waiter, LONG)
    for mode in "wc":
        bench.request(waiter, 1000, mode)
        bench.request(other, 1000, mode)
    seen = bench.see()
    assert about(seen.queue[waiter].left, LONG) and about(seen.queue[other].left, 1000)
    assert about(seen.queue_left, LONG) and about(seen.waiters_left, LONG)


def test_a_deadline_that_is_lost_is_made_anew(bench: Bench) -> None:
    """With one of the two keys deleted by hand, the other one's expiry says nothing about it."""
    bench.request(bench.token(1))
    for lost, kept in ((2, 3), (3, 2)):
        waiter = bench.token(lost)
        bench.request(waiter, LONG)
        bench.operator.say("DEL", keys(NAME)[lost])
        bench.request(waiter, 20_000)  # (the bench sees that no key is without an expiry)
        assert about(bench.operator.say("PTTL", keys(NAME)[lost]), 20_000)
        assert about(bench.operator.say("PTTL", keys(NAME)[kept]), LONG)
        bench.release(waiter)


def test_a_waiter_that_is_not_first_does_not_take_a_free_name(bench: Bench) -> None:
    # Rule Q2.
    first, second = bench.token(2, INBOXES[1]), bench.token(3)
    listener = bench.connect(INBOXES[1])
    bench.request(bench.token(1))
    bench.request(first)
    bench.operator.say("DEL", NAME)  # as a lease that runs out, or a foreign client that goes
    denied = bench.request(second)
    assert isinstance(denied, Denied) and denied.holder == first and denied.place == 0 and about(denied.pttl, LONG)
    assert listener.heard() == [(INBOXES[1], b"g %b %d n" % (first, bench.base + 2))]
    assert list(bench.see().queue) == [second]


def test_a_newcomer_with_the_lowest_ticket_takes_a_free_name_before_those_who_wait(bench: Bench) -> None:
    waiter, newcomer = bench.token(5, INBOXES[1]), bench.token(2)
    listener = bench.connect(INBOXES[1])
    bench.request(bench.token(1))
    bench.request(waiter)
    bench.operator.say("DEL", NAME)
    assert bench.request(newcomer, LONG) == Granted(bench.base + 2, lower=0, fresh=1)
    seen = bench.see()
    assert seen.holder == newcomer and list(seen.queue) == [waiter] and about(seen.holder_left, LONG)
    assert listener.heard() == []


def test_who_waited_and_finds_the_name_free_takes_it(bench: Bench) -> None:
    waiter = bench.token(2)
    bench.request(bench.token(1))
    bench.request(waiter, 20_000)
    bench.operator.say("DEL", NAME)
    assert bench.request(waiter, LONG, P=bench.base + 30) == Granted(bench.base + 30, lower=0, fresh=1)
    seen = bench.see()
    assert seen.holder == waiter and about(seen.holder_left, LONG) and seen.queue == {}
    assert seen.fence == b"%d" % (bench.base + 30)


def test_a_lapsed_holder_is_followed_with_a_higher_fence(bench: Bench) -> None:
    holder = bench.token(9)
    bench.request(holder, SHORT)
    bench.lapse()
    assert bench.request(bench.token(1)) == Granted(bench.base + 10, 0, 1)
    assert isinstance(bench.request(holder), Denied)


def test_a_holder_that_lapsed_and_takes_its_node_back_gets_a_higher_fence(bench: Bench) -> None:
    holder = bench.token(9)
    bench.request(holder, SHORT)
    bench.lapse()
    assert bench.request(holder) == Granted(bench.base + 10, 0, fresh=1)
