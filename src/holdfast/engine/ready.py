"""What a driver has to do after it has told the engine what happened: one value a turn.

Knows claims, queries and events. Must not know who waits for them, or how bytes are sent.
"""

from collections.abc import Sequence
from math import inf
from typing import NamedTuple

from ..events import Event
from ..protocol.claim import Claim
from ..protocol.joint import JointRequest
from ..protocol.query import Query

# What a lease stands on: a claim, or the claims of several names.
Want = Claim | JointRequest


class Ready(NamedTuple):
    """Everything that a driver has to do now.

    `Engine.ready` states the order, and the reasons for it.

    The engine forgets what it has handed over here. Nobody is told twice, and what a driver leaves
    undone is never done.

    Attributes:
        hangups: Nodes whose connections to close, each with a reset.
        dials: Nodes to connect to.
        places: Nodes that are connected, of which it is to be asked where they are.
        speaks: Connections have something new to send.
        settled: Claims and joint requests with news for the caller that waits for them.
        queries: Queries that are over.
        changed: Something else happened: a node's standing changed, a watch has news, or the client
            has ended.
        events: What observers and the log are told, in this order.
        wake: When to call `Engine.tick` at the latest, on the clock that the engine is given.
        idle: The driver may sleep until then.
    """

    hangups: Sequence[int] = ()
    dials: Sequence[int] = ()
    places: Sequence[int] = ()
    speaks: bool = False
    settled: Sequence[Want] = ()
    queries: Sequence[Query] = ()
    changed: bool = False
    events: Sequence[Event] = ()
    wake: float = inf
    idle: bool = True
