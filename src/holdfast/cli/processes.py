"""Who else uses the nodes: other clients of holdfast, other programs, and what stands between.

Knows what servers tell of their clients and keys. Must not know how a node is by itself.
"""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from .. import __version__
from ..errors import readable
from ..kit import ALL_CLIENTS, RECENT, TOKEN, ask_registry, registered
from .diagnosis import OK, UNSAFE, WARNING, Check, ask, asked, cli_of, named, sent, text_of

if TYPE_CHECKING:
    from .. import Holdfast, NodeStatus

_KEYS = 1000  # that are looked at on each node
_CLOSELY = 20  # of these, those that may be another program's
_SHOWN = 3  # names in a line
_OURS = re.compile(r"holdfast:(.*):[0-9a-f]{8}")
_CONNECTED = r" name=holdfast:(\S*):([0-9a-f]{8}) "
_WATCHES = re.compile(r"sentinel-[0-9a-f]+-(?:cmd|pubsub)")
_LIMIT = re.compile(r"max_ttl=([0-9.e+]+) at .*, and ([0-9.e+]+) at this client:")
_FAILOVER = r"(?:failover=([0-9.e+]+)|no failover) at"
_BOUND = re.compile(rf"{_FAILOVER} .* for the server with run_id (\w+)…, and {_FAILOVER} this client:")
_MAGIC = re.compile(rb"[][*?\\^-]")  # what a pattern of SCAN does not take for itself
_TYPES = ("list", "set", "zset", "hash", "stream")


# ------------------------------------------------ clients


def others(nodes: list[NodeStatus]) -> Iterator[Check]:
    """Compare the settings of other clients, which they note on the nodes, with ours."""
    differences = {it: node.node for node in nodes for it in node.differences}
    for it, node in differences.items():
        fix = named(node.node for node in nodes)
        if bounds := _BOUND.match(it):
            node = next((known.node for known in nodes if known.run_id.startswith(bounds[2])), node)
            most = max(float(bounds[1] or 0), float(bounds[3] or 0))
            fix = named(f"{other.node}?failover={most:g}" if other.node == node else other.node for other in nodes)
        elif limits := _LIMIT.match(it):
            fix = f"export HOLDFAST_MAX_TTL={max(map(float, limits.groups())):g}  # for every client"
        yield Check(node, "settings", UNSAFE, it, fix, "docs/operations.md")
    if not differences and any(it.stragglers is not None for it in nodes):
        same = "all clients that live have the max_ttl, failover and nodes that this one has"
        yield Check("all", "settings", OK, same)
    strange = sorted({one.owner for it in nodes for one in it.stragglers or ()})
    if strange:
        who = ", ".join(strange[:_SHOWN]) + (f" and {len(strange) - _SHOWN} more" if len(strange) > _SHOWN else "")
        fix = "holdfast nodes --watch  # give these clients the same HOLDFAST_NODES and HOLDFAST_PREVIOUS; restart them"
        yield Check("all", "shards", UNSAFE, f"{who} know another list of shards", fix, "docs/operations.md#shards")


def company(locks: Holdfast, shard: int, nodes: list[NodeStatus]) -> Iterator[Check]:
    """Say who is connected besides this command, where the server tells it."""
    settings, size = locks.settings, len(nodes)
    told = ask(locks, shard, size, b"CLIENT", b"LIST")
    for at, it in told.answers.items():
        ours, others = connected(text_of(it), settings.owner)
        found = f"{len(ours)} other clients of holdfast"
        if ours:
            found += f" ({few(ours)})"
        found += f", and {sum(others.values())} of other programs"
        if others:
            found += f" ({few(sorted(others))})"
        yield Check(nodes[at].node, "clients", OK, found)
    for at in told.causes:
        if nodes[at].state == "up":
            yield Check(nodes[at].node, "clients", OK, "this user may not see who is connected (CLIENT LIST)")
    all_of_them = ask_registry(settings.prefix, told=ALL_CLIENTS)
    answers = sent(locks, shard, dict.fromkeys(range(size), all_of_them)).answers.values()
    known = {it.name: it for answer in answers for it in registered(answer) or ()}
    for version in sorted({it.note.version for it in known.values()} - {"", __version__}):
        those = {it.owner for it in known.values() if it.note.version == version and it.age <= RECENT}
        if those:
            yield Check("all", "version", OK, f"{version} at {few(sorted(those))}, and {__version__} here")
    everybody = {it for listed in told.answers.values() for it in re.findall(_CONNECTED, text_of(listed))}
    if strangers := sorted({it[0] for it in everybody if it[0] != settings.owner and " ".join(it) not in known}):
        found = f"connected, and not in the registry of prefix {settings.prefix!r}: {few(strangers)}"
        yield Check("all", "prefix", OK, f"{found}. They use another prefix, or may not write there")


