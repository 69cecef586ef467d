"""What cannot be described, or asked of a primitive: both faces refuse it before anything is started or said to a node.

Each check of a value has its own tests (`tests/test_checks.py`): here is a row for each way to be wrong.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import product
from math import nan
from typing import Any

import pytest
from face.test_arguments import HOSTS, KINDS, complaint

Rows = list[tuple[dict[str, Any], str]]


def plain() -> int:
    return 1


def generator() -> Any:
    yield 1


# Describes each with what is given, and with what is right for everything else.
DESCRIBE: dict[str, Callable[..., Any]] = {
    "rate": lambda client, name="mail", limit=10, period=60, **more: client.rate(name, limit, period, **more),
    "once": lambda client, key="report", keep=60, **more: client.once(key, keep=keep, **more),
    "fill": lambda client, key="price", ttl=60, compute=plain, **more: client.fill(key, ttl, compute, **more),
    "latch": lambda client, name="start", count=3, **more: client.latch(name, count, **more),
    "barrier": lambda client, name="start", count=3, **more: client.barrier(name, count, **more),
    "election": lambda client, name="boss", value="", **more: client.election(name, value, **more),
    "semaphore": lambda client, name="pool", permits=3, **more: client.semaphore(name, permits, **more),
    "read": lambda client, name="book", **more: client.rwlock(name).read(**more),
    "write": lambda client, name="book", **more: client.rwlock(name).write(**more),
    "survey": lambda client, pattern="*", **more: client.survey(pattern, **more),
    "filled": lambda client, name="price", ttl=60, **more: client.filled(name, ttl, **more),
}
GATHERING: Rows = [
    ({"name": ""}, "needs a name"),
    ({"name": "a}"}, "leave the '}' out"),
    ({"name": "{a}:arrived"}, "it looks like"),
]
LONG_NOTE = ({"note": "x" * 1025}, "a note has 1025 bytes")
WRONG: dict[str, Rows] = {
    "rate": [
        ({"algorithm": "fixed window", "burst": 5}, "a fixed window has no burst"),
        *[({"algorithm": it}, "algorithm is 'gcra' or 'fixed window', not") for it in ("sliding", None)],
        ({"name": ""}, "a rate needs a name"),
        ({"name": "a{b}"}, "has a brace in it"),
        ({"name": 5}, "a rate's name is text"),
        ({"key": ""}, "a rate's key is empty"),
        ({"key": "\ud800"}, "a rate's key .* UTF-8 cannot say"),
        *[({it: "x" * 513}, f"a rate's {it} .*at most 512 are allowed") for it in ("name", "key")],
        ({"fail_open": "1"}, "fail_open is True or False"),
        ({"fail_open": 0}, "fail_open is a whole number"),
        ({"limit": [(10, 1)]}, "several limits have a period each"),
        ({"period": None}, "period is missing"),
        *[
            ({"limit": it, "period": None, **more}, told)
            for it, more, told in [
                ([], {}, "a rate has 1 to 10 limits, not 0"),
                ([(it, it) for it in range(1, 12)], {}, "a rate has 1 to 10 limits, not 11"),
                ([10, 1], {}, "a limit is a pair of calls and seconds"),
                ([(10, 1, 1)], {}, "a limit is a pair of calls and seconds"),
                (["10"], {}, "a limit is a pair of calls and seconds"),
                ([(10, 1), (0, 60)], {}, "limit is a whole number"),
                ([(10, 1), (5, 0)], {}, "period is"),
                ([(10, 1), (10, 1.0)], {}, "the same limit twice: 10 in 1 s, 10 in 1 s"),
                ([(10, 1), (100, 60)], {"burst": 1}, "burst goes with a single limit"),
            ]
        ],
    ],
    "once": [
        ({"per": "days"}, "per is"),
        ({"per": 61}, "keep=60 is less than per=61"),
        *[({"per": it}, f"less than one {it}, which can last {most} s") for it, most in (("hour", 3600), ("day", 93600), ("week", 612000))],
        ({"per": "day", "keep": 1e6, "zone": "Berlin"}, "knows no time zone 'Berlin'"),
        ({"slack": 1}, "slack= belongs to a schedule"),
        ({"key": ""}, "needs a name"),
        ({"key": b"a"}, "text"),
        ({"key": "a}"}, "no hash tag"),
        ({"key": "pool[slot 3]"}, "looks like"),
        ({"ttl": 0}, "ttl is 0.05 or more"),
        ({"renew": 1}, "renew is True or False"),
        ({"same": 1}, "same is True or False, not 1"),
        ({"cancel": 5}, r"^cancel .*threading\.Event|task\.cancel"),
        ({"serializer": 5}, "a serializer has `dumps` and `loads`"),
        LONG_NOTE,
    ],
    "fill": [
        ({"lease": 31}, "ttl"),
        *[({"compute": it}, "compute is a function without arguments") for it in (None, 5)],
        ({"compute": generator}, "generator is a generator function, which this fill cannot call"),
        ({"key": ""}, "needs a name"),
        ({"key": 5}, "a fill's key is text"),
        ({"key": "{price}:cache"}, "looks like the keys"),
        ({"key": "price[fill]"}, "looks like a slot of a semaphore, or like another primitive's lock"),
        ({"serializer": "json"}, "a serializer has `dumps` and `loads`"),
        ({"cache": []}, "cache is a mapping that can be changed"),
        ({"cache": {}, "serializer": plain}, "a mapping is given values as they are"),
        ({"fail_open": 1}, "fail_open is True or False"),
        LONG_NOTE,
    ],
    "latch": [*GATHERING, ({"name": 5}, "a latch's name is text")],
    "barrier": GATHERING,
    "election": [
        ({"name": ""}, "needs a name"),
        ({"name": 5}, "an election's name is text"),
        ({"name": "boss[election]"}, "cannot be a lock's name"),
        ({"value": 5}, "what a leader says is text, not 5"),
        ({"value": "x" * 65537}, "at most 65536"),
        ({"ttl": 31}, "max_ttl"),
        ({"note": "me"}, "unknown election option 'note'"),
    ],
    "semaphore": [
        ({"count": 4}, "can never be had"),
        ({"name": 5}, "text"),
        ({"ttl": 0}, "ttl"),
        LONG_NOTE,
    ],
    "read": [
        *[({"name": it}, "lock") for it in ("", "a}", "{a}:readers", "{a}:rwqueue", 5)],
        ({"ttl": -1}, "ttl"),
        ({"note": "me"}, "can have many readers"),
    ],
    "write": [({"at_least": 5}, "at_least is for exclusive locks"), LONG_NOTE],
    "survey": [
        *[({"pattern": it}, "a pattern of names .*(is text|at most 512)") for it in (b"x", "x" * 513)],
        ({"pause": 1.1}, "pause is the share of a node's time"),
    ],
    "filled": [
        ({"name": "price:{"}, "is no template"),
        ({"ttl": 0}, "ttl is"),
        ({"stale": -1}, "stale"),
        ({"cache": 5}, "cache"),
    ],
}


@pytest.mark.parametrize("primitive", WRONG)
def test_what_cannot_be_described_is_refused(primitive: str) -> None:
    for (change, told), kind, nodes in product(WRONG[primitive], KINDS.values(), ({}, {"shards": {"a": HOSTS[:1], "b": HOSTS[1:]}})):
        client: Any = kind(*([] if nodes else HOSTS), **nodes)
        complaint(lambda: DESCRIBE[primitive](client, **change), told)  # noqa: B023 (called within this turn of the loop)


# The least and the most of each option, what else that needs, and what is no number of its kind.
EDGES: dict[str, list[tuple[str, float, float, dict[str, Any], Any]]] = {
    "rate": [("limit", 1, 10**12, {}, True), ("period", 0.001, 1e8, {}, True), ("burst", 1, 10**12, {"limit": 10**12}, False),
             ("burst", 1, 100, {"limit": 1, "period": 1e6}, 1.5), ("wait", 0.0, 1e9, {}, nan)],
    "once": [("keep", 0.05, 1e8, {}, True), ("per", 0.001, 1e8, {"keep": 1e8}, True), ("slack", 0.0, 30, {"per": 60}, nan)],
    "fill": [("ttl", 0.001, 1e8, {}, None), ("stale", 0.0, 1e8, {}, None), ("wait", 0.0, 1e9, {}, nan)],
    "latch": [("count", 1, 1000, {}, None), ("keep", 30.0, 1e9, {}, None), ("wait", 0.0, 1e9, {}, nan)],
    "barrier": [("count", 1, 1000, {}, None)], "survey": [("pause", 0.001, 1, {}, None)],
    "semaphore": [("permits", 1, 1000, {}, None), ("count", 1, 1000, {"permits": 1000}, None)],
}  # fmt: skip


@pytest.mark.parametrize("primitive", EDGES)
def test_an_option_takes_what_lies_between_its_least_and_its_most(primitive: str) -> None:
    for (option, least, most, more, odd), kind in product(EDGES[primitive], KINDS.values()):
        describe = partial(DESCRIBE[primitive], kind(*HOSTS))
        for value in (least, most):
            describe(**{**more, option: value})
        for value in (odd, *((least - 1, most + 1) if isinstance(least, int) else (least - 0.0001, most * (1 + 1e-9)))):
            complaint(partial(describe, **{**more, option: value}), f"^({option}|parties) is|takes longer than")


def hourly(client: Any) -> Any:
    return client.once("report", keep=7200, per=3600)


# What is asked of a client, and what is said of it.
ASKED: list[tuple[Callable[[Any], Any], str]] = [
    *[(lambda client, it=it: client.rate("mail", 10, 60).take(it), "cost is") for it in (0, True, "1")],
    *[(lambda client, it=it: client.rate("mail", 10, 60).acquire(it), "cost is|never has 11 calls at once") for it in (0, 11)],
    *[(lambda client, it=it: client.rate("mail", 10, 60).peek(it), "cost is|never has 11 calls at once") for it in (0, 11)],
    *[(lambda client, it=it: client.latch("start", 3).arrive(it), "an id") for it in ("", "a\0b", 7)],
    *[(lambda client, it=it: client.barrier("start", 3).wait(it), "an id") for it in ("", "a\0b", 7, None)],
    (lambda client: client.election("boss").observe(wait=-1), "wait is"),
    (lambda client: client.once("report", keep=60).at(5), "`at` needs slots"),
    (lambda client: hourly(client).at(datetime.now(UTC).replace(tzinfo=None)), "has no time zone"),
    *[(lambda client, it=it: hourly(client).at(it), "a time is") for it in ("noon", True, nan, None, 10**400, 1e11, -1e11)],
    *[(lambda client, it=it: client.once(it, keep=60).result(), "cannot be a lock's name") for it in ("{a}:result", "{}x")],
    (lambda client: client.once("{a}:result", keep=60, per=5).result(), "cannot be a lock's name"),
]


@pytest.mark.parametrize("face", KINDS)
def test_what_cannot_be_asked_is_refused(face: str) -> None:
    def ask(call: Callable[[Any], Any]) -> None:
        async def asked() -> None:
            found = call(KINDS[face](*HOSTS))
            if inspect.isawaitable(found):
                await found

        asyncio.run(asked()) if face == "asyncio" else call(KINDS[face](*HOSTS))

    for call, told in ASKED:
        complaint(lambda: ask(call), told)  # noqa: B023 (called within this turn of the loop)


SHOWN: dict[str, tuple[str, dict[str, Any]]] = {
    "<Once 'report' keep=60>": ("once", {}),
    "<Once 'report' keep=7200 per=3600>": ("once", {"keep": 7200, "per": 3600}),
    "<Once 'report' keep=100000 per='day' zone='Asia/Tokyo'>": ("once", {"keep": 100_000, "per": "day", "zone": "Asia/Tokyo"}),
    "<Rate 'mail' key='ann': 10 in 1 s, 1000 in 3600 s>": (
        "rate",
        {"limit": ((10, 1), [1000, timedelta(hours=1)]), "period": None, "key": "ann"},
    ),
    "<Fill 'price' ttl=60 stale=5>": ("fill", {"stale": 5}),
    "<Latch 'start' count=3>": ("latch", {}),
    "<Barrier 'start' parties=3>": ("barrier", {}),
    "<Election 'boss' ttl=10>": ("election", {}),
    "<Semaphore 'pool' ttl=10>": ("semaphore", {}),
}


@pytest.mark.parametrize("shown", SHOWN)
def test_a_description_shows_what_it_was_told(shown: str) -> None:
    primitive, options = SHOWN[shown]
    assert [repr(DESCRIBE[primitive](kind(*HOSTS), **options)) for kind in KINDS.values()] == [shown] * 2


def test_a_description_tells_what_it_was_told() -> None:
    for kind in KINDS.values():
        client = kind(*HOSTS)
        once, daily = client.once("report", keep=60), client.once("report", keep=100_000, per="day", zone="Asia/Tokyo")
        assert [(it.per, it.zone, it.slack) for it in (once, daily, hourly(client))] == [
            (None, None, None), ("day", "Asia/Tokyo", 10.0), (3600.0, None, 10.0),
        ]  # fmt: skip
        rate = client.rate("mail", ((10, 1), [1000, timedelta(hours=1)]))
        assert len(client.rate("mail", [(it, it) for it in range(1, 11)]).limits) == 10
        assert (rate.limits, rate.limit, rate.period, rate.burst) == (((10, 1.0), (1000, 3600.0)), 10, 1.0, 10)
