"""What `doctor` finds, and how it asks.

Knows the shape of a finding, and rounds of questions to the nodes. Must not know what is looked at.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ..kit import Ask, Plan, Query, pack

if TYPE_CHECKING:
    from .. import Holdfast, NodeStatus

OK, WARNING, UNSAFE = "ok", "warning", "unsafe"
_PRIMARY = "-h PRIMARY -p PORT"


class Check(NamedTuple):
    """One line of the report.

    Attributes:
        node: The node's address, or "all".
        check: What was looked at.
        level: "ok", "warning" or "unsafe".
        found: What was found.
        fix: A command line to paste into a shell, and after a "#" what else there is to say. Empty
            if it is ok.
        doc: The page that explains it.
    """

    node: str
    check: str
    level: str
    found: str
    fix: str = ""
    doc: str = ""


def named(nodes: Iterable[str]) -> str:
    """The command line that names these nodes, for a shell."""
    # A label has neither password nor options.
    kept = "for every client, with the passwords and options that its addresses have now"
    return f"export HOLDFAST_NODES={shlex.quote(' '.join(nodes))}  # {kept}"


def ask(locks: Holdfast, shard: int, size: int, *command: bytes) -> Query:
    """Send a command to all nodes of a shard, and wait for the answers."""
    return asked(locks, shard, dict.fromkeys(range(size), command))


def asked(locks: Holdfast, shard: int, commands: dict[int, tuple[bytes, ...]]) -> Query:
    """Send a command to each of some nodes of a shard, and wait for the answers."""
    return sent(locks, shard, {at: pack(*it) for at, it in commands.items()})


def sent(locks: Holdfast, shard: int, commands: dict[int, bytes]) -> Query:
    """Send these bytes to each of some nodes of a shard, and wait for the answers."""

    def plan() -> Plan[Query]:
        found: Query = yield Ask(commands, shard=shard)
        return found

    return locks._look(plan())


def by_shard(nodes: Sequence[NodeStatus]) -> list[tuple[int, list[NodeStatus]]]:
    """The nodes of each shard, with its number."""
    names = list(dict.fromkeys(it.shard for it in nodes))
    return [(at, [it for it in nodes if it.shard == name]) for at, name in enumerate(names)]


def facts_of(answer: object) -> dict[str, str]:
    """An answer to INFO as names and values."""
    return dict(line.split(":", 1) for line in text_of(answer).splitlines() if ":" in line)


def text_of(value: Any) -> str:
    """An answer as text."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else "" if value is None else str(value)


def cli_of(node: str) -> str:
    """The beginning of a command line that asks a node, for people to type."""
    scheme, _, rest = node.partition("://")
    if scheme.endswith("+sentinel"):
        # redis-cli knows no such address. `placed` fills in what the Sentinels say.
        return f"redis-cli {'--tls ' if scheme.startswith(('rediss', 'valkeys')) else ''}{_PRIMARY}"
    return f"redis-cli -s /{rest.lstrip('/')}" if scheme == "unix" else f"redis-cli -u {node}"


def placed(check: Check, primaries: Mapping[str, tuple[str, int]]) -> Check:
    """The finding with the place of its node's primary, for a node that Sentinels look after."""
    if check.node not in primaries:
        return check
    host, port = primaries[check.node]
    return check._replace(fix=check.fix.replace(_PRIMARY, f"-h {host} -p {port}"))
