"""What happened in a world, for people: one line an event.

Knows how commands and answers look as bytes. Must not know what they should have been.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from math import inf

import hiredis

from ..scripts import PROBE, REGISTRY, RELEASE, REQUEST, RW_RELEASE, RW_REQUEST
from .network import Node
from .world import BytesInFlight, World

MODES: dict[object, str] = {b"w": "wait", b"t": "try", b"c": "cede", b"k": "keep"}
_TOKEN = re.compile(r"\d{6}(\d{10}):([0-9a-f]{4})[0-9a-f]{28}:0*([0-9a-f]+)")
_PUSHED = re.compile(r"push [gix] ")
_GRANTED = re.compile(r"(?:^|\| )(?:\d{16}(?= \||$)|\[[1-9]\d{5,}, [01], [01]\])")
_DENIED = re.compile(r"(?:^|\| )\[0, -?\d+, -?\d+")


def timeline(world: World, last: int | None = None, begins: float = 0.0, ends: float = inf) -> Iterator[str]:
    """The last lines of what happened, or all, between two moments."""
    for now, who, what, *details in world.record if last is None else world.record[-last:]:
        if isinstance(now, float) and begins <= now <= ends:
            told = " ".join(" | ".join(said(it)) if isinstance(it, bytes) else str(it) for it in details if it != "")
            yield short(f"{now:10.6f}  {who} {what} {told}")


def short(text: str) -> str:
    """Tokens as microseconds.client.serial."""
    return _TOKEN.sub(lambda found: f"{int(found[1])}.{found[2]}.{found[3]}", text)


def said(data: bytes) -> Iterable[str]:
    """What some bytes say, or are."""
    if data[:1] not in (b"*", b"$", b":", b"+", b"-", b">", b"%", b"_", b"="):
        return [_words([data])]
    reader = hiredis.Reader(notEnoughData=...)
    reader.feed(data)
    words = []
    try:
        while (item := reader.gets()) is not ...:
            words.append(_one(item))
    except hiredis.ProtocolError:
        # The bytes continue an earlier piece.
        return [_words([data])]
    return words


def kind_of(flight: BytesInFlight) -> str:
    """Return what kind of message this is.

    Args:
        flight: A message between a client and a node.

    Returns:
        Of a client: "ask", "make" (way), "give" (back). Of a node: "yes", "no", "push". Anything
        else is "other".
    """
    words = " | ".join(said(flight.data))
    if isinstance(flight.sender, Node):
        if _PUSHED.search(words):
            return "push"
        if _GRANTED.search(words):
            return "yes"
        return "no" if _DENIED.search(words) else "other"
    for word, kind in (("cede ", "make"), ("wait ", "ask"), ("keep ", "ask"), ("try ", "ask"), ("release ", "give")):
        if word in words:
            return kind
    return "other"


def _one(item: object) -> str:
    match item:
        case hiredis.PushNotification():
            return f"push {_words(list(item)[-1:])}"
        case [b"EVALSHA", REQUEST.sha, _, name, _, _, _, token, ttl, mode, fence, *_]:
            return f"{MODES.get(mode, mode)} {_words([name, token])} ttl {_words([ttl])} P {_words([fence])}"
        case [b"EVALSHA", RW_REQUEST.sha, _, name, _, _, _, _, _, token, _, ttl, mode, fence]:
            return f"{MODES.get(mode, mode)} {_words([name, token])} ttl {_words([ttl])} P {_words([fence])}"
        case [b"EVALSHA", RELEASE.sha, _, name, _, _, _, token, _]:
            return f"release {_words([name, token])}"
        case [b"EVALSHA", RW_RELEASE.sha, _, name, _, _, _, _, _, token, _]:
            return f"release {_words([name, token])}"
        case [b"EVALSHA", REGISTRY.sha, _, _, _, _, _, client, note, *_]:
            return f"is registered as {_words([client])} with {_words([note])}"
        case [b"SCRIPT" | b"EVALSHA" as word, b"LOAD" | PROBE.sha, *_]:
            return "SCRIPT LOAD" if word == b"SCRIPT" else "probe"
        case [bytes(), *_]:
            return _words(item)
        case bytes():
            return "..." if len(item) > 60 else _words([item])
        case _:
            return repr(item)


def _words(items: Iterable[object]) -> str:
    words = (it.decode("utf-8", "backslashreplace") if isinstance(it, bytes) else str(it) for it in items)
    return " ".join(words).replace("\r\n", " ; ")
