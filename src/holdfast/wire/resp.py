"""RESP, the server's protocol: packing commands; parsing is hiredis's work.

Knows bytes. Must not know what any of them mean.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import hiredis

if TYPE_CHECKING:
    from ..scripts import Script

# What a reader gives when it needs more bytes.
MORE = object()
Push = hiredis.PushNotification
Refusal = hiredis.ReplyError
Malformed = hiredis.ProtocolError

# Bytes of one reply: a value that nodes keep has 1 MiB at most, a list of clients may be longer.
LONGEST = 1 << 25
MOST = 1 << 20  # items of one list, map or set
# Bytes for whose room a parser is kept.
KEPT = 1024
# Bytes of a line that its header needs.
HEAD = 32
# How strings begin, lists, and among these the ones that count pairs.
STRINGS = frozenset((b"$", b"=", b"!"))
PAIRS = frozenset((b"%", b"|"))
HEADERS = STRINGS | PAIRS | {b"*", b"~", b">"}
_counts = re.compile(rb"-?[0-9]{1,20}\r*").fullmatch
# What a node says to a holder. No header in it can be large, and every reply is complete.
usual = re.compile(rb"(?:\$16\r\n[0-9]{16}\r\n|:-?[0-9]{1,19}\r\n|\+OK\r\n|_\r\n)+").fullmatch


class ReplyParser:
    """A parser of one connection's bytes, which refuses what is larger than any answer to this
    library's questions.

    hiredis believes every header. For a list that is said to have 2^31 items it makes room at once,
    which takes seconds; and it keeps as many bytes of an unfinished reply as a node sends. So
    `check` looks at every header before `feed` hands it to hiredis.

    hiredis also keeps the room that the longest replies needed. For those of a greeting, that would
    be most of what a quiet connection costs. So another parser takes over between two replies.
    """

    def __init__(self) -> None:
        # Bytes since the last reply ended.
        self.unfinished = 0
        # Values that are yet to come until the reply ends, by the headers so far. 0 between two
        # replies, or in a string that ends the reply.
        self._items = 0
        # Bytes of a string that are yet to come, with its line end.
        self._skip = 0
        # The first bytes of a line whose end is yet to come.
        self._head = b""
        # Was a carriage return the last byte of it so far?
        self._carriage = False
        self._begin()

    def _begin(self) -> None:
        """Parse what comes next with a parser that has no room yet."""
        parser = hiredis.Reader(notEnoughData=MORE)
        # Add bytes that were checked.
        self.feed = parser.feed
        # The next reply, or MORE.
        self.gets = parser.gets
        # Has it needed so much room that another one is to take its place?
        self._large = False

    def check(self, data: bytes) -> None:
        """Look at every header in the bytes that come next. Lines end where they do for hiredis.

        This may be left out if nothing is `unfinished`, and the bytes are `usual`. Every reply has
        to be taken from `gets` before the next bytes are checked. `feed` and `gets` may be others
        afterwards.

        Raises:
            Malformed: A reply claims to be too large, or is too large and not complete. The bytes
                are not to be fed.
        """
        if self._large and not self.unfinished:
            self._begin()
        self.unfinished += len(data)
        if self.unfinished > LONGEST:
            raise Malformed(f"a reply of more than {LONGEST} bytes")
        self._large = self._large or self.unfinished > KEPT
        at = 0
        size = len(data)
        if self._carriage and data[:1] == b"\n":
            at = 1
            self._ended(self._head, size - at)
        while at < size:
            if self._skip:
                step = min(self._skip, size - at)
                at += step
                self._skip -= step
                if not self._skip and not self._items:
                    self.unfinished = size - at
                continue
            end = data.find(b"\r\n", at)
            head = data[at : min(at + HEAD, size if end < 0 else end)]
            if self._head:
                head = self._head + head
            if end < 0:
                self._head = head[:HEAD]
                self._carriage = data[-1:] == b"\r"
                break
            at = end + 2
            self._ended(head, size - at)

    def _ended(self, head: bytes, rest: int) -> None:
        """A line is complete, and `rest` bytes are left. What follows it, if it is a header?"""
        self._head = b""
        self._carriage = False
        # The line is the value that was to come, or the first line of a reply.
        items = self._items - 1 if self._items else 0
        kind = head[:1]
        if kind in HEADERS and _counts(head, 1):
            count = int(head[1:])
            if kind in STRINGS:
                if count > LONGEST:
                    raise Malformed(f"a string of {count} bytes")
                self._skip = count + 2 if count >= 0 else 0
            elif count > MOST:
                raise Malformed(f"a list of {count} items")
            elif count > 0:
                items += count * 2 if kind in PAIRS else count
        self._items = items
        if not items and not self._skip:
            self.unfinished = rest


def reader() -> ReplyParser:
    """A parser of one connection's bytes."""
    return ReplyParser()


def pack(*arguments: bytes) -> bytes:
    """A command as a server reads it."""
    return b"*%d\r\n" % len(arguments) + b"".join([b"$%d\r\n%b\r\n" % (len(it), it) for it in arguments])


def evalsha(script: Script, *words: bytes) -> bytes:
    """A call of a script that the server keeps: its keys, then its arguments."""
    return pack(b"EVALSHA", script.sha, b"%d" % script.keys, *words)
