"""With a fence no update is lost, whoever is stopped; without one some are; and a storage that is shown no fences is found out."""

from __future__ import annotations

import pytest
from nemesis.processes import ran

pytestmark = [pytest.mark.stories, pytest.mark.timeout(240)]


def test_nothing_is_lost_with_a_fence_and_something_is_without() -> None:
    """Two pauses just before a write, for each way to lock: 12 s on an idle machine."""
    status, told, wrong = ran("-m", "bench.updates", "--quick", within=200)
    assert (status, wrong) == (0, ""), told + wrong
    # Which also says that late writes were refused, and that without a fence something was lost.
    assert told.endswith("With a fence nothing is lost, whoever is stopped and when.\n"), told
