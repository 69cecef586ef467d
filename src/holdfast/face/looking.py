"""How a client looks at locks, and takes them away: which rounds, and what is made of their answers. Shared by both faces.

Knows recipes, and that rounds have answers. Must not know who waits for them: each function is a plan.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from .. import checks
from ..core import quorum
from ..core.round import Answers, Round
from ..core.ticket import TOKEN, inbox_of
from ..engine import roll
from ..engine.crew import NodeStatus
from ..engine.settings import Settings
from ..errors import ConfigError, HoldfastError, LockBusy, NoQuorum
from ..events import Forced
from ..recipes import looking
from ..recipes.exclusive import key_of
from ..recipes.looking import LockStatus
from ..wire.resp import Refusal
from .plans import Ask, Plan


def inspect(settings: Settings, name: str) -> Plan[LockStatus]:
    """How a lock is, node by node."""
    seen = yield from _everywhere(settings, looking.inspect(key_of(name, settings.prefix, parts=True)), name, "inspect")
    labels = [it.label for it in settings.addresses]
    status = looking.status(name, labels, seen.answers, seen.causes, {})
    tokens = [status.holder or "", *(it.token for it in status.readers), *(it.token for it in status.queue)]
    known = yield from owners(settings, [it.encode() for it in tokens], seen.answers)
    return looking.status(name, labels, seen.answers, seen.causes, known)


def owners(settings: Settings, values: Iterable[bytes], nodes: Collection[int]) -> Plan[dict[bytes, str]]:
    """Ask whose clients made these values of locks.

    Args:
        settings: Those of the nodes.
        values: Tokens, and values of other programs, of which no node knows anything.
        nodes: The nodes to ask.

    Returns:
        By inbox, whose it is, of those that the nodes know.
    """
    inboxes = list(dict.fromkeys(inbox_of(it) for it in values if TOKEN.fullmatch(it)))
    if not inboxes:
        return {}
    seen = yield Ask(dict.fromkeys(nodes, roll.owned(settings.prefix, inboxes)))
    return roll.owners(inboxes, seen.answers.values())


def tell_owner(settings: Settings, busy: LockBusy) -> Plan[None]:
    """Have the error say whose client holds the lock, if a node knows that.

    Costs a round trip, and is for callers that get to see the error. Callers of one client that meet the same holder at the same time
    ask once. Where no node answers, the error stays as it is.
    """
    holder = (busy.holder or "").encode()
    if not TOKEN.fullmatch(holder):
        return
    inbox, size = inbox_of(holder), len(settings.addresses)

    def enough(answers: Answers) -> bool:
        return len(answers) >= quorum.majority(size) or bool(roll.owners([inbox], answers.values()))

    try:
        seen = yield Ask(dict.fromkeys(range(size), roll.owned(settings.prefix, [inbox])), enough, share=("owner", inbox))
    except HoldfastError:
        # The client was closed meanwhile, perhaps. The caller is to be told that the lock is busy.
        return
    if owner := roll.owners([inbox], seen.answers.values()).get(inbox):
        busy.held_by(owner)


def locked_by(settings: Settings, name: str) -> Plan[str | None]:
    """Who has a lock on a majority. NoQuorum where too few nodes answer to tell."""
    size = len(settings.addresses)
    command = looking.holder(key_of(name, settings.prefix, parts=True))
    seen = yield Ask(dict.fromkeys(range(size), command), lambda answers: looking.on_majority(answers, size)[0])
    certain, value = looking.on_majority(seen.answers, size)
    if not certain:
        raise unheard(settings, seen, name, "look at")
    return None if value is None else value.decode("utf-8", "backslashreplace")


def writable(settings: Settings, nodes: tuple[NodeStatus, ...]) -> Plan[tuple[NodeStatus, ...]]:
    """See whether the nodes that are up take writes: one that is out of memory, or cannot save, answers and grants nothing.

    Returns:
        The nodes, those that refuse as down, with the server's own words as the cause.

    Raises:
        NoQuorum: Fewer than a majority take writes.
    """
    up = [at for at, node in enumerate(nodes) if node.state == "up"]
    seen = yield Ask(dict.fromkeys(up, looking.probe(settings.prefix)))
    # A connection that broke meanwhile says nothing about writes, and is made again.
    refused = {at: cause for at, cause in seen.causes.items() if isinstance(cause, Refusal)}
    found = tuple(node._replace(state="down", cause=refused[at]) if at in refused else node for at, node in enumerate(nodes))
    if sum(it.state == "up" for it in found) < quorum.majority(len(nodes)):
        causes = {it.node: it.cause for it in found if it.cause is not None}
        raise NoQuorum("a majority of the nodes", seen.ended - seen.began, causes, quorum.majority(len(nodes)), "write to")
    return found


def straggling(settings: Settings, nodes: tuple[NodeStatus, ...]) -> Plan[tuple[NodeStatus, ...]]:
    """See which clients use the nodes and do not know this client's list of sets. Of nodes that do not answer, nothing is told."""
    up = [at for at, node in enumerate(nodes) if node.state == "up"]
    seen = yield Ask(dict.fromkeys(up, roll.look(settings.prefix, settings.spreads)))
    told = {at: roll.found(answer, settings.spreads, settings.leaving) for at, answer in seen.answers.items()}
    return tuple(node._replace(stragglers=told.get(at)) for at, node in enumerate(nodes))


