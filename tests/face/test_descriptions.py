"""What is said before anything is sent: clients, locks and their options, in both faces."""

from __future__ import annotations

import copy
import pickle
import re
import sys
from datetime import timedelta
from typing import Any

import pytest

import holdfast
import holdfast.aio
from holdfast.errors import ConfigError

URLS = ("redis://user:s3cret@a:6379", "redis://b", "unix:///run/c.sock?db=2")

FACES = pytest.mark.parametrize("kind", [holdfast.Holdfast, holdfast.aio.Holdfast], ids=["threads", "asyncio"])


@FACES
def test_nodes_are_named_one_by_one_or_in_an_iterable_or_by_the_environment(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = ("redis://a:6379", "redis://b:6379", "unix:///run/c.sock?db=2")
    assert kind(*URLS).urls == kind(URLS).urls == kind(iter(URLS)).urls == kind(URLS[0], URLS[1:]).urls == expected
    monkeypatch.setenv("HOLDFAST_NODES", " , ".join(URLS) + " ")
    assert kind().urls == expected
    assert kind("redis://elsewhere").urls == ("redis://elsewhere:6379",)
    assert "s3cret" not in f"{kind()!r} {kind().settings}"


@FACES
def test_the_environment_sets_what_all_clients_must_share_and_an_argument_wins(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def told(**options: Any) -> tuple[Any, ...]:
        it = kind("redis://a", **options).settings
        return it.ttl, it.max_ttl, it.guard, it.prefix, it.owner

    plain = told(owner="me")
    assert plain == (10.0, 30.0, 32.0, "", "me")
    for name, value in (("TTL", "15"), ("MAX_TTL", "60.5"), ("RESTART_GUARD", "90"), ("PREFIX", "shop:"), ("OWNER", "web-3")):
        monkeypatch.setenv(f"HOLDFAST_{name}", value)
    assert told() == (15.0, 60.5, 90.0, "shop:", "web-3")
    assert told(ttl=10.0, max_ttl=30.0, restart_guard=None, prefix="", owner="me") == (10.0, 30.0, None, "", "me")
    monkeypatch.setenv("HOLDFAST_RESTART_GUARD", " Off ")
    assert told()[2] is None
    for name in ("TTL", "MAX_TTL", "RESTART_GUARD", "PREFIX", "OWNER"):
        monkeypatch.setenv(f"HOLDFAST_{name}", "")
    assert told(owner="me") == plain


@FACES
@pytest.mark.parametrize(
    "name, value, complaint",
    [
        ("TTL", "10s", "HOLDFAST_TTL must be a number of seconds, not '10s'"),
        ("TTL", "nan", "ttl is"),
        ("MAX_TTL", "off", "HOLDFAST_MAX_TTL must be a number of seconds, not 'off'"),
        ("RESTART_GUARD", "no", "HOLDFAST_RESTART_GUARD must be a number of seconds, or off, not 'no'"),
        ("RESTART_GUARD", "3", "restart_guard is at least max_ttl"),
        ("PREFIX", "{a}", "prefix"),
        ("OWNER", "a b", "owner"),
    ],
)
def test_what_the_environment_says_wrong_is_named(
    kind: Any, name: str, value: str, complaint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"HOLDFAST_{name}", value)
    with pytest.raises(ConfigError, match=re.escape(complaint)):
        kind("redis://a")


@FACES
def test_what_other_locks_can_do_is_told_where_it_is_here(kind: Any) -> None:
    lock = kind("redis://a").lock("a")
    for name, told in (
        ("release", r"Release the lease: `lease = lock.acquire\(\)`"),
        ("extend", "Extend the lease"),
        ("reacquire", "Extend the lease"),
        ("locked", "locks.is_locked"),
        ("owned", "lease.held"),
        ("fence", "lease.fence"),
        ("colour", "has no attribute 'colour'$"),
    ):
        assert not hasattr(lock, name)
        with pytest.raises(AttributeError, match=told):
            getattr(lock, name)


@FACES
@pytest.mark.parametrize("copied", [pickle.dumps, copy.copy, copy.deepcopy])
def test_d18_what_belongs_to_its_process_says_so_if_it_is_copied(kind: Any, copied: Any) -> None:
    locks = kind(*URLS)
    described = {
        "lock": locks.lock("a"), "rwlock": locks.rwlock("a"), "semaphore": locks.semaphore("a", 2), "election": locks.election("a"),
        "rate": locks.rate("a", 1, 1), "once": locks.once("a", keep=1), "fill": locks.fill("a", 1, bool), "latch": locks.latch("a", 1),
        "barrier": locks.barrier("a", 1),
    }  # fmt: skip
    for made, it in {**{f"locks.{name}('a', ...)": it for name, it in described.items()}, "Holdfast(...)": locks}.items():
        with pytest.raises(TypeError, match=f"^{re.escape(made)} cannot be pickled"):
            copied([it] if copied is not copy.copy else it)


@FACES
def test_d18_an_option_that_does_not_exist_is_answered_in_the_name_of_what_was_called(kind: Any) -> None:
    locks, ttl = kind(*URLS), r"Did you mean ttl, the second argument \(how long a value is fresh\)\?"
    for wrong, told in (
        (lambda: locks.fill("a", 60, bool, expire=5), rf"^unknown fill option 'expire'. {ttl}"),
        (lambda: locks.filled("a", 60, timeout=5), rf"^unknown fill option 'timeout'. {ttl}"),
        (lambda: locks.fill("a", 60, bool, colour=5), "^unknown fill option 'colour'. Valid options are stale, lease, wait"),
        (lambda: locks.limited("a", 1, 60, expire=5), r"^unknown rate option 'expire'. Did you mean period \(how long"),
        (lambda: locks.once("a", keep=60, expire=5), r"^unknown once option 'expire'. Did you mean keep \(how long"),
    ):
        with pytest.raises(ConfigError, match=told):
            wrong()


@FACES
def test_addresses_are_texts_one_by_one(kind: Any) -> None:
    with pytest.raises(ConfigError, match=r"not bytes: decode it, address.decode\(\)"):
        kind(b"redis://a")
    with pytest.raises(ConfigError, match="several addresses"):
        kind("redis://a,redis://b")
    with pytest.raises(ConfigError, match="Databases of one server are one node"):
        kind("redis://a/0", "redis://a/1")


@FACES
def test_windows_is_refused_in_words(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    with pytest.raises(ConfigError, match="Windows"):
        kind(*URLS)


@FACES
def test_a_description_says_what_it_was_told(kind: Any) -> None:
    client = kind(*URLS, ttl=timedelta(seconds=5))
    lock = client.lock("invoice:42")
    assert (lock.name, lock.ttl) == ("invoice:42", 5)
    assert repr(lock) == "<Lock 'invoice:42' ttl=5>"
    assert client.lock("x", ttl=timedelta(milliseconds=1500.9)).ttl == 1.5  # whole milliseconds, as nodes count them
    assert "ttl=5" in repr(client)
    with pytest.raises(ConfigError, match="name is text, not 5"):
        client.lock("x", 5)  # options have names


@FACES
def test_a_description_cannot_be_changed(kind: Any) -> None:
    lock = kind(*URLS).lock("x")
    for name in ("name", "ttl", "wait"):
        with pytest.raises(AttributeError):
            setattr(lock, name, 5)


def test_the_face_for_asyncio_needs_a_loop_only_when_it_is_used() -> None:
    lock = holdfast.aio.Holdfast(*URLS).lock("x")  # at module level, say
    with pytest.raises(RuntimeError, match="no running event loop"):
        lock.acquire().send(None)
