"""How a lease that was handed over is adopted. A plan, shared by both faces.

Knows a lock's terms and tries. Must not know threads, tasks or nodes.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from ..engine.plans import Call, Do, Pause, Plan
from ..errors import LockLost
from ..protocol.adoption import Adopted, Handover, read_ticket
from .lock import Lock
from .shards import Shards
from .terms import LockTerms, terms

# Tries of one call. Of several that adopt at the same moment, each may get some of the nodes.
TURNS = 5
# Seconds of the first pause after such a try, at most.
PAUSE = 0.01


def adopting(shards: Shards, ticket: str, **options: Any) -> tuple[LockTerms, Handover]:
    """Check a ticket and the options of its adoption. They are some of those of a lock.

    Returns:
        The lock whose acquisition adopts the lease, and what the ticket tells.
    """
    given = read_ticket(ticket)
    settings = shards.all[0].settings
    recipe = partial(Adopted, given, prefix=settings.prefix, horizon=settings.horizon)
    return terms(settings, lambda ttl: (recipe(ttl=ttl),), wait=0.0, **options), given


def adopt(lock: Lock[Any], given: Handover) -> Plan[Any]:
    """Adopt a lease, and return the new one.

    Raises:
        LockLost: It was adopted before, or its time is over.
        NoQuorum: Too few nodes answered.
    """
    for turn in range(TURNS):
        lease = yield Call(lock.try_acquire)
        if lease is not None:
            return lease
        # Others see another fraction of a millisecond, so that they do not try again together.
        now = yield Do(lambda it: it.clock())
        yield Pause(PAUSE * 2**turn * (0.1 + 0.9 * (now * 1e3 % 1)))
    raise LockLost(given.name, "ticket", given.fence)
