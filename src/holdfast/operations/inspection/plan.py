"""How a client inspects locks and takes them away: which rounds, and what their answers mean.

For threads and for asyncio. Knows recipes, and that queries have answers. Must not know who waits
for them: each function is a plan.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Protocol

from ... import checks
from ...engine import registry
from ...engine.plans import Ask, Plan
from ...engine.settings import Settings
from ...engine.status import NodeStatus
from ...errors import ConfigError, HoldfastError, LockBusy, NoQuorum
from ...events import Forced
from ...protocol import note
from ...protocol.command import Recipe
from ...protocol.exclusive import key_of
from ...protocol.nodes import too_few
from ...protocol.query import Answers, Query
from ...protocol.semaphore import Slots
from ...protocol.ticket import TOKEN, inbox_of
from ...wire.resp import pack
from . import commands as inspection
from .commands import LockStatus


class Asked(Protocol):
    """What nodes were asked: when, and why some of them have not answered."""

    began: float
    ended: float
    causes: dict[int, Exception]


def inspect(settings: Settings, name: str) -> Plan[LockStatus]:
    """Ask for the state of a lock, node by node."""
    seen = yield from _everywhere(
        settings, inspection.inspect(key_of(name, settings.prefix, parts=True)), name, "inspect"
    )
    labels = [it.label for it in settings.addresses]
    status = inspection.status(name, labels, seen.answers, seen.causes, {}, settings.quorum)
    tokens = [status.holder or "", *(it.token for it in status.readers), *(it.token for it in status.queue)]
    known = yield from owners(settings, [it.encode() for it in tokens], seen.answers)
    return inspection.status(name, labels, seen.answers, seen.causes, known, settings.quorum)


def owners(settings: Settings, values: Iterable[bytes], nodes: Collection[int]) -> Plan[dict[bytes, str]]:
    """Ask whose clients made these values of locks.

    Args:
        settings: Those of the nodes.
        values: Tokens, and values of other programs, of which no node knows anything.
        nodes: The nodes to ask.

    Returns:
        The owners that the nodes know, by inbox.
    """
    inboxes = list(dict.fromkeys(inbox_of(it) for it in values if TOKEN.fullmatch(it)))
    if not inboxes:
        return {}
    seen = yield Ask(dict.fromkeys(nodes, registry.owned(settings.prefix, inboxes)))
    return registry.owners(inboxes, seen.answers.values())


def tell_owner(settings: Settings, busy: LockBusy, recipes: tuple[Recipe, ...] | Slots) -> Plan[None]:
    """Have the error say whose client holds the lock, and its note, if a node knows that.

    Costs a round trip, and is for callers that get to see the error. Callers of one client that
    meet the same holder of the same lock at the same time ask once. If no node answers, the error
    stays as it is.

    Args:
        settings: Those of the nodes.
        busy: The error.
        recipes: What was asked for. Of a semaphore, it is not known which slot the error is about,
            so notes are not asked for.
    """
    holder = (busy.holder or "").encode()
    if not TOKEN.fullmatch(holder):
        return
    locks = () if isinstance(recipes, Slots) else tuple(it.name for it in recipes if it.label == busy.name)
    try:
        owner, said = yield from _identity(settings, holder, locks)
    except HoldfastError:
        # The client was closed meanwhile, perhaps. The caller is to be told that the lock is busy.
        return
    if owner or said:
        busy.held_by(owner, said)


def _identity(settings: Settings, holder: bytes, locks: tuple[bytes, ...]) -> Plan[tuple[str | None, str | None]]:
    """Ask who has made a token: the owner of its client, and its note on one of these locks.

    Both are one question. A node that is the only one of a Redis Cluster refuses it, because the
    keys are in different slots. It is then asked for the owner alone.
    """
    inbox, decides = inbox_of(holder), settings.quorum
    keys = registry.owner_key(settings.prefix, inbox), *map(note.key_of, locks)

    def owners(answers: Answers) -> list[str]:
        told = [registry.owner_of(it[0]) for it in answers.values() if isinstance(it, list) and it]
        return [it for it in told if it is not None]

    def enough(answers: Answers) -> bool:
        return decides.met(answers) or bool(owners(answers))

    seen = yield Ask(dict.fromkeys(decides.nodes, pack(b"MGET", *keys)), enough, share=("owner", *keys))
    if locks and not seen.answers and any(str(it).startswith("CROSSSLOT") for it in seen.causes.values()):
        return (yield from _identity(settings, holder, ()))
    answers = [it for it in seen.answers.values() if isinstance(it, list)]
    notes = [said for answer in answers for it in answer[1:] if (said := note.read(it, holder)) is not None]
    return next(iter(owners(seen.answers)), None), next(iter(notes), None)


def locked_by(settings: Settings, name: str) -> Plan[str | None]:
    """Ask who holds a lock on a majority. Raise NoQuorum if too few nodes answer to know."""
    decides = settings.quorum
    command = inspection.holder(key_of(name, settings.prefix, parts=True))
    seen = yield Ask(dict.fromkeys(decides.nodes, command), lambda answers: inspection.on_majority(answers, decides)[0])
    certain, value = inspection.on_majority(seen.answers, decides)
    if not certain:
        raise unheard(settings, seen, name, "look at")
    return inspection.text_of(value)


def straggling(settings: Settings, nodes: tuple[NodeStatus, ...]) -> Plan[tuple[NodeStatus, ...]]:
    """Ask which clients use the nodes and know another list of shards or have other settings.

    Nodes that do not answer have None.
    """
    up = [at for at, node in enumerate(nodes) if node.state == "up"]
    runs = [it.run_id or "" for it in nodes]
    mine, after = registry.written(settings, runs, "-"), registry.following(settings, runs)
    lasted = {it.run_id: it.uptime for it in nodes if it.uptime is not None}
    seen = yield Ask(dict.fromkeys(up, registry.ask_registry(settings.prefix, mine)))
    told = {at: registry.differences(answer, mine, after, lasted) for at, answer in seen.answers.items()}
    shown = [(None, ()) if (it := told.get(at)) is None else registry.shown(it) for at in range(len(nodes))]
    return tuple(
        node._replace(stragglers=strange, differences=texts)
        for node, (strange, texts) in zip(nodes, shown, strict=True)
    )


def names(settings: Settings, pattern: str) -> Plan[list[str]]:
    """Return the names of all locks that are held, sorted.

    Nodes that do not answer are left out.
    """
    checks.text(pattern, "a pattern of names", most=512)
    cursors, keys = dict.fromkeys(range(len(settings.addresses)), b"0"), set[bytes]()
    first = True
    while cursors:
        seen = yield Ask({node: inspection.names(settings.prefix, pattern, cursor) for node, cursor in cursors.items()})
        if first and not seen.sufficient:
            raise unheard(settings, seen, pattern, "look for")
        first, cursors = False, {}
        for node, reply in seen.answers.items():
            cursor, _, found = inspection.found(reply)
            keys.update(found)
            if cursor != b"0":
                cursors[node] = cursor
    skip = len(settings.prefix.encode())
    return sorted(it[skip:].decode("utf-8", "backslashreplace") for it in keys)


def force_release(settings: Settings, name: str, reason: str, only: str | None) -> Plan[Forced]:
    """Take a lock away from its holder."""
    checks.text(reason, "the reason of a forced release", most=1024)
    if not reason.strip():
        raise ConfigError("a forced release needs a reason: the log and the observers will show it")
    value = "" if only is None else checks.text(only, "only", most=512)
    if only is not None and not only:
        raise ConfigError(
            "only is a token, as `lease.token`, `inspect` and LockBusy show it; leave it out to take the lock "
            "from anybody"
        )
    holders: list[bytes] = []
    for only_this in inspection.meant(value):
        # Nobody here knows of which kind the lock is: each script takes its own.
        for command in (inspection.force_release, inspection.rw_force_release):
            told = command(key_of(name, settings.prefix, parts=True), settings.horizon, only_this)
            seen = yield from _everywhere(settings, told, name, "force the release of")
            holders += [it for it in seen.answers.values() if isinstance(it, bytes)]
    holder = max(holders, key=holders.count, default=None)
    return Forced(name=name, holder=inspection.text_of(holder), nodes=len(holders), reason=reason)


def _everywhere(settings: Settings, command: bytes, name: str, doing: str) -> Plan[Query]:
    """Ask all nodes the same. Raise NoQuorum if too few answer."""
    seen: Query = yield Ask(dict.fromkeys(range(len(settings.addresses)), command))
    if not seen.sufficient:
        raise unheard(settings, seen, name, doing)
    return seen


def unheard(settings: Settings, seen: Asked, name: str, doing: str) -> ConfigError | NoQuorum:
    """Return the error for too few answers, with the reason for each node."""
    causes = {settings.addresses[node].label: cause for node, cause in seen.causes.items()}
    return too_few(name, seen.ended - seen.began, causes, settings.quorum, doing)