def connected(listed: str, me: str) -> tuple[list[str], Counter[str]]:
    """From CLIENT LIST: other clients of holdfast, and other programs."""
    ours: set[str] = set()
    others: Counter[str] = Counter()
    for line in listed.splitlines():
        facts = dict(it.split("=", 1) for it in line.split(" ") if "=" in it)
        if "S" in facts.get("flags", "") or _WATCHES.fullmatch(facts.get("name", "")):
            # A replica, or a Sentinel: a part of the node.
            continue
        name = _OURS.fullmatch(facts.get("name", ""))
        if name is None:
            others[facts.get("lib-name") or facts.get("name") or facts.get("user") or "?"] += 1
        elif name[1] != me:
            ours.add(name[1])
    return sorted(ours), others


def few(names: list[str]) -> str:
    """Return the first names of some, for a line."""
    shown = ", ".join(readable(it, 60) for it in names[:_SHOWN])
    return shown + (" and more" if len(names) > _SHOWN else "")


# ------------------------------------------------ keys


def foreign(locks: Holdfast, shard: int, nodes: list[NodeStatus]) -> Iterator[Check]:
    """Find keys of other programs that have names of locks."""
    prefix = locks.settings.prefix.encode()
    pattern = _MAGIC.sub(rb"\\\g<0>", prefix) + b"*"
    told = ask(locks, shard, len(nodes), b"SCAN", b"0", b"MATCH", pattern, b"COUNT", b"%d" % _KEYS)
    sizes = ask(locks, shard, len(nodes), b"INFO", b"keyspace").answers
    for at, it in told.answers.items():
        cursor, keys = it if isinstance(it, list) and len(it) == 2 and isinstance(it[1], list) else (b"0", [])
        # What belongs to a lock begins with a brace.
        names = sorted(key for key in keys if isinstance(key, bytes) and not key.startswith(b"{"))
        strange = [key for key in names[:_CLOSELY] if _blocks(locks, shard, at, key)]
        node = nodes[at].node
        if not strange:
            database = locks._shards.all[shard].settings.addresses[at].database
            parts = _parts(cursor, len(names), _size(sizes.get(at), database))
            yield Check(node, "keys", OK, f"no other program's keys are in the way of names of locks{parts}")
            continue
        shown = ", ".join(repr(readable(key.decode("utf-8", "backslashreplace"), 60)) for key in strange[:_SHOWN])
        found = f"other programs' keys, such as {shown}: a lock of that name is never free"
        other = "locks:" if not prefix else f"{locks.settings.prefix}locks:"
        fix = (
            f"export HOLDFAST_PREFIX={shlex.quote(other)}  # for every client of holdfast. "
            "If clients of another library share locks with holdfast, change nothing until they are gone"
        )
        yield Check(node, "keys", WARNING, found, fix, "docs/nodes.md")


def _size(keyspace: object, database: int) -> int:
    """How many keys a database has, by INFO. 0 if the server does not tell."""
    told = re.search(rf"^db{database}:keys=(\d+)", text_of(keyspace), re.MULTILINE)
    return int(told[1]) if told else 0


def _parts(cursor: object, names: int, size: int) -> str:
    """How much was looked at, if it was not all. `names` of the keys may be in the way."""
    parts = []
    if text_of(cursor) != "0":
        parts.append(f"looked at {_KEYS:,} of {size:,} keys" if size else f"looked at {_KEYS:,} keys; there are more")
    if names > _CLOSELY:
        parts.append(f"closely at {_CLOSELY} of {names:,} names")
    return f" ({', '.join(parts)})" if parts else ""


def _blocks(locks: Holdfast, shard: int, at: int, key: bytes) -> bool:
    """Would a lock of this name never be free? (What expires is another client's lock.)"""
    kind = text_of(asked(locks, shard, {at: (b"TYPE", key)}).answers.get(at))
    if kind != "string":
        return kind in _TYPES
    value = asked(locks, shard, {at: (b"GET", key)}).answers.get(at)
    left = asked(locks, shard, {at: (b"PTTL", key)}).answers.get(at)
    return left == -1 and not (isinstance(value, bytes) and TOKEN.fullmatch(value))


# ------------------------------------------------ what stands between


def proxied(first: tuple[NodeStatus, ...], second: tuple[NodeStatus, ...]) -> Iterator[Check]:
    """Compare the servers that two connections to the same address have met."""
    met = [(one, other) for one, other in zip(first, second, strict=True) if one.run_id and other.run_id]
    for one, other in met:
        if one.run_id != other.run_id:
            found = "two connections met two servers: a proxy or load balancer stands between"
            fix = f"{cli_of(one.node)} INFO server  # twice; then name the servers themselves in HOLDFAST_NODES"
            yield Check(one.node, "proxy", UNSAFE, found, fix, "docs/nodes.md#proxies-and-load-balancers")
    if met and all(one.run_id == other.run_id for one, other in met):
        yield Check("all", "proxy", OK, "two connections to each address met the same server")
