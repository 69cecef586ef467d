"""The options of a gateway.

Knows which there are, and what each may be. Must not know what they do.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any
from urllib.parse import urlsplit

from ..checks import known, shown
from ..errors import ConfigError

LOCAL = ("localhost", "127.0.0.1", "[::1]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What a gateway may do, and how much of it.

    Attributes:
        tokens: A file of clients, the digests of their tokens, and their scopes. None: nobody is
            asked who they are, and everybody may do everything but take locks away.
        allow_force: Whether anybody may take locks away. Clients need the scope `force:...`, too.
        page: Whether `/` shows the live page.
        page_only: Whether the gateway only shows, so that nobody locks through it.
        grafana_url: An address that the page links to.
        host_names: The names by which clients may address the gateway (header `Host`), without
            ports.
        advertise: The address at which other gateways reach this one, such as
            "https://10.0.0.7:7420". None: there are no others.
        peer_ca: A file with the authorities of the other gateways' certificates. None: those of the
            system.
        audit: A file for the audit log. It is always written to the logger `holdfast.audit`, too.
        trusted_proxies: Networks such as "10.0.0.0/8", whose `X-Forwarded-Client-Cert` says who a
            client is.
        registry: The metrics that `/metrics` shows beside the gateway's own: a CollectorRegistry of
            prometheus-client.
        max_leases: How many leases one client may have in this gateway, held or waited for.
        max_leases_in_all: How many leases all clients may have.
        max_waiters: How many of its leases one client may wait for at the same time.
        max_waiters_in_all: The same for all clients.
        max_requests: Requests a second of one client. As many may come at once.
        max_connections: Open connections, as far as the system has descriptors. A quarter of them
            may be of one address before they show a client, and stay open for one client.
        max_keepalives: Leases that one client may keep or release in a second. As many may come at
            once.
        max_streams: Open event streams of one client.
        max_streams_in_all: The same for all clients.
        max_lag: Seconds by which the event loop may be late. Above it, only keepalives, releases
            and health are served.
    """

    tokens: str | None = None
    allow_force: bool = False
    page: bool = True
    page_only: bool = False
    grafana_url: str | None = None
    host_names: tuple[str, ...] = LOCAL
    advertise: str | None = None
    peer_ca: str | None = None
    audit: str | None = None
    trusted_proxies: tuple[str, ...] = ()
    registry: Any = None
    max_leases: int = 1_000
    max_leases_in_all: int = 50_000
    max_waiters: int = 1_000
    max_waiters_in_all: int = 20_000
    max_requests: int = 200
    max_connections: int = 20_000
    max_keepalives: int = 1_000
    max_streams: int = 200
    max_streams_in_all: int = 1_000
    max_lag: float = 0.25

    def __post_init__(self) -> None:
        for name in _COUNTS:
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ConfigError(f"{name} is a whole number of at least 1, not {value!r}")
        if self.advertise is not None:
            _check_address(self.advertise)
        elif self.peer_ca is not None:
            raise ConfigError("peer_ca is for asking other gateways: it needs advertise, which is this one's address")

    @property
    def names(self) -> tuple[str, ...]:
        """The names by which clients and other gateways may address it, without ports."""
        if self.advertise is None:
            return self.host_names
        host = urlsplit(self.advertise).hostname or ""
        return (*self.host_names, f"[{host}]" if ":" in host else host)


def _check_address(advertise: str) -> None:
    try:
        found = urlsplit(advertise)
        right = found.scheme in ("http", "https") and bool(found.hostname) and found.port != 0
        right = right and advertise == f"{found.scheme}://{found.netloc}" and "@" not in found.netloc
    except ValueError:
        right = False
    if not right:
        raise ConfigError(f"advertise is an address such as https://10.0.0.7:7420, not {shown(advertise)}")


_COUNTS = [it.name for it in fields(Options) if it.name.startswith("max_") and it.name != "max_lag"]


def options_of(given: dict[str, object]) -> Options:
    """Check the options that a caller has passed.

    Raises:
        ConfigError: There is no such option, or a value cannot work.
    """
    valid = [it.name for it in fields(Options)]
    known({name: value for name, value in given.items() if name not in valid}, "serve.app", valid, {})
    return Options(**given)  # type: ignore[arg-type]  # the values are checked by Options itself
