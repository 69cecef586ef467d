"""Who waits for what: each waiter is returned once, when what it waits for has happened, and in order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from proof import patches

from holdfast.engine import waiting as module
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


def waiters_are_woken_by_what_they_wait_for() -> None:
    table, claim, query = full()
    assert len(table) == 9
    assert table.settle(Ready(speaks=True)) == []
    assert table.settle(Ready(settled=[claim])) == ["claim", "extension"]
    assert table.settle(Ready(queries=[query])) == ["query", "shared"]
    assert table.settle(Ready(changed=True)) == ["news", "watch"]
    assert table.sent() == ["bytes"]
    assert len(table) == 2, "the others wait on"


def nobody_is_woken_twice() -> None:
    table, claim, query = full()
    all_ = Ready(settled=[claim], queries=[query], changed=True)
    assert table.settle(all_) == ["claim", "extension", "query", "shared", "news", "watch"]
    assert table.settle(all_) == []
    assert (table.sent(), table.sent()) == (["bytes"], [])
    assert table.take_news() == []


def a_caller_that_gives_up_is_forgotten() -> None:
    table, claim, _ = full()
    table.cancel("news")
    table.cancel("news")
    assert table.settle(Ready(changed=True)) == ["watch"]
    assert list(table.drop(claim)) == ["claim", "extension"]
    assert list(table.drop(claim)) == []
    assert table.settle(Ready(settled=[claim])) == []


def an_owner_that_ends_a_claim_waits_alone() -> None:
    table, claim, _ = full()
    assert list(table.replace(claim, "end")) == ["claim", "extension"]
    assert list(table.replace(claim, "again")) == ["end"]
    assert table.settle(Ready(settled=[claim])) == ["again"]
    assert list(table.replace(thing(), "first")) == []


def at_the_end_nobody_is_left() -> None:
    table, _, _ = full()
    everyone = ["claim", "extension", "another claim", "query", "shared", "another query", "news", "watch", "bytes"]
    assert table.everyone() == everyone
    assert (len(table), table.everyone()) == (0, [])


def only_leases_that_are_lost_have_fallen() -> None:
    held = thing(done=False, state=State.HELD)
    released = thing(done=True, state=State.OVER)
    lost = thing(done=True, state=State.LOST)
    nobodys = thing(done=True, state=State.LOST)
    doomed = thing(done=False, state=State.LOST)
    leases = {held: "held", released: "released", lost: "lost", doomed: "doomed"}
    assert fallen(leases, [held, released, nobodys, lost, doomed]) == ["lost"]
    assert list(leases.values()) == ["held", "doomed"], "of claims that are over, nothing is kept"
    assert fallen(leases, [lost]) == []


RULES = [
    waiters_are_woken_by_what_they_wait_for,
    nobody_is_woken_twice,
    a_caller_that_gives_up_is_forgotten,
    an_owner_that_ends_a_claim_waits_alone,
    at_the_end_nobody_is_left,
    only_leases_that_are_lost_have_fallen,
]


@pytest.mark.parametrize("rule", RULES, ids=lambda it: it.__name__)
def test_of_waiting(rule: Callable[[], None]) -> None:
    rule()


Fault = tuple[str, str, str, Callable[[], None]]
FAULTS: dict[str, Fault] = {
    "the second waiter of a claim replaces the first": (
        "for_claim",
        "waiters.append(waiter)",
        "self.claims[want] = [waiter]",
        waiters_are_woken_by_what_they_wait_for,
    ),
    "a claim keeps its waiters": (
        "settle",
        "self.claims.pop(want, ())",
        "self.claims.get(want, ())",
        nobody_is_woken_twice,
    ),
    "a query keeps its waiters": (
        "settle",
        "self.queries.pop(query, ())",
        "self.queries.get(query, ())",
        nobody_is_woken_twice,
    ),
    "news wake nobody": ("settle", "if ready.changed:", "if False:", waiters_are_woken_by_what_they_wait_for),
    "everything is news": ("settle", "if ready.changed:", "if True:", waiters_are_woken_by_what_they_wait_for),
    "news wake twice": ("take_news", "self.news = []", "pass", nobody_is_woken_twice),
    "sending wakes twice": ("sent", "self.leaving = []", "pass", nobody_is_woken_twice),
    "a caller that gives up is woken": (
        "cancel",
        "self.news.remove(waiter)",
        "pass",
        a_caller_that_gives_up_is_forgotten,
    ),
    "giving up twice fails": ("cancel", "if waiter in self.news:", "if True:", a_caller_that_gives_up_is_forgotten),
    "a claim that is given up has waiters": (
        "drop",
        "self.claims.pop(want, ())",
        "self.claims.get(want, ())",
        a_caller_that_gives_up_is_forgotten,
    ),
    "an owner that ends a claim is not told": (
        "replace",
        "self.claims[want] = [waiter]",
        "pass",
        an_owner_that_ends_a_claim_waits_alone,
    ),
    "at the end some wait on": ("everyone", "self.claims.clear()", "pass", at_the_end_nobody_is_left),
    "at the end some wait for queries": ("everyone", "self.queries.clear()", "pass", at_the_end_nobody_is_left),
    "at the end some wait for news": ("everyone", "self.take_news() + ", "", at_the_end_nobody_is_left),
}
FALLEN: dict[str, tuple[str, str]] = {
    "a release is a loss": ("and want.state is State.LOST", ""),
    "a claim that is not over has fallen": ("want.done and ", ""),
    "a loss is told twice": ("leases.pop(want, None)", "leases.get(want)"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_noticed(monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    name, text, other, rule = FAULTS[fault]
    patches.method(monkeypatch, Waiting, name, text, other)
    with pytest.raises((AssertionError, ValueError)):
        rule()


@pytest.mark.parametrize("fault", FALLEN)
def test_a_fault_about_losses_is_noticed(monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    patches.function(monkeypatch, module.fallen, *FALLEN[fault])
    with pytest.raises(AssertionError):
        only_leases_that_are_lost_have_fallen()
