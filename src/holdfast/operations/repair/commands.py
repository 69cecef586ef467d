"""Registers that a node may have forgotten: what each node remembers, what a majority knows better,
and the bytes that write it back.

Knows `scripts/registers.lua`, `recall.lua`, `mend.lua` and `arrive.lua`. Must not know which nodes
there are, who asks, or when.

A register is what once, fill, rate, latch and barrier keep. A node that restarted without its data
has none of them. What is written back follows each register's own rule, so that writing it late, or
twice, changes nothing:

- Results and cached values have a version (a ballot or a fence). The version that a majority has is
written where a lower one is, or none.
- Rates and windows count time and calls. A node is raised to what a majority counts, at the least.
- Latches and barriers know arrivals and generations, which only grow. Each node is told what any
other knows.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from ...protocol import quorum
from ...protocol.query import Query
from ...scripts import ARRIVE, MEND, RECALL, REGISTERS
from ...wire.resp import evalsha, pack

# Registers that a node is asked about at a time: a latch may have told of 1,000 ids of 512 bytes.
BATCH = 25
STEP = b"1000"  # keys that a node looks at before it serves other clients
# Microseconds by which counts may differ: calls that are under way make them differ, too.
SPARE = 1_000_000
VERSIONS, COUNTS, GATHERINGS = (b"result", b"cache"), (b"rate", b"window"), (b"latch", b"barrier")
# Milliseconds for which a node keeps the note that it was repaired.
NOTED = 365 * 86_400_000
_RUN = re.compile(r"^run_id:([0-9a-f]{40})\r?$", re.MULTILINE)
_VERSION = re.compile(rb"([0-9]{1,16})([ :])")
_KEY = re.compile(rb"(\{[^}]+\}):([a-z]+)(.*)", re.DOTALL)


class Copy(NamedTuple):
    """A result, or a cached value, on one node.

    `note`: 1 if it says that the value was dropped, which is later than a value of the same
    version; `left`: milliseconds for which the node keeps it.
    """

    version: int
    note: int
    left: int

    @property
    def rank(self) -> int:
        """Which of two copies is the later one."""
        return 2 * self.version + self.note


class Count(NamedTuple):
    """What one node counts of a rate.

    `left`: microseconds, that are owed or that the window lasts; `taken`: calls, in a window.
    """

    left: int
    taken: int


class Gathered(NamedTuple):
    """A latch or barrier on one node.

    `needed`: how many have to arrive; `over`: the generations that are; `left`: milliseconds for
    which the node keeps it.
    """

    needed: int
    over: int
    left: int
    ids: frozenset[bytes]


State: TypeAlias = Copy | Count | Gathered
# It yields what to ask which node, and is sent the round.
Work: TypeAlias = Generator[Mapping[int, bytes], Query, "RepairTally"]


@dataclass(slots=True)
class RepairTally:
    """What became of some registers.

    `found`: how many there are; `mended`: copies that were written back; `lacking`: copies that
    nodes still lack; `unsure`: the nodes of which it is not known that they lack nothing.
    """

    found: int = 0
    mended: int = 0
    lacking: int = 0
    unsure: frozenset[int] = frozenset()

    def add(self, other: RepairTally) -> None:
        """Count another's, too."""
        self.found += other.found
        self.mended += other.mended
        self.lacking += other.lacking
        self.unsure |= other.unsure


class MissingCopies(NamedTuple):
    """What some nodes lack of one register.

    `said`: the bytes that write it back, by node; of a copy, they still need its value.

    `rank`: of a copy, with the nodes that have it (`holders`).
    """

    key: bytes
    nodes: Collection[int]
    said: Mapping[int, tuple[bytes, ...]]
    rank: int = 0
    holders: Sequence[int] = ()


# ------------------------------------------------ what is asked


def registers(prefix: str, cursor: bytes) -> bytes:
    """The bytes of one step of looking for registers."""
    return pack(b"EVAL", REGISTERS.source, b"0", cursor, b"{*", STEP)


