"""The settings of a client, checked: its nodes and the constants of the protocol.

Knows limits and defaults. Must not know the environment or where a value came from.
"""

import enum
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any, NamedTuple

from .. import checks
from ..errors import ConfigError
from ..protocol.quorum import UNMARKED, Quorum
from ..wire import address
from ..wire.address import Address

# Seconds that the guard is longer than the longest lease: restarts, rounding, drift.
SLACK = 2.0
SHORTEST = 0.05  # seconds: the shortest lease
NO_NODES = (
    "no nodes: name them, Holdfast('redis://host:6379', ...), or set HOLDFAST_NODES. "
    "To try holdfast without servers: Holdfast.local()"
)


class Default(enum.Enum):
    """An argument that was not passed.

    The environment may set it. Otherwise it has the value that the signature shows.
    """

    TTL = "10.0"
    MAX_TTL = "30.0"
    PREFIX = "''"
    GUARD = "max_ttl + 2"
    GUARDIAN = "False"

    def __repr__(self) -> str:
        return self.value


# Typed as Any: the signatures that users see speak of seconds, text and None.
DEFAULT_TTL: Any = Default.TTL
DEFAULT_MAX_TTL: Any = Default.MAX_TTL
DEFAULT_PREFIX: Any = Default.PREFIX
DEFAULT_GUARD: Any = Default.GUARD
DEFAULT_GUARDIAN: Any = Default.GUARDIAN
_USUAL = 10.0  # seconds: the ttl, unless `max_ttl` is shorter


class Settings(NamedTuple):
    """A client's settings. All times are in seconds.

    All clients of the same nodes have the same `max_ttl` and the same nodes.

    Attributes:
        guard: How long a restarted node is ignored. None: not at all.
        short_guard: How long it is ignored if nobody can have used a long ttl. None: for `guard`.
        outage: How long a call waits for a majority that is down.
        shard: The name of this shard, if there are several.
        spreads: A digest of each way in which this client spreads names, the current one first.
        leaving: Whether this shard is only in the former list.
        lists: While some of the nodes are replaced: the numbers of the next nodes, and of the
            former ones. Both must have a majority.
        debug: Whether leases remember the line that acquired them.
        around: An object of the user's, for the calls of this client. The engine does not use it.
        guardian: Whether another process frees the locks of this one if it is killed.
    """

    # Empty only if the client was not told of any node: its locks can be described, and using one
    # raises ConfigError.
    addresses: tuple[Address, ...]
    ttl: float
    max_ttl: float
    node_timeout: float
    guard: float | None
    outage: float
    owner: str
    prefix: str
    shard: str = ""
    spreads: tuple[str, ...] = ()
    debug: bool = False
    leaving: bool = False
    around: Any = None
    guardian: bool = False
    lists: tuple[tuple[int, ...], ...] = ()
    short_guard: float | None = None

    @property
    def nodeless(self) -> ConfigError:
        """Return the error for a client that is used without nodes."""
        return ConfigError(NO_NODES)

    @property
    def quorum(self) -> Quorum:
        """Which of the nodes decide."""
        return Quorum(*(self.lists or (range(len(self.addresses)),)))

    def lists_of(self, node: int) -> tuple[int, ...]:
        """Return in which lists a node is: 0 is the next one, or the only one, 1 the former one."""
        return tuple(number for number, it in enumerate(self.lists) if node in it) or (0,)

    @property
    def horizon(self) -> int:
        """The fence horizon K in milliseconds: half of G, the longest lease and some slack."""
        return int((self.max_ttl + SLACK) * 500)

    @property
    def mark_lasts(self) -> float:
        """For how many seconds a mark lasts, which a client with a long ttl writes (rule G14).

        Its permission ends after half of `max_ttl`, and a lease that it asked for just before then
        ends one `max_ttl` later.
        """
        return 2 * (self.max_ttl + SLACK)


