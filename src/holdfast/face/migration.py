"""A lock on names that move from one shard to another, and is held on both.

Its user has one lease. Shared by both faces.

Knows leases, and the order in which their parts are taken. Must not know nodes, or how threads and
tasks wait: the face carries out the steps that wait.

While a list of shards changes, some clients know the old list, some know the new one, and some know
both. The latter take a name that moves on its old shard first and then on its new one. They hold it
while they hold both, so they exclude all other clients, and all others exclude them. A client that
knows only the old list and one that knows only the new list must never run at the same time. The
user has to see to that.

Clients cannot wait for each other in a ring. All clients take their names on old shards first, in
the order of the shards' names, and then on the one new shard. On each shard they take all names at
once, as a joint request, which waits only for holders.

Fences grow. The lease's fence is the largest that any shard has granted. Before the caller gets the
lease, a majority of every shard has been raised to it. The next holder, on any of these shards,
meets one of those nodes, and gets a larger fence.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Protocol

from ..engine.ready import Want
from ..engine.settings import Settings
from ..errors import ConfigError
from ..protocol import quorum
from ..protocol.claim import State
from ..protocol.joint import Several
from ..protocol.timing import Timing
from .terms import LockTerms


class Part(Protocol):
    """A lease on one of the shards, as far as this module has to know it."""

    _move: Move | None
    _terms: LockTerms
    _settings: Settings
    _clock: Callable[[], float]

    @property
    def _own(self) -> Want: ...

    def _servers(self) -> frozenset[str]: ...

    def _acquaintance(self, wait: float | None) -> float: ...

    def _meet(self, wait: float | None) -> Any: ...

    def _obtain(self, timing: Timing) -> Any: ...

    def _raise(self, fence: int) -> Any: ...

    def _let_all_go(self) -> None: ...


class Whole(Several[Want]):
    """The claims of all shards, as if they were one, for a lease to read.

    Attributes:
        claims: The claims on the new shard.
        fence: The fence that a majority of every shard has reached.
        fallen: Whether all of it is over, because one part is.
    """

    __slots__ = ("claims", "fallen", "fence")

    def __init__(self, wants: Sequence[Want], fence: int) -> None:
        super().__init__(wants)
        self.claims, self.fence, self.fallen = wants[-1].claims, fence, False

    @property
    def state(self) -> State:
        """The state of the parts together: lost as soon as one is."""
        return State.LOST if self.fallen else super().state


class Move:
    """The other parts of a lease of names that move, besides its own claim.

    `sources` are the leases on the old shards, in order.
    """

    __slots__ = ("_untold", "sources", "whole")

    def __init__(self, sources: Sequence[Any]) -> None:
        self.sources = tuple(sources)
        # Set once all parts are held.
        self.whole: Whole | None = None
        # The I/O thread that takes the entry tells the user of the end. Empty before a user has the
        # lease.
        self._untold: list[None] = []

    def given(self) -> None:
        """Note that a user has the lease from now on, and must hear of its end."""
        self._untold.append(None)

    def falls(self) -> bool:
        """Note that a part is lost. Several I/O threads may find out at once.

        Returns:
            True for the first call, if a user has to be told.
        """
        try:
            self._untold.pop()
        except IndexError:
            return False
        if self.whole is not None:
            self.whole.fallen = True
        return True


def steps(lease: Part, sources: Sequence[Part], wait: float | None, **options: Any) -> Iterator[Callable[[], Any]]:
    """Yield the calls that acquire such a lease, one after the other.

    A face may await their results. A caller that stops on the way must let all parts go. `options`
    are the face's own.
    """
    clock = lease._clock
    began = clock()
    yield from _meetings((*sources, lease), wait, options)
    # Two lists may name the same servers by different addresses. Held on both, the name would wait
    # for its own client for ever.
    sources = [it for it in sources if not same_servers(it._servers(), lease._servers(), it._settings, lease._settings)]
    if not sources:
        left = None if wait is None else max(0.0, wait - (clock() - began))
        yield partial(lease._obtain, lease._terms.timing._replace(wait=left), **options)
        return
    parts = (*sources, lease)
    while True:
        move = lease._move = Move(sources)
        for part in parts:
            # 0 means one last try.
            left = None if wait is None else max(0.0, wait - (clock() - began))
            yield partial(part._obtain, part._terms.timing._replace(wait=left), **options)
        wants = [part._own for part in parts]
        fence = max(it.fence for want in wants for it in want.claims)
        for part, want in zip(parts, wants, strict=True):
            if any(it.fence < fence for it in want.claims):
                yield partial(part._raise, fence)
                if (setback := want.setback) is not None:
                    raise setback
        move.whole = Whole(wants, fence)
        move.given()
        # If `falls` returns False here, it fell just now, and the user has heard of it.
        if _agreed(move.whole, wants, parts) or not move.falls():
            return
        # Lost before anybody had it: once more.
        lease._let_all_go()


def _meetings(parts: Sequence[Part], wait: float | None, options: dict[str, Any]) -> Iterator[Callable[[], Any]]:
    """Yield the calls that wait until each shard's nodes have said which servers they are.

    While one shard is waited for, connections to another may break. What is left of them must not
    be taken for its servers, so the shards are then met again while there is time. A caller that
    was cancelled is told so when it acquires.
    """
    clock, cancel = parts[-1]._clock, options.get("cancel")
    until = clock() + parts[-1]._acquaintance(wait)
    while True:
        for part in parts:
            yield partial(part._meet, wait, **options)
        if clock() >= until or (cancel is not None and cancel.is_set()):
            return
        if all(len(part._servers()) >= quorum.majority(len(part._settings.addresses)) for part in parts):
            return


def same_servers(theirs: frozenset[str], ours: frozenset[str], former: Settings, settings: Settings) -> bool:
    """Return whether the nodes of the former shard are the servers of the new one.

    Args:
        theirs: The run ids of the servers of the former shard that have answered.
        ours: The same of the new shard.
        former: The former shard.
        settings: The new shard.

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
        f"the shard {settings.shard!r} and the former shard {former.shard!r} have {len(common)} servers in common, "
        f"and must have all or none: {size} and {len(former.addresses)} are named, {len(ours)} and {len(theirs)} "
        f"have answered, and {len(theirs | ours)} different ones (by run_id). "
        "Give the new shard servers of its own, or the very same ones; if a node is down, start it"
    )


def _agreed(whole: Whole, wants: Sequence[Want], parts: Sequence[Part]) -> bool:
    """Return whether all parts are held, and a majority of every shard has the fence."""
    now = parts[-1]._clock()
    if whole.state is not State.HELD or now >= whole.until:
        return False
    needed = [quorum.majority(len(part._settings.addresses)) for part in parts]
    return all(want.counting(now, whole.fence) >= least for want, least in zip(wants, needed, strict=True))
