"""What a node answers to a request, as a value.

Knows the form of an answer. Must not know what follows from it: `vote` and `claim` do.
"""

from typing import NamedTuple

from .ticket import FENCE

# What a node says instead of milliseconds: the holder's key never expires, or there is no key.
LASTING = -1
NO_KEY = -2

# Bytes of the holder's value that a denial shows.
SHOWN = 64


class Granted(NamedTuple):
    """The node holds the token."""

    fence: int
    # Does a lower ticket wait there?
    lower: bool
    # Did the node grant the token just now? If not, it has held it since an earlier request.
    fresh: bool


class Denied(NamedTuple):
    """Somebody else has the name there."""

    # Milliseconds until the holder's key expires, or LASTING, or NO_KEY.
    left: int
    # Our place in the queue: 0 is first in line.
    place: int
    # The first bytes of the holder's value, if the node tells them.
    holder: bytes | None
    # F there; 0 without a record.
    fence: int = 0


def read(reply: object) -> Granted | Denied | None:
    """Return what a node has answered to a request.

    Args:
        reply: The reply as the wire has it. A positive integer is F: held before, and nobody waits.
            Digits are F, too: granted now, at the P that was sent, and nobody waits. A list is F,
            lower and fresh. A list that begins with 0 is a denial: 0, PTTL, place, holder and F.

    Returns:
        The answer; None if this is an error, or nothing that a node has ever said.
    """
    # An exact type: a boolean of RESP3 is no answer of our scripts.
    if type(reply) is int:
        return Granted(reply, False, False) if reply > 0 else None
    if isinstance(reply, bytes):
        fence = int(reply) if FENCE.fullmatch(reply) else 0
        return Granted(fence, False, True) if 0 < fence < 2**53 else None
    if isinstance(reply, list):
        return _read_list(reply)
    return None


def is_below(reply: object, proposed: int) -> bool:
    """Return whether a reply is a grant with a fence below the proposed one: no request has that.

    A grant raises F to P at least (rule F1). So this is the answer to something else.
    """
    if type(reply) is int:
        return 0 < reply < proposed
    answer = read(reply)
    return isinstance(answer, Granted) and answer.fence < proposed


def _read_list(reply: list[object]) -> Granted | Denied | None:
    """Return what a list says, if it is an answer."""
    if len(reply) < 3:
        return None
    fence, second, third = reply[:3]
    holder = reply[3] if len(reply) > 3 else None
    if type(fence) is not int or type(second) is not int or type(third) is not int:
        return None
    if fence < 0 or not isinstance(holder, bytes | None):
        return None
    if fence > 0:
        return Granted(fence, second == 1, third == 1)
    told = reply[4] if len(reply) > 4 else 0
    if type(told) is not int or told < 0:
        return None
    return Denied(second, third, None if holder is None else holder[:SHOWN], told)