def listed(reply: object, prefix: str) -> tuple[bytes, list[bytes]] | None:
    """The next cursor and the registers of one step, those whose names have this prefix; None if
    the script does not say that.
    """
    items = [it for it in reply if isinstance(it, bytes)] if isinstance(reply, list) else []
    return (items[0], [it for it in items[1:] if _has_prefix(it, prefix.encode())]) if items else None


def _has_prefix(key: bytes, prefix: bytes) -> bool:
    # Where a name has a hash tag, all of the name comes last.
    parts = _KEY.fullmatch(key)
    return parts is not None and (parts[1][1:].startswith(prefix) or parts[3][1:].startswith(prefix))


def server() -> bytes:
    """The bytes that ask a node which run of its server it is."""
    return pack(b"INFO", b"server")


def run_of(reply: object) -> str:
    """The run_id that this answer tells; empty if it tells none."""
    text = reply.decode("utf-8", "replace") if isinstance(reply, bytes) else reply if isinstance(reply, str) else ""
    found = _RUN.search(text)
    return "" if found is None else found[1]


def recall(keys: Sequence[bytes]) -> bytes:
    """The bytes that ask what a node remembers of these registers."""
    return evalsha(RECALL, b"".join([b"%d:%b" % (len(it), it) for it in keys]))


def noted(prefix: str, run_id: str) -> bytes:
    """The bytes that ask whether a node was repaired in this run of its server."""
    return pack(b"GET", _note(prefix, run_id))


def note(prefix: str, run_id: str) -> bytes:
    """The bytes that note it."""
    return pack(b"SET", _note(prefix, run_id), b"1", b"PX", b"%d" % NOTED)


def _note(prefix: str, run_id: str) -> bytes:
    return b"{%b}:repaired:%b" % (prefix.encode(), run_id.encode())


# ------------------------------------------------ what the answers mean


