"""What a lease knows of what it holds, by its claim and the clock."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from engine.world import World

from holdfast import LeaseState
from holdfast.errors import LockLost
from holdfast.face.lease import LeaseFacts, infos
from holdfast.face.terms import LockTerms


class Facts(LeaseFacts):
    """A lease whose claim a test has."""

    _claim: Any = None

    def _check_owner(self) -> bool:
        return False

    def _new_event(self) -> threading.Event:
        return threading.Event()


def test_s16_a_lease_is_lost_by_the_clock_and_not_when_somebody_notices() -> None:
    world = World().connect()
    claim = world.claim()
    world.run(0.1)
    lease: Any = Facts(LockTerms((claim.recipe,), claim.timing), world.settings, lambda: world.now)
    lease._claim = claim
    assert [(it.name, it.remaining) for it in infos([lease])] == [("a", claim.until - world.now)] and lease.slots == ()
    world.now = claim.until
    assert infos([lease]) == ()
    assert (lease.state, lease.lost.is_set(), lease.remaining) == (LeaseState.LOST, True, 0.0)
    with pytest.raises(LockLost):
        lease.check()
