"""Addresses of nodes: `redis://user:password@host:port/db`, `rediss://` with TLS,
`unix:///path?db=0`, and `redis+sentinel://host:port,host:port/group`.

Knows URLs. Options are named as in redis-py. Must not know sockets, files or TLS itself: the
drivers resolve names and read certificates. No error shows anything that could be a password.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from .. import checks
from ..errors import ConfigError
from ..events import Fields

# Bytes of a host's name, with the dot at its end.
_LONGEST = 254
# Texts, which `re` compiles at their first use.
_WORD = r"[a-z]+(_[a-z]+)*"
# ASCII, but for letters, digits, dots, hyphens and underscores.
_NO_HOST = r"[!-,/:-@\[-^`{-~]"
_BLANK = r"[\x00-\x1f\x7f]"
_SCHEME = r"[A-Za-z][A-Za-z0-9+.-]*"
# What follows the scheme of a node whose place Sentinels know.
_WATCHED = "+sentinel"
_TCP = ("redis", "rediss", "valkey", "valkeys")
_SCHEMES = (*_TCP, "unix", *(it + _WATCHED for it in _TCP))
_OPTIONS = ("db", "username", "password", "failover", "unproven")
_OPTIONS_SENTINEL = ("sentinel_username", "sentinel_password")
OPTIONS_TLS = (
    "ssl_ca_certs",
    "ssl_ca_path",
    "ssl_ca_data",
    "ssl_certfile",
    "ssl_keyfile",
    "ssl_password",
    "ssl_cert_reqs",
    "ssl_check_hostname",
)
_BEGINS = "a node's address begins with redis://, rediss://, valkey://, valkeys://, unix:// or redis+sentinel://"
# Seconds of `failover` at most: a day.
_LONGEST_FAILOVER = 86_400
_SECONDS = r"[0-9]{1,9}(\.[0-9]{1,9})?"
_SEVERAL = r"(?i)://.*[,; ]\s*(redis|rediss|valkey|valkeys|unix)(\+sentinel)?://"
_WHETHER = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


class Described(metaclass=Fields):
    """A value that equals another one with the same fields, and cannot be changed.

    Error reporters show its `repr`, which leaves out the password. They would show all fields of a
    tuple, and of an object without slots.
    """

    def __init__(self, *given: object, **facts: object) -> None:
        kind = type(self)
        for name, value in {**kind.defaults, **dict(zip(kind.fields, given, strict=False)), **facts}.items():
            object.__setattr__(self, name, value)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{name} of {self!r} cannot be changed")

    @property
    def _values(self) -> tuple[object, ...]:
        return tuple(getattr(self, it) for it in type(self).fields)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, type(self)) and self._values == other._values

    def __hash__(self) -> int:
        return hash(self._values)

    def __repr__(self) -> str:
        shown = (f"{it}={getattr(self, it)!r}" for it in type(self).fields if it != "password")
        return f"{type(self).__name__}({', '.join(shown)})"


class Tls(Described, kw_only=False):
    """The TLS options of an address.

    By default the server's certificate and its name are verified, with the system's authorities.

    Attributes:
        ca_certs: A file of authorities that replace the system's.
        ca_path: A folder of them.
        ca_data: A PEM text of them.
        certfile: The file of the client's own certificate.
        keyfile: The file of its key.
        password: The password of the key.
        verify: Whether the server's certificate is verified.
        check_hostname: Whether its name must be the host's.
    """

    ca_certs: str = ""
    ca_path: str = ""
    ca_data: str = ""
    certfile: str = ""
    keyfile: str = ""
    password: str = ""
    verify: bool = True
    check_hostname: bool = True


class Sentinels(Described, kw_only=False):
    """The Sentinels that know where a node is.

    Attributes:
        places: The host and port of each.
        group: What they call the primary and its replicas.
        user: Who asks them. Empty: nobody in particular.
        password: Of that user.
    """

    places: tuple[tuple[str, int], ...]
    group: str
    user: str = ""
    password: str = ""


class Address(Described, kw_only=False):
    """A node's address.

    `label` is what errors, logs and events call the node. It never contains a password.

    `failover` says for how many seconds after a promotion the server that was replaced may still
    grant locks. None: nobody has said.

    `moves` says that the node's place has to be found before each connection: `sentinels` know it,
    or a function of the user's. Another server may be there each time.

    `unproven` admits a server that is neither Redis nor Valkey.
    """

    label: str
    host: str = ""
    port: int = 0
    path: str = ""
    database: int = 0
    user: str = ""
    password: str = ""
    tls: Tls | None = None
    failover: float | None = None
    sentinels: Sentinels | None = None
    moves: bool = False
    unproven: bool = False

    def but(self, **changes: Any) -> Address:
        """The same address with other values of these fields."""
        return Address(**({it: getattr(self, it) for it in type(self).fields} | changes))

    def signed(self, user: str, password: str) -> Address:
        """The same place, with these credentials."""
        return self.but(user=user, password=password)

    @property
    def place(self) -> tuple[str, int]:
        """The host and port, the path of the socket, or the Sentinels and the group. No two nodes
        have the same.
        """
        if self.sentinels is not None:
            known = ",".join(f"{host}:{port}" for host, port in sorted(self.sentinels.places))
            return f"{known}/{self.sentinels.group}", 0
        return self.host or self.path, self.port


class Url(str):
    """An address as the user wrote it.

    Its `repr`, which tracebacks with local variables show, contains no password.
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return repr(_shown(self)[0])


