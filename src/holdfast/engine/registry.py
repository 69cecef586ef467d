"""The registry of clients: on every node, which clients live, whose they are, and their settings.

Knows what clients note there, and which of them must not go on beside this one. Must not know
connections or claims.

The guard and the fence horizon follow from `max_ttl`, the guard after a promotion from `failover`
too, and a majority from the list of nodes. While shards are changed, a client that knows only the
old list and a client that knows only the new one would hold the same name at the same time. No
protocol keeps clients apart that differ in one of these. So each client notes its settings on each
node with its first use, and again every `EVERY` seconds, whether it is used or not. Clients with
the same settings share a note, so the answer is short, unless some differ. A node remembers a
client for more than a day, so that jobs that run for a moment and come back the next day are seen,
too.

A token has the inbox of the client that made it. So for each inbox, a node keeps the `owner` of its
client, and thus knows who holds a lock. It forgets that sooner.

The number of permits of a semaphore is noted beside its keys, in the write of a request.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from math import inf
from typing import NamedTuple

from ..protocol.joint import Some
from ..protocol.query import Query
from ..scripts import REGISTRY
from ..wire.resp import evalsha, pack
from .settings import Settings

EVERY = 30.0  # seconds between two notes of a client
# Seconds for which a node remembers a client: a daily job is seen, on the day on which clocks are
# set back, too.
LIFE = 26 * 3600
# Seconds for which a node keeps whose an inbox is: a client that misses a note is still known.
NAMED = 180.0
# Seconds: a client that noted its settings within them lives, as far as anybody knows. Clients of
# earlier versions noted something once a minute.
RECENT = 75.0
ALONE = "0"  # the list of a client that has one shard
# How many notes a node keeps, how many clients of each, and how many of these it tells of.
NOTES, ALL_CLIENTS, TOLD = 32, 1000, 16
SHOWN = 3  # clients that a warning names
# How many clients are remembered because they were warned of, and how many semaphores because their
# permits were noted: a template can name any number of them.
MOST = 10_000
# Texts, which `re` compiles at their first use. Clients of 0.1.0 before the registry noted only the
# first half, as v1, and a list of shards.
_BOUNDS = rb"[0-9a-f]{1,8}=[0-9]{1,9}"
_NOTE = (
    rb"(?:v[12] ([0-9]{1,12}) ([0-9]{1,4}) ([0-9a-f,]*)(?: ((?:%b(?:,%b)*)?))?)?"
    rb"(?:(?:^| )([0-9a-f]{1,8}(?:,[0-9a-f]{1,8})*)(?: ([!-~]{1,64}))?)?" % (_BOUNDS, _BOUNDS)
)
_CLIENT = rb"(?:[!-~]{1,128} [0-9a-f]{8})?"
_DIGITS = 8  # of a run_id
SETTINGS, SHARDS = "settings", "shards"
OTHERS = "other nodes besides this one at {}: their majorities need not meet. Name the same nodes everywhere."


class Straggler(NamedTuple):
    """A client that uses a node, and does not know the list of shards that this client knows.

    Attributes:
        owner: The client's `owner`, such as "host:pid".
        seen: Seconds since it last reported. A client reports twice a minute for as long as it
            lives.
    """

    owner: str
    seen: float


class ClientNote(NamedTuple):
    """The settings of clients. What an earlier version did not note is None, or empty.

    Attributes:
        max_ttl: In ms.
        size: The number of nodes.
        runs: The first digits of their run ids, as far as they are known.
        failovers: The `failover` of nodes in ms, by these digits.
        known: A digest of each list of shards that the client knows, the current one first.
        version: The version of holdfast.
    """

    max_ttl: int | None
    size: int
    runs: frozenset[str]
    failovers: Mapping[str, int]
    known: Sequence[str]
    version: str


class OtherClient(NamedTuple):
    """A client with other settings, as a node tells of it.

    Attributes:
        name: Its owner and the first digits of its inbox. Empty for one of an earlier version.
        note: Its settings.
        age: Seconds since it noted them.
    """

    name: str
    note: ClientNote
    age: float

    @property
    def owner(self) -> str:
        return self.name.rpartition(" ")[0] or "a client of an earlier version"


# By kind and text of a difference, with {} for their names: the clients that differ so.
Differences = Mapping[tuple[str, str], Sequence[OtherClient]]


class Registry:
    """One client's part in it, on the nodes of one shard. Times are in seconds.

    Args:
        settings: The client's.
        inbox: Its inbox, 32 hexadecimal digits.
        version: The version of this library.

    Attributes:
        due: When this client notes its settings next. inf: not before a node is connected.
        fresh: The nodes that are connected, and on which it has not noted them since.
    """

    def __init__(self, settings: Settings, inbox: bytes, version: str) -> None:
        self._settings, self._inbox, self._version = settings, inbox, version
        nodes = len(settings.addresses)
        self.fresh: set[int] = set()
        self.due = inf
        self._dues = [inf] * nodes
        # What was noted on each node last, and the run ids of all nodes at that time.
        self._was = [b""] * nodes
        self._runs: Sequence[str] = [""] * nodes
        # How other clients differ by what each node has told, and when.
        self._seen: list[tuple[Differences, float] | None] = [None] * nodes
        # The differences of clients that were warned of (a set, in order).
        self._warned: dict[tuple[str, str, str], None] = {}
        # The semaphores to note with the next request.
        self.permits: list[Some] = []
        # By semaphore: its size, and until when it need not be noted again.
        self._sizes: dict[str, tuple[int, float]] = {}

    def up(self, node: int, due: float) -> None:
        """Take in that a node is connected. Note the settings at `due`, or with the first use."""
        self.fresh.add(node)
        self._dues[node] = due
        self.due = min(self._dues)

    def used(self, now: float) -> None:
        """Note the settings now, because the client is used. It may live for less than a second."""
        for node in self.fresh:
            self._dues[node] = now
        self.due = min(self._dues)

    def questions(self, runs: Sequence[str], up: Collection[int], now: float) -> dict[int, bytes]:
        """Return what to ask the nodes for which that is due.

        Args:
            runs: The run id of each node. Empty if it cannot be reached: its server may have
                restarted. All are empty while nodes are being dialled, and then the note is
                written again soon.
            up: The nodes that are connected.
            now: The time.
        """
        settings, due = self._settings, [node for node, it in enumerate(self._dues) if it <= now]
        note, again = written(settings, runs, self._version), EVERY if any(runs) else settings.node_timeout
        me, asked = b"%b %b" % (settings.owner.encode(), self._inbox[:8]), {}
        self._runs = runs
        for node in due:
            self._dues[node] = now + again
            if node in up:
                asked[node] = _question(settings.prefix, note, self._inbox, me, self._was[node] or note)
                self._was[node] = note
        self.fresh.difference_update(due)
        self.due = min(self._dues)
        return asked

    def end(self) -> None:
        """Note nothing any more, because the client is closed."""
        self.due = inf

    def told(
        self, query: Query, slots: Some | None, lasted: Mapping[str, float], now: float
    ) -> Iterator[tuple[int, str, str]]:
        """Take in what nodes have answered.

        Args:
            query: The query.
            slots: The semaphore, if it was about its permits.
            lasted: For how many seconds each server that is connected runs, by its run id.
            now: The time.

        Returns:
            The node, kind and text of each warning of clients that live, without earlier ones.
        """
        if len(self._settings.spreads) > 2:
            # This shard is a joint one, and those that it consists of tell of other clients.
            return
        for node, answer in sorted(query.answers.items()):
            if slots is not None:
                if warning := slots.differs(answer):
                    yield node, "permits", warning
                    # One node is enough.
                    return
                continue
            if (found := differences(answer, self._was[node], following(self._settings, self._runs), lasted)) is None:
                continue
            before, self._seen[node] = self._seen[node], (found, now)
            for (kind, text), clients in found.items():
                new = [it for it in clients if it.age <= RECENT and (kind, text, it.name) not in self._warned]
                if text == OTHERS:
                    # After a failover, clients meet the new server one after the other.
                    known = before[0].get((kind, text), ()) if before else ()
                    new = [it for it in new if it.name in {old.name for old in known}]
                self._warned.update(dict.fromkeys((kind, text, it.name) for it in new))
                if new:
                    yield node, kind, text.format(_names(new))
        while len(self._warned) > MOST:
            del self._warned[next(iter(self._warned))]

    def seen(self, node: int, now: float) -> tuple[tuple[Straggler, ...] | None, tuple[str, ...]]:
        """Return the stragglers that a node has told of, or None, and how other clients differ."""
        seen = self._seen[node]
        return (None, ()) if seen is None else shown(seen[0], now - seen[1])

    # ------------------------------------------------ permits

    def wanted(self, slots: Some, now: float) -> None:
        """Note a semaphore whose permits are about to be requested."""
        size, until = self._sizes.get(slots.label, (0, 0.0))
        if size == len(slots) and now < until:
            return
        self._sizes.pop(slots.label, None)
        # While it is in use, it is noted again after a third of the time for which it is kept.
        self._sizes[slots.label] = len(slots), now + self._settings.max_ttl / 3
        if len(self._sizes) > MOST:
            # Forget the oldest. If it is used again, it is noted once more.
            del self._sizes[next(iter(self._sizes))]
        self.permits.append(slots)

    def sizes(self) -> Iterator[tuple[Some, bytes]]:
        """Return the semaphores to note, each with the bytes for every node. Then none is due."""
        due, self.permits = self.permits, []
        for slots in due:
            yield slots, slots.tells(self._settings.max_ttl)


# ------------------------------------------------ what is noted, and asked


def written(settings: Settings, runs: Sequence[str], version: str) -> bytes:
    """Return the note of a client. `runs` has the run id of each node, or an empty text."""
    bounds = {it[:_DIGITS]: node.failover for it, node in zip(runs, settings.addresses, strict=True) if it}
    failovers = [f"{it}={round(bound * 1000)}" for it, bound in sorted(bounds.items()) if bound is not None]
    lists, limit = ",".join(settings.spreads or (ALONE,)), round(settings.max_ttl * 1000)
    said = f"v2 {limit} {len(runs)} {','.join(sorted(bounds))} {','.join(failovers)} {lists} {version}"
    return said.encode()


def ask_registry(prefix: str, note: bytes = b"", told: int = TOLD) -> bytes:
    """Return the bytes that ask which clients have other settings than these, and note nothing.

    Without a note, the clients are all that are known.
    """
    return _question(prefix, note, told=told)


def _question(
    prefix: str, note: bytes, inbox: bytes = b"", me: bytes = b"", was: bytes = b"", told: int = TOLD
) -> bytes:
    clients, lists, config = (b"{holdfast}:%b:%b" % (it, prefix.encode()) for it in (b"clients", b"lists", b"config"))
    most, lasts, life = b"%d %d %d" % (NOTES, ALL_CLIENTS, told), b"%d" % (NAMED * 1000), b"%d" % (LIFE * 1000)
    keys = clients, owner_key(prefix, inbox), lists, config
    return evalsha(REGISTRY, *keys, me, note, was, life, most, lasts)


# ------------------------------------------------ who differs


def read(text: bytes) -> ClientNote | None:
    """Read a note. None if no client of holdfast wrote it, or one that knows the registry."""
    found = re.fullmatch(_NOTE, text)
    if found is None or not text or (text.startswith(b"v1") and found[3].endswith(b",")):
        return None
    limit, size, runs, failovers, known, version = (it and it.decode() for it in found.groups())
    bounds = (it.split("=") for it in (failovers or "").split(",") if it)
    return ClientNote(
        max_ttl=None if limit is None else int(limit),
        size=int(size or 0),
        runs=frozenset((runs or "").split(",")) - {""},
        failovers={run: int(bound) for run, bound in bounds},
        known=known.split(",") if known else (),
        version=version or "",
    )


def registered(answer: object) -> list[OtherClient] | None:
    """Return the clients in an answer, the latest first. None if the answer is no list."""
    if not isinstance(answer, list):
        return None
    found: dict[str, OtherClient] = {}
    for entry in answer:
        match entry:
            case [bytes() as text, *rest] if len(rest) % 2 == 0 and (note := read(text)) is not None:
                for name, ms in zip(rest[::2], rest[1::2], strict=True):
                    if isinstance(name, bytes) and isinstance(ms, int) and re.fullmatch(_CLIENT, name):
                        # A client that has a note is on the list for earlier versions, too.
                        found.setdefault(name.decode(), OtherClient(name.decode(), note, ms / 1000))
    return sorted(found.values(), key=lambda it: it.age)


class Following(NamedTuple):
    """The nodes that follow the former ones of a shard. A client that knows one list knows these.

    The digests do not tell: if nodes of a shard were replaced, the former and the next list may
    have the same digest.

    Attributes:
        size: Their number. 0: the shard is only in the former list.
        runs: The first digits of their run ids, as far as they are known.
    """

    size: int
    runs: frozenset[str]

    def known(self, note: ClientNote) -> bool:
        """Return whether a client with this note knows them."""
        return len(note.known) > 1 or (note.size == self.size > 0 and len(note.runs | self.runs) <= self.size)


def following(settings: Settings, runs: Sequence[str]) -> Following | None:
    """Return the nodes that follow those of a shard, or None. `runs` has each node's run id."""
    if settings.lists:
        after = settings.lists[0]
        return Following(len(after), frozenset(runs[it][:_DIGITS] for it in after) - {""})
    return Following(0, frozenset()) if settings.leaving else None


