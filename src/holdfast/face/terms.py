"""What a lock was asked to be: its options, checked when it is described, before anything is sent.

Knows options. Must not know who will use them, or how.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple

from .. import checks
from ..checks import Seconds
from ..core.command import Recipe
from ..engine.settings import SHORTEST, Settings, lease_of
from ..errors import ConfigError
from ..recipes.exclusive import Exclusive
from ..recipes.readwrite import ReadWrite
from ..recipes.semaphore import Slots

if TYPE_CHECKING:
    from ..drivers.threads import Cancel

LONGEST_WAIT = 10.0**9  # seconds: what every clock and lock of the system can count


class Terms(NamedTuple):
    """A lock's options. Times in seconds; `wait` None: for ever, 0: one try; `max_hold` inf: no limit.

    `heed`: so many nodes that have news end the wait for it (Overtaken), 0: none do. For primitives that wait for what the holder makes.
    `cancel`: ends the wait of a thread that enters the lock by `with`.
    """

    recipes: tuple[Recipe, ...] | Slots
    ttl: float
    wait: float | None
    renew: bool
    max_hold: float
    reentrant: bool
    fail_open: bool
    on_lost: Callable[[Any], object] | None
    heed: int = 0
    cancel: Cancel | None = None

    @property
    def kind(self) -> bytes:
        """Of a read-write lock: READER or WRITER."""
        return self.recipes[0].kind

    @property
    def names(self) -> tuple[str, ...]:
        """The names, as the user wrote them."""
        return (self.recipes.label,) if isinstance(self.recipes, Slots) else tuple(it.label for it in self.recipes)

    @property
    def alone(self) -> tuple[str, ...]:
        """What whoever is inside cannot have a second time without waiting for himself."""
        return () if isinstance(self.recipes, Slots) else tuple(it.part for it in self.recipes)

    @property
    def name(self) -> str:
        """All names in one."""
        return ",".join(self.names)


def terms(
    settings: Settings,
    what: Callable[[float], tuple[Recipe, ...] | Slots],
    *,
    ttl: Seconds | None = None,
    wait: Seconds | None = None,
    renew: bool = True,
    max_hold: Seconds | None = None,
    reentrant: bool = False,
    fail_open: bool = False,
    on_lost: Callable[[Any], object] | None = None,
    **unknown: Any,
) -> Terms:
    """Check a lock's options.

    Args:
        what: Makes the recipes for leases of a length, in seconds.
        unknown: Options that do not exist.

    Raises:
        ConfigError: An option cannot work, or does not exist. The message says what to write instead.
    """
    checks.known(unknown, "lock", OPTIONS, _MEANT)
    lease = settings.ttl if ttl is None else lease_of(ttl, settings.max_ttl)
    if on_lost is not None and not callable(on_lost):
        raise ConfigError(f"on_lost is a function of one argument, the lease; not {checks.shown(on_lost)}")
    return Terms(
        recipes=what(lease),
        ttl=lease,
        wait=waiting(wait),
        renew=checks.flag(renew, "renew"),
        max_hold=inf if max_hold is None else checks.seconds(max_hold, "max_hold", least=SHORTEST),
        reentrant=checks.flag(reentrant, "reentrant"),
        fail_open=checks.flag(fail_open, "fail_open"),
        on_lost=on_lost,
    )


# A lock's options, and what other libraries call them.
OPTIONS = ("ttl", "wait", "renew", "max_hold", "reentrant", "fail_open", "on_lost")
_TTL, _WAIT = "ttl (how long a crashed holder blocks others)", "wait (how long to wait for the lock)"
_MEANT = {
    "timeout": f"{_TTL} or {_WAIT}",
    **dict.fromkeys(("expire", "expiration", "lock_timeout", "auto_release_time", "lease_time", "px", "ex"), _TTL),
    **dict.fromkeys(("blocking_timeout", "acquire_timeout", "wait_timeout", "max_wait"), _WAIT),
    "blocking": "wait=0 (try once) or wait=None (wait for ever)",
    **dict.fromkeys(("auto_renewal", "auto_extend", "renewal"), "renew (keep the lease alive while it is held)"),
    **dict.fromkeys(("retry_times", "retry_count", "retries", "max_retries", "retry_delay", "sleep"), f"{_WAIT}: waiters queue"),
    "num_extensions": "max_hold (the longest time that the lock is held, in seconds)",
    "rlock": "reentrant",
}


def locks(settings: Settings, names: tuple[str, ...], ttl: float) -> tuple[Exclusive, ...]:
    """One lock for each name."""
    if not names:
        raise ConfigError("a lock needs a name")
    given_names: tuple[object, ...] = names
    for it in given_names:
        if isinstance(it, int | float | timedelta) and not isinstance(it, bool):
            given = checks.shown(it)
            raise ConfigError(f"a lock's name is text, not {given}. Did you mean an option, such as ttl={given} or wait={given}?")
    prefix, horizon = settings.prefix, settings.horizon
    recipes = tuple([Exclusive(it, prefix=prefix, ttl=ttl, horizon=horizon) for it in names])
    if len(names) > 1 and (twice := sorted({it for it in names if names.count(it) > 1})):
        raise ConfigError(f"{', '.join(map(checks.shown, twice))} is named twice in one lock: once is enough")
    return recipes


def side(settings: Settings, name: str, kind: bytes, ttl: float) -> tuple[Recipe, ...]:
    """One side of a read-write lock: of readers, or of writers. (Their scripts' bytes are the same for all lengths.)"""
    return (ReadWrite(name, kind, prefix=settings.prefix, horizon=settings.horizon),)


def waiting(wait: Seconds | None) -> float | None:
    """How long to wait for a lock."""
    return None if wait is None else checks.seconds(wait, "wait", most=LONGEST_WAIT)