def masked(given: object) -> Any:
    """Return the same addresses in the same structure, with a `repr` that shows no password."""
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
    """Return the address that a URL names.

    Args:
        url: The URL. An `Address` is returned as it is.

    Raises:
        ConfigError: It is no address. Neither the message nor the local variables of the frames in
            the traceback show a password.
    """
    if isinstance(url, Address):
        return url
    url = masked(url)
    try:
        return _read(url)
    except ConfigError as error:
        complaint = error.message
    # Raised here, so that the traceback does not contain the frames that took the address apart.
    raise ConfigError(complaint)


def _checked(url: object) -> tuple[str, str, str]:
    """Return a text that may be an address, what an error may show of it, and its scheme."""
    if not isinstance(url, str):
        kind = type(url).__name__
        hint = ": decode it, address.decode()" if isinstance(url, bytes | bytearray) else ""
        raise ConfigError(f"a node's address is text like 'redis://host:6379', not {kind}{hint}")
    if url.count("://") > 1 and re.search(_SEVERAL, url):
        raise ConfigError(
            "this text holds several addresses: pass each as an argument of its own, "
            "Holdfast('redis://a:6379', 'redis://b:6379'). "
            "(Only HOLDFAST_NODES lists several in one text.)"
        )
    shown, scheme, hidden = _shown(url)
    if hidden:
        raise ConfigError(
            f"{shown!r} is no address of a node: in user, password and path write / ? # @ : as %2F %3F %23 %40 %3A"
        )
    if scheme not in _SCHEMES:
        raise ConfigError(f"{shown!r}: {_BEGINS}")
    # Functions that split URLs would drop these characters in silence.
    if re.search(_BLANK, url) or " " in url.partition("?")[0]:
        raise ConfigError(
            f"{shown!r} is no address of a node: there is white space in it, or a control character; write them as %20"
        )
    return url, shown, scheme


def _read(given: object) -> Address:
    url, shown, scheme = _checked(given)
    watched = scheme.endswith(_WATCHED)
    sentinels, url = _sentinels(url, shown) if watched else ((), url)
    parts = _split(url, shown)
    secure = scheme.removesuffix(_WATCHED) in ("rediss", "valkeys")
    _check_options(parts.options, secure, watched, shown)
    user, password = _login(parts, shown)
    group = _group(parts, shown) if watched else ""
    database = _database(parts, scheme, shown)
    bound = _failover(parts.options, shown)
    unproven = _whether(parts.options.get("unproven", "false"), "unproven", shown)
    if scheme == "unix":
        _check_socket(parts, shown)
        label = f"unix://{parts.path}{f'?db={database}' if database else ''}"
        return Address(label, "", 0, parts.path, database, user, password, failover=bound, unproven=unproven)
    tls = _tls(parts.options, shown) if secure else None
    if watched:
        where = ",".join(_where(host, port) for host, port in sentinels)
        label = f"{scheme}://{where}/{group}{f'/{database}' if database else ''}"
        asked = _asked(sentinels, group, parts.options, shown)
        return Address(label, "", 0, "", database, user, password, tls, bound, asked, True, unproven)
    _check_host(parts, scheme, shown)
    port = 6379 if parts.port is None else parts.port
    label = f"{scheme}://{_where(parts.host, port)}{f'/{database}' if database else ''}"
    # The % in an IPv6 address begins the name of the interface.
    host = parts.host.replace("%25", "%")
    return Address(label, host, port, "", database, user, password, tls, bound, unproven=unproven)


