"""The options of a lock, checked when it is described, before anything is sent.

Knows options. Must not know who will use them, or how.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from math import inf
from typing import Any, NamedTuple, TypedDict

from .. import checks
from ..checks import Seconds
from ..drivers.cancel import Cancel
from ..engine.settings import SHORTEST, Settings, lease_of
from ..errors import ConfigError
from ..protocol.command import Recipe
from ..protocol.exclusive import Exclusive
from ..protocol.readwrite import ReadWrite
from ..protocol.semaphore import Slots
from ..protocol.timing import Timing

LONGEST = 86400.0  # seconds: a name that stays taken by mistake is free the next day
LONGEST_WAIT = 10.0**9  # seconds: what every clock and lock of the system can count


class Bound:
    """A client, or what a client has described: it belongs to its process."""

    __slots__ = ()

    def __reduce__(self) -> Any:
        name = getattr(self, "name", None) or getattr(self, "key", None)
        call = "Holdfast(...)" if name is None else f"locks.{type(self).__name__.lower()}({name!r}, ...)"
        raise TypeError(f"{call} cannot be pickled or copied: make it where it is needed, in each process")


class Description(Bound):
    """What a client has described, and what is no lock.

    Args:
        terms: Its options, checked.
        drivers: Those of its shards. With asyncio, functions that return those of the running loop.
    """

    __slots__ = ("_drivers", "_terms")

    def __init__(self, terms: Any, drivers: Sequence[Any]) -> None:
        self._terms, self._drivers = terms, drivers


class ElectionOptions(TypedDict, total=False):
    """The options of `election`, for type checkers. Everything that is held has them.

    Attributes:
        ttl: Seconds until another client takes over from a process that died.
        wait: Seconds to wait; None waits for ever, 0 tries once.
        max_hold: Seconds after which a lease is not renewed any more.
        on_lost: A function to call with the lease when the lease is lost.
        renew: Whether to renew the lease while it is held.
    """

    ttl: Seconds | None
    wait: Seconds | None
    max_hold: Seconds | None
    on_lost: Callable[[Any], object] | None
    renew: bool


class Options(ElectionOptions, total=False):
    """The options that `lock` and `locked` have in common, for type checkers.

    Use it for functions of your own: `def mine(**options: Unpack[Options])`.

    Attributes:
        reentrant: Whether the thread or task that holds the lock may enter it again.
        fail_open: Whether to go on without the lock when no majority answers.
        note: What the holder says of itself.
        at_least: Seconds for which the name stays taken, however soon it is released.
    """

    reentrant: bool
    fail_open: bool
    note: str | None
    at_least: Seconds | None


class LockTerms(NamedTuple):
    """A lock's options, checked. All but the timing are for the client alone.

    Attributes:
        recipes: What is acquired: one recipe for each name, or the slots of a semaphore.
        timing: How long the lease lasts, and how long to wait for it. The claim gets it as it is.
        reentrant: Whether the thread or task that holds the lock may enter it again.
        fail_open: Whether to go on without the lock when no majority answers.
        on_lost: A function to call with the lease when the lease is lost.
        cancel: An event that ends the wait of a thread that enters the lock by `with`.
    """

    recipes: tuple[Recipe, ...] | Slots
    timing: Timing
    reentrant: bool = False
    fail_open: bool = False
    on_lost: Callable[[Any], object] | None = None
    cancel: Cancel | None = None

    @property
    def kind(self) -> bytes:
        """Of a read-write lock: READER or WRITER."""
        return self.recipes[0].kind

    @property
    def primitive(self) -> str:
        """What observers call it, such as "exclusive" or "permit"."""
        return "permit" if isinstance(self.recipes, Slots) else self.recipes[0].primitive

    @property
    def names(self) -> tuple[str, ...]:
        """The names, as the user wrote them."""
        return (self.recipes.label,) if isinstance(self.recipes, Slots) else tuple(it.label for it in self.recipes)

    @property
    def alone(self) -> tuple[str, ...]:
        """The names that the holder cannot acquire a second time without waiting for itself."""
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
    note: str | None = None,
    at_least: Seconds | None = None,
) -> LockTerms:
    """Check the options of something that is held.

    Args:
        settings: The client's.
        what: Makes the recipes for leases of a length, in seconds.
        ttl: See `ElectionOptions`, and so for the others. Default: the client's.

    Returns:
        The checked options.

    Raises:
        ConfigError: An option cannot work. The message says what to write instead.
    """
    lease = settings.ttl if ttl is None else lease_of(ttl, settings.max_ttl)
    checks.flags(renew=renew, reentrant=reentrant, fail_open=fail_open)
    if on_lost is not None and not callable(on_lost):
        raise ConfigError(f"on_lost is a function of one argument, the lease; not {checks.shown(on_lost)}")
    recipes = what(lease) if note is None else noted(what(lease), note)
    return LockTerms(
        recipes=recipes if at_least is None else _lasting(recipes),
        timing=Timing(
            ttl=lease,
            wait=waiting(wait),
            renew=renew,
            max_hold=inf if max_hold is None else holding(max_hold),
            at_least=0.0 if at_least is None else checks.seconds(at_least, "at_least", most=LONGEST, waits=True),
        ),
        reentrant=reentrant,
        fail_open=fail_open,
        on_lost=on_lost,
    )


def _lasting(recipes: tuple[Recipe, ...] | Slots) -> tuple[Recipe, ...]:
    """Return the same locks, which their holder may give back at a later time."""
    if not all(isinstance(it, Exclusive) for it in recipes):
        raise ConfigError("at_least is for exclusive locks, and this is a read-write lock")
    return tuple(it.lasting() for it in recipes if isinstance(it, Exclusive))


def noted(recipes: tuple[Recipe, ...] | Slots, note: str | None) -> tuple[Recipe, ...] | Slots:
    """Have the holder of these say the note along with its lease, if there is one.

    Args:
        recipes: The locks, or the slots of a semaphore.
        note: A text of at most 1 KiB; None or an empty one: no note.

    Returns:
        The locks, or the slots. The same ones if there is no note.

    Raises:
        ConfigError: The note is no such text, or these are held by many at once.
    """
    if note is None:
        return recipes
    # Loaded by the first caller who has a note.
    from ..protocol.note import text_of, with_note

    text = text_of(note)
    return with_note(recipes, text) if text else recipes


def allow(options: Mapping[str, object], what: str, known: type) -> None:
    """Refuse options that do not exist.

    Args:
        options: What a caller has passed.
        what: What takes them, such as "lock".
        known: The TypedDict of the options that exist.

    Raises:
        ConfigError: There is an unknown option. The message names the option to use instead, or
            lists the valid ones.
    """
    valid = known.__annotations__
    if not options.keys() <= valid.keys():
        meant = _MEANT | _EXPIRY.get(what, {})
        checks.known({name: options[name] for name in options if name not in valid}, what, valid, meant)


# What other libraries call a lock's options.
_TTL, _WAIT = "ttl (how long a crashed holder blocks others)", "wait (how long to wait for the lock)"
_MEANT = {
    "timeout": f"{_TTL} or {_WAIT}",
    **dict.fromkeys(("expire", "expiration", "lock_timeout", "auto_release_time", "lease_time", "px", "ex"), _TTL),
    **dict.fromkeys(("blocking_timeout", "acquire_timeout", "wait_timeout", "max_wait"), _WAIT),
    "blocking": "wait=0 (try once) or wait=None (wait for ever)",
    **dict.fromkeys(("auto_renewal", "auto_extend", "renewal"), "renew (keep the lease alive while it is held)"),
    **dict.fromkeys(
        ("retry_times", "retry_count", "retries", "max_retries", "retry_delay", "sleep"), f"{_WAIT}: waiters queue"
    ),
    "num_extensions": "max_hold (the longest time that the lock is held, in seconds)",
    "rlock": "reentrant",
}
# What these names mean to others than locks. `once` has a lock, too, so its timeout may be that
# one's.
_NAMES = ("expire", "expiration", "px", "ex")
_EXPIRY = {
    "fill": dict.fromkeys((*_NAMES, "timeout"), "ttl, the second argument (how long a value is fresh)"),
    "rate": dict.fromkeys((*_NAMES, "timeout"), "period (how long a limit counts)"),
    "once": dict.fromkeys(_NAMES, "keep (how long a result is known)"),
}


def locks(settings: Settings, names: tuple[str, ...], ttl: float) -> tuple[Exclusive, ...]:
    """Return one lock for each name."""
    if not names:
        raise ConfigError("a lock needs a name", "bad_name")
    given_names: tuple[object, ...] = names
    for it in given_names:
        if isinstance(it, int | float | timedelta) and not isinstance(it, bool):
            given = checks.shown(it)
            raise ConfigError(
                f"a lock's name is text, not {given}. Did you mean an option, such as ttl={given} or wait={given}?"
            )
    prefix, horizon = settings.prefix, settings.horizon
    recipes = tuple([Exclusive(it, prefix=prefix, ttl=ttl, horizon=horizon) for it in names])
    if len(names) > 1 and (twice := sorted({it for it in names if names.count(it) > 1})):
        told = ", ".join(map(checks.shown, twice))
        raise ConfigError(f"{told} is named twice in one lock: once is enough", "bad_name")
    return recipes


def side(settings: Settings, name: str, kind: bytes, ttl: float) -> tuple[Recipe, ...]:
    """Return one side of a read-write lock: that of readers, or that of writers.

    The bytes of their scripts are the same for all lengths of leases.
    """
    return (ReadWrite(name, kind, prefix=settings.prefix, horizon=settings.horizon),)


def holding(max_hold: Seconds) -> float:
    """Return how long a lease may be held, in seconds."""
    return checks.seconds(max_hold, "max_hold", least=SHORTEST, waits=True)


def waiting(wait: Seconds | None) -> float | None:
    """Return how long to wait for a lock, in seconds. None: for ever."""
    return None if wait is None else checks.seconds(wait, "wait", most=LONGEST_WAIT, waits=True)