def differences(
    answer: object, mine: bytes, after: Following | None, lasted: Mapping[str, float]
) -> Differences | None:
    """Return how the clients in an answer differ from this one. None if the answer is no list.

    Args:
        answer: The answer of a node.
        mine: The note of this client.
        after: The nodes that follow those of this node's shard.
        lasted: For how many seconds each server that is connected runs, by its run id.
    """
    told, own = registered(answer), read(mine)
    if told is None or own is None:
        return None
    found: dict[tuple[str, str], list[OtherClient]] = {}
    for it in told:
        if text := _spread(own, it.note, after):
            found.setdefault((SHARDS, text), []).append(it)
        if text := _setting(own, it, lasted):
            found.setdefault((SETTINGS, text), []).append(it)
    return found


def _spread(own: ClientNote, theirs: ClientNote, after: Following | None) -> str:
    """Return what to say of clients that do not know the current list of shards, or nothing."""
    if not theirs.known or (own.known[0] in theirs.known if after is None else after.known(theirs)):
        return ""
    if len(own.known) > 1:
        return (
            "it is used by clients that know only the former shards, or others: {}. "
            "As long as they run, do not remove `previous` from any client: they and clients without `previous` "
            "would hold the same names. Restart them with the new shards and `previous`; "
            "nodes() and ready() show who is left."
        )
    return (
        "it is used by clients that spread names over other shards: {}. "
        "They and this client may hold the same name. "
        "Name the same shards everywhere; while they change, name the former ones as `previous`."
    )


