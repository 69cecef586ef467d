"""Which shard a name lives on. A shard is a set of nodes with a majority of its own.

Knows names, and how users list shards. Must not know what a shard's nodes are asked, or who asks.

The names are spread by rendezvous hashing. A shard has a weight for each name: a hash of the
shard's name and of the name. A name lives on the shard where its weight is largest. So a new shard
takes from the others only the names that it gets itself, and a removed shard leaves its names to
all others. The order of the shards has no effect. Where Redis finds a hash tag in a name, `{tag}`,
the tag alone decides: names with the same tag live together.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from .. import checks
from ..engine.registry import ALONE
from ..engine.settings import distinct
from ..errors import ConfigError
from ..node import Node, node_of
from ..protocol.exclusive import tag_of
from ..wire.address import masked

if TYPE_CHECKING:
    from hashlib import blake2b

LONGEST = 64  # bytes of a shard's name
# In an environment variable: the name of a shard, before its first address.
_CALLED = r"([\w.-]+)=(?=\w+(?:\+\w+)?://)"
# Between two addresses: white space, or a comma before a scheme. The Sentinels of one address have
# commas between them, too.
_BETWEEN = r"[\s,]*\s[\s,]*|,+(?=\w+(?:\+\w+)?://)|,+$|^,+"


class ShardNodes:
    """One shard: its name, its nodes, and the places of these.

    While some of its nodes are replaced, it has the next nodes and the former ones. `lists` has the
    numbers of both.
    """

    def __init__(self, name: str, nodes: tuple[Node, ...], lists: tuple[tuple[int, ...], ...] = ()) -> None:
        self.name, self.nodes, self.lists = name, nodes, lists
        self.places = frozenset(it.address.place for it in nodes)

    def joint(self, former: ShardNodes) -> ShardNodes:
        """Return this shard while its nodes replace these.

        Raises:
            ConfigError: The former nodes name one twice, which would change their majority.
        """
        distinct([it.address for it in former.nodes])
        nodes = (*self.nodes, *(it for it in former.nodes if it.address.place not in self.places))
        at = {it.address.place: number for number, it in enumerate(nodes)}
        lists = tuple(range(len(self.nodes))), tuple(at[it.address.place] for it in former.nodes)
        return ShardNodes(self.name, nodes, lists)


class Spread:
    """Where each name lives, for one version of the list of shards."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = tuple(names)
        # One shard needs none, and its programs need not load hashlib.
        self._hashes = _hashes(names) if len(self.names) > 1 else ()

    def of(self, name: str) -> int:
        """Return the number of the shard on which this name lives."""
        if len(self.names) == 1:
            return 0
        tag = tag_of(name)
        return max(range(len(self.names)), key=lambda it: (self._weight(it, tag), self.names[it]))

    def _weight(self, shard: int, tag: bytes) -> bytes:
        found = self._hashes[shard].copy()
        found.update(tag)
        return found.digest()

    @property
    def digest(self) -> str:
        """A digest of the list. Two lists with the same digest place every name alike."""
        if len(self.names) == 1:
            return ALONE
        from hashlib import blake2b

        return blake2b("\n".join(sorted(self.names)).encode(), digest_size=4).hexdigest()


def _hashes(names: Sequence[str]) -> Sequence[blake2b]:
    from hashlib import blake2b

    # (a key is at most 64 bytes long)
    return [blake2b(digest_size=8, key=blake2b(it.encode(), digest_size=32).digest()) for it in names]


def alone(nodes: Iterable[object], name: str | None = None) -> ShardNodes:
    """Return the only shard, or one of several.

    `engine.settings` refuses nodes that do not go together.
    """
    found = tuple(node_of(it) for it in nodes)
    if name is None:
        name = " ".join(f"{host}:{port}" for host, port in sorted(it.address.place for it in found))
    return ShardNodes(name, found)


def shards(given: object, what: str, flat: bool = False) -> tuple[ShardNodes, ...]:
    """Return the shards that a user lists, in a mapping by their names or in a list.

    A shard without a name is called by the places of its nodes, in order. So it is another shard
    when its nodes change.

    Args:
        given: The mapping or list.
        what: What to call the argument in errors.
        flat: Take a list of addresses as one shard.

    Raises:
        ConfigError: The argument has another form, or two shards have a node in common.
    """
    if isinstance(given, Mapping):
        found = [_shard(_name(name, what), nodes, what) for name, nodes in given.items()]
    elif isinstance(given, Iterable) and not isinstance(given, str | bytes):
        sets = list(given)
        if flat and sets and all(isinstance(it, str | Node) for it in sets):
            sets = [sets]
        found = [_shard(None, nodes, what) for nodes in sets]
    else:
        raise ConfigError(
            f"{what} is a list of shards, or a mapping of names to shards, not {checks.shown(given)}; "
            "a shard is a list of addresses"
        )
    if not found:
        form = "{'a': ['redis://a1:6379', ...], 'b': ['redis://b1:6379', ...]}"
        raise ConfigError(f"{what} has no shard: {what}={form}")
    for number, one in enumerate(found):
        for other in found[:number]:
            if one.name == other.name or one.places & other.places:
                raise ConfigError(
                    f"{what}: {one.name!r} and {other.name!r} have a node in common: each shard has servers of its own"
                )
    return tuple(found)


def _shard(name: str | None, nodes: object, what: str) -> ShardNodes:
    if isinstance(nodes, str | bytes | Node) or not isinstance(nodes, Iterable):
        raise ConfigError(f"{what}: a shard is a list of addresses, not {checks.shown(nodes)}")
    found = alone(nodes, name)
    if not found.nodes:
        raise ConfigError(f"{what}: a shard is empty: name at least one node in each, or leave it out")
    return found


def _name(name: object, what: str) -> str:
    text = checks.text(name, f"{what}: the name of a shard", most=LONGEST)
    if not text.strip() or not text.isprintable():
        raise ConfigError(f"{what}: {checks.shown(text)} cannot be the name of a shard: use some printable letters")
    return text


def listed(text: str) -> dict[str, list[str]] | list[list[str]]:
    """Read addresses in an environment variable, such as `a=redis://a1 redis://a2; b=redis://b1`.

    Commas or spaces separate addresses, and semicolons separate shards.
    """
    sets: list[list[str]] = masked([[one for one in re.split(_BETWEEN, it) if one] for it in text.split(";")])
    sets = [it for it in sets if it]
    called = [re.match(_CALLED, it[0]) for it in sets]
    if not any(called):
        return sets
    if not all(called) or len({it[1] for it in called if it}) < len(called):
        raise ConfigError("either every shard has a name of its own, or none has a name: a=redis://a1; b=redis://b1")
    found: dict[str, list[str]] = masked({
        it[1]: [nodes[0][it.end() :], *nodes[1:]] for it, nodes in zip(called, sets, strict=True) if it
    })
    return found


def only(found: Mapping[str, list[str]] | Sequence[list[str]]) -> list[str]:
    """Return the nodes of the only shard in an environment variable, or an empty list."""
    return next(iter(found.values() if isinstance(found, Mapping) else found), [])
