"""The files of the page, as they are sent: joined, compressed, and each with a digest.

Knows the folder `page`. Must not know requests. There is no build step. The page's own modules are
joined when the gateway starts, so that a browser asks for one file and not for eight.
"""

from __future__ import annotations

import gzip
import hashlib
import re
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import NamedTuple

# In the order of their imports: none imports a later one.
MODULES = ("pure", "store", "theme", "nodes", "table", "detail", "dialog", "app")
_IMPORT = re.compile(r'^import \{([^}]*)\} from "\./([^"]+)\.js";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export ", re.MULTILINE)


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


def joined(sources: dict[str, str]) -> str:
    """Join modules into one.

    Args:
        sources: The text of each module by its name, in the order of their imports. Names at the
            top of modules must differ: a browser refuses a module that has one twice.

    Returns:
        One module, which imports from `vendor` what any of them does.
    """
    wanted: dict[str, dict[str, None]] = {}
    for text in sources.values():
        for names, source in _IMPORT.findall(text):
            if source.startswith("vendor/"):
                name = source.removeprefix("vendor/")
                wanted.setdefault(name, {}).update(dict.fromkeys(it.strip() for it in names.split(",")))
    imports = [f'import {{{", ".join(names)}}} from "./{name}.js";\n' for name, names in wanted.items()]
    bodies = [_EXPORT.sub("", _IMPORT.sub("", text)) for text in sources.values()]
    return "".join([*imports, *bodies])


def assets() -> dict[str, Asset]:
    """Return the files of the page by their paths, such as "ui/app.js"; "" is the page itself."""
    folder = files("holdfast.serve") / "page"

    def text(name: str) -> str:
        found: Traversable = folder
        for part in name.split("/"):
            found = found / part
        return found.read_text(encoding="utf-8")

    return {
        "": asset("text/html", text("index.html")),
        "ui/style.css": asset("text/css", text("style.css")),
        "ui/app.js": asset("text/javascript", joined({it: text(f"{it}.js") for it in MODULES})),
        "ui/preact.js": asset("text/javascript", text("vendor/preact.js")),
    }


def asset(kind: str, text: str, level: int = 9) -> Asset:
    """Return a text as it is sent, compressed at this level."""
    body = text.encode()
    # Without the time, so that the same file is the same bytes.
    packed = gzip.compress(body, level, mtime=0)
    return Asset(f"{kind}; charset=utf-8", body, packed, f'"{hashlib.sha256(body).hexdigest()[:16]}"')
