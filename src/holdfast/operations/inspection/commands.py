"""Inspection of locks, and forced releases: what operators ask of nodes, and what the answers mean
together.

Knows `scripts/inspect.lua`, `permits.lua`, `force_release.lua`, `rw_force_release.lua` and
`names.lua`, and the form of a token. Must not know which nodes there are, or who asks.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from math import inf
from typing import TypeVar

from ...errors import message_of, readable
from ...protocol import note, quorum
from ...protocol.exclusive import keys_of
from ...protocol.quorum import Quorum
from ...protocol.readwrite import rw_keys_of
from ...protocol.ticket import FENCE, TOKEN, inbox_of
from ...scripts import FORCE_RELEASE, INSPECT, NAMES, PERMITS, RW_FORCE_RELEASE, Script
from ...wire.resp import evalsha, pack

MOST = 100  # waiters that an inspection lists
STEP = b"1000"  # keys that a node looks at before it serves somebody else
_ESCAPED = re.compile(rb"\\x([89a-f][0-9a-f])")  # a byte that is no UTF-8, as it is shown
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def asked_at(value: str | bytes | None) -> datetime | None:
    """Return when the holder, or waiter, with this token asked for the lock.

    Args:
        value: A token, or what another program wrote.

    Returns:
        A time in UTC, by the clocks of the nodes. None if the value is no token.
    """
    token = value.encode() if isinstance(value, str) else value or b""
    return _EPOCH + timedelta(microseconds=int(token[:16])) if TOKEN.fullmatch(token) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiter:
    """A waiter in the queue of a lock.

    Attributes:
        token: The token of its request.
        owner: The process of its client, such as "host:pid". None if the servers do not tell it.
        left: Seconds until its place in the queue lapses, unless it asks again.
        nodes: On how many nodes it waits.
        asked: When it asked for the lock, by the clocks of the nodes.
    """

    token: str
    owner: str | None
    left: float
    nodes: int

    @property
    def asked(self) -> datetime | None:
        """When it asked for the lock: a time in UTC, by the clocks of the nodes."""
        return asked_at(self.token)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    """A holder of a read lock.

    Attributes:
        token: The holder's `lease.token`.
        owner: The process of its client, such as "host:pid". None if the servers do not tell it.
        left: Seconds until its lease ends, unless it is renewed.
        nodes: On how many nodes it stands. With fewer than a majority, it still waits for others.
        asked: When it asked for the lock, by the clocks of the nodes.
    """

    token: str
    owner: str | None
    left: float
    nodes: int

    @property
    def asked(self) -> datetime | None:
        """When it asked for the lock: a time in UTC, by the clocks of the nodes."""
        return asked_at(self.token)


W = TypeVar("W", Waiter, Reader)


@dataclass(frozen=True, slots=True, kw_only=True)
class PermitHolder:
    """A permit of a semaphore that is held.

    Attributes:
        slot: The number of the permit, from 0 on.
        name: What `inspect` and `force_release` call the permit, such as "gpus[slot 2]".
        token: The holder's `lease.token`, or the value that another program wrote.
        owner: The client that holds it, such as "host:pid"; None if the servers do not tell it.
        left: Seconds until the lease ends, unless it is renewed; None if it never does.
    """

    slot: int
    name: str
    token: str
    owner: str | None
    left: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeView:
    """One lock as one node has it.

    Attributes:
        node: The node's address, without a password.
        error: Why nothing is known. None if the node has answered.
        holder: The token or foreign value in its key. None if there is no key.
        ttl_left: Seconds. None if there is no key, or if it never expires.
        fence: The highest fence that this node has granted, or None.
        waiting: How many wait.
    """

    node: str
    error: Exception | None = None
    holder: str | None = None
    ttl_left: float | None = None
    fence: int | None = None
    waiting: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LockStatus:
    """The state of a lock.

    Attributes:
        name: The name of the lock.
        state: `held` if one value is on a majority, `free` if a majority has none, else `split`.
        holder: The token or foreign value on a majority, "shared" while readers hold it, or None.
        owner: The process of the holder's client, such as "host:pid". None if the servers do not
            tell it.
        note: What the holder says of itself (`note=`), or None.
        asked: When the holder asked for the lock, or None.
        ttl_left: Seconds for which a majority keeps the holder unless it is renewed. None if there
            is no holder, or if it never expires.
        fence: The holder's fence, otherwise the last one that was seen, or None.
        queue: The waiters, in order, at most the first 100 of each node.
        nodes: The lock on each node.
        readers: The holders of read locks, at most the first 100 of each node.
    """

    name: str
    state: str
    holder: str | None
    owner: str | None
    ttl_left: float | None
    fence: int | None
    queue: tuple[Waiter, ...]
    nodes: tuple[NodeView, ...]
    readers: tuple[Reader, ...] = ()
    note: str | None = None

    @property
    def asked(self) -> datetime | None:
        """When the holder asked for the lock: a time in UTC, by the clocks of the nodes.

        None if nobody holds it, if readers do, or if another program does.
        """
        return asked_at(self.holder)

    def __str__(self) -> str:
        """Return a text for people, with a line for each reader, waiter and node.

        Nodes that all say the same have one line together.
        """
        first = f"{self.name!r} is {self.state}"
        if self.holder is not None:
            first += f" by {_who(self.owner)} ({readable(self.holder)})"
        if self.note:
            first += f", who says {readable(self.note)!r}"
        if self.ttl_left is not None:
            first += f", {self.ttl_left:.1f} s left unless renewed"
        elif self.state == "held":
            first += ", without an expiry"
        if self.fence is not None:
            first += f", fence {self.fence}"
        lines = [first]
        for reader in self.readers:
            who = f"{_who(reader.owner)} ({reader.token})"
            lines.append(f"  reads: {who} on {reader.nodes} nodes, {reader.left:.1f} s left")
        for place, it in enumerate(self.queue, 1):
            lines.append(f"  {place}. waits: {_who(it.owner)} ({it.token}) on {it.nodes} nodes")
        told = [_said_by(node) for node in self.nodes]
        if len(told) > 1 and len(set(told)) == 1:
            lines.append(f"  on all {len(told)} nodes: {told[0]}")
        else:
            lines += [f"  {node.node}: {said}" for node, said in zip(self.nodes, told, strict=True)]
        return "\n".join(lines)


def _said_by(node: NodeView) -> str:
    """Return the text for what a node says."""
    if node.error is not None:
        return f"no answer: {readable(message_of(node.error))}"
    holder = "free" if node.holder is None else readable(node.holder)
    return f"{holder}, fence {node.fence or '-'}, {node.waiting} waiting"


def _who(owner: str | None) -> str:
    """Return the text for an owner."""
    return readable(owner) if owner else "somebody"


def evaluated(script: Script, keys: Sequence[bytes], *arguments: bytes) -> bytes:
    """The bytes that call a script which nodes do not keep."""
    return pack(b"EVAL", script.source, b"%d" % len(keys), *keys, *arguments)


def inspect(key: bytes) -> bytes:
    """Return the bytes that ask for the state of a lock."""
    queue, waiters, readers = rw_keys_of(key)[2:5]
    return evaluated(INSPECT, (*keys_of(key), queue, waiters, readers, note.key_of(key)), b"%d" % MOST)


def holder(key: bytes) -> bytes:
    """Return the bytes that ask who has a lock, and nothing else."""
    return pack(b"GET", key)


def meant(shown: str) -> list[bytes]:
    """Return the values of a key that may be shown as this text.

    A value is shown as UTF-8, with invalid bytes written like \\xff. So there are two values if the
    text contains such an escape: the escaped bytes, and the text itself.
    """
    plain = shown.encode()
    raw = _ESCAPED.sub(lambda it: bytes.fromhex(it[1].decode()), plain)
    return [plain] if raw == plain else [raw, plain]


def permits(key: bytes, number: int) -> bytes:
    """Return the bytes that ask which of the first `number` slots of a semaphore are held.

    `key` is the beginning of the keys of the slots.
    """
    return evalsha(PERMITS, key, b"%d" % number)


def held(answers: Mapping[int, object], number: int, decides: Quorum) -> tuple[dict[int, tuple[bytes, int]], int]:
    """Find out which slots of a semaphore are held.

    Args:
        answers: What the nodes answered to `permits`, by their numbers. An answer that is not what
            the script says counts as none.
        number: How many slots were asked for.
        decides: Which nodes decide.

    Returns:
        For each slot whose key has one value on a majority of the nodes, in order: the value, and
            for how many ms a majority keeps it (-1: for ever). And how many slots may be held or
            free, because too few nodes have answered to know.
    """
    told = {node: it for node, answer in answers.items() if (it := _slots(answer)) is not None}
    found, unknown = dict[int, tuple[bytes, int]](), 0
    for slot in range(number):
        certain, value = on_majority({node: it[slot][0] if slot in it else None for node, it in told.items()}, decides)
        unknown += not certain
        if value is not None:
            lefts = {node: it[slot][1] for node, it in told.items() if slot in it and it[slot][0] == value}
            left = lasting(lefts, decides)
            found[slot] = value, -1 if left == inf else int(left)
    return found, unknown


def _slots(answer: object) -> dict[int, tuple[bytes, int]] | None:
    """Read an answer to `permits`, by slot. None if the script does not answer like this."""
    if not isinstance(answer, list) or len(answer) % 3:
        return None
    found = {}
    for slot, value, left in zip(answer[::3], answer[1::3], answer[2::3], strict=True):
        if not (isinstance(slot, int) and isinstance(value, bytes) and isinstance(left, int)):
            return None
        found[slot] = value, left
    return found


def permit_holders(
    label: str, found: Mapping[int, tuple[bytes, int]], known: Mapping[bytes, str]
) -> tuple[PermitHolder, ...]:
    """Return the holders of these slots of a semaphore, for users.

    `found` is as `held` returns it. `known` has the owner of each inbox.
    """
    return tuple(
        PermitHolder(
            slot=slot,
            name=f"{label}[slot {slot}]",
            token=value.decode("utf-8", "backslashreplace"),
            owner=owner_of(value, known),
            left=left / 1000 if left >= 0 else None,
        )
        for slot, (value, left) in found.items()
    )


def force_release(key: bytes, horizon: int, only: bytes) -> bytes:
    """Return the bytes that take a lock away.

    `only` is the value that must hold it. If it is empty, take the lock from any holder.
    """
    return evaluated(FORCE_RELEASE, keys_of(key), b"%d" % horizon, only)


def rw_force_release(key: bytes, horizon: int, only: bytes) -> bytes:
    """Return the bytes that take a read-write lock away. They do not affect an exclusive lock."""
    return evaluated(RW_FORCE_RELEASE, rw_keys_of(key), only, b"%d" % horizon)


def names(prefix: str, pattern: str, cursor: bytes, step: bytes = STEP) -> bytes:
    """Return the bytes of one step of a search for held locks with this prefix.

    `pattern` is as SCAN has it.
    """
    literal = re.sub(r"([*?\[\]\\])", r"\\\1", prefix)
    return evaluated(NAMES, (), cursor, (literal + pattern).encode(), step)


def found(reply: object) -> tuple[bytes, int, list[bytes]]:
    """Return the next cursor, how many keys were looked at, and the keys of locks, of one step."""
    match reply:
        case [bytes() as cursor, int() as looked, *keys]:
            return cursor, looked, [it for it in keys if isinstance(it, bytes)]
    return b"0", 0, []


def on_majority(values: Mapping[int, object], decides: Quorum) -> tuple[bool, bytes | None]:
    """Find the value that a majority of the nodes has.

    Args:
        values: The value of each node that has answered.
        decides: Which nodes decide.

    Returns:
        Whether the result is certain, and the value or None.
    """
    having: dict[bytes, set[int]] = {}
    for node, value in values.items():
        if isinstance(value, bytes):
            having.setdefault(value, set()).add(node)
    found = next((value for value, nodes in having.items() if decides.met_by_some(nodes)), None)
    unheard = decides.nodes.difference(values)
    may_have = any(decides.met_by_some(unheard | nodes) for nodes in (set[int](), *having.values()))
    return found is not None or not may_have, found


def lasting(lefts: Mapping[int, int], decides: Quorum) -> float:
    """Return for how many ms those who decide keep a value, by how long each node does.

    -1 means for ever, and so does the result inf.
    """
    return max(decides.each(quorum.reached_by, {node: it if it >= 0 else inf for node, it in lefts.items()}))


def status(
    name: str,
    labels: Sequence[str],
    replies: Mapping[int, object],
    causes: Mapping[int, Exception],
    known: Mapping[bytes, str],
    decides: Quorum,
) -> LockStatus:
    """Combine all answers into the state of a lock. `known` has the owner of each inbox."""
    told = {node: it for node, reply in replies.items() if (it := _read(reply)) is not None}
    _, value = on_majority({node: it.holder for node, it in told.items()}, decides)
    having = {node: it for node, it in told.items() if value is not None and it.holder == value}
    fences = {node: it.fence for node, it in (having or told).items()}
    left = max(decides.each(quorum.reached_by, {node: it.left for node, it in having.items()}))
    if value is not None:
        state = "held"
    else:
        state = "free" if decides.met([node for node, it in told.items() if it.holder is None]) else "split"

    def listed(kind: type[W], tokens: Iterable[list[tuple[bytes, int]]]) -> tuple[W, ...]:
        return tuple(
            kind(token=it.decode(), owner=owner_of(it, known), left=max(lefts) / 1000, nodes=len(lefts))
            for it, lefts in _gathered(tokens)
        )

    return LockStatus(
        name=name,
        state=state,
        holder=text_of(value),
        owner=owner_of(value, known),
        note=next((said for it in having.values() if (said := note.read(it.note, value)) is not None), None),
        ttl_left=left / 1000 if left >= 0 else None,
        fence=decides.agreed(fences) or max(fences.values(), default=0) or None,
        queue=listed(Waiter, [it.queue for it in told.values()]),
        readers=listed(Reader, [it.readers for it in told.values()]),
        nodes=tuple(_view(label, told.get(node), causes.get(node)) for node, label in enumerate(labels)),
    )


def _gathered(told: Iterable[list[tuple[bytes, int]]]) -> list[tuple[bytes, list[int]]]:
    """Return what all nodes say of each token, in the order of tokens."""
    places: dict[bytes, list[int]] = {}
    for pairs in told:
        for token, ms in pairs:
            places.setdefault(token, []).append(ms)
    return sorted(places.items())


@dataclass(slots=True)
class _Told:
    """One node's answer to an inspection. `left` is in ms."""

    holder: bytes | None
    left: int
    fence: int
    waiting: int
    readers: list[tuple[bytes, int]]
    queue: list[tuple[bytes, int]]
    note: object


