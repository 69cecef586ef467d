"""`nodes adopt`: an operator's word that servers are new, which clients read on the servers.

Knows what servers tell of their past. Must not know when a client uses a node.
"""

from __future__ import annotations

import re
import secrets
from argparse import Namespace
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from ..errors import message_of
from ..kit import ADOPTED
from .codes import DONE, NOBODY
from .diagnosis import ask, asked, by_shard, facts_of, text_of
from .looking import client
from .options import Usage
from .processes import connected, few
from .table import objects

if TYPE_CHECKING:
    from .. import Holdfast, NodeStatus

# How long a server keeps the word, in ms: longer than any restart guard.
_LASTS = 86_400_000


class _NewServer(NamedTuple):
    """A server that may be new.

    Attributes:
        shard: The number of its shard.
        at: Its number there.
        node: Its address.
        run_id: Its run.
        marked: Whether an operator has said before that this run is new.
        problem: Why it may not be new. Empty if nothing speaks against it.
    """

    shard: int
    at: int
    node: str
    run_id: str
    marked: bool
    problem: str


def adopt(options: Namespace) -> int:
    """Mark all nodes as new, or none of them."""
    if options.watch:
        raise Usage("adopt is done once: leave --watch out")
    if options.client is not None:
        raise Usage("adopt marks nodes without the application: run `holdfast nodes adopt --nodes URLS`")
    # Without a guard, this client may ask servers that have just started. It takes no lock.
    me = f"adopt:{secrets.token_hex(8)}"
    with client(options, restart_guard=None, previous=(), owner=me) as locks:
        found = [it for shard, own in by_shard(locks._seen(5.0)) for it in _looked(locks, shard, own, me)]
        if all(it.marked for it in found):
            # They have been in use since. What was said of these runs stays true.
            found = [it._replace(problem="") for it in found]
        elif not any(it.problem for it in found):
            found = [_marked(locks, it) for it in found]
    done = not any(it.problem for it in found)
    if options.json:
        objects(*({"node": it.node, "run_id": it.run_id or None, "problem": it.problem or None} for it in found))
        return DONE if done else NOBODY
    for it in found:
        if it.problem or done:
            print(f"{it.node}: {it.problem or f'new, run {it.run_id}'}")
    if done:
        print("clients use these nodes at once. After a restart, they wait for the restart guard again")
    else:
        print("not all nodes are new, so clients wait for the restart guard")
    return DONE if done else NOBODY


def _looked(locks: Holdfast, shard: int, nodes: list[NodeStatus], me: str) -> Iterator[_NewServer]:
    """Ask the nodes of a shard for what speaks against their being new."""
    size = len(nodes)
    told = ask(locks, shard, size, b"INFO")
    marks = ask(locks, shard, size, b"GET", ADOPTED)
    listed = ask(locks, shard, size, b"CLIENT", b"LIST")
    for at, status in enumerate(nodes):
        facts = facts_of(told.answers.get(at))
        run_id = facts.get("run_id", "")
        marked = run_id != "" and text_of(marks.answers.get(at)) == run_id
        causes = [it.causes[at] for it in (told, marks, listed) if at in it.causes]
        problem = ""
        if status.state != "up":
            problem = f"{status.state}: {'no answer' if status.cause is None else message_of(status.cause)}"
        elif causes:
            problem = f"this user may not look: {message_of(causes[0])}"
        elif locks._shards.all[shard].settings.addresses[at].moves:
            problem = "its place is asked for, so clients wait for every server that they meet there"
        else:
            problem = _past(facts, marked) or _company(text_of(listed.answers.get(at)), me)
        yield _NewServer(shard, at, status.node, run_id, marked, problem)


def _past(facts: dict[str, str], marked: bool) -> str:
    """Return what shows that a server has been in use before, or an empty string."""
    if facts.get("second_repl_offset", "-1") != "-1" or facts.get("master_replid2", "").strip("0"):
        return "it was a replica before: it may lack locks that its primary granted"
    # A client that used it has noted itself there for a day, so an empty server has no clients.
    if keys := sum(int(it) for text in facts.values() for it in re.findall(r"^keys=(\d+)", text)) - marked:
        return f"it has {keys} keys, so it is in use, or kept them when it restarted"
    loaded = sum(int(facts.get(f"rdb_last_load_keys_{it}", "0")) for it in ("loaded", "expired"))
    return f"it loaded {loaded} keys when it started, so it ran before" if loaded else ""


def _company(listed: str, me: str) -> str:
    """Return which clients of holdfast are connected, who may hold locks that it forgot."""
    others, _ = connected(listed, me)
    return f"{few(others)} may hold locks that it forgot: stop all clients first" if others else ""


def _marked(locks: Holdfast, server: _NewServer) -> _NewServer:
    """Mark a server. If it restarts meanwhile, the mark names a run that is over."""
    words = (b"SET", ADOPTED, server.run_id.encode(), b"PX", b"%d" % _LASTS)
    causes = asked(locks, server.shard, {server.at: words}).causes
    return server._replace(problem=f"not marked: {message_of(causes[server.at])}") if causes else server