def _addresses(nodes: Iterable[str | Address], unset: bool) -> tuple[Address, ...]:
    addresses = tuple(map(address.parse, nodes))
    if not addresses and not unset:
        raise ConfigError(NO_NODES)
    distinct(addresses)
    return addresses


def distinct(addresses: Sequence[Address]) -> None:
    """Check that no node is named twice.

    Raises:
        ConfigError: One is.
    """
    twice = sorted({it.label for it in addresses if sum(it.place == other.place for other in addresses) > 1})
    if twice:
        raise ConfigError(
            f"{', '.join(twice)} is named twice: each node is a server of its own, or a majority means nothing. "
            "(Databases of one server are one node.)"
        )


def _guard(restart_guard: object, least: float) -> float | None:
    if restart_guard is DEFAULT_GUARD:
        return least
    if restart_guard is None:
        return None
    guard = checks.seconds(restart_guard, "restart_guard")
    if guard < least:
        raise ConfigError(
            f"restart_guard is at least max_ttl + {SLACK:g} = {checks.number(least)} seconds (or None: no guard), "
            f"not {checks.number(guard)}"
        )
    return guard


def _short_guard(restart_guard: object, longest: float) -> float | None:
    """Return the short guard, if it makes sense: where it is shorter than the whole one, and new
    fences do not get further ahead of the clocks by it than they may (rule F12).
    """
    short = UNMARKED + SLACK
    fits = longest > UNMARKED and (longest + SLACK) / 4 < short
    return short if fits and restart_guard is DEFAULT_GUARD else None


def _check_names(prefix: object, owner: str) -> None:
    checks.text(prefix, "prefix", most=256)
    checks.text(owner, "owner", most=128)
    if "{" in str(prefix) or "}" in str(prefix):
        raise ConfigError(f"prefix {checks.shown(prefix)} has a brace in it: the server would take it for a hash tag")
    if not owner or not all("!" <= it <= "~" for it in owner):
        raise ConfigError(
            f"owner {checks.shown(owner)} is to be printable ASCII without spaces: servers show it in CLIENT LIST"
        )


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
    unset: bool = False,
    around: Any = None,
    guardian: object = False,
    **rest: Any,
) -> Settings:
    """Check a client's settings. `Client` describes those that users know.

    Args:
        nodes: Addresses.
        unset: No nodes were named, as in a program whose `--help` must work without them. An empty
            list is then allowed here, and refused where the client is used.
        rest: Fields of Settings that no user names.

    Returns:
        The settings.

    Raises:
        ConfigError: An option cannot work. The message names it and what to write instead.
    """
    addresses = _addresses(nodes, unset)
    longest = checks.seconds(max_ttl, "max_ttl", least=SHORTEST, most=86400.0)
    lease = min(_USUAL, longest) if ttl is DEFAULT_TTL else lease_of(ttl, longest)
    patience = min(max(longest / 20, 0.05), 1.0)
    if node_timeout is not None:
        patience = checks.seconds(node_timeout, "node_timeout", least=0.001)
    guard = _guard(restart_guard, longest + SLACK)
    _check_names(prefix, owner)
    if around is not None and not callable(getattr(around, "begin", None)):
        raise ConfigError(f"around is an object with a method begin(kind, names), not {checks.shown(around)}")
    return Settings(
        addresses=addresses,
        ttl=lease,
        max_ttl=longest,
        node_timeout=patience,
        guard=guard,
        outage=lease if outage is None else checks.seconds(outage, "outage"),
        owner=owner,
        prefix=str(prefix),
        around=around,
        guardian=checks.flag(guardian, "guardian"),
        short_guard=_short_guard(restart_guard, longest),
        **rest,
    )


def lease_of(ttl: object, longest: float) -> float:
    """Return the length of a lease in seconds, in whole milliseconds as nodes count them."""
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
    """Return a number of seconds, at least 1,000, as text such as "2.8 hours"."""
    for unit, size in (("days", 86400.0), ("hours", 3600.0)):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds / 60:.1f} minutes"
