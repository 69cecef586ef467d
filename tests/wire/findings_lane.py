"""A finding in wire/lane.py: this fails today."""

from __future__ import annotations

import pytest
from wire.test_lane import UP, a_lane, meet

from holdfast.wire.lane import LOADING, SHORT


@pytest.mark.parametrize("failed", [False, True])
def test_a_connection_on_which_the_scripts_were_never_taken_was_of_no_use(failed: bool) -> None:
    """With a node_timeout of more than a second: a node (or a proxy) that hangs up two seconds after the greeting, every time.

    `opened` sets `_opened`, so the time for which SCRIPT LOAD was unanswered counts as use: the failures are forgotten, the node is
    dialled again without a pause, and counts as hoped for.
    """
    lane = a_lane(patience=5.0)
    if failed:
        lane.dial(0.0)
        lane.broke(0.0)
    meet(lane, 10.0)
    lane.opened(10.0)
    assert lane.line is (LOADING if failed else UP)
    lane.broke(11.0 + SHORT)
    assert lane.fails == failed + 1
