"""`doctor`: what is wrong with the nodes, and what to do about it. It changes nothing.

Knows what servers say about themselves, and what holdfast needs of them. Must not know locks.
"""

from __future__ import annotations

import time
from argparse import Namespace
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from ..errors import ConfigError, message_of
from ..kit import EFFICIENT, OPTIONAL, Query, forbidden, rule
from .codes import NO_QUORUM
from .diagnosis import OK, UNSAFE, WARNING, Check, ask, by_shard, cli_of, facts_of, named, placed, text_of
from .looking import client, usable, watched
from .processes import company, foreign, others, proxied
from .table import colored, objects, table

if TYPE_CHECKING:
    from .. import Holdfast, NodeStatus

_VERDICTS = {OK: 0, WARNING: 1, UNSAFE: 2}
_COLORS = {OK: "good", WARNING: "warning", UNSAFE: "bad"}
_PINGS = 50
_EVERY = 10.0  # seconds between two looks of --watch
_APART = 2.0  # seconds between two readings of a node's clock
_SKEW, _DRIFT = 1.0, 0.001  # seconds between clocks; seconds of drift in a second
_FULL = 0.9  # of maxmemory
_SLOW = 0.5  # of node_timeout
_WRITES, _LAG = "min-replicas-to-write", "min-replicas-max-lag"
# A server counts a lag in whole seconds, and once a second.
_COUNTED = 2  # seconds
_KEPT = b"{*}:result", b"{*}:cache", b"{*}:rate*", b"{*}:window*", b"{*}:latch*", b"{*}:barrier*"
# What no lock needs, as it is called, and for what it is used.
_ASIDE = {
    "EVAL": ((b"return 1", b"0"), "inspect, ls and release"),
    "SCAN": ((b"0", b"COUNT", b"1"), "ls and repair"),
}
# What to ask a node that refuses writes, by the server's error code. Others: about its replicas.
_ASKS = {"OOM": "CONFIG GET maxmemory", "MISCONF": "INFO persistence", "BUSY": "SCRIPT KILL"}


def doctor(options: Namespace) -> int:
    """Look at all nodes, and print what was found."""
    with client(options) as locks:
        return watched(options, f"looks every {_EVERY:g} s", _EVERY, lambda: _examined(locks, options))


def _examined(locks: Holdfast, options: Namespace) -> int:
    looked: list[Check] = []
    for shard, own in by_shard(locks._seen(1.0)):
        looked += others(own)
        looked += _looked(locks, shard, own)
        looked += company(locks, shard, own)
        looked += foreign(locks, shard, own)
    with client(options) as again:
        looked += proxied(locks.nodes(), again._seen(1.0))
    nodes = locks.nodes()
    primaries = _primaries(locks)
    checks = [placed(it, primaries) for it in (*_reached(nodes), *_together(locks, nodes), *looked)]
    down = not usable(nodes)
    verdict = max((it.level for it in checks), key=lambda it: _VERDICTS[it], default=OK)
    if options.json:
        objects({"verdict": "no quorum" if down else verdict, "checks": [it._asdict() for it in checks]})
    else:
        _print(checks, len(nodes))
        print("no majority of the nodes can be used" if down else f"all in all: {verdict}", flush=True)
    return NO_QUORUM if down else _VERDICTS[verdict]


def _print(checks: list[Check], size: int) -> None:
    table(("NODE", "CHECK", "LEVEL", "FOUND"), _rows(checks, size))
    for it in checks:
        if it.level != OK:
            print(colored(f"\n{it.level}: {it.check} of {it.node}", _COLORS[it.level]))
            print(f"  {it.found}\n  what to do: {it.fix}" + (f"\n  see: {it.doc}" if it.doc else ""))


def _rows(checks: list[Check], size: int) -> list[tuple[str, str, str, str]]:
    """The rows of the table. What is well, and the same on all of several nodes, is one row."""
    alike = Counter(it[1:4] for it in checks if it.level == OK)
    nodes = {it: f"all {size}" for it, count in alike.items() if count == size > 1}
    return list(dict.fromkeys((nodes.get(it[1:4], it.node), *it[1:4]) for it in checks))


