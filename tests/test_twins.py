"""The faces are twins: the same names, parameters and docstrings. All that differs is who has to be awaited."""

from __future__ import annotations

import inspect
from types import SimpleNamespace
from typing import Any

import pytest

import holdfast
import holdfast.aio

pytestmark = pytest.mark.guards

# in threads; with asyncio, awaited
WAITS = {"acquire", "try_acquire", "downgrade", "extend", "release", "ready", "close", "__enter__", "__exit__"}
WAITS |= {"campaign", "resign", "publish", "leader", "arrive", "wait", "arrived", "is_open", "available", "holders"}
WAITS |= {"take", "run", "result", "forget", "get", "peek", "reset", "invalidate", "inspect", "locked_by", "is_locked", "names"}
WAITS |= {"force_release", "repair", "hand_over", "adopt"}
ONLY_ONE = {
    "Holdfast.aclose",  # what contextlib.aclosing calls
}
THREADS_ONLY = {"cancel"}  # parameters: a thread's wait is ended by an event, a task has its own `cancel()`
ASYNC = {"__enter__": "__aenter__", "__exit__": "__aexit__"}

# Of `holdfast`, what a face has: the rest is of neither.
THREADS: Any = SimpleNamespace(**{name: getattr(holdfast, name) for name in holdfast.aio.__all__}, __all__=holdfast.aio.__all__)


def differences(threads: Any, asyncio: Any) -> list[str]:
    """Where two modules differ that should be twins."""
    found = [f"only one has {name}" for name in sorted({*threads.__all__} ^ {*asyncio.__all__})]
    for name in sorted({*threads.__all__} & {*asyncio.__all__}):
        one, other = getattr(threads, name), getattr(asyncio, name)
        if not inspect.getdoc(one) or inspect.getdoc(one) != inspect.getdoc(other):
            found.append(f"{name}: docstrings")
        members = {*_public(one), *_public(other)}
        for member in sorted(members):
            if f"{name}.{member}" not in ONLY_ONE:
                twin = ASYNC.get(member, member)
                found += [f"{name}.{member}: {what}" for what in _unlike(member, _of(one, member), _of(other, twin))]
    return found


def _public(kind: type) -> set[str]:
    back = {twin: name for name, twin in ASYNC.items()}
    return {back.get(it, it) for it in dir(kind) if not it.startswith("_") or it in ASYNC or it in back}


def _of(kind: type, name: str) -> Any:
    return inspect.getattr_static(kind, name, None)


def _unlike(name: str, one: Any, other: Any) -> list[str]:
    if one is None or other is None:
        return ["only one has it"]
    if type(one) is not type(other):
        return [f"one is {type(one).__name__}, the other {type(other).__name__}"]
    if isinstance(one, property):
        one, other = one.fget, other.fget
    if one is other or not inspect.isfunction(one):
        return []
    found = []
    if inspect.iscoroutinefunction(one) or inspect.iscoroutinefunction(other) is not (name in WAITS):
        found.append("who has to be awaited")
    mine, its = inspect.signature(one), inspect.signature(other)
    mine = mine.replace(parameters=[it for it in mine.parameters.values() if it.name not in THREADS_ONLY])
    if str(mine) != str(its):
        found.append(f"{mine} and {its}")
    if not name.startswith("__") and inspect.getdoc(one) != inspect.getdoc(other):
        found.append("docstrings")
    return found


def test_b52_the_faces_are_twins() -> None:
    assert differences(THREADS, holdfast.aio) == []
