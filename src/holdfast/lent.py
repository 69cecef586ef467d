"""What a client of redis-py or valkey-py says of its server, in holdfast's words.

Knows settings. Sends nothing through a client, does not close or change it, and imports no library
of clients.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple
from urllib.parse import quote

from .errors import ConfigError

__all__ = ["Login", "Place", "access", "place"]

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
    """

    address: str
    login: Login | None
    tls: Mapping[str, Any] | None

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
    if hasattr(pool, "sentinel_manager"):
        raise _unfit(client, "finds its server by Sentinel, which holdfast does not do")
    connection = pool.connection_class
    if connection.__module__.partition(".")[0] not in _LIBRARIES:
        raise _unfit(client, f"has connections of its own kind ({connection.__qualname__})")
    if strange := [it for it in _REFUSED if settings.get(it)]:
        raise _unfit(client, f"has the setting {strange[0]}, which holdfast cannot follow")
    if left := [it for it in _LEFT if settings.get(it)]:
        _log.debug("holdfast does not use these settings of %s: %s", type(client).__qualname__, ", ".join(left))
    secure = any(it.__name__ == "SSLConnection" for it in connection.__mro__)
    tls = {it: settings[it] for it in _TLS if settings.get(it) is not None} if secure else None
    return Place(_address(settings, secure), _login(settings, ".asyncio" in connection.__module__), tls)


def access(places: Iterable[Place]) -> dict[str, Any]:
    """Return the options `credentials` and `ssl` with which a client of holdfast connects to these.

    Args:
        places: The places of all nodes.

    Returns:
        The options, by name. Empty without users, passwords and TLS.

    Raises:
        ConfigError: The places differ in their settings of TLS.
    """
    places, found = tuple(places), dict[str, Any]()
    logins = {it.address: it.login for it in places if it.login is not None}
    if logins:
        found["credentials"] = lambda node: logins[node](node) if node in logins else ("", "")
    secure = [it for it in places if it.tls is not None]
    if any(it.tls != secure[0].tls for it in secure):
        raise ConfigError("these clients have different settings of TLS, and holdfast has one for all nodes")
    if secure:
        found["ssl"] = secure[0].context()
    return found


def _address(settings: Mapping[str, Any], secure: bool) -> str:
    database = int(settings.get("db") or 0)
    if path := settings.get("path"):
        return f"unix://{quote(path)}{f'?db={database}' if database else ''}"
    host, port = settings.get("host") or "localhost", settings.get("port") or 6379
    where = f"[{quote(host, safe=':')}]" if ":" in host else host
    return f"redis{'s' if secure else ''}://{where}:{port}{f'/{database}' if database else ''}"


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
        f"{kind.__module__}.{kind.__qualname__} {why}. Name the address of the server: configure(client, nodes=[...])"
    )
