"""Results of `once` on one node: where they are kept, the commands about them as bytes, and what
the answers mean.

Knows `scripts/look.lua` and `scripts/store.lua`. Must not know which nodes there are, who asks, or
what a result stands for.

A function may succeed with a result that cannot be serialized. Then a note is kept in its place,
like any other value: the function has run, and its result is not available. When a caller has a
result forgotten, another note replaces it: the function may run again. That note outlasts the
result. So a copy that arrives late, or that one node still has, does not bring the result back.

A digest of the call's arguments may precede a result, so that a later caller with other arguments
finds out. A result without one was kept for a call that has no arguments, or by a client that does
not look.

A result has a ballot. Before a client stores a result, it looks on a majority, which thereby
promises to store nothing with a lower ballot. If it finds a result there, it stores that one
instead of its own. So only one result is ever on a majority with one ballot (Paxos, for one value).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from ...protocol.exclusive import beside, keys_of
from ...protocol.quorum import Quorum
from ...protocol.ticket import LAST
from ...scripts import LOOK, STORE
from ...wire.resp import evalsha

# How all notes begin (no JSON begins with a zero byte, and no pickle).
_OURS = b"\0holdfast: "
_NOTE = _OURS + b"it has run, and its result could not be kept\0"
FORGOTTEN = _OURS + b"forgotten\0"  # the note that replaces a result
_CALL = _OURS + b"call "  # what precedes a result whose call is known
_KEPT = re.compile(rb"(?!0{16})([0-9]{16}) (.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class OnceCopy:
    """A result as a node keeps it. `left` is for how many milliseconds more."""

    ballot: int
    value: bytes
    left: int

    @property
    def void(self) -> bool:
        """Whether this is the note that replaces a forgotten result."""
        return self.value == FORGOTTEN


@dataclass(frozen=True, slots=True)
class OnceLook:
    """A node's answer to a look.

    `promised` means that it stores nothing of a lower ballot any more. `fence` is its fence.
    """

    promised: bool
    fence: int
    copy: OnceCopy | None


Answers = Mapping[int, object]


class Register:
    """The commands about the result beside a lock's key. Immutable.

    `horizon` is K, the fence horizon in ms.
    """

    def __init__(self, lock: bytes, horizon: int) -> None:
        self._name, self._fence, self._queue, _ = keys_of(lock)
        self._result, self._horizon = beside(lock, b"result"), b"%d" % horizon

    @property
    def key(self) -> bytes:
        """The key under which a node keeps the result."""
        return self._result

    def look(self, ballot: int = 0, token: bytes = b"") -> bytes:
        """Return the bytes that ask for the result, and with a ballot also for a promise.

        `token` is that of the lock, if the ballot is not its fence.
        """
        return evalsha(LOOK, self._name, self._fence, self._result, b"%d" % ballot, self._horizon, token)

    def store(self, ballot: int, value: bytes, left: int) -> bytes:
        """Return the bytes that keep a result for `left` milliseconds."""
        keys = (self._name, self._fence, self._queue, self._result)
        return evalsha(STORE, *keys, b"%016d" % ballot, self._horizon, b"%d" % left, value)


def note(why: str) -> bytes:
    """Return the value to keep in place of a result that cannot be kept. `why` is the reason."""
    return _NOTE + why.encode()


def noted(value: bytes) -> str | None:
    """Return the reason for a missing result, if the value is such a note. None for a result."""
    return value[len(_NOTE) :].decode("utf-8", "replace") if value.startswith(_NOTE) else None


def reserved(value: bytes) -> bool:
    """Whether the value begins like a note, and so cannot be kept as a result."""
    return value.startswith(_OURS)


def called(value: bytes, call: bytes) -> bytes:
    """Return what is kept for a result: its call's digest, if there is one, and the result."""
    return b"%b%b\0%b" % (_CALL, call, value) if call else value


def parted(value: bytes) -> tuple[bytes, bytes]:
    """Return the digest of the call whose result this is, or nothing, and the result."""
    call, _, result = value[len(_CALL) :].partition(b"\0") if value.startswith(_CALL) else (b"", b"", value)
    return call, result


def seen(answers: Answers) -> dict[int, OnceLook]:
    """Return the nodes' answers to a look, without those that are no answers of the script."""
    return {node: it for node, reply in answers.items() if (it := _read(reply)) is not None}


def agreed(answers: Answers, decides: Quorum) -> OnceCopy | None:
    """Return the result, if a majority has it with one ballot.

    Equal values of different ballots prove nothing.
    """
    copies = _copies(answers)
    ballot = decides.agreed({node: it.ballot for node, it in copies.items()})
    return max((it for it in copies.values() if it.ballot == ballot), key=lambda it: it.left, default=None)


def decided(answers: Answers, decides: Quorum) -> bool:
    """Whether it is known that a majority has one result, whatever other nodes will answer."""
    open_, having = decides.nodes - answers.keys(), dict[int, set[int]]()
    for node, it in _copies(answers).items():
        having.setdefault(it.ballot, set()).add(node)
    if any(map(decides.met, having.values())):
        return True
    return decides.met(answers) and not any(decides.met(it | open_) for it in (set[int](), *having.values()))


def promised(answers: Answers, decides: Quorum) -> bool:
    """Whether a majority has promised."""
    return decides.met([node for node, it in seen(answers).items() if it.promised])


def newest(answers: Answers) -> OnceCopy | None:
    """Return the copy of the highest ballot, the only one that a majority may have had, or None."""
    return max(_copies(answers).values(), key=lambda it: (it.ballot, it.left), default=None)


def longest(answers: Answers) -> int:
    """Return for how many milliseconds some node will have a copy of any ballot, or 0."""
    return max([it.left for it in _copies(answers).values()], default=0)


def lacking(answers: Answers) -> bool:
    """Whether a node lacks a copy, or has one with a lower ballot than another node's."""
    ballots = [0 if it.copy is None else it.copy.ballot for it in seen(answers).values()]
    return len(set(ballots)) > 1


def stored(answers: Answers, ballot: int, decides: Quorum) -> bool | None:
    """Whether a majority has stored it. False if none can any more. None while that is open."""
    yes = {node for node, it in answers.items() if it == ballot}
    if decides.met(yes):
        return True
    return None if decides.met(yes | (decides.nodes - answers.keys())) else False


def highest(answers: Answers) -> int:
    """Return the highest fence in the answers to a look or to a store.

    Fences that no ticket can have come from damaged records and do not count.
    """
    told = [it for it in answers.values() if type(it) is int] + [it.fence for it in seen(answers).values()]
    return max([it for it in told if it < LAST], default=0)


def _copies(answers: Answers) -> dict[int, OnceCopy]:
    return {node: it.copy for node, it in seen(answers).items() if it.copy is not None}


def _read(reply: object) -> OnceLook | None:
    if not isinstance(reply, list) or len(reply) != 4:
        return None
    promise, fence, left, text = reply
    if not all(type(it) is int for it in (promise, fence, left)) or not isinstance(text, bytes | None):
        return None
    # A value that another program has written does not count.
    kept = _KEPT.fullmatch(text or b"")
    return OnceLook(promise == 1, fence, OnceCopy(int(kept[1]), kept[2], max(left, 1)) if kept else None)
