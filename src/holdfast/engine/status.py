"""What a client says of the state of a node, and of a majority of nodes.

Knows the words. Must not know connections, claims, or how any of it is found out.
"""

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from ..protocol import quorum
from .registry import Straggler

# What `NodeStatus.guarantee` says of a node.
SAFE = "safe"
EFFICIENT = "efficient, not safe"
UNPROVEN = "unproven"


class NodeStatus(NamedTuple):
    """The state of a node, as a client knows it.

    Attributes:
        node: Its address, without a password.
        state: "up"; "refusing" (it answers and refuses writes); "guarded"; "down"; "unfit" (down,
            and time alone does not mend it); or "connecting".
        cause: Why it is of no use, if it is not.
        version: Of its server, such as "valkey 9.1.2"; empty until it has told.
        run_id: Of its server; empty until it has told.
        ahead: Its clock less this client's, in seconds; None until it has told.
        shard: The name of its shard, if there are several.
        stragglers: The clients that use the node and do not know this client's list of shards.
            Those that reported last come first, at most 16 of each list that clients know. None if
            the node has not told, or does not allow it.
        repaired: Whether the node has everything back that a restart made it forget of `once`,
            `fill`, `rate`, `latch` and `barrier`, as far as `repair()` and `ready()` have found.
            None until one of them has looked.
        guard_left: Seconds until the restart guard ends at the latest, and the node is used; None:
            it is not guarded.
        since: Seconds for which it has been in this state.
        uptime: Seconds since its server started, as the server said when this client connected;
            None while there is no connection.
        rtt: The mean round trip in seconds, over about 32 of the last answers, of which at most
            one in each 10 ms counts. Answers that take a second or longer do not count. None before
            the first answer.
        answered: How many answers this client has had from it.
        owing: How many answers it owes now.
        warnings: The kinds of the warnings about it that this client has logged, in order, such as
            "eviction" or "clock".
        guarantee: "safe"; or "efficient, not safe" if a failover can give a lock of this node to a
            second client, because its server has replicas or was promoted, its address does not say
            `failover=`, and neither Sentinels nor `resolve=` say where it is; or "unproven" if its
            server is neither Redis nor Valkey. Other dangers are in `warnings`.
        differences: How the settings of clients that live differ from this client's: their
            `max_ttl`, their list of nodes, or the `failover` of a node. One text for each
            difference, which names clients.
        lists: In which lists of nodes it is, while a list is changed: 0 is the next one, 1 the
            former one.
    """

    node: str
    state: str
    cause: Exception | None
    version: str
    run_id: str
    ahead: float | None
    shard: str = ""
    stragglers: tuple[Straggler, ...] | None = None
    repaired: bool | None = None
    guard_left: float | None = None
    since: float = 0.0
    uptime: float | None = None
    rtt: float | None = None
    answered: int = 0
    owing: int = 0
    warnings: tuple[str, ...] = ()
    guarantee: str = SAFE
    differences: tuple[str, ...] = ()
    lists: tuple[int, ...] = (0,)


class Majority(NamedTuple):
    """How many nodes of a shard can be used.

    Attributes:
        spare: How many more may fail. Below 0 no lock can be acquired.
        up: How many can be used.
        needed: How many are needed.
        shard: The name of the shard.
        why: What is wrong, without addresses. Empty if a majority can be used.
    """

    spare: int
    up: int
    needed: int
    shard: str
    why: str


def majorities(nodes: Iterable[NodeStatus]) -> list[Majority]:
    """Return how many nodes can be used of each shard, in order. All that judge nodes ask this.

    While the nodes of a shard are replaced, these are the nodes of the list that is worse off.
    """
    shards: dict[str, dict[int, Counter[str]]] = {}
    for it in nodes:
        for one in it.lists:
            shards.setdefault(it.shard, {}).setdefault(one, Counter())[it.state] += 1
    return [min(_majority(shard, states) for states in lists.values()) for shard, lists in shards.items()]


def _majority(shard: str, states: Counter[str]) -> Majority:
    size, up = states.total(), states.pop("up", 0)
    needed = quorum.majority(size)
    others = ", ".join(f"{count} {state}" for state, count in states.items())
    why = f"{up} of {size} nodes are up, and {needed} are needed ({others})" if up < needed else ""
    return Majority(up - needed, up, needed, shard, why)
