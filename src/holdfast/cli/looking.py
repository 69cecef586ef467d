"""`ls`, `inspect` and `nodes`: what is going on, and nothing is changed.

Knows what the client tells of locks and nodes. Must not know processes.
"""

from __future__ import annotations

import os
import sys
import time
from argparse import Namespace
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from ..errors import ConfigError, message_of, readable
from ..kit import majorities, majority
from .codes import DONE, NO_QUORUM, NOBODY, SPLIT
from .configuration import configuration
from .durations import told
from .output import Output, quiet
from .table import dash, facts, objects, table

if TYPE_CHECKING:
    from .. import Holdfast, LockStatus, NodeStatus
    from ..typing import Row

_EVERY = 1.0  # seconds between two looks of --watch
_ELECTION = "[election]"  # how the name of an election's lock ends
# What is shown as JSON, in this order.
_LOCK = ("name", "state", "holder", "owner", "note", "asked", "left", "fence")
_ROW = ("name", "kind", "group", "slot", *_LOCK[1:], "waiting", "waits_since", "votes")
_PERSON = ("token", "owner", "asked", "left", "nodes")
_NODE = (
    "node", "shard", "state", "guard_left", "since", "version", "run_id", "uptime", "rtt", "ahead", "answered", "owing",
    "repaired", "cause", "warnings", "guarantee", "differences",
)  # fmt: skip


def client(options: Namespace, **more: Any) -> Holdfast:
    """Make the client of a verb that looks: its log is silent, its errors are what it prints.

    `more`: options of the client that come before those of the command line.
    """
    if options.client is not None:
        # The application's, and so is its log. Its settings are in no command line.
        lent: Holdfast = options.client()
        if not lent.settings.addresses:
            raise ConfigError("no nodes: name them in the settings of the application, or set HOLDFAST_NODES")
        return lent
    quiet(Output())
    found = configuration(vars(options), os.environ).client(**more)
    for driver in found._drivers:
        # It takes no lock, so nobody has to compare its settings.
        driver.io_thread.engine.notices.registers = False
    return found


# ------------------------------------------------ locks


def ls(options: Namespace) -> int:
    """List the locks that are held."""
    with client(options) as locks:
        if not options.long and not options.json:
            for name in locks.names(options.pattern):
                print(readable(name, len(name.encode()) * 4))
            return DONE
        survey = locks.survey(options.pattern)
        if options.json:
            # Row by row: many locks need no memory here.
            for row in survey:
                objects(row_of(row))
            objects({"scanned": survey.scanned, "nodes": _searched(locks), "complete": True})
        else:
            table(HEAD, (columns(it) for it in sorted(survey, key=lambda it: it.name)))
    return DONE


def _searched(locks: Holdfast) -> int:
    """On how many nodes a survey looks for keys: one of these has any lock that is held."""
    sizes = Counter(it.shard for it in locks.nodes()).values()
    return sum(size - majority(size) + 1 for size in sizes)


def row_of(row: Row) -> dict[str, Any]:
    """A lock as `ls --json` and `top --json` show it."""
    return facts(row, *_ROW, votes="nodes")


# In the order in which they matter: a narrow terminal has no room for the last ones.
HEAD = ("NAME", "HOLDER", "WAIT", "AGE", "LEFT", "KIND", "NODES", "FENCE", "NOTE")
TEXTS = ("NAME", "HOLDER", "NOTE", "NODE", "WHY")


def columns(row: Row) -> list[str]:
    """A lock as `ls -l` and `top` show it."""
    holder = "readers" if row.kind == "read" else readable(row.owner or row.holder or "-", 60)
    left = "-" if row.left is None else told(row.left)
    name = row.name if row.state == "held" else f"{row.name} ({row.state})"
    note = readable(row.note or "-", 80)
    fence = dash(row.fence)
    return [name, holder, str(row.waiting), _age(row.asked), left, row.kind, str(row.nodes), fence, note]


def _age(asked: datetime | None) -> str:
    """For how long somebody has wanted it: by the nodes' clocks, less ours."""
    return "-" if asked is None else told(max(0.0, (datetime.now(UTC) - asked).total_seconds()))


def inspect(options: Namespace) -> int:
    """Show locks node by node. The exit status is that of the last one."""
    how = "looks every second: nodes do not report changes of a lock"
    with client(options) as locks:
        return watched(options, how, _EVERY, lambda: _inspected(locks, options))


