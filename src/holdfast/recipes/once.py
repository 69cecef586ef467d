"""What is done once: where its result is kept on a node, what is asked about it as bytes, and what the answers mean.

Knows `scripts/look.lua` and `scripts/store.lua`. Must not know which nodes there are, who asks, or what a result stands for.

A function may have succeeded with a result that nobody can make bytes of. Then a note is kept in its place, like any other value: it has
run, and there is nothing to return. When a caller has a result forgotten, another note replaces it: the function may run again. That note
outlasts the result, so that a copy which arrives late, or which one node still has, does not bring the result back.

A result has a ballot: whoever stores one has first looked on a majority, which thereby promises to store nothing lower, and stores what
it has found there instead of its own. So of all results only one is ever on a majority with one ballot (Paxos, for one value).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ..core import quorum
from ..core.ticket import LAST
from ..scripts import LOOK, STORE, Script
from ..wire.resp import pack
from .exclusive import beside, keys_of

_OURS = b"\0holdfast: "  # how all notes begin (no JSON begins with a zero byte, and no pickle)
_NOTE = _OURS + b"it has run, and its result could not be kept\0"
FORGOTTEN = _OURS + b"forgotten\0"  # the note that replaces a result
_KEPT = re.compile(rb"(?!0{16})([0-9]{16}) (.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Copy:
    """A result as a node keeps it. `left`: for how many milliseconds more."""

    ballot: int
    value: bytes
    left: int

    @property
    def void(self) -> bool:
        """Is it the note that replaces a forgotten result?"""
        return self.value == FORGOTTEN


@dataclass(frozen=True, slots=True)
class Seen:
    """What a node has answered to a look. `promised`: it stores nothing lower any more; `fence`: what stands there."""

    promised: bool
    fence: int
    copy: Copy | None


Answers = Mapping[int, object]


class Register:
    """The result beside a lock's key. `horizon`: K, the fence horizon in ms. Immutable."""

    __slots__ = ("_fence", "_horizon", "_name", "_queue", "_result")

    def __init__(self, lock: bytes, horizon: int) -> None:
        self._name, self._fence, self._queue, _ = keys_of(lock)
        self._result, self._horizon = beside(lock, b"result"), b"%d" % horizon

    @property
    def key(self) -> bytes:
        """Where a node keeps the result."""
        return self._result

    def look(self, ballot: int = 0, token: bytes = b"") -> bytes:
        """The bytes that ask for the result; with a ballot, for a promise, too. `token`: of the lock, if the ballot is not its fence."""
        return _evalsha(LOOK, self._name, self._fence, self._result, b"%d" % ballot, self._horizon, token)

    def store(self, ballot: int, value: bytes, left: int) -> bytes:
        """The bytes that keep a result, for so many milliseconds."""
        return _evalsha(STORE, self._name, self._fence, self._queue, self._result, b"%016d" % ballot, self._horizon, b"%d" % left, value)


def note(why: str) -> bytes:
    """The value that is kept in place of a result that cannot be kept. `why`: it cannot."""
    return _NOTE + why.encode()


def noted(value: bytes) -> str | None:
    """Why there is no result, if the value is such a note; None if it is a result."""
    return value[len(_NOTE) :].decode("utf-8", "replace") if value.startswith(_NOTE) else None


def reserved(value: bytes) -> bool:
    """Does the value begin like a note? Then it cannot be kept as a result."""
    return value.startswith(_OURS)


def seen(answers: Answers) -> list[Seen]:
    """What nodes have answered to a look; an answer that is none of the script's is left out."""
    return [it for it in map(_read, answers.values()) if it is not None]


def agreed(answers: Answers, nodes: int) -> Copy | None:
    """The result, if a majority has it with one ballot. (Equal values of different ballots prove nothing.)"""
    copies = _copies(answers)
    ballot = quorum.agreed(quorum.majority(nodes), [it.ballot for it in copies])
    return max((it for it in copies if it.ballot == ballot), key=lambda it: it.left, default=None)


def common(copies: Iterable[Copy | None]) -> Copy | None:
    """The result, of which these are the copies that each set of nodes has agreed on: only if all have one, under the same ballot."""
    found = list(copies)
    if any(it is None or found[0] is None or it.ballot != found[0].ballot for it in found):
        return None
    return found[0]


def decided(answers: Answers, nodes: int) -> bool:
    """Is it known whether a majority has one result, whatever the other nodes will answer?"""
    ballots = [it.ballot for it in _copies(answers)]
    most, needed = max(map(ballots.count, ballots), default=0), quorum.majority(nodes)
    return most >= needed or (len(answers) >= needed and most + nodes - len(answers) < needed)


def promised(answers: Answers, nodes: int) -> bool:
    """Has a majority promised?"""
    return sum(it.promised for it in seen(answers)) >= quorum.majority(nodes)


def newest(answers: Answers) -> Copy | None:
    """The copy of the highest ballot, if there is any: the only one that a majority may have had."""
    return max(_copies(answers), key=lambda it: (it.ballot, it.left), default=None)


def longest(answers: Answers) -> int:
    """For how many milliseconds more some node will have a copy, whatever its ballot is; 0 if none has one."""
    return max([it.left for it in _copies(answers)], default=0)


def lacking(answers: Answers) -> bool:
    """Has a node answered that it has no copy, or one with a lower ballot than another node's?"""
    told = seen(answers)
    highest = max((it.copy.ballot for it in told if it.copy is not None), default=0)
    return any((0 if it.copy is None else it.copy.ballot) < highest for it in told)


def stored(answers: Answers, ballot: int, nodes: int) -> bool | None:
    """Has a majority stored it? False: it cannot any more; None: that is open."""
    yes, needed = sum(it == ballot for it in answers.values()), quorum.majority(nodes)
    if yes >= needed:
        return True
    return False if yes + nodes - len(answers) < needed else None


def highest(answers: Answers) -> int:
    """The highest fence of which the answers tell, to a look or to a store. (One that no ticket can have is of a damaged record.)"""
    told = [it for it in answers.values() if type(it) is int] + [it.fence for it in seen(answers)]
    return max([it for it in told if it < LAST], default=0)


def _copies(answers: Answers) -> list[Copy]:
    return [it.copy for it in seen(answers) if it.copy is not None]


def _read(reply: object) -> Seen | None:
    if not isinstance(reply, list) or len(reply) != 4:
        return None
    promise, fence, left, text = reply
    if not all(type(it) is int for it in (promise, fence, left)) or not isinstance(text, bytes | None):
        return None
    kept = _KEPT.fullmatch(text or b"")  # (what somebody else has written there is nothing)
    return Seen(promise == 1, fence, Copy(int(kept[1]), kept[2], max(left, 1)) if kept else None)


def _evalsha(script: Script, *words: bytes) -> bytes:
    return pack(b"EVALSHA", script.sha, b"%d" % script.keys, *words)
