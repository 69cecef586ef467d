"""The roll: on every node, which clients live, whose they are, and which lists of sets of nodes each of them knows.

Knows what is written there, and which clients must not go on beside this one. Must not know lanes or claims.

While sets of nodes are changed, a client that knows only the old list and a client that knows only the new one would hold the same
name at the same time. So each client signs the roll of each node with its first use, and once a minute after that, whether it is used
or not. The answer tells of clients that know other lists. A node remembers a client for more than a day after it signed, so that jobs that
run for a moment and come back the next day are seen, too.

A token has the inbox of the client that made it. So the roll also tells who holds a lock: for each inbox, a node keeps the `owner` of
its client. A node forgets that sooner, three minutes after the client signed for the last time.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from math import inf
from typing import NamedTuple

from ..core.round import Round
from ..scripts import ROLL
from ..wire.resp import pack

EVERY = 60.0  # seconds between two signatures of a client
LIFE = 26 * 3600  # seconds for which a node remembers a client: a daily job is seen, on the day on which clocks are set back, too
NAMED = 3 * EVERY  # seconds for which a node keeps whose an inbox is: a client that misses one signature is still known
RECENT = 2 * EVERY  # seconds: a client that signed within them lives, as far as anybody knows
ALONE = "0"  # the list of a client that has one set of nodes
LISTS, CLIENTS, TOLD = 16, 1000, 16  # how many lists a node keeps, how many clients of each, and how many of these it tells of
SHOWN = 3  # clients that a warning names
MOST = 1000  # clients that are remembered because they were warned of
_LISTS = re.compile(rb"[0-9a-f]{1,8}(,[0-9a-f]{1,8})*")


class Straggler(NamedTuple):
    """A client that uses a node, and does not know the list of sets that this client knows.

    Attributes:
        owner: The client's `owner`, such as "host:pid".
        seen: Seconds since it last reported. A client reports once a minute for as long as it lives.
    """

    owner: str
    seen: float


class _Seen(NamedTuple):
    """A client in an answer. `client`: its owner, and the first digits of its inbox; `age`: seconds since it signed."""

    client: str
    age: float


class Roll:
    """One client's part in it, on the nodes of one set.

    Attributes:
        due: When this client signs next, in seconds; inf: not before a node is connected.
        fresh: The nodes that are connected, and on which it has not signed since.
        asked: The questions that are under way.
    """

    def __init__(self, prefix: str, owner: str, inbox: bytes, spreads: Sequence[str], leaving: bool, nodes: int) -> None:
        """
        Args:
            owner: Whose client this is, such as "host:pid".
            inbox: The client's inbox, 32 hexadecimal digits.
            spreads: A digest of each list of sets that the client knows, the current one first; empty: it has one set, and one list.
            leaving: Is this set only in the former list?
        """
        self._known, self._leaving = tuple(spreads) or (ALONE,), leaving
        self._question = _question(prefix, self._known, owner, inbox)
        self.asked: set[Round] = set()
        self.fresh: set[int] = set()
        self._dues = [inf] * nodes
        self.due = inf
        self._seen: list[tuple[list[_Seen], float] | None] = [None] * nodes  # of each node: who was told, and when
        self._warned: dict[str, None] = {}  # clients that were warned of (a set, in order)

    def up(self, node: int, due: float) -> None:
        """The node can be spoken to, and is signed on at `due`, or with the first use."""
        self.fresh.add(node)
        self._dues[node] = due
        self.due = min(self._dues)

    def used(self, now: float) -> None:
        """The client is used. The program may live for less than a second, so it signs now."""
        for node in self.fresh:
            self._dues[node] = now
        self.due = min(self._dues)

    def question(self) -> bytes:
        """The bytes that sign the roll, and ask who knows other lists."""
        return self._question

    def asks(self, up: Collection[int], now: float) -> list[int]:
        """The nodes to ask now, of those that can be spoken to. They are asked again after a while."""
        asked = [node for node, due in enumerate(self._dues) if due <= now and node in up]
        self.fresh.difference_update([node for node, due in enumerate(self._dues) if due <= now])
        self._dues = [it if it > now else now + EVERY if node in up else inf for node, it in enumerate(self._dues)]
        self.due = min(self._dues)
        return asked

    def end(self) -> None:
        """The client is closed: it does not sign any more."""
        self.due = inf

    def told(self, node: int, answer: object, now: float) -> str:
        """A node has answered.

        Returns:
            What to warn of: clients that do not know this one's list, that live, and that were not warned of before. Empty if
            there are none.
        """
        found = strangers(answer, self._known, self._leaving)
        if found is None:
            return ""
        self._seen[node] = found, now
        new = [it for it in found if it.age <= RECENT and it.client not in self._warned]
        self._warned.update(dict.fromkeys(it.client for it in new))
        while len(self._warned) > MOST:
            del self._warned[next(iter(self._warned))]
        return self._warning(new) if new else ""

    def _warning(self, new: Sequence[_Seen]) -> str:
        names = ", ".join(_owner(it.client) for it in new[:SHOWN])
        more = f" and {len(new) - SHOWN} more" if len(new) > SHOWN else ""
        if len(self._known) > 1:
            return (
                f"it is used by clients that know only the former sets of nodes, or others: {names}{more}. As long as they run, do not "
                "remove `previous` from any client: they and clients without `previous` would hold the same names. Restart them "
                "with the new sets and `previous`; nodes() and ready() show who is left."
            )
        return (
            f"it is used by clients that spread names over other sets of nodes: {names}{more}. They and this client may hold the same "
            "name. Name the same sets everywhere; while they change, name the former ones as `previous`."
        )

    def stragglers(self, node: int, now: float) -> tuple[Straggler, ...] | None:
        """The clients that a node told of; None if it has told nothing yet."""
        seen = self._seen[node]
        return None if seen is None else _shown(seen[0], now - seen[1])


def keys(prefix: str) -> tuple[bytes, bytes]:
    """The keys of the roll, for clients with this prefix; what follows the second one says which lists it is for."""
    name = prefix.encode()
    return b"{holdfast}:lists:" + name, b"{holdfast}:clients:" + name


def look(prefix: str, spreads: Sequence[str]) -> bytes:
    """The bytes that ask who knows other lists than these, and sign nothing."""
    return _question(prefix, tuple(spreads) or (ALONE,))


def found(answer: object, spreads: Sequence[str], leaving: bool) -> tuple[Straggler, ...] | None:
    """The stragglers that a node tells of in its answer to `look`; None if that is no such answer."""
    seen = strangers(answer, tuple(spreads) or (ALONE,), leaving)
    return None if seen is None else _shown(seen, 0.0)


def owned(prefix: str, inboxes: Sequence[bytes]) -> bytes:
    """The bytes that ask whose these inboxes are."""
    return pack(b"MGET", *[owner_key(prefix, it) for it in inboxes])


def owners(inboxes: Sequence[bytes], answers: Iterable[object]) -> dict[bytes, str]:
    """Whose the inboxes are, as far as the answers to `owned` tell."""
    told: dict[bytes, str] = {}
    for answer in answers:
        if isinstance(answer, list) and len(answer) == len(inboxes):
            for inbox, owner in zip(inboxes, answer, strict=True):
                if isinstance(owner, bytes):
                    told[inbox] = owner.decode("utf-8", "replace")
    return told


def owner_key(prefix: str, inbox: bytes) -> bytes:
    """Where a node keeps whose an inbox is, for clients with this prefix."""
    return b"{holdfast}:owner:%b%b" % (prefix.encode(), inbox)


def _question(prefix: str, known: Sequence[str], owner: str = "", inbox: bytes = b"") -> bytes:
    client = b"%b %b" % (owner.encode(), inbox[:8]) if inbox else b""
    most = b"%d %d %d" % (LISTS, CLIENTS, TOLD)
    lasts = b"%d" % (NAMED * 1000)
    names = *keys(prefix), owner_key(prefix, inbox)
    text, life = ",".join(known).encode(), b"%d" % (LIFE * 1000)
    return pack(b"EVALSHA", ROLL.sha, b"%d" % ROLL.keys, *names, client, text, life, most, owner.encode(), lasts)


def strangers(answer: object, known: Sequence[str], leaving: bool) -> list[_Seen] | None:
    """The clients in an answer that do not know the current list, the ones that signed last first.

    Args:
        answer: Of a node.
        known: The lists that this client knows, the current one first.
        leaving: Is the set of this node only in the former list? Then whoever knows one list knows only the former one. (All nodes
            of a set may have been replaced: the lists of before and of now may have the same digest.)

    Returns:
        The clients, or None if the answer is not what the script says.
    """
    if not isinstance(answer, list):
        return None
    told: list[_Seen] = []
    for entry in answer:
        match entry:
            case [bytes() as text, *rest] if _LISTS.fullmatch(text) and len(rest) % 2 == 0:
                theirs = text.decode().split(",")
                if not (len(theirs) > 1 if leaving else known[0] in theirs):
                    for client, ms in zip(rest[::2], rest[1::2], strict=True):
                        if isinstance(client, bytes) and isinstance(ms, int):
                            told.append(_Seen(client.decode("utf-8", "replace"), ms / 1000))
            case _:
                return None
    return sorted(told, key=lambda it: it.age)


def _shown(seen: Sequence[_Seen], since: float) -> tuple[Straggler, ...]:
    return tuple(Straggler(_owner(it.client), it.age + since) for it in seen)


def _owner(client: str) -> str:
    return client.rpartition(" ")[0]
