"""Looking at locks, and taking them away: what operators ask of nodes, and what the answers mean together.

Knows `scripts/inspect.lua`, `permits.lua`, `force_release.lua`, `rw_force_release.lua` and `names.lua`, and what a token says.
Must not know which nodes there are, or who asks.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf

from ..core import quorum
from ..core.ticket import FENCE, TOKEN, inbox_of
from ..errors import readable
from ..scripts import FORCE_RELEASE, INSPECT, NAMES, PERMITS, RW_FORCE_RELEASE, Script
from ..wire.resp import pack
from .exclusive import keys_of
from .readwrite import rw_keys_of

MOST = 100  # of those who wait, how many an inspection tells of
STEP = b"1000"  # keys that a node looks at before it serves somebody else
_ESCAPED = re.compile(rb"\\x([89a-f][0-9a-f])")  # a byte that is no UTF-8, as it is shown


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiter:
    """Somebody who waits in line. `owner`: who that is, if servers may tell; `left`: seconds for which its place is good, unless it
    asks again; `nodes`: on how many it waits."""

    token: str
    owner: str | None
    left: float
    nodes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    """Somebody who holds a read lock. `owner`: who that is, if servers may tell; `left`: seconds that its lease lasts unless it is renewed;
    `nodes`: on how many nodes it stands (fewer than a majority: it waits for others)."""

    token: str
    owner: str | None
    left: float
    nodes: int


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
    """One lock as one node has it. `error`: why nothing is known; `holder`: the token or foreign value in its key; `ttl_left`: seconds
    (None: there is no key, or it never expires); `fence`: the highest that this node has granted; `waiting`: how many do."""

    node: str
    error: Exception | None = None
    holder: str | None = None
    ttl_left: float | None = None
    fence: int | None = None
    waiting: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LockStatus:
    """How a lock is. `state`: held (one value is on a majority), free (a majority has none) or split.

    `holder`: the token or foreign value on a majority, "shared" while readers have it; `owner`: who that is, if servers may tell;
    `ttl_left`: seconds that a majority keeps it unless it is renewed; `fence`: the holder's, else the last one that was seen;
    `queue`: who waits, in order, and `readers`: who reads, the first 100 on each node; `nodes`: node by node.
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

    def __str__(self) -> str:
        """As people look at it."""
        first = f"{self.name!r} is {self.state}"
        if self.holder is not None:
            first += f" by {_who(self.owner)} ({readable(self.holder)})"
        if self.ttl_left is not None:
            first += f", {self.ttl_left:.1f} s left unless renewed"
        elif self.state == "held":
            first += ", without an expiry"
        if self.fence is not None:
            first += f", fence {self.fence}"
        lines = [first]
        lines += [f"  reads: {_who(it.owner)} ({it.token}) on {it.nodes} nodes, {it.left:.1f} s left" for it in self.readers]
        for place, it in enumerate(self.queue, 1):
            lines.append(f"  {place}. waits: {_who(it.owner)} ({it.token}) on {it.nodes} nodes")
        for node in self.nodes:
            if node.error is not None:
                lines.append(f"  {node.node}: no answer: {readable(str(node.error))}")
            else:
                holder = "free" if node.holder is None else readable(node.holder)
                lines.append(f"  {node.node}: {holder}, fence {node.fence or '-'}, {node.waiting} waiting")
        return "\n".join(lines)


def _who(owner: str | None) -> str:
    """What people are told of an owner."""
    return readable(owner) if owner else "somebody"


def _eval(script: Script, keys: Sequence[bytes], *arguments: bytes) -> bytes:
    return pack(b"EVAL", script.source, b"%d" % len(keys), *keys, *arguments)


def inspect(key: bytes) -> bytes:
    """The bytes that ask how a lock is."""
    queue, waiters, readers = rw_keys_of(key)[2:5]
    return _eval(INSPECT, (*keys_of(key), queue, waiters, readers), b"%d" % MOST)


def holder(key: bytes) -> bytes:
    """The bytes that ask who has a lock, and nothing else."""
    return pack(b"GET", key)


