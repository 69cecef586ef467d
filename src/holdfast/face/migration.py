"""Where a name is locked that moves from one shard to another.

Shared by both faces.

Knows the servers of shards. Must not know leases, or how threads and tasks wait.

While a list of shards changes, some clients know the old list, some know the new one, and some know
both. The latter lock a name that moves on a joint shard, which needs a majority of its old shard
and of its new one. So they exclude all other clients, and all others exclude them. A client that
knows only the old list and one that knows only the new list must never run at the same time. The
user has to see to that.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..engine.plans import TICK, Do, Meet, Pause, Plan
from ..engine.settings import Settings
from ..errors import ConfigError, NoQuorum
from ..protocol import quorum
from ..protocol.timing import Timing
from .shards import Shards


def place(shards: Shards, joint: int, label: str, timing: Timing) -> Plan[tuple[int, Timing]]:
    """Find the shard on which to lock names that move.

    Two lists may name the same servers by different addresses. Then the new shard is enough.

    Args:
        shards: The shards of the client.
        joint: The number of the joint shard of the names.
        label: What errors call the lock.
        timing: What the caller demands of the lease.

    Returns:
        The number of the shard, and the timing with what is left of the wait.

    Raises:
        ConfigError: Only some servers of two shards are the same ones.
        NoQuorum: A majority of a shard cannot be reached.
    """
    home, *former = shards.parts[joint - len(shards.all)]
    began: float = yield Do(lambda it: it.clock())
    runs = yield from _servers(shards, (home, *former), label, timing, began)
    ours = shards.all[home].settings
    former = [it for it in former if not same_servers(runs[it], runs[home], shards.all[it].settings, ours)]
    now: float = yield Do(lambda it: it.clock())
    left = None if timing.wait is None else max(0.0, timing.wait - (now - began))
    return shards.together(home, former), timing._replace(wait=left)


def _servers(
    shards: Shards, which: Sequence[int], label: str, timing: Timing, began: float
) -> Plan[dict[int, frozenset[str]]]:
    """Wait until the nodes of each of these shards have said which servers they are, by run id.

    That is as long as `wait` and an outage allow. A try waits for a third of the ttl.

    A connection may break just when a shard has been met. What is left must not be taken for its
    servers, so the shards are then met again while there is time.
    """
    outage = shards.all[which[0]].settings.outage
    within = outage if timing.wait is None else min(max(timing.wait, timing.ttl / 3), outage)
    while True:
        runs: dict[int, frozenset[str]] = {}
        for at in which:
            runs[at] = yield from met(at, within, label)
        known = all(len(it) >= quorum.majority(len(shards.all[at].settings.addresses)) for at, it in runs.items())
        now: float = yield Do(lambda it: it.clock())
        # A caller whose wait was ended by another thread is told so when it acquires.
        if known or now >= began + within or not (yield Pause(TICK)):
            return runs


def met(at: int, within: float, label: str) -> Plan[frozenset[str]]:
    """Learn which servers the nodes of a shard are.

    Args:
        at: The number of the shard.
        within: Seconds to wait for a majority.
        label: What it is asked for, as an error shows it.

    Returns:
        The run ids of the servers.

    Raises:
        NoQuorum: A majority did not tell in time.
    """
    try:
        runs: frozenset[str] = yield Meet(at, within)
    except NoQuorum as error:
        raise NoQuorum(label, error.waited, error.causes, error.needed) from error
    return runs


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