class RepairAnswer:
    """What all nodes that have answered remember of some registers.

    `took`: milliseconds that asking took; `now`: each node's clock, in microseconds; `silent`: the
    nodes that have not answered. While some nodes are replaced, a majority of the `former` ones
    decides what is kept.
    """

    def __init__(self, seen: Query, keys: Sequence[bytes], nodes: int, former: Collection[int] = ()) -> None:
        self._former = former or range(nodes)
        self._majority = quorum.majority(len(self._former))
        self.took = round((seen.ended - seen.began) * 1000) + 1
        self.now: dict[int, int] = {}
        self._states: dict[bytes, dict[int, State | None]] = {key: {} for key in keys}
        for node, reply in seen.answers.items():
            match reply:
                case [int(now), *states] if len(states) == len(keys):
                    self.now[node] = now
                    for key, said in zip(keys, states, strict=True):
                        self._states[key][node] = _state(key, said)
        self.silent = frozenset(range(nodes)) - self.now.keys()

    def holders(self, key: bytes) -> list[int]:
        """The nodes that have the register, in order."""
        return sorted(node for node, state in self._states[key].items() if state is not None)

    def lack(self, key: bytes, patience: int) -> MissingCopies | None:
        """What some nodes lack of a register, if they do.

        `patience`: microseconds after which nothing of this is written any more.
        """
        kind, states = kind_of(key), self._states[key]
        until = {node: b"%d" % (now + patience) for node, now in self.now.items()}
        if kind in VERSIONS:
            return self._copies(key, {node: it for node, it in states.items() if isinstance(it, Copy)}, until)
        if kind in COUNTS:
            return self._counts(key, {node: it for node, it in states.items() if isinstance(it, Count)}, until)
        return self._gathered(key, {node: it for node, it in states.items() if isinstance(it, Gathered)})

    def _copies(self, key: bytes, copies: Mapping[int, Copy], until: Mapping[int, bytes]) -> MissingCopies | None:
        rank = quorum.agreed(self._majority, [it.rank for node, it in copies.items() if node in self._former])
        nodes = [node for node in self.now if rank and (node not in copies or copies[node].rank < rank)]
        holders = [node for node, it in copies.items() if it.rank == rank]
        left = min((copies[node].left for node in holders), default=0) - self.took
        if not nodes or left <= 0:
            return None
        if kind_of(key) == b"cache" and rank < max(it.rank for it in copies.values()):
            # A newer value, or a note, is under way. (A result that a majority has stays the
            # result, under any ballot.).
            return None
        number = b"%d" % (rank // 2)
        said = {node: (until[node], number, b"%d" % (self.now[node] // 1000 + left)) for node in nodes}
        return MissingCopies(key, nodes, said, rank, holders)

    def _counts(self, key: bytes, counts: Mapping[int, Count], until: Mapping[int, bytes]) -> MissingCopies | None:
        size, window = self._majority, kind_of(key) == b"window"
        deciding = [it for node, it in counts.items() if node in self._former]
        if len(deciding) < size:
            return None
        # What the q-th of them counts, a majority counts at the least.
        most = sorted(deciding, key=(lambda it: (it.taken, it.left)) if window else None)[-size]
        none = Count(0, 0)
        nodes = [
            node
            for node in self.now
            if most.left - SPARE > 0 and _behind(counts.get(node, none), most, window)
        ]  # fmt: skip
        if not nodes:
            return None
        taken = b"%d" % (most.taken if window else 0)
        said = {node: (until[node], b"%d" % (self.now[node] + most.left), taken, b"") for node in nodes}
        return MissingCopies(key, nodes, said)

    def _gathered(self, key: bytes, gathered: Mapping[int, Gathered]) -> MissingCopies | None:
        if len({it.needed for it in gathered.values()}) != 1:
            # Nobody knows it; or they do not agree, which its users are told.
            return None
        over = max(it.over for it in gathered.values())
        latch = kind_of(key) == b"latch"
        ids = frozenset[bytes]().union(*(it.ids for it in gathered.values() if it.over == over))
        unknown = Gathered(0, 0, 0, frozenset())
        behind = {node: gathered.get(node, unknown) for node in self.now}
        nodes = [node for node, it in behind.items() if it.over < over or not ids <= it.ids]
        if not nodes or not (over or ids):
            return None
        any_of_them = next(iter(gathered.values()))
        left = max(max(it.left for it in gathered.values()) - self.took, 1)
        generation = 0 if latch else over
        numbers = (any_of_them.needed, generation, left, latch and over > 0)
        said = (
            *_keys(key, generation, latch),
            *(b"%d" % it for it in numbers),
            *(b"0", b"0", b"", b"0"),
            b"\0".join(sorted(ids)),
        )
        return MissingCopies(key, nodes, dict.fromkeys(nodes, said))


def _behind(here: Count, there: Count, window: bool) -> bool:
    """Does a node count less than a majority, by more than calls under way can explain?

    (Of a window: it has forgotten it.)
    """
    if window:
        return here.taken < there.taken and abs(here.left - there.left) > SPARE
    return there.left - here.left > SPARE


def _keys(key: bytes, generation: int, latch: bool) -> tuple[bytes, bytes, bytes, bytes]:
    """Return the keys of the script that notes arrivals.

    They are the register, the arrivals, the waiters, and what can be forgotten afterwards.
    """
    parts = _KEY.fullmatch(key)
    assert parts is not None
    number, before = (b"", b"") if latch else (b"%d" % generation, b"%d" % (generation - 1))
    words = (b"arrived" + number, b"awaited" + number, b"arrived" + before)
    arrived, awaited, gone = (b"%b:%b%b" % (parts[1], word, parts[3]) for word in words)
    return key, arrived, awaited, gone


def kind_of(key: bytes) -> bytes:
    """What a register is of: result, cache, rate, window, latch or barrier."""
    parts = _KEY.fullmatch(key)
    return b"" if parts is None else parts[2]


def _state(key: bytes, said: object) -> State | None:
    kind = kind_of(key)
    match said:
        case [int(version), int(note), int(left)] if kind in VERSIONS and version > 0 and left > 0:
            return Copy(version, note, left)
        case [int(left), int(taken)] if kind in COUNTS and left > 0:
            return Count(left, taken)
        case [int(needed), int(over), int(left), bytes(ids)] if kind in GATHERINGS:
            return Gathered(needed, over, left, frozenset(ids.split(b"\0")) - {b""})
    return None


# ------------------------------------------------ what is done


def mending(
    keys: Sequence[bytes],
    nodes: int,
    patience: int,
    finders: Mapping[bytes, Collection[int]] | None = None,
    among: Collection[int] = (),
    former: Collection[int] = (),
) -> Work:
    """Find out what nodes lack of these registers, and write it back.

    Args:
        keys: The registers, at most `BATCH`.
        nodes: How many nodes there are.
        patience: Microseconds after which nothing of what was read is written back.
        finders: The nodes that have just listed each register. Only the first of the nodes that
            list registers (`among`) and have one sees to it, so that each is counted once. None:
            all of the keys are meant.
        among: The nodes that list their registers.
        former: While some nodes are replaced: those that decide what is kept.

    Returns:
        What became of them.
    """
    tally = RepairTally()
    told = RepairAnswer((yield dict.fromkeys(range(nodes), recall(keys))), keys, nodes, former)
    tally.unsure = told.silent
    mine = [
        key
        for key in keys
        if (holders := told.holders(key)) and (finders is None or _first(holders, among) in finders[key])
    ]
    tally.found = len(mine)
    lacks = [lack for key in mine if (lack := told.lack(key, patience)) is not None]
    if counted := [it.key for it in lacks if kind_of(it.key) in COUNTS]:
        # A call that was under way when one node was asked has arrived by now. What is still
        # lacking was forgotten.
        again = RepairAnswer((yield dict.fromkeys(range(nodes), recall(counted))), counted, nodes, former)
        before = {it.key: it for it in lacks if it.key in counted}
        lacks = [it for it in lacks if it.key not in counted]
        both = [_least(before[key], lack) for key in counted if (lack := again.lack(key, patience)) is not None]
        lacks += [it for it in both if it.nodes]
    for lack in lacks:
        yield from _mend(lack, tally)
    return tally


def _first(holders: Iterable[int], among: Collection[int]) -> int:
    return next((it for it in holders if it in among), -1)


def _least(before: MissingCopies, now: MissingCopies) -> MissingCopies:
    """What nodes lacked both times, and no more of it than they lacked at the first."""
    said = {}
    for node in now.nodes:
        if node in before.nodes:
            earlier, later = before.said[node], now.said[node]
            said[node] = (later[0], *min(earlier[1:], later[1:], key=lambda it: int(it[0])))
    return MissingCopies(now.key, list(said), said)


def _mend(lack: MissingCopies, tally: RepairTally) -> Generator[Mapping[int, bytes], Query, None]:
    value: tuple[bytes, ...] = ()
    if lack.holders:
        fetched = yield {lack.holders[0]: pack(b"GET", lack.key)}
        data = fetched.answers.get(lack.holders[0])
        if not isinstance(data, bytes) or _rank(data) != lack.rank:
            # The node did not answer, or it has another value by now.
            tally.lacking += len(lack.nodes)
            tally.unsure |= frozenset(lack.nodes)
            return
        value = (data,)
    gathering = kind_of(lack.key) in GATHERINGS
    asks = {node: _words(lack.key, said + value, gathering) for node, said in lack.said.items()}
    seen = yield asks
    tally.mended += sum(_written(seen.answers.get(node)) for node in asks)
    failed = [node for node in asks if not _written(seen.answers.get(node)) and seen.answers.get(node) != 0]
    tally.lacking += len(failed)
    tally.unsure |= frozenset(failed)


def _rank(data: bytes) -> int:
    found = _VERSION.match(data)
    return -1 if found is None else 2 * int(found[1]) + (found[2] == b":" and found.end() == len(data))


def _written(reply: object) -> bool:
    """Has a node written it? (Arrivals are answered with a list.)"""
    return reply == 1 or isinstance(reply, list)


def _words(key: bytes, said: Sequence[bytes], gathering: bool) -> bytes:
    return evalsha(ARRIVE, *said) if gathering else evalsha(MEND, key, *said)
