"""A lock on names that move from one set of nodes to another: held on both at once, and one lease to its user. Shared by both faces.

Knows leases, and the order in which their parts are taken. Must not know threads, tasks or nodes: what waits is handed to the face.

While a list of sets changes there are clients that know the old list, clients that know the new one, and those that know both. The latter
take a name that moves on its old set first and then on its new one, and hold it while they hold both; so they keep out, and are kept out
by, everybody. (Who knows only the old list and who knows only the new one must never meet: the user sees to that.)

Nobody waits in a ring: all clients take what they need of old sets first, in the order of the sets' names, then all that they need of the
one new set, and on each set all names at once (a goal, which waits for nobody but holders).

Fences grow: the lease's fence is the largest that any set has granted, and before anybody gets the lease, a majority of every set has been
raised to it. Whoever is next, on whichever set, meets one of those nodes, and gets a larger one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Protocol

from ..core import quorum
from ..core.claim import HELD, LOST, State
from ..core.goal import Several
from ..engine.crew import Want
from ..engine.settings import Settings
from ..errors import ConfigError


class Part(Protocol):
    """A lease on one of the sets, as far as this has to know it."""

    _move: Move | None
    _settings: Settings
    _clock: Callable[[], float]

    @property
    def _own(self) -> Want: ...

    def _servers(self) -> frozenset[str]: ...

    def _meet(self, wait: float | None) -> Any: ...

    def _obtain(self, wait: float | None) -> Any: ...

    def _raise(self, fence: int) -> Any: ...

    def _let_all_go(self) -> None: ...


class Whole(Several[Want]):
    """The claims of all sets, as if they were one: what a lease reads. The last one is that of the new set.

    `fence`: what a majority of every set has reached; `fallen`: is it over because a part is, whatever the others say?
    """

    __slots__ = ("claims", "fallen", "fence")

    def __init__(self, wants: Sequence[Want], fence: int) -> None:
        super().__init__(wants)
        self.claims, self.fence, self.fallen = wants[-1].claims, fence, False

    @property
    def state(self) -> State:
        """Lost as soon as one is."""
        return LOST if self.fallen else super().state


class Move:
    """What a lease of names that move stands on, besides its own claim. `sources`: the leases on the old sets, in order."""

    __slots__ = ("_untold", "sources", "whole")

    def __init__(self, sources: Sequence[Any]) -> None:
        self.sources = tuple(sources)
        self.whole: Whole | None = None  # once all of it is held
        self._untold: list[None] = []  # whoever takes what is in it tells the user of the end; empty before there is one to be told

    def given(self) -> None:
        """From here on a user has the lease, and is to be told of its end."""
        self._untold.append(None)

    def falls(self) -> bool:
        """A part of it is lost. True for the first one, if there is a user to be told. (Several keepers may find out at once.)"""
        try:
            self._untold.pop()
        except IndexError:
            return False
        if self.whole is not None:
            self.whole.fallen = True
        return True


def steps(lease: Part, sources: Sequence[Part], wait: float | None, **options: Any) -> Iterator[Callable[[], Any]]:
    """How such a lease is acquired: what to call, one after the other; where that has to be awaited, it is. `options`: the face's own.

    Whoever is stopped on the way lets all parts go.
    """
    clock = lease._clock
    began = clock()
    for part in (*sources, lease):
        yield partial(part._meet, wait, **options)
    # Two lists may name the same servers by different addresses. Held on both, the name would wait for its own client for ever.
    sources = [it for it in sources if not same_servers(it._servers(), lease._servers(), it._settings, lease._settings)]
    if not sources:
        yield partial(lease._obtain, None if wait is None else max(0.0, wait - (clock() - began)), **options)
        return
    parts = (*sources, lease)
    while True:
        move = lease._move = Move(sources)
        for part in parts:
            left = None if wait is None else max(0.0, wait - (clock() - began))  # (0: a last look)
            yield partial(part._obtain, left, **options)
        wants = [part._own for part in parts]
        fence = max(it.fence for want in wants for it in want.claims)
        for part, want in zip(parts, wants, strict=True):
            if any(it.fence < fence for it in want.claims):
                yield partial(part._raise, fence)
                if (setback := want.setback) is not None:
                    raise setback
        move.whole = Whole(wants, fence)
        move.given()
        if _agreed(move.whole, wants, parts) or not move.falls():  # (it fell just now: the user has heard of it)
            return
        lease._let_all_go()  # lost before anybody had it: once more


def same_servers(theirs: frozenset[str], ours: frozenset[str], former: Settings, settings: Settings) -> bool:
    """Are the nodes of the former set the servers of the new one?

    Args:
        theirs: The servers of the former set that have said which they are, by run_id.
        ours: The same of the new set.
        former: The former set.
        settings: The new set.

    Raises:
        ConfigError: Only some of them are.
    """
    common, size = theirs & ours, len(settings.addresses)
    if not common:
        return False
    alike = size == len(former.addresses) and len(theirs | ours) <= size
    if alike and len(common) >= quorum.majority(size):
        return True
    raise ConfigError(
        f"the set {settings.shard!r} and the former set {former.shard!r} have {len(common)} servers in common, and must have "
        f"all or none: {size} and {len(former.addresses)} are named, {len(ours)} and {len(theirs)} have answered, and "
        f"{len(theirs | ours)} different ones (by run_id). Give the new set servers of its own, or the very same ones; if a node is "
        "down, start it"
    )


def _agreed(whole: Whole, wants: Sequence[Want], parts: Sequence[Part]) -> bool:
    """Is all of it held, and has a majority of every set the fence?"""
    now = parts[-1]._clock()
    if whole.state is not HELD or now >= whole.until:
        return False
    needed = [quorum.majority(len(part._settings.addresses)) for part in parts]
    return all(want.counting(now, whole.fence) >= least for want, least in zip(wants, needed, strict=True))
