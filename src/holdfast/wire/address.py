"""Where a node is and how to introduce oneself there: `redis://user:password@host:port/db` and `unix:///path?db=0`.

Knows URLs. Must not know sockets: names are resolved by the drivers.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import parse_qs, unquote, urlsplit

from ..errors import ConfigError


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
    scheme, _, rest = url.partition("://")
    shown = f"{scheme}://{rest.rpartition('@')[2]}" if rest else url.rpartition("@")[2]
    try:
        parts = urlsplit(url)
        host, port, user, password = parts.hostname or "", parts.port, unquote(parts.username or ""), unquote(parts.password or "")
        options = parse_qs(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
    except ValueError as error:
        raise ConfigError(f"{shown!r} is no address of a node: {_bare(error, url)}") from None
    unknown = set(options) - {"db"}
    if unknown:
        raise ConfigError(f"{shown!r}: unknown option {', '.join(sorted(unknown))}; there is only db")
    if parts.scheme == "redis":
        if not host:
            raise ConfigError(f"{shown!r} names no host: write redis://host:6379")
        database = _database(shown, options, parts.path.strip("/"))
        port = 6379 if port is None else port
        where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        return Address(_label("redis", where, database), host, port, database=database, user=user, password=password)
    if parts.scheme == "unix":
        path = unquote(parts.path)
        if not path:
            raise ConfigError(f"{shown!r} names no socket: write unix:///path/of/the/socket")
        database = _database(shown, options, "")
        return Address(_label("unix", path, database), path=path, database=database, user=user, password=password)
    raise ConfigError(f"{shown!r}: a node's address begins with redis:// or unix://")


def _database(shown: str, options: dict[str, list[str]], inpath: str) -> int:
    text = options.get("db", [inpath or "0"])[-1]
    if not (text.isascii() and text.isdigit()):
        raise ConfigError(f"{shown!r}: the database is a number, not {text!r}")
    return int(text)


def _label(scheme: str, where: str, database: int) -> str:
    return f"{scheme}://{where}" + (f"/{database}" if database and scheme == "redis" else f"?db={database}" if database else "")


def _bare(error: ValueError, url: str) -> str:
    """The parser's complaint, unless it quotes the part of the address in which a password stands."""
    return str(error) if "@" not in url else "its host, port or options cannot be read"
