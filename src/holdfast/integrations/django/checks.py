"""What `manage.py check` finds: settings that cannot work, and views whose locks cannot.

Knows Django's checks and URLs. Starts no servers, also if the settings say "local".
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Set
from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Error, Warning  # noqa: A004  (Django's name)
from django.db import connections
from django.urls import get_resolver
from django.views import View

from ... import Holdfast
from ...config import Clients
from ...errors import ConfigError, NoQuorum
from ...kit import fields, kinds, unlocked
from .locks import MARK, class_of, clients, given, handlers_of, is_local

MIDDLEWARE = "holdfast.integrations.django.Middleware"
# Decorators whose lock or result is for others as soon as the function has returned.
HOLDING = {"Locked", "Skipping", "once"}


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
    if not is_local() and (nodes % 2 == 0 or nodes == 1):
        hint = "Use 3 or 5 independent servers."
        found += [Warning(f"holdfast has {nodes} node(s), which gain no availability.", hint=hint, id="holdfast.W001")]
    if ttl > longest / 3 and not said.get("MAX_TTL") and not os.environ.get("HOLDFAST_MAX_TTL"):
        told = f"TTL is {ttl:g} s, and MAX_TTL is left at its default, {longest:g} s."
        hint = "Set MAX_TTL to the longest TTL of any client of these nodes, and to the same value in all of them."
        found += [Warning(told, hint=hint, id="holdfast.W002")]
    return found


def check_views(**_: object) -> list[CheckMessage]:
    """Find views whose lock nobody takes, has no name, or is released before the commit."""
    # A project without pages has no URLs.
    if not getattr(settings, "ROOT_URLCONF", None):
        return []
    views = [(_label(class_of(it) or it), it, captured) for it, captured in _views([get_resolver()])]
    bare = unlocked(it[:2] for it in views).values()
    found = [(told, "Let the URL lead to the decorated view.", "E005") for told in bare]
    for label, view, captured in views:
        handlers = handlers_of(view, View.http_method_names)
        marks = [getattr(it, MARK) for it in handlers if hasattr(it, MARK)]
        if marks and MIDDLEWARE not in settings.MIDDLEWARE:
            found += [(f"{label} has a lock that nobody takes.", f"Add {MIDDLEWARE!r} to MIDDLEWARE.", "E003")]
        for name in [it[0] for it in marks if isinstance(it[0], str)]:
            for field in {it or str(at) for at, it in enumerate(fields(name))} - captured:
                told = f"{label} has the lock {name!r}, and its URL does not capture {field!r}."
                found += [(told, f"It captures {', '.join(sorted(captured)) or 'nothing'}.", "E006")]
        without = getattr(view, "_non_atomic_requests", ())
        atomic = any(it["ATOMIC_REQUESTS"] and alias not in without for alias, it in connections.settings.items())
        if atomic and any(kinds(it) & HOLDING for it in handlers):
            told = f"{label} has a lock inside of the transaction of ATOMIC_REQUESTS, which ends after its release."
            found += [(told, "Use @locked_view, or @transaction.non_atomic_requests.", "E007")]
    return [Error(told, hint=hint, id=f"holdfast.{code}") for told, hint, code in sorted(set(found))]


def check_deployment(**_: object) -> list[CheckMessage]:
    """Warn of settings that are for development: only `check --deploy` does. Sends nothing."""
    found = []
    if is_local():
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
    if is_local():
        return []
    try:
        clients.locks.ready()
    except (ConfigError, NoQuorum) as error:
        return [Error(error.message, id="holdfast.E004")]
    return []


def _described() -> Holdfast:
    """The client for threads. For "local", one of the same settings that must not be used."""
    if not is_local():
        return clients.locks
    # A number of shards says how many are started. Elsewhere, that setting has addresses.
    left_out = ("NODES", "SHARDS") if isinstance(given().get("SHARDS"), int) else ("NODES",)
    rest = {it: value for it, value in settings.HOLDFAST.items() if it.upper() not in left_out}
    return Clients({**rest, "NODES": ["redis://local"]}, where="settings.HOLDFAST").locks


def _label(view: Any) -> str:
    return f"{view.__module__}.{getattr(view, '__qualname__', view)}"


def _views(patterns: Iterable[Any], names: Set[str] = frozenset(), places: int = 0) -> Iterator[tuple[Any, Set[str]]]:
    """The views of URL patterns, and of those that they include, with what the URL captures."""
    for it in patterns:
        regex, given = it.pattern.regex, getattr(it, "default_args", None) or getattr(it, "default_kwargs", None)
        known, count = names | {*regex.groupindex, *(given or ())}, places + regex.groups - len(regex.groupindex)
        if hasattr(it, "url_patterns"):
            yield from _views(it.url_patterns, known, count)
        elif it.callback is not None:
            # Where anything has a name, Django leaves out what has none.
            yield it.callback, known or set(map(str, range(count)))