def _primaries(locks: Holdfast) -> dict[str, tuple[str, int]]:
    """Where this client found the primaries that Sentinels look after, while it is connected."""
    found = {}
    for driver in locks._drivers:
        for link in driver.io_thread.sockets.by_node:
            if link is not None and link.address.sentinels is not None:
                found[link.address.label] = link.address.host, link.address.port
    return found


# ------------------------------------------------ what the client knows


def _reached(nodes: tuple[NodeStatus, ...]) -> Iterator[Check]:
    for it in nodes:
        cause = "" if it.cause is None else message_of(it.cause)
        if it.state == "up":
            yield Check(it.node, "state", OK, f"up, {it.version}")
        elif it.state == "guarded":
            moved = "was promoted" in cause or "is new to clients" in cause
            page = "docs/nodes.md#sentinel" if moved else "docs/operations.md"
            new = "holdfast nodes adopt  # only if no lock was ever held on these nodes; else wait"
            fix = new if "nodes adopt" in cause else "holdfast nodes --watch  # until the guard is over"
            yield Check(it.node, "state", WARNING, cause or "it restarted", fix, page)
        elif it.state == "refusing":
            fix = f"{cli_of(it.node)} {_ASKS.get(cause.partition(' ')[0], 'INFO replication')}"
            found = f"it refuses every write of every program: {cause}"
            yield Check(it.node, "state", UNSAFE, found, fix, "docs/errors.md#what-the-server-is")
        elif cause.startswith("it is a replica"):
            fix = f"{cli_of(it.node)} INFO replication  # it tells the primary: name only primaries in HOLDFAST_NODES"
            yield Check(it.node, "state", UNSAFE, cause, fix, "docs/nodes.md#which-servers-work")
        elif isinstance(it.cause, ConfigError):
            fix = f"{cli_of(it.node)} {it.cause.fix}" if it.cause.fix else f"{cli_of(it.node)} INFO server"
            yield Check(it.node, "rights" if it.cause.fix else "state", UNSAFE, cause, fix, "docs/connections.md")
        else:
            fix = f"{cli_of(it.node)} {_ASKS.get(cause.partition(' ')[0], 'PING')}"
            yield Check(it.node, "state", WARNING, cause or "no answer", fix, "docs/errors.md#why-a-node-is-not-used")


def _once(nodes: tuple[NodeStatus, ...]) -> list[str]:
    """The addresses of the nodes, each server once."""
    known: dict[str, str] = {}
    for it in nodes:
        known.setdefault(it.run_id or it.node, it.node)
    return list(known.values())


