"""The roll: on every node, which clients live, whose they are, and which shards they know.

Knows what is written there, and which clients must not go on beside this one. Must not know lanes
or claims.

While shards are changed, a client that knows only the old list and a client that knows only the new
one would hold the same name at the same time. So each client signs the roll of each node with its
first use, and once a minute after that, whether it is used or not. The answer tells of clients that
know other lists. A node remembers a client for more than a day after it signed, so that jobs that
run for a moment and come back the next day are seen, too.

A token has the inbox of the client that made it. So the roll also tells who holds a lock: for each
inbox, a node keeps the `owner` of its client. A node forgets that sooner, three minutes after the
client signed for the last time.
"""

import re
from collections.abc import Collection, Iterable, Sequence
from math import inf
from typing import NamedTuple

from ..core.round import Round
from ..scripts import ROLL
from ..wire.resp import pack

EVERY = 60.0  # seconds between two signatures of a client
# Seconds for which a node remembers a client: a daily job is seen, on the day on which clocks are
# set back, too.
LIFE = 26 * 3600
# Seconds for which a node keeps whose an inbox is: a client that misses one signature is still
# known.
NAMED = 3 * EVERY
# Seconds: a client that signed within them lives, as far as anybody knows.
RECENT = 2 * EVERY
ALONE = "0"  # the list of a client that has one shard
# How many lists a node keeps, how many clients of each, and how many of these it tells of.
LISTS, CLIENTS, TOLD = 16, 1000, 16
SHOWN = 3  # clients that a warning names
MOST = 1000  # clients that are remembered because they were warned of
# A text, which `re` compiles at its first use.
_LISTS = rb"[0-9a-f]{1,8}(,[0-9a-f]{1,8})*"


class Straggler(NamedTuple):
    """A client that uses a node, and does not know the list of shards that this client knows.

    Attributes:
        owner: The client's `owner`, such as "host:pid".
        seen: Seconds since it last reported. A client reports once a minute for as long as it
            lives.
    """

    owner: str
    seen: float


class _Seen:
    """A client in an answer.

    `client` is its owner and the first digits of its inbox. `age` is the time since it signed, in
    seconds.
    """

    __slots__ = ("age", "client")

    def __init__(self, client: str, age: float) -> None:
        self.client, self.age = client, age


class Roll:
    """One client's part in it, on the nodes of one shard.

    Attributes:
        due: When this client signs next, in seconds. inf: not before a node is connected.
        fresh: The nodes that are connected, and on which it has not signed since.
        asked: The questions that are under way.
    """

    def __init__(
        self, prefix: str, owner: str, inbox: bytes, spreads: Sequence[str], leaving: bool, nodes: int
    ) -> None:
        """
        Args:
            prefix: The prefix of all keys of this client.
            owner: The process of this client, such as "host:pid".
            inbox: The client's inbox, 32 hexadecimal digits.
            spreads: A digest of each list of shards that the client knows, the current one first.
                Empty if it has one shard and one list.
            leaving: Whether this shard is only in the former list.
            nodes: How many nodes the shard has.
        """
        self._known, self._leaving = tuple(spreads) or (ALONE,), leaving
        self._question = _question(prefix, self._known, owner, inbox)
        self.asked: set[Round] = set()
        self.fresh: set[int] = set()
        self._dues = [inf] * nodes
        self.due = inf
        # The clients that each node has reported, and when.
        self._seen: list[tuple[list[_Seen], float] | None] = [None] * nodes
        # Clients that were warned of (a set, in order).
        self._warned: dict[str, None] = {}

    def up(self, node: int, due: float) -> None:
        """Note that a node is connected. It is signed at `due`, or with the first use."""
        self.fresh.add(node)
        self._dues[node] = due
        self.due = min(self._dues)

    def used(self, now: float) -> None:
        """Sign now, because the client is used. The program may live for less than a second."""
        for node in self.fresh:
            self._dues[node] = now
        self.due = min(self._dues)

    def question(self) -> bytes:
        """Return the bytes that sign the roll and ask which clients know other lists."""
        return self._question

    def asks(self, up: Collection[int], now: float) -> list[int]:
        """Return the connected nodes to ask now. They are due again after `EVERY`."""
        asked = [node for node, due in enumerate(self._dues) if due <= now and node in up]
        self.fresh.difference_update([node for node, due in enumerate(self._dues) if due <= now])
        self._dues = [it if it > now else now + EVERY if node in up else inf for node, it in enumerate(self._dues)]
        self.due = min(self._dues)
        return asked

    def end(self) -> None:
        """Stop signing, because the client is closed."""
        self.due = inf

    def told(self, node: int, answer: object, now: float) -> str:
        """Take in a node's answer.

        Returns:
            A warning of clients that live and do not know this one's list, without those of earlier
            warnings. Empty if there are none.
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
                f"it is used by clients that know only the former shards, or others: {names}{more}. "
                "As long as they run, do not remove `previous` from any client: they and clients without `previous` "
                "would hold the same names. Restart them with the new shards and `previous`; "
                "nodes() and ready() show who is left."
            )
        return (
            f"it is used by clients that spread names over other shards: {names}{more}. "
            "They and this client may hold the same name. "
            "Name the same shards everywhere; while they change, name the former ones as `previous`."
        )

    def stragglers(self, node: int, now: float) -> tuple[Straggler, ...] | None:
        """Return the clients that a node has reported. None if it has not answered yet."""
        seen = self._seen[node]
        return None if seen is None else _shown(seen[0], now - seen[1])


def keys(prefix: str) -> tuple[bytes, bytes]:
    """Return the keys of the roll, for clients with this prefix.

    What follows the second one says which lists it is for.
    """
    name = prefix.encode()
    return b"{holdfast}:lists:" + name, b"{holdfast}:clients:" + name


def look(prefix: str, spreads: Sequence[str]) -> bytes:
    """Return the bytes that ask which clients know other lists than these, and sign nothing."""
    return _question(prefix, tuple(spreads) or (ALONE,))


def found(answer: object, spreads: Sequence[str], leaving: bool) -> tuple[Straggler, ...] | None:
    """Return the stragglers in a node's answer to `look`. None if that is no such answer."""
    seen = strangers(answer, tuple(spreads) or (ALONE,), leaving)
    return None if seen is None else _shown(seen, 0.0)


