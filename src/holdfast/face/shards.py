"""Which set of nodes a name lives on, where names are spread over several sets (shards), each with a majority of its own.

Knows names, and what a user says of the sets. Must not know what is asked of a set's nodes, or who asks.

Rendezvous hashing: a set has a weight for each name, a hash of what the set is called and of the name, and a name lives where its weight is
largest. So a set that is added takes from every other one only what it gets itself, one that goes leaves its names to all others, and
the order in which sets are listed means nothing. Where Redis finds a hash tag in a name, `{tag}`, the tag alone decides: names with the
same tag live together.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import NamedTuple

from .. import checks
from ..engine.roll import ALONE
from ..errors import ConfigError
from ..recipes.exclusive import tag_of
from ..wire import address
from ..wire.address import Address, masked

LONGEST = 64  # bytes of what a set is called
_CALLED = re.compile(r"([\w.-]+)=(?=\w+://)")  # in an environment variable: what a set is called, before its first address


class Shard(NamedTuple):
    """One set of nodes. `name`: what it is called; `nodes`: their addresses; `places`: where they are."""

    name: str
    nodes: tuple[Address, ...]
    places: frozenset[tuple[str, int]]


class Spread:
    """Where each name lives, of these sets: one version of the list."""

    __slots__ = ("_hashes", "names")

    def __init__(self, names: Sequence[str]) -> None:
        self.names = tuple(names)
        # (a key is at most 64 bytes long)
        self._hashes = [blake2b(digest_size=8, key=blake2b(it.encode(), digest_size=32).digest()) for it in names]

    def of(self, name: str) -> int:
        """The number of the set on which this lock's name lives."""
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
        """What two lists have in common if, and hardly ever if not, every name lives at the same place in both."""
        if len(self.names) == 1:
            return ALONE
        return blake2b("\n".join(sorted(self.names)).encode(), digest_size=4).hexdigest()


def alone(nodes: Iterable[object], name: str | None = None) -> Shard:
    """The only shard, or one of several. (`engine.settings` complains of nodes that do not go together.)"""
    addresses = tuple(address.parse(it) for it in nodes)
    places = [it.place for it in addresses]
    return Shard(" ".join(f"{host}:{port}" for host, port in sorted(places)) if name is None else name, addresses, frozenset(places))


def shards(given: object, what: str, flat: bool = False) -> tuple[Shard, ...]:
    """The sets that a user names, in a mapping by what they are called, or in a list. ConfigError for what cannot be one.

    A set that is not called anything is called by where its nodes are, in order: so it is another one when its nodes are others.
    `flat`: addresses one after the other are one set.
    """
    if isinstance(given, Mapping):
        found = [_shard(_name(name, what), nodes, what) for name, nodes in given.items()]
    elif isinstance(given, Iterable) and not isinstance(given, str | bytes):
        sets = list(given)
        if flat and sets and all(isinstance(it, str) for it in sets):
            sets = [sets]
        found = [_shard(None, nodes, what) for nodes in sets]
    else:
        raise ConfigError(f"{what} is a list of sets of nodes, or a mapping of names to sets, not {checks.shown(given)}")
    if not found:
        raise ConfigError(f"{what} has no set of nodes: {what}={{'a': ['redis://a1:6379', ...], 'b': ['redis://b1:6379', ...]}}")
    for number, one in enumerate(found):
        for other in found[:number]:
            if one.name == other.name or one.places & other.places:
                raise ConfigError(f"{what}: {one.name!r} and {other.name!r} have a node in common: each set has servers of its own")
    return tuple(found)


def _shard(name: str | None, nodes: object, what: str) -> Shard:
    if isinstance(nodes, str | bytes) or not isinstance(nodes, Iterable):
        raise ConfigError(f"{what}: a set of nodes is a list of addresses, not {checks.shown(nodes)}")
    found = alone(nodes, name)
    if not found.nodes:
        raise ConfigError(f"{what}: a set of nodes is empty: name at least one node in each, or leave it out")
    return found


def _name(name: object, what: str) -> str:
    text = checks.text(name, f"{what}: what a set is called", most=LONGEST)
    if not text.strip() or not text.isprintable():
        raise ConfigError(f"{what}: {checks.shown(text)} is not what a set can be called: use some printable letters")
    return text


def listed(text: str) -> dict[str, list[str]] | list[list[str]]:
    """What an environment variable says: addresses, by commas or spaces; sets, by semicolons, `a=redis://a1 redis://a2; b=redis://b1`."""
    sets: list[list[str]] = masked([it.replace(",", " ").split() for it in text.split(";")])
    sets = [it for it in sets if it]
    called = [_CALLED.match(it[0]) for it in sets]
    if not any(called):
        return sets
    if not all(called) or len({it[1] for it in called if it}) < len(called):
        raise ConfigError("either every set of nodes is called something, each something else, or none is: a=redis://a1; b=redis://b1")
    found: dict[str, list[str]] = masked({it[1]: [nodes[0][it.end() :], *nodes[1:]] for it, nodes in zip(called, sets, strict=True) if it})
    return found


def only(found: Mapping[str, list[str]] | Sequence[list[str]]) -> list[str]:
    """The nodes of the only set that an environment variable lists; none, if it lists none."""
    return next(iter(found.values() if isinstance(found, Mapping) else found), [])