def _together(locks: Holdfast, nodes: tuple[NodeStatus, ...]) -> Iterator[Check]:
    twice = [it for it, count in Counter(it.run_id for it in nodes if it.run_id).items() if count > 1]
    for run_id in twice:
        same = ", ".join(it.node for it in nodes if it.run_id == run_id)
        yield Check("all", "independence", UNSAFE, f"{same} are one server", named(_once(nodes)), "docs/nodes.md")
    if len(nodes) % 2 == 0:
        found = f"{len(nodes)} nodes survive no more failures than {len(nodes) - 1}"
        fix = f"{named([it.node for it in nodes][:-1])}; or add a server"
        yield Check("all", "number", WARNING, found, fix, "docs/nodes.md")
    told = {it.node: it.ahead for it in nodes if it.ahead is not None}
    # Of two clocks, nobody knows which is wrong. Of more, most are right.
    right = sorted(told.values())[len(told) // 2] if len(told) > 1 else 0.0
    off = {node: ahead - right for node, ahead in told.items()} | {"this machine": -right}
    for node, seconds in off.items():
        if abs(seconds) > _SKEW:
            found = f"its clock is {seconds:+.1f} s from {'that of most nodes' if len(told) > 1 else 'ours'}"
            fix = "timedatectl set-ntp true  # on that machine"
            yield Check(node, "clock", WARNING, found, fix, "docs/operations.md#clocks")


# ------------------------------------------------ what the nodes say


def _looked(locks: Holdfast, shard: int, nodes: list[NodeStatus]) -> list[Check]:
    size = len(nodes)
    checks: list[Check] = []
    told = ask(locks, shard, size, b"INFO")
    for at, answer in told.answers.items():
        checks += _server(nodes[at], facts_of(answer))
    checks += _replication(locks, shard, nodes, told)
    policies = ask(locks, shard, size, b"CONFIG", b"GET", b"maxmemory-policy")
    for at, answer in policies.answers.items():
        checks.append(_policy(nodes[at].node, answer))
    checks += _persistence(locks, shard, nodes, told)
    checks += _rights(locks, shard, nodes)
    checks += _speed(locks, shard, nodes)
    checks += _drift(locks, shard, nodes)
    return checks


def _server(status: NodeStatus, facts: dict[str, str]) -> Iterator[Check]:
    node = status.node
    if "product" in status.warnings:
        found = "its server is neither Redis nor Valkey, and its address says unproven"
        fix = f"python -m holdfast.testing.conformance {node}"
        yield Check(node, "product", WARNING, found, fix, "docs/nodes.md#other-products")
    if facts.get("redis_mode", "standalone") != "standalone" or facts.get("server_mode", "standalone") != "standalone":
        fix = f"{cli_of(node)} INFO server  # it tells the mode: name independent servers in HOLDFAST_NODES"
        yield Check(node, "mode", UNSAFE, "it runs as a cluster or Sentinel", fix, "docs/nodes.md#which-servers-work")
    used, most = int(facts.get("used_memory", "0")), int(facts.get("maxmemory", "0"))
    if most and used > _FULL * most:
        found = f"{used * 100 // most} % of maxmemory is used; a full node grants nothing"
        fix = f"{cli_of(node)} CONFIG SET maxmemory {2 * max(used, most)}"
        yield Check(node, "memory", WARNING, found, fix, "docs/nodes.md")
    if int(facts.get("evicted_keys", "0")):
        found = f"{facts['evicted_keys']} keys were evicted: locks may have been among them"
        fix = f"{cli_of(node)} CONFIG SET maxmemory-policy noeviction && {cli_of(node)} CONFIG RESETSTAT"
        yield Check(node, "evictions", UNSAFE, found, fix, "docs/nodes.md")


def _replication(locks: Holdfast, shard: int, nodes: list[NodeStatus], told: Query) -> Iterator[Check]:
    """Say what a failover of each primary would cost."""
    size = len(nodes)
    writes, lags = (ask(locks, shard, size, b"CONFIG", b"GET", it.encode()).answers for it in (_WRITES, _LAG))
    for at, address in enumerate(locks._shards.all[shard].settings.addresses):
        facts = facts_of(told.answers.get(at))
        if facts.get("role", "master") == "master" and at in told.answers:
            known = _configured(writes.get(at)), _configured(lags.get(at))
            # Where the place can be asked for, clients do not depend on what the server does.
            yield _failover(nodes, at, facts, None if address.moves else address.failover, *known)


def _failover(
    nodes: list[NodeStatus], at: int, facts: dict[str, str], bound: float | None, writes: str, lag: str
) -> Check:
    """What a failover would cost: is it known when a deposed primary stops?

    `writes` and `lag` are the server's settings. They are empty if this user may not see them.
    """
    status = nodes[at]
    node, count = status.node, int(facts.get("connected_slaves", "0"))
    if "replicas" in status.warnings:
        found = f"{count} replicas, {EFFICIENT}: after a failover, two clients can hold the same lock"
        bounds = named(f"{it.node}?failover=15" if it.node == node else it.node for it in nodes)
        fix = f"{bounds}. These are the seconds for which an old primary can go on granting"
        return Check(node, "role", WARNING, found, fix, "docs/nodes.md")
    # A member of a cluster has another bound, cluster-node-timeout.
    bounded = 0.0 if facts.get("cluster_enabled", "0") == "1" else bound or 0.0
    if bounded and (found := _untrue(status, count, bounded, writes, lag)):
        seconds = max(1, int(bounded) - _COUNTED)
        fix = (
            f"{cli_of(node)} CONFIG SET {_WRITES} {max(1, count)} && "
            f"{cli_of(node)} CONFIG SET {_LAG} {seconds}  # on all servers of the group, then CONFIG REWRITE. "
            "It refuses writes of all programs while a replica is missing"
        )
        return Check(node, "role", UNSAFE, found, fix, "docs/nodes.md")
    if not count:
        return Check(node, "role", OK, "primary without replicas")
    how = "failover= in its address" if bound is not None else "clients ask again and again where the node is"
    found = f"primary with {count} replicas, and {how}"
    if bounded and not (writes and lag):
        found += f"; not checked: that {_WRITES} is {count} and {_LAG} at most {max(0.0, bounded - _COUNTED):g}"
    return Check(node, "role", OK, found)


def _untrue(status: NodeStatus, count: int, bound: float, writes: str, lag: str) -> str:
    """Return why an old primary can go on for longer than its address says, or an empty string."""
    if "failover" in status.warnings:
        return "its address says failover=, but it goes on granting without replicas (min-replicas-to-write is off)"
    if writes and int(writes) < count:
        return (
            f"{_WRITES} is {writes}, and it has {count} replicas: an old primary that keeps "
            f"{writes} of them goes on granting, whatever failover= says"
        )
    if lag and (longest := int(lag) + _COUNTED) > bound:
        return f"{_LAG} is {lag}: an old primary goes on for up to {longest} s, and its address says failover={bound:g}"
    return ""


def _configured(answer: object) -> str:
    """The value in an answer to CONFIG GET."""
    values = list(answer.values()) if isinstance(answer, dict) else answer[1:] if isinstance(answer, list) else []
    return text_of(values[0]) if values else ""


def _policy(node: str, answer: object) -> Check:
    policy = _configured(answer)
    if policy in ("noeviction", ""):
        return Check(node, "eviction", OK, policy or "not shown to this user")
    found = f"maxmemory-policy is {policy}: it may delete locks that are held"
    fix = f"{cli_of(node)} CONFIG SET maxmemory-policy noeviction"
    return Check(node, "eviction", UNSAFE, found, fix, "docs/nodes.md")


def _persistence(locks: Holdfast, shard: int, nodes: list[NodeStatus], told: Query) -> Iterator[Check]:
    kept = _keeps(locks, shard, len(nodes))
    for at, answer in told.answers.items():
        node = nodes[at].node
        logs = "aof_enabled:1" in text_of(answer)
        if logs or not kept.get(at):
            why = "appendonly yes" if logs else "appendonly no, which is enough for locks"
            yield Check(node, "persistence", OK, why)
        else:
            found = "appendonly no, and results of `once`, rates or latches are kept here: a restart forgets them"
            fix = f"{cli_of(node)} CONFIG SET appendonly yes  # or: holdfast repair, after each restart"
            yield Check(node, "persistence", WARNING, found, fix, "docs/nodes.md")


def _keeps(locks: Holdfast, shard: int, size: int) -> dict[int, bool]:
    """Which nodes have keys that should outlive a restart, among the first that a scan finds."""
    prefix = locks.settings.prefix.encode()
    found: dict[int, bool] = {}
    for pattern in _KEPT:
        seen_now = ask(
            locks, shard, size, b"SCAN", b"0", b"MATCH", pattern.replace(b"{*", b"{%b*" % prefix), b"COUNT", b"1000"
        )
        for at, answer in seen_now.answers.items():
            keys = answer[1] if isinstance(answer, list) and len(answer) == 2 else []
            found[at] = found.get(at, False) or bool(keys)
    return found


def _rights(locks: Holdfast, shard: int, nodes: list[NodeStatus]) -> Iterator[Check]:
    """Find commands that this user may not use. Without those that locks need, a node is unfit."""
    probed = locks._look(locks._shards.probe(shard, b"more"))
    asides = {it: ask(locks, shard, len(nodes), it.encode(), *words).causes for it, (words, _) in _ASIDE.items()}
    who = ask(locks, shard, len(nodes), b"ACL", b"WHOAMI").answers
    for at, answer in probed.answers.items():
        lacks = forbidden(answer) | {it: text_of(found[at]) for it, found in asides.items() if at in found}
        node, user = nodes[at].node, text_of(who.get(at)) or "default"
        if lacks:
            what = "; ".join(f"{it} ({OPTIONAL.get(it) or _ASIDE[it][1]})" for it in lacks)
            fix = f"{cli_of(node)} {rule(lacks, user, locks.settings.prefix)}"
            yield Check(node, "rights", WARNING, f"user {user} may not use {what}", fix, "docs/connections.md")
        elif nodes[at].state == "up":
            yield Check(node, "rights", OK, f"user {user} has all that is needed")


def _speed(locks: Holdfast, shard: int, nodes: list[NodeStatus]) -> Iterator[Check]:
    rounds = [ask(locks, shard, len(nodes), b"PING") for _ in range(_PINGS)]
    ordered = sorted(it.ended - it.began for it in rounds if it.answers)
    if not ordered:
        return
    middle, late = ordered[len(ordered) // 2], ordered[-1]
    text = f"{middle * 1000:.1f} ms for an answer of all nodes, {late * 1000:.1f} ms at most"
    if late > _SLOW * locks.settings.node_timeout:
        slow = cli_of(max(nodes, key=lambda it: it.rtt or 0.0).node)
        fix = f"{slow} SLOWLOG GET  # of the slowest node; look for packet loss, too (mtr), or raise node_timeout"
        found = f"{text}; node_timeout is {locks.settings.node_timeout:g} s"
        yield Check("all", "round trip", WARNING, found, fix, "docs/operations.md")
    else:
        yield Check("all", "round trip", OK, text)


def _drift(locks: Holdfast, shard: int, nodes: list[NodeStatus]) -> Iterator[Check]:
    """Compare each node's clock with ours twice: a clock that runs too fast ends leases early."""
    first = _clocks(locks, shard, len(nodes))
    time.sleep(_APART)
    second = _clocks(locks, shard, len(nodes))
    for at in first.keys() & second.keys():
        passed = second[at].ours - first[at].ours
        drift = (second[at].theirs - first[at].theirs) / passed - 1
        # What the ways to the node and back may have added.
        unsure = (first[at].blur + second[at].blur) / passed
        found = f"its clock gains {drift * 1000:+.1f} ms in a second (known to {unsure * 1000:.1f} ms)"
        if abs(drift) > _DRIFT + unsure:
            fix = "chronyc tracking  # on that machine"
            yield Check(nodes[at].node, "drift", UNSAFE, found, fix, "docs/operations.md")
        else:
            yield Check(nodes[at].node, "drift", OK, "its clock runs as fast as ours")


class _Clock(NamedTuple):
    """Our clock and a node's at the same moment, in seconds; `blur`: to how many of them."""

    ours: float
    theirs: float
    blur: float


def _clocks(locks: Holdfast, shard: int, size: int) -> dict[int, _Clock]:
    """Read the nodes' clocks."""
    told = ask(locks, shard, size, b"TIME")
    middle, blur = (told.began + told.ended) / 2, (told.ended - told.began) / 2
    answers = {at: it for at, it in told.answers.items() if isinstance(it, list) and len(it) == 2}
    return {at: _Clock(middle, int(it[0]) + int(it[1]) / 1e6, blur) for at, it in answers.items()}
