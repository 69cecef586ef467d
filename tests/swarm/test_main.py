"""`./task sim`, `replay` and `shrink`: what they say of worlds, and with which exit status."""

from __future__ import annotations

import re

import pytest
from swarm import __main__ as script
from swarm.__main__ import main

pytestmark = pytest.mark.stories


def test_a_failing_world_is_shrunk_and_can_be_replayed_as_it_says(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.protocol.quorum.majority", lambda nodes: max(1, nodes // 2))
    assert main(["--shrink", "0", "--swarm", "--runs", "40"]) == 1
    told = capsys.readouterr().out.splitlines()
    assert re.match(r"\d+ of \d+ faults are left, after \d+ runs: ", told[-2])
    found = re.search(r"replay 0 --swarm --only '(.*)' --plan '(.*)'$", told[-1])
    assert found is not None
    assert main(["--replay", "0", "--swarm", "--only", found[1], "--plan", found[2]]) == 1
    again = capsys.readouterr().out.splitlines()
    # What is wrong, and when.
    assert told[-3] in again


def test_a_law_that_never_looks_is_a_failure(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(script, "ENOUGH", 1)
    # One world alone has not something of everything.
    assert main(["--seeds", "3..4", "--swarm"]) == 2
    assert "laws that had nothing to look at: " in capsys.readouterr().out
