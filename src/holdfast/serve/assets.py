"""The files of the page, as they are sent: compressed, and each with a digest.

Knows the folder `page`. Must not know requests. There is no build step: a browser gets the files
as they are, and the page names its modules, so that a browser asks for all of them at once.
"""

from __future__ import annotations

import gzip
import hashlib
from importlib.resources import files
from typing import NamedTuple

TYPES = {".css": "text/css", ".js": "text/javascript"}


class Asset(NamedTuple):
    """A file as it is sent.

    Attributes:
        kind: Its media type.
        body: Its bytes.
        packed: The same, compressed with gzip.
        digest: Changes with its bytes, for the header `ETag`.
    """

    kind: str
    body: bytes
    packed: bytes
    digest: str


def assets() -> dict[str, Asset]:
    """Return the files of the page by their paths, such as "ui/app.js"; "" is the page itself."""
    page = files("holdfast.serve") / "page"
    found = {"": asset("text/html", (page / "index.html").read_bytes())}
    for folder, path in ((page, "ui/"), (page / "vendor", "ui/vendor/")):
        for it in folder.iterdir():
            if it.is_file() and (kind := TYPES.get(it.name[it.name.rindex(".") :])):
                found[path + it.name] = asset(kind, it.read_bytes())
    return found


def asset(kind: str, body: bytes, level: int = 9) -> Asset:
    """Return a file as it is sent, compressed at this level."""
    # Without the time, so that the same file is the same bytes.
    packed = gzip.compress(body, level, mtime=0)
    return Asset(f"{kind}; charset=utf-8", body, packed, f'"{hashlib.sha256(body).hexdigest()[:16]}"')
