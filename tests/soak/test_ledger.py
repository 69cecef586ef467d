"""The ledger notices what a lock must not do, and is not misled by processes that are stopped."""

from __future__ import annotations

from pathlib import Path

import pytest
from soak.ledger import Ledger


class Holder:
    def __init__(self, held: bool = True, remaining: float = 60.0) -> None:
        self.held, self.remaining = held, remaining


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger"


def test_one_holder_after_the_other_with_growing_fences(path: Path) -> None:
    mine, yours = Ledger(path), Ledger(path)
    mine.enter(7, 10, Holder())
    mine.renew(7, 10, Holder())
    mine.leave(7, 10)
    yours.enter(7, 11, Holder())
    mine.enter(8, 10, Holder())
    mine.leave(7, 10)  # of a lease that was lost: it is somebody else's now
    yours.renew(7, 11, Holder())
    assert mine.complaints + yours.complaints == []


def test_a_killed_holder_is_over_when_its_time_is(path: Path) -> None:
    Ledger(path).enter(7, 10, Holder(remaining=0.0))
    after = Ledger(path)
    after.enter(7, 11, Holder())
    assert after.complaints == []


def test_two_holders_are_noticed(path: Path) -> None:
    mine, yours = Ledger(path), Ledger(path)
    mine.enter(7, 10, Holder())
    yours.enter(7, 11, Holder())
    assert len(yours.complaints) == 1
    assert yours.complaints[0].startswith("name 7 has two holders, with fences 10 and 11, for ")
    mine.renew(7, 10, Holder())
    assert mine.complaints == ["name 7 was given to fence 11 while fence 10 held it"]


@pytest.mark.parametrize("fence", [9, 10])
def test_a_fence_that_does_not_grow_is_noticed(path: Path, fence: int) -> None:
    mine, yours = Ledger(path), Ledger(path)
    mine.enter(7, 10, Holder())
    mine.leave(7, 10)
    yours.enter(7, fence, Holder())
    assert yours.complaints == [f"name 7 has fence {fence} after 10"]


def test_who_was_stopped_and_is_no_holder_any_more_is_no_cause_for_complaint(path: Path) -> None:
    mine, yours = Ledger(path), Ledger(path)
    yours.enter(7, 11, Holder())
    mine.enter(7, 10, Holder(held=False))
    mine.renew(7, 10, Holder(held=False))
    yours.renew(7, 11, Holder())
    assert mine.complaints + yours.complaints == []
