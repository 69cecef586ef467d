"""Who waits for what: each waiter is returned once, when what it waits for has happened, and in order."""

from __future__ import annotations

from typing import Any

from holdfast.engine.ready import Ready
from holdfast.engine.waiting import Waiting, fallen
from holdfast.protocol.claim import State


def thing(**facts: object) -> Any:
    """A claim or a query, as the table sees it: something to be compared by identity."""
    return type("Thing", (), facts)()


def full() -> tuple[Waiting[str], Any, Any]:
    """A table with somebody everywhere, a claim and a query."""
    table: Waiting[str] = Waiting()
    claim, query = thing(), thing()
    table.for_claim(claim, "claim")
    table.for_claim(claim, "extension")
    table.for_claim(thing(), "another claim")
    table.for_query(query, "query")
    table.for_query(query, "shared")
    table.for_query(thing(), "another query")
    table.for_news("news")
    table.for_news("watch")
    table.for_leaving("bytes")
    return table, claim, query


def test_waiters_are_woken_by_what_they_wait_for() -> None:
    table, claim, query = full()
    assert len(table) == 9
    assert table.settle(Ready(speaks=True)) == []
    assert table.settle(Ready(settled=[claim])) == ["claim", "extension"]
    assert table.settle(Ready(queries=[query])) == ["query", "shared"]
    assert table.settle(Ready(changed=True)) == ["news", "watch"]
    assert table.sent() == ["bytes"]
    assert len(table) == 2, "the others wait on"


def test_nobody_is_woken_twice() -> None:
    table, claim, query = full()
    all_ = Ready(settled=[claim], queries=[query], changed=True)
    assert table.settle(all_) == ["claim", "extension", "query", "shared", "news", "watch"]
    assert table.settle(all_) == []
    assert (table.sent(), table.sent()) == (["bytes"], [])
    assert table.take_news() == []


def test_a_caller_that_gives_up_is_forgotten() -> None:
    table, claim, _ = full()
    table.cancel("news")
    table.cancel("news")
    assert table.settle(Ready(changed=True)) == ["watch"]
    assert list(table.drop(claim)) == ["claim", "extension"]
    assert list(table.drop(claim)) == []
    assert table.settle(Ready(settled=[claim])) == []


def test_an_owner_that_ends_a_claim_waits_alone() -> None:
    table, claim, _ = full()
    assert list(table.replace(claim, "end")) == ["claim", "extension"]
    assert list(table.replace(claim, "again")) == ["end"]
    assert table.settle(Ready(settled=[claim])) == ["again"]
    assert list(table.replace(thing(), "first")) == []


def test_at_the_end_nobody_is_left() -> None:
    table, _, _ = full()
    everyone = ["claim", "extension", "another claim", "query", "shared", "another query", "news", "watch", "bytes"]
    assert table.everyone() == everyone
    assert (len(table), table.everyone()) == (0, [])


def test_only_leases_that_are_lost_have_fallen() -> None:
    held = thing(done=False, state=State.HELD)
    released = thing(done=True, state=State.OVER)
    lost = thing(done=True, state=State.LOST)
    nobodys = thing(done=True, state=State.LOST)
    doomed = thing(done=False, state=State.LOST)
    leases = {held: "held", released: "released", lost: "lost", doomed: "doomed"}
    assert fallen(leases, [held, released, nobodys, lost, doomed]) == ["lost"]
    assert list(leases.values()) == ["held", "doomed"], "of claims that are over, nothing is kept"
    assert fallen(leases, [lost]) == []
