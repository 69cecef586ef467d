"""release.lua, rule by rule (docs/protocol.md, section 5), on simulated and on real servers.

Every test is a function of a bench alone.
"""

from __future__ import annotations

from scripts.bench import FREE, INBOXES, LONG, NAME, SHORT, TOP, Bench, Granted, K, about, keys


def contended(bench: Bench, *leases: tuple[int, int, int], ticket: int = 0) -> tuple[bytes, list[bytes]]:
    """A holder, and who waits for it, as (ticket, inbox, ttl); SHORT ones have lapsed."""
    holder = bench.token(ticket, INBOXES[3])
    bench.request(holder)
    tokens = [bench.token(ticket, INBOXES[inbox]) for ticket, inbox, _ in leases]
    for token, (_, _, ttl) in zip(tokens, leases, strict=True):
        bench.request(token, ttl)
    bench.lapse()
    return holder, tokens


def test_it_frees_the_name_and_keeps_the_fence(bench: Bench) -> None:
    token = bench.token(1)
    bench.request(token, K // 2)
    assert bench.release(token) == 1
    seen = bench.see()
    assert seen.holder is None and seen.fence == b"%d" % (bench.base + 1) and about(seen.fence_left, 10**6 + K)


def test_the_second_time_it_does_nothing(bench: Bench) -> None:
    token = bench.token(1)
    bench.request(token)
    bench.release(token)
    before = bench.see().timeless
    assert bench.release(token) == 0
    assert bench.see().timeless == before


def test_of_a_name_that_nobody_ever_had_it_does_nothing(bench: Bench) -> None:
    assert bench.release(bench.token(1)) == 0
    assert bench.operator.say("DBSIZE") == 0


def test_another_s_token_is_left_alone(bench: Bench) -> None:
    # Rule Q16.
    holder, [waiter] = contended(bench, (2, 0, LONG))
    before = bench.see().timeless
    for stranger in (bench.token(0), bench.token(2), holder[:-1], holder + b"0", b""):
        assert bench.release(stranger) == 0
    assert bench.see().timeless == before
    assert bench.request(holder) == Granted(bench.base, 0, 0)
    assert list(bench.see().queue) == [waiter]


def test_a_foreign_holder_is_left_alone(bench: Bench) -> None:
    bench.operator.say("SET", NAME, "foreign", "PX", LONG)
    assert bench.release(bench.token(1)) == 0
    assert bench.see().holder == b"foreign"


def test_a_waiter_is_cancelled(bench: Bench) -> None:
    holder, [first, second] = contended(bench, (1, 0, LONG), (2, 0, LONG))
    assert bench.release(first) == 0
    seen = bench.see()
    assert seen.holder == holder and list(seen.queue) == [second]
    assert bench.release(second) == 0
    assert bench.see().queue_left == bench.see().waiters_left == FREE


def test_a_cancelled_waiter_is_not_granted_later(bench: Bench) -> None:
    listener = bench.connect(INBOXES[0])
    holder, [waiter] = contended(bench, (1, 0, LONG))
    bench.release(waiter)
    bench.release(holder)
    assert bench.see().holder is None and listener.heard() == []


def test_who_holds_and_also_waits_does_neither_any_more(bench: Bench) -> None:
    """A late command can have queued it again."""
    holder, [other] = contended(bench, (1, 1, LONG), ticket=5)
    listener = bench.connect(INBOXES[3])
    bench.operator.batch(("ZADD", keys(NAME)[2], holder[:16], holder), ("HSET", keys(NAME)[3], holder, bench.now() + LONG))
    bench.release(other)
    assert bench.release(holder) == 1
    assert bench.see().holder is None and bench.see().queue == {} and listener.heard() == []


def test_the_lock_is_handed_to_the_lowest_ticket(bench: Bench) -> None:
    # Rule Q3.
    listener = bench.connect(INBOXES[0], INBOXES[1])
    holder, [second, first] = contended(bench, (7, 0, LONG), (5, 1, 20_000))
    assert bench.release(holder) == 1
    assert listener.heard() == [(INBOXES[1], b"g %b %d n" % (first, bench.base + 5))]
    seen = bench.see()
    assert seen.holder == first and about(seen.holder_left, 20_000)
    assert seen.fence == b"%d" % (bench.base + 5) and about(seen.fence_left, 10**6 + K)
    assert list(seen.queue) == [second]


def test_and_of_equal_tickets_to_the_lowest_token(bench: Bench) -> None:
    listener = bench.connect(INBOXES[0], INBOXES[1])
    holder, [_, first] = contended(bench, (5, 1, LONG), (5, 0, LONG))
    bench.release(holder)
    assert listener.heard() == [(INBOXES[0], b"g %b %d n" % (first, bench.base + 5))]


def test_the_new_holder_finds_that_it_holds(bench: Bench) -> None:
    bench.connect(INBOXES[0])
    holder, [waiter] = contended(bench, (5, 0, LONG))
    bench.release(holder)
    assert bench.request(waiter) == Granted(bench.base + 5, lower=0, fresh=0)


def test_handing_on_raises_the_fence(bench: Bench) -> None:
    listener = bench.connect(INBOXES[0])
    holder, [waiter] = contended(bench, (5, 0, LONG), ticket=70)
    bench.release(holder)
    assert listener.heard() == [(INBOXES[0], b"g %b %d n" % (waiter, bench.base + 71))]
    assert bench.see().fence == b"%d" % (bench.base + 71)


def test_without_a_record_the_fence_is_at_least_the_clock_floor(bench: Bench) -> None:
    listener = bench.connect(INBOXES[0])
    holder, [waiter] = contended(bench, (-bench.base + 7, 0, LONG))
    bench.operator.say("DEL", keys(NAME)[1])
    before = bench.now()
    bench.release(holder)
    [(_, message)] = listener.heard()
    fence = message.split()[2]
    assert message == b"g %b %b n" % (waiter, fence)
    assert before * 1000 - K * 500 <= int(fence) <= bench.now() * 1000 - K * 500
    assert bench.see().fence == fence and about(bench.see().fence_left, LONG), "the record outlives the lease"


def test_the_lapsed_and_the_deaf_are_passed_over(bench: Bench) -> None:
    listener = bench.connect(INBOXES[0], INBOXES[2])
    holder, [_, _, first, second] = contended(bench, (1, 0, SHORT), (2, 1, LONG), (3, 2, LONG), (4, 0, LONG))
    bench.release(holder)
    assert listener.heard() == [(INBOXES[2], b"g %b %d n" % (first, bench.base + 3))]
    assert bench.see().holder == first and list(bench.see().queue) == [second]


def test_if_nobody_is_left_the_name_is_free(bench: Bench) -> None:
    holder, _ = contended(bench, (1, 0, SHORT), (2, 1, LONG), (3, 2, LONG))
    assert bench.release(holder) == 1
    seen = bench.see()
    assert seen.holder is None and seen.queue_left == seen.waiters_left == FREE
    assert seen.fence == b"%d" % (bench.base + 3)  # the deaf may have heard: nobody gets these again


def test_a_waiter_without_a_deadline_has_lapsed(bench: Bench) -> None:
    listener = bench.connect(INBOXES[0])
    holder, _ = contended(bench, (1, 0, LONG))
    bench.operator.say("DEL", keys(NAME)[3])
    bench.release(holder)
    assert listener.heard() == [] and bench.see().holder is None


def test_a_grant_never_runs_longer_than_any_lease_may(bench: Bench) -> None:
    """A clock that stepped back leaves deadlines that are too far away."""
    bench.connect(INBOXES[0])
    holder, _ = contended(bench, (1, 0, 60 * LONG))
    bench.release(holder)
    assert about(bench.see().holder_left, 2 * K)


def test_a_grant_stands_when_the_server_forbids_to_tell(bench: Bench) -> None:
    holder, [waiter] = contended(bench, (5, 0, LONG))
    with bench.mute():
        assert bench.release(holder) == 1
    assert bench.request(waiter) == Granted(bench.base + 5, 0, fresh=0)


def test_a_stranger_s_release_hands_on_a_name_that_lapsed(bench: Bench) -> None:
    listener = bench.connect(INBOXES[0])
    _, [waiter] = contended(bench, (5, 0, LONG))
    bench.operator.say("DEL", NAME)
    assert bench.release(bench.token(9)) == 0
    assert listener.heard() == [(INBOXES[0], b"g %b %d n" % (waiter, bench.base + 5))]


def test_a_canceller_is_not_granted_what_it_gives_up(bench: Bench) -> None:
    listener = bench.connect(INBOXES[0], INBOXES[1])
    _, [first, second] = contended(bench, (5, 0, LONG), (6, 1, LONG))
    bench.operator.say("DEL", NAME)
    assert bench.release(first) == 0
    assert listener.heard() == [(INBOXES[1], b"g %b %d n" % (second, bench.base + 6))]


def test_a_foreign_holder_keeps_all_waiting(bench: Bench) -> None:
    listener = bench.connect(INBOXES[0])
    _, [first, second] = contended(bench, (5, 0, LONG), (6, 0, LONG))
    bench.operator.say("SET", NAME, "foreign", "PX", LONG)
    assert bench.release(first) == 0
    assert bench.see().holder == b"foreign" and list(bench.see().queue) == [second] and listener.heard() == []


def test_fences_are_exact_up_to_the_last(bench: Bench) -> None:
    listener = bench.connect(INBOXES[0])
    holder, waiter = (b"%016d:%b:%08x" % (TOP - 1, inbox, 1) for inbox in (INBOXES[3], INBOXES[0]))
    bench.request(holder)
    bench.request(waiter)
    bench.release(holder)
    assert listener.heard() == [(INBOXES[0], b"g %b %d n" % (waiter, TOP))]
    assert bench.see().fence == b"%d" % TOP


def test_round_fences_and_times_stay_numbers(bench: Bench) -> None:
    """Redis 7.2.0 to 7.2.4 write a number that a script hands to a command as 1.9e+15, if nobody prevents it (redis#13113)."""
    listener = bench.connect(INBOXES[0])
    for fence in (2 * 10**15, 19 * 10**14, 1950 * 10**12):
        for horizon in (K, 10**8, 5 * 10**7):
            name = b"%d-%d" % (fence, horizon)
            holder, waiter = (b"%016d:%b:%08x" % (fence - 1, inbox, 1) for inbox in (INBOXES[3], INBOXES[0]))
            bench.request(holder, name=name, K=horizon)
            bench.request(waiter, 2 * 10**8, name=name, K=horizon)
            bench.release(holder, name=name, K=horizon)
            assert listener.heard() == [(INBOXES[0], b"g %b %d %b" % (waiter, fence, name))]
            assert bench.see(name).fence == b"%d" % fence
            assert about(bench.see(name).holder_left, min(2 * horizon, 2 * 10**8))


def test_any_bytes_are_a_name_and_others_are_left_alone(bench: Bench) -> None:
    listener = bench.connect(INBOXES[0])
    names = (b"a\0b", b"100%s %d", b"\xff\xfe", b"tag", b"{tag}", b"a{tag}b", b"spaces and\r\nlines")
    tokens = {name: (bench.token(1), bench.token(5)) for name in names}
    for name, (holder, waiter) in tokens.items():
        bench.request(holder, name=name)
        bench.request(waiter, name=name)
    for number, (name, (holder, waiter)) in enumerate(tokens.items()):
        assert bench.release(holder, name=name) == 1
        assert listener.heard() == [(INBOXES[0], b"g %b %d %b" % (waiter, bench.base + 5, name))]
        assert [bench.see(other).holder for other in names[number + 1 :]] == [tokens[other][0] for other in names[number + 1 :]]