def _setting(own: ClientNote, other: OtherClient, lasted: Mapping[str, float]) -> str:
    """Return the first difference in settings as text, with {} for who has it, or an empty text."""
    theirs = other.note
    if other.age > RECENT or theirs.max_ttl is None:
        return ""
    if theirs.max_ttl != own.max_ttl:
        them, us = ((it.max_ttl or 0) / 1000 for it in (theirs, own))
        return (
            f"max_ttl={them:g} at {{}}, and {us:g} at this client: "
            "only if all have the same are leases and fences safe. Set the larger one everywhere."
        )
    # A client that knows other lists, or has joined them, may have more nodes.
    if theirs.size != own.size and (theirs.known == own.known or len(theirs.known) == len(own.known) == 1):
        return (
            f"{theirs.size} nodes at {{}}, and {own.size} at this client: "
            "their majorities need not meet. Name the same nodes everywhere."
        )
    # What was noted before a server started still has the run before. Its client has a moment to
    # see that.
    settled = {it[:_DIGITS] for it, seconds in lasted.items() if seconds > other.age + EVERY}
    if len(theirs.runs | (own.runs & settled)) > max(own.size, theirs.size):
        return OTHERS
    for run in sorted(own.runs & theirs.runs):
        if theirs.failovers.get(run) != own.failovers.get(run):
            elsewhere, here = (
                f"failover={it.failovers[run] / 1000:g}" if run in it.failovers else "no failover"
                for it in (theirs, own)
            )
            return (
                f"{elsewhere} at {{}} for the server with run_id {run}…, and {here} at this client: "
                "only if all have the same are locks safe after a failover. Set the larger one everywhere."
            )
    return ""