def names(settings: Settings, pattern: str) -> Plan[list[str]]:
    """The names of all locks that are held, in order; of nodes that do not answer, nothing is told."""
    checks.text(pattern, "a pattern of names", most=512)
    cursors, keys = dict.fromkeys(range(len(settings.addresses)), b"0"), set[bytes]()
    first = True
    while cursors:
        seen = yield Ask({node: looking.names(settings.prefix, pattern, cursor) for node, cursor in cursors.items()})
        if first and not seen.sufficient:
            raise unheard(settings, seen, pattern, "look for")
        first, cursors = False, {}
        for node, reply in seen.answers.items():
            cursor, found = looking.found(reply)
            keys.update(found)
            if cursor != b"0":
                cursors[node] = cursor
    skip = len(settings.prefix.encode())
    return sorted(it[skip:].decode("utf-8", "backslashreplace") for it in keys)


def force_release(settings: Settings, name: str, reason: str, only: str | None) -> Plan[Forced]:
    """Take a lock away from whoever has it."""
    checks.text(reason, "the reason of a forced release", most=1024)
    if not reason.strip():
        raise ConfigError("a forced release needs a reason: the log and the observers will show it")
    value = "" if only is None else checks.text(only, "only", most=512)
    if only is not None and not only:
        raise ConfigError("only is a token, as `lease.token`, `inspect` and LockBusy show it; leave it out to take the lock from anybody")
    holders: list[bytes] = []
    for only_this in looking.meant(value):
        # Nobody here knows of which kind the lock is: each script takes its own.
        for command in (looking.force_release, looking.rw_force_release):
            told = command(key_of(name, settings.prefix, parts=True), settings.horizon, only_this)
            seen = yield from _everywhere(settings, told, name, "force the release of")
            holders += [it for it in seen.answers.values() if isinstance(it, bytes)]
    holder = max(holders, key=holders.count, default=None)
    text = None if holder is None else holder.decode("utf-8", "backslashreplace")
    return Forced(name=name, holder=text, nodes=len(holders), reason=reason)


def _everywhere(settings: Settings, command: bytes, name: str, doing: str) -> Plan[Round]:
    """Ask all nodes the same; NoQuorum if too few answer."""
    seen: Round = yield Ask(dict.fromkeys(range(len(settings.addresses)), command))
    if not seen.sufficient:
        raise unheard(settings, seen, name, doing)
    return seen


def unheard(settings: Settings, seen: Round, name: str, doing: str) -> NoQuorum:
    """Too few nodes have answered: why, node by node."""
    causes = {settings.addresses[node].label: cause for node, cause in seen.causes.items()}
    return NoQuorum(name, seen.ended - seen.began, causes, quorum.majority(len(settings.addresses)), doing)