def _inspected(locks: Holdfast, options: Namespace) -> int:
    code = DONE
    for name in options.names:
        status, leader = _found(locks, name)
        if options.json:
            objects({**whole_of(status), "leader": leader})
        else:
            said = "" if leader is None else f"\n  leader: {readable(leader, 65536)}"
            print(f"{status}{said}", flush=True)
        code = {"held": DONE, "free": NOBODY}.get(status.state, SPLIT)
    return code


def _found(locks: Holdfast, name: str) -> tuple[LockStatus, str | None]:
    """Find the lock of this name, or the election, and what its leader says."""
    status, office = locks.inspect(name), name.removesuffix(_ELECTION)
    try:
        leader = locks.election(office).leader()
    except ConfigError:
        # It is the lock of another primitive, or a name that moves to another shard.
        return status, None
    return (locks.inspect(office + _ELECTION) if leader and status.state == "free" else status), leader.value


def whole_of(status: LockStatus) -> dict[str, Any]:
    """A lock as `inspect --json` shows it."""
    people = {it: [facts(one, *_PERSON) for one in getattr(status, it)] for it in ("queue", "readers")}
    nodes = [facts(it, "node", "error", "holder", "left", "fence", "waiting", left="ttl_left") for it in status.nodes]
    return {**facts(status, *_LOCK, left="ttl_left"), **people, "nodes": nodes}


def watched(options: Namespace, how: str, every: float, look: Callable[[], int]) -> int:
    """Look once, or with --watch again and again.

    Args:
        options: The command line.
        how: How it is watched, for the line above each look.
        every: Seconds between two looks.
        look: Looks and prints what it sees. Returns the exit status.
    """
    while True:
        if options.watch and not options.json:
            # On a terminal, each look begins at the top.
            print(f"\x1b[H\x1b[J# {how}" if sys.stdout.isatty() else f"# {how}")
        code = look()
        if not options.watch:
            return code
        time.sleep(every)


# ------------------------------------------------ nodes


def nodes(options: Namespace) -> int:
    """Show how the nodes are, or mark them as new."""
    if options.what == "adopt":
        from .adopting import adopt

        return adopt(options)
    with client(options) as locks:
        return watched(options, "looks every second", _EVERY, lambda: _seen(locks, options))


def _seen(locks: Holdfast, options: Namespace) -> int:
    found = locks._seen(0.0 if options.watch else _EVERY)
    if options.json:
        objects(nodes_of(found))
    else:
        show_nodes(found)
    return DONE if usable(found) else NO_QUORUM


def usable(found: Sequence[NodeStatus]) -> bool:
    """Is a majority of each set of nodes up?"""
    return bool(nodes_of(found)["spare"] >= 0)


def nodes_of(found: Sequence[NodeStatus]) -> dict[str, Any]:
    """The nodes as `nodes --json` shows them. Of several sets, the numbers are of the worst."""
    spare, up, needed, *_ = min(majorities(found))
    return {"quorum": needed, "up": up, "spare": spare, "nodes": [node_of(it) for it in found]}


def show_nodes(found: Sequence[NodeStatus], width: int | None = None, all_of_them: bool = True) -> None:
    """Print the nodes as columns, or only those that are not up."""
    shown = [it for it in found if all_of_them or it.state != "up"]
    head = ("NODE", "STATE", "SINCE", "ROUND TRIP", "CLOCK", "SERVER", "WHY")
    table(head, map(_node_columns, shown), width, TEXTS)
    up = sum(it.state == "up" for it in found)
    whole = nodes_of(found)
    needed = [] if len({it.shard for it in found}) > 1 else [f"{whole['quorum']} are needed"]
    said = [f"{up} of {len(found)} are up", *needed, f"{max(whole['spare'], 0)} more may fail"]
    while width is not None and len(said) > 1 and len(", ".join(said)) > width:
        said.pop()
    print(", ".join(said), flush=True)


def node_of(status: NodeStatus) -> dict[str, Any]:
    """A node as `nodes --json` shows it."""
    return {**facts(status, *_NODE), "rtt": None if status.rtt is None else round(status.rtt, 6)}


def _node_columns(status: NodeStatus) -> list[str]:
    ahead = "-" if status.ahead is None else f"{status.ahead * 1000:+.0f} ms"
    trip = "-" if status.rtt is None else f"{status.rtt * 1000:.1f} ms"
    differs = ["settings"] if status.differences else []
    notes = [*status.warnings, *differs, *([] if status.guarantee == "safe" else [status.guarantee])]
    cause = ", ".join(notes) if status.cause is None else message_of(status.cause)
    state = status.state if status.guard_left is None else f"{status.state} {told(status.guard_left)}"
    return [status.node, state, told(status.since), trip, ahead, dash(status.version), cause]