def meant(shown: str) -> list[bytes]:
    """Which values of a key may be shown as this text.

    A value is shown as UTF-8, with a byte that is none written like \\xff. So there are two if the text has such an escape in it: the
    bytes that are shown so, and the text itself.
    """
    plain = shown.encode()
    raw = _ESCAPED.sub(lambda it: bytes.fromhex(it[1].decode()), plain)
    return [plain] if raw == plain else [raw, plain]


def permits(key: bytes, number: int) -> bytes:
    """The bytes that ask which of the first `number` slots of a semaphore are held. `key`: what the keys of the slots begin with."""
    return pack(b"EVALSHA", PERMITS.sha, b"%d" % PERMITS.keys, key, b"%d" % number)


def held(answers: Mapping[int, object], number: int, nodes: int) -> tuple[dict[int, tuple[bytes, int]], int]:
    """Find out which slots of a semaphore are held.

    Args:
        answers: What the nodes answered to `permits`, by their numbers. An answer that is not what the script says counts as none.
        number: How many slots were asked for.
        nodes: How many nodes there are.

    Returns:
        For each slot whose key has one value on a majority of the nodes, in order: the value, and for how many ms a majority
        keeps it (-1: for ever). And how many slots may be held or free, because too few nodes have answered to know.
    """
    told = {node: it for node, answer in answers.items() if (it := _slots(answer)) is not None}
    q, found, unknown = quorum.majority(nodes), dict[int, tuple[bytes, int]](), 0
    for slot in range(number):
        certain, value = on_majority({node: it[slot][0] if slot in it else None for node, it in told.items()}, nodes)
        unknown += not certain
        if value is not None:
            lefts = [it[slot][1] for it in told.values() if slot in it and it[slot][0] == value]
            left = quorum.reached_by(q, [it if it >= 0 else inf for it in lefts])
            found[slot] = value, -1 if left == inf else int(left)
    return found, unknown


def _slots(answer: object) -> dict[int, tuple[bytes, int]] | None:
    """What a node answered to `permits`, by slot; None if that is not what the script says."""
    if not isinstance(answer, list) or len(answer) % 3:
        return None
    found = {}
    for slot, value, left in zip(answer[::3], answer[1::3], answer[2::3], strict=True):
        if not (isinstance(slot, int) and isinstance(value, bytes) and isinstance(left, int)):
            return None
        found[slot] = value, left
    return found


def permit_holders(label: str, found: Mapping[int, tuple[bytes, int]], known: Mapping[bytes, str]) -> tuple[PermitHolder, ...]:
    """Who holds these slots of a semaphore, for users. `found`: as `held` returns it; `known`: whose each inbox is."""
    return tuple(
        PermitHolder(
            slot=slot,
            name=f"{label}[slot {slot}]",
            token=value.decode("utf-8", "backslashreplace"),
            owner=_owner(value, known),
            left=left / 1000 if left >= 0 else None,
        )
        for slot, (value, left) in found.items()
    )


def force_release(key: bytes, horizon: int, only: bytes) -> bytes:
    """The bytes that take a lock away. `only`: the value that has to hold it; empty: take it from any holder."""
    return _eval(FORCE_RELEASE, keys_of(key), b"%d" % horizon, only)


def rw_force_release(key: bytes, horizon: int, only: bytes) -> bytes:
    """The same for readers and writers: of an exclusive lock it takes nothing, as `force_release` does not of theirs."""
    return _eval(RW_FORCE_RELEASE, rw_keys_of(key), only, b"%d" % horizon)


def probe(prefix: str) -> bytes:
    """The bytes that try to write: a key that nobody has, for a millisecond. A full or broken node refuses them."""
    return pack(b"SET", b"{%bholdfast}:ready" % prefix.encode(), b"1", b"NX", b"PX", b"1")


def names(prefix: str, pattern: str, cursor: bytes) -> bytes:
    """The bytes of one step of looking for the locks that are held, with this prefix, and a pattern as SCAN has it."""
    literal = re.sub(r"([*?\[\]\\])", r"\\\1", prefix)
    return _eval(NAMES, (), cursor, (literal + pattern).encode(), STEP)


