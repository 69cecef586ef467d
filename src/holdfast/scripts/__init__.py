"""The scripts that nodes run: their text, their digests, and what each is told.

Knows what lies in this folder. Must not know who calls a script, with what, or what its answer
means: a script's head comment says that.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property

try:
    # Nothing but this one function. The module hashlib loads all of OpenSSL with it, which takes
    # longer than everything else here.
    from _sha1 import sha1  # type: ignore[import-not-found, unused-ignore]  # (it has types for some versions)
except ImportError:
    from hashlib import sha1


class Script:
    """One script.

    Args:
        name: The name of its file.
        text: Its text, with comments.
        keys: How many KEYS it is given.
        arguments: What its ARGV holds.
    """

    def __init__(self, name: str, text: bytes, keys: int, arguments: tuple[str, ...]) -> None:
        self.name, self._text, self.keys, self.arguments = name, text, keys, arguments

    # Both are made at their first use: most programs use few of the scripts. The text is read at
    # once, so that it always fits the modules of the same version.

    @cached_property
    def source(self) -> bytes:
        """The text for SCRIPT LOAD, without comments."""
        return bare(self._text)

    @cached_property
    def sha(self) -> bytes:
        """The digest for EVALSHA."""
        digest: str = sha1(self.source, usedforsecurity=False).hexdigest()
        return digest.encode()


def _read(file: str) -> bytes:
    with open(__file__.removesuffix("__init__.py") + file, "rb") as opened:
        return opened.read()


def bare(text: bytes) -> bytes:
    """Return a script without its lines of comment and its indentation.

    Every client sends its scripts with every connection, and nobody reads them there. Each line
    stays a line, so that the numbers in a node's error messages are those of the file.
    """
    return _ASIDE.sub(b"", text)


def _script(name: str, keys: int, *arguments: str, parts: Sequence[str] = ()) -> Script:
    return Script(name, b"".join(_read(f"{part}.lua") for part in parts or (name,)), keys, arguments)


_ASIDE = re.compile(rb"^[ \t]+(?:--.*)?|^--.*", re.MULTILINE)

REQUEST = _script("request", 4, "token", "ttl", "mode", "P", "K", "PXAT")
RELEASE = _script("release", 4, "token", "K")
RETIRE = _script("retire", 3, "token", "rest")
ADOPT = _script("adopt", 2, "from", "to", "ttl", "P", "K")
PERMITS = _script("permits", 1, "permits")
REGISTRY = _script("registry", 4, "me", "note", "was", "life", "most", "lasts")
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
# Loaded and called in the greeting of each connection.
PROBE = _script("probe", 1, "more")

RW_REQUEST = _script(
    "rw_request", 6, "token", "K", "ttl", "mode", "P", parts=("rw_request", "rw_common", "rw_request_else")
)
RW_RELEASE = _script("rw_release", 6, "token", "K", parts=("rw_release", "rw_common", "rw_release_else"))

# Those of operators, who need them now and then: handed over with every call (EVAL), and not loaded
# by every client.
INSPECT = _script("inspect", 8, "most")
FORCE_RELEASE = _script("force_release", 4, "K", "only")
RW_FORCE_RELEASE = _script("rw_force_release", 6, "only", "K", parts=("rw_common", "rw_force_release"))
NAMES = _script("names", 0, "cursor", "pattern", "count")
SURVEY = _script("survey", 0, "keys")
REGISTERS = _script("registers", 0, "cursor", "pattern", "count")

# Those of a plain lock.
EXCLUSIVE = (REQUEST, RELEASE)
# Of a read-write lock.
SHARED = (RW_REQUEST, RW_RELEASE)
RATES = (GCRA, WINDOW)
ELECTION = (ANNOUNCE, WATCH)
ONCE = (LOOK, STORE)
FILLS = (PEEK, PUT, VOID)
MENDING = (RECALL, MEND)

# Those that every connection loads as it connects, in this order: all that a client of plain locks
# says.
BASIC = (*EXCLUSIVE, REGISTRY)

# Those that are called by their digests. A connection loads the others before their first use.
LOADED = (*EXCLUSIVE, RETIRE, ADOPT, *SHARED, PERMITS, *RATES, *ELECTION, *ONCE, *FILLS, ARRIVE, REGISTRY, *MENDING)