def _read(reply: object) -> _Told | None:
    """Read an answer to an inspection. None if the script does not answer like this."""
    match reply:
        case [
            bytes() | None as holder,
            int() as left,
            bytes() | None as fence,
            int() as waiting,
            int() as reading,
            said,
            *rest,
        ]:
            readers, queue = _pairs(rest[: 2 * reading]), _pairs(rest[2 * reading :])
            return _Told(holder, left, fence_of(fence), waiting, readers, queue, said)
    return None


def fence_of(record: bytes | None) -> int:
    """The fence that a node's record says; 0 if there is none, or it is damaged."""
    return int(record) if record and FENCE.fullmatch(record) else 0


def _pairs(items: Sequence[object]) -> list[tuple[bytes, int]]:
    pairs = zip(items[::2], items[1::2], strict=False)
    return [(it, ms) for it, ms in pairs if isinstance(it, bytes) and TOKEN.fullmatch(it) and isinstance(ms, int)]


def _view(label: str, told: _Told | None, error: Exception | None) -> NodeView:
    if told is None:
        return NodeView(node=label, error=error or TypeError("its answer is not what the script says"))
    left = told.left / 1000 if told.left >= 0 else None
    return NodeView(
        node=label,
        holder=text_of(told.holder),
        ttl_left=left,
        fence=told.fence or None,
        waiting=told.waiting,
    )


def text_of(value: bytes | None) -> str | None:
    """A value as people are shown it."""
    return None if value is None else value.decode("utf-8", "backslashreplace")


def owner_of(token: bytes | None, known: Mapping[bytes, str | None]) -> str | None:
    """Whose client has made a token. `known`: whose each inbox is."""
    return known.get(inbox_of(token)) if token and TOKEN.fullmatch(token) else None
