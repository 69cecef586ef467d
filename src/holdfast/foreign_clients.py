"""What a client of redis-py, valkey-py, coredis or GLIDE says of its server, in holdfast's words.

Knows settings. Sends nothing through a client, does not close or change it, and imports no library
of clients.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from inspect import iscoroutinefunction
from typing import Any, NamedTuple
from urllib.parse import quote

from .checks import encrypted
from .errors import ConfigError
from .wire.address import OPTIONS_TLS

# The names of its server's node -> (user, password), or an awaitable of both.
Login = Callable[[str], Any]
_LIBRARIES = ("redis", "valkey", "coredis")
_TLS = (
    "ssl_context", *OPTIONS_TLS,
    "ssl_min_version", "ssl_ciphers", "ssl_include_verify_flags", "ssl_exclude_verify_flags",
)  # fmt: skip
# They change what a connection is, and holdfast makes its own.
_REFUSED = (
    "redis_connect_func",
    "ssl_validate_ocsp",
    "ssl_validate_ocsp_stapled",
    "ssl_ocsp_context",
    "ssl_ocsp_expected_cert",
)
# They are about connections that holdfast does not use.
_LEFT = (
    "socket_timeout",
    "socket_connect_timeout",
    "stream_timeout",
    "connect_timeout",
    "retry",
    "retry_on_error",
    "health_check_interval",
    "client_name",
)
# GLIDE's settings that change what a connection is, and those of its TLS. GLIDE has not all of them in each version.
_REFUSED_OF_GLIDE = ("address_resolver", "rdma")
_REFUSED_OF_ITS_TLS = ("client_cert_pem", "client_key_pem")
_log = logging.getLogger("holdfast.compat")


class ForeignServer(NamedTuple):
    """What a client's settings say of its server.

    Attributes:
        address: The address, without user and password.
        login: Says user and password, before each connection. None if the server needs none.
        tls: The settings of TLS, by name. None without TLS.
        sentinel_login: User and password for the Sentinels that know where the server is. None
            without a password, and without Sentinels.
    """

    address: str
    login: Login | None
    tls: Mapping[str, Any] | None
    sentinel_login: tuple[str, str] | None = None

    def context(self) -> ssl.SSLContext | None:
        """Return the TLS context that these settings describe. None without TLS."""
        return None if self.tls is None else _context(self.tls)


def place(client: Any) -> ForeignServer:
    """Read the settings of a client.

    Args:
        client: A client of redis-py, valkey-py, coredis or GLIDE, for threads or asyncio; or a
            configuration of GLIDE.

    Returns:
        The place of its server.

    Raises:
        ConfigError: It has a setting that holdfast cannot follow, or is no such client.
    """
    library = type(client).__module__.partition(".")[0]
    pool: Any = getattr(client, "connection_pool", None)
    if library.startswith("glide"):
        return _glide(client)
    if library == "fakeredis":
        raise _unfit(client, "has no server: test with holdfast.testing, or with Holdfast.local()")
    settings = _settings(pool)
    if settings is None:
        raise _unfit(client, "is no client of one server by redis-py, valkey-py, coredis or GLIDE")
    connection = pool.connection_class
    if "Cluster" in connection.__name__:
        raise _unfit(client, "is no client of one server, but of a cluster")
    if connection.__module__.partition(".")[0] not in _LIBRARIES:
        raise _unfit(client, f"has connections of its own kind ({connection.__qualname__})")
    if strange := [it for it in _REFUSED if settings.get(it)]:
        raise _unfit(client, f"has the setting {strange[0]}, which holdfast cannot follow")
    if left := [it for it in _LEFT if settings.get(it)]:
        _log.debug("holdfast does not use these settings of %s: %s", type(client).__qualname__, ", ".join(left))
    secure = "ssl_context" in settings or any(it.__name__ == "SSLConnection" for it in connection.__mro__)
    tls = {it: settings[it] for it in _TLS if settings.get(it) is not None} if secure else None
    login = _login(settings, connection)
    if (manager := getattr(pool, "sentinel_manager", None)) is None:
        return ForeignServer(_address(settings, secure), login, tls)
    # As redis-py and coredis call it.
    if not (pool.is_master if hasattr(pool, "is_master") else pool.is_primary):
        raise _unfit(client, "asks replicas, which grant no locks: take the client of the primary")
    known = [_settings(it.connection_pool) or {} for it in manager.sentinels]
    if any(_sentinel_login(it) != _sentinel_login(known[0]) for it in known):
        raise _unfit(client, "has Sentinels with different passwords")
    return ForeignServer(_watched(settings, secure, known, pool.service_name), login, tls, _sentinel_login(known[0]))


def _settings(pool: Any) -> dict[str, Any] | None:
    """The settings of a pool's connections, by redis-py's names. None if there are none."""
    given = getattr(pool, "connection_kwargs", None)
    if given is None:
        return None
    found = dict(given)
    if (location := getattr(pool, "location", None)) is not None:
        # coredis keeps the place of the server apart.
        found |= {it: getattr(location, it) for it in ("host", "port", "path") if hasattr(location, it)}
    return found


def _glide(client: Any) -> ForeignServer:
    """Read the configuration of GLIDE, or of a client by it."""
    config = getattr(client, "config", None) or getattr(client, "_config", None) or client
    if not hasattr(config, "addresses") or "Cluster" in type(config).__name__:
        raise _unfit(client, "is no client of one server")
    if len(config.addresses) != 1:
        raise _unfit(client, "has several addresses, of which nobody knows the primary")
    if strange := [it for it in _REFUSED_OF_GLIDE if getattr(config, it, None)]:
        raise _unfit(client, f"has the setting {strange[0]}, which holdfast cannot follow")
    (where,), signed = config.addresses, config.credentials
    if getattr(signed, "iam_config", None):
        raise _unfit(client, "signs in by IAM: write a Node with credentials=, which asks for a token each time")
    settings = {
        "host": where.host,
        "port": where.port,
        "path": getattr(where, "unix_socket_path", None),
        "db": config.database_id,
        "username": getattr(signed, "username", None),
        "password": getattr(signed, "password", None),
    }
    tls = _tls_of_glide(client, config) if config.use_tls else None
    return ForeignServer(_address(settings, tls is not None), _login(settings), tls)


def _tls_of_glide(client: Any, config: Any) -> dict[str, Any]:
    given = getattr(config.advanced_config, "tls_config", None)
    if strange := [it for it in _REFUSED_OF_ITS_TLS if getattr(given, it, None)]:
        raise _unfit(client, f"has the setting {strange[0]}, which holdfast cannot follow")
    roots = getattr(given, "root_pem_cacerts", None)
    found = {
        "ssl_ca_data": roots.decode("ascii") if roots else None,
        "ssl_certfile": getattr(given, "client_cert_path", None),
        "ssl_keyfile": getattr(given, "client_key_path", None),
        "ssl_cert_reqs": "none" if getattr(given, "use_insecure_tls", None) else None,
    }
    return {name: value for name, value in found.items() if value is not None}


def _watched(settings: Mapping[str, Any], secure: bool, known: Sequence[Mapping[str, Any]], group: str) -> str:
    """Return the address of a server that these Sentinels know."""
    where = ",".join(_where(it.get("host") or "localhost", it.get("port") or 26379) for it in known)
    database = int(settings.get("db") or 0)
    return f"redis{'s' if secure else ''}+sentinel://{where}/{quote(group)}{f'/{database}' if database else ''}"


def _sentinel_login(settings: Mapping[str, Any]) -> tuple[str, str] | None:
    password = settings.get("password")
    return (settings.get("username") or "", password) if password else None


def _address(settings: Mapping[str, Any], secure: bool) -> str:
    database = int(settings.get("db") or 0)
    if path := settings.get("path"):
        return f"unix://{quote(path)}{f'?db={database}' if database else ''}"
    where = _where(settings.get("host") or "localhost", settings.get("port") or 6379)
    return f"redis{'s' if secure else ''}://{where}{f'/{database}' if database else ''}"


def _where(host: str, port: int) -> str:
    return f"[{quote(host, safe=':')}]:{port}" if ":" in host else f"{host}:{port}"


def _login(settings: Mapping[str, Any], connection: type[Any] | None = None) -> Login | None:
    if (provider := settings.get("credential_provider")) is not None:
        module = getattr(connection, "__module__", "")
        # coredis has one function, which is a coroutine function. redis-py has another one for asyncio.
        ask = provider.get_credentials_async if ".asyncio" in module else provider.get_credentials

        async def awaited() -> Any:
            return _said(await ask())

        waits = ".asyncio" in module or iscoroutinefunction(ask)
        return lambda _: awaited() if waits else _said(ask())
    if not settings.get("password"):
        return None
    said = (settings.get("username") or "", settings["password"])
    return lambda _: said


def _said(given: Any) -> Any:
    """A provider says (user, password), or a password alone, also in a tuple."""
    return given[0] if isinstance(given, tuple) and len(given) == 1 else given


def _context(tls: Mapping[str, Any]) -> ssl.SSLContext:
    made: ssl.SSLContext | None = tls.get("ssl_context")
    if made is not None:
        return made
    context = ssl.create_default_context(
        cafile=tls.get("ssl_ca_certs"), capath=tls.get("ssl_ca_path"), cadata=tls.get("ssl_ca_data")
    )
    # A text such as "none", or one of ssl's own values.
    need = tls.get("ssl_cert_reqs", ssl.CERT_REQUIRED)
    need = ssl.VerifyMode[f"CERT_{need.upper()}"] if isinstance(need, str) else ssl.VerifyMode(need)
    context.check_hostname = need != ssl.CERT_NONE and tls.get("ssl_check_hostname", True)
    context.verify_mode = need
    if "ssl_certfile" in tls or "ssl_keyfile" in tls:
        key = tls.get("ssl_keyfile")
        password = tls.get("ssl_password", partial(encrypted, key or tls["ssl_certfile"]))
        context.load_cert_chain(tls["ssl_certfile"], key, password)
    if "ssl_min_version" in tls:
        context.minimum_version = tls["ssl_min_version"]
    if "ssl_ciphers" in tls:
        context.set_ciphers(tls["ssl_ciphers"])
    for flag in tls.get("ssl_include_verify_flags", ()):
        context.verify_flags |= flag
    for flag in tls.get("ssl_exclude_verify_flags", ()):
        context.verify_flags &= ~flag
    return context


def _unfit(client: Any, why: str) -> ConfigError:
    kind = type(client)
    return ConfigError(
        f"{kind.__module__}.{kind.__qualname__} {why}. Name the address of its server in place of the client "
        "(for the locks of holdfast.compat: configure(client, nodes=[...]))"
    )
