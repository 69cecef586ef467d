"""A lock on names that move, step by step: what is asked of the leases on the old shards and on the new one, in which order."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.errors import ConfigError
from holdfast.face import migration
from holdfast.protocol.timing import Timing

ALL = frozenset("abc")


class Part:
    """A lease on one shard of three nodes. `seen`: the servers that it sees after it has met them once, twice and so on."""

    _move = None

    def __init__(self, shard: str, *seen: frozenset[str]) -> None:
        self.done: list[str] = []
        self._settings: Any = SimpleNamespace(shard=shard, addresses=(1, 2, 3))
        self._terms: Any = SimpleNamespace(timing=Timing(9.0))
        self._seen = list(seen)

    def _clock(self) -> float:
        return float(self.done.count("meet"))

    def _acquaintance(self, wait: float | None) -> float:
        return 5.0

    def _servers(self) -> frozenset[str]:
        return self._seen[min(self.done.count("meet"), len(self._seen)) - 1]

    def _meet(self, wait: float | None, **options: Any) -> None:
        self.done.append("meet")

    def _obtain(self, timing: Timing, **options: Any) -> None:
        self.done.append("obtain")


def acquire(new: Part, old: Part, **options: Any) -> None:
    """Carry out the steps until a lease is obtained somewhere."""
    leases: list[Any] = [new, old]
    for step in migration.steps(leases[0], leases[1:], None, **options):
        step()
        if "obtain" in new.done + old.done:
            return


@pytest.mark.parametrize("left", [frozenset("c"), frozenset()], ids=["one", "none"])
def test_servers_whose_connections_break_while_others_are_met_are_met_again(left: frozenset[str]) -> None:
    """One that is left would be in common, and too few; of none nobody knows that they are the same."""
    new, old = Part("new", ALL), Part("old", left, left, ALL)
    acquire(new, old)
    assert old.done == ["meet"] * 3, "nothing is asked for on the former list, which names the same servers"
    assert new.done == ["meet"] * 3 + ["obtain"]


def test_servers_that_are_met_are_not_met_again() -> None:
    new, old = Part("new", ALL), Part("old", frozenset("xy"))
    acquire(new, old)
    assert (old.done, new.done) == (["meet", "obtain"], ["meet"])
    with pytest.raises(ConfigError, match="1 servers in common"):
        acquire(Part("new", ALL), Part("old", frozenset("xya")))


def test_servers_that_cannot_be_met_at_the_same_time_are_judged_when_the_time_is_over() -> None:
    new, old = Part("new", ALL), Part("old", frozenset("c"))
    with pytest.raises(ConfigError, match="1 servers in common"):
        acquire(new, old)
    assert old.done == new.done == ["meet"] * 5


def test_whoever_was_cancelled_meets_nobody_again() -> None:
    cancel = threading.Event()
    cancel.set()
    new, old = Part("new", frozenset()), Part("old", frozenset())
    acquire(new, old, cancel=cancel)
    assert (old.done, new.done) == (["meet", "obtain"], ["meet"])
