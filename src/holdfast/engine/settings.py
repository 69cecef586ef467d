"""What a client is told once, checked: its nodes and the constants of the protocol.

Knows limits and defaults. Must not know the environment or where a value came from.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterable
from datetime import timedelta
from math import inf
from typing import Any, NamedTuple

from .. import checks
from ..errors import ConfigError
from ..wire import address
from ..wire.address import Address

SLACK = 2.0  # seconds that the guard is longer than the longest lease: restarts, rounding, drift
SHORTEST = 0.05  # seconds: the shortest lease
NO_NODES = "no nodes: name them, Holdfast('redis://host:6379', ...), or set HOLDFAST_NODES"


class Default(enum.Enum):
    """An argument that was not given: the environment may set it, else it is the value that the signature shows."""

    TTL = "10.0"
    MAX_TTL = "30.0"
    PREFIX = "''"
    GUARD = "max_ttl + 2"

    def __repr__(self) -> str:
        return self.value


# Typed as Any: the signatures that users see speak of seconds, text and None.
DEFAULT_TTL: Any = Default.TTL
DEFAULT_MAX_TTL: Any = Default.MAX_TTL
DEFAULT_PREFIX: Any = Default.PREFIX
DEFAULT_GUARD: Any = Default.GUARD


class Settings(NamedTuple):
    """A client's settings. All times in seconds; the same `max_ttl` and nodes are everybody's who uses these nodes.

    `guard`: how long a restarted node is left alone (None: not at all); `outage`: how long a majority may be away before
    waiting ends; `fresh`: run_ids that need no guard; `shard`: what this set of nodes is called, where there are several; `spreads`:
    the ways of spreading names over sets that this client keeps to, a digest of each, the current one first; `leaving`: is this set only
    in the former list? `debug`: leases remember the line that acquired
    them. `long_hold`: after how long a lease that is still held is worth a warning.
    """

    # Empty only if the client was not told of any node: its locks can be described, and using one raises ConfigError.
    addresses: tuple[Address, ...]
    ttl: float
    max_ttl: float
    node_timeout: float
    guard: float | None
    outage: float
    owner: str
    prefix: str
    fresh: frozenset[str]
    shard: str = ""
    spreads: tuple[str, ...] = ()
    debug: bool = False
    leaving: bool = False
    long_hold: float = inf

    @property
    def nodeless(self) -> ConfigError:
        """What to raise where a client is used that was not told of any node."""
        return ConfigError(NO_NODES)

    @property
    def horizon(self) -> int:
        """K, the fence horizon, in milliseconds: half of G, which is the longest lease and some slack."""
        return int((self.max_ttl + SLACK) * 500)


def settings(
    nodes: Iterable[str | Address],
    *,
    ttl: object,
    max_ttl: object,
    prefix: object,
    node_timeout: object,
    restart_guard: object,
    outage: object,
    owner: str,
    fresh: object,
    shard: str = "",
    spreads: tuple[str, ...] = (),
    unset: bool = False,
    debug: bool = False,
    leaving: bool = False,
    long_hold: object = None,
) -> Settings:
    """Check a client's settings.

    Args:
        nodes: Addresses.
        unset: Nobody has named nodes, as in a program whose `--help` must work without them. No nodes are then allowed here,
            and refused where the client is used.
        debug: Leases remember the line that acquired them.
        long_hold: After how long a lease that is still held is worth a warning. None: never.

    Raises:
        ConfigError: An option cannot work. The message names it and what to write instead.
    """
    addresses = tuple(map(address.parse, nodes))
    if not addresses and not unset:
        raise ConfigError(NO_NODES)
    twice = sorted({it.label for it in addresses if sum(it.place == other.place for other in addresses) > 1})
    if twice:
        raise ConfigError(
            f"{', '.join(twice)} is named twice: each node is a server of its own, or a majority means nothing. "
            "(Databases of one server are one node.)"
        )
    longest = checks.seconds(max_ttl, "max_ttl", least=SHORTEST, most=86400.0)
    lease = lease_of(ttl, longest)
    least = longest + SLACK
    patience = min(max(longest / 20, 0.05), 1.0) if node_timeout is None else checks.seconds(node_timeout, "node_timeout", least=0.001)
    guard = least if restart_guard is DEFAULT_GUARD else None if restart_guard is None else checks.seconds(restart_guard, "restart_guard")
    if guard is not None and guard < least:
        told = checks.number(guard)
        raise ConfigError(f"restart_guard is at least max_ttl + {SLACK:g} = {checks.number(least)} seconds (or None: no guard), not {told}")
    checks.text(prefix, "prefix", most=256)
    checks.text(owner, "owner", most=128)
    if "{" in str(prefix) or "}" in str(prefix):
        raise ConfigError(f"prefix {checks.shown(prefix)} has a brace in it: the server would take it for a hash tag")
    if not owner or not all("!" <= it <= "~" for it in owner):
        raise ConfigError(f"owner {checks.shown(owner)} is to be printable ASCII without spaces: servers show it in CLIENT LIST")
    given = list(fresh) if isinstance(fresh, Collection) and not isinstance(fresh, str | bytes | bytearray) else [fresh]
    run_ids = [it for it in given if isinstance(it, str)]
    if isinstance(fresh, str) or len(run_ids) != len(given):
        raise ConfigError(f"fresh is a collection of run_ids, which are texts, not {checks.shown(fresh)}")
    return Settings(
        addresses=addresses,
        ttl=lease,
        max_ttl=longest,
        node_timeout=patience,
        guard=guard,
        outage=lease if outage is None else checks.seconds(outage, "outage"),
        owner=owner,
        prefix=str(prefix),
        fresh=frozenset(run_ids),
        shard=shard,
        spreads=spreads,
        debug=debug,
        leaving=leaving,
        long_hold=inf if long_hold is None else checks.seconds(long_hold, "long_hold"),
    )


def lease_of(ttl: object, longest: float) -> float:
    """The length of a lease in seconds, in whole milliseconds as nodes count them."""
    value = checks.seconds(ttl, "ttl", least=SHORTEST)
    if value > longest:
        told, most = checks.number(value), checks.number(longest)
        if not isinstance(ttl, timedelta) and (hint := checks.milliseconds(value, "ttl")):
            raise ConfigError(f"ttl is {told} s, which is {length(value)}, and max_ttl {most} s{hint}")
        raise ConfigError(
            f"ttl is {told} s, and max_ttl {most} s: use a shorter ttl (leases are renewed while they are held), "
            f"or set max_ttl={told} for all clients of these nodes"
        )
    return int(value * 1000 + 1e-6) / 1000


def length(seconds: float) -> str:
    """A number of seconds, from 1,000 on, as people say it: such as "2.8 hours"."""
    for unit, size in (("days", 86400.0), ("hours", 3600.0)):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds / 60:.1f} minutes"
