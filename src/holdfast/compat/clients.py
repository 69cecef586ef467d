"""The client of holdfast that belongs to another library's clients.

Knows their settings by `Node.of`. One client of holdfast serves all locks on the same servers.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Any, TypeVar, cast
from weakref import WeakKeyDictionary, WeakValueDictionary

from .. import Holdfast, Node, aio
from ..errors import ConfigError

C = TypeVar("C", Holdfast, aio.Holdfast)
_lock = threading.Lock()
# By pool: the options of `configure`, and the clients that the pool's locks use, which live as long as it.
_options: WeakKeyDictionary[Any, dict[str, Any]] = WeakKeyDictionary()
_kept: WeakKeyDictionary[Any, dict[Any, Any]] = WeakKeyDictionary()
# By servers, for pools that have the same ones.
_made: WeakValueDictionary[Any, Any] = WeakValueDictionary()


def configure(clients: Any, *, nodes: str | Iterable[str | Node] = (), **options: Any) -> None:
    """Set the options of holdfast for all locks of a client. Call it before its first lock.

    Args:
        clients: A client of redis-py or valkey-py, or those of one pottery Redlock.
        nodes: Addresses of all servers, if they are not those of the clients (default: they are).
            One address may be a text.
        options: Options of `Holdfast`, such as `ttl`, `max_ttl`, `prefix` or `observer`.

    Raises:
        ConfigError: A lock of this client was used before.
    """
    with _lock:
        for client in clients if isinstance(clients, Iterable) else [clients]:
            pool = getattr(client, "connection_pool", client)
            if _kept.get(pool):
                raise ConfigError("a lock of this client was used already: call configure() before that")
            _options[pool] = {**options, "nodes": (nodes,) if isinstance(nodes, str) else tuple(nodes)}


def client_of(kind: type[C], clients: Iterable[Any]) -> C:
    """Return the client of holdfast for locks on the servers of these clients.

    Args:
        kind: The client for threads, or that for asyncio.
        clients: Another library's clients, one for each server.

    Raises:
        ConfigError: Their settings, or those of `configure`, cannot work.
    """
    pools = [getattr(it, "connection_pool", it) for it in clients]
    with _lock:
        options = next((dict(_options[it]) for it in pools if it in _options), {})
        nodes = options.pop("nodes", ())
        lent = () if nodes else tuple(sorted((Node.of(it) for it in clients), key=lambda it: it.label))
        servers = kind, nodes or tuple(it.label for it in lent)
        # Pools share a client of holdfast if they have no options and no secrets of their own.
        shared = not (options or nodes or any(it.credentials or it.ssl for it in lent))
        found = _kept.get(pools[0], {}).get(servers) or (_made.get(servers) if shared else None)
        if found is None:
            found = kind(*(nodes or lent), **options)
            if shared:
                _made[servers] = found
        for pool in pools:
            _kept.setdefault(pool, {})[servers] = found
        return cast(C, found)
