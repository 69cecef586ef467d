"""The scripts that nodes run: their text, their digests, and what each is told.

Knows what lies in this folder. Must not know who calls a script, with what, or what its answer means: a script's head comment says that.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import NamedTuple

__all__ = [
    "ANNOUNCE",
    "ARRIVE",
    "ELECTION",
    "EXCLUSIVE",
    "FILLS",
    "FORCE_RELEASE",
    "GCRA",
    "INSPECT",
    "LOADED",
    "LOOK",
    "MEND",
    "MENDING",
    "NAMES",
    "ONCE",
    "PEEK",
    "PERMITS",
    "PUT",
    "RATES",
    "RECALL",
    "REGISTERS",
    "RELEASE",
    "REQUEST",
    "ROLL",
    "RW_FORCE_RELEASE",
    "RW_RELEASE",
    "RW_REQUEST",
    "SHARED",
    "STORE",
    "VOID",
    "WATCH",
    "WINDOW",
    "Script",
]


class Script(NamedTuple):
    """One script. `source`: for SCRIPT LOAD; `sha`: for EVALSHA; `keys`: how many KEYS it is given; `arguments`: what its ARGV holds."""

    name: str
    source: bytes
    sha: bytes
    keys: int
    arguments: tuple[str, ...]


def _read(file: str) -> bytes:
    with open(__file__.removesuffix("__init__.py") + file, "rb") as opened:
        return opened.read()


def _script(name: str, keys: int, *arguments: str, parts: Sequence[str] = ()) -> Script:
    source = b"".join(_read(f"{part}.lua") for part in parts or (name,))
    return Script(name, source, hashlib.sha1(source, usedforsecurity=False).hexdigest().encode(), keys, arguments)


REQUEST = _script("request", 4, "token", "ttl", "mode", "P", "K", "PXAT")
RELEASE = _script("release", 4, "token", "K")
PERMITS = _script("permits", 1, "permits")
ROLL = _script("roll", 3, "me", "known", "life", "most", "name", "lasts")
GCRA = _script("gcra", 1, "what", "patience", "parts", "q", "r", "Q", "R")
WINDOW = _script("window", 1, "cost", "limit", "period", "at")
ANNOUNCE = _script("announce", 2, "term", "version", "ttl", "keep", "value")
WATCH = _script("watch", 2, "token", "ttl")
LOOK = _script("look", 3, "ballot", "K", "token")
STORE = _script("store", 4, "ballot", "K", "keep", "value")
PEEK = _script("peek", 1)
PUT = _script("put", 3, "fence", "fresh", "stale", "ttl", "value")
VOID = _script("void", 2, "fence", "K", "lasts")
ARRIVE = _script("arrive", 4, "count", "generation", "keep", "over", "birth", "known", "token", "ttl", "ids")
RECALL = _script("recall", 0, "keys")
MEND = _script("mend", 1, "until", "first", "second", "value")

RW_REQUEST = _script("rw_request", 6, "token", "K", "ttl", "mode", "P", parts=("rw_request", "rw_common", "rw_request_else"))
RW_RELEASE = _script("rw_release", 6, "token", "K", parts=("rw_release", "rw_common", "rw_release_else"))

# Those of operators, who need them now and then: handed over with every call (EVAL), and not loaded by every client.
INSPECT = _script("inspect", 7, "most")
FORCE_RELEASE = _script("force_release", 4, "K", "only")
RW_FORCE_RELEASE = _script("rw_force_release", 6, "only", "K", parts=("rw_common", "rw_force_release"))
NAMES = _script("names", 0, "cursor", "pattern", "count")
REGISTERS = _script("registers", 0, "cursor", "pattern", "count")

EXCLUSIVE = (REQUEST, RELEASE)  # those of a plain lock
SHARED = (RW_REQUEST, RW_RELEASE)  # of a read-write lock
RATES = (GCRA, WINDOW)
ELECTION = (ANNOUNCE, WATCH)
ONCE = (LOOK, STORE)
FILLS = (PEEK, PUT, VOID)
MENDING = (RECALL, MEND)

# Those that are called by their digests, in the order in which a lane loads them.
LOADED = (*EXCLUSIVE, *SHARED, PERMITS, *RATES, *ELECTION, *ONCE, *FILLS, ARRIVE, ROLL, *MENDING)
