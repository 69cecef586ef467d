"""What a claim says to nodes, and what a node's push says to a claim: the words of the conversation.

Knows which commands there are. Must not know how they look as bytes: that is the recipe's business.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

WAIT, TRY, CEDE = b"w", b"t", b"c"  # the modes of a request
RELEASE = b"r"
READER, WRITER = b":r", b":w"  # the kinds of a read-write lock's tokens
SHARED = b"shared"  # what its key holds instead of a token while readers have it
READ = b"?"  # whatever a round asks
GRANTED, INQUIRY, TAKEN = b"g", b"i", b"x"  # the kinds of push to a claim; taken: by an operator's force_release
NEWS = b"n"  # and to whoever wants to know of something else: it has changed, look


class Recipe(Protocol):
    """How one primitive talks to a node about one name. A claim hands it on and never looks inside."""

    @property
    def name(self) -> bytes:
        """The lock's key on the nodes."""

    @property
    def kind(self) -> bytes:
        """What its tokens end in."""

    @property
    def label(self) -> str:
        """The lock's name as the user wrote it."""

    @property
    def part(self) -> str:
        """What its fences are of: the lock, or one of several that have the same name."""

    @property
    def rider(self) -> Callable[[int, float], bytes] | None:
        """What is said along with it while it is held: the bytes of that, by its fence, good for so many seconds (0: it is over)."""

    def request(self, token: bytes, ttl: float, mode: bytes, fence: int, clock: int) -> bytes:
        """The bytes of a request; `ttl` in seconds, `fence` the one proposed, `clock` the time by the ticket's clock, in microseconds."""

    def release(self, token: bytes) -> bytes:
        """The bytes of a release."""


class Asker(Protocol):
    """Who wants to know what a node answers."""

    def answered(self, node: int, command: Command, reply: object, now: float) -> bool:
        """A node has answered. True if there is something to do."""


class Command:
    """Something asked of one or more nodes: one object, and one packing, for all of them.

    `owner`: who wants the answer, or nobody; `sent`: a moment before its first byte left; `data`: its bytes, once packed; `watch`: the
    node is to tell when what this reads has changed; `bound`: until when a grant that it brings counts, once somebody has reckoned that;
    `clock`: when it was sent by the clock of its owner's ticket, in microseconds (0: not known).
    """

    __slots__ = ("bound", "clock", "data", "fence", "mode", "owner", "sent", "token", "ttl", "watch")

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
    ) -> None:
        self.watch, self.bound, self.clock = watch, 0.0, clock
        self.owner, self.mode, self.token, self.sent, self.ttl, self.fence, self.data = owner, mode, token, sent, ttl, fence, data

    @property
    def again(self) -> bool:
        """Is it to be said again after a reconnect, if it was not answered?"""
        return self.mode is RELEASE