def found(reply: object) -> tuple[bytes, list[bytes]]:
    """The next cursor, and the keys, of one step."""
    items = [it for it in reply if isinstance(it, bytes)] if isinstance(reply, list) else []
    return (items[0], items[1:]) if items else (b"0", [])


def on_majority(values: Mapping[int, object], nodes: int) -> tuple[bool, bytes | None]:
    """Which value do most nodes have? (Is that certain, the value or None.) `values`: of those that have answered."""
    q, unknown = quorum.majority(nodes), nodes - len(values)
    most = Counter(it for it in values.values() if isinstance(it, bytes)).most_common(1)
    value, count = most[0] if most else (None, 0)
    if count >= q:
        return True, value
    return count + unknown < q, None


def status(
    name: str, labels: Sequence[str], replies: Mapping[int, object], causes: Mapping[int, Exception], known: Mapping[bytes, str]
) -> LockStatus:
    """What all answers say together. `known`: whose each inbox is."""
    told = {node: it for node, reply in replies.items() if (it := _read(reply)) is not None}
    q, _, value = quorum.majority(len(labels)), *on_majority({node: it.holder for node, it in told.items()}, len(labels))
    having = [it for it in told.values() if value is not None and it.holder == value]
    fences = [it.fence for it in having or told.values()]
    left = quorum.reached_by(q, [it.left for it in having])
    places, reading = _gathered([it.queue for it in told.values()]), _gathered([it.readers for it in told.values()])
    return LockStatus(
        name=name,
        state="held" if value is not None else "free" if sum(it.holder is None for it in told.values()) >= q else "split",
        holder=_text(value),
        owner=_owner(value, known),
        ttl_left=left / 1000 if left >= 0 else None,
        fence=quorum.agreed(q, fences) or max(fences, default=0) or None,
        queue=tuple(Waiter(token=it.decode(), owner=_owner(it, known), left=max(goods) / 1000, nodes=len(goods)) for it, goods in places),
        readers=tuple(
            Reader(token=it.decode(), owner=_owner(it, known), left=max(goods) / 1000, nodes=len(goods)) for it, goods in reading
        ),
        nodes=tuple(_view(label, told.get(node), causes.get(node)) for node, label in enumerate(labels)),
    )


def _gathered(told: Iterable[list[tuple[bytes, int]]]) -> list[tuple[bytes, list[int]]]:
    """What each node says of tokens: of each what all say, in the order of tokens."""
    places: dict[bytes, list[int]] = {}
    for pairs in told:
        for token, ms in pairs:
            places.setdefault(token, []).append(ms)
    return sorted(places.items())


@dataclass(slots=True)
class _Told:
    """What one node has told. `left`: ms."""

    holder: bytes | None
    left: int
    fence: int
    waiting: int
    readers: list[tuple[bytes, int]]
    queue: list[tuple[bytes, int]]


def _read(reply: object) -> _Told | None:
    """An answer to an inspection; None if that is not what the script says."""
    match reply:
        case [bytes() | None as holder, int() as left, bytes() | None as fence, int() as waiting, int() as reading, *rest]:
            readers, queue = _pairs(rest[: 2 * reading]), _pairs(rest[2 * reading :])
            return _Told(holder, left, int(fence) if fence and FENCE.fullmatch(fence) else 0, waiting, readers, queue)
    return None


def _pairs(items: Sequence[object]) -> list[tuple[bytes, int]]:
    pairs = zip(items[::2], items[1::2], strict=False)
    return [(it, ms) for it, ms in pairs if isinstance(it, bytes) and TOKEN.fullmatch(it) and isinstance(ms, int)]


def _view(label: str, told: _Told | None, error: Exception | None) -> NodeView:
    if told is None:
        return NodeView(node=label, error=error or TypeError("its answer is not what the script says"))
    left = told.left / 1000 if told.left >= 0 else None
    return NodeView(node=label, holder=_text(told.holder), ttl_left=left, fence=told.fence or None, waiting=told.waiting)


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode("utf-8", "backslashreplace")


def _owner(token: bytes | None, known: Mapping[bytes, str]) -> str | None:
    return known.get(inbox_of(token)) if token and TOKEN.fullmatch(token) else None
