"""Where a node is and how to introduce oneself there: `redis://user:password@host:port/db` and `unix:///path?db=0`.

Knows URLs. Must not know sockets: names are resolved by the drivers. No complaint shows anything that could be a password.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from urllib.parse import parse_qs, unquote, urlsplit

from .. import checks
from ..errors import ConfigError

_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Address:
    """A node's address. `label`: what it is called in errors, logs and events; never has a password in it."""

    label: str
    host: str = ""
    port: int = 0
    path: str = ""  # of a unix socket, instead of host and port
    database: int = 0
    user: str = ""
    password: str = field(default="", repr=False)


def parse(url: str) -> Address:
    """The address that a URL names. ConfigError says what is wrong with it, and never shows a password."""
    if not isinstance(url, str):
        raise ConfigError(f"a node's address is text like 'redis://host:6379', not {type(url).__name__}")
    shown, scheme, hidden = _shown(url)
    if hidden:
        raise ConfigError(f"{shown!r} is no address of a node: in user, password and path write / ? # @ : as %2F %3F %23 %40 %3A")
    if scheme not in ("redis", "unix"):
        raise ConfigError(f"{shown!r}: a node's address begins with redis:// or unix://")
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
        options = parse_qs(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
    except ValueError:
        raise ConfigError(f"{shown!r} is no address of a node: its host, port or options cannot be read") from None
    if set(options) - {"db"} or parts.fragment:
        raise ConfigError(f"{shown!r}: the only option of an address is ?db=, and it has no #fragment")
    user = checks.text(unquote(parts.username or ""), f"the user of {shown!r}", most=1024)
    password = unquote(parts.password or "")
    try:
        password.encode()
    except UnicodeEncodeError:
        raise ConfigError(f"{shown!r}: its password has half of a surrogate pair in it, which UTF-8 cannot say") from None
    inpath = parts.path.strip("/") if scheme == "redis" else ""
    number = options.get("db", [inpath or "0"])[-1]
    if not (number.isascii() and number.isdigit() and len(number) < 10):
        raise ConfigError(f"{shown!r}: the database is a number, as in redis://host:6379/1 or unix:///path?db=1")
    database = int(number)
    if scheme == "unix":
        path = unquote(parts.path)
        if not path or host:
            raise ConfigError(f"{shown!r} names no socket: write unix:///path/of/the/socket, with three slashes")
        return Address(f"unix://{path}{f'?db={database}' if database else ''}", path=path, database=database, user=user, password=password)
    if not host:
        raise ConfigError(f"{shown!r} names no host: write redis://host:6379")
    port = 6379 if port is None else port
    where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    label = f"redis://{where}{f'/{database}' if database else ''}"
    return Address(label, host, port, database=database, user=user, password=password)


def _shown(url: str) -> tuple[str, str, bool]:
    """What a complaint may show of a URL, its scheme, and whether something that may be a password stands where none belongs."""
    scheme, _, rest = url.partition("://")
    if not rest and "@" in url:
        return "...", "", True
    if "://" not in url:
        return re.split("[?#]", url, maxsplit=1)[0], "", False
    if not _SCHEME.fullmatch(scheme):
        return "...", "", "@" in url
    place = re.split("[/?#]", rest, maxsplit=1)[0]
    path = re.split("[?#]", rest[len(place) :], maxsplit=1)[0]
    host = place.rpartition("@")[2]
    if not re.search(r":\d*$|\]$", host):  # else what follows the colon is no port: perhaps a password, and the host was forgotten
        host = host.partition(":")[0]
    if "@" in rest[len(place) :]:  # then what looks like the host may be the beginning of a password
        return f"{scheme}://...", scheme.lower(), True
    return f"{scheme}://{host}{path}", scheme.lower(), False
