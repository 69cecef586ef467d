"""What `manage.py check` finds: settings that cannot work, and locked views without the middleware.

Knows Django's checks and URLs. Starts no servers, also if the settings say "local".
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Error, Warning  # noqa: A004  (Django's name)
from django.urls import get_resolver

from ... import Holdfast
from ...config import LOCAL, Clients
from ...errors import ConfigError, NoQuorum
from .locks import MARK, clients, given

MIDDLEWARE = "holdfast.integrations.django.Middleware"


def check_settings(**_: object) -> list[CheckMessage]:
    """Check `settings.HOLDFAST`. Sends nothing."""
    said = given()
    if not any(said.get(it) for it in ("NODES", "SHARDS")) and not os.environ.get("HOLDFAST_NODES"):
        hint = 'Set HOLDFAST = {"NODES": ["redis://a", "redis://b", "redis://c"]}, or the variable HOLDFAST_NODES.'
        return [Error("holdfast has no nodes.", hint=hint, id="holdfast.E001")]
    try:
        locks = _described()
    except ConfigError as error:
        return [Error(error.message, id="holdfast.E002")]
    found = []
    nodes, ttl, longest = len(locks.urls), locks.settings.ttl, locks.settings.max_ttl
    if not _is_local() and (nodes % 2 == 0 or nodes == 1):
        hint = "Use 3 or 5 independent servers."
        found += [Warning(f"holdfast has {nodes} node(s), which gain no availability.", hint=hint, id="holdfast.W001")]
    if ttl > longest / 3 and not said.get("MAX_TTL") and not os.environ.get("HOLDFAST_MAX_TTL"):
        told = f"TTL is {ttl:g} s, and MAX_TTL is left at its default, {longest:g} s."
        hint = "Set MAX_TTL to the longest TTL of any client of these nodes, and to the same value in all of them."
        found += [Warning(told, hint=hint, id="holdfast.W002")]
    return found


def check_views(**_: object) -> list[CheckMessage]:
    """Find locked views that nobody takes the lock for."""
    # A project without pages has no URLs.
    if MIDDLEWARE in settings.MIDDLEWARE or not getattr(settings, "ROOT_URLCONF", None):
        return []
    found = [it for it in _callbacks(get_resolver().url_patterns) if hasattr(it, MARK)]
    names = sorted({f"{it.__module__}.{it.__qualname__}" for it in found})
    hint = f"Add {MIDDLEWARE!r} to MIDDLEWARE."
    return [Error(f"{it} has a lock that nobody takes.", hint=hint, id="holdfast.E003") for it in names]


def check_deployment(**_: object) -> list[CheckMessage]:
    """Warn of settings that are for development: only `check --deploy` does. Sends nothing."""
    found = []
    if _is_local():
        told = 'holdfast has NODES = "local": each process starts servers of its own, so processes share no lock.'
        hint = "Name servers that all processes use."
        found += [Warning(told, hint=hint, id="holdfast.W003")]
    try:
        guard = _described().settings.guard
    except ConfigError:
        # `check_settings` reports it.
        return found
    if guard is None:
        told = "holdfast's restart guard is off: after a node has restarted, two processes may hold the same lock."
        hint = "Leave RESTART_GUARD and the variable HOLDFAST_RESTART_GUARD out."
        found += [Warning(told, hint=hint, id="holdfast.W004")]
    return found


def check_nodes(**_: object) -> list[CheckMessage]:
    """Ask the nodes: only `check --deploy` does."""
    if _is_local():
        return []
    try:
        clients.locks.ready()
    except (ConfigError, NoQuorum) as error:
        return [Error(error.message, id="holdfast.E004")]
    return []


def _is_local() -> bool:
    return str(given().get("NODES")).strip().lower() == LOCAL


def _described() -> Holdfast:
    """The client for threads. For "local", one of the same settings that must not be used."""
    if not _is_local():
        return clients.locks
    # A number of shards says how many are started. Elsewhere, that setting has addresses.
    left_out = ("NODES", "SHARDS") if isinstance(given().get("SHARDS"), int) else ("NODES",)
    rest = {it: value for it, value in settings.HOLDFAST.items() if it.upper() not in left_out}
    return Clients({**rest, "NODES": ["redis://local"]}, where="settings.HOLDFAST").locks


def _callbacks(patterns: Iterable[Any]) -> Iterator[Any]:
    """The views of URL patterns, and of those that they include."""
    for it in patterns:
        if hasattr(it, "url_patterns"):
            yield from _callbacks(it.url_patterns)
        elif it.callback is not None:
            yield it.callback
