"""RESP, the server's protocol: packing commands; parsing is hiredis's work.

Knows bytes. Must not know what any of them mean.
"""

from __future__ import annotations

import hiredis

MORE = object()  # what a reader gives when it needs more bytes
Push, Refusal = hiredis.PushNotification, hiredis.ReplyError
Malformed = hiredis.ProtocolError


def reader() -> hiredis.Reader:
    """A parser of one connection's bytes."""
    return hiredis.Reader(notEnoughData=MORE)


def pack(*arguments: bytes) -> bytes:
    """A command as a server reads it."""
    return b"*%d\r\n" % len(arguments) + b"".join([b"$%d\r\n%b\r\n" % (len(it), it) for it in arguments])
