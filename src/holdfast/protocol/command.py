"""What a claim says to nodes, and what a node's push says to a claim.

Knows which commands exist. Must not know how they look as bytes: that is the recipe's business.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from copy import copy
from typing import Protocol, Self

from . import quorum

# The modes of a request.
WAIT = b"w"
TRY = b"t"
CEDE = b"c"
# As WAIT, where the token probably holds the name already. A node that finds it there is done soon.
KEEP = b"k"

RELEASE = b"r"

# The mode of everything that a query asks.
READ = b"?"

# The kinds of a read-write lock's tokens.
READER = b":r"
WRITER = b":w"

# What the key of a read-write lock holds instead of a token while readers have it.
SHARED = b"shared"

# The kinds of push to a claim. TAKEN: an operator's force_release took the lock away.
GRANTED = b"g"
INQUIRY = b"i"
TAKEN = b"x"

# The kind of push that says that something else has changed.
NEWS = b"n"


# The bytes of the answer to a release of what the node has; and those that no answer begins with.
RELEASED = b":1\r\n"
UNKNOWN = b"\n"

# What a holder says along with its lease. It returns the bytes, given the holder's token, the fence
# and for how many seconds they are good. 0 seconds: the lease is over.
Statement = Callable[[bytes, int, float], bytes]


class Recipe(ABC):
    """How one primitive talks to a node about one name. A claim never looks inside.

    Attributes:
        name: The lock's key on the nodes.
        kind: What its tokens end in.
        basic: Whether every connection has the scripts that it calls.
        proposes: The fence that a claim proposes first. 0: its ticket.
        label: The lock's name as the user wrote it.
        part: What its fences are of: the lock, or one of several that have the same name.
        primitive: What observers call it, such as "exclusive" or "permit".
        horizon: K, the fence horizon, in ms.
        statement: What is said along with it while it is held.
    """

    __slots__ = ("basic", "horizon", "label", "name", "part", "primitive", "statement")
    name: bytes
    kind = b""
    basic: bool
    proposes = 0
    label: str
    part: str
    primitive: str
    horizon: int
    statement: Statement | None

    def with_statement(self, statement: Statement) -> Self:
        """The same lock, for a caller that has something to say while it holds the lock."""
        other = copy(self)
        other.statement = statement
        return other

    @abstractmethod
    def request(self, token: bytes, ttl: float, mode: bytes, fence: int, clock: int = 0) -> bytes:
        """Return the bytes of a request.

        Args:
            token: The token that asks.
            ttl: The length of the lease, in seconds.
            mode: WAIT, TRY, CEDE or KEEP.
            fence: The fence that is proposed.
            clock: The time by the ticket's clock, in microseconds.
        """

    @abstractmethod
    def release(self, token: bytes, held: bool = True, rest: float = 0.0) -> bytes:
        """Return the bytes of a release.

        Args:
            token: The token to give back.
            held: Whether its claim was ever held.
            rest: In how many seconds the lock is to be free.
        """


class Asker(Protocol):
    """What wants to know what a node answers: a claim or a query."""

    def answered(self, node: int, command: Command, reply: object, now: float) -> bool:
        """Take in an answer. Returns True if there is something to do."""


class Command:
    """Something asked of one or more nodes: one object, and one packing, for all of them.

    Args:
        owner: What wants the answer; None: nothing does.
        mode: What it is: WAIT, TRY, CEDE, KEEP, RELEASE or READ.
        token: The token that it is about.
        sent: A moment before its first byte left.
        ttl: The length of the lease that it asks for, in seconds. Of a release: what is to be left
            of it.
        fence: The fence that it proposes.
        data: Its bytes, once packed.
        watch: The node is to tell when what this reads has changed.
        clock: When it was sent by the clock of its owner's ticket, in microseconds; 0: not known.
        lasting: For how many seconds a grant counts that it brings. 0: for the ttl.

    Attributes:
        expected: The bytes of the usual answer, if one is known. They are not read any further.
    """

    # fmt: off
    __slots__ = (
        "bound", "clock", "data", "expected", "fence", "lasting", "mode", "owner", "sent", "token", "ttl", "watch",
    )
    # fmt: on

    def __init__(
        self,
        owner: Asker | None,
        mode: bytes,
        token: bytes,
        sent: float,
        ttl: float = 0.0,
        fence: int = 0,
        data: bytes = b"",
        watch: bool = False,
        clock: int = 0,
        lasting: float = 0.0,
    ) -> None:
        self.owner = owner
        self.mode = mode
        self.token = token
        self.sent = sent
        self.ttl = ttl
        self.fence = fence
        self.data = data
        self.watch = watch
        self.clock = clock
        self.lasting = lasting
        # Until when a grant that it brings counts, once that was reckoned.
        self.bound = 0.0
        self.expected = RELEASED if mode is RELEASE and owner is None else UNKNOWN

    def grants_until(self) -> float:
        """Return until when its grants count (rule C2), which is reckoned once for all nodes."""
        if not self.bound:
            self.bound = quorum.bound(self.sent, self.lasting or self.ttl)
        return self.bound

    @property
    def again(self) -> bool:
        """Is it to be said again after a reconnect, if it was not answered (rule T6)?"""
        return self.mode is RELEASE