def owned(prefix: str, inboxes: Sequence[bytes]) -> bytes:
    """Return the bytes that ask whose these inboxes are."""
    return pack(b"MGET", *[owner_key(prefix, it) for it in inboxes])


def owners(inboxes: Sequence[bytes], answers: Iterable[object]) -> dict[bytes, str]:
    """Return the owners of the inboxes, as far as the answers to `owned` tell."""
    told: dict[bytes, str] = {}
    for answer in answers:
        if isinstance(answer, list) and len(answer) == len(inboxes):
            for inbox, owner in zip(inboxes, answer, strict=True):
                if isinstance(owner, bytes):
                    told[inbox] = owner.decode("utf-8", "replace")
    return told


def owner_key(prefix: str, inbox: bytes) -> bytes:
    """Return the key of an inbox's owner on a node, for clients with this prefix."""
    return b"{holdfast}:owner:%b%b" % (prefix.encode(), inbox)


def _question(prefix: str, known: Sequence[str], owner: str = "", inbox: bytes = b"") -> bytes:
    client = b"%b %b" % (owner.encode(), inbox[:8]) if inbox else b""
    most = b"%d %d %d" % (LISTS, CLIENTS, TOLD)
    lasts = b"%d" % (NAMED * 1000)
    names = *keys(prefix), owner_key(prefix, inbox)
    text, life = ",".join(known).encode(), b"%d" % (LIFE * 1000)
    return pack(b"EVALSHA", ROLL.sha, b"%d" % ROLL.keys, *names, client, text, life, most, owner.encode(), lasts)


def strangers(answer: object, known: Sequence[str], leaving: bool) -> list[_Seen] | None:
    """Return the clients in an answer that do not know the current list, the latest first.

    Args:
        answer: The answer of a node.
        known: The lists that this client knows, the current one first.
        leaving: Whether the shard of this node is only in the former list. Then a client that knows
            one list knows only the former one. The digests do not tell: if all nodes of a shard
            were replaced, the old and the new list may have the same digest.

    Returns:
        The clients, or None if the answer is not what the script says.
    """
    if not isinstance(answer, list):
        return None
    told: list[_Seen] = []
    for entry in answer:
        match entry:
            case [bytes() as text, *rest] if re.fullmatch(_LISTS, text) and len(rest) % 2 == 0:
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