def _where(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _sentinels(url: str, shown: str) -> tuple[tuple[tuple[str, int], ...], str]:
    """Return the places of the Sentinels that a URL lists, and the URL with the first one alone."""
    scheme, _, rest = url.partition("://")
    listed = re.split("[/?#]", rest, maxsplit=1)[0]
    login, at, hosts = listed.rpartition("@")
    found = []
    for host in hosts.split(","):
        parts = _split(f"redis://{host}", shown)
        _check_host(parts, scheme.lower(), shown)
        found.append((parts.host.replace("%25", "%"), 26379 if parts.port is None else parts.port))
    if len(set(found)) < len(found):
        raise ConfigError(f"{shown!r} names a Sentinel twice")
    return tuple(found), f"{scheme}://{login}{at}{hosts.partition(',')[0]}{rest[len(listed) :]}"


def _group(parts: _Parts, shown: str) -> str:
    """Take the group out of the path, and return it."""
    group, _, parts.path = parts.path.strip("/").partition("/")
    if not re.fullmatch(r"[\w.-]+", group, re.ASCII):
        raise ConfigError(
            f"{shown!r} names no group: write what the Sentinels call it (sentinel monitor NAME ...), "
            "redis+sentinel://host:26379/NAME"
        )
    return group


def _asked(places: tuple[tuple[str, int], ...], group: str, options: dict[str, str], shown: str) -> Sentinels:
    user = checks.text(options.get("sentinel_username", ""), f"the sentinel_username of {shown!r}", most=1024)
    return Sentinels(places, group, user, _sayable(options.get("sentinel_password", ""), shown, "sentinel_password"))


class _Parts:
    """The parts of a URL, with their escapes resolved."""

    def __init__(
        self, host: str, port: int | None, user: str, password: str, path: str, options: dict[str, str]
    ) -> None:
        self.host, self.port, self.path, self.options = host, port, path, options
        self.user, self.password = user, password


def _split(url: str, shown: str) -> _Parts:
    # Here, because a program that makes no client needs neither this nor `ipaddress`, which it loads.
    from urllib.parse import parse_qsl, unquote, urlsplit

    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        port = parts.port
        user, password, path = (
            unquote(it or "", errors="strict") for it in (parts.username, parts.password, parts.path)
        )
        # A plus stays a plus: this is no form.
        pairs = parse_qsl(parts.query.replace("+", "%2B"), True, bool(parts.query), errors="strict")
    except ValueError:
        given = re.search(r":(\d+)$", shown.partition("://")[2].partition("/")[0])
        if given and int(given[1]) > 65535:
            raise ConfigError(f"{shown!r}: the port must be between 1 and 65535, not {given[1]}") from None
        raise ConfigError(f"{shown!r} is no address of a node: its host, port or options cannot be read") from None
    if parts.fragment:
        raise ConfigError(f"{shown!r}: an address has no #fragment. In a password, write # as %23")
    return _Parts(host, port, user, password, path, dict(pairs))


def _check_options(options: dict[str, str], secure: bool, watched: bool, shown: str) -> None:
    allowed = _OPTIONS + (_OPTIONS_SENTINEL if watched else ()) + (OPTIONS_TLS if secure else ())
    if unknown := [it for it in options if it not in allowed]:
        # A name that is no plain word may be part of a password.
        named = f"unknown option {unknown[0]!r}" if re.fullmatch(_WORD, unknown[0]) else "unknown option"
        more = "" if secure else f" ({', '.join(OPTIONS_TLS)}: with rediss:// only)"
        hint = ". For time-outs, see node_timeout= of the client" if "timeout" in unknown[0] else ""
        raise ConfigError(f"{shown!r}: {named}; valid options are {', '.join(allowed)}{more}{hint}")


def _login(parts: _Parts, shown: str) -> tuple[str, str]:
    if (parts.user and "username" in parts.options) or (parts.password and "password" in parts.options):
        raise ConfigError(f"{shown!r}: its user or its password is given twice: before the @, and as an option")
    user = checks.text(parts.user or parts.options.get("username", ""), f"the user of {shown!r}", most=1024)
    return user, _sayable(parts.password or parts.options.get("password", ""), shown, "password")


def _database(parts: _Parts, scheme: str, shown: str) -> int:
    inpath = parts.path.strip("/") if scheme != "unix" else ""
    # The option replaces the path, as in redis-py. Neither may be something else.
    number = parts.options.get("db", inpath or "0")
    if not all(it.isascii() and it.isdigit() and len(it) < 10 for it in (inpath or "0", number)):
        raise ConfigError(f"{shown!r}: the database is a number, as in redis://host:6379/1 or unix:///path?db=1")
    return int(number)


def _failover(options: dict[str, str], shown: str) -> float | None:
    if (told := options.get("failover")) is None:
        return None
    return bound(float(told) if re.fullmatch(_SECONDS, told) else told, shown)


def bound(seconds: object, shown: str) -> float:
    """Check for how long a server that was replaced may go on.

    Args:
        seconds: What the user says.
        shown: The address, for errors.

    Raises:
        ConfigError: It is no number of seconds from 0 to a day.
    """
    if isinstance(seconds, int | float) and not isinstance(seconds, bool) and 0 <= seconds <= _LONGEST_FAILOVER:
        return float(seconds)
    raise ConfigError(
        f"{shown!r}: failover is a number of seconds from 0 to {_LONGEST_FAILOVER}, as in redis://host?failover=15"
    )


def _check_socket(parts: _Parts, shown: str) -> None:
    if re.search(_BLANK, parts.path):
        raise ConfigError(f"{shown!r} names no socket: there is a control character in its path")
    if not parts.path or parts.host:
        raise ConfigError(f"{shown!r} names no socket: write unix:///path/of/the/socket, with three slashes")


def _check_host(parts: _Parts, scheme: str, shown: str) -> None:
    if not parts.host:
        raise ConfigError(f"{shown!r} names no host: write {scheme}://host:6379")
    if parts.port == 0:
        raise ConfigError(f"{shown!r}: the port must be between 1 and 65535, not 0")
    if not _can_be_found(parts.host):
        hint = ". A colon goes before the port, and each node is an address of its own" if "," in parts.host else ""
        raise ConfigError(f"{shown!r} names no host that can be looked up: write {scheme}://host:6379{hint}")


def _can_be_found(host: str) -> bool:
    """Whether this is an IPv6 address, also with an interface, or a name that can be looked up."""
    try:
        if ":" in host:
            from ipaddress import IPv6Address

            IPv6Address(host)
            return True
        # Raises an error for a part that is empty or longer than 63 bytes.
        known = host.encode("idna")
    except ValueError:
        return False
    return not re.search(_NO_HOST, host) and len(known) <= _LONGEST


def _tls(options: dict[str, str], shown: str) -> Tls:
    given = {name: _sayable(options[name], shown, name) for name in OPTIONS_TLS if name in options}
    if empty := [name for name, value in given.items() if not value]:
        raise ConfigError(f"{shown!r}: {empty[0]} is empty: leave it out, or name what is meant")
    need = given.pop("ssl_cert_reqs", "required")
    # To a client, optional is the same as required.
    if need not in ("none", "optional", "required"):
        raise ConfigError(f"{shown!r}: ssl_cert_reqs is required, or none for a certificate that nobody looks at")
    verify = need != "none"
    check = _whether(given.pop("ssl_check_hostname", str(verify)), "ssl_check_hostname", shown)
    if check and not verify:
        raise ConfigError(
            f"{shown!r}: with ssl_cert_reqs=none nobody looks at the name in the certificate: "
            "leave ssl_check_hostname out"
        )
    if "ssl_certfile" not in given and ("ssl_keyfile" in given or "ssl_password" in given):
        raise ConfigError(f"{shown!r}: ssl_keyfile and ssl_password belong to a certificate: name it with ssl_certfile")
    return Tls(
        verify=verify, check_hostname=check, **{name.removeprefix("ssl_"): value for name, value in given.items()}
    )


def _whether(told: str, what: str, shown: str) -> bool:
    found = _WHETHER.get(told.lower())
    if found is None:
        raise ConfigError(f"{shown!r}: {what} is true or false")
    return found


def _sayable(secret: str, shown: str, what: str) -> str:
    try:
        secret.encode()
    except UnicodeEncodeError:
        raise ConfigError(f"{shown!r}: its {what} has half of a surrogate pair in it, which UTF-8 cannot say") from None
    return secret


def _shown(url: str) -> tuple[str, str, bool]:
    """Return what an error may show of a URL, its scheme, and whether it hides something.

    It hides a part that stands in the wrong place and may be a password.
    """
    scheme, _, rest = url.partition("://")
    if not rest and "@" in url:
        return "...", "", True
    if "://" not in url:
        return re.split("[?#]", url, maxsplit=1)[0], "", False
    if not re.fullmatch(_SCHEME, scheme):
        return "...", "", "@" in url
    place = re.split("[/?#]", rest, maxsplit=1)[0]
    path = re.split("[?#]", rest[len(place) :], maxsplit=1)[0]
    host = place.rpartition("@")[2]
    # Otherwise the text after the colon is no port. It may be a password without a host.
    if not re.search(r":\d*$|\]$", host):
        host = host.partition(":")[0]
    # In that case the apparent host may be the beginning of a password.
    if "@" in rest[len(place) :]:
        return f"{scheme}://...", scheme.lower(), True
    # The path is no number of a database, so it may be anything.
    if scheme.lower() != "unix" and not re.fullmatch(r"[/\d.-]*", path):
        path = "/..."
    return f"{scheme}://{host}{path}", scheme.lower(), False