def shown(found: Differences, since: float = 0.0) -> tuple[tuple[Straggler, ...], tuple[str, ...]]:
    """Return the stragglers, as old as they are by now, and how other clients' settings differ."""
    strange = [it for (kind, _), those in found.items() for it in those if kind == SHARDS]
    texts = tuple(text.format(_names(those)) for (kind, text), those in found.items() if kind == SETTINGS)
    return tuple(Straggler(it.owner, it.age + since) for it in strange), texts


def _names(found: Sequence[OtherClient]) -> str:
    owners = sorted({it.owner for it in found})
    more = f" and {len(owners) - SHOWN} more" if len(owners) > SHOWN else ""
    return ", ".join(owners[:SHOWN]) + more


# ------------------------------------------------ whose an inbox is


def owned(prefix: str, inboxes: Sequence[bytes]) -> bytes:
    """Return the bytes that ask whose these inboxes are."""
    return pack(b"MGET", *[owner_key(prefix, it) for it in inboxes])


def owners(inboxes: Sequence[bytes], answers: Iterable[object]) -> dict[bytes, str]:
    """Return the owners of the inboxes, as far as the answers to `owned` tell."""
    told: dict[bytes, str] = {}
    for answer in answers:
        if isinstance(answer, list) and len(answer) == len(inboxes):
            for inbox, owner in zip(inboxes, answer, strict=True):
                if (name := owner_of(owner)) is not None:
                    told[inbox] = name
    return told


def owner_of(value: object) -> str | None:
    """Return the owner in the value of an `owner_key`. None if no client of holdfast wrote it."""
    return value.decode() if isinstance(value, bytes) and re.fullmatch(rb"[!-~]{1,128}", value) else None


def owner_key(prefix: str, inbox: bytes) -> bytes:
    """Return the key of an inbox's owner on a node, for clients with this prefix."""
    return b"{holdfast}:owner:%b%b" % (prefix.encode(), inbox)
