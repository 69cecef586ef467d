"""Surveys: what is asked about many locks at once, and what all answers mean together.

Knows `scripts/survey.lua`, and what the name of a key says about its lock. Must not know which
nodes exist, in which steps they are asked, or how long anybody waits.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from math import inf
from typing import NamedTuple

from ...protocol import note
from ...protocol.command import SHARED, WRITER
from ...protocol.quorum import Quorum
from ...protocol.ticket import TOKEN, kind_of
from ...scripts import SURVEY
from ..inspection.commands import asked_at, evaluated, fence_of, lasting, on_majority, owner_of, text_of

STEP = b"200"  # keys that a node looks at before it serves somebody else
LOCKS = 50  # locks that a node tells of before it serves somebody else
_ITEMS = 6  # of an answer, for each key
_PART = re.compile(rb"\[(?:slot (\d+)|(election)|(once)(?: [^\[\]]+)?|(fill))\]\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One lock of a survey.

    Attributes:
        name: What `inspect` and `force_release` call it, such as "gpus[slot 2]".
        kind: "exclusive", "read", "write", "permit", "election", "once" or "fill", as far as the
            keys tell.
        group: The name of the semaphore, if it is a permit.
        slot: The number of the permit, from 0 on.
        state: "held" if a majority of the nodes has the same holder, "split" if not.
        holder: The holder's token, or "shared" while readers have it. None if it is split.
        owner: The client that holds it, such as "host:pid"; None if the nodes do not tell it.
        note: What the holder says of itself; None if it says nothing.
        left: Seconds until the lease ends, unless it is renewed; None if it never does, and if the
            lock is split.
        fence: The holder's fencing token; None if no node has one, and for readers.
        waiting: How many wait for it.
        waits_since: When the first of them asked for it.
        nodes: On how many nodes the holder has it. If it is split, on how many nodes anybody has.
        asked: When the holder asked for it. None for readers.

    The two times are in UTC, by the clocks of the nodes.
    """

    name: str
    kind: str
    group: str | None
    slot: int | None
    state: str
    holder: str | None
    owner: str | None
    note: str | None
    left: float | None
    fence: int | None
    waiting: int
    waits_since: datetime | None
    nodes: int
    asked: datetime | None


class SurveyAnswer(NamedTuple):
    """What one node says of one lock. `left`: ms; `first`: who is first in line."""

    value: bytes | None
    left: int
    fence: int
    waiting: int
    first: bytes | None
    note: object


def look(keys: Sequence[bytes]) -> bytes:
    """Return the bytes that ask how these locks are."""
    return evaluated(SURVEY, (), b"".join([b"%d:%b" % (len(it), it) for it in keys]))


def told(reply: object, number: int) -> list[SurveyAnswer] | None:
    """Return what a node says of each lock; None if the script says no such thing."""
    if not isinstance(reply, list) or len(reply) != number * _ITEMS:
        return None
    found = []
    for at in range(0, len(reply), _ITEMS):
        match reply[at : at + _ITEMS]:
            case [bytes() | None as value, int() as left, bytes() | None as fence, int() as waiting, first, said]:
                ahead = first if isinstance(first, bytes) and TOKEN.fullmatch(first) else None
                found.append(SurveyAnswer(value, left, fence_of(fence), waiting, ahead, said))
            case _:
                return None
    return found


def holder_of(views: Mapping[int, SurveyAnswer], decides: Quorum) -> bytes | None:
    """Return the value that a majority of the nodes has; None if there is none."""
    return on_majority({node: it.value for node, it in views.items()}, decides)[1]


def row(
    key: bytes, prefix: str, views: Mapping[int, SurveyAnswer], decides: Quorum, known: Mapping[bytes, str | None]
) -> Row | None:
    """Return how a lock is, from what the nodes say.

    Args:
        key: The lock's key.
        prefix: What all keys of this client begin with.
        views: What each node says of the lock.
        decides: Which nodes decide.
        known: Whose each inbox is.

    Returns:
        The row. None if a majority of the nodes has nobody, so that the lock is free.
    """
    value = holder_of(views, decides)
    taken = {node: it for node, it in views.items() if it.value is not None}
    having = {node: it for node, it in taken.items() if it.value == value}
    if value is None and decides.met(views.keys() - taken.keys()):
        return None
    fences = {node: it.fence for node, it in (having or taken).items() if it.value != SHARED}
    left = lasting({node: it.left for node, it in having.items()}, decides) if having else inf
    firsts = [it.first for it in views.values() if it.first is not None]
    name = key[len(prefix.encode()) :]
    part = _PART.search(name)
    slot = None if part is None or part[1] is None else int(part[1])
    return Row(
        name=name.decode("utf-8", "backslashreplace"),
        kind=_kind(part, [it.value or b"" for it in (having or taken).values()]),
        group=None if part is None or slot is None else text_of(name[: part.start()]),
        slot=slot,
        state="split" if value is None else "held",
        holder=text_of(value),
        owner=owner_of(value, known),
        note=next((said for it in having.values() if (said := note.read(it.note, value)) is not None), None),
        left=None if left == inf else left / 1000,
        fence=decides.agreed(fences) or max(fences.values(), default=0) or None,
        waiting=max((it.waiting for it in views.values()), default=0),
        waits_since=asked_at(min(firsts, default=None)),
        nodes=len(having or taken),
        asked=asked_at(value),
    )


def _kind(part: re.Match[bytes] | None, values: Sequence[bytes]) -> str:
    """What a lock is, from how its name ends and what its key holds."""
    if part is not None:
        return "permit" if part[1] is not None else (part[2] or part[3] or part[4]).decode()
    if SHARED in values:
        return "read"
    return "write" if any(kind_of(it) == WRITER for it in values if TOKEN.fullmatch(it)) else "exclusive"
