"""What a client of redis-py or valkey-py says of its server, in holdfast's words.

Knows settings. Sends nothing through a client, does not close or change it, and imports no library
of clients.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import quote

from .errors import ConfigError

__all__ = ["Login", "Place", "place"]

# The names of its server's node -> (user, password), or an awaitable of both.
Login = Callable[[str], Any]
_LIBRARIES = ("redis", "valkey")
_TLS = (
    "ssl_ca_certs",
    "ssl_ca_path",
    "ssl_ca_data",
    "ssl_certfile",
    "ssl_keyfile",
    "ssl_password",
    "ssl_cert_reqs",
    "ssl_check_hostname",
    "ssl_min_version",
    "ssl_ciphers",
    "ssl_include_verify_flags",
    "ssl_exclude_verify_flags",
)
# They change what a connection is, and holdfast makes its own.
_REFUSED = (
    "redis_connect_func",
    "ssl_validate_ocsp",
    "ssl_validate_ocsp_stapled",
    "ssl_ocsp_context",
    "ssl_ocsp_expected_cert",
)
# They are about connections that holdfast does not use.
_LEFT = ("socket_timeout", "socket_connect_timeout", "retry", "retry_on_error", "health_check_interval", "client_name")
_log = logging.getLogger("holdfast.compat")


class Place(NamedTuple):
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


def place(client: Any) -> Place:
    """Read the settings of a client.

    Args:
        client: A client of redis-py or valkey-py, for threads or asyncio.

    Returns:
        The place of its server.

    Raises:
        ConfigError: It has a setting that holdfast cannot follow, or is no such client.
    """
    library, pool = type(client).__module__.partition(".")[0], getattr(client, "connection_pool", None)
    if library == "fakeredis":
        raise _unfit(client, "has no server: test with holdfast.testing, or with Holdfast.local()")
    settings: dict[str, Any] | None = getattr(pool, "connection_kwargs", None)
    if pool is None or settings is None:
        raise _unfit(client, "is no client of one server by redis-py or valkey-py")
    connection = pool.connection_class
    if connection.__module__.partition(".")[0] not in _LIBRARIES:
        raise _unfit(client, f"has connections of its own kind ({connection.__qualname__})")
    if strange := [it for it in _REFUSED if settings.get(it)]:
        raise _unfit(client, f"has the setting {strange[0]}, which holdfast cannot follow")
    if left := [it for it in _LEFT if settings.get(it)]:
        _log.debug("holdfast does not use these settings of %s: %s", type(client).__qualname__, ", ".join(left))
    secure = any(it.__name__ == "SSLConnection" for it in connection.__mro__)
    tls = {it: settings[it] for it in _TLS if settings.get(it) is not None} if secure else None
    login = _login(settings, ".asyncio" in connection.__module__)
    if (manager := getattr(pool, "sentinel_manager", None)) is None:
        return Place(_address(settings, secure), login, tls)
    if not pool.is_master:
        raise _unfit(client, "asks replicas, which grant no locks: take the client of master_for()")
    known = [dict(it.connection_pool.connection_kwargs) for it in manager.sentinels]
    if any(_sentinel_login(it) != _sentinel_login(known[0]) for it in known):
        raise _unfit(client, "has Sentinels with different passwords")
    return Place(_watched(settings, secure, known, pool.service_name), login, tls, _sentinel_login(known[0]))


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


def _login(settings: Mapping[str, Any], waits: bool) -> Login | None:
    if (provider := settings.get("credential_provider")) is not None:

        async def awaited() -> Any:
            return _said(await provider.get_credentials_async())

        return lambda _: awaited() if waits else _said(provider.get_credentials())
    if not settings.get("password"):
        return None
    said = (settings.get("username") or "", settings["password"])
    return lambda _: said


def _said(given: Any) -> Any:
    """A provider says (user, password), or a password alone, also in a tuple."""
    return given[0] if isinstance(given, tuple) and len(given) == 1 else given


def _context(tls: Mapping[str, Any]) -> ssl.SSLContext:
    context = ssl.create_default_context(
        cafile=tls.get("ssl_ca_certs"), capath=tls.get("ssl_ca_path"), cadata=tls.get("ssl_ca_data")
    )
    # A text such as "none", or one of ssl's own values.
    need = tls.get("ssl_cert_reqs", ssl.CERT_REQUIRED)
    need = ssl.VerifyMode[f"CERT_{need.upper()}"] if isinstance(need, str) else ssl.VerifyMode(need)
    context.check_hostname = need != ssl.CERT_NONE and tls.get("ssl_check_hostname", True)
    context.verify_mode = need
    if "ssl_certfile" in tls or "ssl_keyfile" in tls:
        context.load_cert_chain(tls["ssl_certfile"], tls.get("ssl_keyfile"), tls.get("ssl_password"))
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
