"""Clients from settings: every form that a setting may have, and errors that name the setting as it is written."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast import ConfigError, Holdfast, Misuse
from holdfast import aio as asynchronous
from holdfast.config import Clients, imported

URLS = ["redis://a", "redis://b:6380", "redis://c"]
EVENTS: list[object] = []


def observer(event: object) -> None:
    EVENTS.append(event)


@pytest.mark.parametrize(
    "settings, prefix",
    [
        ({"NODES": URLS, "TTL": 3, "PREFIX": "shop:"}, ""),
        ({"nodes": tuple(URLS), "ttl": 3.0, "prefix": "shop:"}, ""),
        ({"HOLDFAST_NODES": ",".join(URLS), "HOLDFAST_TTL": "3", "HOLDFAST_PREFIX": "shop:", "SECRET_KEY": "x"}, "HOLDFAST_"),
        ({"holdfast_nodes": " ".join(URLS), "holdfast_ttl": 3, "holdfast_prefix": "shop:", "task_acks_late": 1}, "holdfast_"),
    ],
    ids=["django", "toml", "flask", "celery"],
)
def test_one_reader_for_every_framework_and_both_clients(settings: dict[str, Any], prefix: str) -> None:
    clients = Clients(settings, prefix)
    assert isinstance(clients.locks, Holdfast)
    assert isinstance(clients.alocks, asynchronous.Holdfast)
    for client in (clients.locks, clients.alocks):
        assert client.urls == ("redis://a:6379", "redis://b:6380", "redis://c:6379")
        assert (client.settings.ttl, client.settings.prefix) == (3.0, "shop:")


def test_text_becomes_what_the_option_is() -> None:
    settings = {
        "nodes": "redis://a",
        "max_ttl": "60",
        "node_timeout": "0.5",
        "restart_guard": "off",
        "owner": "web-3",
        "observer": f"{__name__}:observer",
        "outage": None,
    }
    made = Clients(settings).locks
    assert (made.settings.max_ttl, made.settings.node_timeout, made.settings.guard) == (60.0, 0.5, None)
    assert made.settings.owner == "web-3"
    assert Clients({"nodes": "redis://a", "restart_guard": None}).locks.settings.guard is None


def test_sets_of_nodes() -> None:
    for settings in (
        {"nodes": "x=redis://a; y=redis://b"},
        {"shards": "x=redis://a; y=redis://b"},
        {"shards": {"x": ["redis://a"], "y": ["redis://b"]}},
    ):
        assert Clients(settings).locks.shards == {"x": ("redis://a:6379",), "y": ("redis://b:6379",)}


def test_what_settings_leave_out_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_NODES", "redis://from-environment")
    monkeypatch.setenv("HOLDFAST_TTL", "4")
    made = Clients({"prefix": "p:"}).locks
    assert (made.urls, made.settings.ttl, made.settings.prefix) == (("redis://from-environment:6379",), 4.0, "p:")


def test_settings_are_read_at_the_first_use_and_a_client_is_made_once() -> None:
    asked = []

    def settings() -> dict[str, Any]:
        asked.append(1)
        return {"nodes": URLS}

    clients = Clients(settings)
    assert asked == []
    assert clients.locks is clients.locks
    assert clients.alocks is clients.alocks
    assert len(asked) == 2
    before = clients.locks
    clients.close()
    assert clients.locks is not before


def test_local_servers_are_shared_by_both_clients_and_stopped() -> None:
    clients = Clients({"NODES": "local", "PREFIX": "t:"})
    try:
        assert clients.alocks.urls == clients.locks.urls
        with clients.locks.lock("a", wait=5):
            assert clients.locks.is_locked("a")
    finally:
        servers = clients.locks.servers
        clients.close()
    assert servers is not None
    with pytest.raises(Misuse, match="these nodes do not run"):
        servers.kill(0)


@pytest.mark.parametrize(
    "settings, prefix, told",
    [
        ({"HOLDFAST_TTLL": 3}, "HOLDFAST_", "unknown setting 'HOLDFAST_TTLL'. Valid settings are HOLDFAST_NODES, HOLDFAST_TTL,"),
        ({"holdfast_colour": 3}, "holdfast_", "Valid settings are holdfast_nodes, holdfast_ttl,"),
        ({"ttl": 3, "TTL": 4}, "", "'ttl' and 'TTL' are the same setting"),
        ({"HOLDFAST_GUARDIAN": "perhaps"}, "HOLDFAST_", "^HOLDFAST_GUARDIAN must be 1 or 0"),
        ({"HOLDFAST_TTL": "soon"}, "HOLDFAST_", "^HOLDFAST_TTL must be a number of seconds, not 'soon'"),
        ({"HOLDFAST_RESTART_GUARD": "no"}, "HOLDFAST_", "^HOLDFAST_RESTART_GUARD must be a number of seconds, or off, not 'no'"),
        ({"NODES": URLS, "TTL": 0, "MAX_TTL": 60, "PREFIX": "p"}, "", "^TTL: "),
        ({"NODES": URLS, "TTL": 40, "MAX_TTL": 60, "PREFIX": 7}, "", "^PREFIX: "),
        ({"NODES": URLS, "TTL": 25, "MAX_TTL": 20}, "", "^TTL, MAX_TTL: "),
        ({"NODES": URLS, "TTL": 0, "PREFIX": 7}, "", "^the settings: "),
        ({"NODES": ["http://a"], "TTL": 3}, "", "^NODES: "),
        ({"NODES": {"a": 1}}, "", "^NODES is a list of addresses"),
        ({"NODES": URLS, "AROUND": "nowhere.at.all"}, "", "^AROUND is the dotted path of an object"),
        ({"NODES": URLS, "OBSERVER": "math.pi"}, "", "^OBSERVER: observer is a function"),
    ],
)
def test_an_error_names_the_setting_as_it_is_written(settings: dict[str, Any], prefix: str, told: str) -> None:
    for kind in ("locks", "alocks"):
        with pytest.raises(ConfigError, match=told):
            getattr(Clients(settings, prefix), kind)


def test_a_password_is_in_no_error() -> None:
    for nodes in ("redis://:secret@a:99999999", ["redis://:secret@a", "redis://:secret@a"], {"redis://:secret@a": 1}):
        with pytest.raises(ConfigError) as raised:
            _ = Clients({"NODES": nodes}).locks
        assert "secret" not in str(raised.value)


def test_dotted_paths() -> None:
    assert imported("math.pi", "X") == imported("math:pi", "X")
    for path in ("math.tau2", "pi", "", "no such.module"):
        with pytest.raises(ConfigError, match=r"^X is the dotted path"):
            imported(path, "X")
