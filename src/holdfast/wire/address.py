"""Where a node is and how to introduce oneself there: `redis://user:password@host:port/db`, the same with TLS as `rediss://`, `unix:///path?db=0`.

Knows URLs; options are named as in redis-py. Must not know sockets, files or TLS itself: names are resolved, and certificates read, by
the drivers. No complaint shows anything that could be a password.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from ipaddress import IPv6Address
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from .. import checks
from ..errors import ConfigError

_LONGEST = 254  # bytes of a host's name, with the dot at its end
_WORD = re.compile(r"[a-z]+(_[a-z]+)*")
_BLANK = re.compile(r"[\x00-\x1f\x7f]")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*")
_SCHEMES = ("redis", "rediss", "valkey", "valkeys", "unix")
_OPTIONS = ("db", "username", "password")
_OPTIONS_TLS = (
    "ssl_ca_certs",
    "ssl_ca_path",
    "ssl_ca_data",
    "ssl_certfile",
    "ssl_keyfile",
    "ssl_password",
    "ssl_cert_reqs",
    "ssl_check_hostname",
)
_BEGINS = "a node's address begins with redis://, rediss://, valkey://, valkeys:// or unix://"
_SEVERAL = re.compile(r"://.*[,; ]\s*(redis|rediss|valkey|valkeys|unix)://", re.IGNORECASE)
_WHETHER = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


@dataclass(frozen=True, slots=True)
class Tls:
    """What an address says of TLS. Nothing said: the server's certificate is verified, its name too, with the system's authorities.

    `ca_certs`, `ca_path`, `ca_data`: authorities instead of the system's (a file, a folder, PEM text); `certfile`, `keyfile`: who we are,
    in files; `password`: of the key; `verify`: is the certificate looked at; `check_hostname`: is it to be the host's own.
    """

    ca_certs: str = ""
    ca_path: str = ""
    ca_data: str = ""
    certfile: str = ""
    keyfile: str = ""
    password: str = field(default="", repr=False)
    verify: bool = True
    check_hostname: bool = True


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
    tls: Tls | None = None

    @property
    def place(self) -> tuple[str, int]:
        """What no two nodes have in common."""
        return self.host or self.path, self.port


class Url(str):
    """An address as it was given. Its `repr`, which tracebacks with local variables show, has no password in it."""

    __slots__ = ()

    def __repr__(self) -> str:
        return repr(_shown(self)[0])


def masked(given: object) -> Any:
    """The same addresses, in the same texts, lists and mappings, none of which shows a password."""
    match given:
        case str():
            return Url(given)
        case Mapping():
            return {name: masked(it) for name, it in given.items()}
        case bytes() | bytearray():
            return given
        case Iterable():
            return [masked(it) for it in given]
    return given


def parse(url: object) -> Address:
    """The address that a URL names; one that was read before is given back.

    Raises:
        ConfigError: It is no address. The message says what is wrong and never shows a password, and neither do the local
            variables of the frames that it passed.
    """
    if isinstance(url, Address):
        return url
    url = masked(url)
    try:
        return _read(url)
    except ConfigError as error:
        complaint = str(error)
    # Raised here: the frames in which the address was taken apart are not part of it.
    raise ConfigError(complaint)


def _read(url: object) -> Address:
    if not isinstance(url, str):
        kind = type(url).__name__
        hint = ": decode it, address.decode()" if isinstance(url, bytes | bytearray) else ""
        raise ConfigError(f"a node's address is text like 'redis://host:6379', not {kind}{hint}")
    if _SEVERAL.search(url):
        raise ConfigError(
            "this text holds several addresses: pass each as an argument of its own, Holdfast('redis://a:6379', 'redis://b:6379'). "
            "(Only HOLDFAST_NODES lists several in one text.)"
        )
    shown, scheme, hidden = _shown(url)
    if hidden:
        raise ConfigError(f"{shown!r} is no address of a node: in user, password and path write / ? # @ : as %2F %3F %23 %40 %3A")
    if scheme not in _SCHEMES:
        raise ConfigError(f"{shown!r}: {_BEGINS}")
    if _BLANK.search(url) or " " in url.partition("?")[0]:  # (which whoever splits URLs would drop in silence)
        raise ConfigError(f"{shown!r} is no address of a node: there is white space in it, or a control character; write them as %20")
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
        user, password, path = (unquote(it or "", errors="strict") for it in (parts.username, parts.password, parts.path))
        # (a plus is a plus: no form has been filled in here)
        pairs = parse_qsl(parts.query.replace("+", "%2B"), True, bool(parts.query), errors="strict")
    except ValueError:
        given = re.search(r":(\d+)$", shown.partition("://")[2].partition("/")[0])
        if given and int(given[1]) > 65535:
            raise ConfigError(f"{shown!r}: the port must be between 1 and 65535, not {given[1]}") from None
        raise ConfigError(f"{shown!r} is no address of a node: its host, port or options cannot be read") from None
    secure = scheme in ("rediss", "valkeys")
    options = dict(pairs)
    allowed = _OPTIONS + _OPTIONS_TLS if secure else _OPTIONS
    if parts.fragment:
        raise ConfigError(f"{shown!r}: an address has no #fragment. In a password, write # as %23")
    if unknown := [it for it in options if it not in allowed]:
        # What is not a plain word may be part of a password.
        named = f"unknown option {unknown[0]!r}" if _WORD.fullmatch(unknown[0]) else "unknown option"
        more = "" if secure else f" ({', '.join(_OPTIONS_TLS)}: with rediss:// only)"
        hint = ". For time-outs, see node_timeout= of the client" if "timeout" in unknown[0] else ""
        raise ConfigError(f"{shown!r}: {named}; valid options are {', '.join(allowed)}{more}{hint}")
    if (user and "username" in options) or (password and "password" in options):
        raise ConfigError(f"{shown!r}: its user or its password is given twice: before the @, and as an option")
    user = checks.text(user or options.get("username", ""), f"the user of {shown!r}", most=1024)
    password = _sayable(password or options.get("password", ""), shown, "password")
    inpath = path.strip("/") if scheme != "unix" else ""
    number = options.get("db", inpath or "0")
    if not (number.isascii() and number.isdigit() and len(number) < 10):
        raise ConfigError(f"{shown!r}: the database is a number, as in redis://host:6379/1 or unix:///path?db=1")
    database = int(number)
    if scheme == "unix":
        if _BLANK.search(path):
            raise ConfigError(f"{shown!r} names no socket: there is a control character in its path")
        if not path or host:
            raise ConfigError(f"{shown!r} names no socket: write unix:///path/of/the/socket, with three slashes")
        return Address(f"unix://{path}{f'?db={database}' if database else ''}", path=path, database=database, user=user, password=password)
    if not host:
        raise ConfigError(f"{shown!r} names no host: write {scheme}://host:6379")
    if port == 0:
        raise ConfigError(f"{shown!r}: the port must be between 1 and 65535, not 0")
    if not _can_be_found(host):
        raise ConfigError(f"{shown!r} names no host that can be looked up: write {scheme}://host:6379")
    port = 6379 if port is None else port
    where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    label = f"{scheme}://{where}{f'/{database}' if database else ''}"
    tls = _tls(options, shown) if secure else None
    # (what follows the % in an IPv6 address is the interface)
    return Address(label, host.replace("%25", "%"), port, database=database, user=user, password=password, tls=tls)


def _can_be_found(host: str) -> bool:
    """Is it an IPv6 address (which may have an interface, after a percent sign), or could a name server be asked for it?"""
    try:
        if ":" in host:
            IPv6Address(host)
            return True
        known = host.encode("idna")  # which no part of it that is empty, or longer than 63 bytes, survives
    except ValueError:
        return False
    return "%" not in host and len(known) <= _LONGEST


def _tls(options: dict[str, str], shown: str) -> Tls:
    given = {name: _sayable(options[name], shown, name) for name in _OPTIONS_TLS if name in options}
    if empty := [name for name, value in given.items() if not value]:
        raise ConfigError(f"{shown!r}: {empty[0]} is empty: leave it out, or name what is meant")
    need = given.pop("ssl_cert_reqs", "required")
    if need not in ("none", "optional", "required"):  # (to a client, optional is the same as required)
        raise ConfigError(f"{shown!r}: ssl_cert_reqs is required, or none for a certificate that nobody looks at")
    verify = need != "none"
    told = given.pop("ssl_check_hostname", str(verify)).lower()
    check = _WHETHER.get(told)
    if check is None:
        raise ConfigError(f"{shown!r}: ssl_check_hostname is true or false")
    if check and not verify:
        raise ConfigError(f"{shown!r}: with ssl_cert_reqs=none nobody looks at the name in the certificate: leave ssl_check_hostname out")
    if "ssl_certfile" not in given and ("ssl_keyfile" in given or "ssl_password" in given):
        raise ConfigError(f"{shown!r}: ssl_keyfile and ssl_password belong to a certificate: name it with ssl_certfile")
    return Tls(verify=verify, check_hostname=check, **{name.removeprefix("ssl_"): value for name, value in given.items()})


def _sayable(secret: str, shown: str, what: str) -> str:
    try:
        secret.encode()
    except UnicodeEncodeError:
        raise ConfigError(f"{shown!r}: its {what} has half of a surrogate pair in it, which UTF-8 cannot say") from None
    return secret


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
    if scheme.lower() != "unix" and not re.fullmatch(r"[/\d.-]*", path):  # no number of a database, so it may be anything
        path = "/..."
    return f"{scheme}://{host}{path}", scheme.lower(), False
