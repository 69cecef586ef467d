"""No password is shown: not by the `repr` of anything that can be reached from a client, nor by tracebacks with local variables."""

from __future__ import annotations

import gc
import traceback
import types
from collections.abc import Callable
from typing import Any

import pytest

import holdfast
import holdfast.aio
from holdfast.errors import ConfigError
from holdfast.face.spreading import ShardNodes

SECRET = "s3cret"
URLS = (f"redis://:{SECRET}@a:6379", f"rediss://me:{SECRET}@b?ssl_password={SECRET}&ssl_certfile=/none", f"unix:///run/c.sock?password={SECRET}")
PLAIN = (f"redis://:{SECRET}@a:6379", f"valkey://me:{SECRET}@b", f"unix:///run/c.sock?password={SECRET}")
KINDS = pytest.mark.parametrize("kind", [holdfast.Holdfast, holdfast.aio.Holdfast], ids=["threads", "asyncio"])
OPAQUE = (types.ModuleType, type, types.FunctionType, types.BuiltinFunctionType, types.CodeType, types.FrameType)
# What holds the password because it has to be said to the node: it is text, and nothing prints it by itself.
RAW = (str, bytes)


def reachable(root: object) -> list[object]:
    """Every object that can be reached from this one, and belongs to it: not modules, classes and functions."""
    found: dict[int, object] = {}
    todo = [root]
    while todo:
        it = todo.pop()
        if id(it) in found or isinstance(it, OPAQUE):
            continue
        found[id(it)] = it
        todo += gc.get_referents(it)
    return list(found.values())


def showing(root: object) -> list[str]:
    """The types of objects whose `repr` shows the password."""
    return sorted({type(it).__qualname__ for it in reachable(root) if not isinstance(it, RAW) and _is_ours(it) and SECRET in repr(it)})


def _is_ours(it: object) -> bool:
    return type(it).__module__.startswith("holdfast") or isinstance(it, tuple | list | dict | set | frozenset)


@KINDS
@pytest.mark.parametrize(
    "options", [{}, {"shards": {"a": PLAIN[:1], "b": PLAIN[1:]}}, {"previous": PLAIN[:1]}], ids=["one shard", "shards", "moving"]
)
def test_nothing_that_can_be_reached_from_a_client_shows_a_password(kind: Any, options: dict[str, Any]) -> None:
    client = kind(**options) if "shards" in options else kind(*PLAIN[1 if options else 0 :], **options)
    described = [client, client.lock("a"), client.rate("b", 1, 1), client.once("d", keep=60)]
    assert any(isinstance(it, ShardNodes) for it in reachable(described))
    assert showing(described) == []
    assert SECRET not in f"{client!r} {client.settings} {client.urls} {client.shards}"


@KINDS
@pytest.mark.parametrize(
    "mistake",
    [
        lambda kind: kind(*PLAIN, "redis://d?socket_timeout=1"),
        lambda kind: kind(PLAIN, ttl="10"),
        lambda kind: kind(*PLAIN, PLAIN[0]),
        lambda kind: kind(f"redis://me:{SECRET}@h:port"),
        lambda kind: kind(f"redis://h?password={SECRET}&x=1"),
        lambda kind: kind(f"redis:/me:{SECRET}@h"),
        lambda kind: kind(*URLS),
        lambda kind: kind(shards={"a": PLAIN, "b": ["nonsense"]}),
        lambda kind: kind(*PLAIN, nodes=PLAIN),
    ],
)
def test_a_traceback_with_local_variables_shows_no_password(kind: Any, mistake: Callable[[Any], object]) -> None:
    """Error reporters send the local variables of every frame to a service."""
    with pytest.raises(ConfigError) as caught:
        mistake(kind)
    ours = traceback.TracebackException.from_exception(caught.value, capture_locals=True)
    frames = [it for it in ours.stack if "/holdfast/" in it.filename]
    assert frames
    assert [(it.name, name) for it in frames for name, shown in (it.locals or {}).items() if SECRET in shown] == []
    assert ours.__context__ is None or SECRET not in "".join(ours.format(chain=True))


@KINDS
def test_the_environment_is_no_exception(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for text in (f"a=redis://:{SECRET}@a; redis://:{SECRET}@b", f"redis://:{SECRET}@a redis://b?x=1"):
        monkeypatch.setenv("HOLDFAST_NODES", text)
        with pytest.raises(ConfigError) as caught:
            kind()
        ours = traceback.TracebackException.from_exception(caught.value, capture_locals=True)
        shown = [(it.name, name) for it in ours.stack for name, value in (it.locals or {}).items() if SECRET in value]
        assert shown == [("test_the_environment_is_no_exception", "text")], "in this very test"
